//! Who holds a storage: commands, or somebody else.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::cmd::Cmd;
use crate::engine::kernel::Role;
use crate::engine::kernel::pages::Pages;
use crate::memory::{Memory, Storage};
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
                handles.add(storage, met);
            });
        }
        handles
    }

    /// The addresses of the operands that something other than these commands holds.
    ///
    /// A rematerializer holds its inputs for its storage. So commands, storages and inputs may hold
    /// each other in a circle that nothing else holds.
    pub(crate) fn held_by_others<'a>(
        cmds: impl Iterator<Item = &'a Cmd> + Clone,
        memory: &Memory,
    ) -> FxHashSet<usize> {
        let mut handles = Handles::of(cmds.clone());
        let (mut met, mut reached) = (FxHashSet::default(), Vec::new());
        for cmd in cmds {
            cmd.visit_operands(|storage, _| {
                if met.insert(storage.address()) {
                    reached.push(storage.clone());
                }
            });
        }
        let mut at = 0;
        while at < reached.len() {
            for input in memory.slots.inputs_of(&reached[at]) {
                handles.add(&input, 1);
                if met.insert(input.address()) {
                    reached.push(input);
                }
            }
            at += 1;
        }
        // The list has one handle itself.
        let is_held = |storage: &&Arc<Storage>| handles.of_others(storage) > 1;
        let mut ahead = reached.iter().filter(is_held).cloned().collect::<Vec<_>>();
        let mut held = FxHashSet::default();
        while let Some(storage) = ahead.pop() {
            if held.insert(storage.address()) {
                ahead.extend(memory.slots.inputs_of(&storage));
            }
        }
        held
    }

    fn add(&mut self, storage: &Arc<Storage>, handles: usize) {
        *self.counts.entry(storage.address() as u64).or_default() += handles;
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
