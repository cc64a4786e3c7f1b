//! Encodes what launches with pages have beside others: their rounds, and tables of their pages.

use std::sync::Arc;

use smallvec::SmallVec;

use super::step::Stop;
use super::windows::{Limits, MOST_WINDOWS, Round};
use crate::driver::AdapterKind;
use crate::engine::kernel::Launch;
use crate::engine::state::State;
use crate::memory::{Place, Storage};

impl State {
    /// The rounds of a launch whose pages have places.
    pub(super) fn rounds(&self, launch: &Launch) -> Result<Vec<Round>, Stop> {
        let (Some(pages), Some(operand)) = (&launch.pages, launch.program.pages()) else {
            return Ok(Vec::new());
        };
        let place = |storage: &Arc<Storage>| self.memory.slots.find(storage).ok_or(Stop::Lost);
        let places = pages.storages().iter().map(place);
        let places = places.collect::<Result<Vec<Place>, Stop>>()?;
        let others = launch.args.iter().enumerate();
        let others = others.filter(|(index, _)| *index != operand);
        let others = others
            .map(|(_, arg)| place(&arg.storage))
            .collect::<Result<SmallVec<[Place; 8]>, Stop>>()?;
        let caps = self.driver.caps();
        let page_bytes = launch.args[operand].storage.size_bytes();
        // The call has checked that enough windows are left for pages that belong together.
        let taken = launch.windows(caps.max_binding_bytes).saturating_sub(1);
        let left = u64::from(caps.most_windows()).saturating_sub(taken);
        // A software adapter reads all windows at each access, and starts a dispatch quickly.
        let most = match caps.kind {
            AdapterKind::Cpu => 1,
            _ => MOST_WINDOWS,
        };
        let limits = Limits {
            page_bytes,
            window_bytes: caps.max_binding_bytes,
            most: (left.min(most) as usize).max(pages.together()),
            alignment_bytes: caps.offset_alignment_bytes,
            others: &others,
        };
        Ok(limits.rounds(&places, pages.ends(), pages.together()))
    }

    /// Writes the table of a round, unless the device has it already.
    pub(super) fn write_table(&mut self, launch: &Launch, words: &[u32]) {
        let (Some(pages), Some(table)) = (&launch.pages, launch.page_table()) else {
            return;
        };
        let Some(place) = self.memory.slots.find(table) else {
            return;
        };
        if pages.note_table(words) {
            self.memory.record_operand(table, true);
            let at = place.at(pages.table_start_bytes());
            self.batch.write(at, bytemuck::cast_slice(words));
        }
    }
}
