//! Shows the pages of a launch through windows: few ranges of slabs, in as many rounds as needed.

use smallvec::SmallVec;

use crate::driver::{Binding, BufferId};
use crate::engine::kernel::pages::{ABSENT, TABLE_HEAD};
use crate::memory::Place;

/// The most windows of a dispatch. A kernel chooses among them at each access.
pub(super) const MOST_WINDOWS: u64 = 8;

/// One dispatch of a launch with pages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) windows: SmallVec<[Binding; 4]>,
    /// The words of the table.
    pub(super) table: Vec<u32>,
}

/// What limits the windows.
pub(super) struct Limits<'a> {
    /// The bytes of a page.
    pub(super) page_bytes: u64,
    /// The most bytes of a window.
    pub(super) window_bytes: u64,
    /// The most windows of a round, at least as many as pages are together.
    pub(super) most: usize,
    /// The alignment of a window's start.
    pub(super) alignment_bytes: u64,
    /// The other operands of the launch. No window shows them.
    pub(super) others: &'a [Place],
}

/// Pages with the same area can share a window.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Area {
    buffer: BufferId,
    /// The number of other operands before the page, in its slab.
    others_before: usize,
    /// The part of a slab that is larger than a window.
    part: u64,
}

impl Limits<'_> {
    fn area(&self, place: Place) -> Area {
        let is_before = |other: &&Place| {
            other.buffer == place.buffer && other.offset_bytes < place.offset_bytes
        };
        // A page that begins in a part ends within a window from the part's start.
        let part_bytes = (self.window_bytes - self.page_bytes) / self.alignment_bytes;
        let part_bytes = (part_bytes * self.alignment_bytes).max(self.alignment_bytes);
        Area {
            buffer: place.buffer,
            others_before: self.others.iter().filter(is_before).count(),
            part: place.offset_bytes / part_bytes,
        }
    }

    /// The rounds that show all pages. In each, every chain goes on as far as the windows of the
    /// round allow; the first unfinished one chooses them first. So many pages of a chain are
    /// always shown `together`.
    pub(super) fn rounds(&self, places: &[Place], ends: &[u32], together: usize) -> Vec<Round> {
        let areas: Vec<Area> = places.iter().map(|&place| self.area(place)).collect();
        let starts = std::iter::once(&0).chain(ends);
        let mut chains: Vec<(usize, usize)> = (starts.zip(ends))
            .map(|(&start, &end)| (start as usize, end as usize))
            .collect();
        let mut rounds = Vec::new();
        while chains.iter().any(|(next, end)| next < end) {
            let mut shown = SmallVec::<[Area; 8]>::new();
            let mut windows = SmallVec::<[Binding; 4]>::new();
            let mut pages = Vec::new();
            for (next, end) in &mut chains {
                while next < end {
                    let some = *next..(*next + together).min(*end);
                    let before = shown.len();
                    for page in some.clone() {
                        if !shown.contains(&areas[page]) {
                            shown.push(areas[page]);
                        }
                    }
                    if shown.len() > self.most {
                        shown.truncate(before);
                        break;
                    }
                    for page in some.clone() {
                        let area = areas[page];
                        let window = (shown.iter().position(|one| *one == area)).unwrap_or(0);
                        let own = Binding {
                            buffer: area.buffer,
                            offset_bytes: places[page].offset_bytes,
                            size_bytes: self.page_bytes,
                        };
                        match windows.get_mut(window) {
                            Some(window) => widen(window, &own),
                            None => windows.push(own),
                        }
                        pages.push((page, window));
                    }
                    *next = some.end;
                }
            }
            let mut table = vec![ABSENT; TABLE_HEAD + 2 * places.len()];
            table[..TABLE_HEAD].copy_from_slice(&[rounds.len() as u32, 0, 0, 0]);
            for (page, window) in pages {
                let from = places[page].offset_bytes - windows[window].offset_bytes;
                table[TABLE_HEAD + 2 * page] = window as u32;
                table[TABLE_HEAD + 2 * page + 1] = (from / 16) as u32;
            }
            rounds.push(Round { windows, table });
        }
        rounds
    }
}

/// Widens a window until it shows a page.
fn widen(window: &mut Binding, page: &Binding) {
    let end = |range: &Binding| range.offset_bytes + range.size_bytes;
    let end = end(window).max(end(page));
    window.offset_bytes = window.offset_bytes.min(page.offset_bytes);
    window.size_bytes = end - window.offset_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Table;

    const PAGE: u64 = 1024;

    /// The windows of each round as (buffer, start, end) in pages, and the table's entries.
    type Shown = Vec<(Vec<(usize, u64, u64)>, Vec<Option<(u32, u32)>>)>;

    /// Pages and others as (buffer, page).
    fn shown(
        pages: &[(usize, u64)],
        ends: &[u32],
        others: &[(usize, u64)],
        (most, window_pages, together): (usize, u64, usize),
    ) -> Shown {
        let mut table = Table::default();
        let buffers: Vec<BufferId> = (0..4).map(|_| BufferId(table.insert(()))).collect();
        let place = |&(buffer, page): &(usize, u64)| Place::new(buffers[buffer], page * PAGE);
        let others: Vec<Place> = others.iter().map(place).collect();
        let limits = Limits {
            page_bytes: PAGE,
            window_bytes: window_pages * PAGE,
            most,
            alignment_bytes: 256,
            others: &others,
        };
        let places: Vec<Place> = pages.iter().map(place).collect();
        let rounds = limits.rounds(&places, ends, together);
        let number = |id| {
            buffers
                .iter()
                .position(|one| *one == id)
                .expect("one of them")
        };
        let windows = |round: &Round| {
            let windows = round.windows.iter();
            windows
                .map(|one| {
                    let end = (one.offset_bytes + one.size_bytes) / PAGE;
                    (number(one.buffer), one.offset_bytes / PAGE, end)
                })
                .collect()
        };
        let entries = |round: &Round| {
            let entries = round.table[TABLE_HEAD..].chunks(2);
            entries
                .map(|entry| (entry[0] != ABSENT).then(|| (entry[0], entry[1] / 64)))
                .collect()
        };
        (rounds.iter())
            .map(|round| (windows(round), entries(round)))
            .collect()
    }

    #[test]
    fn pages_of_one_slab_share_the_smallest_window() {
        let rounds = shown(&[(0, 3), (0, 9), (0, 5)], &[3], &[], (4, 100, 1));
        assert_eq!(
            rounds,
            [(
                vec![(0, 3, 10)],
                vec![Some((0, 0)), Some((0, 6)), Some((0, 2))]
            )]
        );
    }

    #[test]
    fn no_window_shows_another_operand() {
        let rounds = shown(
            &[(0, 3), (0, 9), (0, 5)],
            &[3],
            &[(0, 4), (1, 4)],
            (4, 100, 2),
        );
        assert_eq!(rounds[0].0, [(0, 3, 4), (0, 5, 10)]);
    }

    #[test]
    fn a_slab_larger_than_a_window_has_several() {
        let rounds = shown(&[(0, 0), (0, 7), (0, 8), (0, 20)], &[4], &[], (4, 9, 1));
        assert_eq!(rounds[0].0, [(0, 0, 8), (0, 8, 9), (0, 20, 21)]);
    }

    #[test]
    fn chains_go_on_in_order_over_rounds_of_few_windows() {
        let pages = [(0, 0), (1, 0), (0, 1), (0, 2), (0, 3), (1, 1)];
        let at = |most, together| -> Vec<Vec<usize>> {
            let rounds = shown(&pages, &[3, 6], &[], (most, 100, together));
            let entries = rounds.iter().map(|round| round.1.iter().enumerate());
            entries
                .map(|entries| entries.filter_map(|(at, one)| one.map(|_| at)).collect())
                .collect()
        };
        assert_eq!(at(1, 1), [vec![0, 3, 4], vec![1, 5], vec![2]]);
        assert_eq!(at(2, 2), [vec![0, 1, 2, 3, 4, 5]]);
    }

    #[test]
    fn pages_that_belong_together_are_in_one_round() {
        let pages = [(0, 0), (1, 0), (2, 0), (2, 1), (0, 1)];
        let rounds = shown(&pages, &[5], &[], (2, 100, 2));
        let windows: Vec<_> = rounds.iter().map(|round| round.0.clone()).collect();
        assert_eq!(
            windows,
            [vec![(0, 0, 1), (1, 0, 1)], vec![(2, 0, 2), (0, 1, 2)]]
        );
    }
}
