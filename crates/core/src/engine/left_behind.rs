//! Commands that an execution pass left behind, and those that must not overtake them.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::cmd::Cmd;
use super::kernel::Role;
use crate::error::Error;
use crate::memory::{Memory, Residency, Storage};
use crate::transfer::Reading;

/// Commands that wait for room, and those that must not overtake them.
///
/// A command that finds no room stays behind, and with it every later one that reads what it
/// writes, or writes what it reads or writes, or what a rematerializer would compute that from; all
/// others go on. So one thread's shortage is not another's error, and order holds wherever it can
/// be observed.
#[derive(Debug, Default)]
pub(super) struct LeftBehind {
    cmds: Vec<(Cmd, Error)>,
    /// By address of the storage; the commands above, and what is below, keep the storages alive.
    touched: FxHashMap<usize, Touched>,
    /// What rematerializers would compute the commands' operands from.
    sources: Vec<Arc<Storage>>,
}

#[derive(Debug)]
struct Touched {
    written: bool,
    error: Error,
}

impl LeftBehind {
    pub(super) fn is_empty(&self) -> bool {
        self.cmds.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.cmds.len()
    }

    /// The commands, in program order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Cmd> {
        self.cmds.iter().map(|(cmd, _)| cmd)
    }

    /// Uploads whose staged bytes wait with them.
    pub(super) fn uploads(&self) -> u64 {
        let is_upload = |cmd: &&Cmd| matches!(cmd, Cmd::Upload { .. });
        self.iter().filter(is_upload).count() as u64
    }

    /// Drops what nobody has a use for any more. Returns whether there was anything.
    pub(super) fn drop_unwanted(&mut self, memory: &Memory) -> bool {
        let left_before = self.cmds.len();
        let mut wanted = VecDeque::new();
        self.take_wanted(|cmd, error| wanted.push_front((cmd, error)));
        for (cmd, error) in wanted {
            self.push(cmd, error, memory);
        }
        self.cmds.len() < left_before
    }

    /// Leaves a command behind.
    pub(super) fn push(&mut self, cmd: Cmd, error: Error, memory: &Memory) {
        let touched = &mut self.touched;
        let mut touch = |storage: &Arc<Storage>, role| {
            let touched = touched.entry(storage.address()).or_insert(Touched {
                written: false,
                error: error.clone(),
            });
            touched.written |= role != Role::Read;
        };
        cmd.each_operand(|storage, role| {
            touch(storage, role);
            if role != Role::Write {
                let sources = memory.sources_of(storage);
                sources.iter().for_each(|source| touch(source, Role::Read));
                self.sources.extend(sources);
            }
        });
        self.cmds.push((cmd, error));
    }

    /// Why this command must wait behind one that was left, if it must.
    pub(super) fn holds_up(&self, cmd: &Cmd) -> Option<Error> {
        if self.cmds.is_empty() {
            return None;
        }
        let mut reason = None;
        // To have a value again changes nothing for those who only read it.
        let changes = !matches!(cmd, Cmd::TakeOver { .. });
        cmd.each_operand(|storage, role| {
            let touched = self.touched.get(&storage.address());
            let hindered =
                touched.filter(|touched| touched.written || changes && role != Role::Read);
            if let Some(touched) = hindered {
                reason = Some(touched.error.clone());
            }
        });
        reason
    }

    /// Why a storage does not have its value yet.
    pub(super) fn reason(&self, storage: &Arc<Storage>) -> Option<Error> {
        let touched = self.touched.get(&storage.address())?;
        touched.written.then(|| touched.error.clone())
    }

    /// Why a reading was left behind, if it was.
    pub(super) fn reason_of_reading(&self, wanted: &Arc<Reading>) -> Option<Error> {
        let mut cmds = self.cmds.iter();
        cmds.find_map(|(cmd, error)| match cmd {
            Cmd::Read { reading, .. } if Arc::ptr_eq(reading, wanted) => Some(error.clone()),
            _ => None,
        })
    }

    /// The error of the first command that was left.
    pub(super) fn first_error(&self) -> Option<Error> {
        self.cmds.first().map(|(_, error)| error.clone())
    }

    /// Takes out all commands, the last first, and hands those on which are to be tried again. The
    /// others write what nobody asks for any more: no tensor, and no command behind them.
    pub(super) fn take_wanted(&mut self, mut receive: impl FnMut(Cmd, Error)) {
        self.touched.clear();
        self.sources.clear();
        // How often each storage is held by the commands that are still to be looked at.
        let mut held: FxHashMap<usize, usize> = FxHashMap::default();
        for (cmd, _) in &self.cmds {
            cmd.each_operand(|storage, _| *held.entry(storage.address()).or_default() += 1);
        }
        for (cmd, error) in std::mem::take(&mut self.cmds).into_iter().rev() {
            let mut wanted = match &cmd {
                Cmd::Read { reading, .. } => !reading.is_cancelled(),
                _ => false,
            };
            cmd.each_operand(|storage, role| {
                let held = held.get(&storage.address()).copied().unwrap_or(0);
                // What is written to the app's own buffer, the app may look at without us.
                let seen = storage.residency() == Residency::Imported;
                wanted |= role != Role::Read && (seen || Arc::strong_count(storage) > held);
            });
            cmd.each_operand(|storage, _| {
                if let Some(held) = held.get_mut(&storage.address()) {
                    *held -= 1;
                }
            });
            if wanted {
                receive(cmd, error);
            }
        }
    }
}
