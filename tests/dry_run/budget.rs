//! Budgets: what a dry run says will be evicted is evicted.

use lapidary::sim::{SimMode, SimOptions};
use lapidary::{Budget, DType, Gpu, Options, Result};

use super::check;
use super::transformer::Transformer;

/// A device with its own memory, which evicts to the host.
fn discrete(budget: Budget) -> Gpu {
    let device = SimOptions {
        mode: SimMode::SizesOnly,
        memory_bytes: 1 << 30,
        ..SimOptions::default()
    };
    let options = Options {
        budget: Some(budget),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("a device").0
}

#[test]
fn what_a_training_step_evicts_and_recomputes_is_what_was_found() {
    for part in [2, 3] {
        let full = discrete(Budget::default());
        let net = Transformer::new(&full, 4, 128).unwrap();
        let dry = full.dry_run(|gpu| net.step(gpu, 8, 64)).unwrap();
        assert!(dry.fits());
        let gpu = discrete(Budget::device(dry.peak_device_bytes / part));
        let net = Transformer::new(&gpu, 4, 128).unwrap();
        gpu.finish().unwrap();
        let dry = check(&gpu, "two steps", |gpu| {
            net.step(gpu, 8, 64)?;
            net.step(gpu, 8, 64)
        });
        let moved_bytes = dry.evicted_bytes + dry.recomputed_bytes;
        assert!(moved_bytes > 1 << 20 && !dry.fits(), "{dry}");
        assert!(dry.slowdown() > 1.0, "{dry}");
    }
}

#[test]
fn another_budget_is_set_within_the_program() {
    let gpu = discrete(Budget::default());
    let w = gpu.ones(&[1 << 20], DType::F32).unwrap();
    let cycle = |gpu: &Gpu| {
        let all: Vec<_> = (0..8).map(|_| &w + 1.0).collect::<Result<_>>()?;
        gpu.flush()?;
        all.iter().map(|x| x.sum_all()).collect::<Result<Vec<_>>>()
    };
    let free = gpu.dry_run(cycle).unwrap();
    assert!(free.fits() && free.budget_bytes.is_none(), "{free}");
    let tight = |gpu: &Gpu| {
        gpu.memory().set_budget(Budget::device(16 << 20))?;
        cycle(gpu)
    };
    let tight = gpu.dry_run(tight).unwrap();
    assert_eq!(tight.budget_bytes, Some(16 << 20));
    assert!(tight.peak_device_bytes <= 16 << 20, "{tight}");
    assert!(tight.evicted_bytes >= 16 << 20, "{tight}");
    let table = tight.to_string();
    assert!(table.contains("freed by `host`"), "{table}");
    assert!(
        table.lines().all(|line| line.chars().count() <= 100),
        "{table}"
    );
    assert_eq!(gpu.memory().budget(), Budget::default());
}

/// The least slab is larger than these budgets.
#[test]
fn an_upload_that_waits_leaves_the_rest_of_a_tiny_budget() {
    for kib in [512, 1 << 10, 2 << 10] {
        for len in [3, 5_000, 40_000] {
            let gpu = discrete(Budget::device(kib << 10));
            let x = gpu.tensor(&vec![1.0_f32; len], &[len]).unwrap();
            let program = |gpu: &Gpu, batch: usize| {
                let made = gpu.ones(&[batch, 8 << 10], DType::F32)?;
                Ok((made.add(1)?, &x + 1.0))
            };
            let dry = gpu.dry_run(|gpu| program(gpu, 1)).unwrap();
            assert!(dry.fits(), "{kib} KiB, {len} elements:\n{dry}");
            let fit = gpu.fit_batch(1..=4, program).unwrap();
            let made = program(&gpu, fit.batch).unwrap();
            gpu.finish().unwrap();
            let memory = gpu.memory().stats();
            assert_eq!((memory.evictions, memory.refusals), (0, 0), "{memory}");
            drop((x, made));
        }
    }
}

#[test]
fn evicted_tensors_of_the_device_are_evicted_in_a_dry_run() {
    let gpu = discrete(Budget::default());
    let x = gpu.ones(&[1 << 20], DType::F32).unwrap();
    let y = gpu.ones(&[1 << 20], DType::F32).unwrap();
    x.evict().unwrap();
    gpu.finish().unwrap();
    let dry = gpu.dry_run(|_| &x + &y).unwrap();
    assert_eq!((dry.restores, dry.restored_bytes), (1, 4 << 20), "{dry}");
    // Its copy on the host is still valid, so that it leaves without a transfer.
    let again = gpu
        .dry_run(|gpu| {
            x.force()?;
            gpu.memory().set_budget(Budget::device(8 << 20))?;
            x.evict()
        })
        .unwrap();
    assert_eq!(again.peak_host_bytes, 4 << 20, "{again}");
}
