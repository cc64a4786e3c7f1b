//! Requests about memory: the residency of tensors, sources and rematerializers, and limits.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use fastrand::Rng;
use lapidary::{Advice, Budget, DType, Result, Source};

use super::model::Model;
use super::ops::{ADD, zipped};
use super::world::{MOST_BYTES, Outcome, Rules, World, is_loss};
use crate::programs::WANTED;

/// A budget under which some tensors must be evicted.
pub(crate) fn budget(rng: &mut Rng, rules: Rules, maps_slabs: bool) -> Budget {
    let device_bytes = rng.u64(24 << 10..MOST_BYTES);
    let (host_bytes, disk_bytes) = match rng.u32(..5) {
        _ if !rules.leaves => (Some(0), Some(0)),
        // If host and device share memory, all go to disk.
        _ if maps_slabs => (None, None),
        0 => (Some(0), None),
        1 => (Some(rng.u64(1 << 10..64 << 10)), None),
        2 => (None, Some(0)),
        // The disk is full before long, and the host takes the rest.
        3 => (None, Some(rng.u64(1 << 10..32 << 10))),
        _ => (None, None),
    };
    Budget {
        device_bytes: Some(device_bytes),
        soft_device_bytes: rng.bool().then(|| rng.u64(1..=device_bytes)),
        staging_bytes: (rng.u32(..4) == 0).then(|| rng.u64(..device_bytes / 3)),
        host_bytes,
        disk_bytes,
    }
}

/// A folder in memory if there is one, because other files may wait for the disk.
pub(crate) fn folder() -> PathBuf {
    let folder = Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir());
    folder.unwrap_or_else(std::env::temp_dir)
}

/// Evicts a tensor, or drops the future half-way.
pub(crate) fn evict(w: &mut World) -> Outcome {
    let (tensor, model) = w.pick()?;
    match w.rng.u32(..4) {
        0 => {
            w.note_half_way();
            let evicted = half_way(&mut w.rng, tensor.evict_async());
            forgive(&model, evicted)
        }
        _ => forgive(&model, tensor.evict()),
    }
}

/// A tensor without a value gives such an error if it was in doubt.
fn forgive(model: &Model, result: Result<()>) -> Outcome {
    match result {
        Err(error) if model.data.is_unsure.get() && is_loss(&error) => Ok(()),
        result => Ok(result?),
    }
}

/// Polls a few times, and drops what then is not ready.
fn half_way(rng: &mut Rng, future: impl Future<Output = Result<()>>) -> Result<()> {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..rng.u32(..4) {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
    }
    Ok(())
}

pub(crate) fn prefetch(w: &mut World) -> Outcome {
    Ok(w.pick()?.0.prefetch()?)
}

pub(crate) fn advise(w: &mut World) -> Outcome {
    let advice = [Advice::Normal, Advice::Soon, Advice::Late];
    let (tensor, _) = w.pick()?;
    tensor.advise(*w.rng.choice(&advice).expect("three"));
    Ok(())
}

pub(crate) fn pin(w: &mut World) -> Outcome {
    if !w.rules.pins {
        return Ok(());
    }
    let at = w.pick_at(|_| true)?;
    let pin = w.held[at].tensor.pin();
    let held = &mut w.held[at];
    forgive(&held.model, pin.map(|pin| held.pin = Some(Rc::new(pin))))
}

pub(crate) fn unpin(w: &mut World) -> Outcome {
    for held in &mut w.held {
        held.pin = None;
    }
    Ok(())
}

pub(crate) fn trim(w: &mut World) -> Outcome {
    let keep_bytes = *w.rng.choice(&[0, 1 << 10, 64 << 10]).expect("3");
    w.gpu.memory().trim(keep_bytes)?;
    Ok(())
}

pub(crate) fn compact(w: &mut World) -> Outcome {
    let limit_bytes = *w.rng.choice(&[0, 1 << 10, 16 << 10, u64::MAX]).expect("4");
    w.gpu.memory().compact(limit_bytes)?;
    Ok(())
}

pub(crate) fn reserve(w: &mut World) -> Outcome {
    let bytes = w.rng.u64(..1 << 20);
    w.gpu.memory().reserve(bytes)?;
    Ok(())
}

pub(crate) fn set_budget(w: &mut World) -> Outcome {
    if !w.rules.alone && w.rng.u32(..4) > 0 {
        return Ok(());
    }
    let budget = budget(&mut w.rng, w.rules, w.gpu.caps().maps_slabs);
    w.say(format_args!(" {budget:?}"));
    Ok(w.set_budget(budget)?)
}

/// The bytes of a tensor as a source has them.
fn source(w: &mut World, values: &[f64]) -> Source {
    let bytes: Vec<u8> = (values.iter().flat_map(|v| (*v as u32).to_ne_bytes())).collect();
    match w.rng.bool() {
        true => Source::bytes(bytes.into()),
        false => Source::reader(move |at, into| {
            let at = at as usize;
            into.copy_from_slice(&bytes[at..at + into.len()]);
            Ok(())
        }),
    }
}

pub(crate) fn backed(w: &mut World) -> Outcome {
    let shape = w.shape();
    let values = w.values(DType::U32, shape.iter().product());
    let source = source(w, &values);
    let tensor = w.gpu.backed(source, &shape, DType::U32);
    w.made(tensor, Model::new(DType::U32, &shape, values))
}

pub(crate) fn backed_by(w: &mut World) -> Outcome {
    let (tensor, model) = w.pick_where(|m| m.dtype == DType::U32 && m.is_whole())?;
    let source = source(w, &model.values());
    match tensor.backed_by(source) {
        // What `top_k` gives is the beginning of all that it has sorted.
        Err(error)
            if error
                .to_string()
                .contains("does not cover all of its memory") =>
        {
            Ok(())
        }
        backed => forgive(&model, backed),
    }
}

/// A sum with a rematerializer.
pub(crate) fn recompute_with(w: &mut World) -> Outcome {
    let (a, of_a) = w.pick_where(|m| m.dtype == DType::U32)?;
    let (b, of_b) = w.pick_where(|m| m.dtype == DType::U32 && m.shape == of_a.shape)?;
    let values = zipped(&of_a, &of_b, &of_a.shape, |a, b| ADD(DType::U32, a, b));
    let (sum, of_sum) = (a.add(&b)?, Model::new(DType::U32, &of_a.shape, values));
    w.made(Ok(sum.clone()), of_sum.clone())?;
    let again = sum.recompute_with(&[&a, &b], |inputs| inputs[0].add(&inputs[1]));
    if again.is_ok() {
        of_sum.data.recomputed_from(&[of_a.data, of_b.data]);
    }
    forgive(&of_sum, again)
}

/// A tensor that a callback may drop.
pub(crate) fn cache(w: &mut World) -> Outcome {
    let values = vec![w.rng.u32(..); w.rng.usize(1..=w.rules.elements)];
    let tensor = w.gpu.tensor(&values, &[values.len()])?;
    if !w.in_fault {
        let mut cache = w.cache.lock().expect("callbacks let go of it");
        if cache.len() < 8 {
            cache.push((tensor, values));
        }
    }
    Ok(())
}

/// Callbacks that do what they should, and what they should not.
pub(crate) fn listen(w: &mut World) -> Outcome {
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
            _ => panic!("{WANTED}"),
        }));
    Ok(())
}

/// Saves and loads, at once or as a source.
pub(crate) fn state(w: &mut World) -> Outcome {
    let (tensor, model) = w.pick()?;
    static STATES: AtomicU64 = AtomicU64::new(0);
    let number = STATES.fetch_add(1, Ordering::Relaxed);
    let name = format!("lapidary-pressure-{}-{number}", std::process::id());
    let path = folder().join(name);
    let saved = w.gpu.files().save_state(&path, &[("x", &tensor)]);
    let loaded = saved.and_then(|()| match w.rng.bool() {
        true => w.gpu.files().load_state(&path),
        false => w.gpu.files().load_state_backed(&path),
    });
    let _ = std::fs::remove_file(&path);
    let expected = Model::new(model.dtype, &model.shape, model.values());
    let made = loaded.and_then(|state| state.get("x"));
    forgive(&model, made.map(|tensor| w.hold(tensor, expected)))
}

pub(crate) fn memory(w: &mut World) -> Outcome {
    let memory = w.gpu.memory().stats();
    let device = w.sim.counters();
    assert!(
        memory.spilled_bytes.now <= memory.disk_bytes.now,
        "{memory}"
    );
    assert!(memory.host_bytes.now <= memory.host_bytes.peak, "{memory}");
    if !w.rules.alone {
        return Ok(());
    }
    let [live, cached, reserved] = [
        memory.live_bytes,
        memory.cached_bytes,
        memory.reserved_bytes,
    ]
    .map(|level| level.now);
    assert_eq!(live + cached, reserved, "{memory}");
    let staging_bytes = memory.upload_bytes.now + memory.readback_bytes.now;
    // After a refusal, the device may release a buffer a moment before it is counted.
    let is_counted = reserved + staging_bytes <= device.reserved_bytes;
    assert!(is_counted || w.in_fault, "{memory}");
    if memory.holders.len() < 32 {
        let held: u64 = memory.holders.iter().map(|holder| holder.storages).sum();
        assert_eq!(held, memory.live_storages.now, "{memory}");
    }
    let budget = w.gpu.memory().budget();
    if let Some(host_bytes) = budget.host_bytes {
        // The limit may be exceeded if it was lowered below bytes that cannot go elsewhere.
        let may_pass = w.is_above || budget.disk_bytes.is_some();
        assert!(
            memory.host_bytes.now <= host_bytes || may_pass,
            "{budget:?}\n{memory}"
        );
    }
    Ok(())
}
