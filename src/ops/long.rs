//! Calls whose dispatch would take so long that the system resets the device. They are split along
//! an axis of the result, and each part gets its own submission.

use crate::tensor::Tensor;
use lapidary_core::{DType, Result};

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
    of.engine.clear(&whole.storage)?;
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
