//! Evictions to a heap in the host's memory: a dry run moves what the device moves.

use lapidary::sim::{Fault, FaultKind, SimHandle, SimMode, SimOptions, Site};
use lapidary::stats::{DryRun, MemoryStats};
use lapidary::{Budget, DType, Gpu, Options, Residency, Result, Tensor};

use super::transformer::Transformer;

const MIB: u64 = 1 << 20;

/// Elements of 256 KiB.
const LEN: usize = 1 << 16;

/// A device with its own memory.
fn card(host_heap: Option<bool>, budget: Budget) -> (Gpu, SimHandle) {
    let device = SimOptions {
        mode: SimMode::SizesOnly,
        host_heap: true,
        compact_always: Some(false),
        ..SimOptions::default()
    };
    let options = Options {
        budget: Some(budget),
        host_heap,
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("a device")
}

/// What a program takes and moves.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    /// Live, reserved, of the device, evicted to the host, slabs there, and on disk.
    peaks: [u64; 6],
    /// Evictions, restores, and their bytes; dropped, moved and computed again.
    traffic: [u64; 7],
    refusals: u64,
}

impl Figures {
    fn between(before: &MemoryStats, after: &MemoryStats) -> Self {
        let levels = [
            &after.live_bytes,
            &after.reserved_bytes,
            &after.device_bytes,
            &after.host_bytes,
            &after.host_slab_bytes,
            &after.spilled_bytes,
        ];
        let sums = |stats: &MemoryStats| {
            [
                stats.evictions,
                stats.evicted_bytes,
                stats.restores,
                stats.restored_bytes,
                stats.dropped_bytes,
                stats.moved_bytes,
                stats.recomputed_bytes,
            ]
        };
        let (from, to) = (sums(before), sums(after));
        Figures {
            peaks: levels.map(|level| level.peak),
            traffic: std::array::from_fn(|index| to[index] - from[index]),
            refusals: after.refusals - before.refusals,
        }
    }

    fn host_slab_bytes(&self) -> u64 {
        self.peaks[4]
    }
}

/// Runs a program dry, then in earnest. All figures are equal, but for 1 % of the submissions: how
/// many pieces go through staging depends on what it was before.
#[track_caller]
fn check<T>(gpu: &Gpu, what: &str, program: impl Fn(&Gpu) -> Result<T>) -> (DryRun, Figures) {
    let measured = |gpu: &Gpu| {
        let before = gpu.memory().stats();
        let made = program(gpu)?;
        gpu.finish()?;
        let after = gpu.memory().stats();
        let figures = Figures::between(&before, &after);
        Ok((made, figures, after.submissions - before.submissions, after))
    };
    gpu.finish().unwrap();
    let mut found = None;
    let dry = gpu.dry_run(|gpu| {
        let (made, figures, submissions, _) = measured(gpu)?;
        found = Some((figures, submissions));
        Ok(made)
    });
    let dry = dry.unwrap();
    gpu.memory().reset_peaks();
    let (_made, happened, submissions, stats) = measured(gpu).unwrap();
    let (figures, submitted) = found.expect("it ended well");
    assert_eq!(figures, happened, "{what}\n{dry}{stats}");
    let is_close = submitted.abs_diff(submissions) <= submissions / 100;
    assert!(is_close, "{what}: {submitted}\n{stats}");
    assert_eq!(dry.peak_host_slab_bytes, figures.host_slab_bytes(), "{dry}");
    (dry, figures)
}

/// Many tensors that are used in turn.
fn rounds(gpu: &Gpu) -> Result<Vec<Tensor>> {
    let tensors: Result<Vec<Tensor>> = (0..48)
        .map(|number| gpu.full(&[LEN], number as f32, DType::F32))
        .collect();
    let tensors = tensors?;
    for round in 0..3 {
        for (index, tensor) in tensors.iter().enumerate() {
            match (round + index) % 5 {
                0 => tensor.add_(1)?,
                _ => (tensor + 1)?.force()?,
            }
        }
    }
    Ok(tensors)
}

#[test]
fn work_within_and_beyond_a_budget_moves_what_was_found() {
    for (mib, evicts) in [(64, false), (12, true), (9, true), (5, true)] {
        let (gpu, _) = card(None, Budget::device(mib * MIB));
        let (dry, figures) = check(&gpu, &format!("{mib} MiB"), rounds);
        assert_eq!(figures.host_slab_bytes() > 0, evicts, "{dry}");
        assert_eq!(!dry.fits(), evicts, "{dry}");
        let table = dry.to_string();
        assert_eq!(
            table.contains("slabs in the host's memory"),
            evicts,
            "{table}"
        );
        assert!(
            table.lines().all(|line| line.chars().count() <= 100),
            "{table}"
        );
    }
}

#[test]
fn so_does_a_training_step() {
    let (full, _) = card(None, Budget::default());
    let net = Transformer::new(&full, 2, 128).unwrap();
    let dry = full.dry_run(|gpu| net.step(gpu, 4, 64)).unwrap();
    let (gpu, _) = card(None, Budget::device(dry.peak_device_bytes / 3));
    let net = Transformer::new(&gpu, 2, 128).unwrap();
    let (dry, figures) = check(&gpu, "two steps", |gpu| {
        net.step(gpu, 4, 64)?;
        net.step(gpu, 4, 64)
    });
    assert!(figures.host_slab_bytes() > 0, "{dry}");
}

/// The host has no room, less than a block, less than a slab, or room for a part. The rest goes on
/// to the disk.
#[test]
fn limits_of_the_host_hold_in_a_dry_run() {
    for host_bytes in [0, 4 << 10, 256 << 10, 1_000_000, 4 * MIB, 6 * MIB + 12] {
        let budget = Budget {
            host_bytes: Some(host_bytes),
            staging_bytes: Some(2 * MIB),
            ..Budget::device(8 * MIB)
        };
        let (gpu, _) = card(None, budget);
        let (dry, figures) = check(&gpu, &format!("{host_bytes} bytes"), rounds);
        assert!(dry.peak_disk_bytes > 0, "{dry}");
        assert!(figures.host_slab_bytes() <= host_bytes, "{dry}");
        let has_room = host_bytes >= 256 << 10;
        assert_eq!(figures.host_slab_bytes() > 0, has_room, "{dry}");
    }
}

#[test]
fn what_is_in_the_heap_before_lies_at_the_same_places() {
    let (gpu, _) = card(None, Budget::device(16 * MIB));
    let tensors = rounds(&gpu).unwrap();
    // Holes in the heap, some copies of tensors on the device, and commands that wait.
    for tensor in tensors.iter().step_by(3) {
        tensor.evict().unwrap();
    }
    for tensor in tensors.iter().step_by(12) {
        (tensor + 1).unwrap().force().unwrap();
    }
    let tensors: Vec<Tensor> = tensors.into_iter().step_by(2).collect();
    let before = gpu.memory().stats();
    let places: Vec<Residency> = tensors.iter().map(Tensor::residency).collect();
    assert!(places.contains(&Residency::Host) && places.contains(&Residency::Device));
    gpu.dry_run(|dry| {
        let stats = dry.memory().stats();
        assert_eq!(stats.host_bytes.now, before.host_bytes.now);
        assert_eq!(stats.host_slab_bytes.now, before.host_slab_bytes.now);
        assert_eq!(stats.host_free_bytes, before.host_free_bytes);
        let largest = stats.host_largest_hole_bytes;
        assert_eq!(largest, before.host_largest_hole_bytes);
        let here: Vec<Residency> = tensors.iter().map(Tensor::residency).collect();
        assert_eq!(here, places);
        Ok(())
    })
    .unwrap();
    let (dry, _) = check(&gpu, "again", |gpu| {
        for tensor in &tensors {
            tensor.add_(1)?;
        }
        rounds(gpu)
    });
    assert!(dry.restored_bytes > 0, "{dry}");
    drop(tensors);
    gpu.memory().trim(0).unwrap();
    assert_eq!(gpu.memory().stats().host_slab_bytes.now, 0);
}

/// A dry run changes no slab and no block of the device.
#[test]
fn the_heap_of_the_device_stays_as_it_is() {
    let (gpu, sim) = card(None, Budget::device(8 * MIB));
    let tensors = rounds(&gpu).unwrap();
    gpu.finish().unwrap();
    let (before, created) = (gpu.memory().stats(), sim.counters().buffers_created);
    let dry = gpu.dry_run(|gpu| {
        let budget = Budget {
            host_bytes: Some(0),
            ..gpu.memory().budget()
        };
        gpu.memory().set_budget(budget)?;
        assert_eq!(gpu.memory().stats().host_slab_bytes.now, 0);
        tensors.iter().try_for_each(|one| one.fill_(1))
    });
    assert!(dry.unwrap().peak_disk_bytes > 0);
    let after = gpu.memory().stats();
    assert_eq!(after.host_slab_bytes, before.host_slab_bytes);
    assert_eq!(after.host_bytes, before.host_bytes);
    assert_eq!(after.spilled_bytes.now, 0, "{after}");
    assert_eq!(sim.counters().buffers_created, created);
}

#[test]
fn rows_of_a_table_in_the_heap_and_reads_follow_the_rules_of_dry_runs() {
    let (gpu, _) = card(None, Budget::device(8 * MIB));
    let table = gpu.ones(&[1024, 64], DType::F32).unwrap();
    let named = gpu.arange(7, 10, 1, DType::U32).unwrap();
    table.evict().unwrap();
    assert!(gpu.memory().stats().host_slab_bytes.now > 0);
    let (dry, _) = check(&gpu, "rows", |_| table.embedding(&named));
    // Only the rows that are picked.
    assert_eq!((dry.restores, dry.restored_bytes), (0, 3 * 64 * 4), "{dry}");
    let read = gpu.dry_run(|_| table.to_vec::<f32>());
    assert!(matches!(read, Err(lapidary::Error::DryRunRead { .. })));
    assert_eq!(table.residency(), Residency::Host);
}

/// The driver had no memory for another slab, so victims go to plain memory.
#[test]
fn a_heap_that_the_driver_refused_does_not_grow_in_a_dry_run() {
    let (gpu, sim) = card(None, Budget::device(8 * MIB));
    let tensors = rounds(&gpu).unwrap();
    let before = gpu.memory().stats().host_slab_bytes.now;
    // Nothing but the slab is created, until the first victim goes to plain memory.
    sim.arm(Fault::once(Site::CreateBuffer, 1, FaultKind::OutOfMemory));
    for tensor in &tensors {
        tensor.evict().unwrap();
    }
    let stats = gpu.memory().stats();
    assert_eq!(
        (sim.counters().faults, stats.host_slab_bytes.now),
        (1, before)
    );
    let (dry, figures) = check(&gpu, "refused", rounds);
    assert_eq!(figures.host_slab_bytes(), before, "{dry}");
    assert!(dry.peak_host_bytes > before, "{dry}");
    // A new budget asks the driver again, also in a dry run.
    let dry = gpu.dry_run(|gpu| {
        gpu.memory().set_budget(Budget::device(8 * MIB))?;
        rounds(gpu)
    });
    assert!(dry.unwrap().peak_host_slab_bytes > before);
}

/// Without the heap, what leaves goes to plain memory, as before.
#[test]
fn a_device_without_the_heap_has_none_in_a_dry_run() {
    let (gpu, _) = card(Some(false), Budget::device(8 * MIB));
    let (dry, figures) = check(&gpu, "without a heap", rounds);
    assert_eq!(figures.host_slab_bytes(), 0, "{dry}");
    assert!(dry.peak_host_bytes > 0, "{dry}");
    gpu.dry_run(|gpu| {
        assert!(!gpu.caps().host_heap);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_dry_run_within_a_dry_run_has_the_heap_too() {
    let (gpu, _) = card(None, Budget::device(8 * MIB));
    let tensors = rounds(&gpu).unwrap();
    let mut inner = None;
    let outer = gpu.dry_run(|gpu| {
        inner = Some(gpu.dry_run(rounds)?);
        rounds(gpu)
    });
    let (outer, inner) = (outer.unwrap(), inner.unwrap());
    assert_eq!(outer.evicted_bytes, inner.evicted_bytes, "{outer}{inner}");
    assert_eq!(outer.peak_host_slab_bytes, inner.peak_host_slab_bytes);
    assert!(inner.peak_host_slab_bytes > 0);
    drop(tensors);
}
