//! Operations that move elements: sorting, indexing, rearranging. Also a few exact operations on
//! bits and rows.

use lapidary::{DType, Error, Result, Tensor};

use super::calls::shifted;
use super::model::{Model, common, flat, indices, rounded};
use super::ops::{partner, rounded_int};
use super::whole::is_exact;
use super::world::{Outcome, World};

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// It has an axis, and few enough elements.
pub(crate) fn has_rows(m: &Model) -> bool {
    !m.shape.is_empty() && !m.shape.contains(&0) && m.at.len() < 9000
}

/// The elements along an axis, for each index of the other axes.
fn rows(model: &Model, axis: usize) -> (Vec<usize>, Vec<Vec<f64>>) {
    let mut shape = model.shape.clone();
    shape.remove(axis);
    let mut rows = vec![vec![]; shape.iter().product()];
    for (mut index, value) in indices(&model.shape).zip(model.values()) {
        index.remove(axis);
        rows[flat(&shape, &index)].push(value);
    }
    (shape, rows)
}

pub(crate) fn bits(w: &mut World) -> Outcome {
    let (a, model) = w.pick_where(|m| !m.dtype.is_float())?;
    let dtype = model.dtype;
    let (b, other) = partner(w, &model, dtype)?;
    let shape = common(&model.shape, &other.shape).expect("a partner broadcasts");
    let which = w.rng.u32(..5);
    let one = |a: f64, b: f64| {
        let (a, b) = (a as i64, b as i64);
        let by = u32::try_from(b).unwrap_or(63).min(63);
        let value = match which {
            0 => a & b,
            1 => a | b,
            2 => a ^ b,
            3 if by < 32 => a << by,
            3 => 0,
            _ => a >> by,
        };
        match dtype {
            DType::Bool => rounded(dtype, value as f64),
            _ => rounded_int(dtype, value),
        }
    };
    let (x, y) = (
        model.broadcast(&shape).values(),
        other.broadcast(&shape).values(),
    );
    let values = x.iter().zip(&y).map(|(&a, &b)| one(a, b)).collect();
    let made = match which {
        0 => &a & &b,
        1 => &a | &b,
        2 => &a ^ &b,
        3 => &a << &b,
        _ => &a >> &b,
    };
    if which > 2 && dtype == DType::Bool {
        assert!(matches!(made, Err(Error::DType { .. })));
        return Ok(());
    }
    w.made(made, Model::new(dtype, &shape, values))
}

pub(crate) fn masked_fill(w: &mut World) -> Outcome {
    let (x, model) = w.target(|m| m.dtype != DType::Bool)?;
    let (mask, masks) = w.fresh(DType::Bool, &model.shape)?;
    let (x_values, m) = (model.values(), masks.values());
    let values: Vec<f64> = (x_values.iter().zip(m))
        .map(|(&x, m)| if m != 0.0 { 3.0 } else { x })
        .collect();
    if w.rng.bool() || model.repeats() {
        let made = x.masked_fill(&mask, 3);
        return w.made(made, Model::new(model.dtype, &model.shape, values));
    }
    match x.masked_fill_(&mask, 3) {
        Ok(()) => w.wrote(&model, &values, false),
        Err(Error::Shape { .. }) if x.strides().contains(&0) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Tensors concatenated, padded, or rearranged.
pub(crate) fn rearranged(w: &mut World) -> Outcome {
    let fits = |m: &Model| has_rows(m) && m.shape.len() < 6 && m.at.len() < 2000;
    let (x, model) = w.pick_where(fits)?;
    let (rank, axis) = (model.shape.len(), w.rng.usize(..model.shape.len()));
    let (dim, along) = (model.shape[axis], axis as isize);
    let (count, which) = (w.rng.usize(1..4), w.rng.u32(..7));
    let mut shape = model.shape.clone();
    type From = Box<dyn Fn(&[usize]) -> Option<Vec<usize>>>;
    let at = move |index: &[usize], f: &dyn Fn(usize) -> usize| Some(shifted(index, axis, f));
    let (made, from): (Result<Tensor>, From) = match which {
        0 => {
            shape.insert(axis, 2);
            let from = move |index: &[usize]| Some([&index[..axis], &index[axis + 1..]].concat());
            (Tensor::stack(&[&x, &x], along), Box::new(from))
        }
        1 => {
            shape[axis] = dim * count;
            let mut counts = vec![1; rank];
            counts[axis] = count;
            (
                x.repeat(&counts),
                Box::new(move |index| at(index, &|i| i % dim)),
            )
        }
        2 => {
            shape[axis] = dim * count;
            (
                x.repeat_interleave(count, along),
                Box::new(move |index| at(index, &|i| i / count)),
            )
        }
        3 => (
            x.roll(&[count as isize], &[along - rank as isize]),
            Box::new(move |index| at(index, &|i| (i + dim * count - count) % dim)),
        ),
        4 => {
            shape[axis] += count + 1;
            let mut widths = vec![(0, 0); rank];
            widths[axis] = (count, 1);
            let inside = move |index: &[usize]| match index[axis].checked_sub(count) {
                Some(i) if i < dim => Some(shifted(index, axis, |_| i)),
                _ => None,
            };
            let made = match model.dtype {
                DType::Bool => x.pad(&widths, false),
                _ => x.pad(&widths, 0),
            };
            (made, Box::new(inside))
        }
        _ if rank < 2 => return Ok(()),
        5 => {
            let keeps = |index: &[usize]| index[index.len() - 1] <= index[index.len() - 2] + 1;
            (
                x.tril(1),
                Box::new(move |index| keeps(index).then(|| index.to_vec())),
            )
        }
        _ => {
            let keeps = |index: &[usize]| index[index.len() - 1] > index[index.len() - 2];
            (
                x.triu(1),
                Box::new(move |index| keeps(index).then(|| index.to_vec())),
            )
        }
    };
    let values = model.values();
    let expected = indices(&shape).map(|index| match from(&index) {
        Some(source) => values[flat(&model.shape, &source)],
        None => 0.0,
    });
    let expected = Model::new(model.dtype, &shape, expected.collect());
    w.made(made, expected)
}

pub(crate) fn truths(w: &mut World) -> Outcome {
    let (x, model) = w.pick_where(|m| !m.shape.is_empty() && m.at.len() < 9000)?;
    let axis = w.rng.usize(..model.shape.len());
    let (shape, rows) = rows(&model, axis);
    let along = [axis as isize];
    let (made, dtype, fold): (_, _, fn(&Vec<f64>) -> f64) = match w.rng.u32(..3) {
        0 => (x.any(&along), DType::Bool, |row| {
            truth(row.iter().any(|v| *v != 0.0))
        }),
        1 => (x.all(&along), DType::Bool, |row| {
            truth(row.iter().all(|v| *v != 0.0))
        }),
        _ => (x.count_nonzero(&along), DType::U32, |row| {
            row.iter().filter(|v| **v != 0.0).count() as f64
        }),
    };
    let values = rows.iter().map(fold).collect();
    w.made(made, Model::new(dtype, &shape, values))
}

pub(crate) fn running(w: &mut World) -> Outcome {
    let fits = |m: &Model| has_rows(m) && matches!(m.dtype, DType::F32 | DType::I32) && is_exact(m);
    let (x, model) = w.pick_where(fits)?;
    let axis = w.rng.usize(..model.shape.len());
    let step: usize = model.shape[axis + 1..].iter().product();
    let mut values = model.values();
    for at in 0..values.len() {
        if !(at / step).is_multiple_of(model.shape[axis]) {
            values[at] += values[at - step];
        }
    }
    let made = x.cumsum(axis as isize);
    w.made(made, Model::new(model.dtype, &model.shape, values))
}

pub(crate) fn sorted(w: &mut World) -> Outcome {
    let is_odd = |v: &f64| v.is_nan() || *v == 0.0 && v.is_sign_negative();
    let (x, model) = w.pick_where(|m| has_rows(m) && !m.values().iter().any(is_odd))?;
    let axis = w.rng.usize(..model.shape.len());
    let (descending, keep) = (w.rng.bool(), w.rng.usize(1..=model.shape[axis]));
    let (kept, rows) = rows(&model, axis);
    let rows: Vec<Vec<(f64, usize)>> = (rows.into_iter())
        .map(|row| {
            let mut row: Vec<(f64, usize)> = row.into_iter().zip(0..).collect();
            row.sort_by(|a, b| match descending {
                true => b.0.total_cmp(&a.0),
                false => a.0.total_cmp(&b.0),
            });
            row
        })
        .collect();
    let mut shape = model.shape.clone();
    shape[axis] = keep;
    let picked = |of: fn(&(f64, usize)) -> f64| {
        let value = |mut index: Vec<usize>| {
            let rank = index.remove(axis);
            of(&rows[flat(&kept, &index)][rank])
        };
        indices(&shape).map(value).collect::<Vec<f64>>()
    };
    let (values, places) = (picked(|one| one.0), picked(|one| one.1 as f64));
    let (sorted, order) = match keep == model.shape[axis] {
        true => x.sort(axis as isize, descending)?,
        false => x.top_k(keep, axis as isize, descending)?,
    };
    w.made(Ok(order), Model::new(DType::U32, &shape, places))?;
    w.made(Ok(sorted), Model::new(model.dtype, &shape, values))
}

/// Indices of an axis, shaped like a model except for that axis. Some are out of range.
pub(crate) fn named(w: &mut World, model: &Model, axis: usize) -> (Vec<usize>, Vec<i32>) {
    let mut shape = model.shape.clone();
    shape[axis] = w.rng.usize(1..5);
    let most = model.shape[axis] as i32;
    let index = |_| w.rng.i32(-1..=most);
    let len = shape.iter().product::<usize>();
    let given = (0..len).map(index).collect();
    (shape, given)
}

pub(crate) fn gathered(w: &mut World) -> Outcome {
    let (x, model) = w.pick_where(has_rows)?;
    let axis = w.rng.usize(..model.shape.len());
    let (shape, given) = named(w, &model, axis);
    let of_given = w.places(&given, &shape)?;
    let values = model.values();
    let picked = indices(&shape).zip(&given).map(|(index, &pick)| {
        match (0..model.shape[axis] as i32).contains(&pick) {
            true => values[flat(&model.shape, &shifted(&index, axis, |_| pick as usize))],
            false => 0.0,
        }
    });
    let expected = Model::new(model.dtype, &shape, picked.collect());
    w.made(x.gather(axis as isize, &of_given), expected)
}

pub(crate) fn scattered(w: &mut World) -> Outcome {
    let fits = |m: &Model| has_rows(m) && m.dtype != DType::Bool && m.at.len() < 2000;
    let (x, model) = w.pick_where(fits)?;
    let axis = w.rng.usize(..model.shape.len());
    let (shape, given) = named(w, &model, axis);
    let of_given = w.places(&given, &shape)?;
    let (src, of_src) = w.fresh(model.dtype, &shape)?;
    let is_sum = w.rng.bool() && !model.dtype.is_float();
    let mut values = model.values();
    for ((index, &place), value) in indices(&shape).zip(&given).zip(of_src.values()) {
        if (0..model.shape[axis] as i32).contains(&place) {
            let to = &mut values[flat(&model.shape, &shifted(&index, axis, |_| place as usize))];
            *to = if is_sum {
                rounded(model.dtype, *to + value)
            } else {
                value
            };
        }
    }
    let along = axis as isize;
    let made = match is_sum {
        true => x.scatter_add(along, &of_given, &src),
        false => x.scatter(along, &of_given, &src),
    };
    w.made(made, Model::new(model.dtype, &model.shape, values))
}
