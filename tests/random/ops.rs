//! The calls of a program, one line each, with helpers that make the calls and compute the expected
//! results.

use std::rc::Rc;

use lapidary::{DType, Error, Result, Tensor};

use super::calls::*;
use super::indexed::*;
use super::mistakes::mistake;
use super::model::{Model, common, rounded};
use super::more::*;
use super::moved::*;
use super::nn;
use super::orders;
use super::whole::*;
use super::world::{Outcome, World};

/// The name of an operation, and what makes it.
pub(crate) type Op = (&'static str, fn(&mut World) -> Outcome);

/// Calls about tensors and memory, each with its weights in programs about values, memory and
/// stores.
pub(crate) const CALLS: &[(Op, [u32; 3])] = &[
    (("tensor", create), [2, 12, 20]),
    (("zeros", zeros), [1, 1, 1]),
    (("full", full), [1, 5, 2]),
    (("clone", clone), [1, 2, 1]),
    (("view", view), [2, 4, 4]),
    (("broadcast_to", broadcast), [1, 0, 0]),
    (("drop", forget), [2, 10, 15]),
    (("write", write), [1, 8, 5]),
    (
        ("add", |w| binary(w, |x, y| x.add(y), NUMBERS, ADD)),
        [1, 14, 20],
    ),
    (("add_", |w| in_place(w, |x, y| x.add_(y), ADD)), [1, 8, 4]),
    (("fill_", fill), [1, 4, 2]),
    (("copy", |w| same(w, Tensor::copy)), [1, 3, 2]),
    (("concat", concat), [1, 3, 2]),
    (("read", start_read), [2, 6, 2]),
    (("await", await_read), [2, 5, 2]),
    (("drop a read", drop_read), [1, 1, 1]),
    (("to_vec", look), [3, 8, 18]),
    (("flush", |w| control(w, |gpu| gpu.flush())), [1, 3, 5]),
    (("finish", |w| control(w, |gpu| gpu.finish())), [1, 2, 1]),
    (("poll", |w| control(w, |gpu| gpu.poll())), [1, 2, 1]),
    (("memory", orders::memory), [1, 1, 0]),
    (("mistake", mistake), [1, 0, 0]),
    (("trim", orders::trim), [1, 1, 1]),
    (("evict", orders::evict), [0, 6, 15]),
    (("prefetch", orders::prefetch), [0, 3, 5]),
    (("advise", orders::advise), [0, 3, 1]),
    (("pin", orders::pin), [0, 2, 0]),
    (("unpin", orders::unpin), [0, 3, 0]),
    (("compact", orders::compact), [0, 2, 1]),
    (("reserve", orders::reserve), [0, 1, 1]),
    (("set_budget", orders::set_budget), [0, 2, 0]),
    (("backed", orders::backed), [0, 3, 1]),
    (("backed_by", orders::backed_by), [0, 3, 1]),
    (("recompute_with", orders::recompute_with), [0, 3, 2]),
    (("cache", orders::cache), [0, 3, 0]),
    (("listen", orders::listen), [0, 1, 0]),
    (("state", orders::state), [0, 1, 1]),
];

/// Operations that compute.
pub(crate) const VALUES: &[Op] = &[
    ("neg", |w| {
        unary(w, Tensor::neg, NUMBERS, |d, x| {
            int_or(d, x, i64::wrapping_neg, |x| -x)
        })
    }),
    ("square", |w| {
        unary(w, Tensor::square, NUMBERS, |d, x| {
            arithmetic(d, x, x, i64::wrapping_mul, |a, b| a * b)
        })
    }),
    ("sub", |w| binary(w, |x, y| x.sub(y), NUMBERS, SUB)),
    ("mul", |w| binary(w, |x, y| x.mul(y), NUMBERS, MUL)),
    ("mul_", |w| in_place(w, |x, y| x.mul_(y), MUL)),
    ("copy_", |w| in_place(w, Tensor::copy_, |_, _, b| b)),
    ("maximum", |w| {
        binary(w, |x, y| x.maximum(y), WHOLE, |_, a, b| a.max(b))
    }),
    ("lt", |w| compare(w, |x, y| x.lt(y), |a, b| a < b)),
    ("eq", |w| compare(w, |x, y| x.eq(y), |a, b| a == b)),
    ("where_", select),
    ("cast", cast),
    ("contiguous", contiguous),
    ("reshape", reshape),
    ("sum", sum),
    ("matmul", matmul),
    ("index_select", index_select),
    ("exact, of one", exact),
    ("inexact, of one", inexact),
    ("inexact, of two", inexact_pair),
    ("whole numbers divided", whole_division),
    ("folded", fold),
    ("normalized", normalize),
    ("attention", nn::attention),
    ("a convolution", nn::convolution),
    ("pooled", nn::pooling),
    ("einsum", nn::einsum),
    ("made of nothing", made_of_nothing),
    ("bit by bit", bits),
    ("masked_fill", masked_fill),
    ("taken apart and put together", rearranged),
    ("truths and counts", truths),
    ("running totals", running),
    ("sorted", sorted),
    ("gathered", gathered),
    ("scattered", scattered),
    ("indexed by several", indexed),
    ("folded by indices", scatter_reduced),
    ("running extremes", running_extremes),
    ("batch_norm", batch_norm),
    ("a kernel of one's own", custom),
];

const NUMBERS: fn(DType) -> bool = |dtype| dtype != DType::Bool;
const WHOLE: fn(DType) -> bool = |dtype| NUMBERS(dtype) && !dtype.is_float();

pub(crate) type Two = fn(DType, f64, f64) -> f64;
pub(crate) const ADD: Two = |d, a, b| arithmetic(d, a, b, i64::wrapping_add, |a, b| a + b);
const SUB: Two = |d, a, b| arithmetic(d, a, b, i64::wrapping_sub, |a, b| a - b);
const MUL: Two = |d, a, b| arithmetic(d, a, b, i64::wrapping_mul, |a, b| a * b);

fn int_or(dtype: DType, x: f64, int: fn(i64) -> i64, float: fn(f64) -> f64) -> f64 {
    match dtype.is_float() {
        true => rounded(dtype, float(x)),
        false => rounded_int(dtype, int(x as i64)),
    }
}

fn arithmetic(
    dtype: DType,
    a: f64,
    b: f64,
    int: fn(i64, i64) -> i64,
    float: fn(f64, f64) -> f64,
) -> f64 {
    match dtype {
        // Computed in f32, and rounded once more.
        DType::F16 | DType::Bf16 => rounded(dtype, rounded(DType::F32, float(a, b))),
        DType::F32 => rounded(dtype, float(a, b)),
        _ => rounded_int(dtype, int(a as i64, b as i64)),
    }
}

/// Wraps before the conversion to f64, which would round.
pub(crate) fn rounded_int(dtype: DType, value: i64) -> f64 {
    match dtype {
        DType::I32 => f64::from(value as i32),
        DType::U32 => f64::from(value as u32),
        DType::I8 => f64::from(value as i8),
        _ => f64::from(value as u8),
    }
}

fn unary(
    w: &mut World,
    call: fn(&Tensor) -> Result<Tensor>,
    takes: fn(DType) -> bool,
    one: fn(DType, f64) -> f64,
) -> Outcome {
    let (x, model) = w.pick_where(|m| takes(m.dtype))?;
    let values = model
        .values()
        .iter()
        .map(|&v| one(model.dtype, v))
        .collect();
    w.made(call(&x), Model::new(model.dtype, &model.shape, values))
}

/// A tensor that broadcasts with the model, from the program or new. Sometimes it is the beginning
/// of a longer row.
pub(crate) fn partner(w: &mut World, model: &Model, dtype: DType) -> Outcome<(Tensor, Model)> {
    let most = 2 * w.rules.elements;
    let goes_with = |m: &Model| {
        let shape = common(&m.shape, &model.shape);
        shape.is_some_and(|shape| shape.len() <= 8 && shape.iter().product::<usize>() <= most)
    };
    let is_longer = |m: &Model| match (&m.shape[..], &model.shape[..]) {
        ([longer], [len]) => longer > len,
        _ => false,
    };
    if w.rng.u32(..4) > 0 {
        let fits = |m: &Model| m.dtype == dtype && (goes_with(m) || is_longer(m));
        if let Ok((tensor, other)) = w.pick_where(fits) {
            if goes_with(&other) {
                return Ok((tensor, other));
            }
            let row = tensor.narrow(0, 0, model.at.len())?;
            let (at, shape) = (other.at[..model.at.len()].to_vec(), model.shape.clone());
            return Ok((row, Model { at, shape, ..other }));
        }
    }
    Ok(w.fresh(dtype, &model.shape)?)
}

pub(crate) fn zipped(
    a: &Model,
    b: &Model,
    shape: &[usize],
    two: impl Fn(f64, f64) -> f64,
) -> Vec<f64> {
    let (a, b) = (a.broadcast(shape).values(), b.broadcast(shape).values());
    a.iter().zip(b).map(|(&a, b)| two(a, b)).collect()
}

fn binary(
    w: &mut World,
    call: fn(&Tensor, &Tensor) -> Result<Tensor>,
    takes: fn(DType) -> bool,
    two: Two,
) -> Outcome {
    let (a, model) = w.pick_where(|m| takes(m.dtype))?;
    let dtype = model.dtype;
    let (b, other) = partner(w, &model, dtype)?;
    let shape = common(&model.shape, &other.shape).expect("a partner broadcasts");
    let values = zipped(&model, &other, &shape, |a, b| two(dtype, a, b));
    let made = call(&a, &b);
    // Sometimes the operands are dropped at once, so the result can take over their memory.
    if w.rng.u32(..3) == 0 {
        w.held
            .retain(|held| !Rc::ptr_eq(&held.model.data, &model.data));
    }
    drop((a, b));
    w.made(made, Model::new(dtype, &shape, values))
}

fn in_place(w: &mut World, call: fn(&Tensor, &Tensor) -> Result<()>, two: Two) -> Outcome {
    let (a, model) = w.target(|m| NUMBERS(m.dtype))?;
    let dtype = model.dtype;
    let (b, other) = partner(w, &model, dtype)?;
    let shape = common(&model.shape, &other.shape).expect("a partner broadcasts");
    let before = a.version();
    match call(&a, &b) {
        Ok(()) => {
            assert_eq!(shape, model.shape, "in place, the shape stays");
            assert!(!model.repeats(), "{a:?} names an element twice");
            let values = zipped(&model, &other, &shape, |a, b| two(dtype, a, b));
            w.wrote(&model, &values, false);
            Ok(())
        }
        Err(Error::Shape { .. }) if shape != model.shape || a.strides().contains(&0) => {
            assert_eq!(a.version(), before);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn fill(w: &mut World) -> Outcome {
    let (x, model) = w.target(|m| NUMBERS(m.dtype))?;
    match x.fill_(3) {
        Ok(()) => w.wrote(&model, &vec![3.0; model.at.len()], false),
        Err(Error::Shape { .. }) if x.strides().contains(&0) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn compare(
    w: &mut World,
    call: fn(&Tensor, &Tensor) -> Result<Tensor>,
    is: fn(f64, f64) -> bool,
) -> Outcome {
    let (a, model) = w.pick()?;
    let (b, other) = partner(w, &model, model.dtype)?;
    let shape = common(&model.shape, &other.shape).expect("a partner broadcasts");
    let values = zipped(&model, &other, &shape, |a, b| f64::from(u8::from(is(a, b))));
    w.made(call(&a, &b), Model::new(DType::Bool, &shape, values))
}
