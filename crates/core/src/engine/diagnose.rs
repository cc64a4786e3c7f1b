//! Bugs are looked for while commands run: [`Diagnostics`] says which.
//!
//! ```text
//!   blocks come and go ──► memory's changes ──attend──► fills of fences and poison ─┐
//!   a launch ────────────► watch ──────────────────────► looks at what it wrote ────┤ ops of the batch
//!   a pass's end ────────► look_over ──────────────────► one look at all fences ────┘
//!                                                                 │ four words an answer
//!                          findings ◄──evaluate── collect ◄───────┘
//! ```
//!
//! Everything is ops in the same batches as the commands, at the place in the queue where it is
//! meant. The answers lie in a buffer of their own until an execution pass that somebody waits for
//! has ended, or it is half full. Where nothing is looked for there is no [`Diagnose`], and asking
//! for it is all that it costs.

mod evaluate;
mod finding;
mod gear;
pub(crate) mod kernels;
mod over;
mod reference;
mod watch;

use super::caches::Bindings;
use super::kernel::Launch;
use super::state::State;
use std::sync::Arc;

use crate::driver::{Binding, BufferId, Caps, DriverResult, Op};
use crate::dtype::DType;
use crate::memory::{Change, Place, Storage, Zone};
pub use finding::{Diagnostics, Finding, Findings, Leak};
pub(super) use gear::Gear;
pub(super) use over::{Group, begin_look_over, look_at_grave, look_at_groups};
use watch::Watch;
pub(super) use watch::{watch_after, watch_before, watch_foreign, watch_read};

/// The pattern lies ready in so many bytes, to be copied from.
pub(super) const PATTERN_BYTES: u64 = 64 << 10;

/// An answer is four words.
pub(super) const ANSWER_BYTES: u64 = 16;

/// So many answers find room, where a binding shows as many.
const MOST_ANSWERS: u64 = 16 << 10;

/// So many are kept where memory is short.
const LEAST_ANSWERS: u64 = 4 << 10;

/// A look at one range sees so many of them, of which its own are some.
const PAGE_ANSWERS: u32 = 256;

/// Bytes of the parameters of a look.
pub(super) const PARAMS_BYTES: u32 = 32;

/// A workgroup looks at so many elements at least, before another one helps; so many do at most.
const LEAST_SHARE: u64 = 8192;
const MOST_SHARES: u64 = 32;

/// The names of so many commands that ran are kept, for those who ask who it was.
const MOST_SUSPECTS: usize = 8;

/// Why something was not looked at.
const NO_ROOM: &str = "more was to be looked at at once than finds room for its answers";

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Words that are not the pattern.
    Words,
    /// The same, of many ranges.
    Table,
    /// Words that are, which become zeros.
    Mend,
    /// NaN and infinities.
    F32,
    /// The same, of halves, ...
    F16,
    /// ... and of the upper halves of f32.
    Bf16,
}

impl Look {
    /// Every look, by its code.
    pub const ALL: [Look; 6] = [
        Look::Words,
        Look::Table,
        Look::Mend,
        Look::F32,
        Look::F16,
        Look::Bf16,
    ];

    /// That of a variant's code.
    pub(crate) fn of(code: u64) -> Look {
        let known = Look::ALL.get(code as usize);
        known.copied().unwrap_or(Look::Words)
    }

    fn of_dtype(dtype: DType) -> Option<Look> {
        match dtype {
            DType::F32 => Some(Look::F32),
            DType::F16 => Some(Look::F16),
            DType::Bf16 => Some(Look::Bf16),
            _ => None,
        }
    }

    fn is_wanted(self, wants: Diagnostics) -> bool {
        match self {
            Look::Words | Look::Table => wants.canaries || wants.poison,
            Look::Mend => wants.unwritten,
            Look::F32 | Look::F16 | Look::Bf16 => wants.non_finite,
        }
    }

    fn element_bytes(self) -> u64 {
        match self {
            Look::F16 | Look::Bf16 => 2,
            _ => 4,
        }
    }
}

/// What an engine is told of it.
pub(crate) struct Wanted {
    pub(crate) diagnostics: Diagnostics,
    /// What a launch computes, as whoever called for it would say.
    pub(crate) operation: fn(&Launch) -> String,
    pub(crate) findings: Findings,
}

/// What an answer is about.
#[derive(Debug)]
enum About {
    /// A fence, which should be whole.
    Fence(Zone),
    /// The end of what a user's kernel of this name has written to.
    End(Zone, String),
    /// What was freed, which should be as it was left.
    Grave(Zone),
    /// The output of a user's kernel, by the number of its last write.
    Output(u64),
    /// A result, by the number of its last write.
    Result(u64),
}

/// A look that was asked for.
#[derive(Debug)]
struct Asked {
    about: About,
    /// Its answers.
    first: u32,
    count: u32,
    /// The first element that it looks at, counted from that of what it is about.
    from: u64,
}

/// All that looking takes.
pub(super) struct Diagnose {
    wanted: Wanted,
    gear: Option<Gear>,
    asked: Vec<Asked>,
    /// So many of these are in submissions that were accepted.
    submitted: usize,
    /// Answers that are spoken for.
    used: u32,
    /// What ran since all was last looked at, the latest at the end.
    suspects: Vec<String>,
    /// Nothing was missed since the last look over all began.
    is_all_seen: bool,
    /// Why something was missed that nobody was told of, the first time.
    missed: Option<String>,
    watch: Watch,
}

impl Diagnose {
    pub(super) fn new(wanted: Wanted) -> Option<Box<Self>> {
        wanted.diagnostics.looks().then(|| {
            Box::new(Diagnose {
                wanted,
                gear: None,
                asked: Vec::new(),
                submitted: 0,
                used: 0,
                suspects: Vec::new(),
                is_all_seen: true,
                missed: None,
                watch: Watch::default(),
            })
        })
    }

    pub(super) fn wants(&self) -> Diagnostics {
        self.wanted.diagnostics
    }

    /// Is there what looking takes?
    pub(super) fn has_gear(&self) -> bool {
        self.gear.is_some()
    }

    pub(super) fn set_gear(&mut self, gear: Gear) {
        self.gear = Some(gear);
    }

    /// So many answers are spoken for.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Why something was missed of which nobody has been told.
    pub(super) fn take_missed(&mut self) -> Option<String> {
        self.missed.take()
    }

    /// A result has padding: see [`Watch::pads`].
    pub(super) fn pads(&mut self, storage: &Arc<Storage>, rows: (u32, u32)) {
        self.watch.pads(storage, rows);
    }

    /// Must answers be collected before more is asked?
    pub(super) fn is_half_full(&self) -> bool {
        let answers = self.gear.as_ref().map_or(u32::MAX, |gear| gear.answers);
        self.used > answers / 2
    }

    /// Speaks for so many answers, which lie in one page if they fit into one.
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

    /// The device was lost, and with it whatever it should have answered.
    pub(super) fn device_gone(&mut self) {
        self.gear = None;
        self.forget_asked(0);
        self.missed = None;
        self.watch = Watch::default();
    }

    /// What was asked beyond the first so many is not answered.
    fn forget_asked(&mut self, keep: usize) {
        let keep = keep.min(self.asked.len());
        for asked in self.asked.drain(keep..) {
            if let About::Result(version) = asked.about {
                self.watch.is_not_seen(version);
            }
        }
        self.submitted = self.submitted.min(keep);
        let last = self.asked.last();
        self.used = last.map_or(0, |last| last.first + last.count);
    }

    /// Something was not looked at, or what was seen is not known: whoever asks what was found is
    /// told.
    #[cold]
    pub(super) fn miss(&mut self, reason: &str) {
        self.is_all_seen = false;
        if self.missed.is_none() {
            log::warn!("lapidary: some of what was looked for is not known: {reason}");
            self.missed = Some(reason.to_owned());
        }
    }

    /// This ran.
    fn ran(&mut self, name: String) {
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
    /// Copies the pattern all over a zone.
    fn fill(&self, state: &mut State, zone: &Zone) {
        let Some(gear) = &self.gear else { return };
        state.memory.touch(zone.place);
        let mut done = 0;
        while done < zone.size_bytes {
            let size_bytes = PATTERN_BYTES.min(zone.size_bytes - done);
            state.batch.push(Op::Copy {
                src: gear.buffer,
                src_offset_bytes: 0,
                dst: zone.place.buffer,
                dst_offset_bytes: zone.place.offset_bytes + done,
                size_bytes,
            });
            done += size_bytes;
        }
    }

    /// Looks at a zone, unless only as many answers are left as a launch may need.
    fn look_at_zone(&mut self, state: &mut State, zone: Zone, about: fn(Zone) -> About) {
        let (place, size_bytes) = (zone.place, zone.size_bytes);
        let answers = self.gear.as_ref().map_or(0, |gear| gear.answers);
        if self.used > answers / 4 * 3 {
            self.miss(NO_ROOM);
            return;
        }
        self.look_at(state, Look::Words, place, size_bytes, || {
            about(zone.clone())
        });
    }

    /// Looks at a range of a slab. What finds no room for its answers is not looked at.
    fn look_at(
        &mut self,
        state: &mut State,
        look: Look,
        place: Place,
        size_bytes: u64,
        about: impl Fn() -> About,
    ) {
        self.look_at_rows(state, look, (place, size_bytes), (0, 0), about);
    }

    /// The same, where so many elements are a row, and so many of each are no padding.
    fn look_at_rows(
        &mut self,
        state: &mut State,
        look: Look,
        (place, size_bytes): (Place, u64),
        (of, row): (u32, u32),
        about: impl Fn() -> About,
    ) {
        let (alignment, window_bytes) = steps(state.driver.caps());
        let end = place.offset_bytes + size_bytes;
        let mut at = place.offset_bytes;
        while at < end {
            let base = at & !(alignment - 1);
            let stop = end.min(base + window_bytes);
            let elements = (stop - at) / look.element_bytes();
            let shares = (elements / LEAST_SHARE).clamp(1, MOST_SHARES);
            let Some(first) = self.take_answers(shares as u32) else {
                if self.gear.is_some() {
                    self.miss(NO_ROOM);
                }
                return;
            };
            let from = (at - place.offset_bytes) / look.element_bytes();
            self.asked.push(Asked {
                about: about(),
                first,
                count: shares as u32,
                from,
            });
            let seen = Binding {
                buffer: place.buffer,
                offset_bytes: base,
                size_bytes: (stop - base).next_multiple_of(4),
            };
            let rows = [of, row, (from % u64::from(of.max(1))) as u32, 0];
            let range = [
                (at - base) as u32 / 4,
                elements as u32,
                first,
                shares as u32,
            ];
            let params = [range, rows];
            self.dispatch(state, look, seen, params, shares as u32);
            at = stop;
        }
        state.memory.touch(place);
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
        // All of them, or a page.
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
            // Nothing answers, so nothing is to be read from there.
            let is_asked = |asked: &Asked| asked.first + asked.count <= first;
            self.asked.retain(is_asked);
            self.miss("a bind group was refused");
            return;
        };
        let params = bytemuck::bytes_of(&params);
        (state.batch).dispatch(pipeline, bind_group, params, [groups, 1, 1]);
        if let Some(entry) = state.timing.of_check("probe") {
            state.batch.count_time(entry);
        }
    }
}

/// The buffer of the pattern and the answers.
pub(super) fn gear_buffer(state: &State) -> Option<BufferId> {
    let gear = state.diagnose.as_ref()?.gear.as_ref();
    gear.map(|gear| gear.buffer)
}

/// The answers to all that was asked have come, or will not. Returns what was found.
pub(super) fn answered(state: &mut State, answers: DriverResult<Vec<u8>>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(mut diagnose) = state.diagnose.take() {
        match answers {
            Ok(answers) => diagnose.evaluate(state, &answers, &mut found),
            // Where there is no memory to read them, nothing is known of what was asked.
            Err(error) => diagnose.miss(&format!("{error:?}")),
        }
        diagnose.forget_asked(0);
        state.diagnose = Some(diagnose);
    }
    found
}

/// Fills and looks where blocks came and went.
#[cold]
pub(in crate::engine) fn attend(state: &mut State) {
    let changes = state.memory.take_changes();
    let Some(mut diagnose) = state.diagnose.take() else {
        return;
    };
    let wants = diagnose.wants();
    for change in changes {
        match change {
            Change::Came(fence) => diagnose.fill(state, &fence),
            Change::Went { block, fence } => {
                if wants.canaries {
                    diagnose.look_at_zone(state, fence, About::Fence);
                }
                if wants.poison {
                    diagnose.fill(state, &block);
                }
            }
            Change::Reused(zone) => diagnose.look_at_zone(state, zone, About::Grave),
        }
    }
    state.diagnose = Some(diagnose);
}

/// A submission was refused, and with it what it should have filled and answered.
pub(in crate::engine) fn not_answered(state: &mut State) {
    if let Some(diagnose) = &mut state.diagnose {
        diagnose.forget_asked(diagnose.submitted);
        // Fences are made anew, whether or not somebody has seen them.
        diagnose.miss("a submission was refused");
        state.memory.fence_anew();
    }
}

/// The alignment of bindings, and how much one shows of a slab.
fn steps(caps: &Caps) -> (u64, u64) {
    let alignment = caps.offset_alignment_bytes;
    (alignment, caps.max_binding_bytes & !(alignment - 1))
}
