//! Who holds a storage: commands, or somebody else.

use std::sync::Arc;

use super::cmd::Cmd;
use crate::engine::kernel::Role;
use crate::engine::kernel::pages::Pages;
use crate::memory::Storage;
use crate::number_map::NumberMap;

/// The number of handles that commands have of each storage.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// By the addresses of the storages.
    counts: NumberMap<usize>,
}

impl Handles {
    pub(crate) fn of<'a>(cmds: impl Iterator<Item = &'a Cmd>) -> Handles {
        let mut handles = Handles::default();
        let mut sharing = Sharing::default();
        for cmd in cmds {
            cmd.visit_handles(&mut sharing, |storage, _, met| {
                *handles.counts.entry(storage.address() as u64).or_default() += met;
            });
        }
        handles
    }

    /// The number of handles that others have.
    pub(crate) fn of_others(&self, storage: &Arc<Storage>) -> usize {
        let counted = self.counts.get(&(storage.address() as u64));
        Arc::strong_count(storage).saturating_sub(counted.copied().unwrap_or(0))
    }
}

/// Sets of pages, each with the number of commands so far that share it. Commands share their
/// pages: a set holds each of its storages once, until the last command has run.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// By the addresses of the sets.
    cmds: NumberMap<usize>,
}

impl Sharing {
    /// Whether nothing holds the pages but this command and those that were met before.
    fn meet(&mut self, pages: &Arc<Pages>) -> bool {
        let met = self.cmds.entry(Arc::as_ptr(pages) as u64).or_default();
        *met += 1;
        Arc::strong_count(pages) <= *met
    }
}

impl Cmd {
    /// As [`visit_operands`](Self::visit_operands), with the number of handles of the storage that
    /// the commands so far have and those before this operand had not.
    #[inline]
    pub(crate) fn visit_handles(
        &self,
        sharing: &mut Sharing,
        mut visit: impl FnMut(&Arc<Storage>, Role, usize),
    ) {
        self.visit_unpaged(|storage, role| visit(storage, role, 1));
        if let Some((pages, role)) = self.pages() {
            let met = usize::from(sharing.meet(pages));
            (pages.storages().iter()).for_each(|page| visit(page, role, met));
        }
    }
}
