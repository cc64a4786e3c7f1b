//! How long passes did not look for work of a higher priority than what they did.

/// What a pass does while work of a higher priority may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldFor {
    /// It meets a need of the command at the head of the queue. Others that have come run in
    /// between.
    Command,
    /// It drains memory to a lowered limit. Commands above this priority run in between.
    Drain { above: i8 },
    /// It does something in one part.
    Whole,
}

/// The hold of the current pass, and the longest one so far.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    pub(crate) held: Option<HeldFor>,
    /// The time of the last look. `None` without a clock.
    looked_at_ns: Option<u64>,
    pub(crate) longest_ns: u64,
    /// How often urgent commands have changed anything in the middle of something else.
    pub(crate) changes_amid: u64,
    /// The submissions of theirs that the driver refused.
    pub(crate) refused_amid: u64,
}

impl Holds {
    /// The pass does this from now on. Returns what it did before. A hold that only becomes another
    /// one goes on, because the pass has not looked.
    pub(crate) fn swap(&mut self, held: Option<HeldFor>, now_ns: Option<u64>) -> Option<HeldFor> {
        match (self.held, held) {
            (None, Some(_)) => self.looked_at_ns = now_ns,
            (Some(_), None) => self.look(now_ns),
            _ => {}
        }
        std::mem::replace(&mut self.held, held)
    }

    /// The pass looks for work of a higher priority.
    pub(crate) fn look(&mut self, now_ns: Option<u64>) {
        if let (Some(looked_at_ns), Some(now_ns)) = (self.looked_at_ns, now_ns) {
            let held_ns = now_ns.saturating_sub(looked_at_ns);
            self.longest_ns = self.longest_ns.max(held_ns);
        }
        self.looked_at_ns = now_ns;
    }

    /// Whether the pass looks for work of a higher priority between two parts of what it does.
    pub(crate) fn looks(&self) -> bool {
        matches!(self.held, Some(HeldFor::Command | HeldFor::Drain { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_lasts_from_one_look_to_the_next() {
        let mut holds = Holds::default();
        let command = Some(HeldFor::Command);
        assert_eq!(holds.swap(command, Some(100)), None);
        holds.look(Some(130));
        // The hold goes on as another one.
        assert_eq!(holds.swap(Some(HeldFor::Whole), Some(140)), command);
        assert_eq!(holds.swap(command, Some(150)), Some(HeldFor::Whole));
        assert_eq!(holds.longest_ns, 30);
        holds.look(Some(180));
        assert_eq!(holds.longest_ns, 50);
        // Between two holds nobody waits.
        assert_eq!(holds.swap(None, Some(190)), command);
        assert_eq!(holds.swap(None, Some(500)), None);
        holds.swap(command, Some(900));
        holds.swap(None, Some(920));
        assert_eq!(holds.longest_ns, 50);
    }

    #[test]
    fn without_a_clock_no_time_passes() {
        let mut holds = Holds::default();
        holds.swap(Some(HeldFor::Drain { above: 0 }), None);
        holds.look(None);
        holds.swap(None, None);
        assert_eq!(holds.longest_ns, 0);
    }
}
