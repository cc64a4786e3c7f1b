//! The blocks of the heap in the host's memory that are used last.

use std::cmp::Reverse;

use super::outlook::Outlook;
use crate::engine::pass::Pass;
use crate::engine::state::State;
use crate::engine::tiers;
use crate::error::Result;
use crate::memory::Candidate;

/// Sends blocks on that are used later than a victim, until they have left as much room as it
/// needs. Otherwise it would have to go below the heap itself, with the same wait. Returns whether
/// a block has gone.
pub(super) async fn send_colder_on(pass: &Pass, victim: &Candidate) -> Result<bool> {
    let colder = {
        let state = pass.lock();
        let outlook = Outlook::new(&state);
        let most = outlook.distance(&state, victim);
        let mut colder = coldest(&state, &outlook);
        colder.retain(|block| block.distance > most);
        colder
    };
    let mut left_bytes = 0;
    for block in colder {
        let size_bytes = block.storage.size_bytes();
        if left_bytes >= victim.storage.size_bytes() {
            break;
        }
        // A larger one would hold up more urgent work for too long.
        if size_bytes <= pass.part_bytes() && tiers::send_below(pass, &block.storage).await? {
            left_bytes += size_bytes;
        }
    }
    Ok(left_bytes > 0)
}

/// The blocks of the heap whose bytes are nowhere else, the one that is used last first.
pub(super) fn coldest(state: &State, outlook: &Outlook) -> Vec<Candidate> {
    let mut blocks = state.memory.only_in_heap();
    blocks.retain(|block| !state.cleanings.holds(&block.storage));
    for block in &mut blocks {
        block.distance = outlook.distance(state, block);
    }
    blocks.sort_by_key(|block| Reverse(block.distance));
    blocks
}
