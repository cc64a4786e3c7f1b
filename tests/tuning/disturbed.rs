//! Trials under faults, short memory, other threads and functions of the app. They do not affect
//! the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapidary::sim::{Fault, FaultKind, SimMode, SimOptions, Site};
use lapidary::{Budget, DType, Error, Options, Tensor, adapter::Tune};

use super::{Folder, assert_same, options, simulated, whole, work};

const SITES: [Site; 6] = [
    Site::CreateBuffer,
    Site::CreatePipeline,
    Site::CreateBindGroup,
    Site::Submit,
    Site::Poll,
    Site::Wait,
];

#[test]
fn what_goes_wrong_in_a_trial_is_nobodys_error() {
    let (mut struck, product) = (0, by_hand(64, 64, 66));
    for site in SITES {
        for kind in [FaultKind::OutOfMemory, FaultKind::Invalid] {
            for nth in 1..=6 {
                let (gpu, sim) = simulated(SimOptions::default(), options(Tune::FirstUse, None));
                let (a, b) = (
                    whole(&gpu, &[64, 66]).unwrap(),
                    whole(&gpu, &[66, 64]).unwrap(),
                );
                let other = (&a + 1.0).unwrap();
                gpu.finish().unwrap();
                let before = sim.counters().faults;
                sim.arm(Fault::once(site, nth, kind));
                let c = a.matmul(&b).unwrap();
                sim.disarm();
                struck += sim.counters().faults - before;
                let case = format!("{site:?} {nth} {kind:?}");
                let expected = whole(&gpu, &[66, 64]).unwrap();
                assert_eq!(
                    b.to_vec::<f32>().unwrap(),
                    expected.to_vec::<f32>().unwrap(),
                    "{case}"
                );
                assert_eq!(other.to_vec::<f32>().unwrap()[0], -4.0, "{case}");
                let got = c
                    .to_vec::<f32>()
                    .unwrap_or_else(|error| panic!("{case}: {error}"));
                assert_eq!(got, product, "{case}");
                assert_eq!(sim.complaints(), [""; 0], "{case}");
            }
        }
    }
    assert!(struck > 20, "{struck} faults struck");
}

/// The product of two matrices of `whole`.
fn by_hand(m: usize, n: usize, k: usize) -> Vec<f32> {
    let value = |i: usize| (i * 7 % 11) as f32 - 5.0;
    let element = |at: usize| {
        let terms = (0..k).map(|i| value(at / n * k + i) * value(i * n + at % n));
        terms.sum::<f32>()
    };
    (0..m * n).map(element).collect()
}

#[test]
fn a_variant_that_loses_the_device_is_not_tried_again() {
    let folder = Folder::new("loss");
    let open = || {
        simulated(
            SimOptions::default(),
            options(Tune::FirstUse, Some(&folder.0)),
        )
    };
    let (gpu, sim) = open();
    let a = whole(&gpu, &[64, 64]).unwrap();
    a.force().unwrap();
    // The first submission is the trial's, because all other work has run.
    sim.arm(Fault::once(Site::Submit, 1, FaultKind::Lost));
    assert!(matches!(a.matmul(&a), Err(Error::DeviceLost { .. })));
    let never = gpu.kernels().tuned().never;
    assert_eq!(never.len(), 1, "{:?}", gpu.kernels().tuned());
    drop((a, gpu));
    let text = std::fs::read_to_string(folder.file()).unwrap();
    assert!(text.contains(&format!("never {}\n", never[0])), "{text}");

    let (gpu, _) = open();
    let a = whole(&gpu, &[64, 64]).unwrap();
    assert_eq!(
        a.matmul(&a).unwrap().to_vec::<f32>().unwrap(),
        by_hand(64, 64, 64)
    );
    let found = gpu.kernels().tuned();
    assert_eq!(found.never, never);
    assert!(
        found.best.iter().all(|(_, variant)| *variant != never[0]),
        "{found:?}"
    );
}

#[test]
fn where_there_is_no_room_for_a_trial_all_is_as_without() {
    let bytes = 64 * 64 * 4;
    // Enough for both operands and the result, and little more.
    let run = |tune| {
        let limits = Options {
            budget: Some(Budget {
                staging_bytes: Some(32 << 10),
                ..Budget::device(3 * bytes + (40 << 10))
            }),
            ..options(tune, None)
        };
        let (gpu, _) = simulated(SimOptions::default(), limits);
        let (a, b) = (
            whole(&gpu, &[64, 64]).unwrap(),
            whole(&gpu, &[64, 64]).unwrap(),
        );
        gpu.finish().unwrap();
        let c = a.matmul(&b).unwrap();
        assert_eq!(c.to_vec::<f32>().unwrap(), by_hand(64, 64, 64));
        assert_eq!(gpu.kernels().tuned().trials, 0);
        gpu.memory().stats()
    };
    let (with, without) = (run(Tune::FirstUse), run(Tune::Off));
    assert_eq!((with.evicted_bytes, with.refusals), (0, 0), "{with}");
    let numbers =
        |of: &lapidary::stats::MemoryStats| (of.commands, of.submissions, of.device_bytes.peak);
    assert_eq!(numbers(&with), numbers(&without));
}

#[test]
fn operands_without_a_value_are_not_tried_and_say_why_as_ever() {
    let (gpu, sim) = simulated(SimOptions::default(), options(Tune::FirstUse, None));
    let a = whole(&gpu, &[64, 64]).unwrap();
    gpu.finish().unwrap();
    let poisoned = (&a + 1.0).unwrap();
    sim.arm(Fault::once(Site::Submit, 1, FaultKind::Invalid));
    let product = poisoned.matmul(&a).unwrap();
    sim.disarm();
    assert!(matches!(
        product.to_vec::<f32>(),
        Err(Error::Poisoned { .. })
    ));
    assert_eq!(gpu.kernels().tuned().trials, 0);
    assert_eq!(
        a.matmul(&a).unwrap().to_vec::<f32>().unwrap(),
        by_hand(64, 64, 64)
    );
}

#[test]
fn threads_and_devices_share_what_is_found() {
    let folder = Folder::new("threads");
    let open = || {
        simulated(
            SimOptions::default(),
            options(Tune::FirstUse, Some(&folder.0)),
        )
        .0
    };
    let expected = work(&open()).unwrap();
    let folder = Folder::new("threads");
    let open = || {
        simulated(
            SimOptions::default(),
            options(Tune::FirstUse, Some(&folder.0)),
        )
        .0
    };
    let gpus = [open(), open()];
    std::thread::scope(|scope| {
        for gpu in &gpus {
            for _ in 0..3 {
                scope.spawn(|| assert_same(&work(gpu).unwrap(), &expected));
            }
        }
    });
    let found: Vec<_> = gpus
        .iter()
        .flat_map(|gpu| gpu.kernels().tuned().best)
        .collect();
    assert!(!found.is_empty());
    let kept = open().kernels().tuned();
    assert!(found.iter().any(|one| kept.best.contains(one)), "{kept:?}");
    assert!(kept.never.is_empty(), "{kept:?}");
}

#[test]
fn inside_functions_of_the_app_the_rules_hold() {
    let (gpu, _) = simulated(SimOptions::default(), options(Tune::FirstUse, None));
    let a = whole(&gpu, &[64, 64]).unwrap();
    let made = (&a + 0.0).unwrap();
    made.recompute_with(&[&a], |inputs| inputs[0].matmul(&inputs[0]))
        .unwrap();
    made.force().unwrap();
    // A rematerializer runs when its tensor is restored.
    let calls = Arc::new(AtomicU32::new(0));
    let (seen, operand) = (calls.clone(), a.clone());
    let guard = gpu.memory().on_pressure(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        let product = operand.matmul(&operand).unwrap();
        drop(product);
    });
    made.evict().unwrap();
    let product = made.to_vec::<f32>().unwrap();
    assert_eq!(product, by_hand(64, 64, 64));
    gpu.memory().set_budget(Budget::device(4 << 20)).unwrap();
    let full = |_| gpu.full(&[256 << 10], 1.0, DType::F32).unwrap();
    let held: Vec<Tensor> = (0..8).map(full).collect();
    held.iter().for_each(|tensor| tensor.force().unwrap());
    assert!(calls.load(Ordering::Relaxed) > 0);
    assert_eq!(
        gpu.kernels().tuned().trials,
        0,
        "{:?}",
        gpu.kernels().tuned()
    );
    drop((guard, held));
    gpu.memory().set_budget(Budget::default()).unwrap();
    a.matmul(&a).unwrap().force().unwrap();
    assert!(gpu.kernels().tuned().trials > 0);
}

#[test]
fn a_device_of_sizes_only_has_nothing_to_try_by() {
    let device = SimOptions {
        mode: SimMode::SizesOnly,
        ..SimOptions::default()
    };
    let (gpu, _) = simulated(device, options(Tune::FirstUse, None));
    let a = gpu.zeros(&[512, 512], DType::F32).unwrap();
    a.matmul(&a).unwrap().force().unwrap();
    let text = format!("{:?}", gpu.kernels().tuned().best);
    assert!(
        text.contains("Workgroup { rows: 4 }"),
        "as the rule has it: {text}"
    );
}
