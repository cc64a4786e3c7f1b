//! Rows of a table that is not on the device: they alone are read where the table lies, and not
//! the whole of it restored.
//!
//! The host must know which rows: so the words that name them are read first, as any read, and the
//! launch waits at the head of the queue until they have come. Then the rows go to its result the
//! way that uploads go. A table whose rows come to more than itself is restored as a whole.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Engine;
use super::cmd::Cmd;
use super::execute::{Need, Stop};
use super::kernel::{Launch, Program, RowsNamed};
use super::restore::Supply;
use super::state::State;
use crate::driver::Op;
use crate::error::Result;
use crate::memory::Storage;
use crate::transfer::{Piece, Reading};

/// Bytes of rows that one launch may pick, and of the words that name them: they wait in the
/// host's memory.
const MOST_BYTES: u64 = 4 << 20;
const MOST_WORDS_BYTES: u64 = 64 << 10;

/// The words that name rows, for the launch that makes `result`.
#[derive(Debug)]
pub(in crate::engine) struct Words {
    storage: Arc<Storage>,
    piece: Piece,
    result: Weak<Storage>,
}

/// Rows of a table, and whose they are to be.
#[derive(Debug)]
pub(in crate::engine) struct Wanted {
    table: Arc<Storage>,
    result: Arc<Storage>,
    rows: RowsNamed,
}

/// A launch that picks rows, by its result, and the words that it waits for.
#[derive(Debug)]
pub(super) struct Picking {
    result: Weak<Storage>,
    words: Arc<Mutex<Vec<u8>>>,
    /// `None` where the words or the rows could not be read: the launch runs like any other.
    reading: Option<Arc<Reading>>,
}

impl State {
    /// What a launch needs that copies rows of a table which is not on the device. `None` if it is
    /// to run like any other.
    pub(super) fn pick(&mut self, launch: &Launch) -> Result<Option<Need>, Stop> {
        let Program::Builtin(kernel) = &launch.program else {
            return Ok(None);
        };
        let [table, named, result] = &launch.args[..] else {
            return Ok(None);
        };
        let Some(rows_of) = kernel.operands[0].rows else {
            return Ok(None);
        };
        // What is looked for is looked for in what kernels read.
        if self.diagnose.is_some() || !self.memory.is_evicted_with_bytes(&table.storage) {
            return Ok(None);
        }
        let Some(rows) = rows_of(launch) else {
            return Ok(None);
        };
        let (table, result) = (&table.storage, &result.storage);
        let is_it = |picking: &&Picking| std::ptr::eq(picking.result.as_ptr(), &**result);
        if let Some(picking) = self.picking.as_ref().filter(is_it) {
            if picking.reading.is_none() {
                return Ok(None);
            }
            let had_place = self.memory.find(result).is_some();
            self.place_for_overwrite(result)?;
            if !had_place {
                self.placed.push(Arc::downgrade(result));
            }
            let (table, result) = (table.clone(), result.clone());
            return Ok(Some(Need::Rows(Wanted {
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

    /// Reads the words before the launch at the head of the queue.
    pub(super) fn read_words(&mut self, words: Words) {
        let read = Arc::new(Mutex::new(Vec::new()));
        let into = read.clone();
        let sink = move |bytes: &[u8]| {
            let mut words = into.lock().unwrap_or_else(PoisonError::into_inner);
            words.extend_from_slice(bytes);
        };
        let Piece {
            offset_bytes,
            size_bytes,
        } = words.piece;
        let (reading, pieces) =
            Reading::new(offset_bytes, size_bytes, MOST_WORDS_BYTES, Box::new(sink));
        reading.await_now();
        self.picking = Some(Picking {
            result: words.result,
            words: read,
            reading: Some(reading.clone()),
        });
        for piece in pieces.into_iter().rev() {
            self.push_head(Cmd::Read {
                src: words.storage.clone(),
                reading: reading.clone(),
                piece,
            });
        }
    }

    /// The launch at the head of the queue runs like any other.
    fn pick_nothing(&mut self) {
        if let Some(picking) = &mut self.picking {
            picking.reading = None;
        }
    }
}

impl Engine {
    /// Gives the launch at the head of the queue the rows that it copies. The inner error is its
    /// own.
    pub(super) async fn pick_rows(&self, wanted: &Wanted) -> Result<Result<()>> {
        let Wanted {
            table,
            result,
            rows,
        } = wanted;
        self.submit()?;
        let (reading, words) = match &self.lock().picking {
            Some(Picking {
                words,
                reading: Some(reading),
                ..
            }) => (reading.clone(), words.clone()),
            _ => return Ok(Ok(())),
        };
        let taken_in = self.take_in(&reading).await;
        self.check_lost()?;
        // They stay: whoever executes the queue may be dropped below, and the next one comes here
        // again.
        let words = words.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let picked = match taken_in {
            Ok(()) => self.picked(table, rows, &words),
            Err(error) => Err(error),
        };
        let Ok(Some(picked)) = picked else {
            // Whatever it was, bringing the table back says so, or finds another way.
            self.lock().pick_nothing();
            return Ok(Ok(()));
        };
        let (mut at, mut rest, mut watch) = (0, &picked[..], self.stopwatch());
        while !rest.is_empty() {
            let staged = self.stage_restore(result, rest, &mut watch).await;
            self.check_lost()?;
            let (region, taken) = match staged {
                Ok(staged) => staged,
                Err(error) => {
                    self.lock().pick_nothing();
                    return Ok(Err(error));
                }
            };
            let mut state = self.lock();
            if let Some(place) = state.memory.find(result) {
                let copy = Op::Copy {
                    src: region.buffer,
                    src_offset_bytes: region.offset_bytes,
                    dst: place.buffer,
                    dst_offset_bytes: place.offset_bytes + at,
                    size_bytes: region.size_bytes,
                };
                state.write(result, copy);
            }
            state.batch.regions.push(region);
            at += taken as u64;
            rest = &rest[taken..];
        }
        let mut state = self.lock();
        state.picking = None;
        state.memory.used(table);
        state.memory.was_read(table, picked.len() as u64);
        state.counters.restored_bytes += picked.len() as u64;
        if let Some(cmd) = state.pop_head() {
            state.has_run(cmd);
        }
        Ok(Ok(()))
    }

    /// The rows that the words name; `None` if the table has come back, or a word is missing.
    fn picked(
        &self,
        table: &Arc<Storage>,
        rows: &RowsNamed,
        words: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let Some(copies) = self.evicted_copies(table) else {
            return Ok(None);
        };
        let mut supply = Supply::new(self, table, &copies);
        let mut picked = vec![0; rows.count as usize * rows.row_bytes as usize];
        let step = rows.step();
        // Downwards, the last word comes first.
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
                let piece = supply.piece(start + done as u64, (row.len() - done) as u64)?;
                row[done..done + piece.len()].copy_from_slice(piece);
                done += piece.len();
            }
        }
        Ok(Some(picked))
    }
}

impl RowsNamed {
    /// From one word that names a row to the next.
    fn step(&self) -> i64 {
        i64::from(self.word_step as i32)
    }

    /// The words that name rows. `None` if they are too many to be read for this.
    fn words(&self) -> Option<Piece> {
        let first = i64::from(self.first_word);
        let last = first + self.step() * (i64::from(self.count) - 1);
        let (low, high) = (first.min(last), first.max(last));
        let size_bytes = 4 * (high - low + 1) as u64;
        (low >= 0 && size_bytes <= MOST_WORDS_BYTES).then_some(Piece {
            offset_bytes: 4 * low as u64,
            size_bytes,
        })
    }
}
