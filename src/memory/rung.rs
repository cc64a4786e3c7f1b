//! The rungs of the ladder by name; `engine/ladder.rs` climbs them.

/// One thing to try when there is no room. All are tried in the order of [`Rung::ALL`], which is
/// the one below, until there is room; [`MemoryStats::freed`](crate::MemoryStats::freed) and
/// [`OutOfMemory::freed`](crate::OutOfMemory::freed) tell what each gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Rung {
    /// Noticing what the device has finished.
    Retire,
    /// Giving back staging and read-back buffers that hold nothing.
    Caches,
    /// Asking the app.
    Callbacks,
    /// Giving back slabs that hold nothing.
    Trim,
    /// Moving blocks together.
    Compact,
    /// Waiting for submissions that still use slabs given back.
    Wait,
    /// Putting tensors out to the host's memory. Those whose bytes are elsewhere too are only given
    /// up, and chosen together with the others.
    Host,
    /// Putting tensors out to disk, in the same way.
    Disk,
    /// Giving up tensors whose bytes are elsewhere too, where nothing can be put out.
    Drop,
    /// Putting out even the tensors that the work at hand needs, to bring them back side by side.
    Anew,
}

impl Rung {
    /// All of them, in the order in which they are climbed.
    pub const ALL: [Rung; 10] = [
        Rung::Retire,
        Rung::Caches,
        Rung::Callbacks,
        Rung::Trim,
        Rung::Compact,
        Rung::Wait,
        Rung::Host,
        Rung::Disk,
        Rung::Drop,
        Rung::Anew,
    ];

    /// In lower case, as reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Rung::Retire => "retire",
            Rung::Caches => "caches",
            Rung::Callbacks => "callbacks",
            Rung::Trim => "trim",
            Rung::Compact => "compact",
            Rung::Wait => "wait",
            Rung::Drop => "drop",
            Rung::Host => "host",
            Rung::Disk => "disk",
            Rung::Anew => "anew",
        }
    }

    /// Does it cost traffic with the host? Before those the soft budget is passed.
    pub(crate) fn has_traffic(self) -> bool {
        matches!(self, Rung::Drop | Rung::Host | Rung::Disk | Rung::Anew)
    }
}
