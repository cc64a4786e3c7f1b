//! Recorded traces through the whole engine, on a simulated device whose queue lags behind.
//! Reserved, moved and evicted bytes stay within the bounds that we promise.

use std::path::{Path, PathBuf};

use lapidary_tools::replay::outcome::Outcome;
use lapidary_tools::replay::policy::{self, Reference};
use lapidary_tools::replay::run::{self, Setting};
use lapidary_tools::replay::spilling::{self, Order};
use lapidary_tools::replay::trace::{self, Event, Trace};

/// The device's largest buffer.
const LIMIT_BYTES: u64 = 4 << 30;

/// Programs that repeat steps of fixed shapes. At their end they come to rest.
const REPEATED: &str = "bert_mlm_train gpt2s_train resnet50_train mlp_ckpt_train mlp_accum_train \
    llama1b_decode_concat sd15_unet_infer";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}

fn recorded(name: &str) -> Trace {
    trace::read(&folder().join(name)).unwrap()
}

/// The traces with reads, or those without, of the folder in `LAPIDARY_TRACES` or of ours.
fn all(with_reads: bool) -> Vec<Trace> {
    let folder = std::env::var_os("LAPIDARY_TRACES").map_or(folder(), PathBuf::from);
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let mut paths: Vec<_> = files.map(|file| file.path()).collect();
    let is_wanted = |path: &str| path.contains(".trace") && path.contains(".reads.") == with_reads;
    paths.retain(|path| is_wanted(&path.to_string_lossy()));
    assert!(!paths.is_empty());
    paths
        .iter()
        .map(|path| trace::read(path).unwrap())
        .collect()
}

fn is_repeated(trace: &Trace) -> bool {
    REPEATED.split(' ').any(|name| trace.name.starts_with(name))
}

/// The geometric mean of what is reserved for what is live.
fn mean(ratios: &[f64]) -> f64 {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (logarithms / ratios.len() as f64).exp()
}

fn replay(trace: &Trace, budget: Option<f64>) -> Outcome {
    let setting = Setting {
        limit_bytes: LIMIT_BYTES,
        budget_bytes: budget.map(|share| (trace.peak_live_bytes as f64 * share) as u64),
        never_move: false,
    };
    run::replay(trace, setting, &mut |_| ()).unwrap()
}

fn allocated_bytes(trace: &Trace) -> u64 {
    let bytes = trace.events.iter().map(|event| match event {
        Event::Alloc { bytes, .. } => *bytes,
        _ => 0,
    });
    bytes.sum()
}

#[test]
fn little_more_is_reserved_than_is_live_and_a_program_that_repeats_itself_comes_to_rest() {
    let mut ratios = Vec::new();
    for trace in all(false) {
        let (name, outcome) = (&trace.name, replay(&trace, None));
        assert_eq!(outcome.refused, 0, "{name}");
        assert!(outcome.ratio() <= 1.065, "{name}: {}", outcome.ratio());
        if is_repeated(&trace) {
            assert!(outcome.buffers_created_last_third <= 20, "{name}");
            assert!(outcome.compactions_last_third <= 1, "{name}");
        }
        // We promise 0.4 %, rounded.
        let moved_share = outcome.moved_bytes as f64 / allocated_bytes(&trace) as f64;
        assert!(moved_share <= 0.0045, "{name}: {moved_share}");
        assert_eq!((outcome.out_bytes, outcome.in_bytes), (0, 0), "{name}");
        ratios.push(outcome.ratio());
    }
    // We promise 1.02 for all thirteen; the repository has two of them.
    let most = if ratios.len() == 13 { 1.02 } else { 1.04 };
    assert!(mean(&ratios) <= most, "{ratios:?}");
}

/// Several programs one after the other in one process, `rounds` times. Each frees all its
/// storages.
fn in_turns(traces: &[Trace], rounds: usize) -> Trace {
    let mut all = Trace::default();
    for trace in (0..rounds).flat_map(|_| traces) {
        let first = all.storages;
        let mut live = vec![false; trace.storages];
        for event in &trace.events {
            all.events.extend(match *event {
                Event::Alloc { id, bytes } => {
                    live[id] = true;
                    let id = first + id;
                    Some(Event::Alloc { id, bytes })
                }
                Event::Free { id } => {
                    live[id] = false;
                    Some(Event::Free { id: first + id })
                }
                Event::Run { .. } => None,
            });
        }
        let kept = (0..trace.storages).filter(|&id| live[id]);
        all.events
            .extend(kept.map(|id| Event::Free { id: first + id }));
        all.storages += trace.storages;
        all.peak_live_bytes = all.peak_live_bytes.max(trace.peak_live_bytes);
    }
    all
}

#[test]
fn programs_that_take_turns_come_to_rest() {
    let traces = [
        recorded("mlp_accum_train.trace.gz"),
        recorded("resnet50_train.reads.trace.gz"),
        recorded("bert_mlm_train.trace.gz"),
    ];
    for chosen in [&traces[..2], &traces[1..]] {
        let outcome = replay(&in_turns(chosen, 6), None);
        let created = outcome.buffers_created_last_third;
        assert_eq!(outcome.refused, 0);
        assert!(
            created <= 10,
            "{} and {}: {created}",
            chosen[0].name,
            chosen[1].name
        );
    }
}

/// Hundreds of small tensors, then a few large ones, in about the same memory.
#[test]
fn phases_of_small_and_of_large_tensors_share_their_slabs() {
    const ROUNDS: usize = 30;
    let phases: [(usize, u64); 2] = [(320, 256 << 10), (3, 27 << 20)];
    let mut trace = Trace {
        peak_live_bytes: 3 * (27 << 20),
        ..Trace::default()
    };
    for (count, bytes) in (0..ROUNDS).flat_map(|_| phases) {
        let ids = trace.storages..trace.storages + count;
        let created = ids.clone().map(|id| Event::Alloc { id, bytes });
        trace
            .events
            .extend(created.chain(ids.map(|id| Event::Free { id })));
        trace.storages += count;
    }
    let outcome = replay(&trace, None);
    let created = outcome.buffers_created_last_third;
    assert!(created <= 10, "{created} in ten rounds");
    assert!(outcome.ratio() <= 1.2, "{}", outcome.ratio());
}

#[test]
fn where_nothing_moves_a_program_that_repeats_itself_still_comes_to_rest() {
    let mut ratios = Vec::new();
    for trace in all(false) {
        let setting = Setting {
            limit_bytes: LIMIT_BYTES,
            budget_bytes: None,
            never_move: true,
        };
        let (name, outcome) = (
            &trace.name,
            run::replay(&trace, setting, &mut |_| ()).unwrap(),
        );
        assert_eq!((outcome.refused, outcome.moved_bytes), (0, 0), "{name}");
        assert!(outcome.ratio() <= 1.20, "{name}: {}", outcome.ratio());
        assert!(
            !is_repeated(&trace) || outcome.buffers_created_last_third <= 2,
            "{name}"
        );
        ratios.push(outcome.ratio());
    }
    assert!(mean(&ratios) <= 1.07, "{ratios:?}");
}

#[test]
fn a_budget_little_above_what_is_live_is_enough_without_putting_anything_out() {
    for trace in all(false) {
        let outcome = replay(&trace, Some(1.05));
        assert_eq!(
            (outcome.refused, outcome.out_bytes),
            (0, 0),
            "{}",
            trace.name
        );
    }
}

#[test]
fn below_what_is_live_little_more_travels_than_for_one_who_knows_the_future() {
    for (trace, budget) in all(true)
        .iter()
        .flat_map(|trace| [(trace, 0.75), (trace, 0.5)])
    {
        let (name, outcome) = (&trace.name, replay(trace, Some(budget)));
        let budget_bytes = (trace.peak_live_bytes as f64 * budget) as u64;
        let reference = spilling::spill(trace, budget_bytes, Order::Oracle);
        let share = (outcome.out_bytes + outcome.in_bytes) as f64 / reference.bytes() as f64;
        assert_eq!(outcome.refused, 0, "{name}, {budget}");
        assert!(share <= 1.3, "{name}, {budget}: {share}");
    }
}

/// Results of an independent simulation of the same rules: peak reserved ÷ peak live, and buffers.
#[test]
fn the_reference_policies_are_what_they_are_called() {
    let check = |name: &str, reference, ratio: f64, buffers: u64| {
        let outcome = policy::run(&recorded(name), reference);
        let found = (
            (outcome.ratio() * 100.0).round() / 100.0,
            outcome.buffers_created,
        );
        assert_eq!(found, (ratio, buffers), "{name}, {reference:?}");
    };
    check("bert_mlm_train.trace.gz", Reference::Pytorch, 1.07, 208);
    check("mlp_accum_train.trace.gz", Reference::Pytorch, 1.28, 27);
    check(
        "resnet50_train.reads.trace.gz",
        Reference::Pytorch,
        1.21,
        121,
    );
    check("bert_mlm_train.trace.gz", Reference::Buckets, 2.39, 1522);
    check("mlp_accum_train.trace.gz", Reference::Buckets, 1.40, 333);
    check("bert_mlm_train.trace.gz", Reference::Apart, 1.0, 5054);
    check("mlp_accum_train.trace.gz", Reference::Apart, 1.0, 6816);
}
