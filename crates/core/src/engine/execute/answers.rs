//! Checks all canaries and freed ranges for the diagnostics, and collects the answers.

use std::sync::Arc;

use parking_lot::Mutex;

use super::make_gear;
use crate::driver::{At, DriverError, DriverResult, Op};
use crate::engine::diagnose::{self, ANSWER_BYTES, PATTERN_BYTES, ZoneGroup};
use crate::engine::pass::Pass;
use crate::error::Result;
use crate::transfer::{Piece, Reading};

/// Checks every canary and all poisoned memory, and collects the answers. Runs at the end of an
/// execution pass whose results a caller waits for.
pub(crate) async fn look_over(pass: &Pass) -> Result<()> {
    let Some((freed, groups)) = diagnose::begin_look_over(&mut pass.lock()) else {
        return Ok(());
    };
    for zone in freed {
        if is_half_full(pass) {
            collect(pass).await?;
        }
        diagnose::look_at_freed(&mut pass.lock(), zone);
    }
    let mut rest = groups.into_iter().peekable();
    while rest.peek().is_some() {
        if is_half_full(pass) {
            collect(pass).await?;
        }
        let free = |one: &diagnose::Diagnose| one.free_answers();
        let most = pass.lock().diagnose.as_deref().map_or(0, free);
        let (mut some, mut count) = (Vec::new(), 0);
        while let Some(group) = rest.next_if(|group| count + group.len() <= most) {
            count += group.len();
            some.push(group);
        }
        if some.is_empty() {
            break;
        }
        if let Err(error) = pass.unless_lost(look_at_groups(pass, some).await)? {
            // There is no memory for the check now. The next execution pass tries again.
            if let Some(diagnose) = &mut pass.lock().diagnose {
                diagnose.note_missed(&format!("{error:?}"));
            }
            break;
        }
    }
    collect(pass).await?;
    let mut state = pass.lock();
    // If looks were missed, the suspects stay for the pass that finds the damage.
    if let Some(diagnose) = state.diagnose.as_mut().filter(|one| one.is_all_seen) {
        diagnose.suspects.clear();
    }
    Ok(())
}

/// Whether the pass must collect answers before it asks more.
fn is_half_full(pass: &Pass) -> bool {
    let state = pass.lock();
    (state.diagnose.as_ref()).is_some_and(|one| one.is_half_full())
}

/// Records one dispatch per slab, or per window of one, over a table of the zones.
async fn look_at_groups(pass: &Pass, groups: Vec<ZoneGroup>) -> DriverResult<()> {
    let table: Vec<u8> = groups.iter().flat_map(ZoneGroup::table).collect();
    let count = (table.len() as u64 / ANSWER_BYTES) as u32;
    let (first, at) = match &mut pass.lock().diagnose {
        Some(diagnose) => diagnose.take_table(count),
        None => return Ok(()),
    };
    make_gear::stage_for_gear(pass, &table, at).await?;
    diagnose::look_at_groups(&mut pass.lock(), groups, first);
    Ok(())
}

/// Waits for all answers and reports the findings.
pub(super) async fn collect(pass: &Pass) -> Result<()> {
    // The batch that asks also copies the answers. A refusal takes the questions back.
    pass.submit()?;
    let used = match &pass.lock().diagnose {
        Some(diagnose) => diagnose.used,
        None => return Ok(()),
    };
    if used == 0 {
        diagnose::forget_past(&mut pass.lock());
        return Ok(());
    }
    let answers = pass.unless_lost(read_answers(pass, used).await)?;
    let found = diagnose::answered(&mut pass.lock(), answers);
    found
        .into_iter()
        .for_each(|finding| pass.findings().push(finding));
    Ok(())
}

async fn read_answers(pass: &Pass, used: u32) -> DriverResult<Vec<u8>> {
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let into = arrived.clone();
    let sink = move |bytes: &[u8]| {
        let mut arrived = into.lock();
        arrived.extend_from_slice(bytes);
    };
    let size_bytes = u64::from(used) * ANSWER_BYTES;
    let piece_bytes = pass.readbacks.piece_bytes();
    let (reading, pieces) = Reading::new(PATTERN_BYTES, size_bytes, piece_bytes, Box::new(sink));
    for piece in pieces {
        pass.readbacks.provide(piece.size_bytes).await?;
        if !read_answer(pass, &reading, piece) {
            return Err(DriverError::OutOfMemory);
        }
        let submitted = pass.submit();
        submitted.map_err(|error| DriverError::Lost(error.to_string()))?;
        pass.readbacks.take_in(&reading).await?;
    }
    let mut arrived = arrived.lock();
    match arrived.len() as u64 == size_bytes {
        true => Ok(std::mem::take(&mut *arrived)),
        false => Err(DriverError::Invalid("the answers did not arrive".into())),
    }
}

fn read_answer(pass: &Pass, reading: &Arc<Reading>, piece: Piece) -> bool {
    let mut state = pass.lock();
    let gear = diagnose::gear_buffer(&state);
    let buffer = state.readbacks.take(piece.size_bytes);
    let (Some(gear), Some(buffer)) = (gear, buffer) else {
        return false;
    };
    let (from, to) = (At(gear, piece.offset_bytes), At(buffer.0, 0));
    (state.batch.ops).push(Op::Copy(from, to, piece.size_bytes));
    state.batch.reads.push((reading.clone(), piece, buffer));
    true
}
