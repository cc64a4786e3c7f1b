//! Decides whether a launch picks rows of a table that is not on the device.

use std::sync::Arc;

use parking_lot::Mutex;

use super::step::{Need, Stop};
use crate::engine::kernel::{Launch, Program};
use crate::engine::queue::cmd::Cmd;
use crate::engine::queue::picking::{MOST_WORDS_BYTES, Picking, Rows, Words};
use crate::engine::state::State;
use crate::transfer::Reading;

/// The most bytes of rows that one launch may pick, because they wait in the host's memory.
const MOST_BYTES: u64 = 4 << 20;

/// The next need of a launch that copies rows of a table that is not on the device. `None` if the
/// launch must run like any other.
pub(super) fn pick(state: &mut State, launch: &Launch) -> Result<Option<Need>, Stop> {
    let Program::Builtin(kernel) = &launch.program else {
        return Ok(None);
    };
    let [table, named, result] = &launch.args[..] else {
        return Ok(None);
    };
    let Some(rows_of) = kernel.operands[0].rows else {
        return Ok(None);
    };
    // The diagnostics check the operands of kernels, so the kernel must run.
    if state.diagnose.is_some() || !state.memory.slots.is_evicted_with_bytes(&table.storage) {
        return Ok(None);
    }
    let Some(rows) = rows_of(launch) else {
        return Ok(None);
    };
    let (table, result) = (&table.storage, &result.storage);
    let is_it = |picking: &&Picking| std::ptr::eq(picking.result.as_ptr(), &**result);
    if let Some(picking) = state.steps.picking().as_ref().filter(is_it) {
        if picking.reading.is_none() {
            return Ok(None);
        }
        let had_place = state.memory.slots.find(result).is_some();
        state.place_for_overwrite(result)?;
        if !had_place {
            state.head.note_placed(result);
        }
        let (table, result) = (table.clone(), result.clone());
        return Ok(Some(Need::Rows(Rows {
            table,
            result,
            rows,
        })));
    }
    let wanted_bytes = u64::from(rows.count) * rows.row_bytes;
    let is_little = wanted_bytes <= MOST_BYTES.min(table.len_bytes() / 4);
    let piece = rows.words().filter(|_| is_little);
    let piece = piece.filter(|_| table.picks_are_less(wanted_bytes));
    let words = |piece| Words {
        storage: named.storage.clone(),
        piece,
        result: Arc::downgrade(result),
    };
    Ok(piece.map(|piece| Need::Words(words(piece))))
}

/// Queues a read of the words before the launch at the head of the queue.
pub(super) fn read_words(state: &mut State, words: Words) {
    let read = Arc::new(Mutex::new(Vec::new()));
    let into = read.clone();
    let sink = move |bytes: &[u8]| {
        let mut words = into.lock();
        words.extend_from_slice(bytes);
    };
    let (start, size_bytes) = (words.piece.offset_bytes, words.piece.size_bytes);
    let (reading, pieces) = Reading::new(start, size_bytes, MOST_WORDS_BYTES, Box::new(sink));
    reading.await_now();
    // The read is for the launch, whose priority it has.
    let result = words.result.upgrade();
    let by = result.and_then(|result| result.share_handle().cloned());
    *state.steps.picking() = Some(Picking {
        result: words.result,
        words: read,
        reading: Some(reading.clone()),
    });
    for piece in pieces.into_iter().rev() {
        state.queue.push_head(Cmd::Read {
            src: words.storage.clone(),
            reading: reading.clone(),
            piece,
            by: by.clone(),
        });
    }
}

/// Lets the launch at the head of the queue run like any other.
pub(super) fn pick_nothing(state: &mut State) {
    if let Some(picking) = state.steps.picking() {
        picking.reading = None;
    }
}
