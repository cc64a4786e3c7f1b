//! Copies rows of a table that is not on the device, without a restore of the whole table.
//!
//! The host must know which rows the launch picks. So the engine first reads the words that name
//! them, as any read, while the launch waits at the head of the queue. Then the rows go through
//! staging to the result of the launch. If the rows would come to more than the table, the whole
//! table is restored.

use std::sync::Arc;

use super::pick;
use crate::engine::kernel::RowsNamed;
use crate::engine::pass::Pass;
use crate::engine::queue::picking::{Picking, Rows};
use crate::engine::tiers::supply::{self, Supply};
use crate::engine::{read, restore};
use crate::error::Result;
use crate::memory::Storage;

/// Copies the rows that the launch at the head of the queue picks. The inner error concerns the
/// launch.
pub(super) async fn pick_rows(pass: &Pass, wanted: &Rows) -> Result<Result<()>> {
    let Rows {
        table,
        result,
        rows,
    } = wanted;
    pass.submit()?;
    let (reading, words) = match pass.lock().steps.picking() {
        Some(Picking {
            words,
            reading: Some(reading),
            ..
        }) => (reading.clone(), words.clone()),
        _ => return Ok(Ok(())),
    };
    let taken_in = pass.unless_lost(read::take_in(pass, &reading).await)?;
    // They also stay in the state: if the device is lost below, the next pass comes here again.
    let words = words.lock().clone();
    let picked = match taken_in {
        Ok(()) => picked(pass, table, rows, &words).await,
        Err(error) => Err(error),
    };
    let Ok(Some(picked)) = picked else {
        // Restoring the table reports the error, or takes another copy.
        pick::pick_nothing(&mut pass.lock());
        return Ok(Ok(()));
    };
    let (mut at, mut rest, mut watch) = (0, &picked[..], pass.stopwatch());
    while !rest.is_empty() {
        let staged = restore::stage_restore(pass, result, rest, &mut watch);
        let (region, taken) = match pass.unless_lost(staged.await)? {
            Ok(staged) => staged,
            Err(error) => {
                pick::pick_nothing(&mut pass.lock());
                return Ok(Err(error));
            }
        };
        let mut state = pass.lock();
        if let Some(place) = state.memory.slots.find(result) {
            state.write(result, region.copy_to(place.at(at)));
        }
        state.batch.regions.push(region);
        at += taken as u64;
        rest = &rest[taken..];
    }
    let mut state = pass.lock();
    *state.steps.picking() = None;
    state.memory.slots.used(table);
    state.memory.was_read(table, picked.len() as u64);
    state.counters.restored_bytes += picked.len() as u64;
    let cmd = state.queue.pop_head();
    if let Some(cmd) = &cmd {
        state.note_encoded(cmd);
    }
    // Its operands are dropped outside the lock.
    drop(state);
    drop(cmd);
    Ok(Ok(()))
}

/// The rows that the words name. `None` if the table is on the device again, or a word is missing.
async fn picked(
    pass: &Pass,
    table: &Arc<Storage>,
    rows: &RowsNamed,
    words: &[u8],
) -> Result<Option<Vec<u8>>> {
    let Some(copies) = supply::evicted_copies(pass, table) else {
        return Ok(None);
    };
    let mut supply = Supply::mapping(pass, table, &copies).await?;
    let mut picked = vec![0; rows.count as usize * rows.row_bytes as usize];
    let step = rows.step();
    // With a negative step, the last word comes first.
    let first = if step < 0 { rows.count as i64 - 1 } else { 0 };
    for (index, row) in picked.chunks_exact_mut(rows.row_bytes as usize).enumerate() {
        let at = 4 * ((index as i64 - first) * step) as usize;
        let word = words.get(at..at + 4).and_then(|word| word.try_into().ok());
        let Some(number) = word.map(u32::from_le_bytes) else {
            return Ok(None);
        };
        if number >= rows.rows {
            continue;
        }
        let start = rows.start_bytes + u64::from(number) * rows.step_bytes;
        let mut done = 0;
        while done < row.len() {
            let (at, left_bytes) = (start + done as u64, (row.len() - done) as u64);
            supply.fetch(at, left_bytes).await?;
            let piece = supply.piece(at, left_bytes)?;
            row[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
    }
    Ok(Some(picked))
}
