//! The example programs run to their end. The demo learns, and programs that are short of memory or
//! lose their device end with the right result.

use crate::line::Line;
use crate::process::{Result, watch};
use crate::suite::built;

/// Programs that only have to run to their end.
const PROGRAMS: &[&str] = &["hello", "matmul", "custom_kernel", "adopt_device"];

/// Programs whose last line reports a result, each with its arguments and a check of that line.
const JUDGED: &[(&str, &[&str], Judge)] = &[
    ("demo", &[], demo),
    ("oversubscribe", &[], oversubscribe),
    ("stay_inside", &[], stay_inside),
    ("survive_loss", &[], survive_loss),
    ("monitor", &[], monitor),
    // Peaks and bits do not change after the third step.
    ("train", &["--compare", "--steps", "3"], habits),
    ("train", &["--budget", "40", "--steps", "12"], train),
    ("cache", &[], within_budget),
    ("particles", &[], within_budget),
    ("pipeline", &[], pipeline),
];

/// Checks a last line. Returns a summary or what is wrong.
type Judge = fn(&Line) -> Result<String>;

/// Least accuracy of the demo's network on test data.
const LEAST_ACCURACY: f64 = 0.97;

/// Most bytes moved in `oversubscribe`, relative to the least possible; usually 1.04.
const MOST_TRAFFIC: f64 = 1.25;

/// Most buffers that the pipeline creates for 60 frames; usually 2.
const MOST_BUFFERS: f64 = 8.0;

/// How many times as much memory training takes without the habits that save it; usually 6.6.
const LEAST_SAVED: f64 = 4.0;

/// The most of the first loss that is left after some steps of training; usually 0.8.
const MOST_LOSS_LEFT: f64 = 0.95;

/// Runs each program and checks the last line of some. The programs are those that the suite has
/// built: the kernels take most of the time, and a release build would not make them faster.
pub(crate) fn run_all() -> Result<String> {
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for name in PROGRAMS {
        failures.extend(run_one(name, &[]).err());
    }
    for (name, args, judge) in JUDGED {
        let lines = run_one(name, args);
        match lines.and_then(|lines| judge(&Line::last(name, &lines)?)) {
            Ok(text) => found.push(text),
            Err(sentence) => failures.push(sentence),
        }
    }
    match failures.is_empty() {
        true => Ok(found.join("; ")),
        false => Err(failures.join(" ")),
    }
}

/// Runs one program and returns its lines of output.
fn run_one(name: &str, args: &[&str]) -> Result<Vec<String>> {
    // `train` is a package, since others use it as a library.
    let file = match name {
        "train" => name.to_owned(),
        _ => format!("examples/{name}"),
    };
    let mut program = built(&file)?;
    program.args(args);
    let output = watch(&mut program, |_| true)?;
    if !output.succeeded {
        return Err(format!("the example `{name}` failed."));
    }
    let lines: Vec<_> = output
        .lines
        .into_iter()
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        Err(format!("the example `{name}` said nothing."))
    } else {
        Ok(lines)
    }
}

/// `cache: right=… peak_bytes=… budget_bytes=…`, and the same for `particles`.
fn within_budget(line: &Line) -> Result<String> {
    line.expect("right", "yes")?;
    match line.number("peak_bytes")? <= line.number("budget_bytes")? {
        true => Ok("buffers within their budget".into()),
        false => line.complain("has a peak above the budget"),
    }
}

/// `pipeline: right=… frames=… frames_per_second=… buffers_created=…`
fn pipeline(line: &Line) -> Result<String> {
    line.expect("right", "yes")?;
    match line.number("buffers_created")? <= MOST_BUFFERS {
        true => Ok("a pipeline in few buffers".into()),
        false => line.complain("has too many created buffers"),
    }
}

/// `demo: accuracy=… buffers_after_first_epoch=… peak_reserved_bytes=… peak_live_bytes=…
/// adapter="…"`
fn demo(line: &Line) -> Result<String> {
    let accuracy = line.number("accuracy")?;
    let (reserved, live) = (
        line.number("peak_reserved_bytes")?,
        line.number("peak_live_bytes")?,
    );
    if !(LEAST_ACCURACY..=1.0).contains(&accuracy) {
        return line.complain(&format!("has an accuracy below {LEAST_ACCURACY}"));
    }
    line.expect("buffers_after_first_epoch", "0")?;
    if !(live > 0.0 && reserved >= live) {
        return line.complain("has impossible peaks");
    }
    if line.text("adapter")?.trim_matches('"').is_empty() {
        return line.complain("names no adapter");
    }
    let ratio = reserved / live;
    Ok(format!("accuracy {accuracy}, reserved/live {ratio:.3}"))
}

/// `oversubscribe: equal=true factor=4 bytes_moved=… least=… slowdown=… …`
fn oversubscribe(line: &Line) -> Result<String> {
    line.expect("equal", "true")?;
    line.expect("factor", "4")?;
    let (moved, least) = (line.number("bytes_moved")?, line.number("least")?);
    let (peak, budget) = (
        line.number("peak_device_bytes")?,
        line.number("budget_bytes")?,
    );
    if !(peak > 0.0 && peak <= budget) {
        return line.complain("has a peak above the budget");
    }
    let traffic = moved / least;
    if !(least > 0.0 && (0.5..=MOST_TRAFFIC).contains(&traffic)) {
        return line.complain("has too much traffic, or too little");
    }
    let (slowdown, beside) = (
        line.number("slowdown")?,
        line.number("time_over_reference")?,
    );
    Ok(format!(
        "4 x the budget: {traffic:.2} x the least traffic, {slowdown:.2} x the time, {beside:.2} x the reference"
    ))
}

/// `stay_inside: steps=14 right=true peak_device_bytes=… worst_over_budget_bytes=0`
fn stay_inside(line: &Line) -> Result<String> {
    line.expect("right", "true")?;
    line.expect("worst_over_budget_bytes", "0")?;
    let steps = line.number("steps")?;
    if steps < 1.0 || line.number("peak_device_bytes")? <= 0.0 {
        return line.complain("has no work");
    }
    Ok(format!("{steps} budgets kept"))
}

/// `survive_loss: equal=true losses=2 kept_bytes=… gone_bytes=…`
fn survive_loss(line: &Line) -> Result<String> {
    line.expect("equal", "true")?;
    line.expect("losses", "2")?;
    for key in ["kept_bytes", "gone_bytes"] {
        if line.number(key)? <= 0.0 {
            return line.complain("has a loss without lost or kept bytes");
        }
    }
    Ok("2 lost devices survived".into())
}

/// `monitor: steps=… peak_device_bytes=… budget_bytes=…`
fn monitor(line: &Line) -> Result<String> {
    let steps = line.number("steps")?;
    let (peak, budget) = (
        line.number("peak_device_bytes")?,
        line.number("budget_bytes")?,
    );
    if steps < 1.0 || peak <= 0.0 || peak > budget {
        return line.complain("has no work, or a peak above the budget");
    }
    Ok(format!("{steps} steps for the monitor"))
}

/// `train: equal=true within=true budgets=4 moved_bytes=… peak_live_bytes=…
/// least_peak_live_bytes=…`
fn habits(line: &Line) -> Result<String> {
    line.expect("equal", "true")?;
    line.expect("within", "true")?;
    line.expect("budgets", "4")?;
    if line.number("moved_bytes")? <= 0.0 {
        return line.complain("has a small budget in which nothing had to move");
    }
    let peak = line.number("peak_live_bytes")?;
    let least = line.number("least_peak_live_bytes")?;
    if !(least > 0.0 && peak >= LEAST_SAVED * least) {
        return line.complain("has too small savings");
    }
    Ok(format!("training in 1 / {:.1} of the memory", peak / least))
}

/// `train: equal=true read_back=true steps=12 first_loss=… last_loss=… held_out_loss=…
/// evicted_bytes=… recomputed_bytes=…`
fn train(line: &Line) -> Result<String> {
    line.expect("equal", "true")?;
    line.expect("read_back", "true")?;
    let (first, last) = (line.number("first_loss")?, line.number("last_loss")?);
    if !(last > 0.0 && last <= MOST_LOSS_LEFT * first) {
        return line.complain("has a model that learned nothing");
    }
    Ok(format!("a loss of {first} became {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMO: &str = "demo: accuracy=0.9811 buffers_after_first_epoch=0 peak_reserved_bytes=2097152 \
                        peak_live_bytes=2000000 adapter=\"llvmpipe (LLVM 15.0.6, 256 bits)\"";
    const OVERSUBSCRIBE: &str = "oversubscribe: equal=true factor=4 bytes_moved=104 least=100 \
                                 slowdown=1.2 time_over_reference=0.9 peak_device_bytes=90 budget_bytes=99";
    const STAY_INSIDE: &str =
        "stay_inside: steps=14 right=true peak_device_bytes=33 worst_over_budget_bytes=0";
    const SURVIVE_LOSS: &str = "survive_loss: equal=true losses=2 kept_bytes=8 gone_bytes=4";
    const HABITS: &str = "train: equal=true within=true budgets=4 moved_bytes=9 \
                          peak_live_bytes=48 least_peak_live_bytes=8";
    const TRAIN: &str = "train: equal=true read_back=true steps=12 first_loss=4.8 last_loss=3.9";
    const MONITOR: &str = "monitor: steps=8 peak_device_bytes=23 budget_bytes=24";

    /// A part of a valid line, and its replacement in an invalid one.
    type Change = (&'static str, &'static str);

    #[test]
    fn good_lines_are_accepted() {
        let accept = |judge: Judge, text| judge(&Line { text }).expect("a good line");
        assert_eq!(accept(demo, DEMO), "accuracy 0.9811, reserved/live 1.049");
        assert!(accept(oversubscribe, OVERSUBSCRIBE).contains("1.04 x the least"));
        assert_eq!(accept(stay_inside, STAY_INSIDE), "14 budgets kept");
        accept(survive_loss, SURVIVE_LOSS);
        accept(monitor, MONITOR);
        accept(habits, HABITS);
        accept(train, TRAIN);
    }

    #[test]
    fn bad_lines_are_refused_and_shown() {
        let all: [(Judge, &str, &[Change]); 7] = [
            (
                habits,
                HABITS,
                &[
                    ("equal=true", "equal=false"),
                    ("within=true", "within=false"),
                    ("budgets=4", "budgets=3"),
                    ("moved_bytes=9", "moved_bytes=0"),
                    ("bytes=48", "bytes=31"),
                    ("least_peak_live_bytes=8", "least_peak_live_bytes=0"),
                ],
            ),
            (
                train,
                TRAIN,
                &[
                    ("equal=true", "equal=unchecked"),
                    ("read_back=true", "read_back=false"),
                    ("last_loss=3.9", "last_loss=4.7"),
                    ("last_loss=3.9", "last_loss=NaN"),
                ],
            ),
            (
                demo,
                DEMO,
                &[
                    ("0.9811", "0.96"),
                    ("0.9811", "NaN"),
                    ("epoch=0", "epoch=3"),
                    ("2097152", "1"),
                    ("peak_live_bytes", "peak"),
                    ("llvmpipe (LLVM 15.0.6, 256 bits)", ""),
                ],
            ),
            (
                oversubscribe,
                OVERSUBSCRIBE,
                &[
                    ("equal=true", "equal=false"),
                    ("factor=4", "factor=2"),
                    ("moved=104", "moved=130"),
                    ("moved=104", "moved=0"),
                    ("least=100", "least=0"),
                    ("bytes=90", "bytes=100"),
                    ("slowdown=1.2", ""),
                ],
            ),
            (
                stay_inside,
                STAY_INSIDE,
                &[
                    ("right=true", "right=false"),
                    ("budget_bytes=0", "budget_bytes=1"),
                    ("steps=14", "steps=0"),
                ],
            ),
            (
                survive_loss,
                SURVIVE_LOSS,
                &[
                    ("equal=true", "equal=false"),
                    ("losses=2", "losses=1"),
                    ("gone_bytes=4", "gone_bytes=0"),
                ],
            ),
            (
                monitor,
                MONITOR,
                &[
                    ("steps=8", "steps=0"),
                    ("bytes=23", "bytes=25"),
                    ("bytes=23", "bytes=0"),
                ],
            ),
        ];
        for (judge, good, changes) in all {
            for (from, to) in changes {
                assert!(good.contains(from), "{from}");
                let text = &good.replace(from, to);
                let sentence = judge(&Line { text }).expect_err(text);
                assert!(sentence.ends_with(text), "{sentence}");
            }
        }
    }

    #[test]
    fn the_line_is_found_whatever_follows_it() {
        let lines = [
            "demo: a=1",
            "demo: a=2",
            "WARNING: lavapipe is not conformant",
        ];
        let lines = lines.map(String::from);
        let line = Line::last("demo", &lines).expect("there is one");
        assert_eq!(line.text("a"), Ok("2"));
        assert!(Line::last("stay_inside", &lines).is_err());
    }
}
