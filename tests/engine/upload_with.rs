//! Uploads written by a function of the app. Some are larger than the budgets of the tight runs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lapidary::sim::SimOptions;
use lapidary::{Budget, Element, Error, Gpu, Upload};

use crate::engine::{numbers, open, open_alone, options};

fn devices() -> Vec<SimOptions> {
    let kinds = [(false, 0), (false, u32::MAX), (true, 4)];
    let kinds = kinds.map(|(maps_slabs, lag_submissions)| SimOptions {
        maps_slabs,
        lag_submissions,
        ..options()
    });
    kinds.into()
}

/// Writes elements alternately one by one and as slices of all lengths.
fn write_mixed<T: Element>(out: &mut Upload<'_, T>, elements: &[T], random: &mut fastrand::Rng) {
    let mut rest = elements;
    while !rest.is_empty() {
        assert_eq!(out.remaining(), rest.len());
        let most = [1, 3, 1000, 70_000, 3 << 20][random.usize(..5)];
        let (now, later) = rest.split_at(random.usize(1..=most).min(rest.len()));
        match random.u8(..3) {
            0 => out.extend_from_slice(now),
            1 => out.extend(now.iter().copied()),
            _ => now.iter().for_each(|&element| out.push(element)),
        }
        rest = later;
    }
    assert_eq!(out.remaining(), 0);
}

fn check<T: Element>(gpu: &Gpu, elements: &[T], random: &mut fastrand::Rng) {
    let shape = [elements.len()];
    let whole = gpu.upload_with(&shape, |out| out.extend_from_slice(elements));
    let mixed = gpu.upload_with(&shape, |out| write_mixed(out, elements, random));
    for tensor in [whole, mixed] {
        let tensor = tensor.unwrap();
        assert_eq!(tensor.dtype(), T::DTYPE);
        assert!(tensor.to_vec::<T>().unwrap() == elements);
    }
}

#[test]
fn what_is_written_in_whatever_portions_is_what_the_tensor_holds() {
    let seed = std::env::var("LAPIDARY_SEED").ok();
    let seed = seed.map_or(7, |seed| seed.parse().unwrap());
    println!("LAPIDARY_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for options in devices() {
        let (gpu, _sim) = open_alone(options);
        for len in [0, 1, 3, 17, 65_537, 300_001] {
            check(&gpu, &numbers(0, len), &mut random);
            let bytes: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
            check(&gpu, &bytes, &mut random);
            let truths: Vec<bool> = bytes.iter().map(|byte| byte % 3 == 0).collect();
            check(&gpu, &truths, &mut random);
        }
        let halves: Vec<half::f16> = (0..5 << 20)
            .map(|index| half::f16::from_f32((index % 2000) as f32))
            .collect();
        check(&gpu, &halves[3..], &mut random);
    }
}

#[test]
fn too_few_and_too_many_elements_are_said_and_change_nothing() {
    for options in devices() {
        let (gpu, _sim) = open_alone(options);
        let few = gpu.upload_with(&[3, 4], |out| out.extend([1.0_f32; 11]));
        let many = gpu.upload_with(&[3, 4], |out| out.extend_from_slice(&[1.0_f32; 13]));
        let endless = gpu.upload_with(&[3, 4], |out| out.extend(std::iter::repeat(1_u8)));
        let large = gpu.upload_with(&[1 << 20], |out| {
            out.extend_from_slice(&[0.0_f32; 100_000]);
            out.push(1.0);
        });
        for (refused, wanted, came) in [
            (few, 12, 11),
            (many, 12, 13),
            (endless, 12, 13),
            (large, 1 << 20, 100_001),
        ] {
            let Err(Error::Length { expected, got, .. }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!((expected, got), (wanted, came));
        }
        check(&gpu, &numbers(0, 10), &mut fastrand::Rng::new());
    }
}

#[test]
fn the_function_may_use_the_gpu_and_its_budget_may_be_small() {
    for options in devices() {
        let (gpu, _sim) = open(options);
        gpu.memory().set_budget(Budget::device(4 << 20)).unwrap();
        let inner = numbers(5, 200_000);
        let outer = gpu.upload_with(&[200_000], |out| {
            for part in inner.chunks(50_000) {
                out.extend_from_slice(part);
                let other = gpu.tensor(&inner, &[200_000]).unwrap();
                let doubled = other.add(&other).unwrap();
                assert_eq!(doubled.to_vec::<f32>().unwrap()[7], 2.0 * inner[7]);
                let nested = gpu.upload_with(&[2], |out| out.extend([1_u32, 2])).unwrap();
                assert_eq!(nested.to_vec::<u32>().unwrap(), [1, 2]);
            }
        });
        assert_eq!(outer.unwrap().to_vec::<f32>().unwrap(), inner);
    }
}

#[test]
fn a_panic_in_the_function_goes_on_and_leaves_everything_working() {
    for options in devices() {
        let (gpu, _sim) = open_alone(options);
        let kept = gpu.tensor(&numbers(3, 100), &[100]).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            gpu.upload_with(&[1 << 20], |out| {
                out.extend_from_slice(&[1.0_f32; 90_000]);
                panic!("the app's own");
            })
        }));
        assert!(panicked.is_err());
        check(&gpu, &numbers(0, 1 << 20), &mut fastrand::Rng::new());
        assert_eq!(kept.to_vec::<f32>().unwrap(), numbers(3, 100));
        drop(kept);
        gpu.finish().unwrap();
        assert_eq!(gpu.memory().stats().live_bytes.now, 0);
    }
}
