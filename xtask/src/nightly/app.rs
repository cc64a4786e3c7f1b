//! The program with a device of its own, `examples/fluid`, and the panel that it shows its memory
//! with: their tests, a run without a window whose budget moves, one whose device is lost, and a
//! real window on a screen that is not there, used with a pointer.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::apt;
use crate::ci::examples::Line;
use crate::driver::{cargo_with_gpu, with_gpu};
use crate::process::{Result, command, run, target_dir, watch};
use crate::screen::Screen;

/// A screen in memory, a hand for the pointer, and the libraries that the program opens for its
/// window.
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

/// A fluid small enough for a software adapter, with a past of 1.1 MiB a frame.
const FLUID: &[&str] = &["--size", "256x160", "--keep", "40"];

/// The fewest colours that a picture has, of 16 levels each of red, green and blue: the panels
/// alone have 27.
const LEAST_COLOURS: f64 = 120.0;

/// How many times as long as [`HAND`] says a hand waits where that was too short: a machine that is
/// busy draws a frame now and then.
const PATIENCE: f64 = 4.0;

/// What a hand does within [`SECONDS`] to the window, whose left upper corner is the screen's:
/// stirs, draws the budget's slider to the left, looks back, goes on from there, and makes the
/// window as small as can be for a moment.
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

/// Runs it, and returns what it printed.
fn lines(fluid: &mut Command) -> Result<Vec<String>> {
    let output = watch(fluid, |_| true)?;
    match output.succeeded {
        true => Ok(output.lines),
        false => Err("the example `fluid` failed.".into()),
    }
}

/// The budget goes down and up while frames are drawn, and somebody looks back.
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
        return line.complain("tells of a picture of nothing");
    }
    let (peak, budget) = (
        line.number("peak_device_bytes")?,
        line.number("budget_bytes")?,
    );
    if !(peak > 0.0 && peak <= budget) {
        return line.complain("tells of a budget that was passed");
    }
    let (out, back) = (
        line.number("evicted_bytes")?,
        line.number("restored_bytes")?,
    );
    if out < MIB || back < MIB {
        return line.complain("tells of nothing that was evicted and came back");
    }
    Ok(format!(
        "{:.0} MiB left, {:.0} came back",
        out / MIB,
        back / MIB
    ))
}

/// The device is lost in the middle: what had been evicted is still there, and the fluid goes on
/// from it.
fn loss() -> Result<String> {
    let mut fluid = fluid()?;
    fluid.args(["--frames", "50", "--budget", "24MiB", "--lose", "42"]);
    let lines = lines(fluid.arg("--png").arg(picture("loss.png")))?;
    let line = Line::last("fluid", &lines)?;
    line.expect("losses", "1")?;
    line.expect("frames", "50")?;
    line.expect("equal", "true")?;
    if line.number("steps")? < 12.0 {
        return line.complain("tells of a fluid that began anew");
    }
    Ok("a lost device survived".into())
}

/// In a window, for some seconds, or for more of them if those were too few.
fn window() -> Result<String> {
    if !cfg!(target_os = "linux") {
        return Ok("no window on this system".into());
    }
    apt::install(PACKAGES)?;
    let lines = in_a_window(1.0)?;
    let line = Line::last("fluid", &lines)?;
    // A loss has nothing to do with haste.
    line.expect("losses", "0")?;
    judge_window(&line).or_else(|hurried| {
        println!("{hurried} Once more, with more time.");
        let lines = in_a_window(PATIENCE)?;
        let found = judge_window(&Line::last("fluid", &lines)?)?;
        Ok(format!("{found}, {PATIENCE} times as slowly"))
    })
}

/// What the program prints that a hand has used.
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
    // It waits for a window that may never have come.
    let _ = hand.kill();
    let _ = hand.wait();
    lines
}

/// What the hand is told: the words of [`HAND`], with other numbers behind `sleep`.
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
        return line.complain("tells of a window in which nobody looked back");
    }
    if line.number("budget_bytes")? > 32.0 * MIB {
        return line.complain("tells of a slider that nobody moved");
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
