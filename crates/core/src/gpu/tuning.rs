//! Whether variants of kernels are tried, and what came of it.

use std::path::Path;
use std::time::Duration;

use super::{Gpu, Options};
use crate::driver::Caps;
use crate::error::{Error, Result};
use crate::tuning::{Subject, Tuning};

/// The environment variable that decides where [`Options::tune`] does not.
const VARIABLE: &str = "LAPIDARY_TUNE";

/// How the variant of a kernel is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tune {
    /// By rules, from the adapter and the shapes: the same call gives the same bits in every run.
    #[default]
    Off,
    /// By trying, when a problem is met for the first time: the call runs all that was asked for
    /// before it, then every variant a few times, waits for them, and takes the one that is clearly
    /// faster than the rules', if there is one. What was found is kept in
    /// [`Options::cache_folder`], for this adapter, driver and version of the crate, and read from
    /// there by the next process; without that folder, for as long as the [`Gpu`] lives.
    ///
    /// Matrix products, reductions, softmax and norms have variants. At most about four seconds of
    /// a process are spent, none on small problems, and none where the trial's results would have
    /// to make others leave: then the rules hold. A variant that lost the device or ended the
    /// process is not tried again (a file in the folder marks what is being tried). The results
    /// differ by rounding, and so may those of two processes. In a browser, where no call may wait,
    /// this is [`Off`](Tune::Off).
    FirstUse,
}

/// What trials have found, and what they took: see [`Tune::FirstUse`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuned {
    /// Problems, sizes rounded up, and the variant that is taken for each: found by this `Gpu`, or
    /// before.
    pub best: Vec<(String, String)>,
    /// Variants that lost a device or ended a process.
    pub never: Vec<String>,
    /// How often a variant was run for a trial by this `Gpu`, several runs on end counted as one.
    pub trials: u64,
    /// The time that took.
    pub time: Duration,
}

impl Options {
    /// What they, and the environment, say of trials.
    pub(super) fn tunes(&self) -> Result<Tune> {
        let said = match self.tune {
            Some(tune) => return Ok(tune),
            None => std::env::var(VARIABLE),
        };
        match said.as_deref() {
            Ok("off" | "0") | Err(std::env::VarError::NotPresent) => Ok(Tune::Off),
            Ok("first-use") => Ok(Tune::FirstUse),
            _ => Err(Error::Option {
                option: VARIABLE,
                reason: "it is neither `off` nor `first-use`".into(),
            }),
        }
    }
}

impl Tune {
    /// What is known of a device, and where it is kept.
    pub(super) fn over(self, caps: &Caps, folder: Option<&Path>) -> Option<Tuning> {
        if self == Tune::Off || cfg!(target_arch = "wasm32") {
            return None;
        }
        let subject = Subject {
            adapter: format!("{} / {}", caps.name, caps.backend),
            version: format!(
                "{} / {} B of workgroup memory, squares of {} / lapidary {}",
                caps.driver,
                caps.max_workgroup_bytes,
                caps.cooperative_size.unwrap_or(0),
                env!("CARGO_PKG_VERSION")
            ),
            has_clock: caps.backend != "sim",
        };
        Some(Tuning::new(subject, folder))
    }
}

impl Gpu {
    /// What trials have found, in the order of the problems' names.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// use lapidary_core::{Gpu, Options, Tune};
    ///
    /// let tune = Some(Tune::FirstUse);
    /// let gpu = Gpu::open(Options { tune, ..Options::default() })?;
    /// // … work …
    /// for (problem, variant) in gpu.tuned().best {
    ///     println!("{problem}: {variant}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn tuned(&self) -> Tuned {
        let found = self.engine.tuning().map(Tuning::findings);
        let found = found.unwrap_or_default();
        Tuned {
            best: found.best,
            never: found.never,
            trials: found.trials,
            time: found.time,
        }
    }
}
