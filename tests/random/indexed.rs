//! Indexing by several tensors, scattered reductions, running extremes, and batch norms.

use lapidary::{DType, Error, Result, Tensor, operations::ScatterReduce};

use super::model::{Model, flat, indices, rounded};
use super::more::shaped;
use super::moved::{has_rows, named};
use super::world::{Outcome, World};

/// It has no NaN and no zero with a sign. Adapters need not order these.
fn is_ordered(m: &Model) -> bool {
    let is_odd = |v: &f64| v.is_nan() || *v == 0.0 && v.is_sign_negative();
    has_rows(m) && m.at.len() < 2000 && !m.values().iter().any(is_odd)
}

/// The first two axes indexed by two tensors, read or written.
pub(crate) fn indexed(w: &mut World) -> Outcome {
    let fits = |m: &Model| has_rows(m) && m.shape.len() >= 2 && m.at.len() < 2000;
    let (x, model) = w.pick_where(fits)?;
    let count = w.rng.usize(1..5);
    // Some axes have an index that is out of range.
    let mut places = |axis: usize| -> Vec<i32> {
        let most = model.shape[axis] as i32;
        (0..count).map(|_| w.rng.i32(-1..=most)).collect()
    };
    let (rows, columns) = (places(0), places(1));
    let of_rows = w.places(&rows, &[count])?;
    let of_columns = w.places(&columns, &[count, 1])?;
    let mut shape = vec![count, count];
    shape.extend_from_slice(&model.shape[2..]);
    let named = [Some(&of_rows), Some(&of_columns)];
    let is_there = |at: i32, axis: usize| (0..model.shape[axis] as i32).contains(&at);
    // The index in the model for an index of the result.
    let place = |index: &[usize]| {
        let (row, column) = (rows[index[1]], columns[index[0]]);
        (is_there(row, 0) && is_there(column, 1)).then(|| {
            let at = [&[row as usize, column as usize], &index[2..]].concat();
            flat(&model.shape, &at)
        })
    };
    let mut values = model.values();
    if w.rng.bool() {
        let picked = indices(&shape).map(|index| place(&index).map_or(0.0, |at| values[at]));
        let expected = Model::new(model.dtype, &shape, picked.collect());
        return w.made(x.index(&named), expected);
    }
    let (source, of_source) = w.fresh(model.dtype, &shape)?;
    let is_sum = w.rng.bool() && !model.dtype.is_float();
    for (index, value) in indices(&shape).zip(of_source.values()) {
        let Some(at) = place(&index) else {
            continue;
        };
        values[at] = match is_sum {
            true if model.dtype == DType::Bool => values[at].max(value),
            true => rounded(model.dtype, values[at] + value),
            false => value,
        };
    }
    let made = x.index_put(&named, &source, is_sum);
    w.made(made, Model::new(model.dtype, &model.shape, values))
}

/// The maximum, minimum or product of all elements with one index.
pub(crate) fn scatter_reduced(w: &mut World) -> Outcome {
    let fits = |m: &Model| is_ordered(m) && m.dtype != DType::Bool;
    let (x, model) = w.pick_where(fits)?;
    let axis = w.rng.usize(..model.shape.len());
    let (shape, given) = named(w, &model, axis);
    let of_given = w.places(&given, &shape)?;
    let (source, of_source) = w.fresh(model.dtype, &shape)?;
    let with_self = w.rng.bool();
    let (how, fold): (_, fn(f64, f64) -> f64) = match w.rng.bool() {
        true => (ScatterReduce::Max, f64::max),
        false => (ScatterReduce::Min, f64::min),
    };
    let mut values = model.values();
    let mut is_first = vec![!with_self; values.len()];
    for ((mut index, &place), value) in indices(&shape).zip(&given).zip(of_source.values()) {
        if (0..model.shape[axis] as i32).contains(&place) {
            index[axis] = place as usize;
            let at = flat(&model.shape, &index);
            values[at] = match std::mem::take(&mut is_first[at]) {
                true => value,
                false => fold(values[at], value),
            };
        }
    }
    let made = x.scatter_reduce(axis as isize, &of_given, &source, how, with_self);
    w.made(made, Model::new(model.dtype, &model.shape, values))
}

/// The extreme so far, and its last index.
pub(crate) fn running_extremes(w: &mut World) -> Outcome {
    let (x, model) = w.pick_where(is_ordered)?;
    let axis = w.rng.usize(..model.shape.len());
    let step: usize = model.shape[axis + 1..].iter().product();
    let is_max = w.rng.bool();
    let mut values = model.values();
    let mut places = vec![0.0; values.len()];
    for at in 0..values.len() {
        let along = at / step % model.shape[axis];
        if along == 0 {
            continue;
        }
        let before = values[at - step];
        let is_better = match is_max {
            true => values[at] >= before,
            false => values[at] <= before,
        };
        (values[at], places[at]) = match is_better {
            true => (values[at], along as f64),
            false => (before, places[at - step]),
        };
    }
    let (extremes, named) = match is_max {
        true => x.cummax(axis as isize)?,
        false => x.cummin(axis as isize)?,
    };
    w.made(Ok(named), Model::new(DType::U32, &model.shape, places))?;
    w.made(Ok(extremes), Model::new(model.dtype, &model.shape, values))
}

/// With the statistics of the batch, and its gradient.
pub(crate) fn batch_norm(w: &mut World) -> Outcome {
    let fits = |m: &Model| m.dtype.is_float() && m.shape.len() >= 2 && has_rows(m);
    let (x, model) = w.pick_where(fits)?;
    let channels = model.shape[1];
    let mut call = |x: &Tensor| -> Result<Tensor> {
        let (weight, _) = w.fresh(model.dtype, &[channels])?;
        let [y, mean, variance] = x.batch_norm_train(Some(&weight), None, 1e-3)?;
        let [by_x, ..] = y.batch_norm_backward(x, Some(&weight), 1e-3)?;
        by_x.batch_norm(&mean, &variance, Some(&weight), None, 1e-3)
    };
    let made = call(&x);
    if model.at.len() / channels < 2 {
        return match made {
            Err(Error::Shape { .. }) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(made) => panic!("{made} of one element a channel"),
        };
    }
    shaped(w, made, model.dtype, &model.shape)
}
