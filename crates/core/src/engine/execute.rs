//! The execution pass: takes the queue in order and turns commands into ops with places.
//!
//! A step runs under the engine's lock and never waits. When it needs something that takes time
//! (a slab, a pipeline, a submission) it leaves the command at the head of the queue and says so;
//! [`needs`](super::needs) provides it with the lock released, and the execution pass goes on.

use std::ops::ControlFlow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::caches::{Bindings, PipelineKey, ProgramId};
use super::cmd::Cmd;
use super::kernel::{Arg, Launch, MAX_OPERANDS, Program, Role};
use super::picked::{Wanted, Words};
use super::state::State;
use super::wgsl::Layout;
use crate::alloc::AllocError;
use crate::driver::{AdapterKind, Binding, BufferId, DriverError, Op};
use crate::error::Error;
use crate::memory::{Dead, Place, Storage};
use crate::transfer::{Piece, Reading};

/// Ops of one submission, at most: the device has work early, and stays clear of watchdogs.
pub(super) const MAX_BATCH_OPS: usize = 256;

/// Ops of the first submission to a device that has nothing to do; each one after it may have twice
/// as many as the one before.
pub(super) const FIRST_BATCH_OPS: usize = 32;

/// What the execution pass cannot go on without.
#[derive(Debug)]
pub(super) enum Need {
    /// The batch is to be submitted first.
    Submit,
    /// Room for a storage that has no place yet.
    Room { storage: Arc<Storage> },
    /// A storage that was evicted back on the device.
    Restore { storage: Arc<Storage> },
    /// The bytes of a storage that is not on the device, for the reading at the head of the queue.
    ReadEvicted {
        storage: Arc<Storage>,
        reading: Arc<Reading>,
        piece: Piece,
    },
    /// The words that name rows of a table that is not on the device.
    Words(Words),
    /// Those rows of the table, in the result of the command at the head of the queue.
    Rows(Wanted),
    /// A compiled kernel.
    Pipeline {
        program: Program,
        key: PipelineKey,
        params_bytes: u32,
    },
    /// A read-back buffer of so many bytes, for a piece of a storage.
    Readback {
        storage: Arc<Storage>,
        size_bytes: u64,
    },
    /// The answers to what bugs were looked for.
    Answers,
    /// The slab of this place idle, to be mapped and read where it lies.
    Direct {
        reading: Arc<Reading>,
        piece: Piece,
        place: Place,
    },
}

/// Why a command did not become ops.
pub(super) enum Stop {
    Need(Need),
    /// What it writes has no value, for this reason.
    Poison(Arc<Error>),
    Lost,
}

impl From<DriverError> for Stop {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Lost(_) => Stop::Lost,
            DriverError::OutOfMemory | DriverError::OverBudget => {
                Stop::Poison(Arc::new(Error::Driver {
                    what: "a bind group",
                    message: "out of memory".into(),
                }))
            }
            DriverError::Kernel(fault) => Stop::Poison(Arc::new(Error::Kernel(fault))),
            DriverError::Invalid(message) => Stop::Poison(Arc::new(Error::Driver {
                what: "a command",
                message,
            })),
        }
    }
}

impl From<AllocError> for Stop {
    fn from(error: AllocError) -> Self {
        Stop::Poison(Arc::new(Error::Driver {
            what: "a block",
            message: error.to_string(),
        }))
    }
}

/// What several operands may have in common: a storage, or one range of it.
struct Part<'a> {
    /// Its slot.
    slot: Option<u32>,
    range: Option<&'a (u64, u64)>,
    buffer: BufferId,
}

impl State {
    /// Encodes commands until the queue is empty (`None`) or something is needed.
    pub(super) fn step(&mut self) -> Option<Need> {
        loop {
            self.free_dead();
            let most_ops = self.most_batch_ops.min(self.next_batch_ops);
            if self.batch.ops.len() >= most_ops || self.batch.is_closed {
                return Some(Need::Submit);
            }
            if let Some(need) = self.need_of_diagnose() {
                return Some(need);
            }
            let done = match self.next_cmd() {
                Some(cmd) => self.run(cmd),
                None => ControlFlow::Break(None),
            };
            if let ControlFlow::Break(need) = done {
                return need;
            }
        }
    }

    /// Encodes the command that was at the head of the queue, or puts it where it belongs. Breaks
    /// off where the execution pass must: with what is needed, or because the device is lost.
    #[inline(never)]
    fn run(&mut self, cmd: Cmd) -> ControlFlow<Option<Need>> {
        if matches!(&cmd, Cmd::Read { reading, .. } if reading.is_cancelled()) {
            return ControlFlow::Continue(());
        }
        if let Some(error) = self.left.holds_up(&cmd) {
            // One of its results may not have to wait.
            if cmd.has_several_results() && self.take_apart(&cmd) {
                return ControlFlow::Continue(());
            }
            if let Cmd::TakeOver { to, .. } = &cmd {
                self.rematerializations.ended(to, None);
            }
            self.left.push(cmd, error, &self.memory);
            return ControlFlow::Continue(());
        }
        let alone = cmd.is_custom() || self.memory.has_imports() && cmd.is_foreign();
        if alone && !self.batch.is_empty() {
            self.push_head(cmd);
            return ControlFlow::Break(Some(Need::Submit));
        }
        match self.encode(&cmd) {
            Ok(()) => {
                self.batch.is_closed = alone || cmd.goes_at_once();
                self.has_run(cmd);
            }
            Err(Stop::Need(need)) => {
                self.push_head(cmd);
                return ControlFlow::Break(Some(need));
            }
            Err(Stop::Poison(cause)) => {
                self.unplace_cmd(&cmd);
                if !self.take_apart(&cmd) {
                    self.rematerializations.is_the_apps();
                    self.poison(&cmd, &cause);
                }
            }
            // The caller finds the device lost as soon as it asks the driver. The command stays,
            // for the device that may come after.
            Err(Stop::Lost) => {
                self.push_head(cmd);
                return ControlFlow::Break(None);
            }
        }
        ControlFlow::Continue(())
    }

    /// A command has become ops.
    pub(super) fn has_run(&mut self, cmd: Cmd) {
        self.memory.anywhere = false;
        if !self.placed.is_empty() {
            self.placed.clear();
        }
        self.counters.commands += 1;
        let is_the_apps = !matches!(cmd, Cmd::TakeOver { .. });
        if is_the_apps && self.rematerializations.is_the_apps() {
            self.counters.commands_of_app += 1;
        }
        self.memory.tick();
        match cmd.outlasts_encoding() {
            true => self.keep(cmd),
            false => cmd.into_operands(|storage| self.memory.release_operand(storage)),
        }
    }

    /// Frees what nobody holds any more.
    #[inline]
    pub(super) fn free_dead(&mut self) {
        if self.memory.has_dead() {
            self.free_dead_now();
        }
    }

    fn free_dead_now(&mut self) {
        let mut kernels = SmallVec::<[ProgramId; 2]>::new();
        let mut rematerializers = SmallVec::<[u64; 2]>::new();
        self.memory.free_dead(|dead| match dead {
            Dead::Kernel(id) => kernels.push(ProgramId::Custom(id)),
            Dead::Fused(id) => kernels.push(ProgramId::Fused(id)),
            Dead::Rematerializer(id) => rematerializers.push(id),
            Dead::Slot(_) => {}
        });
        for id in rematerializers {
            self.dropped_rematerializers
                .extend(self.rematerializers.remove(&id));
        }
        for kernel in kernels {
            for pipeline in self.pipelines.remove(kernel) {
                self.groups.forget_pipeline(pipeline);
                self.pipelines.discarded.push(pipeline);
            }
        }
    }

    /// A command has been encoded: keeps what the submission still needs of it.
    fn keep(&mut self, cmd: Cmd) {
        match cmd {
            Cmd::Upload { region, .. } => self.batch.regions.push(region),
            Cmd::Launch(Launch {
                program: Program::Custom(custom),
                ..
            }) => self.batch.custom = Some(custom),
            _ => {}
        }
    }

    /// What a command writes has no value: the reason goes to whoever asks for it.
    pub(super) fn poison(&mut self, cmd: &Cmd, cause: &Arc<Error>) {
        cmd.each_operand(|storage, role| {
            if role != Role::Read {
                self.memory.poison(storage, cause);
            }
        });
        if let Cmd::Read { reading, .. } = cmd {
            reading.fail((**cause).clone());
        }
    }

    fn encode(&mut self, cmd: &Cmd) -> Result<(), Stop> {
        match cmd {
            Cmd::Launch(launch) => self.encode_launch(launch),
            Cmd::Clear(storage) => {
                self.memory.clear_poison(storage);
                let place = self.place_for_overwrite(storage)?;
                self.write(
                    storage,
                    Op::Clear {
                        buffer: place.buffer,
                        offset_bytes: place.offset_bytes,
                        size_bytes: storage.size_bytes(),
                    },
                );
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
                } else if self.memory.poison_of(dst).is_some() {
                    // A part of a value is none.
                    return Ok(());
                }
                let place = match whole {
                    true => self.place_for_overwrite(dst)?,
                    false => self.place(dst)?,
                };
                self.memory.uploaded(dst, region.size_bytes);
                self.write(
                    dst,
                    Op::Copy {
                        src: region.buffer,
                        src_offset_bytes: region.offset_bytes,
                        dst: place.buffer,
                        dst_offset_bytes: place.offset_bytes + offset_bytes,
                        size_bytes: region.size_bytes,
                    },
                );
                Ok(())
            }
            Cmd::Poison { cause, .. } => Err(Stop::Poison(cause.clone())),
            #[cfg(any(test, feature = "sim"))]
            Cmd::Touch(operands) => self.encode_touch(operands),
            Cmd::TakeOver { from, to } => {
                if self.memory.is_evicted(from) {
                    // It has been evicted while more was made.
                    self.place(from)?;
                }
                self.take_over_made(from, to);
                Ok(())
            }
            Cmd::Prefetch(storage) => match self.memory.poison_of(storage) {
                None => self.place(storage).map(|_| ()),
                Some(_) => Ok(()),
            },
            Cmd::Read {
                src,
                reading,
                piece,
            } => self.encode_read(src, reading, *piece),
        }
    }

    fn encode_read(
        &mut self,
        src: &Arc<Storage>,
        reading: &Arc<Reading>,
        piece: Piece,
    ) -> Result<(), Stop> {
        if let Some(cause) = self.memory.poison_of(src) {
            let made_at = src.tag().to_string();
            reading.fail(Error::Poisoned { made_at, cause });
            return Ok(());
        }
        if self.memory.is_evicted_with_bytes(src) {
            return Err(Stop::Need(Need::ReadEvicted {
                storage: src.clone(),
                reading: reading.clone(),
                piece,
            }));
        }
        let place = self.place(src)?;
        if self.diagnose.is_some() {
            self.watch_read(src);
        }
        let (start, size_bytes) = piece.words();
        if self.driver.caps().maps_slabs && self.memory.idle(place, 0).is_some() {
            return Err(Stop::Need(Need::Direct {
                reading: reading.clone(),
                piece,
                place,
            }));
        }
        let Some(buffer) = self.readbacks.take(size_bytes) else {
            let storage = src.clone();
            return Err(Stop::Need(Need::Readback {
                storage,
                size_bytes,
            }));
        };
        self.memory.record_operand(src, false);
        self.memory.was_read(src, piece.size_bytes);
        self.batch.reads.push((reading.clone(), piece, buffer));
        self.push_op(Op::Copy {
            src: place.buffer,
            src_offset_bytes: place.offset_bytes + start,
            dst: buffer.0,
            dst_offset_bytes: 0,
            size_bytes,
        });
        Ok(())
    }

    fn encode_launch(&mut self, launch: &Launch) -> Result<(), Stop> {
        let work = self.batch.work.saturating_add(launch.amount());
        if work > self.driver.caps().most_work && !self.batch.is_empty() {
            return Err(Stop::Need(Need::Submit));
        }
        let (mut all_are_here, mut written) = (true, 0_u8);
        for (index, arg) in launch.args.iter().enumerate() {
            let role = launch.program.role(index);
            written |= u8::from(role != Role::Read) << index;
            if role != Role::Write {
                if let Some(cause) = self.memory.poison_of(&arg.storage) {
                    return Err(Stop::Poison(cause));
                }
            }
            all_are_here &= self.memory.find(&arg.storage).is_some();
        }
        if !all_are_here {
            if let Some(need) = self.pick(launch)? {
                return Err(Stop::Need(need));
            }
            self.acquire(launch)?;
        }
        let (layout, bindings) = self.bind(launch, written)?;
        let key = PipelineKey::new(&launch.program, launch.variant(), layout);
        let pipeline = match self.pipelines.get(&key) {
            Some(Ok(pipeline)) => *pipeline,
            Some(Err(cause)) => return Err(Stop::Poison(cause.clone())),
            None => {
                return Err(Stop::Need(Need::Pipeline {
                    program: launch.program.clone(),
                    key,
                    params_bytes: launch.params.len() as u32,
                }));
            }
        };
        let bind_group = self.groups.get(pipeline, bindings)?;
        if self.diagnose.is_some() {
            self.attend();
            self.watch_before(launch);
        }
        for (index, arg) in launch.args.iter().enumerate() {
            self.memory
                .record_operand(&arg.storage, written >> index & 1 == 1);
        }
        self.batch.work = work;
        let start = self.batch.params.len() as u32;
        self.batch.params.extend_from_slice(&launch.params);
        self.batch.ops.push(Op::Dispatch {
            pipeline,
            bind_group,
            params: (start, launch.params.len() as u32),
            groups: launch.groups,
        });
        if let Some(times) = &mut self.times {
            self.batch.timed.push(times.of_launch(launch));
        }
        if self.diagnose.is_some() {
            self.watch_after(launch);
        }
        Ok(())
    }

    /// Gives every operand that has none a place. Those that were evicted are restored first.
    /// What was placed when one finds no room is kept for the command until that is found, or it
    /// is said that there is none: two that both take the one hole there is would never end.
    fn acquire(&mut self, launch: &Launch) -> Result<(), Stop> {
        let mut placed = SmallVec::<[&Arg; 4]>::new();
        for (index, arg) in launch.args.iter().enumerate() {
            if self.memory.find(&arg.storage).is_some() {
                continue;
            }
            let storage = || arg.storage.clone();
            let need = if self.memory.is_evicted(&arg.storage) {
                Need::Restore { storage: storage() }
            } else if launch.program.role(index) == Role::Write && self.take_over(launch, arg) {
                continue;
            } else if self.memory.place(&arg.storage)?.is_some() {
                placed.push(arg);
                continue;
            } else {
                Need::Room { storage: storage() }
            };
            let placed = placed.iter().map(|arg| Arc::downgrade(&arg.storage));
            self.placed.extend(placed);
            return Err(Stop::Need(need));
        }
        Ok(())
    }

    /// Lets an output become what an operand was that this command is the last to hold.
    fn take_over(&mut self, launch: &Launch, output: &Arg) -> bool {
        for (index, arg) in launch.args.iter().enumerate() {
            if launch.may_reuse >> index & 1 == 0 {
                continue;
            }
            let dying = &arg.storage;
            let args = launch.args.iter().enumerate();
            let same = args.filter(|(_, other)| Arc::ptr_eq(&other.storage, dying));
            let (mut here, mut reusable) = (0, true);
            for (index, _) in same {
                here += 1;
                // Another operand may show the same bytes under another map.
                reusable &= launch.may_reuse >> index & 1 == 1;
            }
            let last = reusable && Arc::strong_count(dying) == here && dying.pins() == 0;
            let ours = self.memory.in_slab(dying) && dying.tenant() == output.storage.tenant();
            // The same elements have the same places, and nobody else has taken them.
            let fits = arg.dtype.size_bytes() == output.dtype.size_bytes() && !dying.is_donated();
            if last && ours && fits && dying.size_bytes() == output.storage.size_bytes() {
                self.memory.donate(dying, &output.storage);
                self.counters.donated += 1;
                return true;
            }
        }
        false
    }

    /// Decides how the operands are bound: one part for each storage or range of one, in as many
    /// windows as it needs, and one for each operand of a custom kernel. Bit `i` of `written`:
    /// operand `i` is.
    fn bind(&self, launch: &Launch, written: u8) -> Result<(Layout, Bindings), Stop> {
        let window_bytes = self.driver.caps().max_binding_bytes;
        let mut layout = Layout {
            parts: [0; MAX_OPERANDS],
            windows: [0; MAX_OPERANDS],
            writable: 0,
        };
        let mut parts = SmallVec::<[Part<'_>; 4]>::new();
        let mut bindings = Bindings::new();
        for (index, arg) in launch.args.iter().enumerate() {
            let (slot, range) = (arg.storage.slot(), launch.ranges.get(index));
            let known = match launch.program {
                Program::Builtin(_) | Program::Fused(_) => (parts.iter())
                    .position(|part: &Part<'_>| part.slot == slot && part.range == range),
                Program::Custom(_) => None,
            };
            let part = known.unwrap_or(parts.len());
            if known.is_none() {
                let place = self.memory.find(&arg.storage).ok_or(Stop::Lost)?;
                let buffer = place.buffer;
                parts.push(Part {
                    slot,
                    range,
                    buffer,
                });
                let (start, size_bytes) = range.copied().unwrap_or((0, arg.storage.size_bytes()));
                let mut shown_bytes = 0;
                while shown_bytes < size_bytes {
                    let binding = Binding {
                        buffer,
                        offset_bytes: place.offset_bytes + start + shown_bytes,
                        size_bytes: window_bytes.min(size_bytes - shown_bytes),
                    };
                    shown_bytes += binding.size_bytes;
                    layout.windows[part] = layout.windows[part].wrapping_add(1);
                    bindings.push(binding);
                }
            }
            layout.parts[index] = part as u8;
            layout.writable |= (written >> index & 1) << part;
        }
        layout.writable = self.writable(&parts, layout.writable);
        Ok((layout, bindings))
    }

    /// Which parts are bound read-write, as a bit each, if those are `written`: the others of their
    /// slabs too, as wgpu wants it. Where a slab's neighbours are is chance, and every combination
    /// is a pipeline of its own. So on a software adapter all are: it compiles for seconds, and
    /// reads no faster what cannot be written. Elsewhere that would be barriers between what only
    /// reads the same slab.
    fn writable(&self, parts: &[Part<'_>], written: u8) -> u8 {
        let is_software = self.driver.caps().kind == AdapterKind::Cpu;
        let is_beside_written = |part: &Part<'_>| {
            (0..parts.len()).any(|of| written >> of & 1 == 1 && parts[of].buffer == part.buffer)
        };
        (parts.iter().enumerate())
            .filter(|(_, part)| is_software || is_beside_written(part))
            .fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// The place of a storage, with what it holds: it gets one if it has none.
    fn place(&mut self, storage: &Arc<Storage>) -> Result<Place, Stop> {
        if self.memory.is_evicted(storage) {
            let storage = storage.clone();
            return Err(Stop::Need(Need::Restore { storage }));
        }
        self.place_for_overwrite(storage)
    }

    /// The place of a storage all of which is about to be written.
    pub(super) fn place_for_overwrite(&mut self, storage: &Arc<Storage>) -> Result<Place, Stop> {
        if let Some(place) = self.memory.find(storage) {
            return Ok(place);
        }
        self.memory.place(storage)?.ok_or_else(|| {
            let storage = storage.clone();
            Stop::Need(Need::Room { storage })
        })
    }

    pub(super) fn write(&mut self, storage: &Storage, op: Op) {
        self.memory.record_operand(storage, true);
        self.push_op(op);
    }
}
