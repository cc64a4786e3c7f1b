//! Dummy operators: commands that need their operands on the device and do nothing with them. With
//! them the trace of another program is replayed on a simulated device, by the execution pass that
//! runs everything else.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Engine;
use super::cmd::Cmd;
use super::execute::{Need, Stop};
use super::kernel::Role;
use super::state::State;
use crate::error::Result;
use crate::memory::Storage;

impl Engine {
    /// Appends a dummy operator with these operands, each storage once.
    pub(crate) fn touch(self: &Arc<Self>, operands: Vec<(Arc<Storage>, Role)>) -> Result<()> {
        self.push_one(Cmd::Touch(operands))
    }
}

impl State {
    pub(super) fn encode_touch(
        &mut self,
        operands: &[(Arc<Storage>, Role)],
    ) -> std::result::Result<(), Stop> {
        let read = operands.iter().filter(|(_, role)| *role != Role::Write);
        for (storage, _) in read {
            if let Some(cause) = self.memory.poison_of(storage) {
                return Err(Stop::Poison(cause));
            }
        }
        if let Some(need) = self.acquire_all(operands)? {
            return Err(Stop::Need(need));
        }
        for (storage, role) in operands {
            self.memory.used(storage);
            if *role != Role::Read {
                self.memory.written(storage);
            }
        }
        Ok(())
    }

    /// Gives every operand a place, as `acquire` does for a launch.
    fn acquire_all(
        &mut self,
        operands: &[(Arc<Storage>, Role)],
    ) -> std::result::Result<Option<Need>, Stop> {
        let mut placed = SmallVec::<[&Arc<Storage>; 4]>::new();
        for (storage, _) in operands {
            if self.memory.find(storage).is_some() {
                continue;
            }
            let need = if self.memory.is_evicted(storage) {
                Need::Restore {
                    storage: storage.clone(),
                }
            } else if self.memory.place(storage)?.is_some() {
                placed.push(storage);
                continue;
            } else {
                Need::Room {
                    storage: storage.clone(),
                }
            };
            self.placed.extend(placed.into_iter().map(Arc::downgrade));
            return Ok(Some(need));
        }
        Ok(None)
    }
}
