//! Computing by lineages: what it would cost, and how it is done.

use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::engine::kernel::{Arg, Launch, Role};
use crate::engine::state::State;
use crate::engine::state::lineage::{Kind, Made};
use crate::engine::state::rematerializers::Way;
use crate::memory::{Memory, ShareId, Storage, Whereabouts};
use crate::number_map::NumberMap;

/// The most inputs that the engine follows to find the cost of a value.
const MOST_INPUTS: u32 = 48;

/// The launches that compute a value again, and the storage of the result. `None` if an input is
/// gone.
pub(super) fn launches_of(
    memory: &Memory,
    made: &Made,
    like: &Storage,
) -> Option<(Vec<Launch>, Arc<Storage>)> {
    let mut again = Again {
        memory,
        like,
        launches: Vec::new(),
        outputs: NumberMap::default(),
    };
    let result = again.value(made)?;
    Some((again.launches, result))
}

/// The way to a value.
#[derive(Debug, Default)]
pub(crate) struct RecomputePlan {
    /// The storages that must stay as they are.
    leaves: SmallVec<[Arc<Storage>; 4]>,
    /// The predicted cost, with that of inputs that are not on the device.
    ns: f64,
    /// The memory that its largest launch needs.
    needed_bytes: u64,
}

impl RecomputePlan {
    /// The predicted time in nanoseconds.
    pub(crate) fn ns(&self) -> f64 {
        self.ns
    }

    /// The bytes that stay on the device only for this, on average over the commands until the
    /// value is used by the command number `next`. `freed_by` names the command after
    /// which a storage would be freed.
    pub(crate) fn kept_bytes(
        &self,
        next: u32,
        freed_by: impl Fn(&Arc<Storage>) -> Option<u32>,
    ) -> f64 {
        let kept = self.leaves.iter().map(|leaf| {
            let commands = freed_by(leaf).map_or(0, |last| next.saturating_sub(last));
            leaf.size_bytes() as f64 * f64::from(commands) / f64::from(next.max(1))
        });
        kept.sum()
    }
}

impl State {
    /// The way to compute a storage again. `None` if there is none, or if a launch would exceed the
    /// budget. Also `None` if a launch needs a value that the command at the head of the queue
    /// overwrites.
    pub(crate) fn recompute_plan(&self, storage: &Storage) -> Option<RecomputePlan> {
        let plan = self.plan_of(storage)?;
        // The value may be from a time when the budget was larger.
        let budget_bytes = self.driver.ledger().slab_limit_bytes();
        let limit_bytes = (self.memory.shares).ceiling_of(storage.share(), budget_bytes);
        if plan.needed_bytes > limit_bytes.min(self.lineages.limit_ahead_bytes()) {
            return None;
        }
        let mut is_overwritten = false;
        if let Some(cmd) = self.queue.head() {
            cmd.each_operand(&mut |operand, role| {
                let is_leaf = |leaf: &Arc<Storage>| Arc::ptr_eq(leaf, operand);
                is_overwritten |= role != Role::Read && plan.leaves.iter().any(is_leaf);
            });
        }
        (!is_overwritten).then_some(plan)
    }

    /// The way to the value of a storage, if there is one.
    fn plan_of(&self, storage: &Storage) -> Option<RecomputePlan> {
        let write = self.memory.slots.writes_to(storage);
        let made = self.lineages.made(storage, write)?;
        let mut plan = RecomputePlan::default();
        let is_possible = self.follow(made, &mut plan, true, &mut { MOST_INPUTS });
        is_possible.then_some(plan)
    }

    /// Adds the way to a value. The leaves of inputs that were dropped themselves are theirs, so
    /// they are followed for their cost only. `most` bounds the inputs.
    fn follow(
        &self,
        made: &Made,
        plan: &mut RecomputePlan,
        are_leaves: bool,
        most: &mut u32,
    ) -> bool {
        plan.ns += made.by.predicted_ns * self.driver.time_scale();
        plan.needed_bytes = plan.needed_bytes.max(made.by.needed_bytes);
        made.by.operands.iter().all(|operand| {
            let Kind::Input {
                storage,
                write,
                made,
            } = &operand.kind
            else {
                return true;
            };
            if *most == 0 {
                return false;
            }
            *most -= 1;
            let storage = storage.upgrade();
            let found = storage.and_then(|storage| {
                let whereabouts = self.memory.slots.whereabouts(&storage, *write)?;
                Some((storage, whereabouts))
            });
            let Some((storage, whereabouts)) = found else {
                let made = made.as_ref();
                return made.is_some_and(|made| self.follow(made, plan, are_leaves, most));
            };
            match whereabouts {
                Whereabouts::Device => {}
                Whereabouts::Bytes(tier) => {
                    let cost = self.costs.transfer_cost(tier);
                    plan.ns += cost.ns(storage.size_bytes()) as f64;
                }
                Whereabouts::Nowhere => {
                    let made = self.lineages.made(&storage, *write);
                    if !made.is_none_or(|made| self.follow(made, plan, false, most)) {
                        return false;
                    }
                }
            }
            if are_leaves {
                plan.leaves.push(storage);
            }
            true
        })
    }

    /// The dropped storages of a share, or of all, with a launch that needs more than
    /// `limit_bytes`.
    pub(super) fn dropped_beyond(
        &self,
        limit_bytes: u64,
        share: Option<ShareId>,
    ) -> Vec<Arc<Storage>> {
        let mut dropped = self.memory.slots.dropped();
        dropped.retain(|storage| {
            let shares = &self.memory.shares;
            let is_meant = share.is_none_or(|share| shares.is_within(storage.share(), share));
            let plan = is_meant.then(|| self.plan_of(storage)).flatten();
            plan.is_some_and(|plan| plan.needed_bytes > limit_bytes)
        });
        dropped
    }

    /// Prepares a storage for being dropped: its lineage gives its bytes again. `false` if it has
    /// none, or if one of the inputs would be computed from it.
    pub(crate) fn will_recompute(&mut self, storage: &Arc<Storage>) -> bool {
        let Some(plan) = self.plan_of(storage) else {
            return false;
        };
        let write = self.memory.slots.writes_to(storage);
        let Some(made) = self.lineages.made(storage, write).cloned() else {
            return false;
        };
        // Only functions of the app can lead back: a lineage names values from before.
        if self.rematerializers.has_functions()
            && self.memory.slots.comes_from(&plan.leaves, storage)
        {
            return false;
        }
        let id = self.rematerializers.enter(Way::Lineage(made));
        (self.memory).rematerialize_by(storage, id, plan.leaves.into_vec(), true);
        true
    }
}

/// The launches so far, and the storages of their results.
struct Again<'a> {
    memory: &'a Memory,
    like: &'a Storage,
    launches: Vec<Launch>,
    /// By the address of the lineage: for each operand that it writes.
    outputs: NumberMap<Vec<(usize, Arc<Storage>)>>,
}

impl Again<'_> {
    fn value(&mut self, made: &Made) -> Option<Arc<Storage>> {
        if let Some(known) = self.output(made) {
            return Some(known.clone());
        }
        let lineage = Arc::as_ptr(&made.by) as u64;
        let mut args = SmallVec::new();
        for (index, operand) in made.by.operands.iter().enumerate() {
            let storage = match &operand.kind {
                Kind::Input {
                    storage,
                    write,
                    made,
                } => self.input(storage, *write, made.as_ref())?,
                Kind::Output { len_bytes } => {
                    let storage = self.like.another(*len_bytes);
                    let outputs = self.outputs.entry(lineage).or_default();
                    outputs.push((index, storage.clone()));
                    storage
                }
            };
            args.push(Arg {
                storage,
                dtype: operand.dtype,
                vec4s: operand.vec4s,
            });
        }
        self.launches.push(Launch {
            args,
            ..made.by.launch.clone()
        });
        self.output(made).cloned()
    }

    /// The storage of a result, if its launch is among those so far.
    fn output(&self, made: &Made) -> Option<&Arc<Storage>> {
        let outputs = self.outputs.get(&(Arc::as_ptr(&made.by) as u64))?;
        let of_operand = outputs.iter().find(|(index, _)| *index == made.operand);
        of_operand.map(|(_, storage)| storage)
    }

    fn input(
        &mut self,
        storage: &Weak<Storage>,
        write: u64,
        made: Option<&Made>,
    ) -> Option<Arc<Storage>> {
        let storage = storage.upgrade();
        let found = storage.filter(|one| self.memory.slots.holds(one, write));
        found.or_else(|| self.value(made?))
    }
}
