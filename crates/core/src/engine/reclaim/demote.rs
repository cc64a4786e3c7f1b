//! Demotion: cold blocks of the heap go on to stores and to the disk, behind the work.
//!
//! ```text
//!   slab of the heap ── copy in the batch ─► read-back buffer ── a thread ─► store, disk
//! ```
//!
//! When an eviction has filled the heap, and the next ones would find no room there, the blocks
//! that are used last are copied on. Nobody waits for that. Once their bytes have arrived, they are
//! also elsewhere, and give their room whenever the heap needs it.

use super::coldest::coldest;
use super::evict;
use super::outlook::Outlook;
use crate::engine::heap;
use crate::engine::pass::Pass;
use crate::engine::tiers;
use crate::error::Result;
use crate::memory::Candidate;

/// At most 1/8 of the host's limit is copied on before its room is needed.
const MOST_OF_LIMIT: u64 = 8;

/// Copies on what the next evictions will need the room of: as many bytes as the last ones took, or
/// as the queue will lack. Called after evictions to the heap, also those that the app asks for,
/// which have no outlook yet.
pub(super) async fn demote_ahead(
    pass: &Pass,
    outlook: Option<Outlook>,
    evicted_bytes: u64,
) -> Result<()> {
    let limit_bytes = pass.host.limit_bytes();
    if limit_bytes == u64::MAX || !pass.caps().host_heap {
        return Ok(());
    }
    let outlook = outlook.unwrap_or_else(|| Outlook::new(&pass.lock()));
    let most_bytes = limit_bytes / MOST_OF_LIMIT;
    let (mut missing_bytes, coldest) = {
        let state = pass.lock();
        let room_bytes = heap::unslabbed_bytes(pass) + state.memory.heap_room_bytes();
        let room_bytes = room_bytes + state.cleanings.demoted_bytes(None);
        let wanted_bytes = evicted_bytes.max(outlook.lack_bytes).min(most_bytes);
        let missing_bytes = wanted_bytes.saturating_sub(room_bytes);
        if missing_bytes == 0 {
            return Ok(());
        }
        (missing_bytes, coldest(&state, &outlook))
    };
    for block in coldest {
        if missing_bytes == 0 {
            break;
        }
        let size_bytes = block.storage.size_bytes();
        if size_bytes > pass.part_bytes() {
            // It would go in parts, and a pass would have to go on with each.
            continue;
        }
        // A smaller one may go where this one does not.
        if copy_on(pass, block).await? {
            missing_bytes = missing_bytes.saturating_sub(size_bytes);
        }
    }
    // The device begins to copy, so that nobody waits for the bytes later.
    pass.submit()
}

/// Records the copy of a block, and leaves it under way. `false` if it would have to wait, as what
/// is larger than the read-back buffers, or if no tier takes it.
async fn copy_on(pass: &Pass, block: Candidate) -> Result<bool> {
    if block.storage.len_bytes() > pass.readbacks.room_bytes() {
        return Ok(false);
    }
    let mut below = tiers::below_host(pass).filter(|tier| tiers::is_ready(pass, *tier));
    let begun = below.find_map(|tier| tiers::spare_destination(pass, &block.storage, tier).ok());
    let Some(destination) = begun else {
        return Ok(false);
    };
    let started = evict::start_eviction(pass, block, destination).await?;
    // Parts may be smaller than before, because its buffers took some of the limit. No pass would
    // go on with the rest.
    let Some(mut started) = started.filter(|started| !started.copy.is_left()) else {
        return Ok(false);
    };
    started.copy.is_demotion = true;
    pass.lock().cleanings.push(started.copy);
    Ok(true)
}
