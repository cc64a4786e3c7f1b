//! The diagnostics: they look for bugs while commands run. [`Diagnostics`] says for which.
//!
//! ```text
//!   blocks come and go ──► changes ────► fills of canaries and freed blocks ─┐
//!   a launch ────────────► watch ──────► looks at its results ─────────────┤ ops of the batch
//!   the end of a pass ───► look_over ──► one look at all canaries ───────────┘
//!                                                      │ four words an answer
//!               findings ◄──evaluate── collect ◄───────┘
//! ```
//!
//! A *look* is a dispatch that checks a range and writes an answer. Looks and fills are ops in the
//! same batches as the commands, at the right place in the queue. The answers stay in a separate
//! buffer. The engine collects them at the end of an execution pass whose results a caller waits
//! for, or when the buffer is half full. Without diagnostics there is no [`Diagnose`], and the only
//! cost is the check for it.

mod evaluate;
mod finding;
mod gear;
pub(crate) mod kernels;
mod look;
mod over;
#[cfg(any(test, feature = "sim"))]
mod reference;
mod watch;

use std::sync::Arc;

use super::state::State;
use super::state::caches::Bindings;
use crate::driver::{At, Binding, BufferId, Caps, DriverResult, Op};
use crate::memory::{Change, Place, Storage, Zone};
pub use finding::{Diagnostics, Finding, Findings, Leak};
pub(super) use gear::Gear;
pub use look::Look;
use look::PAGE_ANSWERS;
pub(super) use look::{ANSWER_BYTES, PARAMS_BYTES, PATTERN_BYTES};
pub(super) use over::{ZoneGroup, begin_look_over, look_at_freed, look_at_groups};
use watch::Watch;
pub(super) use watch::{forget_past, watch_after, watch_before, watch_foreign, watch_read};

/// A workgroup looks at no fewer elements than `LEAST_SHARE`, unless it is the only one. At most
/// `MOST_SHARES` workgroups share a look.
const LEAST_SHARE: u64 = 8192;
const MOST_SHARES: u64 = 32;

/// The number of commands whose names are kept as suspects of a finding.
const MOST_SUSPECTS: usize = 8;

/// A range without rows, so without padding.
const NO_ROWS: (u32, u32) = (0, 0);

/// The reason of a look that was not taken.
const NO_ROOM: &str = "the buffer for answers was full";

/// The subject of an answer.
#[derive(Debug)]
enum About {
    /// A canary, which should hold the pattern.
    Canary(Zone),
    /// The canary behind the range that the user's kernel of this name may write to.
    End(Zone, String),
    /// A freed range, which should still hold the pattern.
    Freed(Zone),
    /// The output of a user's kernel, by the number of its last write.
    Output(u64),
    /// A result, by the number of its last write.
    Result(u64),
}

/// A look whose answer has not come yet.
#[derive(Debug)]
pub(super) struct Asked {
    about: About,
    /// The first of its answers.
    first: u32,
    count: u32,
    /// The first element that it examines, counted from the start of its subject.
    from: u64,
}

/// The state of the diagnostics.
#[derive(Default)]
pub(super) struct Diagnose {
    pub(super) wants: Diagnostics,
    /// The device resources of the diagnostics, once they exist.
    pub(super) gear: Option<Gear>,
    pub(super) asked: Vec<Asked>,
    /// The number of looks in accepted submissions.
    pub(super) submitted: usize,
    /// The number of answers in use.
    pub(super) used: u32,
    /// The commands since the last complete check, the latest at the end.
    pub(super) suspects: Vec<String>,
    /// Whether no look was missed since the last check of everything began.
    pub(super) is_all_seen: bool,
    /// The reason of the first missed look that the app has not learned of.
    pub(super) missed: Option<String>,
    watch: Watch,
}

impl Diagnose {
    pub(super) fn new(wants: Diagnostics) -> Option<Box<Self>> {
        wants.looks().then(|| {
            Box::new(Diagnose {
                wants,
                is_all_seen: true,
                ..Diagnose::default()
            })
        })
    }

    /// Notes that a result has padding: see [`Watch::pads`].
    pub(super) fn pads(&mut self, storage: &Arc<Storage>, rows: (u32, u32)) {
        self.watch.pads(storage, rows);
    }

    /// Whether the pass must collect answers before it asks more.
    pub(super) fn is_half_full(&self) -> bool {
        let answers = self.gear.as_ref().map_or(u32::MAX, |gear| gear.answers);
        self.used > answers / 2
    }

    /// Reserves answers. They are in one page if they fit into one.
    fn take_answers(&mut self, count: u32) -> Option<u32> {
        let gear = self.gear.as_ref()?;
        let in_page = self.used % PAGE_ANSWERS;
        let skipped = match in_page + count > PAGE_ANSWERS && count <= PAGE_ANSWERS {
            true => PAGE_ANSWERS - in_page,
            false => 0,
        };
        let first = self.used + skipped;
        (first + count <= gear.answers).then(|| {
            self.used = first + count;
            first
        })
    }

    /// Forgets the looks on a lost device.
    pub(super) fn device_gone(&mut self) {
        self.gear = None;
        self.forget_asked(0);
        self.missed = None;
        self.watch = Watch::default();
    }

    /// Forgets all looks but the first `keep`, because they will not be answered.
    fn forget_asked(&mut self, keep: usize) {
        let keep = keep.min(self.asked.len());
        for asked in self.asked.drain(keep..) {
            if let About::Result(version) = asked.about {
                self.watch.forget_look(version);
            }
        }
        self.submitted = self.submitted.min(keep);
        let last = self.asked.last();
        self.used = last.map_or(0, |last| last.first + last.count);
    }

    /// Notes that a look was not taken or not answered. Callers that ask for findings learn of it.
    #[cold]
    pub(super) fn note_missed(&mut self, reason: &str) {
        self.is_all_seen = false;
        if self.missed.is_none() {
            log::warn!("lapidary: the diagnostics missed a check: {reason}");
            self.missed = Some(reason.to_owned());
        }
    }

    /// Adds a command to the suspects.
    fn add_suspect(&mut self, name: String) {
        if self.suspects.last() != Some(&name) {
            self.suspects.retain(|one| *one != name);
            self.suspects.push(name);
            if self.suspects.len() > MOST_SUSPECTS {
                self.suspects.remove(0);
            }
        }
    }
}

impl Diagnose {
    /// Fills a zone with the pattern.
    fn fill(&self, state: &mut State, zone: &Zone) {
        let Some(gear) = &self.gear else { return };
        state.memory.slabs.touch(zone.place);
        let mut done = 0;
        while done < zone.size_bytes {
            let size_bytes = PATTERN_BYTES.min(zone.size_bytes - done);
            let (pattern, to) = (At(gear.buffer, 0), zone.place.at(done));
            state.batch.ops.push(Op::Copy(pattern, to, size_bytes));
            done += size_bytes;
        }
    }

    /// Looks at a zone, unless the free answers are needed for launches.
    fn look_at_zone(&mut self, state: &mut State, zone: Zone, about: fn(Zone) -> About) {
        let range = (zone.place, zone.size_bytes);
        let answers = self.gear.as_ref().map_or(0, |gear| gear.answers);
        if self.used > answers / 4 * 3 {
            self.note_missed(NO_ROOM);
            return;
        }
        let about = || about(zone.clone());
        self.look_at(state, Look::Words, range, NO_ROWS, &about);
    }

    /// Looks at a range of a slab. Counts the look as missed if there is no room for its answers.
    /// The range may have rows of `of` elements, of which all after the first `row` are padding.
    fn look_at(
        &mut self,
        state: &mut State,
        look: Look,
        (place, size_bytes): (Place, u64),
        (of, row): (u32, u32),
        about: &dyn Fn() -> About,
    ) {
        let (alignment, window_bytes) = steps(state.driver.caps());
        let end = place.offset_bytes + size_bytes;
        let mut at = place.offset_bytes;
        while at < end {
            let base = at & !(alignment - 1);
            let stop = end.min(base + window_bytes);
            let elements = (stop - at) / look.element_bytes();
            let shares = (elements / LEAST_SHARE).clamp(1, MOST_SHARES) as u32;
            let Some(first) = self.take_answers(shares) else {
                if self.gear.is_some() {
                    self.note_missed(NO_ROOM);
                }
                return;
            };
            let from = (at - place.offset_bytes) / look.element_bytes();
            self.asked.push(Asked {
                about: about(),
                first,
                count: shares,
                from,
            });
            let seen = Binding {
                buffer: place.buffer,
                offset_bytes: base,
                size_bytes: (stop - base).next_multiple_of(4),
            };
            let rows = [of, row, (from % u64::from(of.max(1))) as u32, 0];
            let start = (at - base) as u32 / 4;
            let range = [start, elements as u32, first, shares];
            let params = [range, rows];
            self.dispatch(state, look, seen, params, shares);
            at = stop;
        }
        state.memory.slabs.touch(place);
    }

    fn dispatch(
        &mut self,
        state: &mut State,
        look: Look,
        seen: Binding,
        params: [[u32; 4]; 2],
        groups: u32,
    ) {
        let Some(gear) = &self.gear else { return };
        // A table binds all answers, any other look a page of them.
        let [[start, elements, first, shares], rows] = params;
        let (page, shown) = match look {
            Look::Table => (0, gear.answers),
            _ => (first & !(PAGE_ANSWERS - 1), PAGE_ANSWERS.min(gear.answers)),
        };
        let answers = Binding {
            buffer: gear.buffer,
            offset_bytes: PATTERN_BYTES + u64::from(page) * ANSWER_BYTES,
            size_bytes: u64::from(shown) * ANSWER_BYTES,
        };
        let params = [[start, elements, first - page, shares], rows];
        let bindings = Bindings::from_slice(&[seen, answers]);
        let pipeline = gear.pipelines[look as usize];
        let group = pipeline.map(|pipeline| (pipeline, state.groups.get(pipeline, bindings)));
        let Some((pipeline, Ok(bind_group))) = group else {
            // This look writes no answer, so none must be read.
            let is_asked = |asked: &Asked| asked.first + asked.count <= first;
            self.asked.retain(is_asked);
            self.note_missed("the driver refused a bind group");
            return;
        };
        let params = bytemuck::bytes_of(&params);
        (state.batch).dispatch(pipeline, bind_group, params, [groups, 1, 1]);
        if let Some(times) = &mut state.timing.times {
            state.batch.timed.push(times.of_check("probe"));
        }
    }
}

/// Lets the diagnostics work on the state that they are a part of. `None` without diagnostics.
pub(super) fn with<T>(
    state: &mut State,
    work: impl FnOnce(&mut Diagnose, &mut State) -> T,
) -> Option<T> {
    let mut diagnose = state.diagnose.take()?;
    let done = work(&mut diagnose, state);
    state.diagnose = Some(diagnose);
    Some(done)
}

/// The buffer of the pattern and the answers.
pub(super) fn gear_buffer(state: &State) -> Option<BufferId> {
    let gear = state.diagnose.as_ref()?.gear.as_ref();
    gear.map(|gear| gear.buffer)
}

/// Takes the answers to all looks, or the error that prevented them. Returns the findings.
pub(super) fn answered(state: &mut State, answers: DriverResult<Vec<u8>>) -> Vec<Finding> {
    let mut found = Vec::new();
    with(state, |diagnose, state| {
        match answers {
            Ok(answers) => diagnose.evaluate(state, &answers, &mut found),
            // Without the answers, the results of the looks are unknown.
            Err(error) => diagnose.note_missed(&format!("{error:?}")),
        }
        diagnose.forget_asked(0);
    });
    found
}

/// Fills and looks at the blocks that were allocated or freed since the last call.
#[cold]
pub(super) fn handle_changes(state: &mut State) {
    let changes = state.memory.canaries.take_changes(&state.memory.slabs);
    with(state, |diagnose, state| {
        let wants = diagnose.wants;
        for change in changes {
            match change {
                Change::Came(canary) => diagnose.fill(state, &canary),
                Change::Went { block, canary } => {
                    if wants.canaries {
                        diagnose.look_at_zone(state, canary, About::Canary);
                    }
                    if wants.poison {
                        diagnose.fill(state, &block);
                    }
                }
                Change::Reused(zone) => diagnose.look_at_zone(state, zone, About::Freed),
            }
        }
    });
}

/// Forgets the fills and looks of a refused submission.
pub(super) fn not_answered(state: &mut State) {
    if let Some(diagnose) = &mut state.diagnose {
        diagnose.forget_asked(diagnose.submitted);
        // All canaries are filled again, because the lost fills are not known one by one.
        diagnose.note_missed("the driver refused a submission");
        let memory = &mut state.memory;
        (memory.canaries).fill_again(&memory.slots, &memory.slabs);
    }
}

/// The alignment of bindings, and the largest window of a slab.
fn steps(caps: &Caps) -> (u64, u64) {
    let alignment = caps.offset_alignment_bytes;
    (alignment, caps.max_binding_bytes & !(alignment - 1))
}
