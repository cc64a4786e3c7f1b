//! Watermarks: levels of a share, or of the device, whose rise the app wants to know.

use super::share::ShareId;
use super::shares::Shares;

/// A watermark can be reached again after the level has fallen by 1/8 of the limit.
const FALL_PART: u128 = 8;

/// A watermark that the app set.
#[derive(Clone, Copy, Debug)]
struct Mark {
    id: u64,
    share: ShareId,
    percent: u8,
    /// The level has risen to it, and has not been seen below it since.
    is_reached: bool,
}

impl Mark {
    /// Whether a level of `bytes` is at the watermark. Once there, it stays until it has fallen by
    /// 1/8 of the limit. The level of a share at its ceiling changes with each tensor that it
    /// evicts.
    fn is_at(&self, bytes: u64, limit_bytes: u64) -> bool {
        let at_bytes = u128::from(limit_bytes) * u128::from(self.percent) / 100;
        let least_bytes = match self.is_reached {
            true => at_bytes - (u128::from(limit_bytes) / FALL_PART).min(at_bytes / 2),
            false => at_bytes,
        };
        limit_bytes < u64::MAX && u128::from(bytes) >= least_bytes
    }
}

/// A level has risen to a watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) id: u64,
    pub(crate) bytes: u64,
    pub(crate) limit_bytes: u64,
}

/// All watermarks, and those reached since the engine last asked.
#[derive(Debug, Default)]
pub(crate) struct Watermarks {
    marks: Vec<Mark>,
    /// Those that the app was not told of yet.
    pub(crate) reached: Vec<Reached>,
    /// The most bytes of all slabs; `u64::MAX` for no limit.
    pub(crate) limit_bytes: u64,
}

impl Watermarks {
    pub(crate) fn add(&mut self, id: u64, share: ShareId, percent: u8) {
        self.marks.push(Mark {
            id,
            share,
            percent,
            is_reached: false,
        });
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.marks.retain(|mark| mark.id != id);
        self.reached.retain(|one| one.id != id);
    }

    /// Has the app set a watermark?
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Was a watermark reached that the app was not told of?
    #[inline]
    pub(crate) fn has_reached(&self) -> bool {
        !self.reached.is_empty()
    }

    /// The level of a share is about to fall: it may rise to its watermarks again. All blocks
    /// have `device_bytes`.
    #[cold]
    pub(super) fn falls(
        &mut self,
        share: ShareId,
        granted_bytes: u64,
        device_bytes: u64,
        shares: &Shares,
    ) {
        let limit_bytes = self.limit_bytes;
        for mark in &mut self.marks {
            let (bytes, limit_bytes) = match mark.share {
                // The block is still counted there.
                ShareId::MAIN => (device_bytes.saturating_sub(granted_bytes), limit_bytes),
                of if shares.is_within(share, of) => shares.level_and_limit(of, limit_bytes),
                _ => continue,
            };
            mark.is_reached &= mark.is_at(bytes, limit_bytes);
        }
    }

    /// A level has risen. All blocks have `device_bytes`.
    #[cold]
    pub(super) fn rose(&mut self, device_bytes: u64, shares: &Shares) {
        let limit_bytes = self.limit_bytes;
        for mark in &mut self.marks {
            let (bytes, limit_bytes) = match mark.share {
                ShareId::MAIN => (device_bytes, limit_bytes),
                share => shares.level_and_limit(share, limit_bytes),
            };
            let is_reached = mark.is_at(bytes, limit_bytes);
            if is_reached && !mark.is_reached {
                self.reached.push(Reached {
                    id: mark.id,
                    bytes,
                    limit_bytes,
                });
            }
            mark.is_reached = is_reached;
        }
    }
}
