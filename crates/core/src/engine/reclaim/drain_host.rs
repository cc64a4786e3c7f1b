//! Shrinks what is in the host's memory to a lowered limit of the host.

use super::compact;
use crate::engine::heap;
use crate::engine::pass::Pass;
use crate::engine::tiers;
use crate::error::Result;

/// Brings the host's share below its limit, as far as the stores and the disk have room. The caller
/// has the execution lock.
pub(super) async fn drain_host(pass: &Pass) -> Result<()> {
    if pass.host.excess_bytes() > 0 {
        // Copies in progress have reserved their bytes already.
        let given_up = pass.lock().cleanings.take_all();
        drop(given_up);
        pass.give_up_all_reads();
    }
    while pass.host.excess_bytes() > 0 {
        let shed_bytes = tiers::shed_host_copies(pass, pass.host.excess_bytes())?;
        if pass.caps().host_heap {
            release_heap(pass).await?;
        }
        if shed_bytes == 0 {
            break;
        }
    }
    let mut before_bytes = u64::MAX;
    while pass.caps().host_heap && (1..before_bytes).contains(&pass.host.excess_bytes()) {
        // Blocks need not leave for the holes beside them.
        before_bytes = pass.host.excess_bytes();
        compact::shrink_heap(pass, before_bytes).await?;
        release_heap(pass).await?;
    }
    let mut on_host = match pass.host.excess_bytes() {
        0 => Vec::new(),
        _ => pass.lock().memory.on_host(),
    };
    while pass.host.excess_bytes() > 0 {
        let Some(storage) = on_host.pop() else { break };
        // A storage that finds no room stays on the host.
        tiers::send_below(pass, &storage).await?;
        if pass.caps().host_heap {
            heap::release_empty(pass);
        }
    }
    Ok(())
}

/// Releases the empty slabs of the heap, once the device has finished with them.
async fn release_heap(pass: &Pass) -> Result<()> {
    pass.submit()?;
    pass.wait_idle().await?;
    heap::release_empty(pass);
    Ok(())
}
