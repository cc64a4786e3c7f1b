//! How long passes for a low priority did not look for work of a higher one.

/// The hold of the current pass, and the longest one so far.
#[derive(Debug, Default)]
pub(in crate::engine) struct Holds {
    is_held: bool,
    /// Work of a higher priority has come since the hold began.
    must_yield: bool,
    /// The time of the last look. `None` without a clock.
    looked_at_ns: Option<u64>,
    longest_ns: u64,
}

impl Holds {
    /// A pass meets a need of a command.
    pub(in crate::engine) fn begin(&mut self, now_ns: Option<u64>) {
        (self.is_held, self.looked_at_ns) = (true, now_ns);
        self.must_yield = false;
    }

    /// The pass looks for work of a higher priority, and goes on.
    pub(in crate::engine) fn look(&mut self, now_ns: Option<u64>) {
        if let (Some(looked_at_ns), Some(now_ns)) = (self.looked_at_ns, now_ns) {
            let held_ns = now_ns.saturating_sub(looked_at_ns);
            self.longest_ns = self.longest_ns.max(held_ns);
        }
        self.looked_at_ns = now_ns;
    }

    /// The need is met, or the pass is dropped.
    pub(in crate::engine) fn end(&mut self, now_ns: Option<u64>) {
        self.look(now_ns);
        self.is_held = false;
    }

    /// Such work has come. Until the hold ends, every look finds it.
    pub(in crate::engine) fn yields(&mut self) {
        self.must_yield = true;
    }

    pub(in crate::engine) fn must_yield(&self) -> bool {
        self.must_yield
    }

    pub(in crate::engine) fn is_held(&self) -> bool {
        self.is_held
    }

    pub(in crate::engine) fn longest_ns(&self) -> u64 {
        self.longest_ns
    }
}
