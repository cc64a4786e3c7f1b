//! Arrays on the host, the same tensors on the device, and views of both.

use half::{bf16, f16};
use lapidary::{DType, Element, Gpu, Options, Result, Tensor};

/// The devices for every check, with their names.
pub(crate) fn gpus() -> Vec<(&'static str, Gpu)> {
    let mut gpus = vec![(
        "adapter",
        Gpu::open(Options::from_env().unwrap()).expect("an adapter"),
    )];
    if !crate::devices::runs_on_all() {
        return gpus;
    }
    let (gpu, _) = Gpu::simulated(lapidary::sim::SimOptions::default()).expect("a simulation");
    gpus.push(("simulation", gpu));
    // Larger operands take several windows.
    let windows = crate::devices::adopt(64 << 10);
    // A device with few bindings, as DX12 with FXC, needs larger windows.
    gpus.push(match windows.caps().max_storage_bindings {
        ..16 => ("windows", crate::devices::adopt(256 << 10)),
        16.. => ("windows", windows),
    });
    gpus
}

/// The same devices, for a loop.
pub(crate) fn each() -> impl Iterator<Item = Gpu> {
    crate::devices::named(gpus())
}

/// An array on the host. Every element is an f64, which holds all our types.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

impl Array {
    pub(crate) fn new(shape: &[usize], value: impl FnMut(usize) -> f64) -> Array {
        let len = shape.iter().product();
        Array {
            shape: shape.to_vec(),
            values: (0..len).map(value).collect(),
        }
    }

    /// The values, rounded to the type.
    pub(crate) fn rounded(mut self, dtype: DType) -> Array {
        for value in &mut self.values {
            *value = match dtype {
                DType::F32 => f64::from(*value as f32),
                DType::F16 => f16::from_f32(*value as f32).to_f64(),
                DType::Bf16 => bf16::from_f32(*value as f32).to_f64(),
                DType::I8 => f64::from(*value as i8),
                DType::I32 => f64::from(*value as i32),
                DType::U32 => f64::from(*value as u32),
                DType::U8 => f64::from(*value as u8),
                _ => f64::from(u8::from(*value != 0.0)),
            };
        }
        self
    }

    /// Uploads the array, whose values the type must hold exactly.
    pub(crate) fn upload(&self, gpu: &Gpu, dtype: DType) -> Tensor {
        fn send<T: Element>(gpu: &Gpu, array: &Array, cast: impl Fn(f64) -> T) -> Tensor {
            let data: Vec<T> = array.values.iter().map(|&value| cast(value)).collect();
            gpu.tensor(&data, &array.shape).expect("an upload")
        }
        match dtype {
            DType::F32 => send(gpu, self, |v| v as f32),
            DType::F16 => send(gpu, self, |v| f16::from_f32(v as f32)),
            DType::Bf16 => send(gpu, self, |v| bf16::from_f32(v as f32)),
            DType::I8 => send(gpu, self, |v| v as i8),
            DType::I32 => send(gpu, self, |v| v as i32),
            DType::U32 => send(gpu, self, |v| v as u32),
            DType::U8 => send(gpu, self, |v| v as u8),
            _ => send(gpu, self, |v| v != 0.0),
        }
    }
}

/// Reads a tensor of any type.
pub(crate) fn download(tensor: &Tensor) -> Array {
    fn read<T: Element>(tensor: &Tensor, number: impl Fn(T) -> f64) -> Vec<f64> {
        tensor.to_vec().unwrap().into_iter().map(number).collect()
    }
    let values = match tensor.dtype() {
        DType::F32 => read(tensor, |v: f32| v.into()),
        DType::F16 => read(tensor, f16::to_f64),
        DType::Bf16 => read(tensor, bf16::to_f64),
        DType::I32 => read(tensor, |v: i32| v.into()),
        DType::U32 => read(tensor, |v: u32| v.into()),
        DType::U8 => read(tensor, |v: u8| v.into()),
        DType::I8 => read(tensor, |v: i8| v.into()),
        _ => read(tensor, |v: bool| f64::from(u8::from(v))),
    };
    Array {
        shape: tensor.shape().to_vec(),
        values,
    }
}

/// Views of a tensor, with names.
pub(crate) fn views(x: &Tensor) -> Vec<(&'static str, Tensor)> {
    let mut views = vec![("whole", x.clone())];
    let rank = x.rank();
    let Some(&last) = x.shape().last() else {
        return views;
    };
    if rank > 1 {
        views.push(("transposed", x.transpose(0, -1).unwrap()));
    }
    let axes: &[isize] = if rank > 1 { &[0, -1] } else { &[0] };
    views.push(("flipped", x.flip(axes).unwrap()));
    if last > 1 {
        views.push(("stepped", x.slice(-1, Some(1), None, 2).unwrap()));
        views.push(("shifted", x.slice(-1, Some(1), None, 1).unwrap()));
    }
    let wider = [&[2], x.shape()].concat();
    views.push(("broadcast", x.broadcast_to(&wider).unwrap()));
    views
}

/// A tensor of [`noise`].
pub(crate) fn made(gpu: &Gpu, shape: &[usize], dtype: DType) -> Tensor {
    let array = Array::new(shape, noise(dtype)).rounded(dtype);
    array.upload(gpu, dtype)
}

/// Are both equal within a relative (and around 0, absolute) error? NaN equals NaN.
#[track_caller]
pub(crate) fn assert_close(got: &Array, expected: &Array, tolerance: f64, what: &str) {
    assert_within(
        got,
        expected,
        |expected| tolerance * expected.abs().max(1.0),
        what,
    );
}

/// Are both equal within this error of each expected element? NaN equals NaN.
#[track_caller]
pub(crate) fn assert_within(got: &Array, expected: &Array, error: impl Fn(f64) -> f64, what: &str) {
    assert_eq!(got.shape, expected.shape, "{what}");
    for (at, (&got, &expected)) in got.values.iter().zip(&expected.values).enumerate() {
        let close = got == expected
            || got.is_nan() && expected.is_nan()
            || (got - expected).abs() <= error(expected);
        assert!(close, "{what}: element {at} is {got}, not {expected}");
    }
}

/// Compares two tensors. Integers have to be equal.
#[track_caller]
pub(crate) fn near(got: &Tensor, wanted: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(got.dtype(), wanted.dtype(), "{what}");
    let tolerance = if got.dtype().is_float() {
        tolerance
    } else {
        0.0
    };
    assert_close(&download(got), &download(wanted), tolerance, what);
}

/// Is a result the exact one, which f32 nearly holds, rounded once to its own type? The error is
/// half a unit in the last place, and that of f32.
#[track_caller]
pub(crate) fn is_rounded_once(got: &Tensor, exact: &Tensor, what: &str) {
    let bits = match got.dtype() {
        DType::F32 => 20.0,
        DType::F16 => 11.0,
        _ => 8.0,
    };
    let all = download(got).values.into_iter().zip(download(exact).values);
    for (at, (got, exact)) in all.enumerate() {
        let half = (exact.abs().log2().floor().max(-14.0) - bits).exp2();
        let fault = format!("{what}: element {at} is {got}, not {exact}");
        assert!((got - exact).abs() <= half + 4e-6, "{fault}");
    }
}

/// Compares results with those of the simulation, whose operands are whole tensors.
#[track_caller]
pub(crate) fn all_same<const N: usize>(
    what: &str,
    reference: &Gpu,
    operands: &[&Tensor],
    tolerance: f64,
    f: impl Fn(&[Tensor]) -> Result<[Tensor; N]>,
) {
    let near: Vec<Tensor> = operands.iter().map(|&one| one.clone()).collect();
    let far = near.iter().map(|one| one.to(reference));
    let far: Vec<Tensor> = far.collect::<Result<_>>().expect("room");
    let (got, wanted) = (f(&near).expect(what), f(&far).expect(what));
    for (at, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        self::near(got, wanted, tolerance, &format!("{what}, result {at}"));
    }
}

#[track_caller]
pub(crate) fn same(
    what: &str,
    reference: &Gpu,
    operands: &[&Tensor],
    tolerance: f64,
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    all_same(what, reference, operands, tolerance, |t| Ok([f(t)?]));
}

/// The error bound of a type's rounding.
pub(crate) fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 4e-6,
        DType::F16 => 2e-3,
        DType::Bf16 => 8e-3,
        _ => 0.0,
    }
}

/// The shapes to test for a type. Each needs a compilation. Types that are computed like another
/// type differ only in loads and stores, so a few shapes are enough.
pub(crate) fn shapes_for<'a>(dtype: DType, all: &'a [&'a [usize]]) -> &'a [&'a [usize]] {
    match dtype {
        DType::Bf16 | DType::I8 => &[&[7, 5, 3], &[4, 16], &[3, 3000]],
        _ => all,
    }
}

/// Reproducible numbers with repetitions, signed if the type is.
pub(crate) fn noise(dtype: DType) -> impl FnMut(usize) -> f64 {
    let mut rng = fastrand::Rng::with_seed(7);
    move |_| match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => f64::from(rng.i32(-64..64)) / 32.0,
        DType::I8 => f64::from(rng.i8(..)),
        DType::I32 => f64::from(rng.i32(-1000..1000)),
        DType::U32 => f64::from(rng.u32(0..1000)),
        DType::U8 => f64::from(rng.u8(..)),
        _ => f64::from(u8::from(rng.bool())),
    }
}

/// Every set of axes of a rank, in the forms of the API and of the model.
pub(crate) fn axis_sets(rank: usize) -> Vec<(Vec<isize>, Vec<usize>)> {
    (0..1_usize << rank)
        .map(|set| {
            let axes: Vec<usize> = (0..rank).filter(|axis| set >> axis & 1 == 1).collect();
            let given = axes
                .iter()
                .map(|&axis| axis as isize - if axis % 2 == 1 { rank as isize } else { 0 })
                .collect();
            (given, axes)
        })
        .collect()
}
