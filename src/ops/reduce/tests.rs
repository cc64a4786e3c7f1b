//! The kernel's texts, and the arithmetic of rows and plans, without a device.

mod forced;

use super::*;
use crate::ops::check::valid;
use crate::ops::rows::RowParams;
use crate::ops::rows::reference::element;
use crate::tensor::layout::Layout;

/// All operations of the methods, and of their launches.
const OPS: [Op; 20] = [
    Op::SUM,
    Op::MEAN,
    Op::MEAN_FROM_FIRST,
    Op::PROD,
    Op::MAX,
    Op::MIN,
    Op::ANY,
    Op::ALL,
    Op::COUNT,
    Op::SUM_EXP,
    Op::SUM_DISTANCES,
    Op::SUM_SQUARES,
    Op::SUM_SIZES,
    Op::MAX_SIZE,
    Op::MIN_SIZE,
    Op::EUCLIDEAN,
    Op::variance(1.0, Lower::Divide),
    Op::variance(1.0, Lower::DivideRoot),
    Op::p_norm(3.0),
    Op {
        lift: Lift::Plain,
        ..Op::p_norm(3.0)
    },
];

/// The types of an operation's result.
fn results_of(op: Op, from: DType) -> Vec<DType> {
    let is_whole = op.lower == Lower::Plain && op.lift == Lift::Plain;
    match (op.fold, from) {
        _ if op == Op::COUNT => vec![DType::U32],
        _ if op.lift == Lift::Truth => vec![DType::Bool, DType::U32],
        (_, DType::F16 | DType::Bf16) => vec![from, DType::F32],
        (_, DType::F32) => vec![from],
        (Fold::Sum | Fold::Product, DType::U8 | DType::Bool) if is_whole => vec![DType::U32],
        (Fold::Sum | Fold::Product, DType::I8) if is_whole => vec![DType::I32],
        _ if is_whole => vec![from],
        _ => vec![],
    }
}

#[test]
fn every_operation_form_type_and_rank_gives_a_valid_shader() {
    for op in OPS {
        assert_eq!(Op { number: 0.0, ..op }, Op::from_code(op.code()));
        for form in Form::ALL {
            for from in DType::ALL {
                for to in results_of(op, from) {
                    // Addressing does not depend on the operation.
                    let ranks = [0x11, 0x22, 0x44, 0x13, 0x31];
                    let ranks = if op == Op::SUM {
                        &ranks[..]
                    } else {
                        &ranks[2..3]
                    };
                    for ranks in ranks {
                        let code = ranks | op.code() | (form as u64) << 12;
                        match op.needs_middle() {
                            true => valid(&REDUCE_AROUND, code, &[from, DType::F32, to], 0b101),
                            false => valid(&REDUCE, code, &[from, to], 0b11),
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn rows_name_the_elements_of_the_view() {
    let base = Layout::contiguous(&[3, 4, 5, 2]);
    let views = [
        base.clone(),
        base.transpose(1, 2).unwrap(),
        base.flip(&[0, 3]).unwrap(),
        base.slice(1, Some(3), None, -2).unwrap(),
        base.unsqueeze(0)
            .unwrap()
            .broadcast_to(&[2, 3, 4, 5, 2])
            .unwrap(),
    ];
    for view in &views {
        let rank = view.rank();
        for set in 0..1 << rank {
            let axes: Vec<isize> = (0..rank as isize)
                .filter(|axis| set >> axis & 1 == 1)
                .collect();
            let folded = Axes::named("test", &axes, rank).unwrap();
            let rows = Rows::new(view, folded, true).expect("at most four dimensions on a side");
            let mut expected = vec![vec![]; rows.rows as usize];
            for (flat, element) in view.elements().enumerate() {
                let (mut left, mut row, mut step) = (flat, 0, 1);
                for axis in (0..rank).rev() {
                    let index = left % view.shape[axis];
                    left /= view.shape[axis];
                    if !folded.contains(axis) {
                        row += index * step;
                        step *= view.shape[axis];
                    }
                }
                expected[row].push(element);
            }
            let params: RowParams = rows.params();
            let bits = rows::rank_bits(&rows);
            for (row, expected) in expected.iter_mut().enumerate() {
                let mut named: Vec<usize> = (0..rows.length)
                    .map(|k| element(&params, bits, row as u32, k))
                    .collect();
                named.sort_unstable();
                expected.sort_unstable();
                assert_eq!(named, *expected, "{view:?} folding {axes:?}");
            }
        }
    }
}

#[test]
fn parts_cover_a_row_and_none_is_empty() {
    let layout = |length| Layout::contiguous(&[3, length]);
    for length in [1, 15, 16, 17, 1000, 4096, 5_000_011] {
        let rows = Rows::new(&layout(length), Axes::from(1, 2), true).unwrap();
        for parts in [0, 1, 2, 7, 512, 1 << 40] {
            let plan = Plan::cut(Form::Along, &rows, parts);
            let (parts, chunk) = (u64::from(plan.parts), u64::from(plan.chunk));
            assert!(parts * chunk >= length as u64 && (parts - 1) * chunk < length as u64);
        }
    }
}

#[test]
fn axes_are_counted_checked_and_folded() {
    let named = |axes: &[isize]| Axes::named("sum", axes, 3);
    assert_eq!(
        named(&[0, -1]).unwrap().fold_shape(&[2, 3, 4], false)[..],
        [3]
    );
    assert_eq!(
        named(&[0, -1]).unwrap().fold_shape(&[2, 3, 4], true)[..],
        [1, 3, 1]
    );
    assert_eq!(
        named(&[]).unwrap().fold_shape(&[2, 3, 4], false)[..],
        [2, 3, 4]
    );
    assert!(matches!(named(&[1, -2]), Err(Error::Shape { .. })));
    assert!(matches!(
        named(&[3]),
        Err(Error::Axis {
            axis: 3,
            rank: 3,
            ..
        })
    ));
    assert!(matches!(named(&[isize::MIN]), Err(Error::Axis { .. })));
    assert_eq!(Axes::all(8).fold_shape(&[1; 8], false).len(), 0);
    assert!(refuse_empty("max", &[2, 0], Axes::from(1, 2)).is_err());
    assert!(refuse_empty("max", &[2, 0], Axes::all(1)).is_ok());
}
