//! What a program may call: one line each, with the helper that makes such a call and says what
//! should come of it.

use half::f16;
use lapidary::{DType, Error, Gpu, Tensor};

use super::model::{self, Model, common, flat, indices, rounded};
use super::world::{Outcome, World, calm, is_shortage};

type Op = (&'static str, fn(&mut World) -> Outcome);

pub const ALL: &[Op] = &[
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
    ("flush", |w| control(w, |gpu| gpu.flush())),
    ("finish", |w| control(w, |gpu| gpu.finish())),
    ("trim", |w| control(w, |gpu| gpu.trim().map(drop))),
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
];

const NUMBERS: fn(DType) -> bool = |dtype| dtype != DType::Bool;
const WHOLE: fn(DType) -> bool = |dtype| matches!(dtype, DType::I32 | DType::U32 | DType::U8);

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
        // f16 is computed in f32 and rounded once more.
        DType::F16 => rounded(dtype, rounded(DType::F32, float(a, b))),
        DType::F32 => rounded(dtype, float(a, b)),
        _ => rounded_int(dtype, int(a as i64, b as i64)),
    }
}

/// Wraps before it is an f64, which would round it.
fn rounded_int(dtype: DType, value: i64) -> f64 {
    match dtype {
        DType::I32 => f64::from(value as i32),
        DType::U32 => f64::from(value as u32),
        _ => f64::from(value as u8),
    }
}

fn create(w: &mut World) -> Outcome {
    let (dtype, shape) = (w.dtype(), w.shape());
    match w.fresh(dtype, &shape) {
        Ok(_) => Outcome::Done,
        Err(error) => Outcome::Refused(error),
    }
}

fn zeros(w: &mut World) -> Outcome {
    let (dtype, shape) = (w.dtype(), w.shape());
    let model = Model::new(dtype, &shape, vec![0.0; shape.iter().product()]);
    let made = w.gpu.zeros(&shape, dtype);
    w.made(made, model)
}

fn full(w: &mut World) -> Outcome {
    let (dtype, shape) = (DType::I32, w.shape());
    let model = Model::new(dtype, &shape, vec![-7.0; shape.iter().product()]);
    let made = w.gpu.full(&shape, -7, dtype);
    w.made(made, model)
}

fn clone(w: &mut World) -> Outcome {
    let Some((tensor, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    w.hold(tensor, model);
    Outcome::Done
}

fn forget(w: &mut World) -> Outcome {
    if w.held.is_empty() {
        return Outcome::Skipped;
    }
    let index = w.rng.usize(..w.held.len());
    w.held.swap_remove(index);
    Outcome::Done
}

fn view(w: &mut World) -> Outcome {
    let Some((tensor, model)) = w.pick_where(|m| !m.shape.is_empty()) else {
        return Outcome::Skipped;
    };
    let (shape, axis) = (model.shape.clone(), w.rng.usize(..model.shape.len()));
    let (dim, along) = (shape[axis], axis as isize);
    let (made, expected) = match w.rng.u32(..7) {
        0 => {
            let mut axes: Vec<usize> = (0..shape.len()).collect();
            w.rng.shuffle(&mut axes);
            let named: Vec<isize> = axes.iter().map(|&axis| axis as isize).collect();
            let turned: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
            let expected = model.view(&turned, |index| {
                let mut old = vec![0; index.len()];
                axes.iter().zip(index).for_each(|(&axis, &i)| old[axis] = i);
                old
            });
            (tensor.permute(&named), expected)
        }
        1 => {
            let expected = model.view(&shape, |index| {
                let mut old = index.to_vec();
                old[axis] = dim - 1 - old[axis];
                old
            });
            (tensor.flip(&[along]), expected)
        }
        2 => {
            let start = w.rng.usize(0..=dim);
            let len = w.rng.usize(0..=dim - start);
            let mut cut = shape.clone();
            cut[axis] = len;
            let expected = model.view(&cut, |index| shifted(index, axis, |i| start + i));
            (tensor.narrow(along, start, len), expected)
        }
        3 if dim > 0 => {
            let (start, step) = (w.rng.usize(..dim), w.rng.usize(1..4));
            let mut cut = shape.clone();
            cut[axis] = (dim - start).div_ceil(step);
            let expected = model.view(&cut, |index| shifted(index, axis, |i| start + i * step));
            let made = tensor.slice(along, start as isize, None, step as isize);
            (made, expected)
        }
        4 if dim > 0 => {
            let (start, step) = (w.rng.usize(..dim), w.rng.usize(1..4));
            let mut cut = shape.clone();
            cut[axis] = start / step + 1;
            let expected = model.view(&cut, |index| shifted(index, axis, |i| start - i * step));
            let made = tensor.slice(along, start as isize, None, -(step as isize));
            (made, expected)
        }
        5 if dim > 0 => {
            let at = w.rng.usize(..dim);
            let mut cut = shape.clone();
            cut.remove(axis);
            let expected = model.view(&cut, |index| {
                let mut old = index.to_vec();
                old.insert(axis, at);
                old
            });
            (tensor.select(along, at as isize - dim as isize), expected)
        }
        _ if shape.len() < 8 => {
            let mut more = shape.clone();
            more.insert(axis, 1);
            let expected = model.view(&more, |index| {
                let mut old = index.to_vec();
                old.remove(axis);
                old
            });
            (tensor.unsqueeze(along), expected)
        }
        _ => return Outcome::Skipped,
    };
    w.made(made, expected)
}

fn shifted(index: &[usize], axis: usize, to: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut old = index.to_vec();
    old[axis] = to(old[axis]);
    old
}

fn broadcast(w: &mut World) -> Outcome {
    let fits = |m: &Model| m.at.len() < 2000 && m.shape.len() < 7;
    let Some((tensor, model)) = w.pick_where(fits) else {
        return Outcome::Skipped;
    };
    let mut shape = model.shape.clone();
    for dim in shape.iter_mut().filter(|dim| **dim == 1) {
        *dim = w.rng.usize(1..4);
    }
    shape.insert(0, w.rng.usize(1..4));
    w.made(tensor.broadcast_to(&shape), model.broadcast(&shape))
}

fn write(w: &mut World) -> Outcome {
    let Some((tensor, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let values = w.values(model.dtype, model.at.len());
    match model::write(&tensor, &values) {
        Ok(()) => {
            model.set(&values);
            Outcome::Done
        }
        // A view with gaps, or which shares a word with its neighbours.
        Err(Error::Shape { .. }) => Outcome::Done,
        Err(error) => Outcome::Refused(error),
    }
}

fn start_read(w: &mut World) -> Outcome {
    let Some((tensor, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let expected = model.values();
    w.reads.push((model::read(&tensor), model, expected));
    Outcome::Done
}

fn await_read(w: &mut World) -> Outcome {
    match w.await_one() {
        true => Outcome::Done,
        false => Outcome::Skipped,
    }
}

fn drop_read(w: &mut World) -> Outcome {
    if w.reads.is_empty() {
        return Outcome::Skipped;
    }
    let index = w.rng.usize(..w.reads.len());
    drop(w.reads.swap_remove(index));
    Outcome::Done
}

fn control(w: &mut World, call: fn(&Gpu) -> lapidary::Result<()>) -> Outcome {
    match call(&w.gpu) {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Refused(error),
    }
}

fn memory(w: &mut World) -> Outcome {
    let memory = w.gpu.memory();
    assert!(memory.live_bytes <= memory.reserved_bytes, "{memory}");
    assert_eq!(
        memory.live_bytes + memory.cached_bytes,
        memory.reserved_bytes,
        "{memory}"
    );
    let device = w.sim.counters();
    let staging_bytes = memory.upload_bytes + memory.readback_bytes;
    assert!(
        memory.reserved_bytes + staging_bytes <= device.reserved_bytes,
        "{memory}"
    );
    Outcome::Done
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

fn same(w: &mut World, call: fn(&Tensor) -> lapidary::Result<Tensor>) -> Outcome {
    let Some((x, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let expected = Model::new(model.dtype, &model.shape, model.values());
    w.made(call(&x), expected)
}

fn contiguous(w: &mut World) -> Outcome {
    let Some((x, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let expected = match x.is_contiguous() {
        true => model,
        false => Model::new(model.dtype, &model.shape, model.values()),
    };
    w.made(x.contiguous(), expected)
}

/// A partner that a tensor broadcasts with: one that is held, or a new one.
fn partner(w: &mut World, model: &Model, dtype: DType) -> Option<(Tensor, Model)> {
    let fits = |m: &Model| {
        m.dtype == dtype
            && common(&m.shape, &model.shape)
                .is_some_and(|shape| shape.len() <= 8 && shape.iter().product::<usize>() <= 80_000)
    };
    if w.rng.u32(..4) > 0
        && let Some(held) = w.pick_where(fits)
    {
        return Some(held);
    }
    w.fresh(dtype, &model.shape.clone()).ok()
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
    // Now and then the operands die at once, so that their memory is the result's.
    if w.rng.bool() {
        w.held
            .retain(|(held, _)| held.tag().site() != a.tag().site());
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

fn select(w: &mut World) -> Outcome {
    let Some((a, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let Some((b, other)) = partner(w, &model, model.dtype) else {
        return Outcome::Skipped;
    };
    let shape = common(&model.shape, &other.shape).expect("a partner broadcasts");
    let Ok((mask, masks)) = w.fresh(DType::Bool, &shape) else {
        return Outcome::Skipped;
    };
    let mask_values = masks.values();
    let (x, y) = (
        model.broadcast(&shape).values(),
        other.broadcast(&shape).values(),
    );
    let chosen = (0..x.len()).map(|i| if mask_values[i] != 0.0 { x[i] } else { y[i] });
    let expected = Model::new(model.dtype, &shape, chosen.collect());
    w.made(mask.where_(&a, &b), expected)
}

fn cast(w: &mut World) -> Outcome {
    let to = w.dtype();
    let Some((x, model)) = w.pick_where(|m| m.dtype != to) else {
        return Outcome::Skipped;
    };
    let values = model.values().into_iter();
    let values = values.map(|v| model::cast(model.dtype, to, v)).collect();
    w.made(x.cast(to), Model::new(to, &model.shape, values))
}

fn reshape(w: &mut World) -> Outcome {
    let Some((x, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let len = model.at.len();
    let shape = match (2..9).find(|by| len > 0 && len % by == 0) {
        Some(by) => vec![len / by, by],
        None => vec![len],
    };
    let made = x.reshape(&shape);
    let expected = match x.view_as(&shape).is_ok() {
        true => Model { shape, ..model },
        false => Model::new(model.dtype, &shape, model.values()),
    };
    w.made(made, expected)
}

/// Sums of whole numbers that every order of adding gives alike.
fn is_exact(model: &Model) -> bool {
    model.at.len() <= 4096
        && model
            .values()
            .iter()
            .all(|v| v.abs() <= 1024.0 && v.fract() == 0.0)
}

fn sum(w: &mut World) -> Outcome {
    let fits = |m: &Model| {
        matches!(m.dtype, DType::F32 | DType::I32) && !m.shape.is_empty() && is_exact(m)
    };
    let Some((x, model)) = w.pick_where(fits) else {
        return Outcome::Skipped;
    };
    let axis = w.rng.usize(..model.shape.len());
    let mut shape = model.shape.clone();
    shape.remove(axis);
    let mut sums = vec![0.0; shape.iter().product()];
    for (index, value) in indices(&model.shape).zip(model.values()) {
        let mut left = index.clone();
        left.remove(axis);
        sums[flat(&shape, &left)] += value;
    }
    let made = x.sum(&[axis as isize]);
    w.made(made, Model::new(model.dtype, &shape, sums))
}

fn matmul(w: &mut World) -> Outcome {
    let fits =
        |m: &Model| matches!(m.dtype, DType::F32 | DType::I32) && m.shape.len() == 2 && is_exact(m);
    let Some((a, model)) = w.pick_where(fits) else {
        return Outcome::Skipped;
    };
    let (m, k, n) = (model.shape[0], model.shape[1], w.rng.usize(1..20));
    let Ok((b, other)) = w.fresh(model.dtype, &[k, n]) else {
        return Outcome::Skipped;
    };
    let (x, y) = (model.values(), other.values());
    let dot = |i: usize, j: usize| (0..k).map(|l| x[i * k + l] * y[l * n + j]).sum::<f64>();
    // A sum of no products is 0, and not the -0 that Rust's empty sum is.
    let products = (0..m * n).map(|at| 0.0 + dot(at / n, at % n)).collect();
    w.made(a.matmul(&b), Model::new(model.dtype, &[m, n], products))
}

fn concat(w: &mut World) -> Outcome {
    let Some((a, model)) = w.pick_where(|m| !m.shape.is_empty() && m.at.len() < 9000) else {
        return Outcome::Skipped;
    };
    let axis = w.rng.usize(..model.shape.len());
    let mut more = model.shape.clone();
    more[axis] = w.rng.usize(1..4);
    let Ok((b, other)) = w.fresh(model.dtype, &more) else {
        return Outcome::Skipped;
    };
    let mut shape = model.shape.clone();
    shape[axis] += more[axis];
    let (x, y, cut) = (model.values(), other.values(), model.shape[axis]);
    let joined = indices(&shape).map(|index| match index[axis] < cut {
        true => x[flat(&model.shape, &index)],
        false => y[flat(&more, &shifted(&index, axis, |i| i - cut))],
    });
    let expected = Model::new(model.dtype, &shape, joined.collect());
    w.made(Tensor::concat(&[&a, &b], axis as isize), expected)
}

fn index_select(w: &mut World) -> Outcome {
    let fits = |m: &Model| !m.shape.is_empty() && !m.shape.contains(&0) && m.at.len() < 9000;
    let Some((x, model)) = w.pick_where(fits) else {
        return Outcome::Skipped;
    };
    let axis = w.rng.usize(..model.shape.len());
    let count = w.rng.usize(1..5);
    let picks: Vec<u32> = (0..count)
        .map(|_| w.rng.u32(..model.shape[axis] as u32))
        .collect();
    let named = match w.gpu.tensor(&picks, &[count]) {
        Ok(named) => named,
        Err(error) => return Outcome::Refused(error),
    };
    let mut shape = model.shape.clone();
    shape[axis] = count;
    let expected = model.view(&shape, |index| shifted(index, axis, |i| picks[i] as usize));
    let expected = Model::new(model.dtype, &shape, expected.values());
    w.made(x.index_select(axis as isize, &named), expected)
}

/// Calls that make no sense, each of which must be an error and change nothing.
fn mistake(w: &mut World) -> Outcome {
    let Some((x, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let (gpu, rank) = (w.gpu.clone(), model.shape.len());
    let foreign = w.other.zeros(&[1], model.dtype).expect("there is room");
    let wrong = if model.dtype == DType::U8 {
        DType::I32
    } else {
        DType::U8
    };
    let other = gpu.zeros(&model.shape, wrong);
    let before = x.version();
    type Call<'a> = Box<dyn Fn() -> bool + 'a>;
    let huge = usize::MAX;
    let beyond = rank as isize;
    let calls: Vec<(&str, Call<'_>)> = vec![
        (
            "too few elements",
            Box::new(|| gpu.tensor(&[1.0_f32], &[2]).is_err()),
        ),
        (
            "more than can be addressed",
            Box::new(|| gpu.zeros(&[huge, huge], DType::F32).is_err()),
        ),
        (
            "an empty shape of huge dimensions",
            Box::new(|| {
                huge_and_empty(&gpu);
                true
            }),
        ),
        (
            "more than a buffer",
            Box::new(|| {
                matches!(
                    gpu.zeros(&[1 << 30], DType::F32),
                    Err(Error::NeverFits { .. })
                )
            }),
        ),
        (
            "nine dimensions",
            Box::new(|| gpu.zeros(&[1; 9], DType::F32).is_err()),
        ),
        (
            "another type",
            Box::new(|| model::typed!(wrong, T, _to => x.to_vec::<T>().is_err())),
        ),
        (
            "another type, written",
            Box::new(|| model::typed!(wrong, T, _to => x.write(&[T::default()]).is_err())),
        ),
        (
            "too many elements, written",
            Box::new(|| model::write(&x, &vec![0.0; model.at.len() + 1]).is_err()),
        ),
        (
            "an axis too far",
            Box::new(|| x.select(beyond, 0).is_err() && x.narrow(beyond, 0, 0).is_err()),
        ),
        (
            "the last axis but all",
            Box::new(|| x.flip(&[-beyond - 1]).is_err() && x.flip(&[isize::MIN]).is_err()),
        ),
        (
            "an axis twice",
            Box::new(|| x.flip(&[0, 0]).is_err() && x.permute(&[0, 0]).is_err()),
        ),
        (
            "too many to take",
            Box::new(|| rank == 0 || x.narrow(0, 1, huge).is_err()),
        ),
        (
            "an index too far",
            Box::new(|| {
                rank == 0 || x.select(0, isize::MAX).is_err() && x.select(0, isize::MIN).is_err()
            }),
        ),
        (
            "no step",
            Box::new(|| rank == 0 || x.slice(0, None, None, 0).is_err()),
        ),
        (
            "a shape of other length",
            Box::new(|| x.reshape(&[model.at.len() + 1]).is_err()),
        ),
        (
            "a shape that overflows",
            Box::new(|| x.reshape(&[huge, 2]).is_err()),
        ),
        (
            "no broadcast",
            Box::new(|| x.broadcast_to(&[]).is_err() || rank == 0),
        ),
        (
            "a broadcast beyond all",
            Box::new(|| x.broadcast_to(&[huge; 8]).is_err() || model.at.is_empty()),
        ),
        (
            "a tensor of another device",
            Box::new(|| matches!(x.eq(&foreign), Err(Error::Foreign { .. }))),
        ),
        (
            "a tensor of another device, joined",
            Box::new(|| Tensor::concat(&[&x, &foreign], 0).is_err()),
        ),
        (
            "nothing joined",
            Box::new(|| Tensor::concat(&[], 0).is_err()),
        ),
        (
            "two types",
            Box::new(|| other.as_ref().is_ok_and(|other| x.eq(other).is_err())),
        ),
        (
            "no bools",
            Box::new(|| model.dtype == DType::Bool || x.where_(&x, &x).is_err()),
        ),
        (
            "an axis twice, summed",
            Box::new(|| x.sum(&[0, 0]).is_err()),
        ),
        (
            "one of many",
            Box::new(|| {
                model.at.len() == 1 || model::typed!(model.dtype, T, _to => x.item::<T>().is_err())
            }),
        ),
        (
            "matrices that do not match",
            Box::new(|| {
                let a = gpu.zeros(&[2, 3], DType::F32);
                a.is_ok_and(|a| a.matmul(&a).is_err())
            }),
        ),
        (
            "a step of 0",
            Box::new(|| gpu.arange(0, 9, 0, DType::I32).is_err()),
        ),
        (
            "no number",
            Box::new(|| gpu.arange(0.0, f64::NAN, 1.0, DType::F32).is_err()),
        ),
        (
            "too large for its type",
            Box::new(|| gpu.full(&[1], 300, DType::U8).is_err()),
        ),
        (
            "a matrix beyond all",
            Box::new(|| gpu.eye(huge, DType::F32).is_err() && gpu.eye(1 << 33, DType::U8).is_err()),
        ),
        (
            "f16 beyond f16",
            Box::new(|| gpu.full(&[1], f16::INFINITY, DType::I32).is_err()),
        ),
    ];
    for (name, call) in &calls {
        assert!(calm(name, call), "{name} is no error for {x:?}");
    }
    assert_eq!(x.version(), before, "a mistake wrote to {x:?}");
    drop(calls);
    let read = pollster::block_on(model::read(&x));
    match read {
        Err(error) => assert!(is_shortage(&error), "{error}"),
        read => drop(w.check(read, &model, &model.values())),
    }
    Outcome::Done
}

/// Whatever these calls give, they give it without a panic.
fn huge_and_empty(gpu: &Gpu) {
    for shape in [
        [usize::MAX, usize::MAX, 0],
        [0, usize::MAX, usize::MAX],
        [1 << 40, 0, 1 << 40],
    ] {
        let Ok(x) = gpu.zeros(&shape, DType::F32) else {
            continue;
        };
        for axis in 0..3 {
            let _ = (
                x.sum(&[axis]),
                x.max(&[axis]),
                x.softmax(axis),
                x.argmax(axis),
            );
            let _ = (
                x.flip(&[axis]),
                x.select(axis, 0),
                x.narrow(axis, 0, 1),
                x.unsqueeze(axis),
            );
            let _ = (
                Tensor::concat(&[&x, &x], axis),
                x.slice(axis, None, None, -1),
            );
            let indices = gpu.tensor(&[0_u32, 0], &[2]);
            let _ = indices.and_then(|indices| x.index_select(axis, &indices));
            let _ = x.transpose(axis, 0).and_then(|x| x.copy());
        }
        let _ = (
            x.sum(&[0, 1]),
            x.sum_all(),
            x.mean_all(),
            x.copy(),
            x.cast(DType::U8),
            x.add(&x),
        );
        let _ = (
            x.matmul(&x),
            x.reshape(&[0]),
            x.reshape(&[usize::MAX, 0]),
            x.to_vec::<f32>(),
        );
        let _ = (
            x.fill_(1.0),
            x.add_(&x),
            x.write::<f32>(&[]),
            x.item::<f32>(),
        );
        let _ = x
            .broadcast_to(&[2, shape[0], shape[1], shape[2]])
            .and_then(|x| x.copy());
    }
}
