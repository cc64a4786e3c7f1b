//! Transfers in place: writes and reads of tensors on an idle device, and functions of the app that
//! access mapped memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, Error, Gpu, Tensor};

use crate::engine::{numbers, open_alone, options};

fn devices() -> [(Gpu, SimHandle); 2] {
    [true, false].map(|maps_slabs| {
        open_alone(SimOptions {
            maps_slabs,
            lag_submissions: u32::MAX,
            ..options()
        })
    })
}

fn tensor(gpu: &Gpu, elements: &[f32]) -> Tensor {
    gpu.tensor(elements, &[elements.len()]).unwrap()
}

fn sum(t: &Tensor) -> lapidary::Result<f32> {
    t.read_with(|elements: &[f32]| elements.iter().sum::<f32>())
}

#[test]
fn an_idle_device_that_shares_memory_is_given_nothing_to_do() {
    let [(gpu, sim), _] = devices();
    let x = tensor(&gpu, &numbers(0, 1024));
    let version = x.version();
    x.write(&numbers(1, 1024)).unwrap();
    // Some words of the mapping do not belong to the view.
    x.slice(0, 3, 6, 1).unwrap().write(&numbers(7, 3)).unwrap();
    assert_eq!(x.version(), version + 2);
    let mut expected = numbers(1, 1024);
    expected[3..6].copy_from_slice(&numbers(7, 3));
    assert_eq!(x.to_vec::<f32>().unwrap(), expected);
    assert_eq!(
        x.slice(0, 5, 8, 1).unwrap().to_vec::<f32>().unwrap(),
        expected[5..8]
    );
    assert_eq!(x.select(0, -1).unwrap().item::<f32>().unwrap(), 1024.0);
    assert_eq!(sum(&x).unwrap(), expected.iter().sum::<f32>());
    assert_eq!(sim.counters().submissions, 0);
}

#[test]
fn what_the_device_has_yet_to_do_comes_first() {
    for (gpu, sim) in devices() {
        let x = tensor(&gpu, &numbers(0, 100));
        let recorded = (&x * 2.0).unwrap();
        x.write(&numbers(1, 100)).unwrap();
        gpu.flush().unwrap();
        // One recorded and one submitted: both read the value before the next write.
        let submitted = (&x * 3.0).unwrap();
        gpu.flush().unwrap();
        x.write(&numbers(2, 100)).unwrap();
        let times = |by: f32, from: usize| -> Vec<f32> {
            numbers(from, 100).iter().map(|x| by * x).collect()
        };
        assert_eq!(recorded.to_vec::<f32>().unwrap(), times(2.0, 0));
        assert_eq!(submitted.to_vec::<f32>().unwrap(), times(3.0, 1));
        assert_eq!(x.to_vec::<f32>().unwrap(), numbers(2, 100));
        assert_eq!(sim.complaints(), [""; 0]);
    }
}

#[test]
fn a_write_in_place_ends_the_copies_that_were_kept() {
    let [(gpu, sim), _] = devices();
    let x = tensor(&gpu, &numbers(0, 1024));
    x.evict().unwrap();
    assert_eq!(sum(&x).unwrap(), numbers(0, 1024).iter().sum::<f32>());
    (&x + 1.0).unwrap().force().unwrap();
    gpu.finish().unwrap();
    x.write(&numbers(9, 1024)).unwrap();
    x.evict().unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), numbers(9, 1024));
    assert_eq!(sim.complaints(), [""; 0]);
}

#[test]
fn a_function_sees_what_arrived_in_one_piece_up_to_half_of_what_there_is_for_reading() {
    let [_, (gpu, sim)] = devices();
    for (len, copies) in [(1_500_000, 1), (3_000_000, 1)] {
        let x = tensor(&gpu, &numbers(0, len));
        gpu.finish().unwrap();
        let before = sim.counters().submissions;
        let seen = x.read_with(|elements: &[f32]| elements == numbers(0, len));
        assert!(seen.unwrap());
        assert_eq!(sim.counters().submissions - before, copies);
    }
}

#[test]
fn a_function_that_looks_may_record_and_not_wait() {
    for (gpu, sim) in devices() {
        let x = tensor(&gpu, &numbers(0, 1000));
        for view in [x.clone(), x.flip(&[0]).unwrap()] {
            let (y, refused) = view
                .read_with(|elements: &[f32]| {
                    let y = tensor(&gpu, &elements[..10]);
                    let z = (&y + 1.0).unwrap();
                    x.write(&numbers(0, 1000)).unwrap();
                    let refused = [
                        z.force(),
                        sum(&x).map(drop),
                        gpu.finish(),
                        z.to_vec::<f32>().map(drop),
                    ];
                    (z, refused)
                })
                .unwrap();
            for refused in refused {
                assert!(matches!(refused, Err(Error::Reentered)), "{refused:?}");
            }
            let first = if view.strides()[0] > 0 {
                0.0
            } else {
                numbers(0, 1000)[999]
            };
            assert_eq!(y.to_vec::<f32>().unwrap()[0], first + 1.0);
        }
        assert_eq!(sim.complaints(), [""; 0]);
    }
}

#[test]
fn a_function_that_panics_leaves_everything_working() {
    for (gpu, sim) in devices() {
        let x = tensor(&gpu, &numbers(0, 100_000));
        for _ in 0..20 {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                x.read_with(|elements: &[f32]| assert!(elements.is_empty()))
            }));
            assert!(panicked.is_err());
        }
        let doubled = (&x * 2.0).unwrap();
        assert_eq!(sum(&doubled).unwrap(), 2.0 * sum(&x).unwrap());
        assert_eq!(sim.complaints(), [""; 0]);
        drop((x, doubled));
        gpu.memory().trim(0).unwrap();
        assert_eq!(gpu.memory().stats().device_bytes.now, 0);
    }
}

#[test]
fn threads_look_at_once_beside_others_that_compute_under_a_small_budget() {
    for (gpu, sim) in devices() {
        gpu.memory().set_budget(Budget::device(8 << 20)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let gpu = &gpu;
                scope.spawn(move || {
                    for round in 0..20 {
                        let x = tensor(gpu, &numbers(thread + round, 50_000));
                        let y = (&x * 2.0).unwrap();
                        let expected = numbers(thread + round, 50_000);
                        let same = y.read_with(|seen: &[f32]| {
                            seen.iter().zip(&expected).all(|(y, x)| *y == 2.0 * x)
                        });
                        assert!(same.unwrap());
                        x.write(&expected[..]).unwrap();
                        assert!(x.to_vec::<f32>().unwrap() == expected);
                    }
                });
            }
        });
        assert_eq!(sim.complaints(), [""; 0]);
    }
}
