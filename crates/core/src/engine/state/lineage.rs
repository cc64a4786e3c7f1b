//! Lineages: the launches that made values, so that they can run again.
//!
//! A command is a value. The engine keeps the launch that wrote a storage as a whole, and which
//! values it read. If memory is short, it may drop the storage and run the launch again later. It
//! does so where this costs less than to write the bytes out and to restore them. (Kirisame et al.,
//! *Dynamic Tensor Rematerialization*, ICLR 2021; the word is that of Spark's lost partitions.)
//!
//! Lineages exist while values are saved for a backward, because only these wait for long. An input
//! that nobody keeps, such as a product before its bias, is computed again too. So a lineage holds
//! the lineages of such inputs, up to [`MOST_DEPTH`]. It holds no storage.

use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use super::cost::Costs;
use crate::dtype::DType;
use crate::engine::kernel::{Arg, Launch, Program, Ranges, Role};
use crate::engine::queue::cmd::Cmd;
use crate::memory::{Memory, Storage};

/// The most launches in a row whose results nobody keeps.
const MOST_DEPTH: u8 = 8;

/// How the values of all storages were made.
#[derive(Debug, Default)]
pub(crate) struct Lineages {
    by_slot: Vec<Option<Made>>,
    /// The limits that calls under way will set.
    limits_ahead_bytes: Vec<u64>,
}

/// How a value was made.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    /// The number of the write that gave the value.
    write: u64,
    /// Index of the operand that holds it.
    pub(crate) operand: usize,
    pub(crate) by: Arc<Lineage>,
}

/// A launch without its storages.
#[derive(Debug)]
pub(crate) struct Lineage {
    pub(crate) launch: Launch,
    pub(crate) operands: SmallVec<[LineageOperand; 4]>,
    /// The predicted time in nanoseconds, before the meter scales it.
    pub(crate) predicted_ns: f64,
    /// The memory that the launch needs, with its operands and results.
    pub(crate) needed_bytes: u64,
    /// The launches in a row behind it whose results nobody keeps.
    depth: u8,
}

#[derive(Debug)]
pub(crate) struct LineageOperand {
    pub(crate) dtype: DType,
    pub(crate) vec4s: bool,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
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
pub(crate) struct Inputs(SmallVec<[(u64, Option<Made>); 4]>);

impl Lineages {
    /// The values that a command reads, if it can run again with the same result.
    pub(crate) fn inputs(&self, cmd: &Cmd, memory: &Memory) -> Option<Inputs> {
        let Cmd::Launch(launch) = cmd else {
            return None;
        };
        // A kernel of the app may give other bits each time, and its failure is the app's.
        if matches!(launch.program, Program::Custom(_)) {
            return None;
        }
        // Another share may write to the storages that it lends at any time.
        let mut args = launch.args.iter();
        let share = args.next_back().map(|arg| arg.storage.share());
        if args.any(|arg| Some(arg.storage.share()) != share) {
            return None;
        }
        let mut inputs = SmallVec::new();
        for (index, arg) in launch.args.iter().enumerate() {
            let is_whole = launch.shown_bytes(index) == arg.storage.size_bytes();
            inputs.push(match launch.program.role(index) {
                Role::Read => {
                    let write = memory.slots.writes_to(&arg.storage);
                    let is_kept = arg.storage.is_saved();
                    let made = self.made(&arg.storage, write).filter(|_| !is_kept);
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
    pub(crate) fn note(&mut self, cmd: &Cmd, inputs: Inputs, memory: &Memory, costs: &Costs) {
        let Cmd::Launch(launch) = cmd else { return };
        let depth = |(_, made): &(u64, Option<Made>)| made.as_ref().map_or(0, |one| one.by.depth);
        let depth = 1 + inputs.0.iter().map(depth).max().unwrap_or(0);
        let operands = launch.args.iter().zip(inputs.0).enumerate();
        let operands = operands.map(|(index, (arg, (write, made)))| LineageOperand {
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
                params: SmallVec::from_slice(&launch.params),
                ranges: Ranges::from_slice(&launch.ranges),
                methods: launch.methods.clone(),
                pages: None,
                ..*launch
            },
            predicted_ns: costs.compute_ns(launch),
            needed_bytes: needed_bytes(launch, memory),
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
                write: memory.slots.writes_to(&arg.storage),
                operand,
                by: by.clone(),
            });
        }
    }

    /// How the value was made that write number `write` gave to the storage.
    pub(crate) fn made(&self, storage: &Storage, write: u64) -> Option<&Made> {
        let made = self.by_slot.get(storage.slot()? as usize)?.as_ref();
        made.filter(|made| made.write == write)
    }

    /// The least limit that the budget, or a share's ceiling, will have soon.
    pub(crate) fn limit_ahead_bytes(&self) -> u64 {
        let limits = self.limits_ahead_bytes.iter();
        limits.copied().min().unwrap_or(u64::MAX)
    }

    /// A call will set this limit soon.
    pub(crate) fn expect_limit(&mut self, limit_bytes: u64) {
        self.limits_ahead_bytes.push(limit_bytes);
    }

    /// The call has set the limit, or has ended without.
    pub(crate) fn forget_limit(&mut self, limit_bytes: u64) {
        let limits = &mut self.limits_ahead_bytes;
        if let Some(at) = limits.iter().position(|limit| *limit == limit_bytes) {
            limits.swap_remove(at);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.by_slot = Vec::new();
    }
}

/// The memory that a launch needs, with its operands and results.
fn needed_bytes(launch: &Launch, memory: &Memory) -> u64 {
    let is_new = |index: usize| {
        let same = |other: &Arg| Arc::ptr_eq(&other.storage, &launch.args[index].storage);
        !launch.args[..index].iter().any(same)
    };
    let own = launch.args.iter().enumerate();
    own.filter(|(index, arg)| is_new(*index) && !memory.slots.is_imported(&arg.storage))
        .map(|(_, arg)| memory.slabs.granted_bytes(arg.storage.size_bytes()))
        .sum()
}
