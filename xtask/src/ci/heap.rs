//! A heap in the host's memory: the tests of memory, and some on the adapter, which then evicts to
//! such a heap although it shares the host's memory.

use crate::process::{Result, run};
use crate::suite::{WITH_REDIS, selected, selected_except};

const HEAP: (&str, &str) = ("LAPIDARY_HOST_HEAP", "on");

/// A module of tests on the adapter, and a budget under which they evict.
const TIGHT: (&str, &str) = ("custom_kernels::", "512KiB");

pub(crate) fn check() -> Result<String> {
    let mut memory = selected_except(&["--test", "memory"], &[], &[WITH_REDIS])?;
    run(memory.env(HEAP.0, HEAP.1))?;
    let (module, budget) = TIGHT;
    let mut tests = selected(&["--test", "device"], &[module])?;
    run(tests.env(HEAP.0, HEAP.1).env("LAPIDARY_BUDGET", budget))?;
    Ok(String::new())
}
