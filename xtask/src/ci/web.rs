//! The library in a browser: the page of examples/web is built and tests itself, beside what the same calls
//! give on this machine.

use crate::driver::with_gpu;
use crate::process::{Result, cargo, root, run, target_dir};
use crate::web;

/// Builds, checks what the page expects, and tests it.
pub(crate) fn check() -> Result<String> {
    let mut expected = with_gpu(cargo())?;
    expected.current_dir(root().join("examples"));
    expected.env("CARGO_TARGET_DIR", target_dir());
    expected.args(["run", "--quiet", "--package", "web", "--features", "native"]);
    run(expected.args(["--bin", "expected", "--", "--check"]))?;
    let page = web::build()?;
    let found = web::test(&page.folder)?;
    Ok(format!("{found}; {}", page.size))
}
