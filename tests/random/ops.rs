//! The calls of a program, one line each, with helpers that make the calls and compute the expected
//! results.

use lapidary::{DType, Error, Tensor};

use super::calls::*;
use super::indexed::*;
use super::mistakes::mistake;
use super::model::{Model, common, rounded};
use super::more::*;
use super::moved::*;
use super::nn;
use super::whole::*;
use super::world::{Outcome, World};

type Op = (&'static str, fn(&mut World) -> Outcome);

pub(crate) const ALL: &[Op] = &[
    ("tensor", create),
    ("tensor", create),
    ("zeros", zeros),
    ("full", full),
    ("clone", clone),
    ("drop", forget),
    ("drop", forget),
    ("view", view),
    ("view", view),
    ("broadcast_to", broadcast),
    ("write", write),
    ("read", start_read),
    ("read", start_read),
    ("await", await_read),
    ("await", await_read),
    ("drop a read", drop_read),
    ("to_vec", look),
    ("to_vec", look),
    ("to_vec", look),
    ("flush", |w| control(w, |gpu| gpu.flush())),
    ("finish", |w| control(w, |gpu| gpu.finish())),
    ("trim", |w| control(w, |gpu| gpu.memory().trim(0).map(drop))),
    ("poll", |w| control(w, |gpu| gpu.poll())),
    ("memory", memory),
    ("mistake", mistake),
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
    ("add", |w| binary(w, Tensor::add, NUMBERS, ADD)),
    ("sub", |w| binary(w, Tensor::sub, NUMBERS, SUB)),
    ("mul", |w| binary(w, Tensor::mul, NUMBERS, MUL)),
    ("add_", |w| in_place(w, Tensor::add_, ADD)),
    ("mul_", |w| in_place(w, Tensor::mul_, MUL)),
    ("copy_", |w| in_place(w, Tensor::copy_, |_, _, b| b)),
    ("fill_", fill),
    ("maximum", |w| {
        binary(w, Tensor::maximum, WHOLE, |_, a, b| a.max(b))
    }),
    ("lt", |w| compare(w, Tensor::lt, |a, b| a < b)),
    ("eq", |w| compare(w, Tensor::eq, |a, b| a == b)),
    ("where_", select),
    ("cast", cast),
    ("contiguous", contiguous),
    ("copy", |w| same(w, Tensor::copy)),
    ("reshape", reshape),
    ("sum", sum),
    ("matmul", matmul),
    ("concat", concat),
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
    ("read and waited for", blocking_read),
    ("a kernel of one's own", custom),
];

const NUMBERS: fn(DType) -> bool = |dtype| dtype != DType::Bool;
const WHOLE: fn(DType) -> bool = |dtype| NUMBERS(dtype) && !dtype.is_float();

type Two = fn(DType, f64, f64) -> f64;
const ADD: Two = |d, a, b| arithmetic(d, a, b, i64::wrapping_add, |a, b| a + b);
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
fn rounded_int(dtype: DType, value: i64) -> f64 {
    match dtype {
        DType::I32 => f64::from(value as i32),
        DType::U32 => f64::from(value as u32),
        DType::I8 => f64::from(value as i8),
        _ => f64::from(value as u8),
    }
}

fn unary(
    w: &mut World,
    call: fn(&Tensor) -> lapidary::Result<Tensor>,
    takes: fn(DType) -> bool,
    one: fn(DType, f64) -> f64,
) -> Outcome {
    let Some((x, model)) = w.pick_where(|m| takes(m.dtype)) else {
        return Outcome::Skipped;
    };
    let values = model
        .values()
        .iter()
        .map(|&v| one(model.dtype, v))
        .collect();
    w.made(call(&x), Model::new(model.dtype, &model.shape, values))
}

/// A tensor that broadcasts with the model, from the program or new.
pub(crate) fn partner(w: &mut World, model: &Model, dtype: DType) -> Option<(Tensor, Model)> {
    let fits = |m: &Model| {
        m.dtype == dtype
            && common(&m.shape, &model.shape)
                .is_some_and(|shape| shape.len() <= 8 && shape.iter().product::<usize>() <= 80_000)
    };
    let held = (w.rng.u32(..4) > 0).then(|| w.pick_where(fits)).flatten();
    held.or_else(|| w.fresh(dtype, &model.shape.clone()).ok())
}

fn zipped(a: &Model, b: &Model, shape: &[usize], two: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let (a, b) = (a.broadcast(shape).values(), b.broadcast(shape).values());
    a.iter().zip(b).map(|(&a, b)| two(a, b)).collect()
}

fn binary(
    w: &mut World,
    call: fn(&Tensor, &Tensor) -> lapidary::Result<Tensor>,
    takes: fn(DType) -> bool,
    two: Two,
) -> Outcome {
    let Some((a, model)) = w.pick_where(|m| takes(m.dtype)) else {
        return Outcome::Skipped;
    };
    let dtype = model.dtype;
    let Some((b, other)) = partner(w, &model, dtype) else {
        return Outcome::Skipped;
    };
    let shape = common(&model.shape, &other.shape).expect("a partner broadcasts");
    let values = zipped(&model, &other, &shape, |a, b| two(dtype, a, b));
    let made = call(&a, &b);
    // Sometimes the operands are dropped at once, so the result can take over their memory.
    if w.rng.bool() {
        w.held
            .retain(|(_, held)| !std::rc::Rc::ptr_eq(&held.data, &model.data));
    }
    drop((a, b));
    w.made(made, Model::new(dtype, &shape, values))
}

fn in_place(
    w: &mut World,
    call: fn(&Tensor, &Tensor) -> lapidary::Result<()>,
    two: Two,
) -> Outcome {
    let Some((a, model)) = w.pick_where(|m| NUMBERS(m.dtype)) else {
        return Outcome::Skipped;
    };
    let dtype = model.dtype;
    let Some((b, other)) = partner(w, &model, dtype) else {
        return Outcome::Skipped;
    };
    let shape = common(&model.shape, &other.shape).expect("a partner broadcasts");
    let before = a.version();
    match call(&a, &b) {
        Ok(()) => {
            assert_eq!(shape, model.shape, "in place, the shape stays");
            assert!(!model.repeats(), "{a:?} names an element twice");
            let values = zipped(&model, &other, &shape, |a, b| two(dtype, a, b));
            model.set(&values);
            Outcome::Done
        }
        Err(Error::Shape { .. }) if shape != model.shape || a.strides().contains(&0) => {
            assert_eq!(a.version(), before);
            Outcome::Done
        }
        Err(error) => Outcome::Refused(error),
    }
}

fn fill(w: &mut World) -> Outcome {
    let Some((x, model)) = w.pick_where(|m| NUMBERS(m.dtype)) else {
        return Outcome::Skipped;
    };
    match x.fill_(3) {
        Ok(()) => {
            model.set(&vec![3.0; model.at.len()]);
            Outcome::Done
        }
        Err(Error::Shape { .. }) if x.strides().contains(&0) => Outcome::Done,
        Err(error) => Outcome::Refused(error),
    }
}

fn compare(
    w: &mut World,
    call: fn(&Tensor, &Tensor) -> lapidary::Result<Tensor>,
    is: fn(f64, f64) -> bool,
) -> Outcome {
    let Some((a, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let Some((b, other)) = partner(w, &model, model.dtype) else {
        return Outcome::Skipped;
    };
    let shape = common(&model.shape, &other.shape).expect("a partner broadcasts");
    let values = zipped(&model, &other, &shape, |a, b| f64::from(u8::from(is(a, b))));
    w.made(call(&a, &b), Model::new(DType::Bool, &shape, values))
}
