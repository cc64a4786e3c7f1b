//! Types for numbers that must not be mixed up. Bytes are plain `u64`, whole granules are
//! [`Granules`], and only [`Unit`] converts between them.

/// A count of granules. A granule is the smallest piece that an allocator hands out.
///
/// ```
/// use lapidary_alloc::units::{Granules, Unit};
///
/// let unit = Unit::new(256).unwrap();
/// assert_eq!(unit.granules_ceil(257), Granules(2));
/// assert_eq!(unit.bytes(Granules(2)), 512);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granules(pub u64);

/// The size of one granule: a power of two from 1 byte to 64 KiB. For GPU buffers it is the
/// device's storage offset alignment (32 to 256 bytes).
///
/// ```
/// use lapidary_alloc::units::Unit;
///
/// assert_eq!(Unit::new(32).unwrap().size_bytes(), 32);
/// assert!(Unit::new(48).is_none(), "not a power of two");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    shift: u32,
}

impl Unit {
    /// The largest granule, in bytes.
    pub const MAX_BYTES: u64 = 1 << 16;

    /// A granule of `size_bytes`, or `None` unless that is a power of two of at most
    /// [`Unit::MAX_BYTES`].
    pub const fn new(size_bytes: u64) -> Option<Unit> {
        if size_bytes.is_power_of_two() && size_bytes <= Unit::MAX_BYTES {
            Some(Unit {
                shift: size_bytes.trailing_zeros(),
            })
        } else {
            None
        }
    }

    /// The size of one granule in bytes.
    #[inline]
    pub const fn size_bytes(self) -> u64 {
        1 << self.shift
    }

    /// The number of granules that holds `bytes`, rounded up. Never overflows.
    #[inline]
    pub const fn granules_ceil(self, bytes: u64) -> Granules {
        let part = (bytes & (self.size_bytes() - 1) != 0) as u64;
        Granules((bytes >> self.shift) + part)
    }

    /// The number of whole granules in `bytes`.
    #[inline]
    pub const fn granules_floor(self, bytes: u64) -> Granules {
        Granules(bytes >> self.shift)
    }

    /// The size of `granules` in bytes, or `u64::MAX` if that overflows.
    #[inline]
    pub const fn bytes(self, granules: Granules) -> u64 {
        if granules.0 > u64::MAX >> self.shift {
            u64::MAX
        } else {
            granules.0 << self.shift
        }
    }

    /// As [`Unit::bytes`], without the check for overflow. The size must fit a slab.
    #[inline]
    pub(crate) const fn block_bytes(self, granules: Granules) -> u64 {
        debug_assert!(granules.0 <= u64::MAX >> self.shift);
        granules.0 << self.shift
    }
}
