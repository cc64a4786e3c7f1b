//! The library in a browser: the page of examples/web is built and tests itself. Its results are
//! compared with those of the same calls on this machine.

use crate::driver::with_gpu;
use crate::model;
use crate::process::{Result, cargo, root, run, target_dir};
use crate::toolchain::rustup_provides;
use crate::web;

const TARGET: &str = "wasm32-unknown-unknown";

/// Builds the page, checks the expected values, and tests it. If rustup cannot install the target,
/// the step is skipped, because Debian's toolchain has never been tested here.
pub(crate) fn check() -> Result<String> {
    if !rustup_provides(TARGET) {
        return Ok(format!("NOT RUN, rustup cannot install {TARGET} here"));
    }
    let mut expected = with_gpu(cargo())?;
    expected.current_dir(root().join("examples"));
    expected.env("CARGO_TARGET_DIR", target_dir());
    expected.args(["run", "--quiet", "--package", "web", "--features", "native"]);
    run(expected.args(["--bin", "expected", "--", "--check"]))?;
    // With the model, the search is tested too.
    model::fetched()?;
    let page = web::build()?;
    let found = web::test(&page.folder)?;
    Ok(format!("{found}; {}", page.size))
}
