//! The scripts of `xtask/browser`, which node runs: by Playwright they control Chromium.

use std::ffi::OsStr;

use crate::apt;
use crate::process::{Result, capture, command, root, run_persistently, target_dir, watch};

/// The last version for the node of Debian bookworm. It downloads no browser of its own.
const PLAYWRIGHT: &str = "playwright-core@1.60.0";

/// Runs a script, and returns the last line that it prints. Installs what is missing.
pub(crate) fn script<A: AsRef<OsStr>>(name: &str, args: &[A]) -> Result<String> {
    let has = |name: &&str| capture(command(name).arg("--version")).is_ok();
    let chromium = || {
        ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find(has)
    };
    if chromium().is_none() {
        apt::install(&["chromium", "fonts-dejavu-core"])?;
    }
    if !has(&"npm") {
        apt::install(&["nodejs", "npm"])?;
    }
    let chromium = chromium().ok_or("there is no Chromium: install it by hand.")?;
    let chromium = capture(command("sh").args(["-c", "command -v \"$0\"", chromium]))?;
    let folder = target_dir().join(PLAYWRIGHT);
    let playwright = folder.join("node_modules/playwright-core");
    if !playwright.exists() {
        let mut install = command("npm");
        install.args(["install", "--no-save", "--no-package-lock", "--prefix"]);
        run_persistently(install.arg(&folder).arg(PLAYWRIGHT))?;
    }
    let mut node = command("node");
    node.arg(root().join("xtask/browser").join(name)).args(args);
    node.env("PLAYWRIGHT", playwright)
        .env("CHROMIUM", chromium.trim());
    let ran = watch(&mut node, |_| true)?;
    match ran.succeeded {
        true => Ok(ran.lines.last().cloned().unwrap_or_default()),
        false => Err(format!("{name} failed; see above.")),
    }
}
