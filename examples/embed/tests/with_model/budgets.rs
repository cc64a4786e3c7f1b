//! With too little room for the weights the vectors are the same, and nothing is written out.

use embed::Model;
use lapidary::{Budget, Gpu};

use crate::setup;

/// Bytes of the tensors in the file.
const WEIGHTS_BYTES: u64 = 90_864_384;

/// Number of encoded texts, in several batches. One is nearly as long as the model reads.
const TEXTS: usize = 22;
const BATCH_TOKENS: usize = 256;

/// Compares with the vectors on a device with this budget, in batches of the same size.
#[track_caller]
fn check(free: &[f32], budget_bytes: u64) {
    let (gpu, mut model) = setup::open(Some(Budget::device(budget_bytes)));
    model.batch_tokens = BATCH_TOKENS;
    let tight = setup::embed(&model, TEXTS).vectors;
    let differ = free
        .iter()
        .zip(&tight)
        .filter(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(
        differ.count(),
        0,
        "numbers differ with {budget_bytes} bytes"
    );
    let memory = gpu.memory().stats();
    assert!(
        memory.device_bytes.peak <= budget_bytes,
        "{}",
        memory.device_bytes.peak
    );
    assert_eq!(
        memory.evicted_bytes, 0,
        "weights are dropped, not written out"
    );
    assert!(memory.dropped_bytes > 0, "there was room for all weights");
}

#[test]
fn half_and_a_quarter_of_the_weights_are_room_enough() {
    if !setup::is_there() {
        return;
    }
    let (_, mut model): (Gpu, Model) = setup::open(None);
    model.batch_tokens = BATCH_TOKENS;
    let free = setup::embed(&model, TEXTS).vectors;
    check(&free, WEIGHTS_BYTES / 2);
    check(&free, WEIGHTS_BYTES / 4);
}

#[test]
fn a_device_that_is_lost_on_the_way_costs_time_only() {
    if !setup::is_there() {
        return;
    }
    let (gpu, mut model) = setup::open(None);
    model.batch_tokens = BATCH_TOKENS;
    let texts: Vec<String> = setup::texts()
        .into_iter()
        .take(TEXTS)
        .map(|golden| golden.text)
        .collect();
    let free = setup::embed(&model, TEXTS);
    let mut is_lost = false;
    let lose = |_| {
        if !is_lost {
            is_lost = true;
            gpu.notify_lost("a test says so");
        }
    };
    let again = pollster::block_on(model.embed(&texts, lose)).unwrap();
    assert!(is_lost);
    assert!(free == again, "the vectors are not the same");
}
