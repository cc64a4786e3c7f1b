//! Commands: the values that wait in the queue.

use std::sync::Arc;

use crate::engine::kernel::pages::Pages;
use crate::engine::kernel::{Launch, Program, Role};
use crate::error::Error;
use crate::memory::{Residency, ShareHandle, Storage};
use crate::transfer::{LARGE_PIECE_BYTES, Piece, Reading, Region};

/// A command. It holds the storages of its operands and not their places. An execution pass looks
/// up the places when it reaches the command. To free an operand, dropping the command is enough.
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
    Clear {
        dst: Arc<Storage>,
        /// The method that the app called; empty if it is not known.
        method: &'static str,
    },
    /// Copies staged bytes into a storage, at a multiple of 4.
    Upload {
        dst: Arc<Storage>,
        offset_bytes: u64,
        region: Region,
        /// Whether this is the first piece of an upload that replaces the whole value.
        whole: bool,
    },
    /// Poisons a storage, because the call that should have written it failed.
    Poison {
        dst: Arc<Storage>,
        cause: Arc<Error>,
    },
    /// Places a storage and restores its bytes before a command needs them.
    Prefetch(Arc<Storage>),
    /// Needs its operands on the device and does nothing with them.
    #[cfg(any(test, feature = "sim"))]
    Touch(Vec<(Arc<Storage>, Role)>),
    /// Moves the result of a rematerializer into the storage for which it ran.
    TakeOver {
        from: Arc<Storage>,
        to: Arc<Storage>,
    },
    /// Copies a piece of a storage to the host.
    Read {
        src: Arc<Storage>,
        reading: Arc<Reading>,
        piece: Piece,
        /// The share that reads; `None` if it is none.
        by: Option<Arc<ShareHandle>>,
    },
}

impl Cmd {
    /// Calls `visit` for each operand, with its role.
    pub fn each_operand(&self, visit: &mut dyn FnMut(&Arc<Storage>, Role)) {
        self.visit_operands(visit);
    }

    /// Whether an operand, with its role, is such a one.
    pub(crate) fn has_operand(&self, mut is_it: impl FnMut(&Arc<Storage>, Role) -> bool) -> bool {
        let mut has_it = false;
        self.each_operand(&mut |storage, role| has_it |= is_it(storage, role));
        has_it
    }

    /// As [`each_operand`](Self::each_operand), for what runs for each command: it is compiled into
    /// the caller.
    #[inline]
    pub(crate) fn visit_operands(&self, mut visit: impl FnMut(&Arc<Storage>, Role)) {
        self.visit_unpaged(&mut visit);
        if let Some((pages, role)) = self.pages() {
            pages.storages().iter().for_each(|page| visit(page, role));
        }
    }

    /// The pages, which other commands may share, with their role.
    #[inline]
    pub(crate) fn pages(&self) -> Option<(&Arc<Pages>, Role)> {
        let Cmd::Launch(launch) = self else {
            return None;
        };
        let operand = launch.program.pages()?;
        Some((launch.pages.as_ref()?, launch.program.role(operand)))
    }

    /// As [`visit_operands`](Self::visit_operands), without pages.
    #[inline]
    pub(crate) fn visit_unpaged(&self, mut visit: impl FnMut(&Arc<Storage>, Role)) {
        match self {
            Cmd::Launch(launch) => {
                for (index, arg) in launch.args.iter().enumerate() {
                    visit(&arg.storage, launch.program.role(index));
                }
            }
            Cmd::Clear { dst, .. } => visit(dst, Role::Write),
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

    /// What it does, for an error: the method that the app called, and the tensors that it writes.
    #[cold]
    pub(crate) fn described(&self, operation: fn(&Launch) -> String) -> String {
        let mut described = match self {
            Cmd::Launch(launch) => launch.name(operation),
            Cmd::Upload { .. } => "an upload".to_owned(),
            Cmd::Clear { method: "", .. } => "zeros".to_owned(),
            Cmd::Clear { method, .. } => (*method).to_owned(),
            _ => "a command".to_owned(),
        };
        self.each_operand(&mut |storage, role| {
            let made_at = format!(" for the tensor made at {}", storage.tag());
            if role != Role::Read && !described.ends_with(&made_at) {
                described.push_str(&made_at);
            }
        });
        described
    }

    /// Whether the command should be submitted at once. The reading thread copies one large piece
    /// out while the device copies the next.
    pub(crate) fn submits_at_once(&self) -> bool {
        matches!(self, Cmd::Read { piece, .. } if piece.size_bytes >= LARGE_PIECE_BYTES)
    }

    /// Whether the command runs a kernel of the app. Such a command is submitted alone: if the
    /// driver refuses it, no other command fails.
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self, Cmd::Launch(launch) if matches!(launch.program, Program::Custom(_)))
    }

    /// Whether the command uses a buffer of the app. Such a command is submitted alone too, because
    /// the app may have destroyed the buffer.
    pub(crate) fn is_foreign(&self) -> bool {
        self.has_operand(|storage, _| storage.residency() == Residency::Imported)
    }

    /// Whether the command has several results, of which some may be available without the others.
    pub(crate) fn has_several_results(&self) -> bool {
        let Cmd::Launch(launch) = self else {
            return false;
        };
        let Program::Fused(fused) = &launch.program else {
            return false;
        };
        let written = fused.operands.iter().filter(|one| one.role != Role::Read);
        written.count() > 1
    }
}
