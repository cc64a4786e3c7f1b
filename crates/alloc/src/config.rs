//! The configuration of [`Pools`](super::Pools), and the slabs that its policy asks for.

/// The sizes and limits of the policy. [`PoolConfig::new`] has the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The granule in bytes: the device's storage offset alignment.
    pub unit_bytes: u64,
    /// The largest buffer that the device creates. No request may be larger.
    pub max_slab_bytes: u64,
    /// Requests up to this size share the small slabs.
    pub small_request_bytes: u64,
    /// The size of the first slabs for small requests; later ones are larger.
    pub small_slab_bytes: u64,
    /// The largest slab for small requests, and for requests below `own_request_bytes`.
    pub middle_slab_bytes: u64,
    /// Requests of at least this size get a slab of their own size.
    pub own_request_bytes: u64,
    /// The size of such a slab is a multiple of this.
    pub own_step_bytes: u64,
    /// Requests of at least this size get a slab that they share with no other request.
    pub alone_request_bytes: u64,
    /// An unshared slab serves a later request if the slab is larger by at most this percentage.
    pub alone_excess_percent: u64,
    /// The releases of slabs after which a mark that has not risen counts as final. From then on a
    /// request above `small_request_bytes` takes any hole outside the small slabs. An empty slab
    /// may also change its class.
    pub release_allowance: u64,
    /// How far the reserved bytes may rise above the highest live bytes, in thousandths. Above
    /// that, empty slabs are released and live blocks moved.
    pub slack_permille: u64,
    /// The same limit once moves have used up `move_permille`, in thousandths.
    pub spent_slack_permille: u64,
    /// The share of the allocated bytes that moves may copy, in thousandths.
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

    /// The same for a caller that never moves a block. Such a caller keeps empty slabs a little
    /// longer, and shares very large slabs like all others. A lower peak would cost it slabs that
    /// are created again and again. A caller that moves blocks pays for a lower peak with a few
    /// copies.
    pub const fn without_moves(self) -> PoolConfig {
        PoolConfig {
            alone_request_bytes: u64::MAX,
            slack_permille: 50,
            move_permille: 0,
            ..self
        }
    }
}

/// The number of zones: small requests, shared larger slabs, and unshared slabs.
pub(super) const ZONES: u8 = 3;

/// The requests that a slab was created for. [`Pools::assign`] changes the class of an empty slab.
///
/// [`Pools::assign`]: super::Pools::assign
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SlabClass {
    /// Shared by small requests.
    Small,
    /// Shared by all larger requests.
    Middle,
    /// Created for one large request, then shared like a middle slab.
    Own,
    /// Created for one very large request, and kept for requests of about that size.
    Alone,
}

impl SlabClass {
    /// The zone of the class. Small and very large requests have their own slabs; all other
    /// requests share one set of holes.
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
    /// The requests that the slab serves.
    pub class: SlabClass,
    /// The size to create. A caller that is short of memory may lower it to `least_bytes`.
    pub slab_bytes: u64,
    /// The smallest slab that serves the request.
    pub least_bytes: u64,
}

impl Growth {
    /// For plans without a request.
    pub(super) const NOTHING: Growth = Growth {
        class: SlabClass::Small,
        slab_bytes: 0,
        least_bytes: 0,
    };

    /// The same request, with the smallest slab that serves it.
    pub fn least(self) -> Growth {
        Growth {
            slab_bytes: self.least_bytes,
            ..self
        }
    }
}
