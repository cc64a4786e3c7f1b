//! Programs that run to their end: the examples, which learn, are short of memory or lose their
//! device, and end with the right result; a real model; and programs of others that read snapshots
//! or serve as a tier.

use crate::driver::ensure_gpu;
use crate::line::Line;
use crate::process::{PASSED, Result, Shell, cmd, emptied, ensure, lines_of, root, target_dir};
use crate::source::EXAMPLES;
use crate::suite::{built, tests};
use crate::{model, packages};

/// Programs with their arguments, and conditions on their last lines. Those without only have to
/// run to their end.
#[rustfmt::skip]
const PROGRAMS: &[(&str, &str)] = &[
    ("hello", ""),
    ("matmul", ""),
    ("custom_kernel", ""),
    ("adopt_device", ""),
    ("demo", "accuracy >= 0.97, accuracy <= 1, buffers_after_first_epoch is 0, \
        peak_live_bytes > 0, peak_reserved_bytes >= peak_live_bytes, adapter is not \"\""),
    // The bytes moved are usually 1.04 times the least possible.
    ("oversubscribe", "equal is true, factor is 4, peak_device_bytes > 0, \
        peak_device_bytes <= budget_bytes, least > 0, bytes_moved >= 0.5 * least, \
        bytes_moved <= 1.25 * least, slowdown > 0, time_over_reference > 0"),
    ("stay_inside", "right is true, worst_over_budget_bytes is 0, steps >= 1, \
        peak_device_bytes > 0"),
    ("survive_loss", "equal is true, losses is 2, kept_bytes > 0, gone_bytes > 0"),
    ("monitor", "steps >= 1, peak_device_bytes > 0, peak_device_bytes <= budget_bytes"),
    // Peaks and bits do not change after the third step. The habits usually save 4.6 times.
    ("train --compare --steps 3", "equal is true, within is true, budgets is 4, moved_bytes > 0, \
        least_peak_live_bytes > 0, peak_live_bytes >= 4 * least_peak_live_bytes"),
    ("train --budget 40 --steps 12", "equal is true, read_back is true, last_loss > 0, \
        last_loss <= 0.95 * first_loss"),
    ("cache", "right is yes, peak_bytes <= budget_bytes"),
    ("particles", "right is yes, peak_bytes <= budget_bytes"),
    // Usually it creates 2 buffers for 60 frames.
    ("pipeline", "right is yes, buffers_created <= 8"),
];

/// Runs each program and checks the last line of some. The programs are those that the suite has
/// built: the kernels take most of the time, and a release build would not make them faster.
pub(crate) fn examples(sh: &Shell) -> Result<String> {
    let run = |words: &str, conditions: &str| -> Result<()> {
        let mut words = words.split(' ');
        let name = words.next().unwrap_or_default();
        // `train` is a package, since others use it as a library.
        let file = if name == "train" {
            name.to_owned()
        } else {
            format!("examples/{name}")
        };
        let lines = lines_of(built(sh, &file)?.args(words))?;
        ensure!(lines.iter().any(|line| !line.is_empty()), "it said nothing");
        if !conditions.is_empty() {
            Line::last(name, &lines)?.expect(conditions)?;
        }
        Ok(())
    };
    let mut failures = Vec::new();
    for (words, conditions) in PROGRAMS {
        if let Err(error) = run(words, conditions) {
            failures.push(format!("{words}: {error:#}"));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(format!("{} programs", PROGRAMS.len()))
}

/// Tensors in an object store, in memory and in a folder. At the end it usually holds 51 of 64.
pub(crate) fn objects(sh: &Shell) -> Result<String> {
    ensure_gpu(sh)?;
    cmd!(sh, "cargo build --package objects")
        .args(EXAMPLES)
        .run()?;
    let program = target_dir().join("debug/objects");
    for place in [None, Some(emptied(sh, "objects-of-example")?)] {
        let lines = lines_of(cmd!(sh, "{program} {place...}"))?;
        Line::last("objects", &lines)?.expect("left is 0, in_store >= 40")?;
    }
    Ok("in memory and in a folder".into())
}

/// Number of indexed sentences, from the sources of the dependencies.
const SENTENCES: &str = "500";

/// The weights take 87 MiB, so they do not all fit.
const BUDGET: &str = "43MiB";

/// A real model: `examples/embed` computes the same as PyTorch, also with too little memory, and
/// its search finds texts.
pub(crate) fn model(sh: &Shell) -> Result<String> {
    model::test(sh)?;
    let index = target_dir().join("ci-embed.index");
    let embed = |words: &str| {
        let embed = cmd!(sh, "cargo run --quiet --package embed")
            .args(EXAMPLES)
            .arg("--");
        let embed = embed.args(words.split(' ')).arg("--index").arg(&index);
        lines_of(embed.env("EMBED_MODEL", model::folder()))
    };
    let lines = embed(&format!("index --most {SENTENCES} --budget {BUDGET}"))?;
    // Weights are dropped and never written. An intermediate result may be written if that is
    // measured to be cheaper.
    Line::last("embed", &lines)?.expect(&format!(
        "restored_bytes > 0, evicted_bytes <= 0.001 * restored_bytes, sentences is {SENTENCES}"
    ))?;
    let found = embed("search --top 3 memory")?;
    sh.remove_path(&index)?;
    // Each of the three has a score, a sentence and a place.
    ensure!(found.len() == 6, "`embed search` found not three sentences");
    Ok(format!("{SENTENCES} sentences within {BUDGET}"))
}

/// One of the smallest packages with PyTorch's tool: for a system without a GPU's libraries.
const TORCH: &str = "torch==2.5.1";
const SYSTEM: &str = "--platform macosx_11_0_arm64 --python-version 311 --abi none";

/// Writes snapshots in the suite's programs, and reads them with the tool of their format.
pub(crate) fn formats(sh: &Shell) -> Result<String> {
    let tool = target_dir().join("memory_viz").join(TORCH);
    packages::fetch(sh, TORCH, SYSTEM, &["torch/cuda/_memory_viz.py"], &tool)?;
    let folder = emptied(sh, "formats")?;
    let write = tests(sh, "--test tools -- snapshots_are_written_for_other_tools")?;
    write.env("LAPIDARY_FORMATS_FOLDER", &folder).run()?;
    let read = cmd!(sh, "python3 xtask/src/checks/memory_viz.py {tool} {folder}");
    let found = lines_of(read.env("PYTHONDONTWRITEBYTECODE", "1"))?;
    Ok(format!(
        "{} by {TORCH}",
        found.last().map_or("", |line| line)
    ))
}

/// All thirteen traces may be in this folder beside the checkout. The suite has the few of the
/// checkout.
const TRACES: &str = "../shared/traces";

/// The tests with recorded traces, with all of them.
pub(crate) fn traces(sh: &Shell) -> Result<String> {
    let folder = root().join(TRACES);
    if !folder.is_dir() {
        return Ok("skipped: there are no more than the suite's".into());
    }
    let tests = tests(sh, "--test tools -- recorded::")?;
    tests.env("LAPIDARY_TRACES", folder).run()?;
    Ok(PASSED)
}

/// A Redis server as a tier of evicted tensors. The tests start servers of their own, and the
/// client changes values behind the engine's back. The suite leaves them out.
pub(crate) fn redis(sh: &Shell) -> Result<String> {
    packages::install(sh, "redis-server redis-tools")?;
    tests(sh, "--test memory -- stores::redis:: --ignored")?.run()?;
    Ok(PASSED)
}
