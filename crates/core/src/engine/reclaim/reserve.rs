//! Creates slabs before a command needs them.

use super::compact;
use crate::driver::DriverError;
use crate::engine::pass::Pass;
use crate::error::Result;
use crate::transfer::refusal;
use crate::units::MIB;

/// The size of a slab that is created ahead. Any request but a large one can use such a slab.
const RESERVED_SLAB_BYTES: u64 = 16 * MIB;

/// The last slab may be smaller, but is a multiple of this.
const LEAST_RESERVED_BYTES: u64 = 64 << 10;

/// Creates slabs until `bytes` are reserved. Returns the bytes that are reserved.
pub(crate) async fn create_slabs(pass: &Pass, bytes: u64) -> Result<u64> {
    loop {
        let limit_bytes = pass.driver.ledger().slab_limit_now_bytes();
        let limit_bytes = limit_bytes.min(pass.soft_limit_bytes()).min(bytes);
        let growth = {
            let state = pass.lock();
            let reserved_bytes = state.memory.slabs.reserved_bytes();
            let missing_bytes = limit_bytes.saturating_sub(reserved_bytes);
            let most_bytes = RESERVED_SLAB_BYTES.min(pass.caps().max_buffer_bytes);
            let slab_bytes = missing_bytes.min(most_bytes) & !(LEAST_RESERVED_BYTES - 1);
            match state.memory.slabs.growth(slab_bytes) {
                Ok(growth) if slab_bytes > 0 => growth.least(),
                _ => return Ok(reserved_bytes),
            }
        };
        match pass.unless_lost(compact::create_planned(pass, &growth).await)? {
            Ok(_) => {}
            Err(DriverError::OutOfMemory | DriverError::OverBudget) => {
                return Ok(pass.lock().memory.slabs.reserved_bytes());
            }
            Err(error) => return Err(refusal("a slab", error)),
        }
    }
}
