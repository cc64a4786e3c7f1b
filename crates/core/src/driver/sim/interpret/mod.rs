//! Runs kernels' WGSL on the host, invocation by invocation, and finds what a device hides.
//!
//! ```text
//!   naga's module ─ compile ─► code ── Program::run ──► group    whose turn it is, barriers
//!                                                        ├─ lane        one invocation's steps
//!                                                        ├─ collective  what a subgroup computes
//!                                                        ├─ cooperative matrices of a subgroup
//!                                                        └─ memory      words, and their shadow
//!   arithmetic, float, bits, geometry: functions                └─ shadow   who wrote and read
//!   report: what was found, in words
//! ```
//!
//! Software adapters run a workgroup in lockstep, so they hide races and missing barriers. Here
//! chance says who goes on, by a seed. What is found does not depend on luck: a race is two
//! accesses that nothing orders, whichever came first.

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

/// Registers of all invocations of a workgroup, at most.
const MOST_REGISTERS: u64 = 1 << 24;

/// Words of all bindings, at most: what is known of a word takes several.
const MOST_WORDS: usize = 1 << 24;

/// Invocations of a dispatch, at most.
const MOST_INVOCATIONS: u64 = 1 << 24;

/// Steps of a dispatch, at most.
const MOST_STEPS: u64 = 1 << 32;

/// A kernel that is ready to be interpreted.
#[derive(Debug)]
pub(super) struct Program {
    code: Code,
    text: Arc<str>,
}

/// How a dispatch is run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) groups: [u32; 3],
    /// Lanes of a subgroup, at most 128.
    pub(super) lanes: u32,
    /// Where the order of invocations comes from.
    pub(super) seed: u64,
    /// Workgroup memory begins as zeros, as WGSL says. Else nothing wrote it.
    pub(super) zeroes_shared: bool,
    /// Variables of a function that nothing wrote may not be read. Else they are zeros, as WGSL
    /// says.
    pub(super) poisons_private: bool,
    /// The kernel's text, for its lines.
    text: Arc<str>,
}

impl Program {
    /// Compiles an entry point of a valid module, which `text` was parsed to.
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

    /// A dispatch of so many workgroups, with subgroups of so many lanes.
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

    /// Runs a dispatch: changes the views that are written, and returns the faults. An error says
    /// what is too large to be interpreted.
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

/// The workgroups in some order: a device promises none.
fn shuffled(run: &Run) -> Vec<u32> {
    let count: u32 = run.groups.iter().product();
    let mut order: Vec<u32> = (0..count).collect();
    let mut chance = Chance(run.seed ^ 0x6f72_6465);
    for at in (1..order.len()).rev() {
        order.swap(at, chance.below(at as u64 + 1) as usize);
    }
    order
}
