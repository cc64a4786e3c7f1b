//! Encoding: a command becomes ops once all its operands have places.

use std::sync::Arc;

use smallvec::SmallVec;

use super::pick;
use super::step::{Need, Stop};
use crate::driver::{At, BindGroupId, Binding, Op, PipelineId};
use crate::engine::diagnose;
use crate::engine::kernel::{Arg, Launch, Role};
use crate::engine::queue::cmd::Cmd;
use crate::engine::state::State;
use crate::engine::state::caches::PipelineKey;
use crate::error::Error;
use crate::memory::{Heap, Place, Storage};
use crate::transfer::{Piece, Reading};

/// A dispatch of a launch, ready to be encoded.
struct Ready {
    pipeline: PipelineId,
    bind_group: BindGroupId,
    /// The words of its table of pages, if it has one.
    table: Vec<u32>,
}

impl State {
    /// Encodes the command at the head of the queue, or returns what the command still needs.
    pub(super) fn encode(&mut self, cmd: &Cmd) -> Result<(), Stop> {
        match cmd {
            Cmd::Launch(launch) => self.encode_launch(launch),
            Cmd::Clear { dst: storage, .. } => {
                self.memory.clear_poison(storage);
                let place = self.place_for_overwrite(storage)?;
                // Canaries fill a new block after it was cleared, so it would not hold zeros.
                if self.memory.previous.is_unclean(place, storage.size_bytes())
                    && !self.memory.canaries.has_changes()
                {
                    // Another share may have left bytes there, so the whole block is cleared.
                    self.memory.record_operand(storage, true);
                    self.handle_changes();
                    return Ok(());
                }
                self.write(storage, Op::Clear(place.at(0), storage.size_bytes()));
                Ok(())
            }
            Cmd::Upload {
                dst,
                offset_bytes,
                region,
                whole,
            } => {
                if *whole {
                    self.memory.clear_poison(dst);
                } else if self.memory.slots.poison_of(dst).is_some() {
                    // A partial write cannot give a poisoned storage a value.
                    return Ok(());
                }
                let place = match whole {
                    true => self.place_for_overwrite(dst)?,
                    false => self.place(dst)?,
                };
                self.memory.uploaded(dst, region.size_bytes);
                self.write(dst, region.copy_to(place.at(*offset_bytes)));
                Ok(())
            }
            Cmd::Poison { cause, .. } => Err(Stop::Poison(cause.clone())),
            #[cfg(any(test, feature = "sim"))]
            Cmd::Touch(operands) => self.encode_touch(operands),
            Cmd::TakeOver { from, to } => {
                if self.memory.slots.is_evicted(from) {
                    // The result was evicted while other commands ran.
                    self.place(from)?;
                }
                self.take_over_made(from, to);
                Ok(())
            }
            Cmd::Prefetch(storage) => match self.memory.slots.poison_of(storage) {
                None => self.place(storage).map(|_| ()),
                Some(_) => Ok(()),
            },
            Cmd::Read {
                src,
                reading,
                piece,
                ..
            } => self.encode_read(src, reading, *piece),
        }
    }

    fn encode_read(
        &mut self,
        src: &Arc<Storage>,
        reading: &Arc<Reading>,
        piece: Piece,
    ) -> Result<(), Stop> {
        if let Some(cause) = self.memory.slots.poison_of(src) {
            let made_at = src.tag().to_string();
            reading.fail(Error::Poisoned { made_at, cause });
            return Ok(());
        }
        let in_heap = self.memory.heap_place(src);
        if in_heap.is_none() && self.memory.slots.is_evicted_with_bytes(src) {
            let (src, reading) = (src.clone(), reading.clone());
            return Err(Stop::Need(Need::ReadEvicted(src, reading, piece)));
        }
        let place = match in_heap {
            Some(place) => place,
            None => self.place(src)?,
        };
        if self.diagnose.is_some() && in_heap.is_none() {
            diagnose::watch_read(self, src);
        }
        let (start, size_bytes) = piece.words();
        if self.driver.caps().maps_slabs && self.memory.slabs.idle(place, 0).is_some() {
            return Err(Stop::Need(Need::Direct(reading.clone(), piece, place)));
        }
        let Some(buffer) = self.readbacks.take(size_bytes) else {
            return Err(Stop::Need(Need::Readback(src.clone(), size_bytes)));
        };
        self.memory.was_read(src, piece.size_bytes);
        self.batch.reads.push((reading.clone(), piece, buffer));
        match in_heap {
            Some(place) => {
                self.memory.slots.used(src);
                self.note_heap_copy(place, Heap::Device, size_bytes);
            }
            None => self.memory.record_operand(src, false),
        }
        self.push_op(Op::Copy(place.at(start), At(buffer.0, 0), size_bytes));
        Ok(())
    }

    fn encode_launch(&mut self, launch: &Launch) -> Result<(), Stop> {
        let most_work = self.driver.caps().most_work;
        let Some(work) = self.batch.work_with(launch.amount(), most_work) else {
            return Err(Stop::Need(Need::Submit));
        };
        let (mut all_are_here, mut written) = (true, 0_u8);
        for (index, arg) in launch.args.iter().enumerate() {
            let role = launch.program.role(index);
            written |= u8::from(role != Role::Read) << index;
            if role != Role::Write {
                if let Some(cause) = self.memory.slots.poison_of(&arg.storage) {
                    return Err(Stop::Poison(cause));
                }
            }
            all_are_here &= self.memory.slots.find(&arg.storage).is_some();
        }
        for page in launch.page_storages() {
            if let Some(cause) = self.memory.slots.poison_of(page) {
                return Err(Stop::Poison(cause));
            }
            all_are_here &= self.memory.slots.find(page).is_some();
        }
        if !all_are_here {
            if let Some(need) = pick::pick(self, launch)? {
                return Err(Stop::Need(need));
            }
            let operands = launch.args.iter().map(|arg| &arg.storage);
            self.acquire(operands.chain(launch.page_storages()), |state, index| {
                let arg = launch.args.get(index);
                let is_output = arg.is_some() && launch.program.role(index) == Role::Write;
                is_output && arg.is_some_and(|arg| state.take_over(launch, arg))
            })?;
        }
        let ready = self.ready(launch, written)?;
        self.handle_changes();
        if self.diagnose.is_some() {
            diagnose::watch_before(self, launch);
        }
        for (index, arg) in launch.args.iter().enumerate() {
            self.memory
                .record_operand(&arg.storage, written >> index & 1 == 1);
        }
        if let (Some(all), Some(pages)) = (&launch.pages, launch.program.pages()) {
            for page in all.storages() {
                self.memory.record_operand(page, written >> pages & 1 == 1);
            }
        }
        self.batch.work = work;
        let predicted_ns = self.costs.compute_ns(launch);
        self.batch.predicted_ns += predicted_ns;
        self.counters.predicted_ns += predicted_ns;
        if let Some(account) = &mut self.dry {
            let ns = predicted_ns * self.driver.time_scale();
            account.launched(ns, !self.steps.is_any_under_way());
        }
        for one in ready {
            self.write_table(launch, &one.table);
            (self.batch).dispatch(one.pipeline, one.bind_group, &launch.params, launch.groups);
            if let Some(times) = &mut self.timing.times {
                self.batch.timed.push(times.of_launch(launch));
            }
        }
        if self.diagnose.is_some() {
            diagnose::watch_after(self, launch);
        }
        Ok(())
    }

    /// The dispatches of a launch whose operands have places.
    fn ready(&mut self, launch: &Launch, written: u8) -> Result<SmallVec<[Ready; 1]>, Stop> {
        if launch.pages.is_none() {
            let one = self.ready_dispatch(launch, written, &[])?;
            return Ok(SmallVec::from_buf([one]));
        }
        let rounds = self.rounds(launch)?;
        let ready = rounds.into_iter().map(|round| {
            let one = self.ready_dispatch(launch, written, &round.windows)?;
            let table = round.table;
            Ok(Ready { table, ..one })
        });
        ready.collect()
    }

    fn ready_dispatch(
        &mut self,
        launch: &Launch,
        written: u8,
        windows: &[Binding],
    ) -> Result<Ready, Stop> {
        let (layout, bindings) = self.bind(launch, written, windows)?;
        let key = PipelineKey::new(&launch.program, launch.variant(), layout);
        let pipeline = match self.pipelines.made.get(&key) {
            Some(Ok(pipeline)) => *pipeline,
            Some(Err(cause)) => {
                return Err(match **cause {
                    Error::Kernel(_) => Stop::Fault(cause.clone()),
                    _ => Stop::Poison(cause.clone()),
                });
            }
            None => {
                return Err(Stop::Need(Need::Pipeline {
                    program: launch.program.clone(),
                    key,
                    params_bytes: launch.params.len() as u32,
                }));
            }
        };
        let bind_group = self.groups.get(pipeline, bindings)?;
        Ok(Ready {
            pipeline,
            bind_group,
            table: Vec::new(),
        })
    }

    /// Places every operand that has no place. Evicted operands are restored first. If one finds no
    /// room, the command keeps the other places until the pass has made room or given up. Otherwise
    /// two operands that fit only into the same hole would take it in turns for ever.
    ///
    /// `take_over` may give the operand with this index the storage of another one instead.
    fn acquire<'a>(
        &mut self,
        operands: impl Iterator<Item = &'a Arc<Storage>>,
        mut take_over: impl FnMut(&mut Self, usize) -> bool,
    ) -> Result<(), Stop> {
        let mut placed = SmallVec::<[&Arc<Storage>; 4]>::new();
        for (index, storage) in operands.enumerate() {
            if self.memory.slots.find(storage).is_some() {
                continue;
            }
            let need = if self.memory.slots.is_evicted(storage) {
                Need::Restore(storage.clone())
            } else if take_over(self, index) {
                continue;
            } else if self.memory.place(storage, self.head.fit)?.is_some() {
                placed.push(storage);
                continue;
            } else {
                Need::Room(storage.clone())
            };
            placed.iter().for_each(|one| self.head.note_placed(one));
            return Err(Stop::Need(need));
        }
        Ok(())
    }

    /// Lets an output take over the storage of an operand that has no other holder.
    fn take_over(&mut self, launch: &Launch, output: &Arg) -> bool {
        let mut donors = launch.donors(output);
        let donor = donors.find(|(donor, uses)| {
            // No other output has taken the storage over.
            Arc::strong_count(donor) == *uses
                && self.memory.slots.in_slab(donor)
                && !donor.is_donated()
        });
        let Some((donor, _)) = donor else {
            return false;
        };
        self.memory.donate(donor, &output.storage);
        self.counters.donated += 1;
        true
    }

    /// The place of a storage with its bytes. Places the storage if it has no place yet.
    fn place(&mut self, storage: &Arc<Storage>) -> Result<Place, Stop> {
        if self.memory.slots.is_evicted(storage) {
            return Err(Stop::Need(Need::Restore(storage.clone())));
        }
        self.place_for_overwrite(storage)
    }

    /// The place of a storage that the command overwrites as a whole.
    pub(super) fn place_for_overwrite(&mut self, storage: &Arc<Storage>) -> Result<Place, Stop> {
        if let Some(place) = self.memory.slots.find(storage) {
            return Ok(place);
        }
        let place = self.memory.place(storage, self.head.fit)?;
        place.ok_or_else(|| Stop::Need(Need::Room(storage.clone())))
    }

    /// Moves the result of a rematerializer into the storage for which it ran.
    fn take_over_made(&mut self, from: &Arc<Storage>, to: &Arc<Storage>) {
        let failure = self.memory.slots.poison_of(from);
        self.steps.finish(to, failure.clone());
        let is_of_another = from.share() != to.share();
        if failure.is_some() || !self.memory.slots.is_evicted(to) {
            // A failed rematerialization may succeed later, or the storage has its value already.
        } else if !self.memory.slots.is_computable_now(to) {
            // The result may come from what was written to an input since. The next command that
            // needs the storage finds out.
        } else if is_of_another
            || Arc::strong_count(from) != 1
            || !self.memory.take_over_place(from, to)
        {
            let reason = "its rematerializer kept the result, or returned an existing tensor";
            let cause = Error::recompute(to.tag(), reason);
            self.memory.slots.poison(to, &Arc::new(cause));
        } else {
            // The driver may still refuse the batch that computes it.
            self.batch.add_restored(to);
            self.counters.recomputed_bytes += to.len_bytes();
        }
    }
}

#[cfg(any(test, feature = "sim"))]
impl State {
    fn encode_touch(&mut self, operands: &[(Arc<Storage>, Role)]) -> Result<(), Stop> {
        let read = operands.iter().filter(|(_, role)| *role != Role::Write);
        for (storage, _) in read {
            if let Some(cause) = self.memory.slots.poison_of(storage) {
                return Err(Stop::Poison(cause));
            }
        }
        self.acquire(operands.iter().map(|(storage, _)| storage), |_, _| false)?;
        for (storage, role) in operands {
            self.memory.slots.used(storage);
            if *role != Role::Read {
                self.memory.slots.written(storage);
            }
        }
        Ok(())
    }
}
