//! The values that the policy of [`Pools`](super::Pools) is told and answers with.

/// The sizes that the policy goes by. [`PoolConfig::new`] has the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The granule: the device's storage offset alignment.
    pub unit_bytes: u64,
    /// The largest buffer that the device creates, and so the largest request.
    pub max_slab_bytes: u64,
    /// Requests up to this share the small slabs.
    pub small_request_bytes: u64,
    /// The size of the first slabs for small requests; later ones are larger.
    pub small_slab_bytes: u64,
    /// The largest slab for small requests, and for those between small and own.
    pub middle_slab_bytes: u64,
    /// Requests from this on get a slab of their own size.
    pub own_request_bytes: u64,
    /// A slab of a request's own size is a multiple of this.
    pub own_step_bytes: u64,
    /// Requests from this on get a slab of their own that no others share.
    pub alone_request_bytes: u64,
    /// An unshared slab serves a later request if it is at most so much larger, ...
    pub alone_excess_percent: u64,
    /// ... and any other that has room, once so many slabs were released without the mark having
    /// risen.
    pub release_allowance: u64,
    /// How far reserved may rise above the highest live bytes before empty slabs are released and
    /// live blocks moved, in thousandths.
    pub slack_permille: u64,
    /// How far, once ...
    pub spent_slack_permille: u64,
    /// ... moves have passed this share of the allocated bytes, in thousandths.
    pub move_permille: u64,
}

impl PoolConfig {
    /// The defaults for a device with this storage offset alignment and largest buffer.
    pub const fn new(unit_bytes: u64, max_slab_bytes: u64) -> PoolConfig {
        PoolConfig {
            unit_bytes,
            max_slab_bytes,
            small_request_bytes: 256 << 10,
            small_slab_bytes: 2 << 20,
            middle_slab_bytes: 16 << 20,
            own_request_bytes: 4 << 20,
            own_step_bytes: 64 << 10,
            alone_request_bytes: 128 << 20,
            alone_excess_percent: 25,
            release_allowance: 16,
            slack_permille: 20,
            spent_slack_permille: 70,
            move_permille: 10,
        }
    }

    /// The same for a caller that never moves a block. Empty slabs are kept a little longer, and
    /// very large ones are shared like all others: the lower peak that comes without either would
    /// be paid for with slabs created again and again, where moving pays with a few copies.
    pub const fn without_moves(self) -> PoolConfig {
        PoolConfig {
            alone_request_bytes: u64::MAX,
            slack_permille: 50,
            move_permille: 0,
            ..self
        }
    }
}

/// Small requests, those that share slabs, and those that do not.
pub(super) const ZONES: u8 = 3;

/// What a slab was made for; an empty one may come to serve another class ([`Pools::assign`]).
///
/// [`Pools::assign`]: super::Pools::assign
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SlabClass {
    /// Shared by small requests.
    Small,
    /// Shared by all larger requests.
    Middle,
    /// Made for one large request, then shared as a middle one.
    Own,
    /// Made for one very large request, and kept for others like it.
    Alone,
}

impl SlabClass {
    /// Small and very large requests keep to their slabs; all others share one set of holes.
    pub(super) fn zone(self) -> u8 {
        match self {
            SlabClass::Small => 0,
            SlabClass::Middle | SlabClass::Own => 1,
            SlabClass::Alone => 2,
        }
    }
}

/// The slab to create for a request that no hole serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// What the slab is for.
    pub class: SlabClass,
    /// How large it should be. A caller that is short of memory may lower it to `least_bytes`.
    pub slab_bytes: u64,
    /// The smallest slab that serves the request.
    pub least_bytes: u64,
}

impl Growth {
    /// For plans that serve no request.
    pub(super) const NOTHING: Growth = Growth {
        class: SlabClass::Small,
        slab_bytes: 0,
        least_bytes: 0,
    };
}
