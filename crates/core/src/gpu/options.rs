//! [`Options`]: how to open a device, by the app or by the environment.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use crate::driver::Dx12Compiler;
use crate::driver::wgpu::OpenRequest;
use crate::engine::{Diagnostics, Setup};
use crate::error::{Error, Result};
use crate::memory::Budget;
use crate::transfer::{OpenStore, SpillOptions, StoreTier};

/// How to open a device.
///
/// `Options::default()` takes the best adapter, and reads none of lapidary's environment variables:
/// [`Options::from_env`](Options::from_env) does. Those of wgpu, such as `WGPU_BACKEND`, hold for
/// every device that lapidary opens.
///
/// ```no_run
/// use lapidary_core::{Budget, Gpu, Options};
///
/// let budget = Some(Budget::device(512 << 20));
/// let gpu = Gpu::open(Options { budget, ..Options::default() })?;
/// // As the variables `LAPIDARY_ADAPTER`, `LAPIDARY_BUDGET` and others say:
/// let tool = Gpu::open(Options::from_env()?)?;
/// # Ok::<(), lapidary_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The adapter: an index of [`adapters`](super::adapters), a part of a name (`"nvidia"`), a
    /// backend (`"vulkan"`, `"dx12"`, `"metal"`), or a kind (`"cpu"`, `"virtual"`, `"integrated"`,
    /// `"discrete"`). `None`: the fastest.
    pub adapter: Option<String>,
    /// Prefer the GPU that saves power to the fastest one.
    pub low_power: bool,
    /// The compiler of kernels on DX12. `None`: wgpu's own variable `WGPU_DX12_COMPILER`
    /// (`fxc`, `dxc`, `staticdxc` or `auto`), else [`Dx12Compiler::Auto`]. It has no effect on an
    /// adopted device: the app chose the compiler when it made wgpu's instance. The guide "embed in
    /// your app" says which files to ship.
    ///
    /// If the chosen compiler's DLL is missing or too old, opening fails with an [`Error::Option`]
    /// that quotes wgpu.
    pub dx12_compiler: Option<Dx12Compiler>,
    /// Memory limits. `None`: the operating system's budget for this process, where the system
    /// reports one.
    pub budget: Option<Budget>,
    /// Tiers between the host's memory and the disk, such as the memory of another node. The engine
    /// uses the first one first. There are at most 4 [stores](crate::stores). Buffers are evicted
    /// to them when neither the device nor the host's memory has room. A browser has none.
    pub stores: Vec<StoreTier>,
    /// The folder of the spill file. Buffers are evicted to it when neither the device, the host's
    /// memory nor a store has room. `None`: the system's folder for temporary files. Some
    /// systems keep that folder in memory, and then spilling saves nothing.
    ///
    /// The first eviction to disk creates the folder, if necessary, and the file. No other process
    /// can open the file, and it is gone when the process ends, however it ends. A folder that
    /// cannot be used is an [`Error::Spill`] for the buffer to be evicted. The next eviction tries
    /// the folder again.
    pub spill_folder: Option<PathBuf>,
    /// Compress buffers that are evicted to disk, where that makes them smaller. It pays on disks
    /// that are slower than one CPU core. Needs the feature `lz4`.
    pub spill_compress: bool,
    /// The folder for a file that makes the next start faster: compiled pipelines, where the driver
    /// exports them (Vulkan's drivers do). `None`: nothing is kept. The folder is created if
    /// necessary. A broken file, or one of another device, is ignored. A file that cannot be
    /// written is skipped. Both give warnings to the crate `log`. Anyone who can write to the
    /// folder can crash the driver: use a folder of the user's own, such as the app's cache folder.
    pub cache_folder: Option<PathBuf>,
    /// Never move buffers while they are on the device: neither to keep the high-water mark low,
    /// nor by [`GpuMemory::compact`](crate::GpuMemory::compact). Nor move those that were evicted
    /// to slabs in the host's memory. This reserves more memory: on recorded programs 1.06 of peak
    /// live, with moving 1.02. A nearly full budget leads to evictions instead. For apps that want
    /// no copies but their own, and to find out whether moving causes a problem.
    pub never_move: bool,
    /// Keep buffers that are evicted to the host's memory where the device can address them: a heap
    /// of slabs there. Then evictions and restores are copies in the queue, and nobody waits for
    /// them while that heap has room. But the bytes in it are lost with the device. With
    /// `Some(false)` they outlive it, and each eviction waits until its bytes have arrived.
    ///
    /// `None`: on where the device has memory of its own and wgpu's feature
    /// `MAPPABLE_PRIMARY_BUFFERS`.
    pub host_heap: Option<bool>,
    /// Fuse elementwise operations of the crate `lapidary`: `relu(a * b + c)` becomes one kernel.
    /// Intermediate values without other holders are never written to memory. `None`: on. The
    /// results are the same to the bit.
    pub fuse: Option<bool>,
    /// The bugs that the engine looks for while the program runs. `None`: none.
    pub diagnostics: Option<Diagnostics>,
}

impl Options {
    /// The options that the environment sets, for programs of developers and administrators:
    ///
    /// | variable | field | values |
    /// | --- | --- | --- |
    /// | `LAPIDARY_ADAPTER` | `adapter` | an index, a part of a name, a backend or a kind |
    /// | `LAPIDARY_BUDGET` | `budget` | `512MiB`, or `device=512MiB,host=2GiB` |
    /// | `LAPIDARY_SPILL_FOLDER` | `spill_folder` | a folder |
    /// | `LAPIDARY_CACHE_FOLDER` | `cache_folder` | a folder |
    /// | `LAPIDARY_HOST_HEAP` | `host_heap` | `on` or `off` |
    /// | `LAPIDARY_FUSE` | `fuse` | `on` or `off` |
    /// | `LAPIDARY_DIAGNOSTICS` | `diagnostics` | `all`, or names of [`Diagnostics`] with commas |
    ///
    /// A variable that is empty or not set leaves its field at the default. A browser has none.
    ///
    /// # Errors
    /// [`Error::Option`] with the name of a variable whose value cannot be read.
    pub fn from_env() -> Result<Options> {
        Self::of(&Variables(&|name| env::var_os(name)))
    }

    fn of(variables: &Variables<'_>) -> Result<Options> {
        Ok(Options {
            adapter: variables.text("LAPIDARY_ADAPTER")?,
            budget: variables.parsed("LAPIDARY_BUDGET")?,
            spill_folder: variables.set("LAPIDARY_SPILL_FOLDER").map(PathBuf::from),
            cache_folder: variables.set("LAPIDARY_CACHE_FOLDER").map(PathBuf::from),
            host_heap: variables.on_or_off("LAPIDARY_HOST_HEAP")?,
            fuse: variables.on_or_off("LAPIDARY_FUSE")?,
            diagnostics: variables.parsed("LAPIDARY_DIAGNOSTICS")?,
            ..Options::default()
        })
    }

    /// What an engine needs of the options.
    pub(super) fn chosen(&self) -> Result<Chosen> {
        let budget = self.budget.unwrap_or_default();
        budget.check()?;
        StoreTier::check_all(&self.stores)?;
        let spill = SpillOptions {
            folder: self.spill_folder.clone(),
            compress: self.spill_compress,
            ..SpillOptions::default()
        };
        let is_wanted = |wanted: &Diagnostics| *wanted != Diagnostics::none();
        let setup = Setup {
            spill,
            stores: self.stores.iter().cloned().map(OpenStore::new).collect(),
            never_move: self.never_move,
            is_dry: false,
            diagnostics: self.diagnostics.filter(is_wanted),
        };
        Ok(Chosen {
            budget,
            setup,
            fuses: self.fuse.unwrap_or(true),
            cache_folder: self.cache_folder.clone(),
        })
    }

    pub(super) fn request(&self) -> OpenRequest {
        OpenRequest {
            adapter: self.adapter.clone().filter(|name| !name.is_empty()),
            power: match self.low_power {
                true => wgpu::PowerPreference::LowPower,
                false => wgpu::PowerPreference::HighPerformance,
            },
            backends: None,
            dx12_compiler: self.dx12_compiler.clone(),
            host_heap: self.host_heap,
        }
    }
}

/// The options of an engine.
pub(super) struct Chosen {
    pub(super) budget: Budget,
    pub(super) setup: Setup,
    pub(super) fuses: bool,
    pub(super) cache_folder: Option<PathBuf>,
}

/// The variables of an environment.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<OsString>);

impl Variables<'_> {
    /// The value of a variable. An empty one is none.
    fn set(&self, name: &str) -> Option<OsString> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn text(&self, name: &'static str) -> Result<Option<String>> {
        let text = |value: OsString| {
            let invalid = |_| Error::option(name, "the value is not valid UTF-8");
            value.into_string().map_err(invalid)
        };
        self.set(name).map(text).transpose()
    }

    fn parsed<T: FromStr<Err = Error>>(&self, name: &'static str) -> Result<Option<T>> {
        let parse = |value: String| {
            value.parse().map_err(|error| match error {
                Error::Option { reason, .. } => Error::option(name, reason),
                other => Error::option(name, other.to_string()),
            })
        };
        self.text(name)?.map(parse).transpose()
    }

    fn on_or_off(&self, name: &'static str) -> Result<Option<bool>> {
        match self.text(name)?.as_deref() {
            Some("on" | "1") => Ok(Some(true)),
            Some("off" | "0") => Ok(Some(false)),
            None => Ok(None),
            Some(_) => Err(Error::option(name, "the value must be `on` or `off`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> Result<Options> {
        let value = |name: &str| {
            set.iter()
                .find(|(set, _)| *set == name)
                .map(|(_, value)| value)
        };
        Options::of(&Variables(&|name| value(name).map(OsString::from)))
    }

    #[test]
    fn variables_set_their_fields_and_empty_ones_set_none() {
        let all = of(&[
            ("LAPIDARY_ADAPTER", "cpu"),
            ("LAPIDARY_BUDGET", "device=64MiB,host=1GiB"),
            ("LAPIDARY_SPILL_FOLDER", "a"),
            ("LAPIDARY_CACHE_FOLDER", "b"),
            ("LAPIDARY_HOST_HEAP", "on"),
            ("LAPIDARY_FUSE", "off"),
            ("LAPIDARY_DIAGNOSTICS", "all"),
        ])
        .unwrap();
        let wanted = Options {
            adapter: Some("cpu".into()),
            budget: Some(Budget {
                host_bytes: Some(1 << 30),
                ..Budget::device(64 << 20)
            }),
            spill_folder: Some("a".into()),
            cache_folder: Some("b".into()),
            host_heap: Some(true),
            fuse: Some(false),
            diagnostics: Some(Diagnostics::all()),
            ..Options::default()
        };
        assert_eq!(all, wanted);
        let empty = ["LAPIDARY_ADAPTER", "LAPIDARY_BUDGET", "LAPIDARY_FUSE"].map(|name| (name, ""));
        assert_eq!(of(&empty).unwrap(), Options::default());
    }

    #[test]
    fn a_value_that_cannot_be_read_is_refused_with_the_variables_name() {
        for (name, value) in [
            ("LAPIDARY_BUDGET", "much"),
            ("LAPIDARY_HOST_HEAP", "maybe"),
            ("LAPIDARY_FUSE", "On"),
            ("LAPIDARY_DIAGNOSTICS", "everything"),
        ] {
            let error = of(&[(name, value)]).unwrap_err();
            assert!(
                matches!(&error, Error::Option { option, .. } if *option == name),
                "{error}"
            );
        }
    }
}
