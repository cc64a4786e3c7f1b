//! The suite on DX12: built for Windows, and run under Wine over the newest lavapipe with
//! Microsoft's FXC as the compiler. The adapter presents itself as a GPU, so the library chooses
//! its paths for GPUs.

use super::app::screen;
use super::hlsl;
use crate::command::{self, command};
use crate::packages;
use crate::process::{Result, Shell, ensure, target_dir, watch};
use crate::suite::is_result;
use crate::trixie;

const TARGET: &str = "x86_64-pc-windows-gnu";

/// The tests that compute on an adapter. The others test the host's side, which does not differ,
/// or interpret kernels on the simulation. Threads that open devices at the same time sometimes
/// deadlock in Wine.
const TESTS: &str = "CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc \
    WINEPREFIX={target}/wine WGPU_BACKEND=dx12 RUST_TEST_THREADS=1 \
    cargo test --no-fail-fast --target x86_64-pc-windows-gnu --package lapidary \
    --package lapidary-core --lib --test device --test operations";

/// This test uses only wgpu, and fails: Wine's Direct3D hands out memory that an earlier device
/// wrote. Direct3D promises zeros.
const BY_WINE: &str = "plain::a_buffer_that_nobody_wrote_reads_as_zeros";

/// Time limit of each test program, in case it hangs under Wine.
const LIMIT: &str = "timeout --kill-after 10 90m wine";

/// Builds and runs everything. The table says if that is impossible.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || !packages::has_apt() {
        return Ok("NOT RUN, Wine is provided on x86-64 Debian and its children alone".into());
    }
    if let Err(error) = command::run(sh, &format!("target {TARGET}")) {
        return Ok(format!("NOT RUN, {error}"));
    }
    packages::install(sh, "gcc-mingw-w64-x86-64 xvfb")?;
    let programs = target_dir().join(TARGET).join("debug/deps");
    hlsl::FXC.fetch(sh, &sh.create_dir(programs)?)?;
    let tests = format!("{} {TESTS}", hlsl::WINE);
    command(sh, &tests)?.arg("--no-run").run()?;
    let (_screen, display) = screen(sh)?;
    let runner = trixie::runner(sh, "on-wine.sh", LIMIT)?;
    let tests = command(sh, &tests)?
        .args(["--", "--skip", "races::"])
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", runner)
        .env("DISPLAY", display);
    let lines = watch(tests, true)?.1;
    let (mut passed, mut fallen, mut failed) = (0, 0, Vec::new());
    for line in &lines {
        if line.trim_start().starts_with("Running ") {
            fallen += 1;
        } else if let Some(result) = line.strip_prefix("test result: ") {
            // "FAILED. 3 passed; 1 failed; 1 ignored; …"
            fallen -= 1;
            let count = result.split(' ').nth(1).unwrap_or_default();
            passed += count.parse().unwrap_or(0);
        } else if is_result(line) {
            failed.push(line.split(' ').nth(1).unwrap_or_default());
        }
    }
    let by_wine = failed.iter().filter(|name| **name == BY_WINE).count();
    failed.retain(|name| *name != BY_WINE);
    let found = format!("{passed} passed, {by_wine} failed by Wine's fault");
    // The exit status of a program says little: Wine may crash in a driver's thread after the last
    // test passed.
    ensure!(
        passed > 0 && fallen == 0 && failed.is_empty(),
        "{found}, {fallen} test programs fell: {}",
        failed.join(", ")
    );
    Ok(found)
}
