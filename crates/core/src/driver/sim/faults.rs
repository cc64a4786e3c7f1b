//! What goes wrong, and when: a plan of faults, counted call by call.

/// A call of the driver, as faults and counters name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Site {
    /// Every call below (but [`MapDone`](Site::MapDone), which is no call).
    AnyCall,
    /// A buffer is created.
    CreateBuffer,
    /// A buffer is destroyed. Calls that give something back cannot fail: only the loss of the
    /// device strikes them.
    DestroyBuffer,
    /// A kernel is compiled.
    CreatePipeline,
    /// A kernel is forgotten.
    DestroyPipeline,
    /// A bind group is made.
    CreateBindGroup,
    /// A bind group is forgotten.
    DestroyBindGroup,
    /// Work is submitted.
    Submit,
    /// Finished work is looked for.
    Poll,
    /// Somebody waits.
    Wait,
    /// A mapping is asked for.
    Map,
    /// A mapping that was asked for, and accepted, is due: a fault makes it fail then.
    MapDone,
    /// Mapped memory is written.
    WriteMapped,
    /// Mapped memory is read.
    ReadMapped,
    /// A mapping ends.
    Unmap,
    /// A lost device is to be replaced. A fault makes that fail, and the device stays lost.
    Reopen,
}

/// How many variants [`Site`] has.
pub(super) const SITES: usize = Site::Reopen as usize + 1;

/// How a fault strikes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// It does not.
    Once,
    /// At every second call from the first strike on.
    EverySecond,
    /// At every call from the first strike on.
    ForEver,
    /// From the first possible strike on, at one call in so many, by the device's seed.
    OneIn(u32),
}

impl Repeat {
    /// Whether it strikes at a call that is so many after the first strike.
    pub(crate) fn strikes(self, since: u64, chance: &mut Chance) -> bool {
        match self {
            Repeat::Once => since == 0,
            Repeat::EverySecond => since.is_multiple_of(2),
            Repeat::ForEver => true,
            Repeat::OneIn(calls) => chance.below(u64::from(calls.max(1))) == 0,
        }
    }
}

/// What a fault does to the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// It says that there is no memory; nothing has changed.
    OutOfMemory,
    /// It says that the request is wrong; nothing has changed.
    Invalid,
    /// The device goes away.
    Lost,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// Which calls are counted.
    pub site: Site,
    /// The call that it strikes first, counted from the one after it was armed: 1 is the next.
    pub nth: u64,
    /// And then?
    pub repeat: Repeat,
    /// What it does.
    pub kind: FaultKind,
}

impl Fault {
    /// Strikes the `nth` call from now, and never again.
    pub const fn once(site: Site, nth: u64, kind: FaultKind) -> Self {
        Fault {
            site,
            nth,
            repeat: Repeat::Once,
            kind,
        }
    }

    /// Strikes the `nth` call from now and every second one after it.
    pub const fn every_second(site: Site, nth: u64, kind: FaultKind) -> Self {
        Fault {
            repeat: Repeat::EverySecond,
            ..Fault::once(site, nth, kind)
        }
    }

    /// Strikes the `nth` call from now and all after it.
    pub const fn for_ever(site: Site, nth: u64, kind: FaultKind) -> Self {
        Fault {
            repeat: Repeat::ForEver,
            ..Fault::once(site, nth, kind)
        }
    }

    /// The device goes away at the `nth` call of any kind.
    pub const fn lose_at_call(nth: u64) -> Self {
        Fault::once(Site::AnyCall, nth, FaultKind::Lost)
    }

    fn counts(&self, site: Site) -> bool {
        self.site == site || (self.site == Site::AnyCall && site != Site::MapDone)
    }
}

/// The armed faults, each with the calls that it has counted.
#[derive(Debug)]
pub(super) struct FaultPlan {
    armed: Vec<(Fault, u64)>,
    chance: Chance,
}

impl FaultPlan {
    pub(super) fn new(faults: &[Fault], seed: u64) -> Self {
        FaultPlan {
            armed: faults.iter().map(|&fault| (fault, 0)).collect(),
            chance: Chance(seed),
        }
    }

    pub(super) fn arm(&mut self, fault: Fault) {
        self.armed.push((fault, 0));
    }

    pub(super) fn disarm(&mut self) {
        self.armed.clear();
    }

    /// Counts a call; what strikes it, if anything does: the first armed of those that do.
    pub(super) fn strike(&mut self, site: Site) -> Option<FaultKind> {
        let mut strikes = None;
        for (fault, seen) in &mut self.armed {
            if !fault.counts(site) {
                continue;
            }
            *seen += 1;
            let Some(since) = seen.checked_sub(fault.nth.max(1)) else {
                continue;
            };
            if fault.repeat.strikes(since, &mut self.chance) {
                strikes = strikes.or(Some(fault.kind));
            }
        }
        strikes
    }
}

/// SplitMix64: small, seeded, the same on every platform.
#[derive(Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fault: Fault, expected: &str) {
        let mut plan = FaultPlan::new(&[fault], 7);
        let got: String = (0..expected.len())
            .map(|_| match plan.strike(Site::Submit) {
                Some(_) => 'x',
                None => '.',
            })
            .collect();
        assert_eq!(got, expected, "{fault:?}");
    }

    #[test]
    fn faults_strike_when_they_were_told_to() {
        let kind = FaultKind::Invalid;
        check(Fault::once(Site::Submit, 3, kind), "..x.....");
        check(Fault::once(Site::Submit, 0, kind), "x.......");
        check(Fault::every_second(Site::Submit, 3, kind), "..x.x.x.");
        check(Fault::for_ever(Site::Submit, 3, kind), "..xxxxxx");
        check(Fault::once(Site::Map, 1, kind), "........");
        check(Fault::lose_at_call(2), ".x......");
    }

    #[test]
    fn chance_is_the_same_for_the_same_seed() {
        let strikes = |seed| {
            let fault = Fault {
                repeat: Repeat::OneIn(4),
                ..Fault::once(Site::Poll, 1, FaultKind::Invalid)
            };
            let mut plan = FaultPlan::new(&[fault], seed);
            (0..400)
                .map(|_| plan.strike(Site::Poll).is_some())
                .collect::<Vec<_>>()
        };
        let hits = strikes(1).into_iter().filter(|&hit| hit).count();
        assert_eq!(strikes(1), strikes(1));
        assert_ne!(strikes(1), strikes(2));
        assert!((60..140).contains(&hits), "{hits} of 400");
    }
}
