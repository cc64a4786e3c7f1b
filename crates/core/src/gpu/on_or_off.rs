//! What the app turns on or off, or else the environment.

use std::env::{self, VarError};

use super::Options;
use crate::error::{Error, Result};

impl Options {
    pub(super) fn fuses(&self) -> Result<bool> {
        Ok(on_or_off(self.fuse, "LAPIDARY_FUSE")?.unwrap_or(true))
    }

    /// `None` leaves it to the device.
    pub(super) fn has_host_heap(&self) -> Result<Option<bool>> {
        on_or_off(self.host_heap, "LAPIDARY_HOST_HEAP")
    }
}

/// What the app says, else the environment. Both may leave it open.
fn on_or_off(said: Option<bool>, variable: &'static str) -> Result<Option<bool>> {
    if said.is_some() {
        return Ok(said);
    }
    match env::var(variable).as_deref() {
        Ok("on" | "1") => Ok(Some(true)),
        Ok("off" | "0") => Ok(Some(false)),
        Err(VarError::NotPresent) => Ok(None),
        _ => Err(Error::option(variable, "the value must be `on` or `off`")),
    }
}
