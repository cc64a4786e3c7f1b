//! `examples/fluid`, which has its own device, and a panel that shows its memory. The step runs its
//! tests, and the program without a window under a changing budget, and with a lost device. Then it
//! runs it in a window with a pointer.

use crate::command::{self, command};
use crate::line::Line;
use crate::packages;
use crate::process::{Background, Result, Shell, cmd};

/// A virtual screen, a program that moves the pointer, and the libraries for the program's window.
const PACKAGES: &str =
    "xvfb xdotool libx11-6 libx11-xcb1 libxcb1 libxcursor1 libxi6 libxkbcommon-x11-0";

/// Actions on the window within [`SECONDS`]. The window's upper left corner is the screen's. They
/// stir the fluid, move the slider of the budget to the left, show an earlier frame and continue
/// from it. They also make the window as small as possible for a moment. A busy machine draws few
/// frames meanwhile.
const HAND: &str = "
    search --sync --name fluid sleep 16
    mousemove 300 300 mousedown 1 sleep 1.2 mousemove 380 260 sleep 1.2 mousemove 460 300 sleep 1.2
    mouseup 1
    mousemove 944 36 mousedown 1 sleep 1.2 mousemove 905 36 sleep 2 mouseup 1 sleep 8
    mousemove 60 700 mousedown 1 sleep 2 mousemove 40 700 sleep 2 mouseup 1 sleep 2
    mousemove 350 677 sleep 1.2 click 1 sleep 2
    windowsize 1 1 sleep 2 windowsize 60 40 sleep 2 windowsize 1152 720 sleep 2";
const SECONDS: &str = "64";

pub(crate) fn check(sh: &Shell) -> Result<String> {
    command::run(sh, "gpu")?;
    for verb in ["build", "test"] {
        let packages = "--package fluid --package lapidary-egui";
        command::run(sh, &format!("cargo {verb} {{examples}} {packages}"))?;
    }
    // The budget shrinks and grows while frames are drawn, and earlier frames are shown. A picture
    // has 16 levels each of red, green and blue. The panels alone have 27 colours.
    let line = fluid(sh, "--frames 160 --budget 64MiB", "")?;
    line.expect(
        "equal is true, rewound is true, over_budget_bytes is 0, stood_still is 0, losses is 0, \
         frames is 160, colours >= 120, peak_device_bytes > 0, peak_device_bytes <= budget_bytes, \
         evicted_bytes >= 1048576, restored_bytes >= 1048576",
    )?;
    // The device is lost during the run. Evicted frames survive, and the fluid continues from them.
    let line = fluid(sh, "--frames 50 --budget 24MiB --lose 42", "")?;
    line.expect("losses is 1, frames is 50, equal is true, steps >= 12")?;
    if !cfg!(target_os = "linux") {
        return Ok("no window on this system".into());
    }
    packages::install(sh, PACKAGES)?;
    let line = in_a_window(sh)?;
    // There are frames, an earlier one was shown, and the slider changed the budget.
    line.expect("losses is 0, frames >= 10, steps < frames, budget_bytes <= 33554432")?;
    Ok(format!("{} frames in a window", line.number("frames")?))
}

/// Runs a fluid that is small enough for a software adapter, with 1.1 MiB of history a frame.
/// Returns its last line.
fn fluid(sh: &Shell, options: &str, display: &str) -> Result<Line> {
    let has_window = !display.is_empty();
    let picture = if has_window {
        ""
    } else {
        "--png {target}/fluid.png"
    };
    let fluid = format!("{{target}}/debug/fluid --size 256x160 --keep 40 {options} {picture}");
    Line::last("fluid", command(sh, &fluid)?.env("DISPLAY", display))
}

/// A virtual screen and its name. The server prints the free number that it took.
pub(crate) fn screen(sh: &Shell) -> Result<(Background, String)> {
    let server = cmd!(sh, "Xvfb -displayfd 1 -screen 0 1280x800x24 -nolisten tcp");
    let server = Background::start(server.ignore_stderr())?;
    let name = format!(":{}", server.said("")?);
    Ok((server, name))
}

/// Runs it in a window with these actions.
fn in_a_window(sh: &Shell) -> Result<Line> {
    let (_screen, display) = screen(sh)?;
    let words = HAND.split_whitespace();
    let hand = cmd!(sh, "xdotool {words...}").env("DISPLAY", &display);
    // If the window never appears, it waits until it is dropped.
    let _hand = Background::start(hand)?;
    fluid(sh, &format!("--budget 48MiB --seconds {SECONDS}"), &display)
}
