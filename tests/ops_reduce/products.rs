//! Products whose factors are no zeros: each part of a long row shows in its result.

use lapidary::{DType, Result};

use super::model::*;

/// Powers of two of both signs, or odd integers: all products are exact, and none is 0. Few factors
/// are not ±1, at random places, so the products of any of them lie within the type.
fn factors(shape: &[usize], dtype: DType) -> Array {
    let mut random = fastrand::Rng::with_seed(11);
    let seldom = if dtype == DType::F16 { 3000 } else { 40 };
    Array::new(shape, |_| match dtype.is_float() {
        true => {
            let power = if random.u32(0..seldom) == 0 { 2.0 } else { 1.0 };
            let size = if random.bool() { power } else { 1.0 / power };
            if random.bool() { size } else { -size }
        }
        false => f64::from(random.i32(-500..500) * 2 + 1),
    })
}

/// The running products along an axis, as the type has them.
fn running(x: &Array, axis: usize, dtype: DType) -> Array {
    let step: usize = x.shape[axis + 1..].iter().product();
    let mut made = x.clone();
    for at in 0..made.values.len() {
        if !(at / step).is_multiple_of(x.shape[axis]) {
            let (before, factor) = (made.values[at - step], made.values[at]);
            made.values[at] = match dtype.is_float() {
                true => before * factor,
                false => f64::from((before as i32).wrapping_mul(factor as i32)),
            };
        }
    }
    made
}

#[test]
fn every_factor_of_a_long_row_counts() -> Result<()> {
    const SHAPES: &[&[usize]] = &[&[40_000], &[3, 9001], &[5001, 2], &[2, 700, 3], &[65, 64]];
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32] {
            for &shape in SHAPES {
                let host = factors(shape, dtype);
                let x = host.upload(&gpu, dtype);
                for axis in 0..shape.len() {
                    let what = format!("{dtype} {shape:?} along {axis}");
                    let expected = running(&host, axis, dtype);
                    let bound = if dtype == DType::F16 {
                        2.0_f64.powi(15)
                    } else {
                        f64::MAX
                    };
                    let largest = expected
                        .values
                        .iter()
                        .fold(0.0, |most: f64, x| most.max(x.abs()));
                    let least = expected
                        .values
                        .iter()
                        .fold(f64::MAX, |least, x| least.min(x.abs()));
                    assert!(
                        least > 0.0 && largest <= bound,
                        "{what}: {least} to {largest}"
                    );
                    let got = x.cumprod(axis as isize)?;
                    assert_close(
                        &download(&got),
                        &expected,
                        0.0,
                        &format!("cumprod of {what}"),
                    );
                    let last = shape[axis] - 1;
                    let step: usize = shape[axis + 1..].iter().product();
                    let ends = |at: &usize| at / step % shape[axis] == last;
                    let ends = (0..expected.values.len()).filter(ends);
                    let mut kept = shape.to_vec();
                    kept.remove(axis);
                    let mut ends = ends.map(|at| expected.values[at]);
                    let product = Array::new(&kept, |_| ends.next().unwrap());
                    let got = x.prod(&[axis as isize])?;
                    assert_close(&download(&got), &product, 0.0, &format!("prod of {what}"));
                }
            }
        }
    }
    Ok(())
}
