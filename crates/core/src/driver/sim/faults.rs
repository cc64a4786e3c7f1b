//! A plan of faults for the device: which calls fail, and how, counted call by call.

/// A call of the driver, for faults and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Site {
    /// Every call below, except [`MapDone`](Site::MapDone), which is no call.
    AnyCall,
    /// The creation of a buffer.
    CreateBuffer,
    /// The destruction of a buffer. Calls that release something cannot fail: only faults that lose
    /// the device affect them.
    DestroyBuffer,
    /// The compilation of a kernel.
    CreatePipeline,
    /// The destruction of a kernel.
    DestroyPipeline,
    /// The creation of a bind group.
    CreateBindGroup,
    /// The destruction of a bind group.
    DestroyBindGroup,
    /// A submission.
    Submit,
    /// A poll for finished work.
    Poll,
    /// A wait.
    Wait,
    /// The request for a mapping.
    Map,
    /// The moment at which an accepted mapping is due. A fault makes the mapping fail.
    MapDone,
    /// A write to mapped memory.
    WriteMapped,
    /// A read of mapped memory.
    ReadMapped,
    /// The end of a mapping.
    Unmap,
    /// The replacement of a lost device. A fault makes it fail, and the device stays lost.
    Reopen,
}

/// The number of variants of [`Site`].
pub(super) const SITES: usize = Site::Reopen as usize + 1;

/// The calls that a fault strikes after the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// No further call.
    Once,
    /// Every second call after the first strike.
    EverySecond,
    /// Every call after the first strike.
    ForEver,
    /// One of this many calls, at random by the device's seed, from the `nth` call on.
    OneIn(u32),
}

impl Repeat {
    /// Whether the fault strikes the call that is `since` calls after the first strike.
    pub(crate) fn strikes(self, since: u64, chance: &mut Chance) -> bool {
        match self {
            Repeat::Once => since == 0,
            Repeat::EverySecond => since.is_multiple_of(2),
            Repeat::ForEver => true,
            Repeat::OneIn(calls) => chance.below(u64::from(calls.max(1))) == 0,
        }
    }
}

/// The effect of a fault on the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The call reports out of memory and changes nothing.
    OutOfMemory,
    /// The call reports an invalid request and changes nothing.
    Invalid,
    /// The device is lost.
    Lost,
}

/// A fault of the device. A [`FileFault`](super::FileFault) has other sites and kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault<S = Site, K = FaultKind> {
    /// The calls that the fault counts.
    pub site: S,
    /// The first call that it strikes, counted from the moment when it was armed: 1 is the next
    /// call.
    pub nth: u64,
    /// The calls that it strikes after that.
    pub repeat: Repeat,
    /// Its effect on the call.
    pub kind: K,
}

impl Fault {
    /// Strikes the `nth` call from now, and no other.
    pub const fn once(site: Site, nth: u64, kind: FaultKind) -> Self {
        Fault {
            site,
            nth,
            repeat: Repeat::Once,
            kind,
        }
    }

    /// Strikes the `nth` call from now and every second call after it.
    pub const fn every_second(site: Site, nth: u64, kind: FaultKind) -> Self {
        Fault {
            repeat: Repeat::EverySecond,
            ..Fault::once(site, nth, kind)
        }
    }

    /// Strikes the `nth` call from now and all calls after it.
    pub const fn for_ever(site: Site, nth: u64, kind: FaultKind) -> Self {
        Fault {
            repeat: Repeat::ForEver,
            ..Fault::once(site, nth, kind)
        }
    }

    /// Loses the device at the `nth` call of any kind.
    pub const fn lose_at_call(nth: u64) -> Self {
        Fault::once(Site::AnyCall, nth, FaultKind::Lost)
    }
}

impl Site {
    /// Whether a fault of this site counts a call.
    pub(super) fn counts(self, call: Site) -> bool {
        self == call || (self == Site::AnyCall && call != Site::MapDone)
    }
}

/// The armed faults, each with the number of calls that it has counted.
#[derive(Debug)]
pub(super) struct FaultPlan<S = Site, K = FaultKind> {
    armed: Vec<(Fault<S, K>, u64)>,
    chance: Chance,
}

impl<S, K> Default for FaultPlan<S, K> {
    fn default() -> Self {
        FaultPlan {
            armed: Vec::new(),
            chance: Chance::default(),
        }
    }
}

impl<S: Copy, K: Copy> FaultPlan<S, K> {
    pub(super) fn new(faults: &[Fault<S, K>], seed: u64) -> Self {
        FaultPlan {
            armed: faults.iter().map(|&fault| (fault, 0)).collect(),
            chance: Chance(seed),
        }
    }

    pub(super) fn arm(&mut self, fault: Fault<S, K>) {
        self.armed.push((fault, 0));
    }

    pub(super) fn disarm(&mut self) {
        self.armed.clear();
    }

    /// Counts a call for the faults of these sites. Returns the effect of the first one that
    /// strikes it, if one does.
    pub(super) fn strike(&mut self, counts: impl Fn(S) -> bool) -> Option<K> {
        let mut strikes = None;
        for (fault, seen) in &mut self.armed {
            if !counts(fault.site) {
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

/// SplitMix64: a small generator with a seed, equal on every platform.
#[derive(Debug, Default)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// A random number below `end`. `end` must not be 0.
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
            .map(|_| match plan.strike(|site| site.counts(Site::Submit)) {
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
                .map(|_| plan.strike(|site| site.counts(Site::Poll)).is_some())
                .collect::<Vec<_>>()
        };
        let hits = strikes(1).into_iter().filter(|&hit| hit).count();
        assert_eq!(strikes(1), strikes(1));
        assert_ne!(strikes(1), strikes(2));
        assert!((60..140).contains(&hits), "{hits} of 400");
    }
}
