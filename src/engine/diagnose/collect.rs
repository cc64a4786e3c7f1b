//! Looking at all there is, and having the answers.

use std::sync::{Arc, Mutex, PoisonError};

use super::{ANSWER_BYTES, About, Asked, Diagnose, Look, PATTERN_BYTES, steps};
use crate::driver::{Binding, DriverError, DriverResult, Op};
use crate::engine::Engine;
use crate::engine::state::State;
use crate::error::Result;
use crate::memory::Zone;
use crate::transfer::{Piece, Reading};

/// Fences of one slab that one binding shows.
struct Group {
    seen: Binding,
    fences: Vec<Zone>,
}

impl Engine {
    /// At the end of a walk that somebody waits for: looks at every fence and all that is poisoned, and has
    /// the answers. The caller has the turn.
    pub(in crate::engine) async fn look_over(&self) -> Result<()> {
        let (fences, graves) = {
            let mut state = self.lock();
            if state.diagnose.is_none() {
                return Ok(());
            }
            state.attend();
            state.memory.zones()
        };
        for grave in graves {
            if self.lock().need_of_diagnose().is_some() {
                self.collect().await?;
            }
            self.lock().look_at_grave(grave);
        }
        let mut rest = self.lock().by_window(fences).into_iter().peekable();
        while rest.peek().is_some() {
            if self.lock().need_of_diagnose().is_some() {
                self.collect().await?;
            }
            let most = self.lock().free_answers();
            let (mut some, mut count) = (Vec::new(), 0);
            while let Some(group) = rest.next_if(|group| count + group.fences.len() <= most) {
                count += group.fences.len();
                some.push(group);
            }
            if some.is_empty() {
                break;
            }
            let looked = self.look_at_fences(some).await;
            self.check_lost()?;
            if looked.is_err() {
                // There is no memory for it now: the next walk looks again.
                break;
            }
        }
        self.collect().await?;
        if let Some(diagnose) = &mut self.lock().diagnose {
            diagnose.suspects.clear();
        }
        Ok(())
    }

    /// One dispatch a slab, or window of one, over a table of their places.
    async fn look_at_fences(&self, groups: Vec<Group>) -> DriverResult<()> {
        let mut table = Vec::new();
        for group in &groups {
            for fence in &group.fences {
                let start = (fence.place.offset_bytes - group.seen.offset_bytes) / 4;
                let words = [start as u32, (fence.size_bytes / 4) as u32, 0, 0];
                table.extend_from_slice(bytemuck::bytes_of(&words));
            }
        }
        let first = match &self.lock().diagnose {
            Some(diagnose) => diagnose.used,
            None => return Ok(()),
        };
        let at = PATTERN_BYTES + u64::from(first) * ANSWER_BYTES;
        self.stage_for_gear(&table, at).await?;
        let mut state = self.lock();
        let Some(mut diagnose) = state.diagnose.take() else {
            return Ok(());
        };
        for group in groups {
            let count = group.fences.len() as u32;
            let Some(first) = diagnose.take_answers(count) else {
                break;
            };
            for (fence, answer) in group.fences.into_iter().zip(first..) {
                state.memory.touch(fence.place);
                diagnose.asked.push(Asked {
                    about: About::Fence(fence),
                    first: answer,
                    count: 1,
                    from: 0,
                });
            }
            let params = [[0, count, first, 0], [0; 4]];
            let groups = count.div_ceil(64);
            state.dispatch(&mut diagnose, Look::Table, group.seen, params, groups);
        }
        state.diagnose = Some(diagnose);
        Ok(())
    }

    /// Waits for the answers to all that was asked, and says what was found.
    pub(in crate::engine) async fn collect(&self) -> Result<()> {
        // What the batch asks is answered with it; a refusal takes the questions back.
        self.submit()?;
        let used = match &self.lock().diagnose {
            Some(diagnose) => diagnose.used,
            None => return Ok(()),
        };
        if used == 0 {
            return Ok(());
        }
        let answers = self.read_answers(used).await;
        self.check_lost()?;
        let (found, findings) = {
            let mut state = self.lock();
            let Some(mut diagnose) = state.diagnose.take() else {
                return Ok(());
            };
            let mut found = Vec::new();
            match answers {
                Ok(answers) => state.evaluate(&mut diagnose, &answers, &mut found),
                // Where there is no memory to read them, nothing is known of what was asked.
                Err(error) => log_unread(&error),
            }
            diagnose.forget_asked(0);
            let findings = diagnose.wanted.findings.clone();
            state.diagnose = Some(diagnose);
            (found, findings)
        };
        found.into_iter().for_each(|finding| findings.push(finding));
        Ok(())
    }

    async fn read_answers(&self, used: u32) -> DriverResult<Vec<u8>> {
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let into = arrived.clone();
        let sink = move |bytes: &[u8]| {
            let mut arrived = into.lock().unwrap_or_else(PoisonError::into_inner);
            arrived.extend_from_slice(bytes);
        };
        let size_bytes = u64::from(used) * ANSWER_BYTES;
        let piece_bytes = self.readbacks.piece_bytes();
        let (reading, pieces) =
            Reading::new(PATTERN_BYTES, size_bytes, piece_bytes, Box::new(sink));
        for piece in pieces {
            self.readbacks.provide(piece.size_bytes).await?;
            if !self.lock().read_answer(&reading, piece) {
                return Err(DriverError::OutOfMemory);
            }
            let submitted = self.submit();
            submitted.map_err(|error| DriverError::Lost(error.to_string()))?;
            self.readbacks.take_in(&reading).await?;
        }
        let mut arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
        match arrived.len() as u64 == size_bytes {
            true => Ok(std::mem::take(&mut *arrived)),
            false => Err(DriverError::Invalid("the answers did not arrive".into())),
        }
    }
}

fn log_unread(error: &DriverError) {
    log::warn!("lapidary: some of what was looked for is not known: {error:?}");
}

impl State {
    fn read_answer(&mut self, reading: &Arc<Reading>, piece: Piece) -> bool {
        let gear = self.diagnose.as_ref().and_then(|one| one.gear.as_ref());
        let buffer = self.readbacks.take(piece.size_bytes);
        let (Some(gear), Some(buffer)) = (gear, buffer) else {
            return false;
        };
        self.batch.ops.push(Op::Copy {
            src: gear.buffer,
            src_offset_bytes: piece.offset_bytes,
            dst: buffer.0,
            dst_offset_bytes: 0,
            size_bytes: piece.size_bytes,
        });
        self.batch.reads.push((reading.clone(), piece, buffer));
        true
    }

    fn look_at_grave(&mut self, grave: Zone) {
        if let Some(mut diagnose) = self.diagnose.take() {
            self.look_at_zone(&mut diagnose, grave, About::Grave);
            self.diagnose = Some(diagnose);
        }
    }

    fn free_answers(&self) -> usize {
        let diagnose = self.diagnose.as_ref();
        let free = diagnose.and_then(|one| Some(one.gear.as_ref()?.answers - one.used));
        free.unwrap_or(0) as usize
    }

    /// Fences, which are sorted by slab and offset, as bindings show them; so few in each that their answers
    /// find room.
    fn by_window(&self, fences: Vec<Zone>) -> Vec<Group> {
        let (alignment, window_bytes) = steps(self.driver.caps());
        let gear = self.diagnose.as_ref().and_then(|one| one.gear.as_ref());
        let most = gear.map_or(0, |gear| gear.answers as usize / 2);
        let mut groups: Vec<Group> = Vec::new();
        for fence in fences {
            let place = fence.place;
            let end = place.offset_bytes + fence.size_bytes;
            match groups.last_mut() {
                Some(Group { seen, fences })
                    if seen.buffer == place.buffer
                        && end - seen.offset_bytes <= window_bytes
                        && fences.len() < most =>
                {
                    seen.size_bytes = end - seen.offset_bytes;
                    fences.push(fence);
                }
                _ => {
                    let base = place.offset_bytes & !(alignment - 1);
                    groups.push(Group {
                        seen: Binding {
                            buffer: place.buffer,
                            offset_bytes: base,
                            size_bytes: end - base,
                        },
                        fences: vec![fence],
                    });
                }
            }
        }
        groups
    }
}

impl Diagnose {
    /// All that was asked so far is on its way.
    pub(in crate::engine) fn was_submitted(&mut self) {
        self.submitted = self.asked.len();
    }
}
