//! Putting storages out: who goes, and where their bytes are taken.
//!
//! A storage leaves only after its bytes have arrived elsewhere, so whatever fails on the way,
//! nothing is lost. The copies of several victims travel in one submission.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Engine, refusal};
use crate::driver::Op;
use crate::error::{Error, Result};
use crate::memory::{Candidate, HostCharge, HostCopy, Residency, Storage};
use crate::transfer::Reading;

/// Victims are put out together until they free this much more than was asked for: one wait for
/// the device serves them all.
const AHEAD_PERCENT: u64 = 25;

/// A victim's bytes on their way to the host.
struct Leaving {
    victim: Candidate,
    charge: HostCharge,
    bytes: Arc<Mutex<Vec<u8>>>,
    reading: Arc<Reading>,
}

impl Engine {
    /// Takes the places of storages whose bytes are elsewhere too, as many as it takes.
    pub(super) fn drop_copied(&self, wanted: &Arc<Storage>) -> Result<u64> {
        let mut state = self.lock();
        let mut candidates = state.victims();
        candidates.retain(|candidate| candidate.is_clean);
        let mut freed_bytes = 0;
        for victim in candidates {
            if freed_bytes >= wanted.size_bytes() {
                break;
            }
            if state.memory.leave(&victim.storage) {
                freed_bytes += victim.storage.size_bytes();
            }
        }
        state.counters.dropped_bytes += freed_bytes;
        Ok(freed_bytes)
    }

    /// Puts storages out to the host's memory until so many bytes are free as `wanted` takes.
    pub(super) async fn put_out_to_host(&self, wanted: &Arc<Storage>) -> Result<u64> {
        if self.caps().maps_slabs {
            // Host and device share one memory: nothing would be gained.
            return Ok(0);
        }
        let victims = self.lock().victims();
        let enough_bytes = wanted.size_bytes() + wanted.size_bytes() / 100 * AHEAD_PERCENT;
        let (mut leaving, mut leaving_bytes) = (Vec::new(), 0);
        for victim in victims {
            if leaving_bytes >= enough_bytes {
                break;
            }
            if victim.is_clean {
                continue;
            }
            let size_bytes = victim.storage.size_bytes();
            let Some(next) = self.start_leaving(victim).await? else {
                continue;
            };
            leaving.push(next);
            leaving_bytes += size_bytes;
        }
        self.finish_leaving(leaving).await
    }

    /// Puts one storage out, wherever there is room for it; it is where it was if that fails.
    pub(crate) async fn evict(&self, storage: &Arc<Storage>) -> Result<()> {
        self.check_lost()?;
        let _turn = self.turn.take().await;
        self.walk().await?;
        self.error_of(storage)?;
        let victim = {
            let mut state = self.lock();
            if storage.residency() != Residency::Device || state.memory.leave(storage) {
                return Ok(());
            }
            state.memory.candidate(storage)
        };
        let victim = victim.ok_or_else(|| Error::Pinned {
            operation: "evict",
            made_at: storage.tag().to_string(),
        })?;
        let leaving = self.start_leaving(victim).await?;
        let leaving = leaving.ok_or_else(|| Error::Option {
            option: "budget",
            reason: "neither the host nor the disk has room for the tensor".into(),
        })?;
        self.finish_leaving(vec![leaving]).await?;
        Ok(())
    }

    /// Records the copies that take a victim's bytes to the host. `None` if the host has no room.
    async fn start_leaving(&self, victim: Candidate) -> Result<Option<Leaving>> {
        let len_bytes = victim.storage.len_bytes();
        let Some(charge) = self.host.charge(len_bytes) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(len_bytes as usize).is_err() {
            return Ok(None);
        }
        let bytes = Arc::new(Mutex::new(bytes));
        let into = bytes.clone();
        let sink = Box::new(move |piece: &[u8]| {
            let mut into = into.lock().unwrap_or_else(PoisonError::into_inner);
            into.extend_from_slice(piece);
        });
        let (reading, pieces) = Reading::new(0, len_bytes, self.readbacks.piece_bytes(), sink);
        for piece in pieces {
            let (start, size_bytes) = piece.words();
            let buffer = loop {
                if let Some(buffer) = self.readbacks.take(size_bytes) {
                    break buffer;
                }
                self.submit()?;
                if let Err(error) = self.readbacks.provide(size_bytes).await {
                    self.check_lost()?;
                    reading.fail(refusal("a read-back buffer", error));
                    return Ok(None);
                }
            };
            let mut state = self.lock();
            state.memory.touch(victim.place);
            state.batch.reads.push((reading.clone(), piece, buffer));
            state.batch.ops.push(Op::Copy {
                src: victim.place.buffer,
                src_offset_bytes: victim.place.offset_bytes + start,
                dst: buffer.0,
                dst_offset_bytes: 0,
                size_bytes,
            });
        }
        Ok(Some(Leaving {
            victim,
            charge,
            bytes,
            reading,
        }))
    }

    /// Waits until the bytes have arrived; those storages leave, the others stay. Returns the
    /// bytes that this frees.
    async fn finish_leaving(&self, leaving: Vec<Leaving>) -> Result<u64> {
        if leaving.is_empty() {
            return Ok(0);
        }
        self.submit()?;
        let mut freed_bytes = 0;
        for leaving in leaving {
            while !leaving.reading.is_done() && leaving.reading.failure().is_none() {
                let taken_in = self.readbacks.take_in(&leaving.reading).await;
                self.check_lost()?;
                if taken_in.is_err() {
                    break;
                }
            }
            if !leaving.reading.is_done() {
                leaving.reading.cancel();
                continue;
            }
            let mut bytes = leaving.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            let copy = Arc::new(HostCopy {
                bytes: std::mem::take(&mut *bytes),
                _charge: leaving.charge,
            });
            let storage = &leaving.victim.storage;
            let mut state = self.lock();
            state
                .memory
                .copied(storage, |copies| copies.host = Some(copy));
            if state.memory.leave(storage) {
                freed_bytes += storage.size_bytes();
                state.counters.put_out_bytes += storage.len_bytes();
            }
        }
        Ok(freed_bytes)
    }
}

impl super::state::State {
    /// Who may be put out, the least missed first.
    fn victims(&self) -> Vec<Candidate> {
        let mut candidates = self.memory.candidates(&self.needed_slots());
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.distance));
        candidates
    }
}
