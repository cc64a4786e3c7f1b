//! Advice is given, with figures, only if there is a problem.

use lapidary::sim::{SimMode, SimOptions};
use lapidary::stats::{Snapshot, Topic};
use lapidary::{Budget, DType, Gpu, Options, Source, Tensor};

use super::open_alone;

const MIB: usize = 1 << 20;

fn zeros(gpu: &Gpu, bytes: usize, name: &str) -> Tensor {
    let x = gpu.zeros(&[bytes], DType::U8).unwrap().named(name);
    x.force().unwrap();
    x
}

fn with_budget(budget: Budget) -> Gpu {
    let device = SimOptions {
        mode: SimMode::SizesOnly,
        maps_slabs: false,
        lag_submissions: 3,
        compact_always: Some(false),
        ..SimOptions::default()
    };
    // With a heap in the host's memory nothing waits for it.
    let options = Options {
        budget: Some(budget),
        host_heap: Some(false),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).unwrap().0
}

/// Checks that there is advice on the topic and that it contains these texts.
fn check(gpu: &Gpu, topic: Topic, says: &[&str]) {
    let advice = gpu.memory().advice();
    let found = advice.iter().find(|one| one.topic == topic);
    let text = found
        .unwrap_or_else(|| panic!("{topic:?} in {advice:?}"))
        .to_string();
    for words in says {
        assert!(text.contains(words), "{words} in {text}");
    }
}

#[test]
fn a_program_in_order_gets_no_advice() {
    let (gpu, _) = open_alone(SimOptions::default());
    let weights = gpu.ones(&[32, 32], DType::F32).unwrap();
    let mut x = gpu.ones(&[64, 32], DType::F32).unwrap();
    for _ in 0..300 {
        x = x.matmul(&weights).unwrap().tanh().unwrap();
    }
    x.to_vec::<f32>().unwrap();
    assert_eq!(gpu.memory().advice(), []);
}

#[test]
fn a_budget_that_is_short_is_named_with_what_is_missing() {
    let gpu = with_budget(Budget::device(40 << 20));
    let layers: Vec<Tensor> = (0..6).map(|_| zeros(&gpu, 8 * MIB, "layer")).collect();
    for layer in layers.iter().cycle().take(24) {
        layer.sum_all().unwrap().force().unwrap();
    }
    check(
        &gpu,
        Topic::Budget,
        &["the budget of 40.0 MiB is short by", "`layer` ("],
    );
}

#[test]
fn a_budget_that_is_short_for_weights_of_a_file_asks_for_fewer_bits() {
    let gpu = with_budget(Budget::device(40 << 20));
    let weights = |_| {
        let source = Source::reader(|_, _| Ok(()));
        gpu.backed(source, &[8 * MIB], DType::U8).unwrap()
    };
    let layers: Vec<Tensor> = (0..6).map(weights).collect();
    for layer in layers.iter().cycle().take(24) {
        layer.sum_all().unwrap().force().unwrap();
    }
    check(&gpu, Topic::Budget, &["`ModelFile::weights_as`"]);
}

#[test]
fn blocks_that_outlive_their_neighbours_are_named() {
    let (gpu, _) = open_alone(SimOptions::default());
    let mut kept = Vec::new();
    for number in 0..64 {
        let passing: Vec<Tensor> = (0..15).map(|_| zeros(&gpu, MIB / 8, "passing")).collect();
        if number % 8 == 0 {
            kept.push(zeros(&gpu, MIB / 8, "statistics"));
        }
        kept.extend(passing);
    }
    kept.retain(|x| x.tag().name() == Some("statistics"));
    let says = [
        "are kept by 8 blocks",
        "`statistics` (",
        "GpuMemory::compact",
    ];
    check(&gpu, Topic::Fragmentation, &says);
    let pins: Vec<_> = kept.iter().map(|x| x.pin().unwrap()).collect();
    check(
        &gpu,
        Topic::Pinned,
        &["8 pinned tensors keep 8 slabs", "`statistics` ("],
    );
    drop(pins);
}

#[test]
fn what_nobody_uses_is_named_with_how_long() {
    let (gpu, _) = open_alone(SimOptions::default());
    let _cache = zeros(&gpu, 4 * MIB, "old results");
    let x = gpu.ones(&[16], DType::F32).unwrap();
    for _ in 0..1500 {
        x.add_(1).unwrap();
        x.force().unwrap();
    }
    let says = [
        "4.00 MiB in 1 tensors of `old results` (",
        "by the last 15",
        "99 % of",
    ];
    check(&gpu, Topic::Unused, &says);
}

#[test]
fn staging_that_is_too_small_is_named() {
    let gpu = with_budget(Budget {
        staging_bytes: Some(256 << 10),
        ..Budget::device(40 << 20)
    });
    let _held = zeros(&gpu, 32 * MIB, "held");
    let bytes = vec![1_u8; 4 * MIB];
    for _ in 0..60 {
        let x = gpu.tensor(&bytes, &[bytes.len()]).unwrap();
        x.force().unwrap();
    }
    let says = ["staging, which may take", "up to 5.00 MiB helps"];
    check(&gpu, Topic::Staging, &says);
}

#[test]
fn many_tiny_tensors_are_told_what_they_take() {
    let (gpu, _) = open_alone(SimOptions::default());
    let tiny: Vec<Tensor> = (0..9000)
        .map(|_| gpu.zeros(&[4], DType::F32).unwrap().named("tiny"))
        .collect();
    gpu.flush().unwrap();
    let says = [
        "93 %, is rounding: 9000 tensors",
        "the 256 B that",
        "`tiny` (",
    ];
    check(&gpu, Topic::Rounding, &says);
    drop(tiny);
}

#[test]
fn slabs_that_come_and_go_are_counted() {
    let (gpu, _) = open_alone(SimOptions::default());
    for _ in 0..20 {
        drop(zeros(&gpu, 8 * MIB, "step"));
        gpu.memory().trim(0).unwrap();
    }
    check(
        &gpu,
        Topic::Churn,
        &[
            "20 slabs were created and 20 released",
            "GpuMemory::reserve(8388608)",
        ],
    );
}

#[test]
fn work_in_small_portions_is_noticed() {
    let (gpu, _) = open_alone(SimOptions::default());
    let x = gpu.ones(&[16], DType::F32).unwrap();
    for _ in 0..150 {
        x.add_(1).unwrap();
        x.to_vec::<f32>().unwrap();
    }
    check(&gpu, Topic::Flushing, &["fewer than 4 in each"]);
}

/// A forward pass whose layers fill the budget, and no backward.
#[test]
fn memory_that_waits_for_a_backward_is_named_with_a_way_out() {
    let gpu = with_budget(Budget::device(40 << 20));
    let x = zeros(&gpu, 1 << 10, "input").cast(DType::F32).unwrap();
    let x = x.requires_grad().unwrap();
    let wide = |x: &Tensor| x.broadcast_to(&[2048, 1 << 10])?.exp();
    let layers: Vec<Tensor> = (0..3).map(|_| wide(&x).unwrap()).collect();
    gpu.finish().unwrap();
    // Pinned, they cannot be evicted for the next one.
    let pins: Vec<_> = layers.iter().map(|layer| layer.pin().unwrap()).collect();
    let refused = zeros_refused(&gpu);
    for words in [
        "24.0 MiB saved for backward",
        "24.0 MiB saved)",
        "call `backward` earlier",
    ] {
        assert!(refused.contains(words), "{words} in {refused}");
    }
    let says = ["24.0 MiB of the 24.0 MiB live bytes", "checkpoint"];
    check(&gpu, Topic::Saved, &says);
    drop((layers, pins));
    let is_saved = |one: &lapidary::stats::Suggestion| one.topic == Topic::Saved;
    assert!(!gpu.memory().advice().iter().any(is_saved));
}

/// A simulated device has no times, so they are written into a snapshot.
#[test]
fn waits_for_memory_are_named_with_the_tensor_and_a_way_out() {
    let gpu = with_budget(Budget::device(40 << 20));
    let layers: Vec<Tensor> = (0..6).map(|_| zeros(&gpu, 8 * MIB, "layer")).collect();
    for layer in layers.iter().cycle().take(24) {
        layer.sum_all().unwrap().force().unwrap();
    }
    let mut snapshot = gpu.memory().snapshot();
    let waiting = |snapshot: &Snapshot| {
        let advice = snapshot.advice().into_iter();
        let mut texts = advice.filter(|one| one.topic == Topic::Waiting);
        texts.next().map(|one| one.text)
    };
    assert_eq!(waiting(&snapshot), None);
    let stats = &mut snapshot.stats;
    (stats.host_wait_ns, stats.disk_wait_ns) = (300_000_000, 900_000_000);
    let longest = &mut stats.memory_waits[0];
    assert!(longest.tag.starts_with("`layer` ("), "{longest:?}");
    (longest.waits.host.ns, longest.waits.disk.ns) = (1_000_000, 800_000_000);
    snapshot.taken_at_ns = 4_000_000_000;
    let text = waiting(&snapshot).unwrap();
    for words in [
        "30 % of the time waiting for memory, 1.20 s: disk 900 ms, host 300 ms. 801 ms of it",
        "for `layer` (",
        "), mostly for the disk. Raise the budget by ",
        "`Budget::host_bytes`",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    // Without a budget there is none to raise.
    let mut unlimited = snapshot.clone();
    unlimited.stats.budget_bytes = None;
    let text = waiting(&unlimited).unwrap();
    assert!(
        text.contains("mostly for the disk. It helps to let more"),
        "{text}"
    );
    // A small part of the time is no matter.
    snapshot.taken_at_ns = 40_000_000_000;
    assert_eq!(waiting(&snapshot), None);
}

/// The error of a tensor that finds no room.
fn zeros_refused(gpu: &Gpu) -> String {
    let x = gpu.zeros(&[20 * MIB], DType::U8).unwrap();
    x.force().unwrap_err().to_string()
}

/// A program reads once for each token and is short of memory. Eviction then submits, releases
/// slabs and waits for staging. The only advice must be about the budget.
#[test]
fn a_decoder_under_a_budget_is_told_of_the_budget_alone() {
    let gpu = with_budget(Budget::device(30 << 20));
    let layers: Vec<Tensor> = (0..12).map(|_| zeros(&gpu, 5 * MIB, "layer")).collect();
    for _ in 0..40 {
        let mut sum = gpu.zeros(&[], DType::F32).unwrap();
        for layer in &layers {
            let one = layer.narrow(0, 0, MIB).unwrap().cast(DType::F32).unwrap();
            sum = sum.add(&one.sum_all().unwrap()).unwrap();
        }
        sum.item::<f32>().unwrap();
    }
    let advice = gpu.memory().advice();
    assert!(gpu.memory().stats().restores > 100);
    assert!(
        advice.iter().any(|one| one.topic == Topic::Budget),
        "{advice:?}"
    );
    for one in &advice {
        let is_no_help = matches!(one.topic, Topic::Flushing | Topic::Churn);
        assert!(!is_no_help && !one.text.contains("64.0 MiB"), "{one}");
    }
}
