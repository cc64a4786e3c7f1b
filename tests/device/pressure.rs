//! Memory under pressure on a real adapter, at small scale. Evicted tensors are restored, under a
//! changing budget and with a driver that has no more memory.
//!
//! `LAPIDARY_SEED` runs one program.

use lapidary::units::MIB;
use lapidary::{Advice, Budget, DType, Gpu, Options, Result, Tensor};

use super::app::App;
#[cfg(not(target_vendor = "apple"))]
use super::{refusals, scarce::Memory};

/// Elements of a tensor of 256 KiB.
const LEN: usize = 64 << 10;

struct Held {
    tensor: Tensor,
    /// Element `i` is `first + step * i`, modulo 2^32.
    first: i32,
    step: i32,
}

impl Held {
    fn new(gpu: &Gpu, first: i32) -> Result<Held> {
        let tensor = gpu.arange(first, i64::from(first) + LEN as i64, 1, DType::I32)?;
        let step = 1;
        Ok(Held {
            tensor,
            first,
            step,
        })
    }

    #[track_caller]
    fn check(&self) -> Result<()> {
        let got = self.tensor.to_vec::<i32>()?;
        let element = |i: i32| self.first.wrapping_add(self.step.wrapping_mul(i));
        let expected = (0..LEN as i32).map(element);
        assert!(got.into_iter().eq(expected), "{}", self.tensor);
        Ok(())
    }
}

/// A program of random calls on tensors that take several times the memory, which `limit` changes.
fn run(gpu: &Gpu, seed: u64, limit: impl Fn(u64) -> Result<()>) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut held = Vec::new();
    for first in 0..24 {
        held.push(Held::new(gpu, first)?);
    }
    for _ in 0..300 {
        let (at, other) = (random.usize(..held.len()), random.usize(..held.len()));
        match random.u32(..20) {
            0..=5 => {
                let (x, y) = (&held[at], &held[other]);
                let sum = Held {
                    tensor: x.tensor.add(&y.tensor)?,
                    first: x.first.wrapping_add(y.first),
                    step: x.step.wrapping_add(y.step),
                };
                held[at] = sum;
                held[other] = Held::new(gpu, random.i32(-99..99))?;
            }
            6..=8 => {
                held[at].tensor.add_(&gpu.scalar(1)?)?;
                held[at].first = held[at].first.wrapping_add(1);
            }
            9..=11 => held[at].check()?,
            12 => held[at].tensor.evict()?,
            13 => held[at].tensor.prefetch()?,
            14 => held[at].tensor.advise(
                *random
                    .choice(&[Advice::Soon, Advice::Late])
                    .unwrap_or(&Advice::Soon),
            ),
            15 => {
                let pin = held[at].tensor.pin()?;
                held[other].check()?;
                drop(pin);
            }
            16 => drop(gpu.memory().compact(MIB)?),
            17 => drop(gpu.memory().trim(0)?),
            18 => gpu.poll()?,
            _ => limit(random.u64(3..8) * MIB)?,
        }
    }
    held.iter().try_for_each(Held::check)
}

fn run_on_budget(gpu: &Gpu, seed: u64) -> Result<()> {
    run(gpu, seed, |bytes| {
        gpu.memory().set_budget(Budget::device(bytes)).map(drop)
    })
}

fn seeds() -> Vec<u64> {
    let one = std::env::var("LAPIDARY_SEED").ok();
    one.and_then(|seed| seed.parse().ok())
        .map_or((0..4).collect(), |seed| vec![seed])
}

#[test]
fn random_programs_several_times_the_budget_are_right() -> Result<()> {
    for seed in seeds() {
        println!("seed {seed}");
        let options = Options {
            budget: Some(Budget::device(4 * MIB)),
            ..Options::from_env().unwrap()
        };
        run_on_budget(&Gpu::open(options)?, seed)?;
    }
    Ok(())
}

/// On such a device all transfers use staging, and victims go to the host first.
#[test]
fn they_are_right_on_the_apps_device_too() -> Result<()> {
    for seed in seeds() {
        println!("seed {seed}");
        let gpu = App::open().gpu();
        gpu.memory().set_budget(Budget::device(4 * MIB))?;
        run_on_budget(&gpu, seed)?;
        let memory = gpu.memory().stats();
        assert!(memory.evicted_bytes > 0, "{memory}");
    }
    Ok(())
}

/// The host has no room, so evicted tensors go to the disk.
#[test]
fn the_time_of_waits_for_memory_is_measured() -> Result<()> {
    let options = Options {
        budget: Some(Budget {
            host_bytes: Some(0),
            ..Budget::device(4 * MIB)
        }),
        ..Options::from_env().unwrap()
    };
    let gpu = Gpu::open(options)?;
    let first = Held::new(&gpu, 0)?;
    first.tensor.force()?;
    let nothing = gpu.memory().stats();
    assert_eq!(nothing.waits().total().times, 0, "{nothing}");
    let others: Vec<Held> = (1..32)
        .map(|first| Held::new(&gpu, first))
        .collect::<Result<_>>()?;
    gpu.flush()?;
    let stats = gpu.memory().stats();
    assert!(stats.disk_waits > 0 && stats.disk_wait_ns > 0, "{stats}");
    assert_eq!(stats.store_waits, 0);
    // Reads that the app asks for do not count.
    others.iter().try_for_each(Held::check)?;
    assert_eq!(gpu.memory().stats().waits(), stats.waits());
    // The sum needs the first tensor on the device again.
    first.tensor.sum_all()?.force()?;
    let stats = gpu.memory().stats();
    let longest = stats.memory_waits.first().expect("there were waits");
    assert!(longest.waits.total().ns > 0 && longest.tag.contains("pressure.rs"));
    Ok(())
}

#[cfg(not(target_vendor = "apple"))]
#[test]
fn they_are_right_where_it_is_the_driver_that_has_no_more() -> Result<()> {
    let seeds = seeds().into_iter().take(2);
    for (seed, maps) in seeds.flat_map(|seed| [(seed, false), (seed, true)]) {
        println!("seed {seed}, slabs are mapped: {maps}");
        let memory = Memory::of(4 * MIB);
        let gpu = refusals::app(&memory, maps).gpu();
        run(&gpu, seed, |bytes| {
            memory.set(bytes);
            Ok(())
        })?;
        let stats = gpu.memory().stats();
        assert!(memory.refused() > 0 && stats.evicted_bytes > 0, "{stats}");
    }
    Ok(())
}
