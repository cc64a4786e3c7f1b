//! `examples/fluid`, a program with its own device, and the panel that shows its memory. The step
//! runs their tests. It runs the program without a window under a changing budget, and with a lost
//! device. Then it runs it in a window on a virtual screen with a pointer.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::apt;
use crate::driver::{cargo_with_gpu, with_gpu};
use crate::line::Line;
use crate::process::{Result, command, run, target_dir, watch};
use crate::screen::Screen;

/// A virtual screen, a program that moves the pointer, and the libraries for the program's window.
const PACKAGES: &[&str] = &[
    "xvfb",
    "xdotool",
    "libx11-6",
    "libx11-xcb1",
    "libxcb1",
    "libxcursor1",
    "libxi6",
    "libxkbcommon-x11-0",
];

const MANIFEST: &str = "examples/Cargo.toml";
const MIB: f64 = (1 << 20) as f64;

/// A fluid that is small enough for a software adapter, with 1.1 MiB of history a frame.
const FLUID: &[&str] = &["--size", "256x160", "--keep", "40"];

/// Least number of colours in a picture, with 16 levels each of red, green and blue. The panels
/// alone have 27.
const LEAST_COLOURS: f64 = 120.0;

/// Factor for the waits of [`HAND`] in a second attempt, because a busy machine draws few frames.
const PATIENCE: f64 = 4.0;

/// Actions on the window within [`SECONDS`]. The window's upper left corner is the screen's. They
/// stir the fluid, move the slider of the budget to the left, show an earlier frame and continue
/// from it. They also make the window as small as possible for a moment.
const HAND: &str = "
    search --sync --name fluid sleep 4
    mousemove 300 300 mousedown 1 sleep 0.3 mousemove 380 260 sleep 0.3 mousemove 460 300 sleep 0.3 mouseup 1
    mousemove 944 36 mousedown 1 sleep 0.3 mousemove 905 36 sleep 0.5 mouseup 1 sleep 2
    mousemove 60 700 mousedown 1 sleep 0.5 mousemove 40 700 sleep 0.5 mouseup 1 sleep 0.5
    mousemove 350 677 sleep 0.3 click 1 sleep 0.5
    windowsize 1 1 sleep 0.5 windowsize 60 40 sleep 0.5 windowsize 1152 720 sleep 0.5";
const SECONDS: f64 = 16.0;

pub(crate) fn check() -> Result<String> {
    for verb in ["build", "test"] {
        let mut cargo = cargo_with_gpu()?;
        cargo.args([verb, "--manifest-path", MANIFEST]);
        cargo.args(["--package", "fluid", "--package", "lapidary-egui"]);
        run(cargo.env("CARGO_TARGET_DIR", target_dir()))?;
    }
    let found = [budget()?, loss()?, window()?];
    Ok(found.join("; "))
}

fn fluid() -> Result<Command> {
    let program = target_dir().join("debug/fluid");
    let mut fluid = with_gpu(command(&program.display().to_string()))?;
    fluid.args(FLUID);
    Ok(fluid)
}

fn picture(name: &str) -> PathBuf {
    target_dir().join("app").join(name)
}

/// Runs it and returns its output.
fn lines(fluid: &mut Command) -> Result<Vec<String>> {
    let output = watch(fluid, |_| true)?;
    match output.succeeded {
        true => Ok(output.lines),
        false => Err("the example `fluid` failed.".into()),
    }
}

/// The budget shrinks and grows while frames are drawn, and earlier frames are shown.
fn budget() -> Result<String> {
    let mut fluid = fluid()?;
    fluid.args(["--frames", "160", "--budget", "64MiB", "--png"]);
    let lines = lines(fluid.arg(picture("budget.png")))?;
    judge_budget(&Line::last("fluid", &lines)?)
}

fn judge_budget(line: &Line) -> Result<String> {
    for key in ["equal", "rewound"] {
        line.expect(key, "true")?;
    }
    for key in ["over_budget_bytes", "stood_still", "losses"] {
        line.expect(key, "0")?;
    }
    line.expect("frames", "160")?;
    if line.number("colours")? < LEAST_COLOURS {
        return line.complain("has too few colours");
    }
    let (peak, budget) = (
        line.number("peak_device_bytes")?,
        line.number("budget_bytes")?,
    );
    if !(peak > 0.0 && peak <= budget) {
        return line.complain("has a peak above the budget");
    }
    let (out, back) = (
        line.number("evicted_bytes")?,
        line.number("restored_bytes")?,
    );
    if out < MIB || back < MIB {
        return line.complain("has too few evicted and restored bytes");
    }
    Ok(format!(
        "{:.0} MiB evicted, {:.0} restored",
        out / MIB,
        back / MIB
    ))
}

/// The device is lost during the run. Evicted frames survive, and the fluid continues from them.
fn loss() -> Result<String> {
    let mut fluid = fluid()?;
    fluid.args(["--frames", "50", "--budget", "24MiB", "--lose", "42"]);
    let lines = lines(fluid.arg("--png").arg(picture("loss.png")))?;
    let line = Line::last("fluid", &lines)?;
    line.expect("losses", "1")?;
    line.expect("frames", "50")?;
    line.expect("equal", "true")?;
    if line.number("steps")? < 12.0 {
        return line.complain("has too few steps, so the fluid started again");
    }
    Ok("a lost device survived".into())
}

/// Runs in a window for some seconds, and for longer if those were too few.
fn window() -> Result<String> {
    if !cfg!(target_os = "linux") {
        return Ok("no window on this system".into());
    }
    apt::install(PACKAGES)?;
    let lines = in_a_window(1.0)?;
    let line = Line::last("fluid", &lines)?;
    // A loss does not depend on the speed of the machine.
    line.expect("losses", "0")?;
    judge_window(&line).or_else(|hurried| {
        println!("{hurried} Once more, with more time.");
        let lines = in_a_window(PATIENCE)?;
        let found = judge_window(&Line::last("fluid", &lines)?)?;
        Ok(format!("{found}, {PATIENCE} times as slowly"))
    })
}

/// The output of the program after these actions.
fn in_a_window(pace: f64) -> Result<Vec<String>> {
    let screen = Screen::start()?;
    let mut hand = command("xdotool");
    let mut hand = hand
        .args(at_pace(pace))
        .env("DISPLAY", &screen.name)
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("`xdotool` cannot be run: {error}."))?;
    let mut fluid = fluid()?;
    let seconds = (SECONDS * pace).to_string();
    fluid.args(["--seconds", &seconds, "--budget", "48MiB"]);
    let lines = lines(fluid.env("DISPLAY", &screen.name));
    // The process still waits if the window never appeared.
    let _ = hand.kill();
    let _ = hand.wait();
    lines
}

/// The words of [`HAND`] with longer times behind `sleep`.
fn at_pace(pace: f64) -> Vec<String> {
    let mut words: Vec<String> = HAND.split_whitespace().map(String::from).collect();
    for at in 1..words.len() {
        if let (true, Ok(seconds)) = (words[at - 1] == "sleep", words[at].parse::<f64>()) {
            words[at] = (seconds * pace).to_string();
        }
    }
    words
}

fn judge_window(line: &Line) -> Result<String> {
    line.expect("losses", "0")?;
    let (frames, steps) = (line.number("frames")?, line.number("steps")?);
    if frames < 10.0 || steps >= frames {
        return line.complain("has too few frames, or no earlier frame was shown");
    }
    if line.number("budget_bytes")? > 32.0 * MIB {
        return line.complain("has a budget that the slider did not change");
    }
    Ok(format!("{frames} frames in a window"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: &str = "fluid: frames=160 steps=140 colours=631 equal=true rewound=true over_budget_bytes=0 \
                          peak_device_bytes=40 budget_bytes=83 evicted_bytes=5963760 restored_bytes=8519680 \
                          stood_still=0 losses=0";
    const WINDOW: &str = "fluid: frames=79 steps=5 budget_bytes=9437184 losses=0";

    #[test]
    fn good_lines_are_accepted_and_bad_ones_refused() {
        let budget: &[[&str; 2]] = &[
            ["frames=160", "frames=159"],
            ["colours=631", "colours=60"],
            ["equal=true", "equal=false"],
            ["rewound=true", "rewound=false"],
            ["over_budget_bytes=0", "over_budget_bytes=1"],
            ["bytes=40", "bytes=84"],
            ["evicted_bytes=5963760", "evicted_bytes=0"],
            ["restored_bytes=8519680", "restored_bytes=0"],
            ["stood_still=0", "stood_still=2"],
        ];
        let window: &[[&str; 2]] = &[
            ["steps=5", "steps=79"],
            ["frames=79", "frames=7"],
            ["bytes=9437184", "bytes=50331648"],
            ["losses=0", "losses=1"],
        ];
        check(judge_budget, BUDGET, budget);
        check(judge_window, WINDOW, window);
    }

    #[test]
    fn a_slower_hand_does_the_same() {
        let (fast, slow) = (at_pace(1.0), at_pace(PATIENCE));
        let waits = |words: &[String]| -> f64 {
            let pairs = words.windows(2).filter(|pair| pair[0] == "sleep");
            pairs.map(|pair| pair[1].parse::<f64>().unwrap()).sum()
        };
        assert!(waits(&fast) < SECONDS);
        assert!((waits(&slow) - PATIENCE * waits(&fast)).abs() < 1e-9);
        assert_eq!(fast.len(), slow.len());
    }

    fn check(judge: fn(&Line) -> Result<String>, good: &str, changes: &[[&str; 2]]) {
        let lines = [good.to_owned()];
        judge(&Line::last("fluid", &lines).expect("a line")).expect("a good line");
        for [from, to] in changes {
            assert!(good.contains(from), "{from}");
            let lines = [good.replace(from, to)];
            let line = Line::last("fluid", &lines).expect("a line");
            assert!(judge(&line).is_err(), "{to}");
        }
    }
}
