//! Finds an adapter, opens a device, and adopts a device of the app.

use std::time::Duration;

use super::super::{AdapterKind, BoxFuture, Caps};
use super::driver::WgpuDriver;
use super::dx12::{self, Dx12Compiler};
use super::opened::Objects;
use super::{caps, cooperative, needed};
use crate::error::{Error, Result};
use crate::units::MIB;

/// wgpu sub-allocates smaller buffers, and gives larger ones their own memory, which is freed when
/// they are dropped. wgpu's default is 128 MiB and more, which keeps nearly all memory for ever.
const DRIVER_BLOCK_BYTES: u64 = 4 * MIB;

/// The longest wait inside wgpu, on a device of our own. Drivers abort work that takes longer.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The adapter to open.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenRequest {
    /// The index of the adapter (`"0"`), its backend (`"vulkan"`), its kind (`"cpu"`, `"discrete"`,
    /// `"integrated"`, `"virtual"`), or a part of its name (`"llvmpipe"`), in any case. `None`
    /// takes the best adapter.
    pub(crate) adapter: Option<String>,
    /// The preference by which adapters are ranked: the fastest by default.
    pub(crate) power: wgpu::PowerPreference,
    /// The graphics APIs to look at: by default all, or those in `WGPU_BACKEND`.
    pub(crate) backends: Option<wgpu::Backends>,
    /// The compiler of kernels on DX12: by default the one in `WGPU_DX12_COMPILER`, else the best
    /// one.
    pub(crate) dx12_compiler: Option<Dx12Compiler>,
    /// Whether evicted buffers go to slabs in the host's memory. `None` leaves it to the kind of
    /// device.
    pub(crate) host_heap: Option<bool>,
}

impl OpenRequest {
    fn instance(&self) -> Result<wgpu::InstanceDescriptor> {
        let mut desc = wgpu::InstanceDescriptor::new_without_display_handle();
        desc.flags = desc.flags.with_env();
        if let Some(backends) = self.backends.or_else(wgpu::Backends::from_env) {
            desc.backends = backends;
        }
        // Only DX12's options matter, and reading them is much code.
        if cfg!(windows) {
            desc.backend_options = wgpu::BackendOptions::from_env_or_default();
        }
        let compiler = &mut desc.backend_options.dx12.shader_compiler;
        if let Some(wanted) = &self.dx12_compiler {
            *compiler = wanted.of_wgpu();
        }
        dx12::check(compiler)?;
        Ok(desc)
    }
}

/// An adapter with compute shaders, as `adapters` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdapterSummary {
    /// The adapter's name, as its driver gives it.
    pub name: String,
    /// The graphics API: `vulkan`, `metal`, `dx12`, `webgpu`.
    pub backend: String,
    /// The driver's name and version, if it tells them.
    pub driver: String,
    /// The kind of device.
    pub kind: AdapterKind,
    /// Whether one of its limits is too low.
    falls_short: bool,
}

impl AdapterSummary {
    fn new(adapter: &wgpu::Adapter) -> Self {
        let info = adapter.get_info();
        AdapterSummary {
            backend: info.backend.to_str().to_owned(),
            driver: caps::driver_of(&info),
            kind: caps::kind_of(info.device_type),
            name: caps::name_of(&info),
            falls_short: needed::check(adapter.features(), &adapter.limits()).is_err(),
        }
    }

    /// Whether it is a wanted adapter, by its index in the list or by what it is called.
    fn fits(&self, index: usize, wanted: Option<&str>) -> bool {
        let Some(wanted) = wanted else { return true };
        if let Ok(number) = wanted.parse::<usize>() {
            return number == index;
        }
        let wanted = wanted.to_ascii_lowercase();
        let kind = format!("{:?}", self.kind).to_ascii_lowercase();
        wanted == self.backend
            || wanted == kind
            || self.name.to_ascii_lowercase().contains(&wanted)
            || self.driver.to_ascii_lowercase().contains(&wanted)
    }

    /// Whether these caps describe the adapter, or one that looks the same.
    fn is_that_of(&self, caps: &Caps) -> bool {
        self.name == caps.name && self.backend == caps.backend && self.kind == caps.kind
    }

    /// The rank of the adapter. Lower is better.
    fn rank(&self, power: wgpu::PowerPreference) -> u32 {
        let (discrete, integrated) = match power {
            wgpu::PowerPreference::LowPower => (1, 0),
            _ => (0, 1),
        };
        match self.kind {
            AdapterKind::Discrete => discrete,
            AdapterKind::Integrated => integrated,
            AdapterKind::Virtual => 2,
            AdapterKind::Other => 3,
            AdapterKind::Cpu => 4,
        }
    }
}

/// The adapters with compute shaders, in the order of their indices.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn list() -> Vec<AdapterSummary> {
    let adapters = pollster::block_on(usable(&OpenRequest::default()));
    // This function cannot return an error of the environment; opening returns it.
    let adapters = adapters.unwrap_or_default();
    adapters.iter().map(AdapterSummary::new).collect()
}

async fn usable(request: &OpenRequest) -> Result<Vec<wgpu::Adapter>> {
    let desc = request.instance()?;
    let may_be_dx12 = desc.backends.contains(wgpu::Backends::DX12);
    let compiler = desc.backend_options.dx12.shader_compiler.clone();
    let mut adapters = enumerate(desc, request.power).await;
    let is_dx12 = |adapter: &wgpu::Adapter| adapter.get_info().backend == wgpu::Backend::Dx12;
    if may_be_dx12 && !adapters.iter().any(is_dx12) {
        if let Some(other) = dx12::instead_of(&compiler)? {
            let mut desc = request.instance()?;
            desc.backends = wgpu::Backends::DX12;
            desc.backend_options.dx12.shader_compiler = other;
            adapters.extend(enumerate(desc, request.power).await);
        }
    }
    adapters.retain(computes);
    Ok(adapters)
}

async fn enumerate(
    desc: wgpu::InstanceDescriptor,
    power: wgpu::PowerPreference,
) -> Vec<wgpu::Adapter> {
    let backends = desc.backends;
    let instance = wgpu::Instance::new(desc);
    #[cfg(unix)]
    keep_loaded(&instance);
    match cfg!(target_arch = "wasm32") {
        // A browser returns one adapter for each preference.
        true => {
            let wish = wgpu::RequestAdapterOptions {
                power_preference: power,
                ..Default::default()
            };
            let adapter = instance.request_adapter(&wish).await;
            adapter.into_iter().collect()
        }
        false => instance.enumerate_adapters(backends).await,
    }
}

/// Keeps the drivers loaded until the process ends. With the last instance the Vulkan loader
/// unloads them, also in the middle of a thread that drops a device. When such a thread ends, the
/// driver's destructors of thread-local data are gone: with NVIDIA's driver the process crashed.
#[cfg(unix)]
fn keep_loaded(instance: &wgpu::Instance) {
    static FIRST: std::sync::OnceLock<wgpu::Instance> = std::sync::OnceLock::new();
    FIRST.get_or_init(|| instance.clone());
}

fn computes(adapter: &wgpu::Adapter) -> bool {
    let flags = adapter.get_downlevel_capabilities().flags;
    flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
}

/// The index of the wanted adapter. If several fit, the one that `like` describes.
fn choose(
    found: &[AdapterSummary],
    wanted: Option<&str>,
    power: wgpu::PowerPreference,
    like: Option<&Caps>,
) -> Result<usize> {
    let fits = |(index, adapter): &(usize, &AdapterSummary)| adapter.fits(*index, wanted);
    let fitting = found.iter().enumerate().filter(fits);
    let is_other = |adapter: &AdapterSummary| !like.is_some_and(|caps| adapter.is_that_of(caps));
    let best = fitting.min_by_key(|(_, one)| (one.falls_short, is_other(one), one.rank(power)));
    best.map(|(index, _)| index)
        .ok_or_else(|| no_adapter(found, wanted))
}

fn no_adapter(found: &[AdapterSummary], wanted: Option<&str>) -> Error {
    let lines = found.iter().enumerate().map(|(index, adapter)| {
        let AdapterSummary { name, backend, .. } = adapter;
        format!("{index}: {name} ({backend})")
    });
    let there = lines.collect::<Vec<_>>().join(", ");
    match (wanted, found) {
        (Some(wanted), [_, ..]) => Error::NoAdapter {
            reason: format!("none is called `{wanted}`; there are {there}"),
            hint: "Name one of these by its index or a part of its name, or give no name"
                .to_owned(),
        },
        _ => Error::NoAdapter {
            reason: "none with compute shaders was found".to_owned(),
            hint: install_hint(),
        },
    }
}

/// The indices of the adapters that are opened together. Software adapters are among them only if
/// there is no other. Several APIs may show the same adapter, so all are of one API: of the one
/// that shows most.
#[cfg(not(target_arch = "wasm32"))]
fn choose_all(found: &[AdapterSummary], wanted: Option<&str>) -> Vec<usize> {
    let fits = |(index, adapter): &(usize, &AdapterSummary)| {
        adapter.fits(*index, wanted) && !adapter.falls_short
    };
    let mut fitting: Vec<_> = found.iter().enumerate().filter(fits).collect();
    let is_real = |adapter: &AdapterSummary| adapter.kind != AdapterKind::Cpu;
    if fitting.iter().any(|(_, adapter)| is_real(adapter)) {
        fitting.retain(|(_, adapter)| is_real(adapter));
    }
    let of_backend = |backend: &str| {
        let shown = fitting.iter().filter(|(_, one)| one.backend == backend);
        shown.map(|(index, _)| *index).collect::<Vec<_>>()
    };
    let shown = fitting.iter().map(|(_, one)| of_backend(&one.backend));
    // Of as many, the first.
    shown.rev().max_by_key(Vec::len).unwrap_or_default()
}

/// The indices of the adapters to open together: see [`choose_all`].
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn all_indices(request: &OpenRequest) -> Result<Vec<usize>> {
    let wanted = request.adapter.as_deref();
    let adapters = pollster::block_on(usable(request))?;
    let found = adapters.iter().map(AdapterSummary::new).collect::<Vec<_>>();
    match choose_all(&found, wanted) {
        none if none.is_empty() => Err(no_adapter(&found, wanted)),
        indices => Ok(indices),
    }
}

/// The software to install on this system to get an adapter.
fn install_hint() -> String {
    let hint = if cfg!(target_arch = "wasm32") {
        "This browser has no WebGPU, or it is turned off: use another browser, or turn it on"
    } else if cfg!(target_os = "windows") {
        "Update the graphics driver; DX12 or Vulkan is needed"
    } else if cfg!(target_vendor = "apple") {
        "Update the system; Metal is needed"
    } else {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        linux_hint(&release)
    };
    hint.to_owned()
}

fn linux_hint(os_release: &str) -> &'static str {
    let is_id = |line: &&str| line.starts_with("ID=") || line.starts_with("ID_LIKE=");
    let ids: Vec<&str> = os_release.lines().filter(is_id).collect();
    let is = |family: &[&str]| {
        let mut pairs = ids
            .iter()
            .flat_map(|ids| family.iter().map(move |id| (ids, id)));
        pairs.any(|(ids, id)| ids.contains(id))
    };
    if is(&["debian", "ubuntu"]) {
        "Install a Vulkan driver: `apt install mesa-vulkan-drivers libvulkan1` (it brings a \
         software one for machines without a GPU)"
    } else if is(&["fedora", "rhel", "centos"]) {
        "Install a Vulkan driver: `dnf install mesa-vulkan-drivers vulkan-loader` (it brings a \
         software one for machines without a GPU)"
    } else if is(&["arch"]) {
        "Install a Vulkan driver: `pacman -S vulkan-swrast vulkan-icd-loader` for software, or \
         your GPU's"
    } else {
        "Install a Vulkan loader and Mesa's Vulkan drivers (they bring a software one for \
         machines without a GPU)"
    }
}

/// A new device of our own.
pub(super) struct Found {
    pub(super) objects: Objects,
    pub(super) caps: Caps,
}

/// Opens a device as requested. If several adapters fit, it takes the one that `like` describes.
pub(super) fn find<'a>(
    request: &'a OpenRequest,
    like: Option<&'a Caps>,
) -> BoxFuture<'a, Result<Found>> {
    Box::pin(async move {
        let wanted = request.adapter.as_deref();
        let adapters = usable(request).await?;
        let found = adapters.iter().map(AdapterSummary::new).collect::<Vec<_>>();
        let adapter = &adapters[choose(&found, wanted, request.power, like)?];
        needed::check(adapter.features(), &adapter.limits())?;
        let info = adapter.get_info();
        let cooperative_size = cooperative::size(adapter);
        let kind = caps::kind_of(info.device_type);
        let features = caps::wanted(adapter.features(), kind, cooperative_size);
        let desc = wgpu::DeviceDescriptor {
            label: Some("lapidary"),
            required_features: features,
            required_limits: caps::limits(adapter.limits(), features),
            memory_hints: wgpu::MemoryHints::Manual {
                suballocated_device_memory_block_size: DRIVER_BLOCK_BYTES..DRIVER_BLOCK_BYTES,
            },
            experimental_features: cooperative::permission(features),
            ..Default::default()
        };
        let opened = adapter.request_device(&desc).await;
        let (device, queue) = opened.map_err(|error| Error::NoAdapter {
            reason: format!("{} does not open: {error}", info.name),
            hint: "Close programs that hold its memory, update its driver, or name another adapter"
                .to_owned(),
        })?;
        let compiler = caps::compiler_of(&info, adapter.features());
        let limits = device.limits();
        let mut caps = caps::caps(&info, compiler, features, &limits, cooperative_size);
        caps.choose_host_heap(request.host_heap);
        let objects = (Some(adapter.clone()), device, queue);
        Ok(Found { objects, caps })
    })
}

impl WgpuDriver {
    /// Opens the best adapter, or the one in the request.
    ///
    /// # Errors
    /// [`Error::NoAdapter`], or [`Error::Option`] when the compiler for DX12 cannot be used.
    pub(crate) async fn open(request: &OpenRequest) -> Result<Self> {
        let found = find(request, None).await?;
        let driver = Self::new(found, Some(LONGEST_WAIT), Some(request.clone()))?;
        driver.opened().guard.watch_lost();
        Ok(driver)
    }

    /// Computes on a device of the app. It sets no callback, since callbacks belong to the app.
    ///
    /// # Errors
    /// [`Error::Option`] when a limit of the device is too low, and [`Error::DeviceLost`] when the
    /// device takes no calls.
    pub(crate) fn adopt(
        adapter: Option<&wgpu::Adapter>,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        host_heap: Option<bool>,
    ) -> Result<Self> {
        needed::check(device.features(), &device.limits())?;
        let mut caps = caps::of_device(adapter, device);
        caps.choose_host_heap(host_heap);
        let objects = (adapter.cloned(), device.clone(), queue.clone());
        let found = Found { objects, caps };
        Self::new(found, None, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(name: &str, backend: &str, kind: AdapterKind) -> AdapterSummary {
        AdapterSummary {
            name: name.to_owned(),
            backend: backend.to_owned(),
            driver: String::new(),
            kind,
            falls_short: false,
        }
    }

    #[test]
    fn an_adapter_is_found_by_index_backend_kind_and_name() {
        let found = [
            adapter(
                "llvmpipe (LLVM 15.0.6, 256 bits)",
                "vulkan",
                AdapterKind::Cpu,
            ),
            adapter("Iris Xe", "vulkan", AdapterKind::Integrated),
            adapter("GeForce RTX 4050", "dx12", AdapterKind::Discrete),
        ];
        let high = wgpu::PowerPreference::HighPerformance;
        for (wanted, power, index) in [
            (None, high, 2),
            (None, wgpu::PowerPreference::None, 2),
            (None, wgpu::PowerPreference::LowPower, 1),
            (Some("0"), high, 0),
            (Some("vulkan"), high, 1),
            (Some("CPU"), high, 0),
            (Some("LLVMpipe"), high, 0),
            (Some("integrated"), high, 1),
            (Some("geforce"), high, 2),
        ] {
            assert_eq!(
                choose(&found, wanted, power, None).ok(),
                Some(index),
                "{wanted:?}"
            );
        }
        assert_eq!(choose_all(&found, None), [1]);
        assert_eq!(choose_all(&found, Some("cpu")), [0]);
        assert_eq!(choose_all(&found, Some("dx12")), [2]);
        assert_eq!(choose_all(&found[..1], None), [0]);
        assert!(choose_all(&found, Some("radeon")).is_empty());
        let cards = [
            adapter("GeForce RTX 4050", "dx12", AdapterKind::Discrete),
            adapter("GeForce RTX 4050", "vulkan", AdapterKind::Discrete),
            adapter("GeForce RTX 4050", "vulkan", AdapterKind::Discrete),
        ];
        assert_eq!(choose_all(&cards, None), [1, 2]);
        let error = choose(&found, Some("radeon"), high, None)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`radeon`") && error.contains("1: Iris Xe (vulkan)"),
            "{error}"
        );
        assert!(choose(&found, Some("3"), high, None).is_err());
        // An adapter whose limits are too low is opened only if the caller names it.
        let mut found = found;
        found[2].falls_short = true;
        assert_eq!(choose(&found, None, high, None).ok(), Some(1));
        assert_eq!(choose(&found, Some("geforce"), high, None).ok(), Some(2));
    }

    #[test]
    fn the_hint_names_this_systems_packages() {
        for (release, package) in [
            (
                "NAME=\"Debian\"\nID=debian\n",
                "mesa-vulkan-drivers libvulkan1",
            ),
            ("ID=pop\nID_LIKE=\"ubuntu debian\"\n", "libvulkan1"),
            ("ID=fedora\n", "vulkan-loader"),
            ("ID=manjaro\nID_LIKE=arch\n", "vulkan-swrast"),
            ("", "Vulkan loader"),
        ] {
            assert!(linux_hint(release).contains(package), "{release}");
        }
        assert!(
            no_adapter(&[], Some("0"))
                .to_string()
                .starts_with("no GPU adapter: none with compute shaders was found")
        );
    }
}
