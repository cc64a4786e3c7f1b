//! The scripts of `xtask/browser`, which node runs: by Playwright they control Chromium. With them
//! go the pages that the example `snapshot` writes: the pictures of the documentation, and a test.

use std::ffi::OsStr;
use std::path::PathBuf;

use pico_args::Arguments;

use crate::driver::ensure_gpu;
use crate::packages;
use crate::process::run_persistently;
use crate::process::{Context, Result, Shell, cmd, has, lines_of, nothing_else, root, target_dir};

/// For the node of Debian bookworm. It downloads no browser of its own.
const PLAYWRIGHT: &str = "playwright-core@1.60.0";

/// Runs a script, and returns the last line that it prints. Installs what is missing.
pub(crate) fn script<A: AsRef<OsStr>>(sh: &Shell, name: &str, args: &[A]) -> Result<String> {
    let which = "which chromium || which chromium-browser || which google-chrome";
    let chromium = || cmd!(sh, "sh -c {which}").read();
    if chromium().is_err() {
        packages::install(sh, "chromium fonts-dejavu-core")?;
    }
    if !has(sh, "npm --version") {
        packages::install(sh, "nodejs npm")?;
    }
    let chromium = chromium().context("there is no Chromium: install it by hand")?;
    let folder = target_dir().join(PLAYWRIGHT);
    let playwright = folder.join("node_modules/playwright-core");
    if !playwright.exists() {
        let options = ["--no-save", "--no-package-lock", "--prefix"];
        run_persistently(cmd!(sh, "npm install {options...} {folder} {PLAYWRIGHT}"))?;
    }
    let script = root().join("xtask/browser").join(name);
    let node = cmd!(sh, "node {script} {args...}").env("CHROMIUM", chromium);
    let lines = lines_of(node.env("PLAYWRIGHT", playwright))?;
    Ok(lines.last().cloned().unwrap_or_default())
}

/// Makes the pictures of the documentation.
pub(crate) fn pictures(sh: &Shell, args: Arguments) -> Result<()> {
    nothing_else(args)?;
    script(sh, "pictures.mjs", &[pages(sh, None)?, root().join("docs")]).map(drop)
}

/// Are the pictures those of this version?
pub(crate) fn check_pictures(sh: &Shell) -> Result<String> {
    let args = [pages(sh, None)?, root().join("docs"), "--check".into()];
    script(sh, "pictures.mjs", &args)
}

/// Opens the pages of a real run, of two compared snapshots, and of a million events.
pub(crate) fn check_page(sh: &Shell) -> Result<String> {
    pages(sh, None)?;
    script(sh, "snapshot.mjs", &[pages(sh, Some("--many"))?])
}

/// Runs the example that writes snapshots and their pages. Returns their folder.
fn pages(sh: &Shell, option: Option<&str>) -> Result<PathBuf> {
    ensure_gpu(sh)?;
    let folder = sh.create_dir(target_dir().join("pages"))?;
    let snapshot = cmd!(sh, "cargo run --release --quiet --example snapshot");
    snapshot.arg("--").arg(&folder).args(option).run()?;
    Ok(folder)
}
