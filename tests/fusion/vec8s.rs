//! Kernels that read and write two vec4s at a time, and similar ones that cannot, give the same
//! results alone, fused, and on the host.

use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu, Result, Tensor};

use crate::fusion::{options, simulated};

/// Lengths of whole vec8s and others, with one or several vec8s for each invocation.
const LENGTHS: [usize; 8] = [1016, 1020, 1024, 2047, 2048, 2052, 4104, 10_000];

fn inputs(gpu: &Gpu, len: usize) -> Result<[Tensor; 4]> {
    let odd = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-30,
        3e38,
    ];
    let of = |seed: usize| {
        let value = |i: usize| match (i * 31 + seed) % 97 {
            place if place < odd.len() => odd[place],
            _ => ((i * 13 + seed * 7) % 101) as f32 / 8.0 - 6.0,
        };
        let values: Vec<f32> = (0..len).map(value).collect();
        gpu.tensor(&values, &[len])
    };
    Ok([of(1)?, of(2)?, of(3)?, of(4)?])
}

fn results(gpu: &Gpu, len: usize) -> Result<Vec<Vec<f32>>> {
    let [a, b, c, d] = &inputs(gpu, len)?;
    let part = |x: &Tensor, start| x.narrow(0, start, len - 8);
    let one = b.narrow(0, 5, 1)?;
    let sum = (a + b)?;
    let product = (&sum * c)?;
    let mut made = vec![
        a.relu()?,
        (a + b)?,
        (a * a)?,
        (a * 3.0)?,
        (a - &one)?,
        // One operand is a single element of the storage of the other.
        (b - &one)?,
        (((a * b)? + c)?.relu()? * d)?,
        // Views that begin at a vec8, in the middle of one, and inside a vec4.
        (part(a, 8)? + part(b, 0)?)?,
        (part(a, 4)? + part(b, 8)?)?,
        (part(a, 4)?.relu()? * part(b, 3)?)?,
        // Several results, and one of another width.
        sum,
        product,
        a.gt(b)?.cast(DType::F32)?,
        (a.cast(DType::F16)?.cast(DType::F32)? + b)?,
    ];
    // With a tensor that is computed from numbers only.
    let count = gpu.arange(0.0, len as f32, 1.0, DType::F32)?;
    made.push((a + &count)?.relu()?);
    drop(count);
    // Into an existing tensor, and into a part of it.
    let held = d.copy()?;
    part(&held, 8)?.copy_(&part(a, 0)?)?;
    held.add_(c)?;
    made.push(held);
    made.iter().map(Tensor::to_vec).collect()
}

#[test]
fn pairs_of_vec4s_and_what_is_nearly_so_are_the_same_to_the_bit() {
    let open = |fuse| Gpu::open(options(fuse)).expect("an adapter");
    let gpus = [
        simulated(false, SimOptions::default()).0,
        open(false),
        open(true),
    ];
    for len in LENGTHS {
        let [host, apart, fused] = gpus
            .each_ref()
            .map(|gpu| results(gpu, len).expect("shapes that fit"));
        for (number, expected) in host.iter().enumerate() {
            for (how, got) in [("apart", &apart[number]), ("fused", &fused[number])] {
                let differs = |(x, y): (&f32, &f32)| {
                    x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan())
                };
                let at = expected.iter().zip(got).position(differs);
                let values = at.map(|at| (at, expected[at], got[at]));
                assert_eq!(values, None, "result {number} of {len}, {how}");
            }
        }
    }
    let [_, _, fused] = &gpus;
    let kernels = fused.fused_kernels();
    let are_pairs = kernels.iter().any(|kernel| kernel.wgsl.contains("_put8("));
    assert_eq!(are_pairs, fused.caps().wide_words);
}
