//! Holes sorted by size, in short runs, so that an insertion or a removal shifts few of them.

use alloc::vec::Vec;

use super::room::Hole;

/// A longer run is halved.
const MOST_IN_RUN: usize = 64;

/// The length of new runs when all are rebuilt. It leaves room for later insertions.
const FILLED_TO: usize = 48;

/// An ordered list of holes that keeps its tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Sorted {
    /// No run is empty.
    runs: Vec<Vec<Hole>>,
    spare: Vec<Vec<Hole>>,
}

impl Sorted {
    pub(super) fn clear(&mut self) {
        while let Some(run) = self.runs.pop() {
            self.keep(run);
        }
    }

    /// Appends all holes to `holes` and leaves this list empty.
    pub(super) fn empty_into(&mut self, holes: &mut Vec<Hole>) {
        for run in &self.runs {
            holes.extend_from_slice(run);
        }
        self.clear();
    }

    /// Replaces the holes by these, which must be sorted.
    pub(super) fn fill(&mut self, holes: &[Hole]) {
        self.clear();
        for part in holes.chunks(FILLED_TO) {
            let mut run = self.new_run();
            run.extend_from_slice(part);
            self.runs.push(run);
        }
    }

    /// The size of the largest hole that is `allowed`; 0 if there is none.
    pub(super) fn largest(&self, allowed: impl Fn(&Hole) -> bool) -> u64 {
        let mut holes = self.runs.iter().rev().flat_map(|run| run.iter().rev());
        holes.find(|hole| allowed(hole)).map_or(0, |hole| hole.size)
    }

    /// Removes and returns the first hole of at least this size that is `allowed`.
    pub(super) fn take(&mut self, size: u64, allowed: impl Fn(&Hole) -> bool) -> Option<Hole> {
        let first = self.runs.partition_point(|run| is_below(run, size));
        let mut skipped = self
            .runs
            .get(first)?
            .partition_point(|hole| hole.size < size);
        for index in first..self.runs.len() {
            let mut holes = self.runs[index][skipped..].iter();
            if let Some(at) = holes.position(&allowed) {
                return Some(self.take_at(index, skipped + at));
            }
            skipped = 0;
        }
        None
    }

    /// Removes exactly this hole, if it is there.
    pub(super) fn remove(&mut self, hole: &Hole) {
        let run = self.run_of(hole);
        let at = self.runs.get(run).map(|holes| holes.binary_search(hole));
        if let Some(Ok(at)) = at {
            self.take_at(run, at);
        }
    }

    pub(super) fn insert(&mut self, hole: Hole) {
        if self.runs.is_empty() {
            let run = self.new_run();
            self.runs.push(run);
        }
        let index = self.run_of(&hole).min(self.runs.len() - 1);
        let run = &mut self.runs[index];
        let at = run.partition_point(|other| *other < hole);
        run.insert(at, hole);
        if run.len() > MOST_IN_RUN {
            let mut upper = self.new_run();
            upper.extend(self.runs[index].drain(MOST_IN_RUN / 2..));
            self.runs.insert(index + 1, upper);
        }
    }

    /// Drops the holes that are not `kept`.
    pub(super) fn retain(&mut self, kept: impl Fn(&Hole) -> bool) {
        for run in &mut self.runs {
            run.retain(&kept);
        }
        while let Some(empty) = self.runs.iter().position(Vec::is_empty) {
            let run = self.runs.remove(empty);
            self.keep(run);
        }
    }

    /// The index of the run that contains a hole, or would contain it. The number of runs if the
    /// hole comes after all of them.
    fn run_of(&self, hole: &Hole) -> usize {
        self.runs
            .partition_point(|run| run.last().is_some_and(|last| last < hole))
    }

    fn take_at(&mut self, index: usize, at: usize) -> Hole {
        let run = &mut self.runs[index];
        let hole = run.remove(at);
        if run.is_empty() {
            let run = self.runs.remove(index);
            self.keep(run);
        }
        hole
    }

    fn new_run(&mut self) -> Vec<Hole> {
        let run = self.spare.pop();
        run.unwrap_or_else(|| Vec::with_capacity(MOST_IN_RUN + 1))
    }

    fn keep(&mut self, mut run: Vec<Hole>) {
        run.clear();
        self.spare.push(run);
    }
}

fn is_below(run: &[Hole], size: u64) -> bool {
    run.last().is_some_and(|last| last.size < size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(sorted: &Sorted) -> Vec<Hole> {
        sorted.runs.concat()
    }

    #[test]
    #[cfg_attr(miri, ignore = "its list has to be long, which takes Miri too long")]
    fn it_gives_what_one_long_list_in_order_gives() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut sorted, mut list) = (Sorted::default(), Vec::new());
        for offset in 0..20_000 {
            let hole = Hole {
                size: random.u64(1..=40),
                slab: random.u32(0..8),
                offset,
                node: 0,
            };
            match random.u32(0..20) {
                0..=11 => {
                    sorted.insert(hole);
                    list.insert(list.partition_point(|other| *other < hole), hole);
                }
                12..=15 => {
                    let allowed = |other: &Hole| other.slab != hole.slab;
                    let at = list
                        .iter()
                        .position(|other| other.size >= hole.size && allowed(other));
                    let expected = at.map(|at| list.remove(at));
                    assert_eq!(sorted.take(hole.size, allowed), expected);
                }
                16..=17 if !list.is_empty() => {
                    let gone = list.remove(random.usize(0..list.len()));
                    sorted.remove(&gone);
                    // The second removal finds nothing.
                    sorted.remove(&gone);
                }
                _ if random.u32(0..50) == 0 => {
                    let kept = |other: &Hole| other.slab != hole.slab;
                    sorted.retain(kept);
                    list.retain(kept);
                }
                _ if random.u32(0..50) == 0 => {
                    let mut holes = Vec::new();
                    sorted.empty_into(&mut holes);
                    assert_eq!(all(&sorted), []);
                    sorted.fill(&holes);
                }
                _ => {}
            }
            assert!(
                sorted
                    .runs
                    .iter()
                    .all(|run| (1..=MOST_IN_RUN).contains(&run.len()))
            );
        }
        assert!(list.len() > 4 * MOST_IN_RUN, "{}", list.len());
        assert_eq!(all(&sorted), list);
    }
}
