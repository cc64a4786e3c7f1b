//! The steps of a program, one function each, and their effects on the oracle.

use std::rc::Rc;

use lapidary::{DType, Result, Tensor};

use crate::pressure::data::{Data, Held};
use crate::pressure::orders;
use crate::pressure::world::{Reading, World};

type Step = (&'static str, u32, fn(&mut World) -> Result<()>);

/// Each step with its weight, out of [`TOTAL`].
const ALL: &[Step] = &[
    ("tensor", 12, create),
    ("full", 6, full),
    ("clone", 2, clone),
    ("narrow", 4, narrow),
    ("drop", 10, forget),
    ("write", 8, write),
    ("add", 14, add),
    ("add_", 8, add_in_place),
    ("mul_scalar", 4, mul_scalar),
    ("fill_", 4, fill),
    ("copy", 3, copy),
    ("concat", 3, concat),
    ("read", 6, start_read),
    ("await", 5, await_read),
    ("drop a read", 1, drop_read),
    ("to_vec", 8, look),
    ("flush", 3, |w| w.gpu.flush()),
    ("finish", 2, |w| w.gpu.finish()),
    ("poll", 2, |w| w.gpu.poll()),
    ("evict", 6, orders::evict),
    ("prefetch", 3, orders::prefetch),
    ("advise", 3, orders::advise),
    ("pin", 2, orders::pin),
    ("unpin", 3, orders::unpin),
    ("trim", 1, orders::trim),
    ("compact", 2, orders::compact),
    ("reserve", 1, orders::reserve),
    ("set_budget", 2, orders::set_budget),
    ("backed", 3, orders::backed),
    ("backed_by", 3, orders::backed_by),
    ("recompute_with", 3, orders::recompute_with),
    ("cache", 3, orders::cache),
    ("listen", 1, orders::listen),
    ("state", 1, orders::state),
    ("memory", 1, orders::memory),
];

/// Makes one step and returns its name.
pub(crate) fn step(w: &mut World) -> &'static str {
    let total: u32 = ALL.iter().map(|(_, weight, _)| weight).sum();
    let mut drawn = w.rng.u32(..total);
    let step = ALL.iter().find(|(_, weight, _)| {
        let is_it = drawn < *weight;
        drawn = drawn.saturating_sub(*weight);
        is_it
    });
    let (name, _, call) = step.expect("the weights add up to the total");
    if let Err(error) = call(w) {
        w.judge(name, &error);
    }
    w.check_levels();
    name
}

fn create(w: &mut World) -> Result<()> {
    let len = w.len();
    let values = w.values(len);
    let tensor = w.gpu.tensor(&values, &[len])?;
    w.hold(Held::new(tensor, values));
    Ok(())
}

fn full(w: &mut World) -> Result<()> {
    let (len, value) = (w.len(), w.rng.u32(..3));
    let tensor = w.gpu.full(&[len], value, DType::U32)?;
    w.hold(Held::new(tensor, vec![value; len]));
    Ok(())
}

fn clone(w: &mut World) -> Result<()> {
    if let Some(held) = w.pick() {
        w.hold(held);
    }
    Ok(())
}

fn narrow(w: &mut World) -> Result<()> {
    let Some(held) = w.pick() else { return Ok(()) };
    let start = w.rng.usize(..=held.len());
    let len = w.rng.usize(..=held.len() - start);
    let tensor = held.tensor.narrow(0, start, len)?;
    w.hold(Held {
        tensor,
        start: held.start + start,
        ..held
    });
    Ok(())
}

fn forget(w: &mut World) -> Result<()> {
    if !w.held.is_empty() {
        let index = w.rng.usize(..w.held.len());
        w.held.swap_remove(index);
    }
    Ok(())
}

/// Whether to write to a tensor. Inputs of rematerializers are mostly excluded; otherwise
/// rematerializers would never run. Beside pins more writes wait for memory.
fn may_write(w: &mut World, held: &Held) -> bool {
    let one_in = if w.rules.pins { 3 } else { 16 };
    !held.data.feeds_rematerializers() || w.rng.u32(..one_in) == 0
}

/// A tensor to write to.
fn target(w: &mut World) -> Option<Held> {
    let held = w.pick()?;
    may_write(w, &held).then_some(held)
}

/// The program writes. A storage in doubt stays so, unless all of it is new.
fn wrote(w: &World, held: &Held, values: &[u32]) {
    held.set(values);
    if w.in_fault {
        held.data.doubt();
    }
}

fn write(w: &mut World) -> Result<()> {
    let Some(held) = target(w) else { return Ok(()) };
    let values = w.values(held.len());
    match held.tensor.write(&values) {
        Ok(()) => wrote(w, &held, &values),
        Err(error) => {
            // If the write needs more than the staging, a part of it may have been written.
            held.data.doubt();
            return Err(error);
        }
    }
    Ok(())
}

fn made(w: &mut World, tensor: Tensor, values: Vec<u32>, parents: &[&Rc<Data>]) {
    let held = Held::new(tensor, values);
    held.data.comes_of(parents);
    w.hold(held);
}

/// Two views of one length.
fn pair(w: &mut World) -> Option<(Held, Held)> {
    let (mut a, mut b) = (w.pick()?, w.pick()?);
    let len = a.len().min(b.len());
    for held in [&mut a, &mut b] {
        held.tensor = held.tensor.narrow(0, 0, len).ok()?;
    }
    Some((a, b))
}

pub(crate) fn sums(a: &[u32], b: &[u32]) -> Vec<u32> {
    (a.iter().zip(b)).map(|(a, b)| a.wrapping_add(*b)).collect()
}

fn add(w: &mut World) -> Result<()> {
    let Some((a, b)) = pair(w) else { return Ok(()) };
    let tensor = a.tensor.add(&b.tensor)?;
    let values = sums(&a.values(), &b.values());
    if w.rng.u32(..4) == 0 {
        // The operands are dropped at once, so the result can take over their memory.
        w.held.retain(|held| !Rc::ptr_eq(&held.data, &a.data));
    }
    made(w, tensor, values, &[&a.data, &b.data]);
    Ok(())
}

fn add_in_place(w: &mut World) -> Result<()> {
    let Some((a, b)) = pair(w) else { return Ok(()) };
    let overlaps = Rc::ptr_eq(&a.data, &b.data) && a.start != b.start;
    if overlaps || !may_write(w, &a) {
        return Ok(());
    }
    a.tensor.add_(&b.tensor)?;
    // It reads its old value, so a doubt remains even if all elements are written.
    let was_unsure = a.data.is_unsure.get();
    wrote(w, &a, &sums(&a.values(), &b.values()));
    if was_unsure {
        a.data.doubt();
    }
    a.data.comes_of(&[&b.data]);
    Ok(())
}

fn mul_scalar(w: &mut World) -> Result<()> {
    let Some(a) = w.pick() else { return Ok(()) };
    let tensor = a.tensor.mul_scalar(3)?;
    let values = a.values().iter().map(|v| v.wrapping_mul(3)).collect();
    made(w, tensor, values, &[&a.data]);
    Ok(())
}

fn fill(w: &mut World) -> Result<()> {
    let Some(held) = target(w) else { return Ok(()) };
    held.tensor.fill_(9)?;
    let was_unsure = held.data.is_unsure.get();
    wrote(w, &held, &vec![9; held.len()]);
    if was_unsure {
        held.data.doubt();
    }
    Ok(())
}

fn copy(w: &mut World) -> Result<()> {
    let Some(a) = w.pick() else { return Ok(()) };
    let tensor = a.tensor.copy()?;
    made(w, tensor, a.values(), &[&a.data]);
    Ok(())
}

fn concat(w: &mut World) -> Result<()> {
    let Some((a, b)) = pair(w) else { return Ok(()) };
    if a.len() * 2 > crate::pressure::world::ELEMENTS {
        return Ok(());
    }
    let tensor = Tensor::concat(&[&a.tensor, &b.tensor], 0)?;
    let values = [a.values(), b.values()].concat();
    made(w, tensor, values, &[&a.data, &b.data]);
    Ok(())
}

fn start_read(w: &mut World) -> Result<()> {
    let Some(held) = w.pick() else { return Ok(()) };
    if w.reads.len() == 8 {
        w.await_one();
    }
    let read = Box::pin(held.tensor.to_vec_async::<u32>());
    w.reads.push(Reading {
        read,
        expected: held.values(),
        was_unsure: held.data.is_unsure.get(),
        held,
    });
    Ok(())
}

fn await_read(w: &mut World) -> Result<()> {
    w.await_one();
    Ok(())
}

fn drop_read(w: &mut World) -> Result<()> {
    w.reads.pop();
    Ok(())
}

fn look(w: &mut World) -> Result<()> {
    let Some(held) = w.pick() else { return Ok(()) };
    let read = held.tensor.to_vec();
    w.check(read, &held, &held.values());
    Ok(())
}
