//! Calls with exact results have an oracle. Other results are checked for shape and type.

use lapidary::{DType, Error, Kernel, Result, Tensor};

use super::model::{self, Model, flat, indices, rounded};
use super::ops::partner;
use super::world::{Outcome, World};

fn is_float(model: &Model) -> bool {
    model.dtype.is_float()
}

fn is_whole(model: &Model) -> bool {
    !model.dtype.is_float() && model.dtype != DType::Bool
}

/// A result of which only the shape and the type are known.
pub(crate) fn shaped(
    w: &mut World,
    made: Result<Tensor>,
    dtype: DType,
    shape: &[usize],
) -> Outcome {
    let made = made?;
    assert_eq!((made.dtype(), made.shape()), (dtype, shape), "{made}");
    if w.rng.bool() {
        let read = pollster::block_on(model::read(&made));
        let len = read.map(|values| values.len());
        assert_eq!(w.had(len)?, made.len());
    }
    Ok(())
}

/// Operations on floats that are accurate to some digits only.
pub(crate) fn inexact(w: &mut World) -> Outcome {
    type Call = fn(&Tensor) -> Result<Tensor>;
    const CALLS: &[Call] = &[
        Tensor::exp,
        Tensor::log,
        Tensor::sqrt,
        Tensor::rsqrt,
        Tensor::recip,
        Tensor::sin,
        Tensor::cos,
        Tensor::tanh,
        Tensor::erf,
        Tensor::erfc,
        Tensor::erfinv,
        Tensor::sinc,
        Tensor::logit,
        Tensor::tanhshrink,
        |x| x.celu(0.5),
        |x| x.softshrink(0.5),
        |x| x.nan_to_num(0.0, None, None),
        Tensor::sigmoid,
        Tensor::silu,
        Tensor::gelu,
        Tensor::gelu_tanh,
        |x| x.pow(1.5),
        |x| x.pow(-0.5),
        |x| x.div(3.0),
        |x| x.rem(2.5),
        |x| 2.0 / x,
    ];
    let (x, model) = w.pick()?;
    let call = CALLS[w.rng.usize(..CALLS.len())];
    if !is_float(&model) {
        let made = call(&x);
        if matches!(made, Err(Error::DType { .. })) {
            return Ok(());
        }
        // Functions of real numbers give f32; others keep the type of the numbers.
        let dtype = made.as_ref().map_or(model.dtype, Tensor::dtype);
        let is_kept = dtype == model.dtype && dtype != DType::Bool;
        assert!(made.is_err() || dtype == DType::F32 || is_kept, "{dtype}");
        return shaped(w, made, dtype, &model.shape);
    }
    shaped(w, call(&x), model.dtype, &model.shape)
}

/// Such operations on two tensors.
pub(crate) fn inexact_pair(w: &mut World) -> Outcome {
    let (a, model) = w.pick_where(is_float)?;
    let (b, other) = partner(w, &model, model.dtype)?;
    let shape = model::common(&model.shape, &other.shape).expect("a partner broadcasts");
    let made = match w.rng.u32(..8) {
        0 => a.div(&b),
        1 => a.rem(&b),
        2 => a.logaddexp(&b),
        3 => a.xlogy(&b),
        4 => a.heaviside(&b),
        5 => a.lerp(&b, &b),
        6 => a.addcmul(&b, &b, 0.5),
        _ => a.pow(&b),
    };
    shaped(w, made, model.dtype, &shape)
}

/// Integer division. WGSL defines every case.
pub(crate) fn whole_division(w: &mut World) -> Outcome {
    let (a, model) = w.pick_where(is_whole)?;
    let dtype = model.dtype;
    let (b, other) = partner(w, &model, dtype)?;
    let shape = model::common(&model.shape, &other.shape).expect("a partner broadcasts");
    let is_division = w.rng.bool();
    let one = |a: f64, b: f64| match (is_division, b == 0.0) {
        (true, true) => a,
        (false, true) => 0.0,
        // The least i32 divided by -1 wraps to itself.
        (true, false) => rounded(dtype, (a as i64 / b as i64) as f64),
        (false, false) => (a as i64 % b as i64) as f64,
    };
    let (x, y) = (
        model.broadcast(&shape).values(),
        other.broadcast(&shape).values(),
    );
    let values = x.iter().zip(&y).map(|(&a, &b)| one(a, b)).collect();
    let made = if is_division { a.div(&b) } else { a.rem(&b) };
    w.made(made, Model::new(dtype, &shape, values))
}

/// Exact operations on one tensor.
pub(crate) fn exact(w: &mut World) -> Outcome {
    let (x, model) = w.pick()?;
    let dtype = model.dtype;
    let truth = |is: bool| f64::from(u8::from(is));
    type One = Box<dyn Fn(f64) -> f64>;
    let (made, gives, one): (Result<Tensor>, DType, One) = match w.rng.u32(..12) {
        0 => (
            x.logical_not(),
            DType::Bool,
            Box::new(move |v| truth(v == 0.0)),
        ),
        _ if dtype == DType::Bool => return Ok(()),
        1 => (
            x.abs(),
            dtype,
            // The absolute value of the least integer wraps to itself.
            Box::new(move |v| rounded(dtype, v.abs())),
        ),
        2 => (
            x.clamp(2, 5),
            dtype,
            Box::new(|v| if v.is_nan() { v } else { v.clamp(2.0, 5.0) }),
        ),
        3 => (x.eq(3), DType::Bool, Box::new(move |v| truth(v == 3.0))),
        4 => (x.gt(3), DType::Bool, Box::new(move |v| truth(v > 3.0))),
        5 if !dtype.is_float() => (x.maximum(3), dtype, Box::new(|v| v.max(3.0))),
        6 if !dtype.is_float() => (x.add(3), dtype, Box::new(move |v| rounded(dtype, v + 3.0))),
        7 if !dtype.is_float() => (x.rem(3), dtype, Box::new(|v| (v as i64 % 3) as f64)),
        _ if !dtype.is_float() => return Ok(()),
        5 => (x.floor(), dtype, Box::new(f64::floor)),
        6 => (x.ceil(), dtype, Box::new(f64::ceil)),
        7 => (x.round(), dtype, Box::new(f64::round_ties_even)),
        8 => (x.trunc(), dtype, Box::new(f64::trunc)),
        9 => (
            x.is_nan(),
            DType::Bool,
            Box::new(move |v| truth(v.is_nan())),
        ),
        10 => (
            x.is_finite(),
            DType::Bool,
            Box::new(move |v| truth(v.is_finite())),
        ),
        _ => (
            x.add(0.5),
            dtype,
            Box::new(move |v| rounded(dtype, v + 0.5)),
        ),
    };
    let values = model.values().into_iter().map(one).collect();
    w.made(made, Model::new(gives, &model.shape, values))
}

/// Reductions of an axis, exact or nearly so.
pub(crate) fn fold(w: &mut World) -> Outcome {
    let fits = |m: &Model| !m.shape.is_empty() && !m.shape.contains(&0);
    let (x, model) = w.pick_where(fits)?;
    let axis = w.rng.usize(..model.shape.len());
    let along = axis as isize;
    let mut shape = model.shape.clone();
    shape.remove(axis);
    let which = w.rng.u32(..6);
    if which < 2 && is_whole(&model) {
        // The maximum and the minimum.
        let pick = if which == 0 { f64::max } else { f64::min };
        let mut values = vec![f64::NAN; shape.iter().product()];
        for (mut index, value) in indices(&model.shape).zip(model.values()) {
            index.remove(axis);
            let at = flat(&shape, &index);
            values[at] = pick(values[at], value);
        }
        let made = if which == 0 {
            x.max(&[along])
        } else {
            x.min(&[along])
        };
        return w.made(made, Model::new(model.dtype, &shape, values));
    }
    let mut kept = model.shape.clone();
    kept[axis] = 1;
    match which {
        0 => shaped(w, x.max_keepdim(&[along]), model.dtype, &kept),
        1 => shaped(w, x.min_all(), model.dtype, &[]),
        2 => shaped(w, x.argmax(along), DType::U32, &shape),
        3 => shaped(w, x.argmin(along), DType::U32, &shape),
        _ if !is_float(&model) => {
            assert!(matches!(x.mean(&[along]), Err(Error::DType { .. })));
            Ok(())
        }
        4 => shaped(w, x.mean(&[along]), model.dtype, &shape),
        _ => shaped(
            w,
            x.mean_keepdim(&[along - model.shape.len() as isize]),
            model.dtype,
            &kept,
        ),
    }
}

/// Normalizations along rows.
pub(crate) fn normalize(w: &mut World) -> Outcome {
    let (x, model) = w.pick_where(|m| !m.shape.is_empty())?;
    let (dtype, shape) = (model.dtype, model.shape.clone());
    let axis = w.rng.usize(..shape.len());
    if !is_float(&model) {
        assert!(matches!(x.softmax(axis as isize), Err(Error::DType { .. })));
        return Ok(());
    }
    let inner = &shape[axis..];
    let made = match w.rng.u32(..4) {
        0 => x.softmax(axis as isize),
        1 => x.log_softmax(axis as isize),
        2 => x.layer_norm(inner, None, None, 1e-5),
        _ => {
            let (weight, _) = w.fresh(dtype, inner)?;
            x.layer_norm(inner, Some(&weight), Some(&weight), 1e-5)
        }
    };
    shaped(w, made, dtype, &shape)
}

/// Newly created tensors.
pub(crate) fn made_of_nothing(w: &mut World) -> Outcome {
    let len = w.rng.usize(..300);
    match w.rng.u32(..4) {
        0 => {
            let (start, step) = (
                w.rng.i32(-50..50),
                *w.rng.choice(&[-3, -1, 1, 7]).expect("some"),
            );
            let values = (0..len as i32)
                .map(|i| f64::from(start + i * step))
                .collect();
            let end = start + len as i32 * step;
            let made = w.gpu.arange(start, end, step, DType::I32);
            w.made(made, Model::new(DType::I32, &[len], values))
        }
        1 => {
            let n = len % 40;
            let values = (0..n * n).map(|at| f64::from(u8::from(at / n == at % n)));
            let dtype = w.dtype();
            let made = w.gpu.eye(n, dtype);
            w.made(made, Model::new(dtype, &[n, n], values.collect()))
        }
        which => {
            let shape = w.shape();
            let floats = [DType::F32, DType::F16, DType::Bf16];
            let dtype = *w.rng.choice(&floats).expect("some");
            let seed = w.rng.u64(..);
            let made = match which {
                2 => w.gpu.rand_uniform(&shape, -1.0, 1.0, seed, dtype),
                _ => w.gpu.rand_normal(&shape, 0.5, 0.0, seed, dtype),
            };
            shaped(w, made, dtype, &shape)
        }
    }
}

/// A kernel of the program, with its reference kernel.
pub(crate) fn custom(w: &mut World) -> Outcome {
    let fits = |m: &Model| m.dtype == DType::I32 && !m.at.is_empty() && m.at.len() <= 16_000;
    let (x, model) = w.pick_where(fits)?;
    const TEXT: &str = "
        @group(0) @binding(0) var<storage, read> x: array<i32>;
        @group(0) @binding(1) var<storage, read_write> y: array<i32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&y) { y[id.x] = 5 - x[id.x]; }
        }";
    let kernel = Kernel::new(&w.gpu, TEXT)?;
    let kernel = kernel.with_reference(|call| {
        let y: Vec<i32> = call
            .read::<i32>("x")
            .iter()
            .map(|x| 5_i32.wrapping_sub(*x))
            .collect();
        call.write("y", &y);
    });
    let groups = [model.at.len().div_ceil(64) as u32, 1, 1];
    let call = kernel
        .call()
        .bind("x", &x)
        .out("y", &model.shape, DType::I32);
    let made = call.groups(groups).run_one();
    let values = model
        .values()
        .into_iter()
        .map(|v| rounded(DType::I32, 5.0 - v));
    w.made(made, Model::new(DType::I32, &model.shape, values.collect()))
}
