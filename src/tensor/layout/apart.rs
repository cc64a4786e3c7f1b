//! Whether two views of one storage have no element in common.

use smallvec::SmallVec;

use super::{Layout, MAX_RANK};

/// The indices that a view covers along one axis of the storage: the first, and how many.
type Range = (usize, usize);

/// Have the two no element in common? `false` also if that is not easy to see.
pub(crate) fn are_apart(one: &Layout, other: &Layout) -> bool {
    let (Some((low, high)), Some((other_low, other_high))) = (one.span(), other.span()) else {
        return true;
    };
    if high < other_low || other_high < low {
        return true;
    }
    let (mine, theirs) = (steps(one), steps(other));
    if !(mine.iter().map(|step| step.0)).eq(theirs.iter().map(|step| step.0)) {
        return false;
    }
    let boxes = in_box(one.offset, &mine).zip(in_box(other.offset, &theirs));
    boxes.is_some_and(|((mine, rest), (theirs, other_rest))| {
        let mut axes = mine.iter().zip(&theirs);
        rest != other_rest || axes.any(|(a, b)| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0)
    })
}

/// The stride and the dimension of each axis with several indices, longest stride first.
fn steps(layout: &Layout) -> SmallVec<[(isize, usize); MAX_RANK]> {
    let axes = layout
        .strides
        .iter()
        .copied()
        .zip(layout.shape.iter().copied());
    let mut steps: SmallVec<[_; MAX_RANK]> = axes.filter(|&(_, dim)| dim > 1).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    steps
}

/// The view as a box in a storage whose axes have these strides, and its offset within the shortest
/// of them. `None` if it is none, because a stride is no multiple of the next one, or the view
/// leaves an axis at its end.
fn in_box(offset: usize, steps: &[(isize, usize)]) -> Option<(SmallVec<[Range; MAX_RANK]>, usize)> {
    let (mut rest, mut ranges) = (offset, SmallVec::new());
    let mut longer: Option<usize> = None;
    for &(stride, dim) in steps {
        let stride = usize::try_from(stride).ok().filter(|&stride| stride > 0)?;
        let first = rest / stride;
        if let Some(longer) = longer {
            if longer % stride != 0 || first + dim > longer / stride {
                return None;
            }
        }
        ranges.push((first, dim));
        rest %= stride;
        longer = Some(stride);
    }
    Some((ranges, rest))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn elements(layout: &Layout) -> HashSet<usize> {
        let mut all = HashSet::from([layout.offset]);
        for (&dim, &stride) in layout.shape.iter().zip(&layout.strides) {
            let each = all.into_iter().flat_map(|at| {
                (0..dim as isize).map(move |index| at.wrapping_add_signed(index * stride))
            });
            all = each.collect();
        }
        all
    }

    #[test]
    fn slices_of_any_axis_are_apart_and_what_overlaps_is_not() {
        let whole = Layout::contiguous(&[3, 4, 6]);
        let heads = |from: isize| {
            let part = whole.slice(2, Some(from), Some(from + 2), 1).unwrap();
            part.permute(&[1, 0, 2]).unwrap()
        };
        assert!(are_apart(&heads(0), &heads(2)));
        assert!(are_apart(&heads(4), &heads(2)));
        assert!(!are_apart(&heads(1), &heads(2)));
        let odd = |from| whole.slice(1, Some(from), None, 2).unwrap();
        assert!(are_apart(&odd(0), &odd(1)));
    }

    #[test]
    fn views_with_common_elements_are_never_apart() {
        let mut views = Vec::new();
        for shape in [&[12][..], &[3, 4], &[2, 3, 2], &[4, 3]] {
            let whole = Layout::contiguous(shape);
            for axis in 0..shape.len() as isize {
                let dim = shape[axis as usize] as isize;
                for (from, to) in
                    (0..dim).flat_map(|from| (from + 1..=dim).map(move |to| (from, to)))
                {
                    for step in [1, 2] {
                        views.push(whole.slice(axis, Some(from), Some(to), step).unwrap());
                    }
                    views.push(whole.select(axis, from).unwrap());
                }
                views.push(whole.flip(&[axis]).unwrap());
            }
        }
        // Windows of two elements that overlap.
        let mut windows = Layout::contiguous(&[5, 2]);
        windows.strides[0] = 1;
        views.push(windows);
        let mut apart = 0;
        for a in &views {
            for b in &views {
                let is_apart = elements(a).is_disjoint(&elements(b));
                assert!(is_apart || !are_apart(a, b), "{a:?} {b:?}");
                apart += u32::from(is_apart && are_apart(a, b));
            }
        }
        assert!(apart > 500, "{apart}");
    }
}
