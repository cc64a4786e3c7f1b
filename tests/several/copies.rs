//! Copies between devices.

use lapidary::devices::{gather, split, split_sizes};
use lapidary::{DType, Error, Gpu, Options, Result};

use super::groups;
use crate::ramp;

/// Sizes around a piece of 4 MiB, and small ones.
const LENS: [usize; 6] = [0, 1, 1000, (1 << 20) - 1, 1 << 20, (5 << 20) + 3];

#[test]
fn a_copy_has_the_bytes_whatever_its_size_type_and_place() -> Result<()> {
    for (name, gpus) in groups(2) {
        for len in LENS {
            let data: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let there = gpus[0].tensor(&data, &[len])?.to(&gpus[1])?;
            assert!(there.to_vec::<u8>()? == data, "{name}, {len} bytes");
        }
        // A view that is not contiguous, and one that starts inside a word.
        let halves: Vec<half::f16> = (0..4000).map(|at| half::f16::from_f32(at as f32)).collect();
        let tensor = gpus[0].tensor(&halves, &[40, 100])?;
        let back = tensor.t()?.to(&gpus[1])?.to(&gpus[0])?;
        assert_eq!(back.t()?.to_vec::<half::f16>()?, halves, "{name}");
        let odd = tensor.reshape(&[4000])?.narrow(0, 1001, 2001)?;
        let odd = odd.to(&gpus[1])?.to_vec::<half::f16>()?;
        assert_eq!(odd, halves[1001..3002], "{name}");
    }
    Ok(())
}

#[test]
fn a_copy_comes_after_what_computes_it_and_can_be_computed_with() -> Result<()> {
    for (name, gpus) in groups(2) {
        let x = gpus[0].tensor(&ramp(0, 1 << 20), &[1 << 20])?;
        let doubled = (&x + &x)?;
        let there = doubled.to(&gpus[1])?;
        doubled.fill_(0.0)?;
        let sum = (there + 1.0)?.to_vec::<f32>()?;
        let right = sum
            .iter()
            .zip(0..)
            .all(|(got, at)| *got == (2 * at + 1) as f32);
        assert!(right, "{name}");
        // Evicted bytes come from the host.
        x.evict()?;
        let there = x.to(&gpus[1])?.to_vec::<f32>()?;
        assert!(there == ramp(0, 1 << 20), "{name}");
        assert!(x.to(&gpus[0])?.shares_storage_with(&x), "{name}");
    }
    Ok(())
}

#[test]
fn copies_in_both_directions_at_once_do_not_wait_for_each_other() -> Result<()> {
    for (name, gpus) in groups(2) {
        let tensors: Vec<_> = (0..2)
            .map(|at| gpus[at].tensor(&ramp(at as i32, 3 << 20), &[3 << 20]))
            .collect::<Result<_>>()?;
        std::thread::scope(|scope| {
            for (from, to) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
                let (tensors, gpus) = (&tensors, &gpus);
                scope.spawn(move || {
                    for _ in 0..3 {
                        let there = tensors[from].to(&gpus[to]).expect("no device is lost");
                        let there = there.to_vec::<f32>().expect("it has a value");
                        assert!(there == ramp(from as i32, 3 << 20), "{name}");
                    }
                });
            }
        });
    }
    Ok(())
}

#[test]
fn a_split_tensor_is_gathered_as_it_was() -> Result<()> {
    for (name, gpus) in groups(3) {
        let x = gpus[1].tensor(&ramp(0, 7 * 10), &[7, 10])?;
        for axis in [0, 1, -1] {
            let parts = split(&x, axis, &gpus)?;
            let at = axis.rem_euclid(2) as usize;
            let sizes: Vec<usize> = parts.iter().map(|part| part.shape()[at]).collect();
            assert_eq!(sizes, [[3, 2, 2], [4, 3, 3]][at], "{name}");
            assert!(parts[1].shares_storage_with(&x), "{name}");
            let whole = gather(&parts, axis, &gpus[2])?;
            assert_eq!(whole.to_vec::<f32>()?, ramp(0, 70), "{name}, axis {axis}");
        }
        let parts = split_sizes(&x, 0, &gpus, &[0, 6, 1])?;
        assert_eq!(parts[0].shape(), [0, 10]);
        assert_eq!(gather(&parts, 0, &gpus[0])?.to_vec::<f32>()?, ramp(0, 70));
        assert!(matches!(split(&x, 2, &gpus), Err(Error::Axis { .. })));
        assert!(matches!(split(&x, 0, &[]), Err(Error::Option { .. })));
        let sizes = split_sizes(&x, 0, &gpus, &[3, 3, 3]);
        assert!(matches!(sizes, Err(Error::Shape { .. })));
        let sizes = split_sizes(&x, 0, &gpus, &[7]);
        assert!(matches!(sizes, Err(Error::Shape { .. })));
        let tracked = x.copy()?.requires_grad()?;
        match split(&tracked, 0, &gpus) {
            Err(Error::Device {
                index: 0, cause, ..
            }) => {
                assert!(matches!(*cause, Error::Gradient { .. }), "{cause}");
            }
            other => panic!("{other:?}"),
        }
        assert!(gather(&[], 0, &gpus[0]).is_err());
    }
    Ok(())
}

#[test]
fn all_adapters_are_opened_and_compute() -> Result<()> {
    let gpus = Gpu::open_all(Options::from_env()?)?;
    for gpu in &gpus {
        assert_eq!(gpu.ones(&[4], DType::F32)?.sum_all()?.item::<f32>()?, 4.0);
    }
    let nobody = Options {
        adapter: Some("nobody's card".into()),
        ..Options::from_env().unwrap()
    };
    assert!(matches!(
        Gpu::open_all(nobody),
        Err(Error::NoAdapter { .. })
    ));
    Ok(())
}
