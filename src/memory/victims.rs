//! Who is put out: what is known about a storage's uses, and who is missed the least.

/// When a storage was used last, and how long before that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uses {
    last: u32,
    gap: u32,
}

impl Uses {
    /// A command uses it, at this time.
    pub(crate) fn touch(&mut self, now: u32) {
        let gap = now.wrapping_sub(self.last);
        if gap > 0 {
            self.gap = gap;
            self.last = now;
        }
    }

    /// In how many commands it will be used again, as far as one can tell.
    pub(crate) fn distance(&self, now: u32) -> u32 {
        let age = now.wrapping_sub(self.last);
        match self.gap.checked_sub(age) {
            Some(left) if left > 0 => left,
            _ => age,
        }
    }
}
