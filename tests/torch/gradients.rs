//! Gradients against PyTorch's: operations, views of their operands, broadcasting, writes in place,
//! and random programs of a few operations.
//!
//! `tests/data/torch/gradients.py` computes them and describes the file. The simulated device runs
//! all cases. The default adapter runs a tenth and the larger ones, since its driver takes long to
//! compile kernels.
//!
//! To add a case, add it to a group there and run the script. If the operation is new, add its call
//! to a table here.

mod axes;
mod elementwise;
mod in_place;
mod indices;
mod layers;
mod losses;
mod program;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lapidary::{Gpu, Options};

use crate::torch::cases::unpacked;
use program::{Call, Program};

/// Lapidary's operations by the names in the file.
const TABLES: &[&[(&str, Call)]] = &[
    elementwise::OTHERS,
    in_place::OTHERS,
    axes::FOLDS,
    axes::MOMENTS,
    axes::OTHERS,
    axes::BACKWARDS,
    layers::ALL,
    layers::POOLS,
    layers::BACKWARDS,
    losses::ALL,
    indices::ALL,
    shapes::VIEWS,
    shapes::COPIES,
];

/// The least number of cases, so that a file that was cut short is found.
const LEAST: usize = 3400;

/// The group of cases of a size for which there are other kernels.
const LARGER: &str = "larger";

fn entries() -> impl Iterator<Item = (&'static str, Call)> {
    let tables = TABLES.iter().copied().flatten().copied();
    tables.chain(elementwise::rows())
}

fn programs() -> Vec<Program> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch/gradients.jsonl.gz");
    let text = unpacked(&path).expect("the script writes this file");
    text.lines().map(Program::parse).collect()
}

/// Runs every `step`th case, and all larger ones.
#[track_caller]
fn check(gpu: &Gpu, step: usize) {
    let (calls, programs): (BTreeMap<_, _>, _) = (entries().collect(), programs());
    let mut counts = BTreeMap::<String, [usize; 2]>::new();
    let mut faults = Vec::new();
    for (number, program) in programs.iter().enumerate() {
        if number % step != 0 && program.group != LARGER {
            continue;
        }
        let [wrong, of] = counts.entry(program.group.clone()).or_default();
        *of += 1;
        if let Err(fault) = program.check(gpu, &calls) {
            *wrong += 1;
            faults.push(format!("line {}, {program}\n    {fault}", number + 1));
        }
    }
    assert!(
        faults.is_empty(),
        "{}\n{} are wrong; wrong and all by group: {counts:?}",
        faults.join("\n"),
        faults.len()
    );
}

#[test]
fn the_file_has_cases_of_all_operations_here_and_of_no_others() {
    let programs = programs();
    assert!(programs.len() >= LEAST, "only {} cases", programs.len());
    let used: BTreeSet<&str> = programs.iter().flat_map(Program::operations).collect();
    let known: BTreeSet<&str> = entries().map(|(name, _)| name).collect();
    assert_eq!(known.difference(&used).next(), None, "without a case");
    assert_eq!(used.difference(&known).next(), None, "without a call");
    assert_eq!(entries().count(), known.len(), "a name occurs twice");
}

#[test]
fn gradients_are_those_of_pytorch() {
    let options = lapidary::sim::SimOptions {
        dirty: true,
        ..Default::default()
    };
    let (gpu, _) = Gpu::simulated(options).expect("these options can be");
    check(&gpu, 1);
}

#[test]
fn gradients_on_the_adapter_are_those_of_pytorch() {
    let gpu = Gpu::open(Options::from_env().unwrap()).expect("the tests need an adapter");
    check(&gpu, 10);
}
