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

mod collect;
mod evaluate;
mod finding;
mod gear;
pub(crate) mod kernels;
mod leaks;
mod reference;
mod watch;

use std::sync::Arc;

use super::Engine;
use super::caches::Bindings;
use super::execute::Need;
use super::kernel::Launch;
use super::state::State;
use crate::driver::{Binding, Caps, Op};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::{Change, Place, Storage, Zone};
pub use finding::{Diagnostics, Finding, Findings, Leak};
use gear::Gear;
use watch::Watch;
pub(crate) use watch::{FENCED, UNWRITTEN};

/// The pattern lies ready in so many bytes, to be copied from.
const PATTERN_BYTES: u64 = 64 << 10;

/// An answer is four words.
const ANSWER_BYTES: u64 = 16;

/// So many answers find room, where a binding shows as many.
const MOST_ANSWERS: u64 = 16 << 10;

/// So many are kept where memory is short.
const LEAST_ANSWERS: u64 = 4 << 10;

/// A look at one range sees so many of them, of which its own are some.
const PAGE_ANSWERS: u32 = 256;

/// Bytes of the parameters of a look.
const PARAMS_BYTES: u32 = 32;

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
    fn miss(&mut self, reason: &str) {
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

impl Engine {
    /// What is looked for, where something is.
    pub(crate) fn diagnostics(&self) -> Option<Diagnostics> {
        self.wanted
    }

    /// What was found.
    pub(crate) fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Was all seen that was to be looked at, since this was asked the last time?
    pub(crate) fn check_missed(&self) -> Result<()> {
        let mut state = self.lock();
        let missed = state.diagnose.as_mut().and_then(|one| one.missed.take());
        match missed {
            None => Ok(()),
            Some(reason) => Err(Error::Driver {
                what: "some of the looks for bugs",
                message: format!(
                    "{reason}; give the device more memory, or flush more often. What was found is \
                     listed still"
                ),
            }),
        }
    }

    /// A result is longer than what it is to hold: of each row of so many elements the rest is
    /// padding, in which anything may be. Said before the launch that makes it.
    pub fn pads(&self, storage: &Arc<Storage>, row: usize, of: usize) {
        if row < of && self.wanted.is_some_and(|wanted| wanted.non_finite) {
            if let Some(diagnose) = &mut self.lock().diagnose {
                diagnose.watch.pads(storage, (of as u32, row as u32));
            }
        }
    }
}

impl State {
    /// What looking for bugs needs before the next command, if it needs something.
    #[inline]
    pub(super) fn need_of_diagnose(&self) -> Option<Need> {
        let diagnose = self.diagnose.as_ref()?;
        diagnose.is_half_full().then_some(Need::Answers)
    }

    /// An op of a command: what happened to blocks before comes first.
    #[inline]
    pub(super) fn push_op(&mut self, op: Op) {
        if self.memory.has_changes() {
            self.attend();
        }
        self.batch.ops.push(op);
    }

    /// Fills and looks where blocks came and went.
    #[cold]
    pub(super) fn attend(&mut self) {
        let changes = self.memory.take_changes();
        let Some(mut diagnose) = self.diagnose.take() else {
            return;
        };
        let wants = diagnose.wants();
        for change in changes {
            match change {
                Change::Came(fence) => self.fill(&diagnose, &fence),
                Change::Went { block, fence } => {
                    if wants.canaries {
                        self.look_at_zone(&mut diagnose, fence, About::Fence);
                    }
                    if wants.poison {
                        self.fill(&diagnose, &block);
                    }
                }
                Change::Reused(zone) => self.look_at_zone(&mut diagnose, zone, About::Grave),
            }
        }
        self.diagnose = Some(diagnose);
    }

    /// A submission was refused, and with it what it should have filled and answered.
    pub(super) fn not_answered(&mut self) {
        if let Some(diagnose) = &mut self.diagnose {
            diagnose.forget_asked(diagnose.submitted);
            // Fences are made anew, whether or not somebody has seen them.
            diagnose.miss("a submission was refused");
            self.memory.fence_anew();
        }
    }

    /// Copies the pattern all over a zone.
    fn fill(&mut self, diagnose: &Diagnose, zone: &Zone) {
        let Some(gear) = &diagnose.gear else { return };
        self.memory.touch(zone.place);
        let mut done = 0;
        while done < zone.size_bytes {
            let size_bytes = PATTERN_BYTES.min(zone.size_bytes - done);
            self.batch.ops.push(Op::Copy {
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
    fn look_at_zone(&mut self, diagnose: &mut Diagnose, zone: Zone, about: fn(Zone) -> About) {
        let (place, size_bytes) = (zone.place, zone.size_bytes);
        let answers = diagnose.gear.as_ref().map_or(0, |gear| gear.answers);
        if diagnose.used > answers / 4 * 3 {
            diagnose.miss(NO_ROOM);
            return;
        }
        self.look_at(diagnose, Look::Words, place, size_bytes, || {
            about(zone.clone())
        });
    }

    /// Looks at a range of a slab. What finds no room for its answers is not looked at.
    fn look_at(
        &mut self,
        diagnose: &mut Diagnose,
        look: Look,
        place: Place,
        size_bytes: u64,
        about: impl Fn() -> About,
    ) {
        self.look_at_rows(diagnose, look, (place, size_bytes), (0, 0), about);
    }

    /// The same, where so many elements are a row, and so many of each are no padding.
    fn look_at_rows(
        &mut self,
        diagnose: &mut Diagnose,
        look: Look,
        (place, size_bytes): (Place, u64),
        (of, row): (u32, u32),
        about: impl Fn() -> About,
    ) {
        let (alignment, window_bytes) = steps(self.driver.caps());
        let end = place.offset_bytes + size_bytes;
        let mut at = place.offset_bytes;
        while at < end {
            let base = at & !(alignment - 1);
            let stop = end.min(base + window_bytes);
            let elements = (stop - at) / look.element_bytes();
            let shares = (elements / LEAST_SHARE).clamp(1, MOST_SHARES);
            let Some(first) = diagnose.take_answers(shares as u32) else {
                if diagnose.gear.is_some() {
                    diagnose.miss(NO_ROOM);
                }
                return;
            };
            let from = (at - place.offset_bytes) / look.element_bytes();
            diagnose.asked.push(Asked {
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
            self.dispatch(diagnose, look, seen, params, shares as u32);
            at = stop;
        }
        self.memory.touch(place);
    }

    fn dispatch(
        &mut self,
        diagnose: &mut Diagnose,
        look: Look,
        seen: Binding,
        params: [[u32; 4]; 2],
        groups: u32,
    ) {
        let Some(gear) = &diagnose.gear else { return };
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
        let group = pipeline.map(|pipeline| (pipeline, self.groups.get(pipeline, bindings)));
        let Some((pipeline, Ok(bind_group))) = group else {
            // Nothing answers, so nothing is to be read from there.
            let is_asked = |asked: &Asked| asked.first + asked.count <= first;
            diagnose.asked.retain(is_asked);
            diagnose.miss("a bind group was refused");
            return;
        };
        let start = self.batch.params.len() as u32;
        self.batch
            .params
            .extend_from_slice(bytemuck::bytes_of(&params));
        self.batch.ops.push(Op::Dispatch {
            pipeline,
            bind_group,
            params: (start, PARAMS_BYTES),
            groups: [groups, 1, 1],
        });
        if let Some(times) = &mut self.times {
            self.batch.timed.push(times.of_check("probe"));
        }
    }
}

/// The alignment of bindings, and how much one shows of a slab.
fn steps(caps: &Caps) -> (u64, u64) {
    let alignment = caps.offset_alignment_bytes;
    (alignment, caps.max_binding_bytes & !(alignment - 1))
}
