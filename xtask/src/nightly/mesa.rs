//! The newest lavapipe, in a folder beside this system's. It has cooperative matrices, a memory
//! budget, and subgroups of 4, 8 or 16 lanes.

use std::env;
use std::process::Command;

use crate::process::{Result, run};
use crate::suite::{WITH_REDIS, selected_except};
use crate::trixie::Trixie;

/// Bits of lavapipe's vectors: 32 for each lane of a subgroup.
const WIDTH: &str = "LP_NATIVE_VECTOR_WIDTH";

/// The whole suite with each size of a subgroup. The tests of `xtask` are left out, because they
/// call Cargo, which the folder lacks, as it does a Redis server.
pub(crate) fn whole() -> Result<String> {
    let trixie = Trixie::provide()?;
    for bits in [None, Some("128"), Some("512")] {
        let tests = selected_except(&["--exclude", "xtask"], &[], &[WITH_REDIS])?;
        on_mesa(&trixie, bits, tests)?;
    }
    Ok("the suite with subgroups of 8, 4 and 16".into())
}

fn on_mesa(trixie: &Trixie, bits: Option<&str>, mut tests: Command) -> Result {
    let runner = trixie.runner("on-mesa.sh", "")?;
    let target = env::consts::ARCH.to_uppercase();
    tests.env(
        format!("CARGO_TARGET_{target}_UNKNOWN_LINUX_GNU_RUNNER"),
        runner,
    );
    // Drivers that these variables name are not in the folder.
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        tests.env_remove(name);
    }
    if let Some(bits) = bits {
        tests.env(WIDTH, bits);
    }
    run(&mut tests)
}
