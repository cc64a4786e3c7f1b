//! Every call of the driver and of the file system fails in every way, in a program with constant
//! evictions, moves and restores. There is no panic, no hang and no wrong byte, and unconcerned
//! work is not affected. After the fault everything is as before, or survives on another device.

use lapidary::sim::{
    Fault, FaultKind, FileFault, FileFaultKind, FileSite, Repeat, SimHandle, SimOptions, Site,
};
use lapidary::{Budget, DType, Error, Gpu, Options, Result, Source, Tensor};

use crate::faults::{KINDS, SITES};
use crate::programs::number;
use crate::random::orders::folder;

const FILE_SITES: [FileSite; 4] = [
    FileSite::Create,
    FileSite::Write,
    FileSite::Read,
    FileSite::SetLen,
];
const FILE_KINDS: [FileFaultKind; 6] = [
    FileFaultKind::DiskFull,
    FileFaultKind::Io,
    FileFaultKind::Interrupted,
    FileFaultKind::Short,
    FileFaultKind::Torn,
    FileFaultKind::Flip,
];
const REPEATS: [Repeat; 3] = [Repeat::Once, Repeat::EverySecond, Repeat::ForEver];

/// One in this many faults is tried.
const SAMPLE: Sample = Sample {
    short: 41,
    longer: 5,
    longest: 1,
};

/// One in this many faults is tried: in the suite, and in longer runs of the random programs. A
/// seed chooses which, so each run tries others.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) short: usize,
    pub(crate) longer: usize,
    pub(crate) longest: usize,
}

/// The longest runs have this many random programs of each kind.
const MANY_PROGRAMS: u64 = 2000;

/// Elements of a tensor.
const LEN: usize = 700;

/// A tensor and its expected contents, unless a call reported an error.
struct Known(Tensor, Vec<u32>);

impl Known {
    fn new(gpu: &Gpu, start: u32) -> Result<Known> {
        let values: Vec<u32> = (start..start + LEN as u32).collect();
        Ok(Known(gpu.tensor(&values, &[LEN])?, values))
    }

    /// The contents are right, or the read gives an error.
    fn check(&self) -> Result<()> {
        let got = self.0.to_vec::<u32>()?;
        assert!(got == self.1, "wrong bytes in {}", self.0);
        Ok(())
    }
}

fn open(maps_slabs: bool) -> (Gpu, SimHandle) {
    let device = SimOptions {
        max_buffer_bytes: 64 << 10,
        offset_alignment_bytes: 32,
        maps_slabs,
        dirty: true,
        checks_shaders: false,
        ..SimOptions::default()
    };
    let options = Options {
        budget: Some(Budget {
            host_bytes: Some(6 << 10),
            ..Budget::device(28 << 10)
        }),
        spill_folder: Some(folder()),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("a device")
}

/// Tensors that exist before: on the device, on disk or in the host's memory, and at a source.
fn prepared(gpu: &Gpu) -> Vec<Known> {
    let here = Known::new(gpu, 0).expect("no fault yet");
    let evicted = Known::new(gpu, 1000).expect("no fault yet");
    evicted.0.evict().expect("no fault yet");
    let values: Vec<u32> = (5..5 + LEN as u32).collect();
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect();
    let backed = gpu.backed(Source::bytes(bytes.into()), &[LEN], DType::U32);
    here.0.force().expect("no fault yet");
    vec![here, evicted, Known(backed.expect("no fault yet"), values)]
}

/// More tensors than fit, each used again after the others.
fn scenario(gpu: &Gpu, before: &[Known]) -> Result<Vec<Known>> {
    let mut held = Vec::new();
    for number in 0..7 {
        let x = Known::new(gpu, number * 100)?;
        let with = &before[number as usize % before.len()];
        let values = (x.1.iter().zip(&with.1)).map(|(a, b)| a.wrapping_add(*b));
        let sum = Known(x.0.add(&with.0)?, values.collect());
        let _ = gpu.flush();
        held.extend([x, sum]);
    }
    let _ = (gpu.memory().compact(u64::MAX), held[3].0.prefetch());
    let _ = held[1].0.evict();
    let pin = held[2].0.pin();
    let budget = gpu.memory().budget();
    let _ = gpu.memory().set_budget(Budget {
        device_bytes: Some(20 << 10),
        ..budget
    });
    drop(pin);
    for known in &held {
        let _ = known.check();
    }
    let _ = (
        gpu.memory().trim(0),
        gpu.memory().set_budget(budget),
        gpu.poll(),
    );
    Ok(held)
}

/// Runs the scenario with a fault, and then without.
fn check(maps_slabs: bool, name: &str, arm: impl FnOnce(&SimHandle), may: May) {
    let (gpu, sim) = open(maps_slabs);
    let mut before = prepared(&gpu);
    arm(&sim);
    let held = scenario(&gpu, &before).unwrap_or_default();
    sim.disarm();
    sim.files().disarm();
    let is_lost = matches!(gpu.flush(), Err(Error::DeviceLost { .. }));
    if is_lost {
        assert!(may.lose_device, "{name}");
        for known in held.iter().chain(&before) {
            assert!(matches!(known.check(), Err(Error::DeviceLost { .. })));
        }
        gpu.reopen().expect("there is another device");
        before[2].check().expect("its source still has it");
    }
    for known in &held {
        match known.check() {
            Ok(()) | Err(Error::Poisoned { .. }) => {}
            Err(Error::SpillCorrupt { .. }) if may.lose_bytes => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    for known in &before {
        let read = known.check();
        assert!(
            read.is_ok() || is_lost || may.lose_bytes,
            "{name}: {read:?}"
        );
    }
    drop(held);
    if is_lost || may.lose_bytes {
        before = prepared(&gpu);
    }
    let again = scenario(&gpu, &before);
    for known in again.unwrap_or_else(|error| panic!("{name}: {error}")) {
        if let Err(error) = known.check() {
            assert!(may.forget_kernels, "{name}: {error}");
        }
    }
    drop(before);
    let budget_bytes = gpu.memory().budget().device_bytes.expect("it was set");
    assert!(
        gpu.memory().stats().device_bytes.now <= budget_bytes,
        "{name}"
    );
    assert!(sim.counters().peak_bytes <= budget_bytes, "{name}");
    gpu.finish()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let memory = gpu.memory().stats();
    assert_eq!(
        (memory.live_bytes.now, memory.queued),
        (0, 0),
        "{name}: {memory}"
    );
    assert_eq!(
        (memory.host_bytes.now, memory.spilled_bytes.now),
        (0, 0),
        "{name}: {memory}"
    );
    drop(gpu);
    assert_eq!(sim.counters().buffers_live, 0, "{name}");
    assert_eq!(sim.complaints(), [""; 0], "{name}");
}

/// Effects that a fault may have beyond the failure of the current work.
#[derive(Clone, Copy, Default)]
struct May {
    lose_device: bool,
    lose_bytes: bool,
    forget_kernels: bool,
}

/// The faults to try: one of each `every` in a row.
pub(crate) fn sampled<T: Copy>(faults: &[T], sample: Sample) -> Vec<T> {
    let every = match number("LAPIDARY_PROGRAMS") {
        None => sample.short,
        Some(MANY_PROGRAMS..) => sample.longest,
        Some(_) => sample.longer,
    };
    let seed = number("LAPIDARY_SEED").unwrap_or_else(|| fastrand::u64(..));
    let mut rng = fastrand::Rng::with_seed(seed);
    let rows = faults.chunks(every);
    let chosen: Vec<T> = rows.map(|row| row[rng.usize(..row.len())]).collect();
    println!(
        "{} of {} faults, LAPIDARY_SEED={seed}",
        chosen.len(),
        faults.len()
    );
    chosen
}

/// The calls of each kind so far.
pub(crate) fn calls(sim: &SimHandle) -> [u64; SITES.len()] {
    SITES.map(|site| sim.counters().calls(site))
}

/// All faults of the calls since then.
pub(crate) fn faults_since(sim: &SimHandle, calls_before: [u64; SITES.len()]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (site, calls_before) in SITES.into_iter().zip(calls_before) {
        for nth in 1..=sim.counters().calls(site) - calls_before {
            for (kind, repeat) in KINDS
                .into_iter()
                .flat_map(|kind| REPEATS.map(|r| (kind, r)))
            {
                faults.push(Fault {
                    site,
                    nth,
                    repeat,
                    kind,
                });
            }
        }
    }
    faults
}

/// A kernel that was found invalid is not compiled again.
pub(crate) fn forgets_kernels(fault: Fault) -> bool {
    fault.site == Site::CreatePipeline && fault.kind == FaultKind::Invalid
}

fn every_driver_fault(maps_slabs: bool) {
    let (gpu, sim) = open(maps_slabs);
    let before = prepared(&gpu);
    let calls_before = calls(&sim);
    drop(scenario(&gpu, &before));
    let faults = faults_since(&sim, calls_before);
    assert!(faults.len() > 1000, "{} faults", faults.len());
    let faults = sampled(&faults, SAMPLE);
    for fault in faults {
        let may = May {
            lose_device: fault.kind == FaultKind::Lost,
            forget_kernels: forgets_kernels(fault),
            ..May::default()
        };
        check(maps_slabs, &format!("{fault:?}"), |sim| sim.arm(fault), may);
    }
}

#[test]
fn every_call_of_the_driver_failed() {
    every_driver_fault(false);
}

#[test]
fn every_call_of_the_driver_failed_where_slabs_are_mapped() {
    every_driver_fault(true);
}

#[test]
fn every_call_of_the_file_system_failed() {
    let (gpu, sim) = open(false);
    let before = prepared(&gpu);
    let calls_before = FILE_SITES.map(|site| sim.files().calls(site));
    drop(scenario(&gpu, &before));
    let mut faults = Vec::new();
    for (site, calls_before) in FILE_SITES.into_iter().zip(calls_before) {
        for kind in FILE_KINDS {
            let plain = !matches!(site, FileSite::Write | FileSite::Read);
            if plain && !matches!(kind, FileFaultKind::DiskFull | FileFaultKind::Io) {
                continue;
            }
            for nth in 1..=sim.files().calls(site) - calls_before {
                faults.extend(REPEATS.map(|repeat| FileFault {
                    site,
                    nth,
                    repeat,
                    kind,
                }));
            }
        }
    }
    assert!(faults.len() > 100, "{} faults", faults.len());
    let faults = sampled(&faults, SAMPLE);
    for fault in faults {
        let may = May {
            lose_bytes: matches!(fault.kind, FileFaultKind::Torn | FileFaultKind::Flip),
            ..May::default()
        };
        check(
            false,
            &format!("{fault:?}"),
            |sim| sim.files().arm(fault),
            may,
        );
    }
}
