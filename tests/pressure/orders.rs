//! Requests about memory: the residency of tensors, sources and rematerializers, and limits.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapidary::{Advice, DType, Error, Result, Source};

use crate::pressure::data::Held;
use crate::pressure::steps::sums;
use crate::pressure::world::{World, budget, folder};

pub(crate) fn evict(w: &mut World) -> Result<()> {
    match w.pick() {
        Some(held) => held.tensor.evict().or_else(|error| forgive(&held, error)),
        None => Ok(()),
    }
}

/// A tensor without a value gives this error if it was in doubt.
fn forgive(held: &Held, error: Error) -> Result<()> {
    match error {
        Error::Poisoned { .. } if held.data.is_unsure.get() => Ok(()),
        error => Err(error),
    }
}

pub(crate) fn prefetch(w: &mut World) -> Result<()> {
    w.pick().map_or(Ok(()), |held| held.tensor.prefetch())
}

pub(crate) fn advise(w: &mut World) -> Result<()> {
    let advice = [Advice::Normal, Advice::Soon, Advice::Late];
    if let Some(held) = w.pick() {
        held.tensor.advise(*w.rng.choice(&advice).expect("three"));
    }
    Ok(())
}

pub(crate) fn pin(w: &mut World) -> Result<()> {
    if !w.rules.pins || w.held.is_empty() {
        return Ok(());
    }
    let index = w.rng.usize(..w.held.len());
    match w.held[index].tensor.pin() {
        Ok(pin) => w.held[index].pin = Some(Rc::new(pin)),
        Err(error) => return forgive(&w.held[index], error),
    }
    Ok(())
}

pub(crate) fn unpin(w: &mut World) -> Result<()> {
    for held in &mut w.held {
        held.pin = None;
    }
    Ok(())
}

pub(crate) fn trim(w: &mut World) -> Result<()> {
    let keep_bytes = w.rng.u64(..64 << 10);
    w.gpu.memory().trim(keep_bytes).map(drop)
}

pub(crate) fn compact(w: &mut World) -> Result<()> {
    let limit_bytes = *w.rng.choice(&[0, 1 << 10, 16 << 10, u64::MAX]).expect("4");
    w.gpu.memory().compact(limit_bytes).map(drop)
}

pub(crate) fn reserve(w: &mut World) -> Result<()> {
    let bytes = w.rng.u64(..1 << 20);
    w.gpu.memory().reserve(bytes).map(drop)
}

pub(crate) fn set_budget(w: &mut World) -> Result<()> {
    if !w.rules.alone && w.rng.u32(..4) > 0 {
        return Ok(());
    }
    let budget = budget(&mut w.rng, w.rules, w.gpu.caps().maps_slabs);
    w.set_budget(budget)
}

/// The bytes of a tensor as a source has them.
fn source(w: &mut World, values: &[u32]) -> Source {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    match w.rng.bool() {
        true => Source::bytes(bytes.into()),
        false => Source::reader(move |at, into| {
            let at = at as usize;
            into.copy_from_slice(&bytes[at..at + into.len()]);
            Ok(())
        }),
    }
}

pub(crate) fn backed(w: &mut World) -> Result<()> {
    let len = w.len();
    let values = w.values(len);
    let source = source(w, &values);
    let tensor = w.gpu.backed(source, &[len], DType::U32)?;
    w.hold(Held::new(tensor, values));
    Ok(())
}

pub(crate) fn backed_by(w: &mut World) -> Result<()> {
    let Some(held) = w.pick().filter(Held::is_whole) else {
        return Ok(());
    };
    let source = source(w, &held.values());
    let backed = held.tensor.backed_by(source);
    backed.or_else(|error| forgive(&held, error))
}

/// A sum with a rematerializer.
pub(crate) fn recompute_with(w: &mut World) -> Result<()> {
    let (Some(a), Some(b)) = (w.pick(), w.pick()) else {
        return Ok(());
    };
    if a.len() != b.len() {
        return Ok(());
    }
    let sum = a.tensor.add(&b.tensor)?;
    let held = Held::new(sum, sums(&a.values(), &b.values()));
    held.data.comes_of(&[&a.data, &b.data]);
    let recomputed = held
        .tensor
        .recompute_with(&[&a.tensor, &b.tensor], |inputs| inputs[0].add(&inputs[1]));
    let recomputed = recomputed.or_else(|error| forgive(&held, error));
    if recomputed.is_ok() {
        held.data.recomputed_from(&[&a.data, &b.data]);
    }
    w.hold(held);
    recomputed
}

/// A tensor that a callback may drop.
pub(crate) fn cache(w: &mut World) -> Result<()> {
    let len = w.len();
    let values = w.values(len);
    let tensor = w.gpu.tensor(&values, &[len])?;
    if !w.in_fault {
        let mut cache = w.cache.lock().expect("callbacks let go of it");
        if cache.len() < 8 {
            cache.push((tensor, values));
        }
    }
    Ok(())
}

/// The value with which a callback panics.
pub(crate) struct Wanted;

/// Callbacks that do what they should, and what they should not.
pub(crate) fn listen(w: &mut World) -> Result<()> {
    if w.guards.len() == 3 {
        let index = w.rng.usize(..3);
        drop(w.guards.swap_remove(index));
        return Ok(());
    }
    let (cache, gpu, manner) = (Arc::clone(&w.cache), w.gpu.clone(), w.rng.u32(..4));
    // The value of a callback must not keep the device alive.
    let gpu = (manner == 2).then_some(gpu);
    w.guards
        .push(w.gpu.memory().on_pressure(move |_| match (manner, &gpu) {
            (0, _) => drop(cache.lock().expect("nobody panics with it").pop()),
            (1, _) => cache.lock().expect("nobody panics with it").clear(),
            (2, Some(gpu)) => {
                assert!(gpu.flush().is_err(), "it would wait for itself");
                let _ = gpu.zeros(&[64], DType::U32);
            }
            _ => std::panic::panic_any(Wanted),
        }));
    Ok(())
}

/// Saves and loads, at once or as a source.
pub(crate) fn state(w: &mut World) -> Result<()> {
    let Some(held) = w.pick() else { return Ok(()) };
    static STATES: AtomicU64 = AtomicU64::new(0);
    let number = STATES.fetch_add(1, Ordering::Relaxed);
    let name = format!("lapidary-pressure-{}-{number}", std::process::id());
    let path = folder().join(name);
    let saved = w.gpu.files().save_state(&path, &[("x", &held.tensor)]);
    let loaded = match (&saved, w.rng.bool()) {
        (Err(error), _) => Err(error.clone()),
        (Ok(()), true) => w.gpu.files().load_state(&path),
        (Ok(()), false) => w.gpu.files().load_state_backed(&path),
    };
    let _ = std::fs::remove_file(&path);
    match loaded {
        Ok(state) => w.hold(Held::new(state.get("x")?, held.values())),
        Err(error) => return forgive(&held, error),
    }
    Ok(())
}

pub(crate) fn memory(w: &mut World) -> Result<()> {
    let memory = w.gpu.memory().stats();
    assert!(
        memory.live_bytes.now <= memory.reserved_bytes.now,
        "{memory}"
    );
    assert!(
        memory.spilled_bytes.now <= memory.disk_bytes.now,
        "{memory}"
    );
    assert!(memory.host_bytes.now <= memory.host_bytes.peak, "{memory}");
    if w.rules.alone && memory.holders.len() < 32 {
        let held: u64 = memory.holders.iter().map(|holder| holder.storages).sum();
        assert_eq!(held, memory.live_storages.now, "{memory}");
    }
    let budget = w.gpu.memory().budget();
    if let (Some(host_bytes), true) = (budget.host_bytes, w.rules.alone) {
        // The limit may be exceeded if it was lowered below bytes that cannot go elsewhere.
        let may_pass = w.is_above || budget.disk_bytes == Some(0);
        assert!(
            memory.host_bytes.now <= host_bytes || may_pass,
            "{budget:?}\n{memory}"
        );
    }
    Ok(())
}
