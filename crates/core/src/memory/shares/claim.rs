//! Claims: from whom a share that needs room may take memory.

use super::super::share::ShareId;
use super::super::victims::Clock;
use super::by_share::ByShare;
use super::{Entry, Shares};

/// Who may have to give memory. Only what lies within one share is concerned; within
/// [`ShareId::MAIN`] is everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whom {
    within: ShareId,
    by: By,
}

/// Who claims memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The limit: everybody gives.
    Limit,
    /// A share that claims what best-effort shares have.
    Spare(ShareId),
    /// A share that claims memory for a request of this many bytes. It may take its own memory, and
    /// that of shares that run nothing. It may also take from shares that borrowed more than it
    /// would have borrowed after the request.
    Due(ShareId, u64),
    /// A share that claims its own, and all that was borrowed.
    Need(ShareId),
}

impl Whom {
    /// Everybody within a share, but first those who have borrowed.
    pub(crate) fn all(within: ShareId) -> Whom {
        let by = By::Limit;
        Whom { within, by }
    }

    /// Those who owe `bytes` to a share.
    pub(crate) fn owing(within: ShareId, to: ShareId, bytes: u64) -> Whom {
        let by = By::Due(to, bytes);
        Whom { within, by }
    }

    /// The share that claims the memory; `None` if it is the limit.
    pub(crate) fn claimer(self) -> Option<ShareId> {
        match self.by {
            By::Limit => None,
            By::Spare(share) | By::Due(share, _) | By::Need(share) => Some(share),
        }
    }

    /// Whom to ask one after the other, until somebody gives. Best-effort shares come first, if
    /// there are any. A single request may need more than a fair part of what is lent.
    pub(crate) fn in_turn(self, has_best_effort: bool) -> impl Iterator<Item = Whom> {
        let whom = move |by| Whom { by, ..self };
        let turns = match self.by {
            By::Limit => [By::Spare(self.within), By::Need(self.within), By::Limit],
            By::Due(share, bytes) => [By::Spare(share), By::Due(share, bytes), By::Need(share)],
            turn @ (By::Spare(_) | By::Need(_)) => [turn; 3],
        };
        let turns = turns.into_iter().map(whom);
        turns.skip(usize::from(!has_best_effort))
    }
}

/// A share, while a claim is served.
#[derive(Clone, Copy, Debug)]
struct Node {
    around: ShareId,
    own_bytes: u64,
    tree_bytes: u64,
    guaranteed_bytes: u64,
    is_idle: bool,
    is_best_effort: bool,
}

/// From whom memory may be taken, one storage after the other.
///
/// Within its guarantee a share takes whatever others have borrowed. Beyond its guarantee it gives
/// up its own, and all borrowers are equal. It may also take from shares that borrowed more than it
/// would have borrowed then. And it may take from shares that have run nothing for a while. That is
/// max-min fairness (Bertsekas and Gallager, *Data Networks*) of what is borrowed. A share is
/// around those within it, and may have whatever they have borrowed.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    whom: Whom,
    /// What is in no share.
    main_bytes: u64,
    nodes: ByShare<Node>,
}

impl Claim {
    /// May a storage of this share be taken?
    pub(crate) fn may_take(&self, from: ShareId) -> bool {
        let within = self.whom.within;
        if within != ShareId::MAIN && self.chain(from).all(|id| id != within) {
            return false;
        }
        match self.whom.by {
            By::Limit => true,
            By::Spare(share) => {
                self.is_best_effort(from, share) && self.may_claim(share, None, from)
            }
            By::Due(share, wanted_bytes) if share == from => self.gives_itself(share, wanted_bytes),
            By::Need(share) if share == from => true,
            By::Due(share, wanted_bytes) => self.may_claim(share, Some(wanted_bytes), from),
            By::Need(share) => self.may_claim(share, None, from),
        }
    }

    /// Takes a storage, if that is allowed.
    pub(crate) fn take(&mut self, from: ShareId, bytes: u64) -> bool {
        if !self.may_take(from) {
            return false;
        }
        if from == ShareId::MAIN {
            self.main_bytes = self.main_bytes.saturating_sub(bytes);
        }
        let chain: Vec<ShareId> = self.chain(from).collect();
        for id in chain {
            if let Some(node) = self.nodes.get_mut(id) {
                node.tree_bytes = node.tree_bytes.saturating_sub(bytes);
                if id == from {
                    node.own_bytes = node.own_bytes.saturating_sub(bytes);
                }
            }
        }
        true
    }

    /// A share and those around it, from the inside out, without the device.
    fn chain(&self, share: ShareId) -> impl Iterator<Item = ShareId> {
        let known = |id: ShareId| self.nodes.get(id).is_some().then_some(id);
        let around = move |id: &ShareId| self.nodes.get(*id).and_then(|node| known(node.around));
        std::iter::successors(known(share), around)
    }

    /// Does a share that wants `wanted_bytes` give up its own? Not within its guarantee.
    fn gives_itself(&self, share: ShareId, wanted_bytes: u64) -> bool {
        share == ShareId::MAIN || self.over_bytes(share) + i128::from(wanted_bytes) > 0
    }

    /// Is a share best effort, or one around it that is not also around `other`?
    fn is_best_effort(&self, share: ShareId, other: ShareId) -> bool {
        let is_best_effort =
            |id: ShareId| self.nodes.get(id).is_some_and(|node| node.is_best_effort);
        self.chain(share)
            .any(|id| is_best_effort(id) && self.chain(other).all(|around| around != id))
    }

    /// May `share` take from another one? `wanted_bytes`: only what is its due.
    fn may_claim(&self, share: ShareId, wanted_bytes: Option<u64>, from: ShareId) -> bool {
        if self.is_best_effort(share, from) && !self.is_best_effort(from, share) {
            return false;
        }
        let ours: Vec<ShareId> = self.chain(share).collect();
        let theirs: Vec<ShareId> = self.chain(from).collect();
        // The rivals are the outermost trees that the two do not have in common.
        let common = ours.iter().rev().zip(theirs.iter().rev());
        let common = common.take_while(|(our, their)| our == their).count();
        let our_rival = ours.iter().rev().nth(common);
        let their_rival = theirs.iter().rev().nth(common);
        let around = match common {
            0 => ShareId::MAIN,
            _ => ours[ours.len() - common],
        };
        let over = |rival: Option<&ShareId>| match rival {
            Some(id) => self.over_bytes(*id),
            None => self.own_bytes(around),
        };
        let over_theirs = over(their_rival);
        let over_ours = |wanted_bytes: u64| match our_rival {
            // A share is around this tree, and may have all that the tree has borrowed.
            None if share != ShareId::MAIN => 0,
            rival => over(rival) + i128::from(wanted_bytes),
        };
        let is_idle = |id: &ShareId| self.nodes.get(*id).is_some_and(|node| node.is_idle);
        let is_idle = their_rival.is_some_and(is_idle);
        let is_due = wanted_bytes.is_none_or(|bytes| is_idle || over_theirs > over_ours(bytes));
        // Nor does anybody within the tree that gives fall below a guarantee.
        let inner = theirs.iter().rev().skip(common + 1);
        over_theirs > 0 && is_due && inner.into_iter().all(|id| self.over_bytes(*id) > 0)
    }

    /// The bytes of a tree beyond its guarantee; negative if it holds less.
    fn over_bytes(&self, share: ShareId) -> i128 {
        let node = self.nodes.get(share);
        node.map_or(0, |node| {
            i128::from(node.tree_bytes) - i128::from(node.guaranteed_bytes)
        })
    }

    /// The bytes of a share that are in no share within it.
    fn own_bytes(&self, share: ShareId) -> i128 {
        match self.nodes.get(share) {
            Some(node) => i128::from(node.own_bytes),
            None => i128::from(self.main_bytes),
        }
    }
}

impl Shares {
    /// Is there a best-effort share?
    pub(crate) fn has_best_effort(&self) -> bool {
        self.entries.values().any(|entry| entry.said.is_best_effort)
    }

    /// Is this share best effort, or one around it?
    pub(crate) fn is_best_effort(&self, share: ShareId) -> bool {
        self.chain(share)
            .any(|(_, entry)| entry.said.is_best_effort)
    }

    /// A decision about who gives memory. `live_bytes` are those of all blocks.
    pub(crate) fn claim(&self, whom: Whom, live_bytes: u64, now: Clock) -> Claim {
        let in_shares = |(_, entry): (ShareId, &Entry)| match entry.around {
            ShareId::MAIN => entry.tree_bytes.now,
            _ => 0,
        };
        let in_shares_bytes: u64 = self.entries.iter().map(in_shares).sum();
        let nodes = self.entries.iter().map(|(id, entry)| {
            let node = Node {
                around: entry.around,
                own_bytes: entry.own_bytes,
                tree_bytes: entry.tree_bytes.now,
                guaranteed_bytes: entry.guaranteed_bytes,
                is_idle: self.is_idle(id, entry, now),
                is_best_effort: entry.said.is_best_effort,
            };
            (id, node)
        });
        Claim {
            whom,
            main_bytes: live_bytes.saturating_sub(in_shares_bytes),
            nodes: nodes.collect(),
        }
    }
}
