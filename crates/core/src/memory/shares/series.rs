//! Shares as metrics tell them: sums under a bounded number of labels.
//!
//! A recorder keeps each label for ever, while shares come and go. So shares of one path have one
//! label, and all jobs of a share have one. What ended shares counted stays in the sums. Otherwise
//! a counter would fall when a share ends.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::share::{MadeBy, ShareId};
use super::{Counts, Shares};

/// Most labels of one device, the last one included.
const MOST_LABELS: usize = 256;

/// The label of all shares that came when the other labels were taken.
const OTHERS: &str = "(others)";

/// The name of all jobs of a share, with their shares within.
const JOBS: &str = "(jobs)";

/// The labels so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    numbers: FxHashMap<Arc<str>, usize>,
    all: Vec<Ended>,
}

/// A label, and what its ended shares have counted.
#[derive(Clone, Debug)]
struct Ended {
    label: Arc<str>,
    counts: Counts,
    /// Whether a share of the label has had a ceiling, so that there is a gauge of it.
    had_ceiling: bool,
}

/// What the shares of one label hold and have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareSum {
    pub(crate) label: Arc<str>,
    pub(crate) bytes: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) guaranteed_bytes: u64,
    /// `None` if no share of the label has had a ceiling; 0 without one now.
    pub(crate) ceiling_bytes: Option<u64>,
    pub(crate) counts: Counts,
}

impl Counts {
    fn add(&mut self, more: Counts) {
        self.evictions += more.evictions;
        self.restores += more.restores;
        self.refusals += more.refusals;
    }
}

impl Series {
    /// The number of a label, or that of all others.
    fn number(&mut self, label: &Arc<str>) -> usize {
        if let Some(&number) = self.numbers.get(label) {
            return number;
        }
        let number = self.all.len();
        let label: Arc<str> = match number + 1 < MOST_LABELS {
            true => label.clone(),
            false => OTHERS.into(),
        };
        // A share may have this name.
        if let Some(&number) = self.numbers.get(&label) {
            return number;
        }
        self.numbers.insert(label.clone(), number);
        self.all.push(Ended {
            label,
            counts: Counts::default(),
            had_ceiling: false,
        });
        number
    }
}

/// The sums of all labels that were ever told, those without a living share included.
pub(crate) fn sums(shares: &mut Shares) -> Vec<ShareSum> {
    let ids = shares.outside_in(|_| true);
    let numbers: FxHashMap<ShareId, usize> =
        ids.iter().map(|&id| (id, series_of(shares, id))).collect();
    let of_ended = |one: &Ended| ShareSum {
        label: one.label.clone(),
        counts: one.counts,
        ..ShareSum::default()
    };
    let mut sums: Vec<ShareSum> = shares.series.all.iter().map(of_ended).collect();
    // For each label the sum of the ceilings, unless a share has none.
    let mut ceilings: Vec<Option<u64>> = vec![Some(0); sums.len()];
    for id in ids {
        let (Some(entry), Some(&number)) = (shares.entries.get(id), numbers.get(&id)) else {
            continue;
        };
        let sum = &mut sums[number];
        sum.counts.add(entry.counts);
        // The bytes of a share include those of the shares within it.
        let is_counted = |(id, _)| numbers.get(&id) == Some(&number);
        if shares.chain(entry.around).any(is_counted) {
            continue;
        }
        sum.bytes += entry.tree_bytes.now;
        sum.peak_bytes += entry.tree_bytes.peak;
        sum.guaranteed_bytes += entry.guaranteed_bytes;
        let has_ceiling = entry.ceiling_bytes != u64::MAX;
        if has_ceiling && !shares.series.all[number].had_ceiling {
            Arc::make_mut(&mut shares.series).all[number].had_ceiling = true;
        }
        let ceiling = &mut ceilings[number];
        *ceiling = ceiling.filter(|_| has_ceiling);
        *ceiling = ceiling.map(|bytes| bytes.saturating_add(entry.ceiling_bytes));
    }
    for ((sum, ceiling), one) in sums.iter_mut().zip(ceilings).zip(&shares.series.all) {
        sum.ceiling_bytes = one.had_ceiling.then(|| ceiling.unwrap_or(0));
    }
    sums
}

/// The label under which metrics count a share. `None` for what is in no share.
pub(crate) fn label(shares: &mut Shares, share: ShareId) -> Option<Arc<str>> {
    shares.entries.get(share)?;
    let number = series_of(shares, share);
    Some(shares.series.all[number].label.clone())
}

/// A share is about to end: its counts stay.
pub(super) fn keep_counts(shares: &mut Shares, share: ShareId) {
    let counts = shares.entries.get(share).map(|entry| entry.counts);
    if let Some(counts) = counts.filter(|counts| *counts != Counts::default()) {
        let number = series_of(shares, share);
        let series = Arc::make_mut(&mut shares.series);
        series.all[number].counts.add(counts);
    }
}

fn series_of(shares: &mut Shares, share: ShareId) -> usize {
    // The label of a share within a job is that of the outermost job.
    let chain = shares.chain(share).map(|(_, entry)| entry);
    let job = chain.filter(|entry| entry.made_by == MadeBy::Jobs).last();
    let label: Arc<str> = match (job, shares.entries.get(share)) {
        (Some(job), _) => match shares.entries.get(job.around) {
            Some(around) => format!("{}/{JOBS}", around.path).into(),
            None => JOBS.into(),
        },
        (None, Some(entry)) => entry.path.clone(),
        (None, None) => OTHERS.into(),
    };
    Arc::make_mut(&mut shares.series).number(&label)
}

#[cfg(test)]
mod tests {
    use super::super::{ShareOptions, SharePaths, Whole};
    use super::*;
    use crate::memory::DeadList;
    use crate::memory::share::ShareHandle;

    const WHOLE: Whole = Whole {
        limit_bytes: 1000,
        device_bytes: None,
    };

    fn add(
        table: &mut Shares,
        name: &str,
        ceiling_bytes: Option<u64>,
        around: Option<&Arc<ShareHandle>>,
        made_by: MadeBy,
    ) -> Arc<ShareHandle> {
        let share = ShareOptions {
            ceiling: ceiling_bytes.map(Into::into),
            ..ShareOptions::guaranteed(0)
        };
        let path = SharePaths::default().numbered(name, around);
        let added = table.add(path, share, around, made_by, WHOLE, &DeadList::new());
        added.unwrap()
    }

    /// The sum of a label: bytes, peak, ceiling, refusals.
    #[track_caller]
    fn sum(table: &mut Shares, label: &str) -> (u64, u64, Option<u64>, u64) {
        let sums = sums(table);
        let of_label: Vec<_> = sums.iter().filter(|sum| *sum.label == *label).collect();
        let [sum] = of_label[..] else {
            panic!("{label}: {sums:?}");
        };
        (
            sum.bytes,
            sum.peak_bytes,
            sum.ceiling_bytes,
            sum.counts.refusals,
        )
    }

    #[test]
    fn shares_of_one_path_are_one_series_that_outlives_them() {
        let mut table = Shares::default();
        let [one, two] =
            [Some(300), Some(400)].map(|most| add(&mut table, "a", most, None, MadeBy::App));
        for (share, bytes) in [(&one, 10), (&two, 20)] {
            table.gained(share.id(), bytes, false);
            table.refused(share.id());
        }
        assert_eq!(sum(&mut table, "a"), (30, 30, Some(700), 2));
        table.lost(one.id(), 10, false);
        table.forget(one.id());
        assert_eq!(sum(&mut table, "a"), (20, 20, Some(400), 2));
        table.lost(two.id(), 20, false);
        table.refused(two.id());
        table.forget(two.id());
        assert_eq!(sum(&mut table, "a"), (0, 0, Some(0), 3));
        let free = add(&mut table, "a", None, None, MadeBy::App);
        table.refused(free.id());
        assert_eq!(sum(&mut table, "a"), (0, 0, Some(0), 4));
        let other = add(&mut table, "b", None, None, MadeBy::App);
        assert_eq!(sum(&mut table, "b"), (0, 0, None, 0));
        drop(other);
    }

    #[test]
    fn jobs_are_one_series_of_the_share_around_them() {
        let mut table = Shares::default();
        let app = add(&mut table, "app", None, None, MadeBy::App);
        for round in 1..=2 * MOST_LABELS as u64 {
            let name = format!("request {round}");
            let job = add(&mut table, &name, Some(100), Some(&app), MadeBy::Jobs);
            let within = add(&mut table, "part", None, Some(&job), MadeBy::App);
            let inner = add(&mut table, "inner", Some(9), Some(&within), MadeBy::Jobs);
            table.gained(inner.id(), 10, false);
            table.refused(inner.id());
            assert_eq!(sum(&mut table, "app/(jobs)"), (10, 10, Some(100), round));
            assert_eq!(sum(&mut table, "app").0, 10);
            assert_eq!(
                label(&mut table, within.id()).as_deref(),
                Some("app/(jobs)")
            );
            table.lost(inner.id(), 10, false);
            for share in [inner, within, job] {
                table.forget(share.id());
            }
        }
        let alone = add(&mut table, "alone", None, None, MadeBy::Jobs);
        assert_eq!(label(&mut table, alone.id()).as_deref(), Some("(jobs)"));
        assert_eq!(label(&mut table, ShareId::MAIN), None);
        assert_eq!(sums(&mut table).len(), 3);
    }

    #[test]
    fn the_number_of_labels_has_a_bound() {
        let mut table = Shares::default();
        for round in 0..2 * MOST_LABELS {
            let share = add(&mut table, &round.to_string(), None, None, MadeBy::App);
            table.refused(share.id());
            table.forget(share.id());
        }
        let sums = sums(&mut table);
        assert_eq!(sums.len(), MOST_LABELS);
        assert_eq!(
            sums.iter().map(|sum| sum.counts.refusals).sum::<u64>(),
            2 * MOST_LABELS as u64
        );
        assert_eq!(sum(&mut table, "7"), (0, 0, None, 1));
        assert_eq!(
            sum(&mut table, OTHERS).3,
            2 * MOST_LABELS as u64 - (MOST_LABELS as u64 - 1)
        );
        // A share of a known path has its label as before.
        let known = add(&mut table, "7", None, None, MadeBy::App);
        assert_eq!(label(&mut table, known.id()).as_deref(), Some("7"));
        let late = add(&mut table, "late", None, Some(&known), MadeBy::App);
        assert_eq!(label(&mut table, late.id()).as_deref(), Some(OTHERS));
    }

    #[test]
    fn a_share_may_have_the_name_of_all_others() {
        let mut table = Shares::default();
        for round in 0..2 * MOST_LABELS {
            let name = match round {
                0 => OTHERS.to_owned(),
                _ => round.to_string(),
            };
            let share = add(&mut table, &name, None, None, MadeBy::App);
            table.refused(share.id());
            table.forget(share.id());
        }
        let sums = sums(&mut table);
        let others = sums.iter().filter(|sum| *sum.label == *OTHERS);
        let refusals: Vec<u64> = others.map(|sum| sum.counts.refusals).collect();
        assert_eq!(refusals, [MOST_LABELS as u64 + 2]);
    }
}
