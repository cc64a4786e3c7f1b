//! Programs that run to their end: the examples, which learn, are short of memory or lose their
//! device, and end with the right result; a real model; and programs of others that read snapshots
//! or serve as a tier.

use crate::command::{self, command};
use crate::line::Line;
use crate::process::{Cmd, PASSED, Result, Shell, emptied, ensure, lines_of, root, target_dir};
use crate::suite::built;
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
        let folder = if name == "train" { "" } else { "examples/" };
        let lines = lines_of(built(sh, &format!("{folder}{name}"))?.args(words))?;
        ensure!(lines.iter().any(|line| !line.is_empty()), "it said nothing");
        match conditions {
            "" => Ok(()),
            _ => Line::of(name, &lines)?.expect(conditions),
        }
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
    command::run(sh, "gpu")?;
    command::run(sh, "cargo build {examples} --package objects")?;
    emptied(sh, "objects-of-example")?;
    for folder in ["", "{target}/objects-of-example"] {
        let program = command(sh, &format!("{{target}}/debug/objects {folder}"))?;
        Line::last("objects", program)?.expect("left is 0, in_store >= 40")?;
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
    let embed = |words: &str| -> Result<Cmd<'_>> {
        let run = "cargo run {examples} --quiet --package embed --";
        let line = format!("{run} {words} --index {{target}}/ci-embed.index");
        let embed = command(sh, &line)?;
        Ok(embed.env("EMBED_MODEL", model::folder()))
    };
    let index = embed(&format!("index --most {SENTENCES} --budget {BUDGET}"))?;
    // Weights are dropped and never written. An intermediate result may be written if that is
    // measured to be cheaper.
    Line::last("embed", index)?.expect(&format!(
        "restored_bytes > 0, evicted_bytes <= 0.001 * restored_bytes, sentences is {SENTENCES}"
    ))?;
    let found = lines_of(embed("search --top 3 memory")?)?;
    sh.remove_path(target_dir().join("ci-embed.index"))?;
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
    let write = "tests --test tools -- snapshots_are_written_for_other_tools";
    let write = command(sh, write)?;
    write.env("LAPIDARY_FORMATS_FOLDER", &folder).run()?;
    let read = "PYTHONDONTWRITEBYTECODE=1 python3 xtask/src/checks/memory_viz.py";
    let found = lines_of(command(sh, read)?.arg(tool).arg(folder))?;
    let found = found.last().map_or("", |line| line);
    Ok(format!("{found} by {TORCH}"))
}

/// The tests with recorded traces, with all thirteen, if they are in this folder beside the
/// checkout. The suite has the few of the checkout.
pub(crate) fn traces(sh: &Shell) -> Result<String> {
    let folder = root().join("../shared/traces");
    if !folder.is_dir() {
        return Ok("skipped: there are no more than the suite's".into());
    }
    let tests = command(sh, "tests --test tools -- recorded::")?;
    tests.env("LAPIDARY_TRACES", folder).run()?;
    Ok(PASSED)
}
