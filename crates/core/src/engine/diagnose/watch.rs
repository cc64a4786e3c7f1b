//! Watches launches: the values that they read and the results that they write.

use std::sync::{Arc, Weak};

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::{About, Diagnose, Look, NO_ROWS};
use crate::dtype::DType;
use crate::engine::kernel::{Launch, Program, Role, UNWRITTEN};
use crate::engine::state::State;
use crate::memory::{CANARY_BYTES, Canaries, Storage, Tag, Zone};
use crate::number_map::NumberMap;

/// Whether a value has NaN or infinities.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taint {
    pub(super) nan: bool,
    pub(super) infinity: bool,
}

impl std::ops::BitOr for Taint {
    type Output = Taint;

    fn bitor(self, other: Taint) -> Taint {
        Taint {
            nan: self.nan || other.nan,
            infinity: self.infinity || other.infinity,
        }
    }
}

/// The origin of a value.
#[derive(Debug)]
pub(super) struct ValueOrigin {
    /// The operation that computed it. `None` for values that the app or a source wrote.
    pub(super) operation: Option<String>,
    pub(super) tag: Tag,
    pub(super) dtype: DType,
    pub(super) elements: u64,
    /// The values from which it was computed.
    inputs: SmallVec<[u64; 4]>,
    /// Problems (NaN, infinity) inherited from inputs whose history was dropped.
    inherited: Taint,
    /// Whether a look at the value was or will be taken.
    is_asked: bool,
    /// The result of the look, once it is known.
    pub(super) taint: Option<Taint>,
}

/// The output of a user's kernel.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) kernel: String,
    pub(super) tag: Tag,
    pub(super) words: u64,
    /// The number of unwritten words and the index of the first, once they are known.
    pub(super) unwritten: Option<(u64, u64)>,
    pub(super) read_by: Option<String>,
}

/// The history of values, by the numbers of the writes that made them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) makers: NumberMap<ValueOrigin>,
    pub(super) outputs: NumberMap<Output>,
    /// Results with padding, as (elements of a row, elements that are no padding).
    padded: Vec<(Weak<Storage>, (u32, u32))>,
    /// For the launch that is being encoded: its operation, its inputs, and a bit for each operand
    /// that is a whole value after it.
    operation: String,
    inputs: SmallVec<[u64; 4]>,
    whole: u8,
}

impl Watch {
    pub(super) fn pads(&mut self, storage: &Arc<Storage>, rows: (u32, u32)) {
        self.padded.push((Arc::downgrade(storage), rows));
    }

    /// The rows of a storage, as in `padded`; `NO_ROWS` without padding.
    fn rows(&self, storage: &Storage) -> (u32, u32) {
        let is_it = |one: &&(Weak<Storage>, _)| std::ptr::eq(one.0.as_ptr(), storage);
        self.padded.iter().find(is_it).map_or(NO_ROWS, |one| one.1)
    }

    /// The problems of a value's inputs. If those of an input are unknown, the problems of its own
    /// inputs count.
    pub(super) fn taint_of_inputs(&self, version: u64) -> Taint {
        let mut all = Taint::default();
        let mut seen = FxHashSet::default();
        let mut open: SmallVec<[u64; 4]> = SmallVec::new();
        open.push(version);
        while let Some(version) = open.pop() {
            let Some(maker) = self.makers.get(&version) else {
                continue;
            };
            all = all | maker.inherited;
            for &input in &maker.inputs {
                match self.makers.get(&input).and_then(|maker| maker.taint) {
                    Some(taint) => all = all | taint,
                    None if seen.insert(input) => open.push(input),
                    None => {}
                }
            }
        }
        all
    }

    /// Notes that a look at a value was not answered. The next command that reads the value takes
    /// another look.
    pub(super) fn forget_look(&mut self, version: u64) {
        if let Some(maker) = self.makers.get_mut(&version) {
            maker.is_asked = false;
        }
    }

    /// Forgets the history of all values but `live`, after all looks were answered.
    pub(super) fn forget_all_but(&mut self, live: &FxHashSet<u64>) {
        let versions = self.makers.iter().map(|(version, _)| *version);
        let versions = versions.filter(|version| live.contains(version));
        let inherited = versions.map(|version| (version, self.taint_of_inputs(version)));
        let inherited: Vec<_> = inherited.collect();
        self.makers.retain(|version, _| live.contains(version));
        for (version, taint) in inherited {
            if let Some(maker) = self.makers.get_mut(&version) {
                maker.inherited = taint;
                maker.inputs.clear();
            }
        }
        self.padded.retain(|one| one.0.strong_count() > 0);
        self.outputs.retain(|version, output| {
            let is_settled = output.unwritten.is_some_and(|(words, _)| words == 0);
            live.contains(version) && !is_settled
        });
    }

    fn is_read(&mut self, version: u64, by: &str) {
        if let Some(output) = self.outputs.get_mut(&version) {
            output.read_by.get_or_insert_with(|| by.to_owned());
        }
    }
}

impl Diagnose {
    /// Counts NaN and infinities in the value of a storage, unless a look was taken. `range`: start
    /// and size of the part that a command uses, as the rest may never have been written.
    fn look_at_value(
        &mut self,
        state: &mut State,
        storage: &Storage,
        dtype: DType,
        range: Option<(u64, u64)>,
    ) {
        let version = state.memory.slots.writes_to(storage);
        let makers = &mut self.watch.makers;
        let maker = makers
            .entry(version)
            .or_insert_with(|| maker(storage, dtype));
        let (Some(place), Some(look)) = (state.memory.slots.find(storage), Look::of_dtype(dtype))
        else {
            return;
        };
        if !std::mem::replace(&mut maker.is_asked, true) {
            let (start, size_bytes) = range.unwrap_or((0, storage.len_bytes()));
            let size_bytes = size_bytes.min(storage.len_bytes().saturating_sub(start));
            let range = (place.from(start), size_bytes);
            // A part of a result with padding does not begin with a row.
            let rows = if start == 0 {
                self.watch.rows(storage)
            } else {
                NO_ROWS
            };
            self.look_at(state, look, range, rows, &|| About::Result(version));
        }
    }

    /// Counts the words of the pattern that a user's kernel left in its outputs. They become zeros.
    fn look_for_unwritten(&mut self, state: &mut State, launch: &Launch) {
        if !matches!(launch.program, Program::Custom(_)) || launch.code >> UNWRITTEN == 0 {
            return;
        }
        for (index, arg) in launch.args.iter().enumerate() {
            let place = state.memory.slots.find(&arg.storage);
            let (Some(place), 1) = (place, launch.code >> UNWRITTEN >> index & 1) else {
                continue;
            };
            let size_bytes = arg.storage.len_bytes().next_multiple_of(4);
            let version = state.memory.slots.writes_to(&arg.storage);
            let output = Output {
                kernel: launch.program.name().to_owned(),
                tag: arg.storage.tag(),
                words: size_bytes / 4,
                unwritten: None,
                read_by: None,
            };
            self.watch.outputs.insert(version, output);
            let about = || About::Output(version);
            self.look_at(state, Look::Clear, (place, size_bytes), NO_ROWS, &about);
        }
    }
}

/// Watches a launch that has its places, before it is encoded.
#[cold]
pub(crate) fn watch_before(state: &mut State, launch: &Launch) {
    super::with(state, |diagnose, state| {
        let operation = (state.operation)(launch);
        let by = match launch.program {
            Program::Custom(_) => format!("the kernel `{operation}`"),
            _ => format!("`{operation}`"),
        };
        let watches = diagnose.wants.non_finite;
        diagnose.watch.inputs.clear();
        diagnose.watch.whole = 0;
        for (index, arg) in launch.args.iter().enumerate() {
            let (role, storage) = (launch.program.role(index), &arg.storage);
            let version = state.memory.slots.writes_to(storage);
            let is_fresh = role == Role::Write || state.memory.slots.is_unwritten(storage);
            let was_whole = match role {
                Role::Write => launch.ranges.get(index).is_none(),
                _ => {
                    let maker = diagnose.watch.makers.get(&version);
                    !is_fresh && maker.is_none_or(|maker| maker.is_asked)
                }
            };
            diagnose.watch.whole |= u8::from(was_whole) << index;
            if is_fresh {
                continue;
            }
            diagnose.watch.is_read(version, &by);
            if watches && Look::of_dtype(arg.dtype).is_some() {
                if !diagnose.watch.inputs.contains(&version) {
                    diagnose.watch.inputs.push(version);
                }
                // The old value of a result is looked at before it is gone, if it is whole, and not
                // the pattern of a new output.
                let is_custom = matches!(launch.program, Program::Custom(_));
                let is_new = is_custom && launch.code >> UNWRITTEN >> index & 1 == 1;
                if role == Role::Read || was_whole && !is_new {
                    let range = launch.ranges.get(index).copied();
                    diagnose.look_at_value(state, storage, arg.dtype, range);
                }
            }
        }
        for zone in ends(state, launch) {
            // Any command may write to the padding, so its contents are unknown.
            let padding_bytes = zone.of_bytes - zone.from_bytes;
            let padding = Zone {
                size_bytes: padding_bytes,
                ..zone
            };
            diagnose.fill(state, &padding);
        }
        diagnose.add_suspect(by);
        diagnose.watch.operation = operation;
    });
}

/// Watches a launch after it was encoded.
#[cold]
pub(crate) fn watch_after(state: &mut State, launch: &Launch) {
    super::with(state, |diagnose, state| {
        for zone in ends(state, launch) {
            let name = launch.program.name();
            let range = (zone.place, zone.size_bytes);
            let about = || About::End(zone.clone(), name.to_owned());
            diagnose.look_at(state, Look::Words, range, NO_ROWS, &about);
            // Filled again, so that the next look does not find the same writes.
            diagnose.fill(state, &zone);
        }
        diagnose.look_for_unwritten(state, launch);
        if diagnose.wants.non_finite {
            for (index, arg) in launch.args.iter().enumerate() {
                let is_float = Look::of_dtype(arg.dtype).is_some();
                if launch.program.role(index) == Role::Read || !is_float {
                    continue;
                }
                let version = state.memory.slots.writes_to(&arg.storage);
                let maker = ValueOrigin {
                    operation: Some(diagnose.watch.operation.clone()),
                    inputs: diagnose.watch.inputs.clone(),
                    ..maker(&arg.storage, arg.dtype)
                };
                diagnose.watch.makers.insert(version, maker);
                if diagnose.watch.whole >> index & 1 == 1 {
                    diagnose.look_at_value(state, &arg.storage, arg.dtype, None);
                }
            }
        }
    });
}

/// Forgets the history of values that are gone. No look awaits an answer.
pub(crate) fn forget_past(state: &mut State) {
    super::with(state, |diagnose, state| {
        (diagnose.watch).forget_all_but(&state.memory.slots.live_writes());
    });
}

/// Notes that the app submitted its own commands. Returns whether to check everything.
pub(crate) fn watch_foreign(state: &mut State) -> bool {
    let Some(diagnose) = &mut state.diagnose else {
        return false;
    };
    diagnose.add_suspect("commands of the app's own, with a bound tensor".to_owned());
    true
}

/// Watches a read by the host.
#[cold]
pub(crate) fn watch_read(state: &mut State, storage: &Storage) {
    super::with(state, |diagnose, state| {
        let version = state.memory.slots.writes_to(storage);
        diagnose.watch.is_read(version, "the host");
        let maker = diagnose.watch.makers.get(&version);
        if let Some(dtype) = maker.map(|maker| maker.dtype) {
            diagnose.look_at_value(state, storage, dtype, None);
        }
    });
}

/// The zones behind the writable operands of a user's kernel. A zone ends where the bound part of
/// the canary ends.
fn ends(state: &State, launch: &Launch) -> SmallVec<[Zone; 2]> {
    let mut ends = SmallVec::new();
    if !matches!(launch.program, Program::Custom(_)) {
        return ends;
    }
    for (index, (arg, (start, size_bytes))) in launch.args.iter().zip(&launch.ranges).enumerate() {
        if launch.code >> index & 1 == 1 {
            let end = start + size_bytes - CANARY_BYTES;
            let memory = &state.memory;
            let (slots, slabs) = (&memory.slots, &memory.slabs);
            ends.extend(Canaries::behind(&arg.storage, end, slots, slabs));
        }
    }
    ends
}

fn maker(storage: &Storage, dtype: DType) -> ValueOrigin {
    ValueOrigin {
        operation: None,
        tag: storage.tag(),
        dtype,
        elements: storage.len_bytes() / dtype.size_bytes(),
        inputs: SmallVec::new(),
        inherited: Taint::default(),
        is_asked: false,
        taint: None,
    }
}
