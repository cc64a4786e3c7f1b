//! The newest lavapipe, in a folder beside this system's. It has cooperative matrices, a memory
//! budget, and subgroups of 4, 8 or 16 lanes.

use std::env::consts::ARCH;

use crate::process::{Result, Shell};
use crate::suite::tests;
use crate::trixie;

/// The whole suite with each size of a subgroup, whose lanes have 32 bits each. The tests of
/// `xtask` are left out, because they start programs, which the folder lacks.
pub(super) fn whole(sh: &Shell) -> Result<String> {
    let variable = format!(
        "CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER",
        ARCH.to_uppercase()
    );
    let runner = trixie::runner(sh, "on-mesa.sh", "")?;
    for bits in ["256", "128", "512"] {
        let tests = tests(sh, "--exclude xtask")?.env(&variable, &runner);
        // Drivers that these variables name are not in the folder.
        let tests = tests
            .env_remove("VK_DRIVER_FILES")
            .env_remove("VK_ICD_FILENAMES");
        tests.env("LP_NATIVE_VECTOR_WIDTH", bits).run()?;
    }
    Ok("the suite with subgroups of 8, 4 and 16".into())
}
