//! Calls that are too long in one piece.
//!
//! A dispatch may take so long that the system resets the device. It is split along an axis of the
//! result, and each part gets its own submission.
//!
//! llvmpipe silently leaves the loops of an invocation after 65,535 tests of their conditions, over
//! all of them. A kernel whose loops depend on sizes counts these tests, and takes another way if
//! they are too many.

use crate::tensor::Tensor;
use lapidary_core::{Caps, DType, Result, adapter::AdapterKind};

/// Most tests of loops in an invocation on a software adapter, with some left for short loops.
pub(super) const MOST_TESTS: u64 = 65_000;

/// The tests of nested loops with these numbers of rounds, outermost first. A loop tests once more
/// than it has rounds.
pub(super) fn loop_tests(rounds: &[u64]) -> u64 {
    let around = |within: u64, rounds: &u64| {
        rounds
            .saturating_mul(within.saturating_add(1))
            .saturating_add(1)
    };
    rounds.iter().rev().fold(0, around)
}

/// Whether the adapter finishes loops with this many tests.
pub(super) fn finishes(caps: &Caps, tests: u64) -> bool {
    caps.kind != AdapterKind::Cpu || tests <= MOST_TESTS
}

/// The number of elements of an axis of `len` in a part whose share of `work` is at most `most`. It
/// is a multiple of `unit` if possible. `None` if the whole is small enough.
pub(super) fn part(work: u64, most: u64, len: usize, unit: usize) -> Option<usize> {
    if work <= most || len < 2 {
        return None;
    }
    let most_len = (u128::from(most) * len as u128 / u128::from(work)) as usize;
    if most_len >= unit {
        return Some(most_len / unit * unit);
    }
    let parts = len.div_ceil(most_len.max(1));
    Some(len.div_ceil(parts))
}

/// Assembles a tensor from parts of `step` along an axis. `make` computes each from its start and
/// length.
#[track_caller]
pub(super) fn assemble(
    of: &Tensor,
    shape: &[usize],
    dtype: DType,
    (axis, step): (usize, usize),
    make: impl Fn(usize, usize) -> Result<Tensor>,
) -> Result<Tensor> {
    let whole = Tensor::output(&of.engine, shape, dtype)?;
    whole.clear_storage()?;
    for start in (0..shape[axis]).step_by(step) {
        let len = step.min(shape[axis] - start);
        let made = make(start, len)?;
        whole.narrow(axis as isize, start, len)?.copy_(&made)?;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loop_tests_once_more_than_it_has_rounds() {
        let (h, w, r, c) = (2, 3, 5, 7);
        assert_eq!(loop_tests(&[c]), c + 1);
        assert_eq!(loop_tests(&[r, c]), r + 1 + r * (c + 1));
        let of_window = r + 1 + r * (c + 1);
        let of_element = h + 1 + h * (w + 1 + w * of_window);
        assert_eq!(loop_tests(&[h, w, r, c]), of_element);
        assert_eq!(loop_tests(&[u64::MAX; 4]), u64::MAX);
    }

    #[test]
    fn no_part_has_more_than_its_share() {
        assert_eq!(part(100, 100, 7, 1), None);
        assert_eq!(part(1000, 1, 1, 64), None);
        for (work, most, len, unit) in [
            (101, 100, 7, 1),
            (1 << 36, 1 << 33, 4096, 64),
            (1 << 40, 1 << 33, 1000, 64),
            ((1 << 36) + 1, 1 << 33, 4095, 32),
            (1 << 40, 1, 5, 1),
        ] {
            let step = part(work, most, len, unit).unwrap();
            let each = work.div_ceil(len as u64);
            let is_short = (step as u64 - 1) * each <= most;
            assert!(
                step < len && (step == 1 || is_short),
                "{work} {most} {len}: {step}"
            );
            assert!(step <= unit || step.is_multiple_of(unit));
        }
    }
}
