//! The heap in the host's memory on a real adapter. One that shares the host's memory has such a
//! heap if the app asks for it.

use lapidary::units::MIB;
use lapidary::{Budget, DType, Error, Gpu, Options, Residency, Result, wgpu};

use super::app::App;

fn options(device_bytes: u64) -> Options {
    Options {
        budget: Some(Budget::device(device_bytes)),
        host_heap: Some(true),
        ..Options::from_env().unwrap()
    }
}

/// The device's clock tells how fast it copies to the heap and back.
#[test]
fn the_speed_of_the_heaps_link_is_measured_each_way() -> Result<()> {
    let gpu = Gpu::open(options(64 * MIB))?;
    let has_clock = (App::adapter().features()).contains(wgpu::Features::TIMESTAMP_QUERY)
        && gpu.caps().backend != "metal";
    if !gpu.caps().host_heap {
        return Ok(());
    }
    let tensor = gpu.arange(0, 2 << 20, 1, DType::I32)?;
    tensor.force()?;
    let speeds = || {
        let stats = gpu.memory().stats();
        [stats.host_evict_bytes_per_s, stats.host_restore_bytes_per_s]
    };
    assert_eq!(speeds(), [None; 2]);
    for _ in 0..4 {
        tensor.evict()?;
        assert_eq!(tensor.residency(), Residency::Host);
        tensor.add_(1)?;
        gpu.finish()?;
    }
    let found = tensor.to_vec::<i32>()?;
    assert!(found.into_iter().eq(4..(2 << 20) + 4));
    // The last submission is asked for its times by the next one.
    gpu.zeros(&[4], DType::F32)?.force()?;
    gpu.finish()?;
    let speeds = speeds();
    assert!(
        speeds.iter().all(|speed| speed.is_some() == has_clock),
        "{speeds:?}"
    );
    eprintln!("bytes a second to the heap and back: {speeds:?}");
    assert!(speeds.iter().flatten().all(|speed| *speed > 1_000_000));
    // While kernels are timed, these copies are not.
    if has_clock {
        gpu.kernels().time(true)?;
        tensor.evict()?;
        tensor.add_(1)?;
        gpu.finish()?;
        assert!(!gpu.kernels().times()?.is_empty());
    }
    assert_eq!(tensor.to_vec::<i32>()?[..2], [5, 6]);
    Ok(())
}

/// A buffer of the app stays where the app put it, whatever leaves for the heap.
#[test]
fn a_buffer_of_the_app_is_not_evicted_to_the_heap() -> Result<()> {
    let app = App::open_mapping(true);
    let gpu = Gpu::adopt_with(&app.adapter, &app.device, &app.queue, options(4 * MIB))?;
    let buffer = app.buffer(MIB);
    let theirs = gpu.import(&buffer, 0..MIB, &[MIB as usize / 4], DType::I32)?;
    let ours: Vec<_> = (0..12)
        .map(|first| gpu.arange(first, first + (128 << 10), 1, DType::I32))
        .collect::<Result<_>>()?;
    let part = theirs.narrow(0, 0, 128 << 10)?;
    for (at, tensor) in ours.iter().enumerate() {
        part.add_(tensor)?;
        let refused = theirs.evict();
        assert!(matches!(refused, Err(Error::Pinned { .. })), "{refused:?}");
        assert_eq!(theirs.residency(), Residency::Imported);
        ours[at / 2].evict()?;
    }
    let stats = gpu.memory().stats();
    assert!(stats.evictions >= 6, "{stats}");
    assert_eq!(stats.imported_bytes.now, MIB);
    let found = part.to_vec::<i32>()?;
    assert!(found.into_iter().eq((0..128 << 10).map(|i| 66 + 12 * i)));
    // The app drops its import while its neighbours are in the heap.
    drop((theirs, part));
    for (first, tensor) in ours.iter().enumerate() {
        let found = tensor.to_vec::<i32>()?;
        let first = first as i32;
        assert!(found.into_iter().eq(first..first + (128 << 10)));
    }
    Ok(())
}

/// Moves wait in the batch, and the lower budget needs their room.
#[test]
fn a_budget_falls_while_moves_wait() -> Result<()> {
    let lower = [(6, None), (4, Some(2 * MIB)), (4, Some(0))];
    for (device_mib, host_bytes) in lower {
        let gpu = Gpu::open(options(16 * MIB))?;
        let tensors: Vec<_> = (0..48)
            .map(|first| gpu.arange(first, first + (64 << 10), 1, DType::I32))
            .collect::<Result<_>>()?;
        for tensor in &tensors[8..40] {
            tensor.evict()?;
        }
        let budget = Budget {
            host_bytes,
            ..Budget::device(device_mib * MIB)
        };
        assert_eq!(gpu.memory().set_budget(budget)?, 0);
        let stats = gpu.memory().stats();
        assert!(stats.device_bytes.now <= device_mib * MIB, "{stats}");
        assert!(stats.host_slab_bytes.now <= host_bytes.unwrap_or(u64::MAX));
        for (first, tensor) in (0..).zip(&tensors) {
            let found = tensor.to_vec::<i32>()?;
            assert!(found.into_iter().eq(first..first + (64 << 10)));
        }
    }
    Ok(())
}
