//! Layouts case by case; `model` tries random ones.

mod model;

use super::*;
use lapidary_core::{DType, Error, Result};

#[test]
fn contiguous_operands_collapse_to_one_dimension() {
    for (shape, dims) in [
        (&[][..], &[1_u32][..]),
        (&[1, 1], &[1]),
        (&[2, 3, 4], &[24]),
        (&[2, 0, 4], &[0]),
        (&[1, 7, 1], &[7]),
    ] {
        let layout = Layout::contiguous(shape);
        let collapsed = collapse(shape, &[&layout, &layout]);
        assert_eq!(collapsed.dims[..], *dims, "{shape:?}");
    }
    let bias = Layout::contiguous(&[4]).broadcast_to(&[2, 3, 4]).unwrap();
    let collapsed = collapse(&[2, 3, 4], &[&Layout::contiguous(&[2, 3, 4]), &bias]);
    assert_eq!(collapsed.dims[..], [6, 4]);
    assert_eq!(collapsed.strides[1][..2], [0, 1]);
    assert_eq!(collapse(&[3], &[]).dims[..], [3]);
}

#[test]
fn reshape_copies_only_where_no_strides_can_say_it() {
    let base = Layout::contiguous(&[4, 6]);
    let columns = base.slice(1, Some(0), Some(4), 1).unwrap();
    for (layout, shape, is_view) in [
        (base.clone(), &[2, 12][..], true),
        (base.clone(), &[24, 1, 1], true),
        (base.transpose(0, 1).unwrap(), &[24], false),
        (base.transpose(0, 1).unwrap(), &[2, 3, 4], true),
        (base.transpose(0, 1).unwrap(), &[6, 2, 2], true),
        (base.transpose(0, 1).unwrap(), &[4, 6], false),
        (columns.clone(), &[2, 2, 2, 2], true),
        (columns.clone(), &[16], false),
        (columns, &[8, 2], false),
        (base.flip(&[0, 1]).unwrap(), &[24], true),
        (base.flip(&[0]).unwrap(), &[24], false),
    ] {
        assert_eq!(
            layout.reshape(shape).unwrap().is_some(),
            is_view,
            "{layout:?} as {shape:?}"
        );
    }
    let repeated = Layout::contiguous(&[]).broadcast_to(&[4, 3]).unwrap();
    let flat = repeated.reshape(&[12]).unwrap().unwrap();
    assert_eq!(flat.strides[..], [0]);
}

#[test]
fn vec4s_start_at_multiples_of_four() {
    let base = Layout::contiguous(&[4, 6]);
    assert!(base.is_vec4_aligned());
    assert!(!base.narrow(0, 1, 2).unwrap().is_vec4_aligned());
    assert!(base.narrow(0, 2, 2).unwrap().is_vec4_aligned());
    assert!(!base.narrow(1, 4, 2).unwrap().is_vec4_aligned());
}

#[test]
fn maps_are_the_same_only_if_every_index_names_the_same_element() {
    let base = Layout::contiguous(&[3, 1, 4]);
    let same = [
        base.clone(),
        base.squeeze().unsqueeze(1).unwrap(),
        base.flip(&[1]).unwrap(),
        base.flip(&[0]).unwrap().flip(&[0]).unwrap(),
    ];
    let different = [
        base.flip(&[0]).unwrap(),
        base.transpose(0, 1).unwrap(),
        base.narrow(0, 0, 1)
            .unwrap()
            .broadcast_to(&[3, 1, 4])
            .unwrap(),
        base.narrow(0, 0, 2).unwrap(),
    ];
    assert!(same.iter().all(|layout| base.same_map(layout)));
    assert!(!different.iter().any(|layout| base.same_map(layout)));
    let (front, back) = (base.narrow(0, 0, 1).unwrap(), base.narrow(0, 2, 1).unwrap());
    assert!(!front.same_map(&back));
}

#[test]
fn shapes_broadcast_as_numpy_does_it() {
    for (a, b, expected) in [
        (&[][..], &[][..], Some(&[][..])),
        (&[3, 4], &[4], Some(&[3, 4])),
        (&[3, 1], &[1, 4], Some(&[3, 4])),
        (&[0], &[1], Some(&[0])),
        (&[2, 0], &[5, 1, 1], Some(&[5, 2, 0])),
        (&[3], &[4], None),
        (&[0], &[3], None),
        (&[2, 3], &[3, 2], None),
    ] {
        for (a, b) in [(a, b), (b, a)] {
            let shape = broadcast_shapes("add", a, b).ok();
            assert_eq!(shape.as_deref(), expected, "{a:?} and {b:?}");
        }
    }
    let error = broadcast_shapes("add", &[2, 3], &[4, 3])
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "add: shapes [2, 3] and [4, 3] do not broadcast: dimension −2 is 2 in one and 4 in the other"
    );
}

#[test]
fn impossible_shapes_are_refused_with_numbers() {
    use DType::{F16, F32, U8};
    let most = MAX_ELEMENTS as usize;
    for (shape, dtype, expected) in [
        (&[][..], F32, Some((1, 4))),
        (&[0], F32, Some((0, 0))),
        (&[2, 3], F16, Some((6, 12))),
        (&[most], U8, Some((most, MAX_ELEMENTS))),
        (&[most + 1], U8, None),
        (&[1 << 16, 1 << 16], U8, None),
        (&[usize::MAX, usize::MAX], U8, None),
        (&[usize::MAX, 0], U8, None),
        (&[usize::MAX / 2, 3, 0], F32, None),
        (&[1; 8], F32, Some((1, 4))),
        (&[1; 9], F32, None),
        (&[0; 9], F32, None),
    ] {
        assert_eq!(checked(shape, dtype).ok(), expected, "{shape:?}");
    }
    let kind = |shape: &[usize]| checked(shape, F32).unwrap_err();
    assert!(matches!(kind(&[1; 9]), Error::Shape { .. }));
    assert!(matches!(kind(&[usize::MAX]), Error::Overflow { .. }));
    assert!(matches!(
        kind(&[1 << 20, 1 << 20]),
        Error::NeverFits { requested_bytes, .. } if requested_bytes == 1 << 42
    ));
}

#[test]
fn views_that_cannot_be_are_errors_whatever_the_numbers() {
    const EXTREMES: [isize; 9] = [
        isize::MIN,
        isize::MIN + 1,
        -4,
        -1,
        0,
        1,
        4,
        isize::MAX - 1,
        isize::MAX,
    ];
    let refused = |result: Result<Layout>| result.is_err();
    for shape in [&[][..], &[0], &[3], &[2, 0, 3], &[2, 3, 4], &[1; 8]] {
        let base = Layout::contiguous(shape);
        let rank = base.rank() as isize;
        for a in EXTREMES {
            let inside = (-rank..rank).contains(&a);
            // A 0-d tensor accepts axis 0 in views that leave it as it is.
            let is_taken = |axis| (-rank.max(1)..rank.max(1)).contains(&axis);
            assert_eq!(refused(base.squeeze_axis(a)), {
                !is_taken(a) || inside && shape[a.rem_euclid(rank) as usize] != 1
            });
            assert_eq!(refused(base.flip(&[a])), !is_taken(a));
            assert_eq!(
                refused(base.unsqueeze(a)),
                !(-rank - 1..=rank).contains(&a) || rank == 8
            );
            for b in EXTREMES {
                assert_eq!(refused(base.transpose(a, b)), !is_taken(a) || !is_taken(b));
                let (from, len) = (a.unsigned_abs(), b.unsigned_abs());
                let _ = (
                    base.select(a, b),
                    base.narrow(a, b, len),
                    base.narrow(0, a, len),
                    base.permute(&[a, b]),
                );
                let _ = (base.reshape(&[from, len]), base.broadcast_to(&[from, len]));
                for c in EXTREMES {
                    let slice = base.slice(0, Some(a), Some(b), c);
                    assert_eq!(refused(slice.clone()), rank == 0 || c == 0);
                    let span = slice.ok().and_then(|view| view.span());
                    assert!(span.is_none_or(|(_, high)| high < base.len()));
                }
            }
        }
    }
    let base = Layout::contiguous(&[2, 3]);
    assert!(refused(base.permute(&[0])) && refused(base.permute(&[0, -2])));
    assert!(refused(base.flip(&[1, -1])) && refused(base.select(0, 2)));
    assert!(refused(base.narrow(1, 2, 2)) && refused(base.narrow(1, isize::MAX, 2)));
    assert!(refused(base.broadcast_to(&[3])) && refused(base.broadcast_to(&[2, 1])));
    assert!(refused(base.broadcast_to(&[1 << 16, 1 << 16, 2, 3])));
    assert!(base.reshape(&[7]).is_err() && base.reshape(&[6; 9]).is_err());
}
