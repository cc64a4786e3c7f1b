//! Looking at all there is, and having the answers.

use std::sync::{Arc, Mutex, PoisonError};

use super::{ANSWER_BYTES, About, Asked, Diagnose, Look, PATTERN_BYTES, steps};
use crate::driver::{Binding, DriverError, DriverResult, Op};
use crate::engine::Engine;
use crate::engine::state::State;
use crate::error::Result;
use crate::memory::Zone;
use crate::transfer::{Piece, Reading};

/// What was freed and has more bytes than so many is looked at by many invocations, all else by one
/// each.
const TABLED_BYTES: u64 = 4 << 10;

/// A zone, and what an answer is about that tells of it.
type Tabled = (Zone, fn(Zone) -> About);

/// Zones of one slab that one binding shows.
struct Group {
    seen: Binding,
    zones: Vec<Tabled>,
}

impl Engine {
    /// At the end of an execution pass that somebody waits for: looks at every fence and all that
    /// is poisoned, and has the answers. The caller has the execution lock.
    pub(in crate::engine) async fn look_over(&self) -> Result<()> {
        let (fences, graves) = {
            let mut state = self.lock();
            match &mut state.diagnose {
                Some(diagnose) => diagnose.is_all_seen = true,
                None => return Ok(()),
            }
            state.attend();
            state.memory.zones()
        };
        let is_large = |grave: &Zone| grave.size_bytes > TABLED_BYTES;
        let (large, small): (Vec<_>, Vec<_>) = graves.into_iter().partition(is_large);
        for grave in large {
            if self.lock().need_of_diagnose().is_some() {
                self.collect().await?;
            }
            self.lock().look_at_grave(grave);
        }
        let fences = fences
            .into_iter()
            .map(|zone| (zone, About::Fence as fn(_) -> _));
        let graves = small
            .into_iter()
            .map(|zone| (zone, About::Grave as fn(_) -> _));
        let mut zones: Vec<Tabled> = fences.chain(graves).collect();
        zones.sort_unstable_by_key(|(zone, _)| zone.order());
        let mut rest = self.lock().by_window(zones).into_iter().peekable();
        while rest.peek().is_some() {
            if self.lock().need_of_diagnose().is_some() {
                self.collect().await?;
            }
            let most = self.lock().free_answers();
            let (mut some, mut count) = (Vec::new(), 0);
            while let Some(group) = rest.next_if(|group| count + group.zones.len() <= most) {
                count += group.zones.len();
                some.push(group);
            }
            if some.is_empty() {
                break;
            }
            let looked = self.look_at_groups(some).await;
            self.check_lost()?;
            if let Err(error) = looked {
                // There is no memory for it now: the next execution pass looks again.
                if let Some(diagnose) = &mut self.lock().diagnose {
                    diagnose.miss(&format!("{error:?}"));
                }
                break;
            }
        }
        self.collect().await?;
        if let Some(diagnose) = &mut self.lock().diagnose {
            // Who damaged what was not seen is still to be named by the execution pass that sees
            // it.
            if diagnose.is_all_seen {
                diagnose.suspects.clear();
            }
        }
        Ok(())
    }

    /// One dispatch a slab, or window of one, over a table of their places.
    async fn look_at_groups(&self, groups: Vec<Group>) -> DriverResult<()> {
        let mut table = Vec::new();
        for group in &groups {
            for (zone, _) in &group.zones {
                let start = (zone.place.offset_bytes - group.seen.offset_bytes) / 4;
                let words = [start as u32, (zone.size_bytes / 4) as u32, 0, 0];
                table.extend_from_slice(bytemuck::bytes_of(&words));
            }
        }
        let count = (table.len() as u64 / ANSWER_BYTES) as u32;
        let first = match &mut self.lock().diagnose {
            Some(diagnose) => {
                let first = diagnose.used;
                diagnose.used += count;
                first
            }
            None => return Ok(()),
        };
        let at = PATTERN_BYTES + u64::from(first) * ANSWER_BYTES;
        self.stage_for_gear(&table, at).await?;
        let mut state = self.lock();
        let Some(mut diagnose) = state.diagnose.take() else {
            return Ok(());
        };
        let mut answer = first;
        for group in groups {
            let (first, count) = (answer, group.zones.len() as u32);
            for (zone, about) in group.zones {
                state.memory.touch(zone.place);
                diagnose.asked.push(Asked {
                    about: about(zone),
                    first: answer,
                    count: 1,
                    from: 0,
                });
                answer += 1;
            }
            let params = [[0, count, first, 0], [0; 4]];
            let groups = count.div_ceil(64);
            state.dispatch(&mut diagnose, Look::Table, group.seen, params, groups);
        }
        // A refusal meanwhile may have taken back what was asked before.
        diagnose.used = diagnose.used.max(answer);
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
                Err(error) => diagnose.miss(&format!("{error:?}")),
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

    /// Zones, which are sorted by slab and offset, as bindings show them; so few in each that their
    /// answers find room.
    fn by_window(&self, zones: Vec<Tabled>) -> Vec<Group> {
        let (alignment, window_bytes) = steps(self.driver.caps());
        let gear = self.diagnose.as_ref().and_then(|one| one.gear.as_ref());
        let most = gear.map_or(0, |gear| gear.answers as usize / 4);
        let mut groups: Vec<Group> = Vec::new();
        for (zone, about) in zones {
            let place = zone.place;
            let end = place.offset_bytes + zone.size_bytes;
            match groups.last_mut() {
                Some(Group { seen, zones })
                    if seen.buffer == place.buffer
                        && end - seen.offset_bytes <= window_bytes
                        && zones.len() < most =>
                {
                    seen.size_bytes = end - seen.offset_bytes;
                    zones.push((zone, about));
                }
                _ => {
                    let base = place.offset_bytes & !(alignment - 1);
                    groups.push(Group {
                        seen: Binding {
                            buffer: place.buffer,
                            offset_bytes: base,
                            size_bytes: end - base,
                        },
                        zones: vec![(zone, about)],
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
