//! What waits in the queue: commands, as values.

use std::sync::Arc;

use super::kernel::{Launch, Program, Role};
use crate::error::Error;
use crate::memory::{Residency, Storage};
use crate::transfer::{LARGE_PIECE_BYTES, Piece, Reading, Region};

/// A command. It holds its operands' storages, not their places: those are looked up when
/// the execution pass comes to it. Dropping it is all that freeing an operand takes.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all commands are launches, and a box would be an allocation for each"
)]
#[derive(Debug)]
#[doc(hidden)]
pub enum Cmd {
    /// Runs a kernel.
    Launch(Launch),
    /// Sets a whole storage to zero.
    Clear(Arc<Storage>),
    /// Copies staged bytes into a storage, at a multiple of 4.
    Upload {
        dst: Arc<Storage>,
        offset_bytes: u64,
        region: Region,
        /// It is the first piece of an upload that replaces all there is.
        whole: bool,
    },
    /// What was to be written here failed at the call: no value from now on.
    Poison {
        dst: Arc<Storage>,
        cause: Arc<Error>,
    },
    /// Gives a storage a place, and what it holds, before somebody needs it.
    Prefetch(Arc<Storage>),
    /// Needs its operands on the device and does nothing with them.
    #[cfg(any(test, feature = "sim"))]
    Touch(Vec<(Arc<Storage>, Role)>),
    /// What a rematerializer made becomes the bytes of the storage that it was made for.
    TakeOver {
        from: Arc<Storage>,
        to: Arc<Storage>,
    },
    /// Copies a piece of a storage to the host.
    Read {
        src: Arc<Storage>,
        reading: Arc<Reading>,
        piece: Piece,
    },
}

impl Cmd {
    /// Calls `visit` for each operand, with what is done to it.
    pub fn each_operand(&self, mut visit: impl FnMut(&Arc<Storage>, Role)) {
        match self {
            Cmd::Launch(launch) => {
                for (index, arg) in launch.args.iter().enumerate() {
                    visit(&arg.storage, launch.program.role(index));
                }
            }
            Cmd::Clear(storage) => visit(storage, Role::Write),
            #[cfg(any(test, feature = "sim"))]
            Cmd::Touch(operands) => operands
                .iter()
                .for_each(|(storage, role)| visit(storage, *role)),
            Cmd::TakeOver { from, to } => {
                visit(from, Role::Read);
                visit(to, Role::Write);
            }
            Cmd::Upload { dst, .. } | Cmd::Poison { dst, .. } => visit(dst, Role::Update),
            Cmd::Read { src, .. } | Cmd::Prefetch(src) => visit(src, Role::Read),
        }
    }

    /// Drops it, and hands on its operands one by one.
    pub(super) fn into_operands(self, mut receive: impl FnMut(Arc<Storage>)) {
        match self {
            Cmd::Launch(launch) => launch.args.into_iter().for_each(|arg| receive(arg.storage)),
            Cmd::Clear(storage) => receive(storage),
            // Rarely the last to hold something: that is buried like all that dies elsewhere.
            _ => {}
        }
    }

    /// Does the submission need something of it? Else it is dropped as soon as it is encoded, and
    /// with it whatever it was the last to hold.
    pub(super) fn outlasts_encoding(&self) -> bool {
        matches!(self, Cmd::Upload { .. }) || self.is_custom()
    }

    /// Is it best submitted without waiting for what comes after it? Somebody waits for a large
    /// read, and copies it out while the device copies the next.
    pub(super) fn goes_at_once(&self) -> bool {
        matches!(self, Cmd::Read { piece, .. } if piece.size_bytes >= LARGE_PIECE_BYTES)
    }

    /// Does it run a kernel of the app's? Those get a submission of their own: a driver that
    /// refuses it refuses nothing else.
    pub(super) fn is_custom(&self) -> bool {
        matches!(self, Cmd::Launch(launch) if matches!(launch.program, Program::Custom(_)))
    }

    /// Does it touch a buffer of the app's? Those get a submission of their own too: the app may
    /// have destroyed the buffer.
    pub(super) fn is_foreign(&self) -> bool {
        let mut foreign = false;
        self.each_operand(|storage, _| foreign |= storage.residency() == Residency::Imported);
        foreign
    }

    /// Does it make several results, of which one may be had without the others?
    pub(super) fn has_several_results(&self) -> bool {
        match self {
            Cmd::Launch(launch) => match &launch.program {
                Program::Fused(fused) => {
                    let written = fused.operands.iter().filter(|one| one.role != Role::Read);
                    written.count() > 1
                }
                _ => false,
            },
            _ => false,
        }
    }
}
