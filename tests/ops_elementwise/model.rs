//! Tools for comparisons: random elements, views to test, closeness.

use half::{bf16, f16};
use lapidary::{DType, Element, Gpu, Result, Tensor};

use crate::common::operands::numbers;

/// Special and extreme numbers.
pub(crate) const ODD_FLOATS: [f32; 26] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.75,
    -7.25,
    1e-3,
    -1e-6,
    100.0,
    -100.0,
    1e4,
    -1e4,
    65504.0,
    1e30,
    -1e30,
    f32::MAX,
    f32::MIN_POSITIVE,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    0.3333,
];

/// An element from a random word: mostly small numbers, so products do not overflow.
pub(crate) trait Sample: Element + PartialOrd {
    fn sample(random: &mut fastrand::Rng) -> Self;
}

macro_rules! sample {
    ($($type:ident: |$random:ident| $sample:expr;)*) => {$(
        impl Sample for $type {
            fn sample($random: &mut fastrand::Rng) -> $type {
                $sample
            }
        }
    )*};
}

sample! {
    f32: |random| match random.u32(0..8) {
        0 => ODD_FLOATS[random.usize(0..ODD_FLOATS.len())],
        _ => random.f32() * 8.0 - 4.0,
    };
    f16: |random| f16::from_f32(f32::sample(random));
    bf16: |random| bf16::from_f32(f32::sample(random));
    i32: |random| match random.u32(0..8) {
        0 => [i32::MIN, i32::MAX, -1, 0, 1][random.usize(0..5)],
        _ => random.i32(-40..40),
    };
    u32: |random| match random.u32(0..8) {
        0 => [u32::MAX, 0, 1, 1 << 31][random.usize(0..4)],
        _ => random.u32(0..40),
    };
    u8: |random| random.u8(..);
    i8: |random| random.i8(..);
    bool: |random| random.bool();
}

/// `len` random elements.
pub(crate) fn samples<T: Sample>(random: &mut fastrand::Rng, len: usize) -> Vec<T> {
    (0..len).map(|_| T::sample(random)).collect()
}

/// A row-major tensor of random elements.
pub(crate) fn tensor<T: Sample>(gpu: &Gpu, random: &mut fastrand::Rng, shape: &[usize]) -> Tensor {
    let data = samples::<T>(random, shape.iter().product());
    gpu.tensor(&data, shape).expect("the data fills the shape")
}

/// Views of every kind, with random elements.
pub(crate) fn views<T: Sample>(gpu: &Gpu, random: &mut fastrand::Rng) -> Result<Vec<Tensor>> {
    let mut new = |shape: &[usize]| tensor::<T>(gpu, random, shape);
    let shapes: [&[usize]; 10] = [
        &[0],
        &[],
        &[1],
        &[3],
        &[5],
        &[64],
        &[1000],
        &[2, 0, 3],
        &[2, 3, 4],
        &[7, 900],
    ];
    let mut views: Vec<Tensor> = shapes.into_iter().map(&mut new).collect();
    let (flat, plane, cube) = (new(&[100]), new(&[12, 8]), new(&[3, 4, 5]));
    for start in 1..5 {
        views.push(flat.narrow(0, start, 50 + start)?);
    }
    for axes in [[2, 0, 1], [1, 0, 2], [2, 1, 0], [0, 2, 1]] {
        views.push(cube.permute(&axes)?);
    }
    views.extend([
        flat.slice(0, None, None, 3)?,
        flat.flip(&[0])?,
        plane.t()?,
        plane.narrow(1, 4, 4)?,
        plane.narrow(1, 3, 5)?.t()?,
        plane.slice(0, None, None, -2)?,
        plane.flip(&[1])?,
        plane.select(1, 3)?,
        new(&[9, 7]).t()?,
        new(&[9, 8]).t()?,
        new(&[2, 8, 3, 4]).permute(&[0, 2, 3, 1])?,
        new(&[3, 1]).broadcast_to(&[2, 3, 4])?,
        new(&[4]).broadcast_to(&[6, 4])?,
        new(&[]).broadcast_to(&[9])?,
        new(&[2, 3, 2, 2, 2, 3, 2, 2]).permute(&[7, 6, 5, 4, 3, 2, 1, 0])?,
    ]);
    Ok(views)
}

/// A number rounded to a float type, and the relative error of a result that is rounded twice.
pub(crate) fn rounded(dtype: DType, exact: f64) -> (f32, f32) {
    match dtype {
        DType::F16 => (f16::from_f32(exact as f32).to_f32(), 1e-3),
        DType::Bf16 => (bf16::from_f32(exact as f32).to_f32(), 8e-3),
        _ => (exact as f32, 0.0),
    }
}

/// Floats of any width, as f32.
pub(crate) fn floats(tensor: &Tensor) -> Result<Vec<f32>> {
    Ok(numbers(tensor)?.into_iter().map(|x| x as f32).collect())
}

/// Are both the same number, within a relative or an absolute error? NaN equals NaN. Subnormal
/// numbers may be 0, because adapters may flush them.
pub(crate) fn close(got: f32, wanted: f32, relative: f32, absolute: f32) -> bool {
    got == wanted
        || got.is_nan() && wanted.is_nan()
        || (got - wanted).abs() <= absolute + relative * wanted.abs()
        || got == 0.0 && wanted.abs() < 2.0 * f32::MIN_POSITIVE
}

/// Fails with the first element that differs.
#[track_caller]
pub(crate) fn assert_close(what: &str, got: &[f32], wanted: &[f32], relative: f32, absolute: f32) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (index, (&g, &w)) in got.iter().zip(wanted).enumerate() {
        assert!(
            close(g, w, relative, absolute),
            "{what}: element {index} is {g:?}, not {w:?}"
        );
    }
}

/// Compares the elements of two tensors. f16 and bf16 may be rounded twice. `error` gives the
/// relative and absolute error of an element, or nothing if it is not defined; `say` says what the
/// element is.
#[track_caller]
pub(crate) fn check_all(
    what: &str,
    got: &Tensor,
    wanted: &Tensor,
    error: impl Fn(usize) -> Option<[f32; 2]>,
    say: impl Fn(usize) -> String,
) -> Result<()> {
    let kind = (wanted.dtype(), wanted.shape());
    assert_eq!((got.dtype(), got.shape()), kind, "{what}");
    let (is_float, more) = (got.dtype().is_float(), rounded(got.dtype(), 0.0).1);
    for (at, (got, wanted)) in numbers(got)?.into_iter().zip(numbers(wanted)?).enumerate() {
        let is_near = match error(at) {
            Some(_) if !is_float => got == wanted,
            Some([relative, absolute]) => {
                let least = if more > 0.0 { 1e-7 } else { 0.0 };
                close(got as f32, wanted as f32, relative + more, absolute + least)
            }
            None => true,
        };
        assert!(is_near, "{what}: {} is {got:?}, not {wanted:?}", say(at));
    }
    Ok(())
}

/// Are the elements equal, in order? NaN equals NaN, because an adapter may give another NaN.
pub(crate) fn alike<T: PartialEq>(got: &[T], wanted: &[T]) -> bool {
    let is_nan = |x: &T| x.ne(x);
    let is_alike = |(a, b): (&T, &T)| a == b || is_nan(a) && is_nan(b);
    got.len() == wanted.len() && got.iter().zip(wanted).all(is_alike)
}
