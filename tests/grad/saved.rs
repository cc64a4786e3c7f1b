//! What the reports say of bytes that are saved for backward.

use std::sync::{Arc, Mutex};

use lapidary::{DType, Gpu, Tensor};

use super::check::{gpu, parameter, spread};

/// Bytes of 1024 floats.
const ROW: u64 = 4096;

fn saved_bytes(gpu: &Gpu) -> u64 {
    gpu.finish().unwrap();
    let stats = gpu.memory().stats();
    let by_holder: u64 = stats.holders.iter().map(|holder| holder.saved_bytes).sum();
    let by_tag: u64 = stats.tags.iter().map(|tag| tag.saved_bytes).sum();
    assert_eq!((by_holder, by_tag), (stats.saved_bytes, stats.saved_bytes));
    let snapshot = gpu.memory().snapshot();
    let blocks = snapshot.slabs.iter().flat_map(|slab| &slab.blocks);
    let in_blocks: u64 = (blocks.filter(|block| block.is_saved))
        .map(|block| block.size_bytes)
        .sum();
    assert_eq!(in_blocks, stats.saved_bytes);
    stats.saved_bytes
}

#[test]
fn each_operation_counts_what_its_backward_needs() {
    type Call = fn(&Tensor) -> lapidary::Result<Tensor>;
    let gpu = gpu();
    let x = parameter(&gpu, &spread(1024, -1.0, 1.0), &[1024]);
    let calls: &[(&str, Call, u64)] = &[
        ("relu: its result", |x| x.relu(), ROW),
        ("dropout: no mask", |x| x.dropout(0.5, 7), 0),
        ("a sum: nothing", |x| x.sum_all(), 0),
        ("a view: nothing", |x| x.reshape(&[32, 32]), 0),
        ("sin: its operand", |x| x.sin(), ROW),
        ("a square: its operand once", |x| x.mul(x), ROW),
        ("a chain: two results", |x| x.exp()?.tanh(), 2 * ROW),
    ];
    for (what, call, expected) in calls {
        assert_eq!(saved_bytes(&gpu), 0, "before {what}");
        let y = call(&x).unwrap();
        assert_eq!(saved_bytes(&gpu), *expected, "{what}");
        {
            let _no_grad = gpu.no_grad();
            let _z = call(&x).unwrap();
            assert_eq!(saved_bytes(&gpu), *expected, "{what}, under no_grad");
        }
        let loss = y.sum_all().unwrap();
        let kept = loss.backprop().keep_history().run().unwrap();
        drop(kept);
        assert_eq!(saved_bytes(&gpu), *expected, "{what}, kept");
        loss.backward().unwrap();
        assert_eq!(saved_bytes(&gpu), 0, "after {what}");
        // Without a backward, the last tensor that depends on them frees them.
        let dropped = call(&x).unwrap();
        drop((y, loss, dropped));
    }
    assert_eq!(saved_bytes(&gpu), 0);
}

#[test]
fn gradients_are_held_by_the_lines_that_recorded_their_operations() {
    let gpu = gpu();
    let w = parameter(&gpu, &spread(4096, -1.0, 1.0), &[64, 64]);
    let x = gpu.ones(&[64, 64], DType::F32).unwrap();
    let _scope = gpu.scope("step");
    let h = x.matmul(&w).unwrap();
    let (y, line) = (h.square().unwrap(), line!());
    let held = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&held);
    h.on_gradient(move |gradient| {
        hook.lock().unwrap().push(gradient.clone());
        gradient.mul(2.0)
    })
    .unwrap();
    let sum = (y.sum_all().unwrap() + w.narrow(0, 0, 1).unwrap().sum_all().unwrap()).unwrap();
    let _gradients = sum.backward().unwrap();
    gpu.finish().unwrap();
    let stats = gpu.memory().stats();
    let tags: Vec<&str> = stats.holders.iter().map(|one| &*one.tag).collect();
    // The function holds the gradient of `h`, which the square made.
    let of_square = format!("step/backward: tests/grad/saved.rs:{line}");
    assert!(tags.contains(&&*of_square), "{tags:#?}");
    // That of `w` is a sum, and belongs to the parameter.
    let is_of_parameter = |tag: &&str| tag.starts_with("step/backward: tests/grad/check.rs");
    assert!(tags.iter().any(is_of_parameter), "{tags:#?}");
    assert!(
        tags.iter().all(|tag| tag.contains("tests/grad/")),
        "{tags:#?}"
    );
}

#[test]
fn holders_and_the_report_name_the_line_that_made_what_is_saved() {
    let gpu = gpu();
    let w = parameter(&gpu, &[0.5; 64], &[1, 64]).named("weight");
    let x = gpu.ones(&[256, 1], DType::F32).unwrap();
    let (hidden, line) = (x.matmul(&w).unwrap().tanh().unwrap(), line!());
    let loss = hidden.sum_all().unwrap();
    gpu.finish().unwrap();
    let stats = gpu.memory().stats();
    // The result of `tanh` and the operand that the product needs for the weight's gradient.
    let result_bytes = 256 * 64 * 4;
    assert_eq!(stats.saved_bytes, result_bytes + 256 * 4);
    let of_line = |holder: &&lapidary::stats::Holder| holder.tag.ends_with(&format!(":{line}"));
    let holder = stats.holders.iter().find(of_line).unwrap();
    assert_eq!(
        (holder.bytes, holder.saved_bytes),
        (result_bytes, result_bytes)
    );
    let weight = stats
        .holders
        .iter()
        .find(|holder| holder.tag.contains("weight"));
    assert_eq!(weight.unwrap().saved_bytes, 0);
    let report = stats.to_string();
    assert!(report.contains("saved      65.0 KiB"), "{report}");
    assert!(report.contains("64.0 KiB saved\n"), "{report}");
    loss.backward().unwrap();
    assert!(!gpu.memory().stats().to_string().contains("\n  saved "));
}
