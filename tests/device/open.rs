//! Finding an adapter, and the properties of a device.

use lapidary::{
    Error, Gpu, Options, Result,
    adapter::{AdapterKind, adapters},
};

use super::{app::App, floats, gpu};

fn open(adapter: &str) -> Result<Gpu> {
    Gpu::open(Options {
        adapter: Some(adapter.to_owned()),
        ..Options::from_env().unwrap()
    })
}

#[test]
fn an_adapter_is_opened_by_its_index_its_name_or_its_kind() -> Result<()> {
    let default = gpu().caps().clone();
    let listed = adapters();
    let index = listed
        .iter()
        .position(|adapter| adapter.name == default.name)
        .expect("what was opened is listed");
    let kind = match default.kind {
        AdapterKind::Discrete => "discrete",
        AdapterKind::Integrated => "integrated",
        AdapterKind::Virtual => "virtual",
        AdapterKind::Cpu => "cpu",
        _ => "other",
    };
    assert_eq!(open(&index.to_string())?.caps().name, default.name);
    assert_eq!(
        open(&default.name.to_uppercase())?.caps().name,
        default.name
    );
    assert_eq!(open(&default.backend)?.caps().backend, default.backend);
    assert_eq!(open(kind)?.caps().kind, default.kind);
    assert_eq!(listed[index].kind, default.kind);
    Ok(())
}

#[test]
fn an_adapter_that_is_not_there_is_refused_with_those_that_are() {
    for wanted in ["none of this name", "9999"] {
        let Err(error) = open(wanted) else {
            panic!("{wanted} was opened");
        };
        assert!(matches!(error, Error::NoAdapter { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains(&gpu().caps().name), "{text}");
    }
}

#[test]
fn the_capabilities_are_those_of_a_device_that_can_compute() {
    for gpu in [gpu(), App::open().gpu()] {
        let caps = gpu.caps();
        assert!(!caps.name.is_empty() && !caps.backend.is_empty());
        assert!(caps.max_binding_bytes >= 64 << 20, "{caps:?}");
        assert!(caps.max_binding_bytes <= caps.max_buffer_bytes, "{caps:?}");
        assert!(caps.max_storage_bindings >= 4, "{caps:?}");
        assert!(caps.offset_alignment_bytes.is_power_of_two(), "{caps:?}");
        assert!(caps.max_groups >= 65_535, "{caps:?}");
        assert!(matches!(caps.max_immediate_bytes, 0 | 128), "{caps:?}");
        assert!(
            caps.subgroup_lanes
                .is_none_or(|(least, most)| least <= most)
        );
    }
}

#[test]
fn clones_share_one_device_and_two_devices_share_nothing() -> Result<()> {
    let (one, other) = (gpu(), gpu());
    let x = one.clone().tensor(&[1.0_f32], &[1])?;
    let y = one.tensor(&[2.0_f32], &[1])?;
    assert_eq!(floats(&(&x + &y)?), [3.0]);
    let foreign = other.tensor(&[2.0_f32], &[1])?;
    for result in [x.add(&foreign).map(drop), foreign.add_(&x)] {
        assert!(matches!(result, Err(Error::Foreign { .. })), "{result:?}");
    }
    assert_eq!(floats(&foreign), [2.0]);
    Ok(())
}

/// With the last instance of Vulkan the driver was unloaded, and the thread then ran into its
/// destructors of thread-local data.
#[test]
fn threads_that_drop_the_only_device_end() {
    for _ in 0..3 {
        let thread = std::thread::spawn(|| -> Result<f32> {
            let gpu = Gpu::open(Options::from_env()?)?;
            (gpu.ones(&[4], lapidary::DType::F32)? + 1.0)?
                .sum_all()?
                .item()
        });
        assert_eq!(thread.join().expect("it does not panic").unwrap(), 8.0);
    }
}

#[test]
fn the_report_names_the_adapter_and_adds_up() -> Result<()> {
    let gpu = gpu();
    let x = gpu.tensor(&[0.0_f32; 1000], &[1000])?.named("a thousand");
    x.force()?;
    let memory = gpu.memory().stats();
    assert_eq!(memory.adapter, gpu.caps().name);
    assert!(memory.requested_bytes.now >= 4000);
    assert!(memory.live_bytes.now >= memory.requested_bytes.now);
    assert_eq!(
        memory.live_bytes.now + memory.cached_bytes.now,
        memory.reserved_bytes.now
    );
    let page = memory.to_string();
    assert!(page.contains("a thousand"), "{page}");
    assert!(page.lines().count() <= 40, "{page}");
    Ok(())
}
