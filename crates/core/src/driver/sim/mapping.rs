//! Mappings: requested, granted when the submissions that use the buffer are done, and ended.

use std::ops::Range;

use super::contents::Mapping;
use super::faults::{FaultKind, Site};
use super::queue::{Fate, State};
use crate::driver::{BufferId, MapMode, Signal};

impl State {
    /// Records the request for a mapping that was checked.
    pub(super) fn want_mapping(
        &mut self,
        id: BufferId,
        mode: MapMode,
        range: Range<u64>,
    ) -> Signal {
        let completed = self.completed;
        let buffer = self.memory.get_mut(id).expect("it was checked");
        let ready = Signal::after(match buffer.last_use > completed {
            true => buffer.last_use,
            false => 0,
        });
        buffer.mapping = Mapping::Wanted {
            mode,
            range,
            ready: ready.clone(),
        };
        self.wanted.push(id);
        ready
    }

    /// Grants the mappings whose submissions are done.
    pub(super) fn settle_mappings(&mut self) {
        let completed = self.completed;
        let wanted = std::mem::take(&mut self.wanted);
        let mut wanted = wanted.into_iter();
        while let Some(id) = wanted.next() {
            let Some(buffer) = self.memory.get_mut(id) else {
                continue;
            };
            let Mapping::Wanted { mode, range, ready } = &buffer.mapping else {
                continue;
            };
            if ready.serial() > completed {
                self.wanted.push(id);
                continue;
            }
            let (mode, range, ready) = (*mode, range.clone(), ready.clone());
            self.counters.count(Site::MapDone);
            let strike = self.faults.strike(|of| of.counts(Site::MapDone));
            self.counters.faults += u64::from(strike.is_some());
            let (mapping, fate) = match strike {
                None => (Mapping::Mapped { mode, range }, Fate::Happened),
                Some(_) => (Mapping::Failed, Fate::Failed),
            };
            buffer.mapping = mapping;
            self.settled.push((ready, fate));
            if strike == Some(FaultKind::Lost) {
                self.wanted.extend(wanted);
                self.lose("a fault at MapDone");
                return;
            }
        }
    }

    /// Ends a mapping or a request for one.
    pub(super) fn cancel(&mut self, mapping: Mapping) {
        if let Mapping::Wanted { ready, .. } = mapping {
            let fate = match self.lost {
                None => Fate::Failed,
                Some(_) => Fate::Lost,
            };
            self.settled.push((ready, fate));
        }
    }
}
