//! Dimensions and strides that describe the same elements.

use super::structure::Dims;

/// Whether these are row-major strides without gaps.
pub(super) fn is_row_major(dims: &[u32], strides: &[u32]) -> bool {
    let mut expected: u32 = 1;
    for (&dim, &stride) in dims.iter().zip(strides).rev() {
        if dim != 1 && stride != expected {
            return false;
        }
        expected = expected.wrapping_mul(dim);
    }
    true
}

/// The fewest dimensions into which both can be split, in row-major order. `None` if a boundary of
/// one divides a dimension of the other unevenly.
pub(super) fn refine(a: &[u32], b: &[u32]) -> Option<Dims> {
    let mut dims = Dims::new();
    let (mut a, mut b) = (a.iter().rev(), b.iter().rev());
    let (mut left_of_a, mut left_of_b) = (1, 1);
    loop {
        // The rest of each innermost dimension that is not matched yet.
        if left_of_a == 1 {
            left_of_a = a.by_ref().copied().find(|&dim| dim != 1).unwrap_or(1);
        }
        if left_of_b == 1 {
            left_of_b = b.by_ref().copied().find(|&dim| dim != 1).unwrap_or(1);
        }
        let dim = match (left_of_a, left_of_b) {
            (1, 1) => break,
            (a, b) => a.min(b),
        };
        if dim == 1 || !left_of_a.is_multiple_of(dim) || !left_of_b.is_multiple_of(dim) {
            return None;
        }
        dims.push(dim);
        left_of_a /= dim;
        left_of_b /= dim;
    }
    if dims.is_empty() {
        dims.push(1);
    }
    if dims.len() > dims.inline_size() {
        return None;
    }
    dims.reverse();
    Some(dims)
}

/// Converts strides over `from` to strides over the finer dimensions `to`.
pub(super) fn spread(strides: &[u32], from: &[u32], to: &[u32]) -> Dims {
    let mut spread = Dims::new();
    let mut from = from.iter().zip(strides).rev();
    let (mut left, mut stride) = (1, 0);
    for &dim in to.iter().rev() {
        while left == 1 && dim != 1 {
            let Some((&next, &its)) = from.next() else {
                break;
            };
            (left, stride) = (next, its);
        }
        spread.push(if dim == 1 { 0 } else { stride });
        left /= dim.clamp(1, left.max(1));
        stride = stride.wrapping_mul(dim);
    }
    spread.reverse();
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_split_until_they_agree() {
        let check = |a: &[u32], b: &[u32], expected: Option<&[u32]>| {
            let got = refine(a, b);
            assert_eq!(got.as_deref(), expected, "{a:?} {b:?}");
            assert_eq!(refine(b, a).as_deref(), expected, "{b:?} {a:?}");
        };
        check(&[24], &[24], Some(&[24]));
        check(&[24], &[2, 3, 4], Some(&[2, 3, 4]));
        check(&[6, 4], &[2, 12], Some(&[2, 3, 4]));
        check(&[6, 4], &[8, 3], None);
        check(&[1], &[1], Some(&[1]));
        check(&[1, 5], &[5, 1], Some(&[5]));
    }

    #[test]
    fn an_element_keeps_its_place_under_finer_dimensions() {
        assert_eq!(&spread(&[1], &[24], &[2, 3, 4])[..], [12, 4, 1]);
        assert_eq!(&spread(&[0, 1], &[6, 4], &[2, 3, 4])[..], [0, 0, 1]);
        assert_eq!(&spread(&[5, 100], &[2, 12], &[2, 3, 4])[..], [5, 400, 100]);
        assert_eq!(&spread(&[7], &[1], &[1])[..], [0]);
        assert!(is_row_major(&[2, 3, 4], &[12, 4, 1]));
        assert!(is_row_major(&[2, 1, 4], &[4, 9, 1]));
        assert!(!is_row_major(&[2, 3], &[1, 2]));
    }
}
