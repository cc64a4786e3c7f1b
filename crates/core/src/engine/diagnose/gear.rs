//! What looking takes on the device: kernels, the pattern to fill with, and a place for answers.

use super::{
    ANSWER_BYTES, Diagnostics, LEAST_ANSWERS, Look, MOST_ANSWERS, PAGE_ANSWERS, PARAMS_BYTES,
    PATTERN_BYTES, kernels,
};
use crate::driver::{Account, BufferId, DriverError, DriverResult, Op, PipelineId};
use crate::dtype::DType;
use crate::engine::Engine;
use crate::engine::caches::PipelineKey;
use crate::engine::kernel::{MAX_OPERANDS, Program, Variant};
use crate::engine::needs::describe;
use crate::engine::wgsl::Layout;
use crate::error::{Error, Result};
use crate::memory::PATTERN;

/// Where fills come from and answers go.
pub(super) struct Gear {
    pub(super) buffer: BufferId,
    /// Of what is looked for.
    pub(super) pipelines: [Option<PipelineId>; 6],
    pub(super) answers: u32,
}

fn variant(look: Look) -> Variant {
    Variant {
        code: look as u64,
        dtypes: [DType::U32; MAX_OPERANDS],
        vec4s: 0,
    }
}

/// Two operands, a window each.
fn layout(look: Look) -> Layout {
    let mut layout = Layout {
        parts: [0; MAX_OPERANDS],
        windows: [0; MAX_OPERANDS],
        writable: 0b10 | u8::from(look == Look::Mend),
    };
    layout.parts[1] = 1;
    layout.windows[..2].fill(1);
    layout
}

impl Engine {
    /// Makes what looking takes, before the first command runs. The caller has the execution lock.
    pub(in crate::engine) async fn prepare_diagnose(&self) -> Result<()> {
        let wants = {
            let state = self.lock();
            match &state.diagnose {
                Some(diagnose) if diagnose.gear.is_none() => diagnose.wants(),
                _ => return Ok(()),
            }
        };
        let made = self.make_gear(wants).await;
        self.check_lost()?;
        // Without it values would be wrong, not only unwatched: outputs of kernels begin full of
        // the pattern.
        made.map_err(|error| Error::Driver {
            what: "memory to look for bugs",
            message: format!("{error:?}; give it more, or look for none"),
        })
    }

    async fn make_gear(&self, wants: Diagnostics) -> DriverResult<()> {
        let caps = self.caps();
        let mut pipelines = Vec::new();
        for look in Look::ALL {
            let kernel = match look {
                Look::Mend => &kernels::MEND,
                _ => &kernels::PROBE,
            };
            if !look.is_wanted(wants) {
                pipelines.push(None);
                continue;
            }
            let program = Program::Builtin(kernel);
            let key = PipelineKey::new(&program, variant(look), layout(look));
            let desc = describe(&program, &key, PARAMS_BYTES, caps);
            pipelines.push(Some(self.driver.create_pipeline(desc).await?));
        }
        // Of a small budget, a small part.
        let share_bytes = self.driver.ledger().slab_limit_now_bytes() / 32;
        let answers = MOST_ANSWERS.min(caps.max_binding_bytes / ANSWER_BYTES);
        let answers = answers.min((share_bytes / ANSWER_BYTES).max(LEAST_ANSWERS));
        let answers = answers & !(u64::from(PAGE_ANSWERS) - 1);
        if answers == 0 {
            return Err(DriverError::Invalid("a binding shows too little".into()));
        }
        let size_bytes = PATTERN_BYTES + answers * ANSWER_BYTES;
        let label = "lapidary diagnostics";
        let buffer = self.driver.create_buffer(Account::Slabs, size_bytes, label);
        let buffer = buffer.await?;
        if let (Ok(pipelines), Some(diagnose)) = (pipelines.try_into(), &mut self.lock().diagnose) {
            diagnose.gear = Some(Gear {
                buffer,
                pipelines,
                answers: answers as u32,
            });
        }
        let pattern = PATTERN.to_le_bytes().repeat(PATTERN_BYTES as usize / 4);
        self.stage_for_gear(&pattern, 0).await
    }

    /// Copies bytes to the gear's buffer, by ops of the batch.
    pub(super) async fn stage_for_gear(&self, bytes: &[u8], offset_bytes: u64) -> DriverResult<()> {
        let (mut rest, mut at) = (bytes, offset_bytes);
        while !rest.is_empty() {
            if let Some((region, taken)) = self.restore_staging.stage(rest)? {
                let mut state = self.lock();
                let gear = state.diagnose.as_ref().and_then(|one| one.gear.as_ref());
                let Some(dst) = gear.map(|gear| gear.buffer) else {
                    return Ok(());
                };
                state.batch.ops.push(Op::Copy {
                    src: region.buffer,
                    src_offset_bytes: region.offset_bytes,
                    dst,
                    dst_offset_bytes: at,
                    size_bytes: region.size_bytes,
                });
                state.batch.regions.push(region);
                (rest, at) = (&rest[taken..], at + taken as u64);
                continue;
            }
            match self.restore_staging.grow(rest.len() as u64).await {
                Ok(true) => continue,
                Ok(false) | Err(DriverError::OutOfMemory | DriverError::OverBudget) => {}
                Err(error) => return Err(error),
            }
            let submitted = self.submit();
            submitted.map_err(|error| DriverError::Lost(error.to_string()))?;
            self.restore_staging.sweep()?;
            if !self.restore_staging.wait().await? && !self.restore_staging.has_room() {
                return Err(DriverError::OutOfMemory);
            }
        }
        Ok(())
    }
}
