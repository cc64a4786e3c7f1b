//! stack, split, chunk, pad, repeat, roll, one_hot; triangles and dropout. PyTorch's values are in
//! `tests/torch/rows.rs`.

use lapidary::{DType, Error, Gpu, Result, Tensor, operations::PadMode};

use crate::devices::{reference, refused};

use super::model::*;

type Call = fn(&Tensor) -> Result<Tensor>;

const CALLS: &[(&str, Call)] = &[
    ("stack, first", |x| Tensor::stack(&[x, x, x], 0)),
    ("stack, second", |x| Tensor::stack(&[x, x, x], 1)),
    ("stack, last", |x| Tensor::stack(&[x, x, x], -1)),
    ("a piece of a stack", |x| {
        Tensor::stack(&[x, x], -1)?.split(1, -1)?[1].squeeze_axis(-1)
    }),
    ("pad", |x| {
        let widths = &[(1, 2), (0, 3), (4, 0), (1, 1)][..x.rank()];
        match x.dtype() {
            DType::Bool => x.pad(widths, true),
            _ => x.pad(widths, 9),
        }
    }),
    ("repeat", |x| x.repeat(&[2, 2, 3, 1, 2][4 - x.rank()..])),
    ("repeat, one axis", |x| {
        x.repeat(&[1, 1, 1, 2, 1][4 - x.rank()..])
    }),
    ("repeat, nothing", |x| {
        x.repeat(&[1, 2, 0, 1, 1][4 - x.rank()..])
    }),
    ("repeat_interleave, rows", |x| x.repeat_interleave(3, 0)),
    ("repeat_interleave, columns", |x| x.repeat_interleave(3, -1)),
    ("repeat_interleave, once", |x| x.repeat_interleave(1, 1)),
    ("repeat_interleave, never", |x| x.repeat_interleave(0, 1)),
    ("roll", |x| x.roll(&[2, -1], &[0, -1])),
    ("tril", |x| x.tril(0)),
    ("tril, above", |x| x.tril(1)),
    ("tril, all", |x| x.tril(100)),
    ("triu", |x| x.triu(0)),
    ("triu, below", |x| x.triu(-2)),
    ("triu, all", |x| x.triu(isize::MIN)),
    ("reflect", |x| padded(x, PadMode::Reflect)),
    ("replicate", |x| padded(x, PadMode::Replicate)),
    ("circular", |x| padded(x, PadMode::Circular)),
];

/// As wide before the second axis as an axis may be padded.
fn padded(x: &Tensor, mode: PadMode) -> Result<Tensor> {
    let width = |(at, &size): (usize, &usize)| match at {
        1 => (size - 1, 1.min(size - 1)),
        _ => (0, (size - 1).min(2)),
    };
    let widths: Vec<_> = x.shape().iter().enumerate().map(width).collect();
    let made = x.pad_with(&widths, mode)?;
    assert!(!made.shares_storage_with(x));
    Ok(made)
}

#[test]
fn elements_of_every_type_and_view_are_moved_as_those_of_a_whole_tensor() {
    let reference = reference();
    for gpu in each() {
        for dtype in DType::ALL {
            let array = Array::new(&[2, 5, 7], |at| ((at * 7919) % 101) as f64).rounded(dtype);
            for (view, x) in views(&array.upload(&gpu, dtype)) {
                for &(name, call) in CALLS {
                    let what = format!("{name} of {dtype} {view}");
                    same(&what, &reference, &[&x], 0.0, |t| call(&t[0]));
                }
            }
        }
    }
}

#[test]
fn pieces_are_views_of_the_sizes_asked_for() -> Result<()> {
    for gpu in each() {
        let t = gpu.zeros(&[7, 2], DType::F32)?;
        let sizes = |pieces: Vec<Tensor>| -> Vec<usize> {
            assert!(pieces.iter().all(|piece| piece.shares_storage_with(&t)));
            pieces.iter().map(|piece| piece.shape()[0]).collect()
        };
        assert_eq!(sizes(t.split(3, 0)?), [3, 3, 1]);
        assert_eq!(sizes(t.split(7, 0)?), [7]);
        assert_eq!(sizes(t.split(usize::MAX, 0)?), [7]);
        assert_eq!(sizes(t.split_sizes(&[0, 5, 2], -2)?), [0, 5, 2]);
        assert_eq!(sizes(t.chunk(3, 0)?), [3, 3, 1]);
        assert_eq!(sizes(t.chunk(5, 0)?), [2, 2, 2, 1]);
        assert_eq!(sizes(t.narrow(0, 0, 0)?.chunk(3, 0)?), [0; 3]);
        assert_eq!(t.narrow(0, 0, 0)?.split(4, 0)?.len(), 1);
        refused!(Shape: t.split(0, 0));
        refused!(Axis: t.split(1, 2));
        refused!(Shape: t.chunk(0, 0));
        refused!(Shape: t.split_sizes(&[5], 0));
        let overflowing = [usize::MAX, 8];
        refused!(Shape: t.split_sizes(&overflowing, 0));
        let flat = gpu.zeros(&[14], DType::F32)?;
        refused!(Shape: Tensor::stack(&[&t, &flat], 0));
        refused!(Shape: Tensor::stack(&[], 0));
    }
    Ok(())
}

#[test]
fn odd_sizes_are_taken_or_refused() -> Result<()> {
    for gpu in each() {
        let t = gpu.zeros(&[2], DType::U8)?;
        assert_eq!(t.pad(&[(0, 0)], 1)?.shape(), [2]);
        refused!(Shape: t.pad(&[], 1));
        refused!(DType: t.pad(&[(0, 0)], 256));
        assert!(t.pad(&[(usize::MAX, 1)], 1).is_err());
        let t = gpu.zeros(&[2, 3], DType::F32)?;
        assert!(!t.repeat(&[1, 1])?.shares_storage_with(&t));
        assert!(!t.roll(&[6], &[1])?.shares_storage_with(&t));
        refused!(Shape: t.repeat(&[2]));
        assert!(t.repeat(&[1; 9]).is_err());
        assert!(t.repeat(&[usize::MAX, 2]).is_err());
        refused!(Shape: t.roll(&[1], &[]));
        refused!(Axis: t.roll(&[1], &[2]));
        let empty = t.narrow(0, 0, 0)?;
        assert_eq!(empty.roll(&[isize::MIN], &[0])?.shape(), [0, 3]);
        refused!(Shape: gpu.zeros(&[4], DType::F32)?.tril(0));
        assert_eq!(gpu.zeros(&[2, 0], DType::F32)?.triu(0)?.shape(), [2, 0]);
    }
    Ok(())
}

#[test]
fn one_hot_marks_the_class_and_nothing_for_what_is_none() -> Result<()> {
    for (name, gpu) in gpus() {
        let labels = gpu.tensor(&[2, 0, -1, 3, 1, 9], &[2, 3])?;
        for dtype in DType::ALL {
            let got = labels.one_hot(4, dtype)?;
            let at = [2, 0, 99, 3, 1, 99];
            let expected = Array::new(&[2, 3, 4], |flat| {
                f64::from(u8::from(at[flat / 4] == flat % 4))
            });
            assert_eq!(got.dtype(), dtype);
            assert_close(&download(&got), &expected, 0.0, name);
        }
        let words = labels.cast(DType::U32)?;
        assert_eq!(words.one_hot(0, DType::U8)?.shape(), [2, 3, 0]);
        let bytes = labels.cast(DType::U8)?;
        refused!(DType: bytes.one_hot(4, DType::U8));
        let deep = gpu.zeros(&[1; 8], DType::I32)?;
        refused!(Shape: deep.one_hot(4, DType::U8));
    }
    Ok(())
}

/// The result of dropout on ones.
fn dropped(gpu: &Gpu, p: f32, seed: u64, dtype: DType) -> Vec<f64> {
    let ones = gpu.ones(&[100, 100], dtype).unwrap();
    download(&ones.dropout(p, seed).unwrap()).values
}

#[test]
fn dropout_drops_its_share_by_the_seed_and_the_place() -> Result<()> {
    let mut drawn: Vec<Vec<f64>> = vec![];
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let got = dropped(&gpu, 0.25, 7, dtype);
            let kept = got.iter().filter(|&&v| v != 0.0).count();
            assert!((7300..7700).contains(&kept), "{kept}");
            let is_scaled =
                |v: &f64| *v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-3_f64.max(tolerance(dtype) / 2.0);
            assert!(got.iter().all(is_scaled));
            drawn.push(got.iter().map(|v| f64::from(u8::from(*v != 0.0))).collect());
            assert_ne!(got, dropped(&gpu, 0.25, 8, dtype));
            assert_ne!(got, dropped(&gpu, 0.25, 7 + (1 << 32), dtype));
            assert!(dropped(&gpu, 0.0, 7, dtype).iter().all(|v| *v == 1.0));
            assert!(dropped(&gpu, 1.0, 7, dtype).iter().all(|v| *v == 0.0));
        }
        let nan = gpu.full(&[40, 3], f32::NAN, DType::F32)?;
        // A view drops elements by their index in the view.
        let got = nan.t()?.dropout(0.5, 1)?.to_vec::<f32>()?;
        let ones = gpu.ones(&[3, 40], DType::F32)?.dropout(0.5, 1)?;
        let same = (got.iter().zip(ones.to_vec::<f32>()?)).all(|(a, b)| match b {
            0.0 => *a == 0.0,
            _ => a.is_nan(),
        });
        assert!(same);
        refused!(Option: nan.dropout(1.5, 1));
        refused!(Option: nan.dropout(f32::NAN, 1));
        let ints = gpu.zeros(&[4], DType::I32)?;
        refused!(DType: ints.dropout(0.5, 1));
    }
    assert!(drawn.windows(2).all(|pair| pair[0] == pair[1]));
    Ok(())
}

const MODES: [PadMode; 3] = [PadMode::Reflect, PadMode::Replicate, PadMode::Circular];

#[test]
fn an_axis_is_padded_with_no_more_than_it_has() -> Result<()> {
    for gpu in each() {
        let t = gpu.tensor(&[1, 2, 3], &[3])?;
        let most = [2, 9, 3];
        for (mode, most) in MODES.into_iter().zip(most) {
            assert_eq!(t.pad_with(&[(most, 0)], mode)?.shape(), [3 + most]);
        }
        for (mode, width) in [(PadMode::Reflect, 3), (PadMode::Circular, 4)] {
            let refused = t.pad_with(&[(0, width)], mode).unwrap_err();
            assert!(matches!(refused, Error::Shape { .. }), "{refused}");
            let text = refused.to_string();
            assert!(
                text.contains(&width.to_string()) && text.contains("3 elements"),
                "{text}"
            );
        }
        assert!(t.pad_with(&[], PadMode::Reflect).is_err());
        assert!(t.pad_with(&[(usize::MAX, 1)], PadMode::Replicate).is_err());
        let none = gpu.zeros(&[0, 2], DType::F32)?;
        let wide = none.pad_with(&[(0, 0), (1, 1)], PadMode::Reflect)?;
        assert_eq!(wide.shape(), [0, 4]);
        for mode in MODES {
            refused!(Shape: none.pad_with(&[(1, 0), (0, 0)], mode));
        }
    }
    Ok(())
}
