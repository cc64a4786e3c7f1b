//! Trials of kernel variants: the option, and the results.

use std::path::Path;

use super::Options;
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
    /// By trials, when a problem occurs for the first time. The call runs all work recorded before
    /// it, then every variant a few times, and waits for them. It takes the variant that is clearly
    /// faster than the rules' choice, if there is one. [`Options::cache_folder`] keeps the results
    /// for this adapter, driver and version of the crate, and the next process reads them. Without
    /// that folder they last as long as the [`Gpu`](crate::Gpu).
    ///
    /// Matrix products, reductions, softmax and norms have variants. Trials take at most about four
    /// seconds of a process, and none of small problems. A trial whose results would evict buffers
    /// is skipped, and the rules decide. A variant that lost the device or ended the process is not
    /// tried again: a file in the folder marks the variant under trial. The results differ by
    /// rounding, and so may those of two processes. In a browser, where no call may wait, this is
    /// [`Off`](Tune::Off).
    FirstUse,
}

impl Options {
    /// The option for trials, with the environment's default.
    pub(super) fn tunes(&self) -> Result<Tune> {
        let said = match self.tune {
            Some(tune) => return Ok(tune),
            None => std::env::var(VARIABLE),
        };
        match said.as_deref() {
            Ok("off" | "0") | Err(std::env::VarError::NotPresent) => Ok(Tune::Off),
            Ok("first-use") => Ok(Tune::FirstUse),
            _ => Err(Error::option(
                VARIABLE,
                "the value must be `off` or `first-use`",
            )),
        }
    }
}

impl Tune {
    /// The known results for a device, and the folder that keeps them.
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
