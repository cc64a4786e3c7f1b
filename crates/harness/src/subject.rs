//! What is measured, and the result of a measurement.

use std::error::Error;

use crate::cases::Work;

pub type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// What computes, and on which device.
#[derive(Clone, Debug)]
pub struct About {
    pub by: &'static str,
    pub adapter: String,
    pub driver: String,
}

/// A measured library, or what it is compared with.
pub trait Subject {
    fn about(&self) -> About;

    /// Brings the inputs to the device and returns the timed work. `None` if the library or the
    /// device lacks this case.
    fn prepare<'a>(
        &'a self,
        work: &Work,
        inputs: &'a [Vec<f32>],
    ) -> Result<Option<Box<dyn Timed + 'a>>>;
}

/// Work that can be repeated.
pub trait Timed {
    /// Does the work once and waits until the device has finished.
    fn run(&mut self) -> Result;

    /// The result of the last call. Not timed.
    fn result(&mut self) -> Result<Vec<f32>>;
}

/// The measurement of one case.
pub(crate) struct Figures {
    /// Seconds of one call in the best round.
    pub(crate) seconds: f64,
    /// Seconds of the very first call, with its compilations.
    pub(crate) first_seconds: f64,
    pub(crate) rounds: u32,
    /// The host's figure from the same rounds, and how it was computed.
    pub(crate) limit: Option<(f64, String)>,
}
