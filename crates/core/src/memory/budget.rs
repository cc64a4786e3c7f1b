//! The app's memory limits, and the account of the bytes in the host's memory.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::printable::printable;
use crate::units::{Level, parse_bytes};

/// Most columns of the user's text that an error quotes.
const MOST_QUOTED: usize = 60;

/// How much memory a [`Gpu`](crate::Gpu) may use. `None` sets no limit.
///
/// The device's limit covers everything that the `Gpu` creates there: slabs, staging, read-back
/// buffers, and released slabs that the device still uses. Bytes are reserved before anything is
/// created, so the limit is never exceeded, not even briefly. When work needs more, the engine
/// evicts buffers that no current command uses: to the host's memory, to [stores](crate::stores) or
/// to disk. It restores them when a command uses them. The operands and results of a single
/// operation must fit on the device together. Imported buffers of the app do not count. The bytes
/// in stores have limits of their own.
///
/// A budget parses from text: `512MiB` limits the device. A list sets `device=`, `soft=`,
/// `staging=`, `host=` and `disk=`, each at most once. The environment variable `LAPIDARY_BUDGET`
/// has the same form.
///
/// ```
/// use lapidary_core::Budget;
///
/// let budget: Budget = "device=512MiB,host=2GiB,disk=0".parse()?;
/// assert_eq!(budget.device_bytes, Some(512 << 20));
/// assert_eq!(budget.disk_bytes, Some(0));
/// assert_eq!("512MiB".parse::<Budget>()?.device_bytes, budget.device_bytes);
/// # Ok::<(), lapidary_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Budget {
    /// Hard limit on the device, in bytes; never exceeded. `None`: the operating system's budget
    /// for this process, where the system reports one.
    pub device_bytes: Option<u64>,
    /// Soft limit on the device, in bytes. The engine exceeds it only after every step without
    /// traffic: callbacks, releasing empty slabs, moving blocks together.
    pub soft_device_bytes: Option<u64>,
    /// The part of the device's limit that is for staging, in bytes: uploads, reads, evictions and
    /// restores. `None`: 1/32 of the limit, at most 128 MiB.
    pub staging_bytes: Option<u64>,
    /// Most bytes of the host's memory for evicted buffers; 0 for none. Slabs of a heap there
    /// ([`Options::host_heap`](crate::Options::host_heap)) count whole. What is read ahead of need
    /// from the disk and from sources counts, too. Where host and device share one memory, eviction
    /// to the host frees nothing, so buffers go to stores and to disk at once.
    pub host_bytes: Option<u64>,
    /// Most bytes of evicted buffers on disk; 0 for none.
    pub disk_bytes: Option<u64>,
}

impl Budget {
    /// A hard limit for the device, in bytes, and no limits for the host and the disk.
    pub const fn device(bytes: u64) -> Budget {
        Budget {
            device_bytes: Some(bytes),
            soft_device_bytes: None,
            staging_bytes: None,
            host_bytes: None,
            disk_bytes: None,
        }
    }

    /// Refuses limits that contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |reason: &str| Error::option("budget", reason);
        match (self.soft_device_bytes, self.device_bytes) {
            (_, Some(0)) => Err(wrong("0 bytes on the device leave no room for any buffer")),
            (Some(soft), Some(hard)) if soft > hard => {
                Err(wrong("the soft limit is above the hard one"))
            }
            (_, Some(hard)) if self.staging_bytes.is_some_and(|staging| staging >= hard) => {
                Err(wrong("the staging bytes leave no room for any buffer"))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Budget {
    type Err = Error;

    /// Parses bytes for the device (`512MiB`), or a list of `device=`, `soft=`, `staging=`, `host=`
    /// and `disk=`, each at most once.
    fn from_str(text: &str) -> Result<Budget> {
        let mut budget = Budget::default();
        for part in text.split(',') {
            let (name, bytes) = part.split_once('=').unwrap_or(("device", part));
            let bytes = parse_bytes(bytes.trim()).ok_or_else(|| {
                Error::option(
                    "budget",
                    format!(
                        "`{}` is not a number of bytes, such as 512MiB",
                        printable(bytes.trim(), MOST_QUOTED)
                    ),
                )
            })?;
            let field = match name.trim() {
                "device" => &mut budget.device_bytes,
                "soft" => &mut budget.soft_device_bytes,
                "staging" => &mut budget.staging_bytes,
                "host" => &mut budget.host_bytes,
                "disk" => &mut budget.disk_bytes,
                other => {
                    let other = printable(other, MOST_QUOTED);
                    return Err(Error::option(
                        "budget",
                        format!("`{other}`: expected device, soft, staging, host or disk"),
                    ));
                }
            };
            if field.replace(bytes).is_some() {
                return Err(Error::option(
                    "budget",
                    format!("`{}` occurs twice", printable(name.trim(), MOST_QUOTED)),
                ));
            }
        }
        budget.check()?;
        Ok(budget)
    }
}

/// The account of the host's share: copies of storages, the slabs of the heap in the host's memory,
/// and what is read ahead. The blocks in these slabs are copies. They count as such, and not for
/// the limit.
#[derive(Debug)]
pub(crate) struct HostAccount {
    limit_bytes: AtomicU64,
    /// What counts for the limit: copies in plain memory, slabs, and what is read ahead.
    used: Bytes,
    /// All copies.
    copies: Bytes,
    slabs: Bytes,
    /// What is read ahead of need.
    reads: Bytes,
}

/// Bytes over time.
#[derive(Debug, Default)]
struct Bytes {
    now: AtomicU64,
    peak: AtomicU64,
    /// All increases.
    up: AtomicU64,
}

impl Bytes {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// Adds bytes. `false` if they would be more than `most_bytes` then.
    fn raise(&self, size_bytes: u64, most_bytes: u64) -> bool {
        let take = |now: u64| {
            now.checked_add(size_bytes)
                .filter(|&after| after <= most_bytes)
        };
        let before = (self.now).fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        let Ok(before) = before else { return false };
        (self.peak).fetch_max(before + size_bytes, Ordering::AcqRel);
        self.up.fetch_add(size_bytes, Ordering::AcqRel);
        true
    }

    fn lower(&self, size_bytes: u64) {
        self.now.fetch_sub(size_bytes, Ordering::AcqRel);
    }

    fn level(&self) -> Level {
        let now = self.now();
        let up = self.up.load(Ordering::Acquire);
        Level {
            now,
            peak: self.peak.load(Ordering::Acquire).max(now),
            up,
            down: up.saturating_sub(now),
        }
    }

    /// Resets the peak to the current use.
    fn reset_peak(&self) {
        self.peak.store(self.now(), Ordering::Release);
    }
}

/// What bytes are charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostUse {
    /// A copy in plain memory.
    Copy,
    /// A slab of the heap.
    Slab,
    /// A block in such a slab.
    Block,
    /// Bytes that are read ahead of need.
    #[cfg(not(target_arch = "wasm32"))]
    Read,
}

/// Bytes charged to the host's share until this is dropped.
#[derive(Debug)]
pub(crate) struct HostCharge {
    account: Arc<HostAccount>,
    size_bytes: u64,
    of: HostUse,
}

impl HostAccount {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(HostAccount {
            limit_bytes: AtomicU64::new(u64::MAX),
            used: Bytes::default(),
            copies: Bytes::default(),
            slabs: Bytes::default(),
            reads: Bytes::default(),
        })
    }

    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Release);
    }

    /// What counts for the limit.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.now()
    }

    /// The same without what is read ahead, which makes way.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.reads.now())
    }

    /// The bytes of copies over time.
    pub(crate) fn copied_bytes(&self) -> Level {
        self.copies.level()
    }

    /// The bytes of slabs over time.
    pub(crate) fn slab_bytes(&self) -> Level {
        self.slabs.level()
    }

    /// Resets the peaks to the current use.
    pub(crate) fn reset_peaks(&self) {
        (self.copies).reset_peak();
        (self.slabs).reset_peak();
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Acquire)
    }

    /// How many bytes must be freed before `size_bytes` can be charged.
    pub(crate) fn missing_bytes(&self, size_bytes: u64) -> u64 {
        let after_bytes = self.used_bytes().saturating_add(size_bytes);
        after_bytes.saturating_sub(self.limit_bytes())
    }

    /// How far the use is above the limit. The app may have lowered the limit.
    pub(crate) fn excess_bytes(&self) -> u64 {
        let limit_bytes = self.limit_bytes.load(Ordering::Acquire);
        self.used_bytes().saturating_sub(limit_bytes)
    }

    /// Charges `size_bytes` for a copy in plain memory, if that many are left.
    pub(crate) fn charge(self: &Arc<Self>, size_bytes: u64) -> Option<HostCharge> {
        self.charge_for(HostUse::Copy, size_bytes)
    }

    /// Charges `size_bytes` for a slab of the heap, if that many are left.
    pub(crate) fn charge_slab(self: &Arc<Self>, size_bytes: u64) -> Option<HostCharge> {
        self.charge_for(HostUse::Slab, size_bytes)
    }

    /// Charges `size_bytes` for a block of the heap.
    pub(crate) fn charge_block(self: &Arc<Self>, size_bytes: u64) -> Option<HostCharge> {
        self.charge_for(HostUse::Block, size_bytes)
    }

    /// Charges `size_bytes` for bytes that are read ahead of need, if that many are left.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn charge_read(self: &Arc<Self>, size_bytes: u64) -> Option<HostCharge> {
        self.charge_for(HostUse::Read, size_bytes)
    }

    fn charge_for(self: &Arc<Self>, of: HostUse, size_bytes: u64) -> Option<HostCharge> {
        let limit_bytes = self.limit_bytes.load(Ordering::Acquire);
        if of != HostUse::Block && !self.used.raise(size_bytes, limit_bytes) {
            return None;
        }
        let level = self.level_of(of);
        level.raise(size_bytes, u64::MAX).then(|| HostCharge {
            account: self.clone(),
            size_bytes,
            of,
        })
    }

    fn level_of(&self, of: HostUse) -> &Bytes {
        match of {
            HostUse::Slab => &self.slabs,
            HostUse::Copy | HostUse::Block => &self.copies,
            #[cfg(not(target_arch = "wasm32"))]
            HostUse::Read => &self.reads,
        }
    }
}

impl HostCharge {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl Drop for HostCharge {
    fn drop(&mut self) {
        let account = &self.account;
        account.level_of(self.of).lower(self.size_bytes);
        if self.of != HostUse::Block {
            account.used.lower(self.size_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_contradictions_refused() {
        let read = |text: &str| text.parse::<Budget>();
        assert_eq!(read("1024").unwrap(), Budget::device(1024));
        let all = read("device=2GiB, soft=1GiB, host=3 GiB, disk=4k").unwrap();
        assert_eq!(all.soft_device_bytes, Some(1 << 30));
        assert_eq!(
            (all.host_bytes, all.disk_bytes),
            (Some(3 << 30), Some(4000))
        );
        let staging = read("9,staging=8").unwrap();
        assert_eq!(staging.staging_bytes, Some(8));
        for wrong in [
            "",
            "x",
            "0",
            "device=1,soft=2",
            "device=9,staging=9",
            "9,device=9",
            "host=1,disk=1,host=1",
            "gpu=1",
            "-1",
            "1e30GiB",
            "=,=",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_host_share_is_never_passed() {
        let account = HostAccount::new();
        account.set_limit(100);
        let first = account.charge(60).unwrap();
        assert!(account.charge(41).is_none());
        let second = account.charge(40).unwrap();
        drop(first);
        assert_eq!(
            (account.used_bytes(), account.copied_bytes().peak),
            (40, 100)
        );
        account.set_limit(10);
        assert_eq!(account.excess_bytes(), 30);
        assert!(account.charge(0).is_none());
        drop(second);
        assert!(account.charge(10).is_some());
        assert!(account.charge(u64::MAX).is_none());
    }

    #[test]
    fn a_slab_counts_for_the_limit_and_its_blocks_as_copies() {
        let account = HostAccount::new();
        account.set_limit(100);
        let slab = account.charge_slab(100).unwrap();
        assert!(account.charge(1).is_none() && account.charge_slab(1).is_none());
        let block = account.charge_block(30).unwrap();
        let bytes = || {
            let levels = [account.copied_bytes(), account.slab_bytes()];
            (account.used_bytes(), levels.map(|level| level.now))
        };
        assert_eq!(bytes(), (100, [30, 100]));
        drop(block);
        assert_eq!(bytes(), (100, [0, 100]));
        drop(slab);
        assert_eq!(bytes(), (0, [0, 0]));
    }

    #[test]
    fn what_is_no_budget_is_named_without_what_acts_upon_a_terminal() {
        for hidden in ["\u{1b}[2J", "\u{7f}", "\u{9b}31m", "\u{202e}", "a\nerror"] {
            for text in [
                hidden.to_owned(),
                format!("{hidden}=1MiB"),
                format!("device={hidden}"),
            ] {
                let error = text.parse::<Budget>().unwrap_err().to_string();
                let acts = |c: char| c.is_control() || c == '\u{202e}';
                assert!(!error.contains(acts), "{error:?}");
            }
        }
        let long = "x".repeat(100_000).parse::<Budget>().unwrap_err();
        assert!(long.to_string().len() < 200, "{long}");
    }
}
