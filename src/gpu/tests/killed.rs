//! A process is killed while its working set moves to and from the disk. Its leftovers must not
//! harm the next process, which must find the last saved state.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::tensor::Tensor;
use crate::{Budget, Gpu, Options};
use lapidary_core::units::KIB;
use lapidary_core::{DType, Error, Result, failure::StateFailure};
use lapidary_testing::killed::{kill, work_until_killed};

/// Tensors of 4 KiB: together more than the budget.
const TENSORS: usize = 20;
const LEN: usize = KIB as usize;

/// A device with little memory that can evict only to the disk.
fn open(folder: &Path) -> Result<Gpu> {
    let budget = Budget {
        host_bytes: Some(0),
        ..Budget::device(48 * KIB)
    };
    let device = crate::sim::SimOptions {
        max_buffer_bytes: 16 * KIB,
        dirty: true,
        ..Default::default()
    };
    let options = Options {
        budget: Some(budget),
        spill_folder: Some(spilled(folder)),
        ..Options::from_env().unwrap()
    };
    Ok(Gpu::simulated_with(device, options)?.0)
}

fn spilled(folder: &Path) -> PathBuf {
    folder.join("spilled")
}

fn state(folder: &Path) -> PathBuf {
    folder.join("saved").join("a.state")
}

fn fill(gpu: &Gpu, first: i32) -> Result<Vec<Tensor>> {
    let make = |number: usize| {
        let tensor = gpu.full(&[LEN], first + number as i32, DType::I32)?;
        tensor.force().map(|()| tensor)
    };
    (0..TENSORS).map(make).collect()
}

/// Increments every tensor, so that all are restored and evicted, and saves them, twice.
fn work(folder: &Path, round: usize) -> Result<()> {
    let gpu = open(folder)?;
    let mut tensors = fill(&gpu, round as i32)?;
    let names: Vec<String> = (0..TENSORS).map(|number| number.to_string()).collect();
    for _ in 0..2 {
        for tensor in &mut tensors {
            *tensor = tensor.add(100)?;
        }
        let named: Vec<_> = names.iter().map(String::as_str).zip(&tensors).collect();
        gpu.files().save_state(state(folder), &named)?;
    }
    Ok(())
}

fn check(tensors: &[Tensor], first: i32) -> Result<()> {
    for (number, tensor) in tensors.iter().enumerate() {
        let expected = first + number as i32;
        assert_eq!(tensor.to_vec::<i32>()?, [expected; LEN], "tensor {number}");
    }
    Ok(())
}

/// The leftovers of the last process are useless and harmless. Returns whether a state exists, and
/// whether the folder for spilled tensors had leftovers.
fn look(folder: &Path) -> Result<(bool, bool)> {
    let left = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let leftovers = left(&spilled(folder));
    for file in leftovers.iter().flat_map(|name| left(name)) {
        assert_eq!(fs::metadata(&file).unwrap().len(), 0, "{file:?}");
    }
    let gpu = open(folder)?;
    let tensors = fill(&gpu, -7)?;
    assert!(
        gpu.memory().stats().disk_bytes.now > 0,
        "{}",
        gpu.memory().stats()
    );
    let saved = match gpu.files().load_state(state(folder)) {
        Err(Error::State {
            failure: StateFailure::NotFound,
            ..
        }) => None,
        saved => Some(saved?),
    };
    if let Some(saved) = &saved {
        let name = |number: usize| saved.get(&number.to_string());
        let saved: Vec<Tensor> = (0..TENSORS).map(name).collect::<Result<_>>()?;
        let first = saved[0].narrow(0, 0, 1)?.item::<i32>()?;
        check(&saved, first)?;
    }
    check(&tensors, -7)?;
    let is_saved = saved.is_some();
    drop((tensors, saved, gpu));
    assert!(left(&spilled(folder)).is_empty(), "the next one tidies up");
    Ok((is_saved, !leftovers.is_empty()))
}

#[test]
#[ignore = "the other test runs it, in a process of its own"]
fn a_child_that_computes_until_it_is_killed() {
    work_until_killed(|folder, round| work(folder, round).unwrap());
}

#[test]
fn a_killed_process_leaves_nothing_but_its_last_state() -> Result<()> {
    let seed = std::env::var("LAPIDARY_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("LAPIDARY_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    // Use a file system in memory where there is one, because states are made durable.
    let name = format!("lapidary-test-{:016x}", fastrand::u64(..));
    let bases = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let mut folders = bases.iter().map(|base| base.join(&name));
    let folder = folders.find(|path| fs::create_dir(path).is_ok()).unwrap();
    fs::create_dir(spilled(&folder)).unwrap();
    fs::create_dir(folder.join("saved")).unwrap();
    let (child, soon) = (
        "a_child_that_computes_until_it_is_killed",
        Duration::from_millis(120),
    );
    let (mut with_state, mut with_leftovers) = (0, 0);
    kill(200, child, &folder, soon, &mut random, || {
        let (is_saved, has_leftovers) = look(&folder).unwrap();
        with_state += usize::from(is_saved);
        with_leftovers += usize::from(has_leftovers);
        // The next round must not find this state again.
        fs::remove_dir_all(folder.join("saved")).unwrap();
        fs::create_dir(folder.join("saved")).unwrap();
        is_saved
    });
    println!(
        "of 200, {with_state} had saved a state and {with_leftovers} left an empty folder or file"
    );
    assert!(0 < with_state && with_state < 200, "{with_state}");
    fs::remove_dir_all(&folder).unwrap();
    Ok(())
}
