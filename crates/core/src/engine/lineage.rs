//! Lineages: the launches that made values, so that they can run again.
//!
//! A command is a value. The engine keeps the launch that wrote a storage as a whole, and which
//! values it read. If memory is short, it may drop the storage and run the launch again later. It
//! does so where this costs less than to write the bytes out and to restore them. (Kirisame et al.,
//! *Dynamic Tensor Rematerialization*, ICLR 2021; the word is that of Spark's lost partitions.)
//!
//! Lineages exist while values are saved for a backward, because only these wait for long. An input
//! that nobody keeps, such as a product before its bias, is computed again too: a lineage holds
//! those of such inputs, up to [`MOST_DEPTH`]. It holds no storage.

use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::cmd::Cmd;
use super::cost::Costs;
use super::kernel::{Arg, Launch, Program, Role};
use super::state::State;
use super::victims::tier_of;
use crate::dtype::DType;
use crate::memory::{Memory, Storage, Whereabouts};

/// The most launches in a row whose results nobody keeps.
const MOST_DEPTH: u8 = 8;

/// The most inputs that the engine follows to find the cost of a value.
const MOST_INPUTS: u32 = 48;

/// How the values of all storages were made.
#[derive(Debug, Default)]
pub(super) struct Lineages {
    by_slot: Vec<Option<Made>>,
}

/// How a value was made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// The number of the write that gave the value.
    write: u64,
    /// Index of the operand that holds it.
    operand: usize,
    by: Arc<Lineage>,
}

/// A launch without its storages.
#[derive(Debug)]
struct Lineage {
    launch: Launch,
    operands: SmallVec<[Operand; 4]>,
    /// The predicted time in nanoseconds, before the meter scales it.
    predicted_ns: f64,
    /// The launches in a row behind it whose results nobody keeps.
    depth: u8,
}

#[derive(Debug)]
struct Operand {
    dtype: DType,
    vec4s: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The value that write number `write` gave to a storage, and how that was made.
    Input {
        storage: Weak<Storage>,
        write: u64,
        made: Option<Made>,
    },
    Output {
        len_bytes: u64,
    },
}

/// The values that a launch reads: for each operand the number of its last write, and how it was
/// made if nobody keeps it. They are looked up before the launch is encoded, because an output may
/// take over the storage of an input.
pub(super) struct Inputs(SmallVec<[(u64, Option<Made>); 4]>);

/// The way to a value.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The storages that must stay as they are.
    leaves: Vec<Arc<Storage>>,
    /// The predicted cost, with that of inputs that are not on the device.
    ns: f64,
}

impl Lineages {
    /// The values that a command reads, if it can run again with the same result.
    pub(super) fn inputs(&self, cmd: &Cmd, memory: &Memory) -> Option<Inputs> {
        let Cmd::Launch(launch) = cmd else {
            return None;
        };
        // A kernel of the app may give other bits each time, and its failure is the app's.
        if matches!(launch.program, Program::Custom(_)) {
            return None;
        }
        let mut inputs = SmallVec::new();
        for (index, arg) in launch.args.iter().enumerate() {
            let is_whole = launch.shown_bytes(index) == arg.storage.size_bytes();
            inputs.push(match launch.program.role(index) {
                Role::Read => {
                    let write = memory.writes_to(&arg.storage);
                    let is_kept = arg.storage.is_saved();
                    let made = self.of(&arg.storage, write).filter(|_| !is_kept);
                    let made = made.filter(|made| made.by.depth < MOST_DEPTH);
                    (write, made.cloned())
                }
                Role::Write if is_whole => (0, None),
                Role::Write | Role::Update => return None,
            });
        }
        Some(Inputs(inputs))
    }

    /// Notes that a command with these inputs was encoded.
    pub(super) fn note(&mut self, cmd: &Cmd, inputs: Inputs, memory: &Memory, costs: &Costs) {
        let Cmd::Launch(launch) = cmd else { return };
        let depth = |(_, made): &(u64, Option<Made>)| made.as_ref().map_or(0, |one| one.by.depth);
        let depth = 1 + inputs.0.iter().map(depth).max().unwrap_or(0);
        let operands = launch.args.iter().zip(inputs.0).enumerate();
        let operands = operands.map(|(index, (arg, (write, made)))| Operand {
            dtype: arg.dtype,
            vec4s: arg.vec4s,
            kind: match launch.program.role(index) {
                Role::Read => Kind::Input {
                    storage: Arc::downgrade(&arg.storage),
                    write,
                    made,
                },
                Role::Write | Role::Update => Kind::Output {
                    len_bytes: arg.storage.len_bytes(),
                },
            },
        });
        let by = Arc::new(Lineage {
            operands: operands.collect(),
            launch: Launch {
                program: launch.program.clone(),
                args: SmallVec::new(),
                params: launch.params.clone(),
                ranges: launch.ranges.clone(),
                ..*launch
            },
            predicted_ns: costs.compute_ns(launch),
            depth,
        });
        for (operand, arg) in launch.args.iter().enumerate() {
            if launch.program.role(operand) == Role::Read {
                continue;
            }
            let Some(slot) = arg.storage.slot() else {
                continue;
            };
            let slot = slot as usize;
            if self.by_slot.len() <= slot {
                self.by_slot.resize(slot + 1, None);
            }
            self.by_slot[slot] = Some(Made {
                write: memory.writes_to(&arg.storage),
                operand,
                by: by.clone(),
            });
        }
    }

    /// How the value was made that write number `write` gave to the storage.
    pub(super) fn of(&self, storage: &Storage, write: u64) -> Option<&Made> {
        let made = self.by_slot.get(storage.slot()? as usize)?.as_ref();
        made.filter(|made| made.write == write)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.by_slot = Vec::new();
    }
}

impl State {
    /// The predicted time in which a storage can be computed again, in nanoseconds. `None` if it
    /// cannot, or if that needs a value that the command at the head of the queue overwrites.
    pub(super) fn recompute_ns(&self, storage: &Storage) -> Option<u64> {
        let plan = self.plan_of(storage)?;
        let mut is_overwritten = false;
        if let Some(cmd) = self.queue.head() {
            cmd.each_operand(|operand, role| {
                let is_leaf = |leaf: &Arc<Storage>| Arc::ptr_eq(leaf, operand);
                is_overwritten |= role != Role::Read && plan.leaves.iter().any(is_leaf);
            });
        }
        (!is_overwritten).then_some(plan.ns as u64)
    }

    /// The way to the value of a storage, if there is one.
    fn plan_of(&self, storage: &Storage) -> Option<Plan> {
        let write = self.memory.writes_to(storage);
        let made = self.lineages.of(storage, write)?;
        let mut plan = Plan::default();
        let is_possible = self.follow(made, &mut plan, true, &mut { MOST_INPUTS });
        is_possible.then_some(plan)
    }

    /// Adds the way to a value. The leaves of inputs that were dropped themselves are theirs, so
    /// they are followed for their cost only. `most` bounds the inputs.
    fn follow(&self, made: &Made, plan: &mut Plan, are_leaves: bool, most: &mut u32) -> bool {
        plan.ns += made.by.predicted_ns * self.driver.time_scale();
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
                let whereabouts = self.memory.whereabouts(&storage, *write)?;
                Some((storage, whereabouts))
            });
            let Some((storage, whereabouts)) = found else {
                let made = made.as_ref();
                return made.is_some_and(|made| self.follow(made, plan, are_leaves, most));
            };
            match whereabouts {
                Whereabouts::Device => {}
                Whereabouts::Bytes { is_far } => {
                    let cost = self.costs.of(tier_of(is_far));
                    plan.ns += cost.ns(storage.size_bytes()) as f64;
                }
                Whereabouts::Nowhere => {
                    let made = self.lineages.of(&storage, *write);
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

    /// Prepares a storage for being dropped: its lineage gives its bytes again. `false` if it has
    /// none, or if one of the inputs would be computed from it.
    pub(super) fn will_recompute(&mut self, storage: &Arc<Storage>) -> bool {
        let Some(plan) = self.plan_of(storage) else {
            return false;
        };
        let write = self.memory.writes_to(storage);
        let Some(made) = self.lineages.of(storage, write).cloned() else {
            return false;
        };
        // Only functions of the app can lead back: a lineage names values from before.
        if self.rematerializers.has_functions() && self.memory.comes_from(&plan.leaves, storage) {
            return false;
        }
        let id = self.rematerializers.enter_lineage(made);
        let token = self.memory.rematerializer_token(id, plan.leaves, true);
        self.memory.copied(storage, |copies| {
            copies.rematerializer = Some(Arc::new(token));
        });
        true
    }

    /// The launches that compute a value again, and the storage of the result. `None` if an input
    /// is gone.
    pub(super) fn launches_of(
        &self,
        made: &Made,
        like: &Storage,
    ) -> Option<(Vec<Launch>, Arc<Storage>)> {
        let mut again = Again {
            memory: &self.memory,
            like,
            launches: Vec::new(),
            outputs: FxHashMap::default(),
        };
        let result = again.value(made)?;
        Some((again.launches, result))
    }
}

/// The launches so far, and the storages of their results.
struct Again<'a> {
    memory: &'a Memory,
    like: &'a Storage,
    launches: Vec<Launch>,
    /// For each launch and operand.
    outputs: FxHashMap<(*const Lineage, usize), Arc<Storage>>,
}

impl Again<'_> {
    fn value(&mut self, made: &Made) -> Option<Arc<Storage>> {
        let key = |operand| (Arc::as_ptr(&made.by), operand);
        if let Some(known) = self.outputs.get(&key(made.operand)) {
            return Some(known.clone());
        }
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
                    self.outputs.insert(key(index), storage.clone());
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
        self.outputs.get(&key(made.operand)).cloned()
    }

    fn input(
        &mut self,
        storage: &Weak<Storage>,
        write: u64,
        made: Option<&Made>,
    ) -> Option<Arc<Storage>> {
        let storage = storage.upgrade();
        let found = storage.filter(|one| self.memory.holds(one, write));
        found.or_else(|| self.value(made?))
    }
}
