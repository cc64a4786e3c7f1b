//! Calls that compute nothing: creation, views, writes, reads and drops.

use lapidary::{DType, Error, Gpu};

use super::model::{self, Model};
use super::world::{Outcome, World};

pub(crate) fn create(w: &mut World) -> Outcome {
    let (dtype, shape) = (w.dtype(), w.shape());
    match w.fresh(dtype, &shape) {
        Ok(_) => Outcome::Done,
        Err(error) => Outcome::Refused(error),
    }
}

pub(crate) fn zeros(w: &mut World) -> Outcome {
    let (dtype, shape) = (w.dtype(), w.shape());
    let model = Model::new(dtype, &shape, vec![0.0; shape.iter().product()]);
    let made = w.gpu.zeros(&shape, dtype);
    w.made(made, model)
}

pub(crate) fn full(w: &mut World) -> Outcome {
    let (dtype, shape) = (DType::I32, w.shape());
    let model = Model::new(dtype, &shape, vec![-7.0; shape.iter().product()]);
    let made = w.gpu.full(&shape, -7, dtype);
    w.made(made, model)
}

pub(crate) fn clone(w: &mut World) -> Outcome {
    let Some((tensor, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    w.hold(tensor, model);
    Outcome::Done
}

pub(crate) fn forget(w: &mut World) -> Outcome {
    if w.held.is_empty() {
        return Outcome::Skipped;
    }
    let index = w.rng.usize(..w.held.len());
    w.held.swap_remove(index);
    Outcome::Done
}

pub(crate) fn view(w: &mut World) -> Outcome {
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

pub(crate) fn shifted(index: &[usize], axis: usize, to: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut old = index.to_vec();
    old[axis] = to(old[axis]);
    old
}

pub(crate) fn broadcast(w: &mut World) -> Outcome {
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

pub(crate) fn write(w: &mut World) -> Outcome {
    let Some((tensor, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let values = w.values(model.dtype, model.at.len());
    match model::write(&tensor, &values) {
        Ok(()) => {
            model.set(&values);
            Outcome::Done
        }
        // A view with gaps, or one that shares a word with its neighbours.
        Err(Error::Shape { .. }) => Outcome::Done,
        Err(error) => Outcome::Refused(error),
    }
}

pub(crate) fn start_read(w: &mut World) -> Outcome {
    let Some((tensor, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let expected = model.values();
    w.reads.push((model::read(&tensor), model, expected));
    Outcome::Done
}

pub(crate) fn await_read(w: &mut World) -> Outcome {
    match w.await_one() {
        true => Outcome::Done,
        false => Outcome::Skipped,
    }
}

pub(crate) fn look(w: &mut World) -> Outcome {
    let Some((tensor, model)) = w.pick() else {
        return Outcome::Skipped;
    };
    let read = pollster::block_on(model::read(&tensor));
    w.check(read, &model, &model.values());
    Outcome::Done
}

pub(crate) fn drop_read(w: &mut World) -> Outcome {
    if w.reads.is_empty() {
        return Outcome::Skipped;
    }
    let index = w.rng.usize(..w.reads.len());
    drop(w.reads.swap_remove(index));
    Outcome::Done
}

pub(crate) fn control(w: &mut World, call: fn(&Gpu) -> lapidary::Result<()>) -> Outcome {
    match call(&w.gpu) {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Refused(error),
    }
}

pub(crate) fn memory(w: &mut World) -> Outcome {
    let memory = w.gpu.memory().stats();
    assert!(
        memory.live_bytes.now <= memory.reserved_bytes.now,
        "{memory}"
    );
    assert_eq!(
        memory.live_bytes.now + memory.cached_bytes.now,
        memory.reserved_bytes.now,
        "{memory}"
    );
    let device = w.sim.counters();
    let staging_bytes = memory.upload_bytes.now + memory.readback_bytes.now;
    assert!(
        memory.reserved_bytes.now + staging_bytes <= device.reserved_bytes,
        "{memory}"
    );
    Outcome::Done
}
