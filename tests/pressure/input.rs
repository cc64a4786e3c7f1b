//! Bad input gives a clear error or defined behaviour, and other tensors are not affected.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use lapidary::sim::{FileFault, FileFaultKind, FileSite, Repeat, SimHandle, SimOptions};
use lapidary::{
    Budget, DType, Error, Gpu, Options, Residency, Result, Source, Tensor, failure::SpillFailure,
};

use crate::programs::{WANTED, hide_panics};
use crate::random::orders::folder;

/// A device that evicts everything to disk, in this folder.
fn on_disk(folder: &Path) -> (Gpu, SimHandle) {
    let options = Options {
        budget: Some(Budget {
            host_bytes: Some(0),
            ..Budget::device(256 << 10)
        }),
        spill_folder: Some(folder.to_owned()),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(SimOptions::default(), options).expect("a device")
}

fn tensor(gpu: &Gpu, value: u32) -> Tensor {
    let tensor = gpu.full(&[1000], value, DType::U32).expect("there is room");
    tensor.force().expect("there is room");
    tensor
}

#[track_caller]
fn holds(tensor: &Tensor, value: u32) {
    assert_eq!(tensor.to_vec::<u32>().expect("a value"), [value; 1000]);
}

/// A folder of the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("lapidary-input-{name}-{}", std::process::id());
        let path = folder().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn budgets_that_cannot_be_change_nothing() {
    let (gpu, _) = Gpu::simulated(SimOptions::default()).unwrap();
    let good = Budget::device(1 << 20);
    gpu.memory().set_budget(good).unwrap();
    let x = tensor(&gpu, 1);
    for bad in [
        Budget::device(0),
        Budget {
            soft_device_bytes: Some(2 << 20),
            ..good
        },
    ] {
        assert!(matches!(
            gpu.memory().set_budget(bad),
            Err(Error::Option {
                option: "budget",
                ..
            })
        ));
        assert_eq!(gpu.memory().budget(), good);
        let options = Options {
            budget: Some(bad),
            ..Options::from_env().unwrap()
        };
        let opened = Gpu::simulated_with(SimOptions::default(), options);
        assert!(matches!(opened, Err(Error::Option { .. })));
    }
    holds(&x, 1);
}

#[test]
fn a_budget_below_what_is_pinned_says_what_is_missing() {
    let (gpu, _) = on_disk(&folder());
    let (pinned, other) = (tensor(&gpu, 1), tensor(&gpu, 2));
    let pin = pinned.pin().unwrap();
    let budget = gpu.memory().budget();
    let tiny = Budget {
        device_bytes: Some(1 << 10),
        ..budget
    };
    let shortfall_bytes = gpu.memory().set_budget(tiny).unwrap();
    assert!(shortfall_bytes >= 3000, "{shortfall_bytes}");
    assert_eq!(pinned.residency(), Residency::Device);
    assert_eq!(other.residency(), Residency::Disk);
    // There is no memory for anything new, not even for reading a pinned tensor.
    assert!(matches!(pinned.to_vec::<u32>(), Err(Error::OutOfMemory(_))));
    let more = other.add(1).unwrap();
    assert!(matches!(more.force(), Err(Error::NeverFits { .. })));
    drop(pin);
    assert_eq!(gpu.memory().set_budget(budget).unwrap(), 0);
    holds(&more, 3);
    holds(&pinned, 1);
    holds(&other, 2);
}

/// Two operands fit on the device, and a third tensor does not.
#[test]
fn a_result_in_the_place_of_an_operand_needs_no_room_wherever_the_operands_are() {
    for out in [[false, false], [true, false], [false, true], [true, true]] {
        let (gpu, _) = on_disk(&folder());
        let (x, y) = (tensor(&gpu, 1), tensor(&gpu, 2));
        let budget = Budget {
            staging_bytes: Some(16 << 10),
            device_bytes: Some(26 << 10),
            ..gpu.memory().budget()
        };
        assert_eq!(gpu.memory().set_budget(budget).unwrap(), 0);
        let (kept, also_kept) = (x.clone(), y.clone());
        let sum = kept.add(&also_kept).unwrap();
        assert!(matches!(sum.force(), Err(Error::NeverFits { .. })));
        drop((sum, kept, also_kept));
        let mut in_their_place = Vec::new();
        for (operand, is_out) in [&x, &y].into_iter().zip(out) {
            if is_out {
                operand.evict().unwrap();
                in_their_place.push(tensor(&gpu, 4));
            }
        }
        let sum = x.add(&y).unwrap();
        drop((x, y));
        sum.force().unwrap();
        holds(&sum, 3);
        in_their_place.iter().for_each(|other| holds(other, 4));
    }
}

/// The effect of a folder that cannot be used.
fn check_folder(name: &str, prepare: impl FnOnce(&Path), repair: impl FnOnce(&Path)) {
    let folder = Folder::new(name);
    let spill = folder.0.join("spill");
    prepare(&folder.0);
    let (gpu, _) = on_disk(&spill);
    let (x, y) = (tensor(&gpu, 1), tensor(&gpu, 2));
    match x.evict() {
        Err(Error::Spill(error)) => assert_eq!(error.failure, SpillFailure::Folder, "{error}"),
        evicted => panic!("{name}: {evicted:?}"),
    }
    assert_eq!(x.residency(), Residency::Device);
    holds(&x, 1);
    repair(&folder.0);
    x.evict().unwrap();
    assert_eq!(x.residency(), Residency::Disk);
    holds(&x, 1);
    holds(&y, 2);
}

#[test]
fn a_spill_folder_that_cannot_be_used_keeps_the_tensor_where_it_is() {
    // A file in its place, which stops root too.
    check_folder(
        "file",
        |folder| {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("spill"), "a file").unwrap();
        },
        |folder| std::fs::remove_file(folder.join("spill")).unwrap(),
    );
    check_folder(
        "below a file",
        |folder| std::fs::write(folder, "a file").unwrap(),
        |folder| std::fs::remove_file(folder).unwrap(),
    );
}

#[test]
fn a_spill_folder_that_vanishes_takes_nothing_along() {
    let folder = Folder::new("vanishes");
    let (gpu, _) = on_disk(&folder.0);
    let (x, y) = (tensor(&gpu, 1), tensor(&gpu, 2));
    x.evict().unwrap();
    std::fs::remove_dir_all(&folder.0).unwrap();
    y.evict().unwrap();
    holds(&x, 1);
    holds(&y, 2);
    drop((x, y));
    drop(gpu);
    assert!(!folder.0.exists() || std::fs::read_dir(&folder.0).unwrap().count() == 0);
}

#[test]
fn compression_without_the_feature_is_refused_at_once() {
    let options = Options {
        spill_compress: true,
        ..Options::from_env().unwrap()
    };
    let opened = Gpu::simulated_with(SimOptions::default(), options);
    let has_feature = cfg!(feature = "lz4");
    assert_eq!(opened.is_ok(), has_feature);
    match opened {
        Ok((gpu, _)) => {
            let x = tensor(&gpu, 7);
            x.evict().unwrap();
            holds(&x, 7);
        }
        Err(Error::Option { option, reason }) => {
            assert_eq!(option, "spill_compress");
            assert!(reason.contains("lz4"), "{reason}");
        }
        Err(error) => panic!("{error}"),
    }
}

/// The effect of a file's fault on one tensor that is evicted and restored. Another one is always
/// right.
fn check_file(site: FileSite, kind: FileFaultKind, judge: fn(Result<Vec<u32>>)) {
    let (gpu, sim) = on_disk(&folder());
    let (x, y) = (tensor(&gpu, 1), tensor(&gpu, 2));
    y.evict().unwrap();
    sim.files().arm(FileFault {
        site,
        nth: 1,
        repeat: Repeat::Once,
        kind,
    });
    let evicted = x.evict();
    let read = evicted.and_then(|()| x.to_vec::<u32>());
    assert_eq!(sim.files().struck(), 1, "{site:?} {kind:?}");
    judge(read);
    sim.files().disarm();
    holds(&y, 2);
    let z = tensor(&gpu, 3);
    z.evict().unwrap();
    holds(&z, 3);
}

#[test]
fn a_spill_file_that_is_full_or_damaged_is_found_out() {
    let is_full = |read: Result<Vec<u32>>| match read {
        Err(Error::Spill(error)) => assert_eq!(error.failure, SpillFailure::DiskFull, "{error}"),
        read => panic!("{read:?}"),
    };
    let is_corrupt = |read: Result<Vec<u32>>| {
        assert!(matches!(read, Err(Error::SpillCorrupt { .. })), "{read:?}");
    };
    let is_right = |read: Result<Vec<u32>>| assert_eq!(read.unwrap(), [1; 1000]);
    check_file(FileSite::Write, FileFaultKind::DiskFull, is_full);
    check_file(FileSite::Write, FileFaultKind::Flip, is_corrupt);
    check_file(FileSite::Write, FileFaultKind::Torn, is_corrupt);
    check_file(FileSite::Read, FileFaultKind::Flip, is_corrupt);
    check_file(FileSite::Write, FileFaultKind::Short, is_right);
    check_file(FileSite::Read, FileFaultKind::Short, is_right);
    check_file(FileSite::Write, FileFaultKind::Interrupted, is_right);
}

#[test]
fn sources_of_the_wrong_length_are_refused_and_those_that_fail_are_asked_again() {
    let (gpu, _) = on_disk(&folder());
    let other = tensor(&gpu, 5);
    let short = Source::bytes(vec![0; 3999].into());
    let backed = gpu.backed(short.clone(), &[1000], DType::U32);
    assert!(matches!(backed, Err(Error::Length { .. })));
    let x = tensor(&gpu, 6);
    assert!(matches!(x.backed_by(short), Err(Error::Length { .. })));
    holds(&x, 6);

    let manner = Arc::new(AtomicU32::new(0));
    let said = manner.clone();
    let source = Source::reader(move |_, bytes| {
        match said.fetch_add(1, Ordering::Relaxed) {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            1 => panic!("{WANTED}"),
            _ => bytes.fill(9),
        }
        Ok(())
    });
    hide_panics();
    let backed = gpu.backed(source, &[1000], DType::U32).unwrap();
    let sum = backed.add(&other).unwrap();
    for _ in 0..2 {
        let forced = sum.force();
        assert!(matches!(forced, Err(Error::Source { .. })), "{forced:?}");
    }
    holds(&other, 5);
    holds(&sum, 0x0909_0909 + 5);
}

#[test]
fn what_is_pinned_is_not_evicted_and_says_so() {
    let (gpu, _) = on_disk(&folder());
    let x = tensor(&gpu, 1);
    let pin = x.pin().unwrap();
    let view = x.narrow(0, 1, 2).unwrap();
    for tensor in [&x, &view] {
        assert!(matches!(tensor.evict(), Err(Error::Pinned { .. })));
    }
    let second = view.pin().unwrap();
    drop(pin);
    assert!(matches!(x.evict(), Err(Error::Pinned { .. })));
    drop(second);
    x.evict().unwrap();
    holds(&x, 1);
}

#[test]
fn callbacks_that_panic_block_or_call_back_in_hold_up_nobody_for_ever() {
    hide_panics();
    let (gpu, _) = on_disk(&folder());
    let kept: Vec<Tensor> = (0..80).map(|value| tensor(&gpu, value)).collect();
    let refused = Arc::new(AtomicBool::new(false));
    let (inner, told) = (gpu.clone(), refused.clone());
    let guards = [
        gpu.memory().on_pressure(|_| panic!("{WANTED}")),
        gpu.memory()
            .on_pressure(|_| thread::sleep(Duration::from_millis(1))),
        // Each time it is called it requests more memory and waits for itself.
        gpu.memory().on_pressure(move |_| {
            let x = inner.zeros(&[4000], DType::U32);
            let is_refused = matches!(x.and_then(|x| x.force()), Err(Error::Reentered));
            told.store(is_refused, Ordering::Relaxed);
        }),
    ];
    // Other threads go on while one is inside a callback.
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for value in 0..40 {
                    holds(&tensor(&gpu, value), value);
                }
            });
        }
    });
    for (value, tensor) in (0..).zip(&kept) {
        holds(tensor, value);
    }
    assert!(refused.load(Ordering::Relaxed));
    drop(guards);
}

#[test]
fn two_threads_that_each_need_most_of_the_budget_take_turns() {
    let (gpu, _) = on_disk(&folder());
    // Each sum takes 60 % of the budget.
    let len = 13_000;
    thread::scope(|scope| {
        for thread in 1..3_u32 {
            let gpu = &gpu;
            scope.spawn(move || {
                for round in 0..20 {
                    let a = gpu.full(&[len], thread, DType::U32).unwrap();
                    let b = gpu.full(&[len], round, DType::U32).unwrap();
                    let sum = a.add(&b).unwrap();
                    assert_eq!(sum.to_vec::<u32>().unwrap(), vec![thread + round; len]);
                }
            });
        }
    });
    assert_eq!(gpu.memory().stats().refusals, 0);
}

#[test]
fn dropping_the_gpu_leaves_what_is_on_disk_to_its_tensors() {
    let folder = Folder::new("dropped");
    let (gpu, _) = on_disk(&folder.0);
    let x = tensor(&gpu, 4);
    x.evict().unwrap();
    drop(gpu);
    holds(&x, 4);
    x.evict().unwrap();
    drop(x);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[test]
fn idle_memory_goes_by_polls_whatever_the_clock_does() {
    let (gpu, _) = on_disk(&folder());
    gpu.memory().release_idle_after(3);
    drop(tensor(&gpu, 1));
    gpu.finish().unwrap();
    thread::sleep(Duration::from_millis(20));
    assert!(
        gpu.memory().stats().reserved_bytes.now > 0,
        "no poll, no time"
    );
    for _ in 0..8 {
        gpu.poll().unwrap();
    }
    assert_eq!(gpu.memory().stats().reserved_bytes.now, 0);
    // Around the overflow of the counter of polls, and endlessly.
    for polls in [0, 1, u32::MAX] {
        gpu.memory().release_idle_after(polls);
        drop(tensor(&gpu, 2));
        assert!(catch_unwind(AssertUnwindSafe(|| gpu.poll())).is_ok());
    }
}
