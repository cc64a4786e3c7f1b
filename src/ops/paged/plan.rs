//! Divides a step of a model among tasks: a few rows of a sequence and a run of its keys.
//!
//! The division depends on the lengths alone, so the same calls give the same bits.

use std::sync::Arc;

use lapidary_core::internal::{Pages, Storage};

/// Words of a row, and of a task, in the table.
const WORDS: usize = 8;

/// The lengths of runs of keys.
const RUNS: [usize; 4] = [2048, 1024, 512, 256];

/// The new tokens of a sequence.
pub(crate) struct Run {
    /// The tokens before.
    pub(crate) before: usize,
    pub(crate) rows: usize,
    /// All pages of the sequence, also those for the new tokens.
    pub(crate) pages: Vec<Arc<Storage>>,
}

/// Tasks that one launch takes, with their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) first_task: u32,
    pub(super) tasks: u32,
    pub(super) first_row: u32,
    pub(super) rows: u32,
    /// The most tiles of a task.
    pub(super) tiles: u32,
    /// Pairs of a row and a key.
    pub(super) pairs: u64,
}

/// What a plan depends on beside the sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// The rows of a task.
    pub(super) rows: usize,
    /// The distance of the farthest key that a row sees; `u32::MAX` for all keys.
    pub(super) reach: u32,
    /// Workgroups for each task.
    pub(super) groups: usize,
    /// As many workgroups keep the device busy.
    pub(super) wanted: usize,
    pub(super) page_tokens: usize,
    /// Keys of a tile.
    pub(super) tile: usize,
}

/// A step of a model, as the kernels see it.
pub(crate) struct Plan {
    pub(super) division: Division,
    pub(super) rows: usize,
    /// The rows and tasks.
    pub(super) words: Vec<u32>,
    pub(super) tasks_start: u32,
    /// A part for each block of rows.
    blocks: Vec<Part>,
    /// The pages that get new tokens, and those that rows read.
    pub(super) written: Arc<Pages>,
    pub(super) read: Arc<Pages>,
    pub(super) written_start: u32,
    pub(super) read_start: u32,
}

impl Plan {
    pub(super) fn new(runs: &[Run], division: Division) -> Plan {
        let rows: usize = runs.iter().map(|run| run.rows).sum();
        let run_keys = division.run_keys(runs);
        let mut making = Making {
            division,
            run_keys,
            words: vec![0; rows * WORDS],
            tasks: Vec::new(),
            blocks: Vec::new(),
            written: Vec::new(),
            read: Vec::new(),
            ends: Vec::new(),
        };
        let mut first_row = 0;
        for run in runs {
            making.add(run, first_row);
            first_row += run.rows;
        }
        let mut words = making.words;
        let tasks_start = words.len();
        words.extend(making.tasks);
        let written_start = words.len();
        let read_start = written_start + Pages::table_words(making.written.len());
        words.resize(read_start + Pages::table_words(making.read.len()), 0);
        let each: Vec<u32> = (1..=making.written.len() as u32).collect();
        let together = division.tile / division.page_tokens;
        let (written_start, read_start) = (written_start as u32, read_start as u32);
        Plan {
            division,
            rows,
            words,
            tasks_start: tasks_start as u32,
            blocks: making.blocks,
            written: Arc::new(Pages::new(making.written, each, 1, written_start)),
            read: Arc::new(Pages::new(making.read, making.ends, together, read_start)),
            written_start,
            read_start,
        }
    }

    /// The launches of the plan: as many blocks of rows as have at most so many tasks, and pairs of
    /// a row and a key. A block is never divided.
    pub(super) fn parts(&self, most_tasks: u32, most_pairs: u64) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for block in &self.blocks {
            match parts.last_mut() {
                Some(part)
                    if part.tasks + block.tasks <= most_tasks
                        && part.pairs + block.pairs <= most_pairs =>
                {
                    part.tasks += block.tasks;
                    part.rows += block.rows;
                    part.tiles = part.tiles.max(block.tiles);
                    part.pairs += block.pairs;
                }
                _ => parts.push(*block),
            }
        }
        parts
    }
}

impl Division {
    /// The longest runs of keys that give enough workgroups, or the shortest ones.
    fn run_keys(&self, runs: &[Run]) -> usize {
        let groups = |keys: usize| -> usize {
            let tasks = runs.iter().map(|run| {
                let reach = (self.reach as usize).saturating_add(run.rows);
                let seen = (run.before + run.rows).min(reach);
                run.rows.div_ceil(self.rows) * seen.div_ceil(keys)
            });
            tasks.sum::<usize>() * self.groups
        };
        let enough = RUNS.iter().find(|&&keys| groups(keys) >= self.wanted);
        *enough.unwrap_or(&RUNS[RUNS.len() - 1])
    }
}

/// A plan in the making.
struct Making {
    division: Division,
    run_keys: usize,
    words: Vec<u32>,
    tasks: Vec<u32>,
    blocks: Vec<Part>,
    written: Vec<Arc<Storage>>,
    read: Vec<Arc<Storage>>,
    ends: Vec<u32>,
}

impl Making {
    fn add(&mut self, run: &Run, first_row: usize) {
        let Division {
            page_tokens,
            reach,
            tile,
            ..
        } = self.division;
        let all = run.before + run.rows;
        // No row sees the keys before.
        let begin = run.before.saturating_sub(reach as usize) / tile * tile;
        let (first_list, first_page) = (self.read.len(), begin / page_tokens);
        let pages = &run.pages[first_page..all.div_ceil(page_tokens)];
        self.read.extend(pages.iter().cloned());
        // Each run of keys, as (start, end).
        let starts = (begin / self.run_keys * self.run_keys..all).step_by(self.run_keys);
        let of_keys: Vec<(usize, usize)> = starts
            .map(|start| (start.max(begin), (start + self.run_keys).min(all)))
            .collect();
        let list = |key: usize| first_list + key.div_ceil(page_tokens) - first_page;
        (self.ends).extend(of_keys.iter().map(|&(_, end)| list(end) as u32));
        for start in (0..run.rows).step_by(self.division.rows) {
            let rows = self.division.rows.min(run.rows - start);
            let position = run.before + start;
            let (first, last) = (position.saturating_sub(reach as usize), position + rows - 1);
            let seen = (of_keys.iter()).filter(|(start, end)| *start <= last && *end > first);
            let mut block = Part {
                first_task: (self.tasks.len() / WORDS) as u32,
                tasks: 0,
                first_row: (first_row + start) as u32,
                rows: rows as u32,
                tiles: 0,
                pairs: 0,
            };
            for &(start, end) in seen {
                let end = end.min(last + 1);
                let pages = list(end) - list(start);
                let words = [
                    block.first_row as usize,
                    rows,
                    position,
                    list(start),
                    pages,
                    start,
                ];
                self.tasks.extend(words.map(|word| word as u32));
                self.tasks.extend([0, 0]);
                block.tasks += 1;
                block.tiles = block.tiles.max((end - start).div_ceil(tile) as u32);
                block.pairs += (rows * (end - start)) as u64;
            }
            for row in 0..rows {
                let words = &mut self.words[(first_row + start + row) * WORDS..][..WORDS];
                words[..3].copy_from_slice(&[block.first_task, block.tasks, row as u32]);
            }
            self.blocks.push(block);
        }
        self.add_written(run, first_row);
    }

    fn add_written(&mut self, run: &Run, first_row: usize) {
        let page_tokens = self.division.page_tokens;
        let (first_list, first_page) = (self.written.len(), run.before / page_tokens);
        for row in 0..run.rows {
            let position = run.before + row;
            let (page, token) = (position / page_tokens, position % page_tokens);
            if self.written.len() == first_list + page - first_page {
                self.written.push(run.pages[page].clone());
            }
            // The first new one of four tokens writes the scales of all new ones.
            let some = match row == 0 || token % 4 == 0 {
                true => (4 - token % 4).min(run.rows - row),
                false => 0,
            };
            let list = first_list + page - first_page;
            let words = &mut self.words[(first_row + row) * WORDS + 4..][..3];
            words.copy_from_slice(&[list as u32, token as u32, some as u32]);
        }
    }
}
