//! The suite on DX12: built for Windows, and run under Wine over the newest lavapipe with
//! Microsoft's FXC as the compiler. The adapter presents itself as a GPU, so the library chooses
//! its paths for GPUs.

use crate::apt;
use crate::ci::hlsl;
use crate::outcome::Tests;
use crate::process::{Result, Shell, cmd, ensure, target_dir, watch};
use crate::screen::Screen;
use crate::toolchain::rustup_provides;
use crate::trixie;

const TARGET: &str = "x86_64-pc-windows-gnu";

/// The tests that compute on an adapter. The others test the host's side, which does not differ.
const FILES: [&str; 9] = [
    "--package",
    "lapidary",
    "--package",
    "lapidary-core",
    "--lib",
    "--test",
    "device",
    "--test",
    "operations",
];

/// This test uses only wgpu, and fails: Wine's Direct3D hands out memory that an earlier device
/// wrote. Direct3D promises zeros.
const BY_WINE: &str = "plain::a_buffer_that_nobody_wrote_reads_as_zeros";

/// Time limit of each test program, in case it hangs under Wine.
const LIMIT: &str = "timeout --kill-after 10 90m wine";

/// Builds and runs everything. The table says if that is impossible.
pub(super) fn check(sh: &Shell) -> Result<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || !apt::is_here() {
        return Ok("NOT RUN, Wine is provided on x86-64 Debian and its children alone".into());
    }
    if !rustup_provides(sh, TARGET) {
        return Ok(format!("NOT RUN, rustup cannot install {TARGET} here"));
    }
    apt::install(sh, &["gcc-mingw-w64-x86-64", "xvfb"])?;
    hlsl::fetch_dll(
        sh,
        &sh.create_dir(target_dir().join(TARGET).join("debug/deps"))?,
    )?;
    let linker = "CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER";
    let _linker = sh.push_env(linker, "x86_64-w64-mingw32-gcc");
    let build = || cmd!(sh, "cargo test --no-fail-fast --target {TARGET}").args(FILES);
    build().arg("--no-run").run()?;
    let screen = Screen::start(sh)?;
    let runner = trixie::runner(sh, "on-wine.sh", LIMIT)?;
    // They interpret kernels on the simulation.
    let tests = build().args(["--", "--skip", "races::"]);
    let tests = tests
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", runner)
        .env("DISPLAY", &screen.name)
        .env("WINEPREFIX", target_dir().join("wine"))
        .env("WINEDEBUG", "-all")
        .env("WINEDLLOVERRIDES", hlsl::NO_WINDOWS)
        .env("WGPU_BACKEND", "dx12")
        // Threads that open devices at the same time sometimes deadlock in Wine.
        .env("RUST_TEST_THREADS", "1")
        .env("CARGO_TERM_COLOR", "never");
    let mut tests = Tests::of(&watch(tests, |_| true)?.lines);
    let all = tests.failed.len();
    tests.failed.retain(|name| name != BY_WINE);
    let by_wine = all - tests.failed.len();
    let found = format!("{}, {by_wine} failed by Wine's fault", tests.summary());
    // The exit status of a program says little: Wine may crash in a driver's thread after the last
    // test passed.
    ensure!(tests.passed > 0, "no test ran");
    ensure!(
        tests.fallen == 0,
        "{found}; {} test programs fell",
        tests.fallen
    );
    ensure!(
        tests.failed.is_empty(),
        "{found}: {}",
        tests.failed.join(", ")
    );
    Ok(found)
}
