//! A dispatch: its sizes, and the order of its workgroups.

use crate::binding::Binding;
use crate::error::Error;
use crate::group::Group;
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::random::Random;
use crate::report::Finding;

/// The most words of all bindings. The history of a word takes several words.
const MOST_WORDS: usize = 1 << 24;

/// The most invocations of a dispatch.
const MOST_INVOCATIONS: f64 = 16_777_216.0;

/// The most steps of a dispatch.
const MOST_STEPS: u64 = 1 << 32;

/// A dispatch of a [`Kernel`]. Each run of it does the same.
#[derive(Clone, Debug)]
#[must_use]
pub struct Dispatch<'k> {
    pub(crate) kernel: &'k Kernel,
    pub(crate) workgroups: [u32; 3],
    pub(crate) lanes: u32,
    pub(crate) seed: u64,
    pub(crate) immediates: &'k [u8],
    pub(crate) zeroes_workgroup: bool,
    pub(crate) zeroes_private: bool,
}

impl Kernel {
    /// A dispatch of so many workgroups along each axis.
    pub fn dispatch(&self, workgroups: [u32; 3]) -> Dispatch<'_> {
        Dispatch {
            kernel: self,
            workgroups,
            lanes: 32,
            seed: 0,
            immediates: &[],
            zeroes_workgroup: true,
            zeroes_private: true,
        }
    }
}

impl<'k> Dispatch<'k> {
    /// The lanes of a subgroup, from 1 to 128; 32 if not set.
    pub fn lanes(self, lanes: u32) -> Self {
        let lanes = lanes.clamp(1, 128);
        Dispatch { lanes, ..self }
    }

    /// The seed for the order of workgroups and invocations; 0 if not set.
    pub fn seed(self, seed: u64) -> Self {
        Dispatch { seed, ..self }
    }

    /// The bytes of `var<immediate>`.
    pub fn immediates(self, immediates: &'k [u8]) -> Self {
        Dispatch { immediates, ..self }
    }

    /// Whether workgroup memory begins as zeros, as WGSL requires and as is set at first. Otherwise
    /// to read it before a write is a finding. That shows whether a pipeline can do without the
    /// zeros, which cost time on devices.
    pub fn zeroes_workgroup(self, zeroes_workgroup: bool) -> Self {
        Dispatch {
            zeroes_workgroup,
            ..self
        }
    }

    /// The same for variables of functions and of the invocation that have no initial value.
    pub fn zeroes_private(self, zeroes_private: bool) -> Self {
        Dispatch {
            zeroes_private,
            ..self
        }
    }

    /// Runs the dispatch. Writes to the bindings, and returns what it found: at most 16 findings,
    /// each kind and instruction once. The kernel may use fewer bindings than there are.
    ///
    /// # Errors
    /// If a binding is missing, or the dispatch is too large: over 2²⁴ invocations or words of
    /// bindings, or over 2³² steps.
    pub fn run(&self, bindings: &mut [Binding]) -> Result<Vec<Finding>, Error> {
        let too_large = |message| Err(Error::TooLarge { message });
        let code = &*self.kernel.code;
        let words: usize = bindings.iter().map(|one| one.bytes.len() / 4).sum();
        if words > MOST_WORDS {
            return too_large(format!(
                "{words} words of operands are too many to be interpreted: at most {MOST_WORDS}"
            ));
        }
        let sizes = self.workgroups.into_iter().chain(code.workgroup_size);
        let invocations = sizes.map(f64::from).product::<f64>();
        if invocations > MOST_INVOCATIONS {
            return too_large(format!(
                "{invocations} invocations are too many to be interpreted: at most \
                 {MOST_INVOCATIONS}"
            ));
        }
        let mut memory = Memory::new(code, bindings, self.immediates, self.zeroes_workgroup)?;
        if invocations == 0.0 {
            return Ok(Vec::new());
        }
        let mut group = Group::new(self, MOST_STEPS);
        for index in self.shuffled() {
            let is_whole = group.execute(index, &mut memory);
            if memory.reports.is_over() {
                break;
            }
            if !is_whole {
                return too_large(format!(
                    "more than {MOST_STEPS} steps of all its invocations are too many to be \
                     interpreted"
                ));
            }
        }
        memory.write_back(code, bindings);
        Ok(memory
            .reports
            .findings(code, &self.kernel.text, self.workgroups))
    }

    /// The workgroups in random order, since a device guarantees none.
    fn shuffled(&self) -> Vec<u32> {
        let count: u32 = self.workgroups.iter().product();
        let mut order: Vec<u32> = (0..count).collect();
        let mut random = Random(self.seed ^ 0x6f72_6465);
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        order
    }
}
