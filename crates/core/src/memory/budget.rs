//! The app's memory limits, and the account of the bytes in the host's memory.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::printable::printable;
use crate::units::{Level, parse_bytes};

/// Most columns of the user's text that an error quotes.
const MOST_QUOTED: usize = 60;

/// How much memory a [`Gpu`](crate::Gpu) may use. `None` sets no limit.
///
/// The device's limit covers slabs, staging, read-back buffers, and released slabs that the device
/// still uses. Bytes are reserved before anything is created. When work needs more than the limit,
/// the engine evicts buffers that no current command uses: to the host's memory, to
/// [stores](crate::stores) or to disk. It restores them when a command uses them. The operands and
/// results of a single operation must fit on the device together. Imported buffers of the app do
/// not count, nor do a few small buffers for parameters and timing. The bytes in stores have limits
/// of their own.
///
/// If the limit is lowered below the bytes in use, the engine brings them down. Until then it
/// creates only small read-back buffers for evictions: 1/256 of the limit, at least 4 KiB and at
/// most 4 MiB.
///
/// A budget parses from text: `512MiB` limits the device. A list sets `device=`, `soft=`,
/// `staging=`, `host=` and `disk=`, each at most once. The variable `LAPIDARY_BUDGET`, which
/// [`Options::from_env`](crate::Options::from_env) reads, has the same form.
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
    /// Hard limit on the device, in bytes. `None`: the operating system's budget for this process,
    /// where the system reports one.
    pub device_bytes: Option<u64>,
    /// Soft limit on the device, in bytes. The engine exceeds it only after every step without
    /// traffic: callbacks, releasing empty slabs, moving blocks together.
    pub soft_device_bytes: Option<u64>,
    /// The part of the device's limit that is for staging, in bytes: uploads, reads, evictions and
    /// restores. These buffers count here wherever the driver puts them. `None`: 1/32 of the limit,
    /// at most 128 MiB.
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
            let wrong = |text: &str, what: &str| {
                let text = printable(text, MOST_QUOTED);
                Error::option("budget", format!("`{text}`{what}"))
            };
            let bytes = parse_bytes(bytes.trim())
                .ok_or_else(|| wrong(bytes.trim(), " is not a number of bytes, such as 512MiB"))?;
            let field = match name.trim() {
                "device" => &mut budget.device_bytes,
                "soft" => &mut budget.soft_device_bytes,
                "staging" => &mut budget.staging_bytes,
                "host" => &mut budget.host_bytes,
                "disk" => &mut budget.disk_bytes,
                other => {
                    let expected = ": expected device, soft, staging, host or disk";
                    return Err(wrong(other, expected));
                }
            };
            if field.replace(bytes).is_some() {
                return Err(wrong(name.trim(), " occurs twice"));
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
    /// The lock is a leaf: any thread may drop a charge, wherever it is.
    levels: Mutex<HostLevels>,
}

/// Bytes in the host's memory over time.
#[derive(Debug, Default)]
struct HostLevels {
    /// What counts for the limit: copies in plain memory, slabs, and what is read ahead.
    used: Level,
    /// All copies.
    copies: Level,
    slabs: Level,
    /// What is read ahead of need.
    reads: Level,
}

impl HostLevels {
    fn of(&mut self, of: HostUse) -> &mut Level {
        match of {
            HostUse::Slab => &mut self.slabs,
            HostUse::Copy | HostUse::Block => &mut self.copies,
            #[cfg(not(target_arch = "wasm32"))]
            HostUse::Read => &mut self.reads,
        }
    }
}

/// What bytes are charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostUse {
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
            levels: Mutex::default(),
        })
    }

    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Release);
    }

    /// What counts for the limit.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.levels.lock().used.now
    }

    /// The same without what is read ahead, which makes way.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let levels = self.levels.lock();
        levels.used.now.saturating_sub(levels.reads.now)
    }

    /// The bytes of copies over time.
    pub(crate) fn copied_bytes(&self) -> Level {
        self.levels.lock().copies
    }

    /// The bytes of slabs over time.
    pub(crate) fn slab_bytes(&self) -> Level {
        self.levels.lock().slabs
    }

    /// Resets the peaks to the current use.
    pub(crate) fn reset_peaks(&self) {
        let mut levels = self.levels.lock();
        levels.copies.reset_peak();
        levels.slabs.reset_peak();
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
        self.used_bytes().saturating_sub(self.limit_bytes())
    }

    /// Charges `size_bytes`, if that many are left. For a block its slab has paid already.
    pub(crate) fn charge(self: &Arc<Self>, of: HostUse, size_bytes: u64) -> Option<HostCharge> {
        let mut levels = self.levels.lock();
        if of != HostUse::Block {
            let after_bytes = levels.used.now.checked_add(size_bytes)?;
            if after_bytes > self.limit_bytes() {
                return None;
            }
            levels.used.raise(size_bytes);
        }
        levels.of(of).raise(size_bytes);
        Some(HostCharge {
            account: self.clone(),
            size_bytes,
            of,
        })
    }
}

impl HostCharge {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl Drop for HostCharge {
    fn drop(&mut self) {
        let mut levels = self.account.levels.lock();
        levels.of(self.of).lower(self.size_bytes);
        if self.of != HostUse::Block {
            levels.used.lower(self.size_bytes);
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
        let first = account.charge(HostUse::Copy, 60).unwrap();
        assert!(account.charge(HostUse::Copy, 41).is_none());
        let second = account.charge(HostUse::Copy, 40).unwrap();
        drop(first);
        assert_eq!(
            (account.used_bytes(), account.copied_bytes().peak),
            (40, 100)
        );
        account.set_limit(10);
        assert_eq!(account.excess_bytes(), 30);
        assert!(account.charge(HostUse::Copy, 0).is_none());
        drop(second);
        assert!(account.charge(HostUse::Copy, 10).is_some());
        assert!(account.charge(HostUse::Copy, u64::MAX).is_none());
    }

    #[test]
    fn a_slab_counts_for_the_limit_and_its_blocks_as_copies() {
        let account = HostAccount::new();
        account.set_limit(100);
        let slab = account.charge(HostUse::Slab, 100).unwrap();
        assert!(
            account.charge(HostUse::Copy, 1).is_none()
                && account.charge(HostUse::Slab, 1).is_none()
        );
        let block = account.charge(HostUse::Block, 30).unwrap();
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
