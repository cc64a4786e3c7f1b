//! A Redis server as a tier of evicted tensors. The tests start servers of their own.

use crate::apt;
use crate::process::{Result, run};
use crate::suite::{WITH_REDIS, selected};

/// The server, and the client that changes values behind the engine's back.
const PACKAGES: &[&str] = &["redis-server", "redis-tools"];

pub(crate) fn check() -> Result<String> {
    if apt::is_here() {
        apt::install(PACKAGES)?;
    }
    run(&mut selected(&["--test", "memory"], &[WITH_REDIS])?)?;
    Ok(String::new())
}
