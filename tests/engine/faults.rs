//! Every call of the driver is refused in every way. There is no panic, no hang and no wrong byte,
//! and unconcerned work is not affected. Afterwards everything is as before, or the device is lost.

use lapidary::sim::{Fault, FaultKind, Repeat, SimHandle, SimOptions, Site};
use lapidary::{Budget, DType, Error, Gpu, Residency, Result, Tensor};
use pollster::block_on;

use crate::engine::threads::watched;
use crate::engine::{ended, numbers, open, open_alone, options};
use crate::faults::{KINDS, SITES};

const REPEATS: [Repeat; 3] = [Repeat::Once, Repeat::EverySecond, Repeat::ForEver];

/// A tensor with its expected value, which only successful calls change.
struct Known(Tensor, Vec<f32>);

impl Known {
    fn check(&self, read: Result<Vec<f32>>) {
        if let Ok(got) = read {
            assert!(got == self.1, "wrong bytes in {}", self.0);
        }
    }
}

/// All calls of the driver: small and large transfers, kernels, reads in and out of order, released
/// memory. Returns the tensors that it still holds.
fn scenario(gpu: &Gpu, by: &Tensor) -> Result<Vec<Known>> {
    let mut held = Vec::new();
    let x = Known(gpu.tensor(&numbers(0, 1000), &[1000])?, numbers(0, 1000));
    let mut y = Known(x.0.add(5)?, numbers(5, 1000));
    let early = y.0.to_vec_async::<f32>();
    let expected = y.1.clone();
    if y.0.write(&numbers(9, 1000)).is_ok() {
        y.1 = numbers(9, 1000);
    }
    if let Ok(got) = block_on(early) {
        assert!(got == expected, "a read saw a later write");
    }
    y.check(y.0.to_vec());
    let _ = gpu.flush();
    let big = Known(
        gpu.tensor(&numbers(0, 110_000), &[110_000])?,
        numbers(0, 110_000),
    );
    let abandoned = big.0.to_vec_async::<f32>();
    if y.0.add_(1).is_ok() {
        y.1.iter_mut().for_each(|value| *value += 1.0);
    }
    drop(abandoned);
    big.check(big.0.to_vec());
    drop(big);
    let _ = gpu.memory().trim(0);
    let product = x.0.view_as(&[10, 100])?.matmul(&x.0.view_as(&[100, 10])?)?;
    let sum = Known(
        by.add(&x.0)?,
        numbers(0, 1000).iter().map(|v| v * 2.0).collect(),
    );
    if by.evict().is_ok() {
        // Rows of a tensor that is not on the device.
        let table = by.view_as(&[100, 10])?;
        let rows = table.index_select(0, &gpu.tensor(&[7_u32, 99], &[2])?)?;
        let wanted = [numbers(70, 10), numbers(990, 10)].concat();
        let rows = Known(rows, wanted);
        rows.check(rows.0.to_vec());
    }
    let (late, later) = (sum.0.to_vec_async::<f32>(), x.0.to_vec_async::<f32>());
    x.check(block_on(later));
    sum.check(block_on(late));
    let _ = (gpu.poll(), gpu.finish(), product.force());
    held.extend([x, y, sum]);
    Ok(held)
}

/// A device with a tensor that must have the same value at the end.
fn prepared(options: SimOptions) -> (Gpu, SimHandle, Tensor) {
    let (gpu, sim) = open(SimOptions {
        max_buffer_bytes: 512 << 10,
        ..options
    });
    let by = gpu.tensor(&numbers(0, 1000), &[1000]).unwrap();
    by.force().unwrap();
    (gpu, sim, by)
}

fn check(options: &SimOptions, fault: Fault) {
    let (gpu, sim, by) = prepared(options.clone());
    sim.arm(fault);
    let outcome = scenario(&gpu, &by);
    sim.disarm();
    let is_lost = fault.kind == FaultKind::Lost && sim.counters().faults > 0;
    let held = outcome.unwrap_or_default();
    if is_lost {
        for known in &held {
            assert!(matches!(
                known.0.to_vec::<f32>(),
                Err(Error::DeviceLost { .. })
            ));
        }
        for error in [
            by.to_vec::<f32>().unwrap_err(),
            by.add(&by).unwrap_err(),
            gpu.zeros(&[1], DType::F32).unwrap_err(),
            gpu.flush().unwrap_err(),
            gpu.finish().unwrap_err(),
            gpu.memory().trim(0).unwrap_err(),
            gpu.poll().unwrap_err(),
        ] {
            assert!(
                matches!(error, Error::DeviceLost { .. }),
                "{fault:?}: {error}"
            );
        }
    } else {
        assert_eq!(by.to_vec::<f32>().unwrap(), numbers(0, 1000), "{fault:?}");
        held.iter().for_each(|known| known.check(known.0.to_vec()));
        let again = scenario(&gpu, &by).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        for known in &again {
            match known.0.to_vec::<f32>() {
                Ok(got) => assert!(got == known.1, "{fault:?}"),
                // A kernel that was found invalid is not compiled again.
                Err(error) => assert!(is_remembered(fault), "{fault:?}: {error}"),
            }
        }
    }
    drop((held, by));
    ended(gpu, &sim);
}

fn is_remembered(fault: Fault) -> bool {
    fault.site == Site::CreatePipeline && fault.kind == FaultKind::Invalid
}

fn every_fault(options: SimOptions) {
    let (gpu, sim, by) = prepared(options.clone());
    let before = SITES.map(|site| sim.counters().calls(site));
    scenario(&gpu, &by).unwrap();
    let after = sim.counters();
    drop((gpu, by));
    let mut runs = 0;
    for (site, before) in SITES.into_iter().zip(before) {
        let calls = after.calls(site) - before;
        for nth in 1..=calls {
            for kind in KINDS {
                for repeat in REPEATS {
                    check(
                        &options,
                        Fault {
                            site,
                            nth,
                            repeat,
                            kind,
                        },
                    );
                    runs += 1;
                }
            }
        }
    }
    eprintln!("{runs} faults");
    assert!(runs > 100);
}

#[test]
fn every_call_refused_over_staging() {
    watched(|| every_fault(options()));
}

#[test]
fn every_call_refused_where_slabs_are_mapped() {
    watched(|| {
        every_fault(SimOptions {
            maps_slabs: true,
            max_immediate_bytes: 0,
            ..options()
        });
    });
}

#[test]
fn chance_faults_of_all_kinds_at_once() {
    watched(|| {
        for seed in 0..40 {
            let (gpu, sim, by) = prepared(SimOptions {
                seed,
                jitter: true,
                maps_slabs: seed % 2 == 0,
                ..options()
            });
            for site in SITES {
                for (calls, kind) in [(9, FaultKind::OutOfMemory), (11, FaultKind::Invalid)] {
                    let fault = Fault {
                        repeat: Repeat::OneIn(calls),
                        ..Fault::once(site, 1, kind)
                    };
                    if !is_remembered(fault) {
                        sim.arm(fault);
                    }
                }
            }
            let held: Vec<_> = (0..5).map(|_| scenario(&gpu, &by)).collect();
            sim.disarm();
            assert_eq!(by.to_vec::<f32>().unwrap(), numbers(0, 1000), "seed {seed}");
            for known in held.iter().flatten().flatten() {
                known.check(known.0.to_vec());
            }
            scenario(&gpu, &by).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            drop((held, by));
            ended(gpu, &sim);
        }
    });
}

#[test]
fn poison_names_the_tensor_and_where_it_was_made() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(0, 10), &[10]).unwrap();
    sim.arm(Fault::once(Site::CreatePipeline, 1, FaultKind::Invalid));
    let (y, line) = (x.neg().unwrap().named("scores"), line!());
    let z = y.narrow(0, 2, 3).unwrap().copy().unwrap();
    let error = y.to_vec::<f32>().unwrap_err().to_string();
    let place = format!("{}:{line}", file!());
    assert_eq!(
        error,
        format!(
            "the tensor made at `scores` ({place}) has no value: the driver refused a kernel: \
             unary: a fault at CreatePipeline"
        )
    );
    assert!(matches!(z.to_vec::<f32>(), Err(Error::Poisoned { .. })));
    assert_eq!(x.to_vec::<f32>().unwrap(), numbers(0, 10));
    drop((x, y, z));
    ended(gpu, &sim);
}

#[test]
fn only_a_value_that_is_whole_cures_a_poisoned_tensor() {
    let (gpu, sim) = open(options());
    sim.arm(Fault::once(Site::CreateBuffer, 1, FaultKind::Invalid));
    let x = gpu.zeros(&[8], DType::F32).unwrap();
    assert!(x.force().is_err());
    x.narrow(0, 0, 4).unwrap().write(&numbers(0, 4)).unwrap();
    assert!(matches!(x.to_vec::<f32>(), Err(Error::Poisoned { .. })));
    x.write(&numbers(0, 8)).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), numbers(0, 8));
    x.narrow(0, 0, 4).unwrap().fill_(7).unwrap();
    assert_eq!(
        x.narrow(0, 3, 2).unwrap().to_vec::<f32>().unwrap(),
        [7.0, 4.0]
    );
    drop(x);
    ended(gpu, &sim);
}

#[test]
fn what_was_given_up_on_its_way_out_takes_no_room_on_the_host() {
    let (gpu, sim) = open_alone(options());
    // Reads use pieces of 16 KiB, of which two are under way at a time.
    gpu.memory().set_budget(Budget::device(2 << 20)).unwrap();
    let x = gpu.tensor(&numbers(0, 1 << 16), &[1 << 16]).unwrap();
    x.force().unwrap();
    sim.arm(Fault {
        site: Site::Wait,
        nth: 1,
        repeat: Repeat::ForEver,
        kind: FaultKind::Invalid,
    });
    assert!(x.evict().is_err());
    sim.disarm();
    assert_eq!(x.residency(), Residency::Device);
    assert_eq!(gpu.memory().stats().host_bytes.now, 0);
    assert_eq!(x.to_vec::<f32>().unwrap(), numbers(0, 1 << 16));
    drop(x);
    ended(gpu, &sim);
}
