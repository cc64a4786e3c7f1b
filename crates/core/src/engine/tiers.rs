//! The tiers of evicted storages: the host's share of memory, the stores of the app, and the disk.

#[cfg_attr(target_arch = "wasm32", path = "tiers/ahead_nowhere.rs")]
pub(super) mod ahead;
pub(super) mod arrivals;
pub(super) mod supply;

use std::sync::Arc;

use super::pass::Pass;
use super::state::cleaning::Cleaning;
use super::state::destination::Destination;
use crate::error::{Error, Result, SpillFailure, StoreFailure};
use crate::memory::{Copies, HostCharge, HostUse, Storage, Tier};
use supply::Supply;

/// All tiers that a storage may be evicted to, in order. Where host and device share one memory,
/// the host's is none of them.
pub(super) fn all(pass: &Pass) -> impl Iterator<Item = Tier> {
    let host = (!pass.caps().maps_slabs).then_some(Tier::Host);
    host.into_iter().chain(below_host(pass))
}

/// The tiers below the host's memory.
pub(super) fn below_host(pass: &Pass) -> impl Iterator<Item = Tier> + use<> {
    stores(pass).chain([Tier::Disk])
}

/// The stores of the app.
pub(super) fn stores(pass: &Pass) -> impl Iterator<Item = Tier> + use<> {
    // There are at most a few.
    (0..pass.stores.len() as u8).map(Tier::Store)
}

/// Whether a tier takes bytes now. A store that failed is left alone for a while.
pub(super) fn is_ready(pass: &Pass, tier: Tier) -> bool {
    match tier {
        Tier::Store(number) => pass.stores[usize::from(number)].takes_bytes(),
        Tier::Host | Tier::Disk => true,
    }
}

/// A destination for a storage's bytes that takes no memory from other copies.
pub(super) fn spare_destination(pass: &Pass, storage: &Storage, tier: Tier) -> Result<Destination> {
    if tier == Tier::Host && pass.host.missing_bytes(storage.len_bytes()) > 0 {
        return Err(no_room_on_host());
    }
    destination_beside(pass, storage, tier)
}

/// A destination for a storage's bytes. Gives up copies to the tier that are between two
/// parts, if the bytes have room only instead of them.
pub(super) fn destination(pass: &Pass, storage: &Storage, tier: Tier) -> Result<Destination> {
    let mut made = destination_beside(pass, storage, tier);
    if made.as_ref().is_err_and(is_full) && give_up_demoted(pass, tier, storage.len_bytes()) {
        made = destination_beside(pass, storage, tier);
    }
    if made.is_ok() {
        return made;
    }
    let left = {
        let cleanings = &mut pass.lock().cleanings;
        let left_bytes = cleanings.left_bytes(Some(tier));
        let lacking_bytes = match tier {
            Tier::Host => pass.host.missing_bytes(storage.len_bytes()),
            _ => storage.len_bytes(),
        };
        if left_bytes == 0 || lacking_bytes > left_bytes {
            return made;
        }
        cleanings.take_all_that(|one| one.is_left() && one.tier == tier)
    };
    drop(left);
    destination_beside(pass, storage, tier)
}

/// Gives up copies in a tier of bytes that are also in the host's memory, as many as the victim
/// lacks room there: its bytes are nowhere else. `false` if there are not as many. Then they stay.
fn give_up_demoted(pass: &Pass, tier: Tier, victim_bytes: u64) -> bool {
    let room_bytes = match tier {
        Tier::Host => 0,
        Tier::Store(number) => pass.stores[usize::from(number)].room_bytes(),
        Tier::Disk => {
            let quota_bytes = pass.budget().disk_bytes.unwrap_or(u64::MAX);
            quota_bytes.saturating_sub(pass.spill.used_bytes())
        }
    };
    // A disk that is full within its quota lacks room for the whole victim.
    let missing_bytes = match victim_bytes.saturating_sub(room_bytes) {
        0 => victim_bytes,
        missing_bytes => missing_bytes,
    };
    let under_way = {
        let state = &mut *pass.lock();
        let (cleanings, slots) = (&mut state.cleanings, &mut state.memory.slots);
        let under_way_bytes = cleanings.demoted_bytes(Some(tier));
        if under_way_bytes.saturating_add(slots.demoted_bytes(Some(tier))) < missing_bytes {
            return false;
        }
        let dropped_bytes = slots.drop_demoted(tier, missing_bytes);
        let missing_bytes = missing_bytes.saturating_sub(dropped_bytes);
        let under_way = cleanings.take_demotions(tier, missing_bytes);
        state.counters.evicted_bytes += under_way.iter().map(Cleaning::moved_bytes).sum::<u64>();
        under_way
    };
    drop(under_way);
    pass.drop_stale_copies();
    true
}

fn destination_beside(pass: &Pass, storage: &Storage, tier: Tier) -> Result<Destination> {
    let len_bytes = storage.len_bytes();
    match tier {
        Tier::Host => {
            let mut bytes = Vec::new();
            let charge = host_charge(pass, len_bytes)?;
            let kept_bytes = match pass.driver.has_contents() {
                true => len_bytes,
                false => 0,
            };
            let reserved = bytes.try_reserve_exact(kept_bytes as usize);
            match (charge, reserved) {
                (Some(charge), Ok(())) => Ok(Destination::Host(bytes, charge)),
                _ => Err(no_room_on_host()),
            }
        }
        Tier::Store(number) => {
            let store = &pass.stores[usize::from(number)];
            Ok(Destination::Store(number, store.begin(len_bytes)?))
        }
        Tier::Disk => {
            let share = storage.share().number();
            Ok(Destination::Disk(pass.spill.begin(len_bytes, share)?))
        }
    }
}

/// Reserves bytes of the host's share. If need be, drops copies of storages that have another one.
fn host_charge(pass: &Pass, size_bytes: u64) -> Result<Option<HostCharge>> {
    let charge = pass.host.charge(HostUse::Copy, size_bytes);
    if charge.is_some() || pass.host.limit_bytes() < size_bytes {
        return Ok(charge);
    }
    pass.give_up_reads(pass.host.missing_bytes(size_bytes));
    let missing_bytes = pass.host.missing_bytes(size_bytes);
    if missing_bytes > 0 {
        shed_host_copies(pass, missing_bytes)?;
    }
    Ok(pass.host.charge(HostUse::Copy, size_bytes))
}

/// Drops host copies of storages that are also on the device, in a store or on disk.
pub(super) fn shed_host_copies(pass: &Pass, wanted_bytes: u64) -> Result<u64> {
    if pass.lock().memory.slots.spare_host_bytes() > 0 {
        // The driver may still refuse the batch that restores such storages.
        pass.submit()?;
    }
    let mut state = pass.lock();
    let shed_bytes = state.memory.slots.shed_host_copies(wanted_bytes);
    drop(state);
    pass.drop_stale_copies();
    Ok(shed_bytes)
}

/// Moves a storage from the host's memory to the first tier below that takes it. `false` if none
/// does.
pub(super) async fn send_below(pass: &Pass, storage: &Arc<Storage>) -> Result<bool> {
    for tier in below_host(pass).filter(|tier| is_ready(pass, *tier)) {
        if send_on(pass, storage, tier).await.is_ok() {
            return Ok(true);
        }
        pass.check_lost()?;
    }
    Ok(false)
}

/// Moves a storage from the host's memory to another tier.
async fn send_on(pass: &Pass, storage: &Arc<Storage>, tier: Tier) -> Result<()> {
    let Some(copies) = supply::evicted_copies(pass, storage) else {
        return Ok(());
    };
    let mut to = destination(pass, storage, tier)?;
    let mut supply = Supply::mapping(pass, storage, &copies).await?;
    let sent = supply.each(0..storage.len_bytes(), |piece| to.take(piece));
    sent.await?;
    drop(supply);
    let mut moved = Copies::default();
    to.finish(&mut moved)?;
    pass.lock().memory.slots.copied(storage, |copies| {
        copies.add(moved);
        copies.host = None;
    });
    // The last holder frees the bytes.
    drop(copies);
    Ok(())
}

/// Whether a tier refuses bytes for lack of room.
fn is_full(error: &Error) -> bool {
    match error {
        Error::Store(error) => error.failure == StoreFailure::Full,
        Error::Spill(error) => {
            matches!(
                error.failure,
                SpillFailure::QuotaFull | SpillFailure::DiskFull
            )
        }
        _ => false,
    }
}

fn no_room_on_host() -> Error {
    Error::option("budget", "the host's share has no room for the tensor")
}
