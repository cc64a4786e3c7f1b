//! Creates the device resources of the diagnostics before the first command runs.

use super::describe;
use crate::driver::{Account, At, DriverError, DriverResult};
use crate::engine::Diagnostics;
use crate::engine::diagnose::{self, Gear, Look, PARAMS_BYTES, PATTERN_BYTES};
use crate::engine::pass::Pass;
use crate::error::{Error, Result};
use crate::memory::PATTERN;

/// Creates the resources, unless they exist.
pub(super) async fn prepare_diagnose(pass: &Pass) -> Result<()> {
    let wants = {
        let state = pass.lock();
        match &state.diagnose {
            Some(diagnose) if diagnose.gear.is_none() => diagnose.wants,
            _ => return Ok(()),
        }
    };
    // A pass cannot go on without them. Outputs of kernels begin full of the pattern, so values
    // would be wrong and not only unchecked.
    let made = pass.unless_lost(make_gear(pass, wants).await)?;
    made.map_err(|error| {
        Error::driver(
            "memory for the diagnostics",
            format!("{error:?}; raise the budget, or turn the diagnostics off"),
        )
    })
}

async fn make_gear(pass: &Pass, wants: Diagnostics) -> DriverResult<()> {
    let caps = pass.caps();
    let mut pipelines = [None; 6];
    for (look, pipeline) in Look::ALL.into_iter().zip(&mut pipelines) {
        if let Some((program, key)) = look.kernel(wants) {
            let desc = describe::describe(&program, &key, PARAMS_BYTES, caps);
            *pipeline = Some(pass.driver.create_pipeline(desc).await?);
        }
    }
    let limit_bytes = pass.driver.ledger().slab_limit_now_bytes();
    let answers = Gear::most_answers(limit_bytes, caps);
    if answers == 0 {
        return Err(DriverError::Invalid("a binding is too small".into()));
    }
    let (size_bytes, label) = (Gear::size_bytes(answers), "lapidary diagnostics");
    let buffer = pass.driver.create_buffer(Account::Slabs, size_bytes, label);
    let buffer = buffer.await?;
    if let Some(diagnose) = &mut pass.lock().diagnose {
        diagnose.gear = Some(Gear {
            buffer,
            pipelines,
            answers: answers as u32,
        });
    }
    let pattern = PATTERN.to_le_bytes().repeat(PATTERN_BYTES as usize / 4);
    stage_for_gear(pass, &pattern, 0).await
}

/// Copies bytes to the buffer of the diagnostics, by ops of the batch.
pub(super) async fn stage_for_gear(
    pass: &Pass,
    bytes: &[u8],
    offset_bytes: u64,
) -> DriverResult<()> {
    let (mut rest, mut at) = (bytes, offset_bytes);
    while !rest.is_empty() {
        if let Some((region, taken)) = pass.restore_staging.stage(rest)? {
            let mut state = pass.lock();
            let Some(gear) = diagnose::gear_buffer(&state) else {
                return Ok(());
            };
            state.batch.ops.push(region.copy_to(At(gear, at)));
            state.batch.regions.push(region);
            (rest, at) = (&rest[taken..], at + taken as u64);
            continue;
        }
        if pass.restore_staging.grow(rest.len() as u64).await? {
            continue;
        }
        let submitted = pass.submit();
        submitted.map_err(|error| DriverError::Lost(error.to_string()))?;
        pass.restore_staging.sweep()?;
        if !pass.restore_staging.wait().await? && !pass.restore_staging.has_room() {
            return Err(DriverError::OutOfMemory);
        }
    }
    Ok(())
}
