//! A kernel whose WGSL is interpreted. Its faults become the errors that a user sees.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wgsl_interpreter as wgsl;

use super::SimOptions;
use super::faults::Chance;
use super::options::SimKernels;
use super::shader::{self, Valid};
use crate::driver::{DriverError, DriverResult, PipelineDesc, panic_message, with_deep_stack};
use crate::error::KernelError;
use crate::excerpt::{excerpt, shown};

/// The most characters of a message.
const MOST_MESSAGE: usize = 1000;

/// A kernel that is ready to be interpreted.
pub(super) struct Interpreted {
    label: String,
    text: String,
    program: wgsl::Kernel,
    /// The lanes that a subgroup may have.
    lanes: Vec<u32>,
    seed: u64,
    written_whole: u64,
    zeroes_workgroup: bool,
    /// Whether the kernel is one of the library, which rely on no zeros.
    is_ours: bool,
    has_run: AtomicBool,
}

impl Interpreted {
    pub(super) fn new(desc: &PipelineDesc, options: &SimOptions) -> DriverResult<Self> {
        let build = || {
            let Valid { module, info, .. } =
                shader::parse(desc, options).map_err(DriverError::Invalid)?;
            let program = wgsl::Kernel::from_module(&module, &info, &desc.entry, &desc.wgsl);
            program.map_err(|refused| {
                let place = match &refused {
                    wgsl::Error::Unsupported { place, .. } => place.clone(),
                    _ => 0..0,
                };
                let excerpt = excerpt(&desc.wgsl, place, "not interpreted");
                fault_at(&desc.label, &refused.to_string(), excerpt)
            })
        };
        let program = with_deep_stack(|| catch_unwind(AssertUnwindSafe(build)));
        let program = program.unwrap_or_else(|panic| {
            let why = crashed(&*panic);
            Err(fault_at(&desc.label, &why, String::new()))
        })?;
        let (least, most) = options.subgroup_lanes.unwrap_or((4, 64));
        let sizes = [4, 8, 16, 32, 64, 128];
        Ok(Interpreted {
            label: desc.label.clone(),
            text: desc.wgsl.clone(),
            program,
            lanes: (sizes.into_iter())
                .filter(|lanes| (least..=most).contains(lanes))
                .collect(),
            seed: options.seed,
            written_whole: desc.written_whole,
            zeroes_workgroup: desc.zeroes_workgroup,
            is_ours: desc.reference.is_some() && options.kernels == SimKernels::Interpreted,
            has_run: AtomicBool::new(false),
        })
    }

    /// The name and the text, once a dispatch ran without a fault.
    pub(super) fn proven(&self) -> Option<(String, String)> {
        let has_run = self.has_run.load(Ordering::Relaxed);
        has_run.then(|| (self.label.clone(), self.text.clone()))
    }

    fn is_written_whole(&self, index: usize) -> bool {
        let bits = u32::try_from(index)
            .ok()
            .and_then(|index| self.written_whole.checked_shr(index));
        bits.is_some_and(|bits| bits & 1 == 1)
    }

    /// Runs a dispatch on the bytes of its bindings. Returns those that may be written.
    pub(super) fn run(
        &self,
        bindings: Vec<(Vec<u8>, bool)>,
        params: &[u8],
        groups: [u32; 3],
        number: u64,
    ) -> DriverResult<Vec<(usize, Vec<u8>)>> {
        let mut chance = Chance(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let lanes = self.lanes[chance.below(self.lanes.len() as u64) as usize];
        let dispatch = (self.program.dispatch(groups).lanes(lanes))
            .seed(chance.below(u64::MAX))
            .immediates(params)
            .zeroes_workgroup(self.zeroes_workgroup)
            .zeroes_private(!self.is_ours);
        let writes: Vec<bool> = bindings.iter().map(|(_, writes)| *writes).collect();
        let buffers = bindings.into_iter().map(|(bytes, _)| bytes);
        // Devices without immediates have the parameters in a uniform behind the operands.
        let buffers = buffers.chain([params.to_vec()]).enumerate();
        let mut buffers: Vec<_> = buffers
            .map(|(index, bytes)| wgsl::Binding {
                is_fresh: writes.get(index) == Some(&true) && self.is_written_whole(index),
                ..wgsl::Binding::new(0, index as u32, bytes)
            })
            .collect();
        let work = || dispatch.run(&mut buffers);
        let ran = catch_unwind(AssertUnwindSafe(work)).map_err(|panic| crashed(&*panic));
        let ran = ran.and_then(|reports| reports.map_err(|error| error.to_string()));
        let reports = ran.map_err(|why| fault_at(&self.label, &why, String::new()))?;
        if let Some(first) = reports.first() {
            return Err(self.fault(first, reports.len(), lanes));
        }
        self.has_run.store(true, Ordering::Relaxed);
        let written = buffers.into_iter().map(|buffer| buffer.bytes);
        let written = written.zip(writes).enumerate();
        let written = written.filter(|(_, (_, writes))| *writes);
        Ok(written.map(|(index, (bytes, _))| (index, bytes)).collect())
    }

    fn fault(&self, report: &wgsl::Finding, count: usize, lanes: u32) -> DriverError {
        let others = match count {
            1 => String::new(),
            2 => "; there is one more fault".to_string(),
            count => format!("; there are {} more faults", count - 1),
        };
        let message = format!("{}{others} (subgroups of {lanes})", report.message);
        let excerpt = excerpt(&self.text, report.place.clone(), report.kind.advice());
        fault_at(&self.label, &message, excerpt)
    }
}

/// The message for a panic of the interpreter.
fn crashed(panic: &(dyn Any + Send)) -> String {
    format!("it cannot be interpreted: {}", panic_message(panic))
}

pub(super) fn fault_at(kernel: &str, message: &str, excerpt: String) -> DriverError {
    DriverError::Kernel(Arc::new(KernelError {
        kernel: shown(kernel, MOST_MESSAGE),
        message: shown(message, MOST_MESSAGE),
        excerpt,
    }))
}
