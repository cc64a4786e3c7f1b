//! The devices that a test of operations runs on.

use lapidary::{Gpu, Options};

/// Bytes of one binding on the devices that bind everything as several windows.
const SMALL_BINDING_BYTES: u64 = 16 << 10;

/// Whether a test of all devices runs on all of them. If `LAPIDARY_TEST_DEVICES` is `adapter`, it
/// runs on the default adapter only, as it is: for a second adapter, after a run on the first one.
pub(crate) fn runs_on_all() -> bool {
    std::env::var_os("LAPIDARY_TEST_DEVICES").is_none_or(|devices| devices != "adapter")
}

/// All devices of this machine, with a name for messages. They are the default adapter, the same
/// with bindings so small that ordinary operands take several, and the simulation in both forms.
pub(crate) fn gpus() -> Vec<(&'static str, Gpu)> {
    let mut gpus = Vec::new();
    let open = Gpu::open(Options::from_env().unwrap());
    gpus.push(("adapter", open.expect("the tests need an adapter")));
    if runs_on_all() {
        gpus.push(("adapter, small bindings", adopt(SMALL_BINDING_BYTES)));
        gpus.push(("simulation", reference()));
        gpus.push(("simulation, small bindings", simulated(SMALL_BINDING_BYTES)));
    }
    gpus
}

/// The same devices, for a loop. A test that fails has printed the name of the last one.
pub(crate) fn each() -> impl Iterator<Item = Gpu> {
    named(gpus())
}

/// Prints the name of each device before its turn.
pub(crate) fn named(gpus: Vec<(&'static str, Gpu)>) -> impl Iterator<Item = Gpu> {
    gpus.into_iter().map(|(name, gpu)| {
        println!("on the {name}");
        gpu
    })
}

/// The simulation, which computes by the references of the kernels.
pub(crate) fn reference() -> Gpu {
    simulated(128 << 20)
}

fn simulated(max_binding_bytes: u64) -> Gpu {
    let options = lapidary::sim::SimOptions {
        max_binding_bytes,
        dirty: true,
        ..Default::default()
    };
    let (gpu, _) = Gpu::simulated(options).expect("these options can be");
    gpu
}

/// The adapter that `Gpu::open` chooses, opened by hand with a lower limit.
pub(crate) fn adopt(binding_bytes: u64) -> Gpu {
    use lapidary::wgpu;
    let chosen = Gpu::open(Options::from_env().unwrap()).expect("the tests need an adapter");
    let desc = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    let backends = desc.backends;
    let instance = wgpu::Instance::new(desc);
    let adapters = pollster::block_on(instance.enumerate_adapters(backends));
    let is_chosen = |adapter: &wgpu::Adapter| {
        let info = adapter.get_info();
        info.name == chosen.caps().name && info.backend.to_str() == chosen.caps().backend
    };
    let adapter = adapters.into_iter().find(is_chosen);
    let adapter = adapter.expect("the adapter was there a moment ago");
    let mut limits = adapter.limits();
    limits.max_storage_buffer_binding_size = binding_bytes;
    let wanted = wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP;
    let request = adapter.request_device(&wgpu::DeviceDescriptor {
        required_features: adapter.features() & wanted,
        required_limits: limits,
        ..Default::default()
    });
    let (device, queue) = pollster::block_on(request).expect("lower limits are always granted");
    Gpu::adopt(&adapter, &device, &queue).expect("the limits are enough")
}

/// Checks that a call is refused with an error of this kind.
macro_rules! refused {
    ($kind:ident: $call:expr) => {
        match $call {
            Err(lapidary::Error::$kind { .. }) => {}
            other => panic!("{}: {:?}", stringify!($call), other.err()),
        }
    };
}
pub(crate) use refused;

/// Checks the elements that a call gives, and its shape if there is one.
macro_rules! gives {
    ($type:ty: $call:expr => $values:expr) => {
        assert_eq!($call?.to_vec::<$type>()?, $values)
    };
    ($type:ty: $call:expr => $shape:expr, $values:expr) => {{
        let got = $call?;
        assert_eq!(got.shape(), $shape);
        assert_eq!(got.to_vec::<$type>()?, $values);
    }};
}
pub(crate) use gives;
