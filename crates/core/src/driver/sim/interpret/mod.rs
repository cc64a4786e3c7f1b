//! Runs the WGSL of kernels on the host, invocation by invocation, and finds faults that devices
//! hide.
//!
//! ```text
//!   naga's module ─ compile ─► code ── Program::run ──► group    order and barriers
//!                                                        ├─ lane        steps of an invocation
//!                                                        ├─ collective  operations of a subgroup
//!                                                        ├─ cooperative matrices of a subgroup
//!                                                        └─ memory      words and their history
//!   arithmetic, float, bits, geometry: functions                └─ shadow   accesses of each word
//!   report: messages
//! ```
//!
//! Software adapters run a workgroup in lockstep, so they hide races and missing barriers. Here the
//! order of invocations is random, by a seed. Finding a fault needs no luck: a race is two accesses
//! that nothing orders, whichever came first.

mod arithmetic;
mod bits;
mod code;
mod collective;
mod compile;
mod cooperative;
mod float;
mod geometry;
mod group;
mod lane;
mod memory;
mod report;
mod shadow;
mod together;
mod value;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use naga::Module;
use naga::valid::ModuleInfo;

pub(super) use compile::Refused;
pub(super) use memory::View;
#[cfg(test)]
pub(super) use report::Kind;
pub(super) use report::Report;

use super::faults::Chance;
use code::Code;
use group::Group;
use memory::Memory;

/// The most registers of all invocations of a workgroup.
const MOST_REGISTERS: u64 = 1 << 24;

/// The most words of all bindings. The history of a word takes several words.
const MOST_WORDS: usize = 1 << 24;

/// The most invocations of a dispatch.
const MOST_INVOCATIONS: u64 = 1 << 24;

/// The most steps of a dispatch.
const MOST_STEPS: u64 = 1 << 32;

/// A kernel that is ready to be interpreted.
#[derive(Debug)]
pub(super) struct Program {
    code: Code,
    text: Arc<str>,
}

/// The parameters of a dispatch.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) groups: [u32; 3],
    /// The lanes of a subgroup, at most 128.
    pub(super) lanes: u32,
    /// The seed for the order of invocations.
    pub(super) seed: u64,
    /// Whether workgroup memory begins as zeros, as WGSL requires. Otherwise it counts as
    /// unwritten.
    pub(super) zeroes_shared: bool,
    /// Whether reading an unwritten variable of a function is a fault. Otherwise such variables are
    /// zeros, as WGSL requires.
    pub(super) poisons_private: bool,
    /// The kernel's text, for the lines in messages.
    text: Arc<str>,
}

impl Program {
    /// Compiles an entry point of a valid module, which was parsed from `text`.
    pub(super) fn new(
        (module, info): (&Module, &ModuleInfo),
        entry: usize,
        text: &str,
    ) -> Result<Self, Refused> {
        let code = compile::compile(module, info, entry)?;
        let size: u64 = code
            .workgroup_size
            .iter()
            .map(|size| u64::from(*size))
            .product();
        if size * u64::from(code.registers.max(code.control)) > MOST_REGISTERS {
            return Err(Refused {
                place: 0..0,
                message: format!(
                    "{size} invocations with {} values each are too many to be interpreted",
                    code.registers
                ),
            });
        }
        Ok(Program {
            code,
            text: text.into(),
        })
    }

    /// The parameters of a dispatch of `groups` workgroups, with subgroups of `lanes` lanes.
    pub(super) fn plan(&self, groups: [u32; 3], lanes: u32, seed: u64) -> Run {
        Run {
            groups,
            lanes: lanes.clamp(1, 128),
            seed,
            zeroes_shared: true,
            poisons_private: false,
            text: self.text.clone(),
        }
    }

    /// Runs a dispatch: writes to the views and returns the faults. An error names a size that is
    /// too large to be interpreted.
    pub(super) fn run(
        &self,
        run: &Run,
        views: &mut [View],
        params: &[u8],
    ) -> Result<Vec<Report>, String> {
        let words: usize = views.iter().map(|view| view.bytes.len() / 4).sum();
        if words > MOST_WORDS {
            return Err(format!(
                "{words} words of operands are too many to be interpreted: at most {MOST_WORDS}"
            ));
        }
        let groups = run.groups.iter().map(|groups| u128::from(*groups));
        let size = self
            .code
            .workgroup_size
            .iter()
            .map(|size| u128::from(*size));
        let invocations: u128 = groups.chain(size).product();
        if invocations > u128::from(MOST_INVOCATIONS) {
            return Err(format!(
                "{invocations} invocations are too many to be interpreted: at most \
                 {MOST_INVOCATIONS}"
            ));
        }
        let mut memory = Memory::new(&self.code, views, params, run.zeroes_shared);
        let mut group = Group::new(&self.code, run);
        let mut steps = 0;
        for index in shuffled(run) {
            steps += group.execute(index, &mut memory);
            if memory.reports.is_over() {
                break;
            }
            if steps > MOST_STEPS {
                return Err(format!(
                    "more than {MOST_STEPS} steps of all its invocations are too many to be \
                     interpreted"
                ));
            }
        }
        memory.write_back(&self.code, views);
        Ok(memory.reports.told(&self.code, &self.text, run.groups))
    }
}

/// The workgroups in random order, since a device guarantees none.
fn shuffled(run: &Run) -> Vec<u32> {
    let count: u32 = run.groups.iter().product();
    let mut order: Vec<u32> = (0..count).collect();
    let mut chance = Chance(run.seed ^ 0x6f72_6465);
    for at in (1..order.len()).rev() {
        order.swap(at, chance.below(at as u64 + 1) as usize);
    }
    order
}
