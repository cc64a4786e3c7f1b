//! Operations that are not elementwise, each with its oracle.

use lapidary::{DType, Result, Tensor};

use super::calls::shifted;
use super::model::{self, Model, common, flat, indices};
use super::ops::partner;
use super::world::{Outcome, World};

pub(crate) fn same(w: &mut World, call: fn(&Tensor) -> Result<Tensor>) -> Outcome {
    let (x, model) = w.pick()?;
    let expected = Model::new(model.dtype, &model.shape, model.values());
    w.made(call(&x), expected)
}

pub(crate) fn contiguous(w: &mut World) -> Outcome {
    let (x, model) = w.pick()?;
    let expected = match x.is_contiguous() {
        true => model,
        false => Model::new(model.dtype, &model.shape, model.values()),
    };
    w.made(x.contiguous(), expected)
}

pub(crate) fn select(w: &mut World) -> Outcome {
    let (a, model) = w.pick()?;
    let (b, other) = partner(w, &model, model.dtype)?;
    let shape = common(&model.shape, &other.shape).expect("a partner broadcasts");
    let (mask, masks) = w.fresh(DType::Bool, &shape)?;
    let mask_values = masks.values();
    let (x, y) = (
        model.broadcast(&shape).values(),
        other.broadcast(&shape).values(),
    );
    let chosen = (0..x.len()).map(|i| if mask_values[i] != 0.0 { x[i] } else { y[i] });
    let expected = Model::new(model.dtype, &shape, chosen.collect());
    w.made(mask.where_(&a, &b), expected)
}

pub(crate) fn cast(w: &mut World) -> Outcome {
    let to = w.dtype();
    let (x, model) = w.pick_where(|m| m.dtype != to)?;
    let values = model.values().into_iter();
    let values = values.map(|v| model::cast(model.dtype, to, v)).collect();
    w.made(x.cast(to), Model::new(to, &model.shape, values))
}

pub(crate) fn reshape(w: &mut World) -> Outcome {
    let (x, model) = w.pick()?;
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

/// Are sums of these integers exact in any order?
pub(crate) fn is_exact(model: &Model) -> bool {
    let is_plain = |v: &f64| v.abs() <= 1024.0 && v.fract() == 0.0;
    let is_signed = |v: &f64| *v == 0.0 && v.is_sign_negative();
    let values = model.values();
    values.len() <= 4096 && values.iter().all(|v| is_plain(v) && !is_signed(v))
}

pub(crate) fn sum(w: &mut World) -> Outcome {
    let fits = |m: &Model| {
        matches!(m.dtype, DType::F32 | DType::I32) && !m.shape.is_empty() && is_exact(m)
    };
    let (x, model) = w.pick_where(fits)?;
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

pub(crate) fn matmul(w: &mut World) -> Outcome {
    let fits =
        |m: &Model| matches!(m.dtype, DType::F32 | DType::I32) && m.shape.len() == 2 && is_exact(m);
    let (a, model) = w.pick_where(fits)?;
    let (m, k, n) = (model.shape[0], model.shape[1], w.rng.usize(1..20));
    let of_b = match model.dtype {
        DType::F32 if w.rng.bool() => DType::I8,
        dtype => dtype,
    };
    let (b, other) = w.fresh(of_b, &[k, n])?;
    let (x, y) = (model.values(), other.values());
    let dot = |i: usize, j: usize| (0..k).map(|l| x[i * k + l] * y[l * n + j]).sum::<f64>();
    if x.contains(&0.0) && y.iter().any(|v| *v <= 0.0)
        || y.contains(&0.0) && x.iter().any(|v| *v < 0.0)
    {
        // If all products are -0, the sign of their sum is undefined.
        return Ok(());
    }
    // A sum without products is 0, but Rust's empty sum is -0.
    let products = (0..m * n).map(|at| 0.0 + dot(at / n, at % n)).collect();
    w.made(a.matmul(&b), Model::new(model.dtype, &[m, n], products))
}

pub(crate) fn concat(w: &mut World) -> Outcome {
    let (a, model) = w.pick_where(|m| !m.shape.is_empty() && m.at.len() < 9000)?;
    let axis = w.rng.usize(..model.shape.len());
    let mut more = model.shape.clone();
    more[axis] = w.rng.usize(1..4);
    let (b, other) = w.fresh(model.dtype, &more)?;
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

pub(crate) fn index_select(w: &mut World) -> Outcome {
    let fits = |m: &Model| !m.shape.is_empty() && !m.shape.contains(&0) && m.at.len() < 9000;
    let (x, model) = w.pick_where(fits)?;
    let axis = w.rng.usize(..model.shape.len());
    let count = w.rng.usize(1..5);
    let picks: Vec<u32> = (0..count)
        .map(|_| w.rng.u32(..model.shape[axis] as u32))
        .collect();
    let named = w.places(&picks, &[count])?;
    let mut shape = model.shape.clone();
    shape[axis] = count;
    let expected = model.view(&shape, |index| shifted(index, axis, |i| picks[i] as usize));
    let expected = Model::new(model.dtype, &shape, expected.values());
    w.made(x.index_select(axis as isize, &named), expected)
}
