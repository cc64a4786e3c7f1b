//! Calls that compute nothing: creation, views, writes, reads and drops.

use std::task::{Context, Waker};

use lapidary::{DType, Error, Gpu, Result};

use half::f16;

use super::model::{self, Model, typed};
use super::world::{Outcome, Reading, World};

pub(crate) fn create(w: &mut World) -> Outcome {
    let (dtype, shape) = (w.dtype(), w.shape());
    w.fresh(dtype, &shape)?;
    Ok(())
}

pub(crate) fn zeros(w: &mut World) -> Outcome {
    let (dtype, shape) = (w.dtype(), w.shape());
    let model = Model::new(dtype, &shape, vec![0.0; shape.iter().product()]);
    let made = w.gpu.zeros(&shape, dtype);
    w.made(made, model)
}

pub(crate) fn full(w: &mut World) -> Outcome {
    let (value, shape) = (w.rng.i32(-7..2), w.shape());
    let values = vec![f64::from(value); shape.iter().product()];
    let model = Model::new(DType::I32, &shape, values);
    let made = w.gpu.full(&shape, value, DType::I32);
    w.made(made, model)
}

pub(crate) fn clone(w: &mut World) -> Outcome {
    let (tensor, model) = w.pick()?;
    w.hold(tensor, model);
    Ok(())
}

pub(crate) fn forget(w: &mut World) -> Outcome {
    let at = w.pick_at(|_| true)?;
    w.held.swap_remove(at);
    Ok(())
}

pub(crate) fn view(w: &mut World) -> Outcome {
    let (tensor, model) = w.pick_where(|m| !m.shape.is_empty())?;
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
        _ => return Ok(()),
    };
    w.made(made, expected)
}

pub(crate) fn shifted(index: &[usize], axis: usize, to: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut old = index.to_vec();
    old[axis] = to(old[axis]);
    old
}

pub(crate) fn broadcast(w: &mut World) -> Outcome {
    let fits = |m: &Model| m.at.len() < 2000 && m.shape.len() < 7;
    let (tensor, model) = w.pick_where(fits)?;
    let mut shape = model.shape.clone();
    for dim in shape.iter_mut().filter(|dim| **dim == 1) {
        *dim = w.rng.usize(1..4);
    }
    shape.insert(0, w.rng.usize(1..4));
    w.made(tensor.broadcast_to(&shape), model.broadcast(&shape))
}

pub(crate) fn write(w: &mut World) -> Outcome {
    let (tensor, model) = w.target(|_| true)?;
    let values = w.values(model.dtype, model.at.len());
    match model::write(&tensor, &values) {
        Ok(()) => w.wrote(&model, &values, true),
        // A view with gaps, or one that shares a word with its neighbours.
        Err(Error::Shape { .. }) => {}
        Err(error) => {
            // If the write needs more than the staging, a part of it may have been written.
            model.data.doubt();
            return Err(error.into());
        }
    }
    Ok(())
}

pub(crate) fn start_read(w: &mut World) -> Outcome {
    let (tensor, model) = w.pick()?;
    if w.reads.len() == 8 {
        w.await_one();
    }
    let reading = Reading {
        name: w.new_name(),
        read: model::read(&tensor),
        was_unsure: model.data.is_unsure.get(),
        expected: model.values(),
        model,
    };
    w.reads.push(reading);
    Ok(())
}

pub(crate) fn await_read(w: &mut World) -> Outcome {
    w.await_one();
    Ok(())
}

/// Reads of one element and of all.
pub(crate) fn look(w: &mut World) -> Outcome {
    let (x, model) = w.pick()?;
    let expected = model.values();
    let which = w.rng.u32(..4);
    let read = typed!(model.dtype, T, _to => {
        let numbers = |values: &[T]| values.iter().map(|v| model::Number::to_f64(*v)).collect();
        match which {
            0 if expected.len() == 1 => x.item::<T>().map(|v| numbers(&[v])),
            0 => pollster::block_on(model::read(&x)),
            1 => {
                let mut into = vec![T::default(); w.rng.usize(..50)];
                x.read_into(&mut into).map(|()| numbers(&into))
            }
            2 => x.read_with(|values: &[T]| numbers(values)),
            _ => x.to_vec::<T>().map(|values| numbers(&values)),
        }
    });
    let is_unsure = model.data.is_unsure.get();
    w.check(read, &model, &expected, is_unsure);
    Ok(())
}

/// Drops a read, often half-way.
pub(crate) fn drop_read(w: &mut World) -> Outcome {
    let Some(mut reading) = w.take_read() else {
        return Ok(());
    };
    w.note_half_way();
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..w.rng.u32(..4) {
        if reading.read.as_mut().poll(&mut context).is_ready() {
            break;
        }
    }
    Ok(())
}

pub(crate) fn control(w: &mut World, call: fn(&Gpu) -> Result<()>) -> Outcome {
    Ok(call(&w.gpu)?)
}
