//! Commands that an execution pass left behind, and the conflicts of later commands with them.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::cmd::Cmd;
use super::handles::Handles;
use super::refused::Refused;
use super::steps::Steps;
use crate::driver::BufferId;
use crate::engine::kernel::Role;
use crate::error::Error;
use crate::memory::{Memory, Residency, ShareId, Storage};
use crate::number_map::NumberMap;
use crate::transfer::Reading;

/// Commands that wait for memory, and the storages that they use.
///
/// A command that finds no room is left behind. Later commands are left behind too if they depend
/// on it: they read what it writes, or they write what it reads or writes. The inputs from which
/// rematerializers would compute its operands count as read. The parts of a read arrive in order,
/// so one waits for another. All other commands run. So one thread's shortage is not another
/// thread's error, and no observable order changes.
///
/// The commands of rematerializers compute from inputs as these are now. So they come before all
/// commands of the app that wait here, whatever those write, and depend on each other only.
#[derive(Debug, Default)]
pub(crate) struct LeftBehind {
    /// In the order in which they will run: those of rematerializers come first.
    cmds: Vec<(Cmd, Error)>,
    /// How many of them are of rematerializers.
    steps: usize,
    /// Keyed by the address of the storage or reading. The commands above and the sources below
    /// keep both alive.
    touched: NumberMap<Touched>,
    /// The inputs from which rematerializers would compute the operands of the commands.
    sources: Vec<Arc<Storage>>,
    /// What a share was refused last in this run of the queue, until there may be something to
    /// evict again.
    pub(crate) refused: Option<Refused>,
}

#[derive(Debug)]
struct Touched {
    written: bool,
    /// A command of a rematerializer writes it.
    written_by_step: bool,
    error: Error,
}

fn address_of<T>(shared: &Arc<T>) -> u64 {
    Arc::as_ptr(shared) as u64
}

impl LeftBehind {
    pub(crate) fn is_empty(&self) -> bool {
        self.cmds.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.cmds.len()
    }

    /// The commands, in the order in which they will run.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cmd> {
        self.cmds.iter().map(|(cmd, _)| cmd)
    }

    /// The number of uploads whose staged bytes wait here.
    pub(crate) fn uploads(&self) -> u64 {
        let is_upload = |cmd: &&Cmd| matches!(cmd, Cmd::Upload { .. });
        self.iter().filter(is_upload).count() as u64
    }

    /// Drops commands whose results nothing can use any more. Returns whether there were any.
    pub(crate) fn drop_unwanted(&mut self, memory: &Memory) -> bool {
        let left_before = self.cmds.len();
        let mut wanted = VecDeque::new();
        self.take_wanted(memory, |cmd, error| wanted.push_front((cmd, error)));
        for (cmd, error) in wanted {
            self.push(cmd, error, false, memory);
        }
        self.cmds.len() < left_before
    }

    /// Adds a command. `is_step`: it is one of a rematerializer.
    pub(crate) fn push(&mut self, cmd: Cmd, error: Error, is_step: bool, memory: &Memory) {
        let touched = &mut self.touched;
        let mut touch = |address, is_written: bool| {
            let touched = touched.entry(address).or_insert_with(|| Touched {
                written: false,
                written_by_step: false,
                error: error.clone(),
            });
            touched.written |= is_written;
            touched.written_by_step |= is_written && is_step;
        };
        if let Cmd::Read { reading, .. } = &cmd {
            touch(address_of(reading), true);
        }
        let takes_over = matches!(cmd, Cmd::TakeOver { .. });
        cmd.each_operand(&mut |storage, role| {
            touch(storage.address() as u64, role != Role::Read);
            // A result that is not taken over yet is of use only while its inputs are unchanged.
            if role != Role::Write || takes_over {
                let sources = memory.slots.sources_of(storage);
                (sources.iter()).for_each(|source| touch(source.address() as u64, false));
                self.sources.extend(sources);
            }
        });
        match is_step {
            true => {
                self.cmds.insert(self.steps, (cmd, error));
                self.steps += 1;
            }
            false => self.cmds.push((cmd, error)),
        }
    }

    /// Adds the commands of rematerializers that a pass has begun and not ended, before it runs the
    /// queue again.
    pub(crate) fn add_steps(&mut self, steps: VecDeque<Cmd>, error: &Error) {
        let steps = steps.into_iter().map(|cmd| (cmd, error.clone()));
        self.cmds.splice(self.steps..self.steps, steps);
    }

    /// The error of a command that the command at the head must not overtake. `None` if there is no
    /// conflict. `steps`: what runs now.
    #[inline]
    pub(crate) fn conflict(&self, cmd: &Cmd, steps: &Steps) -> Option<Error> {
        match self.cmds.is_empty() {
            true => None,
            false => self.find_conflict(cmd, steps),
        }
    }

    #[cold]
    fn find_conflict(&self, cmd: &Cmd, steps: &Steps) -> Option<Error> {
        if let Cmd::Read { reading, .. } = cmd {
            if let Some(touched) = self.touched.get(&address_of(reading)) {
                return Some(touched.error.clone());
            }
        }
        let mut reason = None;
        let is_step = steps.is_any_under_way();
        // A takeover restores a value, which does not change it for readers.
        let changes = !matches!(cmd, Cmd::TakeOver { .. });
        cmd.each_operand(&mut |storage, role| {
            let touched = self.touched.get(&(storage.address() as u64));
            let hindered = touched.filter(|touched| {
                let is_written = match is_step {
                    true => touched.written_by_step,
                    false => touched.written,
                };
                is_written || changes && role != Role::Read
            });
            if let Some(touched) = hindered {
                reason = Some(touched.error.clone());
            }
        });
        reason
    }

    /// The reason why a storage does not have its value yet.
    pub(crate) fn reason(&self, storage: &Arc<Storage>) -> Option<Error> {
        let touched = self.touched.get(&(storage.address() as u64))?;
        touched.written.then(|| touched.error.clone())
    }

    /// The reason why a storage must not be written to yet.
    pub(crate) fn reason_to_keep(&self, storage: &Arc<Storage>) -> Option<Error> {
        let touched = self.touched.get(&(storage.address() as u64))?;
        Some(touched.error.clone())
    }

    /// The reason why a reading was left behind, if it was.
    pub(crate) fn error_of_reading(&self, wanted: &Arc<Reading>) -> Option<Error> {
        let mut cmds = self.cmds.iter();
        cmds.find_map(|(cmd, error)| match cmd {
            Cmd::Read { reading, .. } if Arc::ptr_eq(reading, wanted) => Some(error.clone()),
            _ => None,
        })
    }

    /// The error of the first command.
    pub(crate) fn first_error(&self) -> Option<Error> {
        self.cmds.first().map(|(_, error)| error.clone())
    }

    /// The error of the first command that uses a storage of this share.
    pub(crate) fn first_error_of(&self, share: ShareId) -> Option<Error> {
        let mut cmds = self.cmds.iter();
        let first = cmds.find(|(cmd, _)| cmd.has_operand(|storage, _| storage.share() == share));
        first.map(|(_, error)| error.clone())
    }

    /// Fails the uploads that keep one chunk of staging, if shares other than this one made them
    /// all. `lost` gives the error of an upload, for its storage and for what hindered it. A
    /// command that poisons the storage takes the upload's place, so commands before it see the old
    /// value. Returns the storages.
    pub(crate) fn give_chunk_back(
        &mut self,
        share: ShareId,
        lost: impl Fn(&Storage, &Error) -> Error,
    ) -> Vec<Arc<Storage>> {
        let Some(chunk) = self.chunk_of_others(share) else {
            return Vec::new();
        };
        let mut failed = Vec::new();
        for (cmd, error) in &mut self.cmds {
            let dst = match cmd {
                Cmd::Upload { dst, region, .. } if region.buffer == chunk => dst.clone(),
                _ => continue,
            };
            let cause = Arc::new(lost(&dst, error));
            failed.push(dst.clone());
            *cmd = Cmd::Poison { dst, cause };
        }
        failed
    }

    /// The chunk of staging that waits only for uploads here, all of them of other shares than this
    /// one. Of several, the one with the fewest bytes of them.
    pub(crate) fn chunk_of_others(&self, share: ShareId) -> Option<BufferId> {
        let mut chunks: Vec<(BufferId, u32, u64)> = Vec::new();
        for (cmd, _) in &self.cmds {
            let Cmd::Upload { dst, region, .. } = cmd else {
                continue;
            };
            if dst.share() == share {
                continue;
            }
            let known = chunks.iter().position(|one| one.0 == region.buffer);
            let at = known.unwrap_or_else(|| {
                chunks.push((region.buffer, region.regions_of_chunk(), 0));
                chunks.len() - 1
            });
            let (_, others, bytes) = &mut chunks[at];
            *others = others.saturating_sub(1);
            *bytes += region.size_bytes;
        }
        let given = chunks.into_iter().filter(|(_, others, _)| *others == 0);
        let (chunk, ..) = given.min_by_key(|(.., bytes)| *bytes)?;
        Some(chunk)
    }

    /// Takes all commands, the last first, and hands on those to retry. The others write storages
    /// that no tensor and no later command needs.
    pub(crate) fn take_wanted(&mut self, memory: &Memory, mut receive: impl FnMut(Cmd, Error)) {
        self.touched.clear();
        self.sources.clear();
        self.steps = 0;
        self.refused = None;
        let cmds = std::mem::take(&mut self.cmds);
        let held = Handles::held_by_others(cmds.iter().map(|(cmd, _)| cmd), memory);
        // What the wanted commands behind the one at hand use.
        let mut used = FxHashSet::default();
        for (cmd, error) in cmds.into_iter().rev() {
            let is_read = matches!(&cmd, Cmd::Read { reading, .. } if !reading.is_cancelled());
            let is_used = cmd.has_operand(|storage, role| {
                // The app may look at its own buffer without a call to the engine.
                let seen = || storage.residency() == Residency::Imported;
                let is_used = |address| used.contains(&address) || held.contains(&address);
                role != Role::Read && (is_used(storage.address()) || seen())
            });
            if is_read || is_used {
                cmd.visit_operands(|storage, _| {
                    used.insert(storage.address());
                    let sources = memory.slots.sources_of(storage);
                    used.extend(sources.iter().map(Storage::address));
                });
                receive(cmd, error);
            }
        }
    }
}
