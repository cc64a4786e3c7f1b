//! The suite on DX12: built for Windows, and run under Wine over the newest lavapipe with
//! Microsoft's FXC as the compiler. The adapter presents itself as a GPU, so the library chooses
//! its paths for GPUs.

mod outcome;

use std::fs;
use std::process::Command;

use self::outcome::Outcome;
use crate::apt;
use crate::ci::hlsl;
use crate::process::{Result, cargo, run, target_dir, watch};
use crate::screen::Screen;
use crate::suite::SIMULATION;
use crate::toolchain::rustup_provides;
use crate::trixie::Trixie;

const TARGET: &str = "x86_64-pc-windows-gnu";

/// The tests that compute on an adapter. The others test the host's side, which does not differ.
#[rustfmt::skip]
const FILES: &[&str] = &[
    "--lib",
    "--test", "device",
    "--test", "operations",
];

/// No windows, no .NET, no shortcuts; FXC is Microsoft's, not Wine's own.
const DLLS: &str = "mscoree=;mshtml=;winemenubuilder.exe=;d3dcompiler_47=n";

/// Time limit of each test program, in case it hangs under Wine.
const LIMIT: &str = "90m";

/// Builds and runs everything. The table says if that is impossible.
pub(crate) fn check() -> Result<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || !apt::is_here() {
        return Ok("NOT RUN, Wine is provided on x86-64 Debian and its children alone".into());
    }
    if !rustup_provides(TARGET) {
        return Ok(format!("NOT RUN, rustup cannot install {TARGET} here"));
    }
    apt::install(&["gcc-mingw-w64-x86-64", "xvfb"])?;
    let programs = target_dir().join(TARGET).join("debug/deps");
    fs::create_dir_all(&programs).map_err(|error| format!("{}: {error}.", programs.display()))?;
    hlsl::fetch_dll(&programs)?;
    run(build().arg("--no-run"))?;
    let screen = Screen::start()?;
    let runner = Trixie::provide()?.runner(
        "on-wine.sh",
        &format!("timeout --kill-after 10 {LIMIT} wine"),
    )?;
    let mut tests = build();
    // They interpret kernels on the simulation.
    tests.args(["--", "--skip", "races::"]);
    tests
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", runner)
        .env("DISPLAY", &screen.name)
        .env("WINEPREFIX", target_dir().join("wine"))
        .env("WINEDEBUG", "-all")
        .env("WINEDLLOVERRIDES", DLLS)
        .env("WGPU_BACKEND", "dx12")
        // Threads that open devices at the same time sometimes deadlock in Wine.
        .env("RUST_TEST_THREADS", "1")
        .env("CARGO_TERM_COLOR", "never");
    let output = watch(&mut tests, |_| true)?;
    let outcome = Outcome::of(&output.lines);
    print!("{}", outcome.table());
    outcome.judged()
}

fn build() -> Command {
    let mut tests = cargo();
    tests.args(["test", "--no-fail-fast"]);
    tests.args(["--package", "lapidary", "--package", "lapidary-core"]);
    tests
        .args(["--target", TARGET])
        .args(SIMULATION)
        .args(FILES);
    tests.env(
        "CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER",
        "x86_64-w64-mingw32-gcc",
    );
    tests
}
