//! stack, split, chunk, pad, repeat, roll, one_hot; triangles and dropout.

use lapidary::{DType, Error, Gpu, Tensor, operations::PadMode};

use super::model::*;

/// Runs a check on every view of a tensor of every type, with small numbers.
fn each_view(shape: &[usize], check: impl Fn(&str, &Array, &Tensor)) {
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            let array = Array::new(shape, |at| ((at * 7919) % 101) as f64).rounded(dtype);
            let tensor = array.upload(&gpu, dtype);
            for (view, array, tensor) in views(&array, &tensor) {
                check(&format!("{name} {dtype} {view}"), &array, &tensor);
            }
        }
    }
}

#[test]
fn a_stack_has_a_new_axis_and_its_pieces_come_out_again() {
    each_view(&[3, 5], |what, array, tensor| {
        let rank = array.shape.len();
        for axis in 0..=rank {
            let along = axis as isize - rank as isize - 1;
            let got = Tensor::stack(&[tensor, tensor, tensor], along).unwrap();
            let mut shape = array.shape.clone();
            shape.insert(axis, 3);
            let expected = array.remap(&shape, |index| {
                let mut index = index.to_vec();
                index.remove(axis);
                index
            });
            assert_close(
                &download(&got),
                &expected,
                0.0,
                &format!("{what} axis {axis}"),
            );
            for piece in got.split(1, along).unwrap() {
                let piece = piece.squeeze_axis(along).unwrap();
                assert_close(&download(&piece), array, 0.0, what);
            }
        }
    });
}

#[test]
fn pieces_are_views_of_the_sizes_asked_for() {
    for (_, gpu) in gpus() {
        let t = gpu.zeros(&[7, 2], DType::F32).unwrap();
        let sizes = |pieces: Vec<Tensor>| -> Vec<usize> {
            assert!(pieces.iter().all(|piece| piece.shares_storage_with(&t)));
            pieces.iter().map(|piece| piece.shape()[0]).collect()
        };
        assert_eq!(sizes(t.split(3, 0).unwrap()), [3, 3, 1]);
        assert_eq!(sizes(t.split(7, 0).unwrap()), [7]);
        assert_eq!(sizes(t.split(usize::MAX, 0).unwrap()), [7]);
        assert_eq!(sizes(t.split_sizes(&[0, 5, 2], -2).unwrap()), [0, 5, 2]);
        assert_eq!(sizes(t.chunk(3, 0).unwrap()), [3, 3, 1]);
        assert_eq!(sizes(t.chunk(5, 0).unwrap()), [2, 2, 2, 1]);
        assert_eq!(t.narrow(0, 0, 0).unwrap().split(4, 0).unwrap().len(), 1);
        assert!(matches!(t.split(0, 0), Err(Error::Shape { .. })));
        assert!(matches!(t.split(1, 2), Err(Error::Axis { .. })));
        assert!(matches!(t.chunk(0, 0), Err(Error::Shape { .. })));
        assert!(matches!(t.split_sizes(&[5], 0), Err(Error::Shape { .. })));
        let overflowing = [usize::MAX, 8];
        assert!(matches!(
            t.split_sizes(&overflowing, 0),
            Err(Error::Shape { .. })
        ));
        let flat = gpu.zeros(&[14], DType::F32).unwrap();
        assert!(matches!(
            Tensor::stack(&[&t, &flat], 0),
            Err(Error::Shape { .. })
        ));
        assert!(matches!(Tensor::stack(&[], 0), Err(Error::Shape { .. })));
    }
}

#[test]
fn padding_stands_around_on_every_side() {
    each_view(&[3, 5], |what, array, tensor| {
        let widths: Vec<(usize, usize)> = [(1, 2), (0, 3), (4, 0)][..array.shape.len()].to_vec();
        let shape: Vec<usize> = (array.shape.iter().zip(&widths))
            .map(|(dim, (before, after))| dim + before + after)
            .collect();
        let target = Array::new(&shape, |_| 0.0);
        let got = match tensor.dtype() {
            DType::Bool => tensor.pad(&widths, true),
            _ => tensor.pad(&widths, 9),
        };
        let padding = if tensor.dtype() == DType::Bool {
            1.0
        } else {
            9.0
        };
        let expected = Array::new(&shape, |flat| {
            let index = target.index(flat);
            let inside = (0..index.len()).map(|d| index[d].checked_sub(widths[d].0));
            let inside: Option<Vec<usize>> = inside.collect();
            match inside {
                Some(at) if at.iter().zip(&array.shape).all(|(at, dim)| at < dim) => array.at(&at),
                _ => padding,
            }
        });
        assert_close(&download(&got.unwrap()), &expected, 0.0, what);
    });
    for (_, gpu) in gpus() {
        let t = gpu.zeros(&[2], DType::U8).unwrap();
        assert_eq!(t.pad(&[(0, 0)], 1).unwrap().shape(), [2]);
        assert!(matches!(t.pad(&[], 1), Err(Error::Shape { .. })));
        assert!(matches!(t.pad(&[(0, 0)], 256), Err(Error::DType { .. })));
        assert!(t.pad(&[(usize::MAX, 1)], 1).is_err());
    }
}

#[test]
fn repetitions_and_rolls_are_those_of_numpy() {
    each_view(&[3, 5], |what, array, tensor| {
        let rank = array.shape.len();
        for counts in [
            &[2, 3, 1, 2][..],
            &[1, 1, 2, 1],
            &[3, 1, 1, 1],
            &[2, 0, 1, 1],
        ] {
            let counts = &counts[4 - rank - 1..];
            let mut old = vec![1];
            old.extend(&array.shape);
            let shape: Vec<usize> = old.iter().zip(counts).map(|(dim, n)| dim * n).collect();
            let expected = array.remap(&shape, |index| {
                index[1..]
                    .iter()
                    .zip(&array.shape)
                    .map(|(at, dim)| at % dim)
                    .collect()
            });
            let got = tensor.repeat(counts).unwrap();
            assert_close(
                &download(&got),
                &expected,
                0.0,
                &format!("{what} {counts:?}"),
            );
        }
        for axis in 0..rank {
            for count in [0, 1, 3] {
                let mut shape = array.shape.clone();
                shape[axis] *= count;
                let expected = array.remap(&shape, |index| {
                    let mut index = index.to_vec();
                    index[axis] /= count;
                    index
                });
                let got = tensor.repeat_interleave(count, axis as isize).unwrap();
                assert_close(&download(&got), &expected, 0.0, what);
            }
        }
        let shifts = [2, -1];
        let expected = array.remap(&array.shape, |index| {
            let mut index = index.to_vec();
            for axis in [0, rank - 1] {
                let shift = if axis == 0 { shifts[0] } else { shifts[1] };
                let dim = array.shape[axis] as isize;
                index[axis] = (index[axis] as isize - shift).rem_euclid(dim) as usize;
            }
            index
        });
        let got = tensor.roll(&shifts, &[0, -1]).unwrap();
        assert_close(&download(&got), &expected, 0.0, what);
    });
    for (_, gpu) in gpus() {
        let t = gpu.zeros(&[2, 3], DType::F32).unwrap();
        assert!(!t.repeat(&[1, 1]).unwrap().shares_storage_with(&t));
        assert!(!t.roll(&[6], &[1]).unwrap().shares_storage_with(&t));
        assert!(matches!(t.repeat(&[2]), Err(Error::Shape { .. })));
        assert!(t.repeat(&[1; 9]).is_err());
        assert!(t.repeat(&[usize::MAX, 2]).is_err());
        assert!(matches!(t.roll(&[1], &[]), Err(Error::Shape { .. })));
        assert!(matches!(t.roll(&[1], &[2]), Err(Error::Axis { .. })));
        let empty = t.narrow(0, 0, 0).unwrap();
        assert_eq!(empty.roll(&[isize::MIN], &[0]).unwrap().shape(), [0, 3]);
    }
}

#[test]
fn one_hot_marks_the_class_and_nothing_for_what_is_none() {
    for (name, gpu) in gpus() {
        let labels = gpu.tensor(&[2, 0, -1, 3, 1, 9], &[2, 3]).unwrap();
        for dtype in DType::ALL {
            let got = labels.one_hot(4, dtype).unwrap();
            let at = [2, 0, 99, 3, 1, 99];
            let expected = Array::new(&[2, 3, 4], |flat| {
                f64::from(u8::from(at[flat / 4] == flat % 4))
            });
            assert_eq!(got.dtype(), dtype);
            assert_close(&download(&got), &expected, 0.0, name);
        }
        let words = labels.cast(DType::U32).unwrap();
        assert_eq!(words.one_hot(0, DType::U8).unwrap().shape(), [2, 3, 0]);
        let bytes = labels.cast(DType::U8).unwrap();
        assert!(matches!(
            bytes.one_hot(4, DType::U8),
            Err(Error::DType { .. })
        ));
        let deep = gpu.zeros(&[1; 8], DType::I32).unwrap();
        assert!(matches!(
            deep.one_hot(4, DType::U8),
            Err(Error::Shape { .. })
        ));
    }
}

#[test]
fn triangles_keep_what_is_on_their_side_of_the_diagonal() {
    each_view(&[2, 5, 7], |what, array, tensor| {
        let rank = array.shape.len();
        for diagonal in [0, 1, -2, 100, isize::MIN] {
            let masked = |keeps: fn(isize, isize) -> bool| {
                Array::new(&array.shape, |flat| {
                    let index = array.index(flat);
                    let (row, column) = (index[rank - 2] as isize, index[rank - 1] as isize);
                    let keeps = keeps(column - row, diagonal);
                    if keeps { array.values[flat] } else { 0.0 }
                })
            };
            let what = format!("{what} {diagonal}");
            let got = download(&tensor.tril(diagonal).unwrap());
            assert_close(&got, &masked(|at, diagonal| at <= diagonal), 0.0, &what);
            let got = download(&tensor.triu(diagonal).unwrap());
            assert_close(&got, &masked(|at, diagonal| at >= diagonal), 0.0, &what);
        }
    });
    for (_, gpu) in gpus() {
        let flat = gpu.zeros(&[4], DType::F32).unwrap();
        assert!(matches!(flat.tril(0), Err(Error::Shape { .. })));
        let empty = gpu.zeros(&[2, 0], DType::F32).unwrap();
        assert_eq!(empty.triu(0).unwrap().shape(), [2, 0]);
    }
}

/// The result of dropout on ones.
fn dropped(gpu: &Gpu, p: f32, seed: u64, dtype: DType) -> Vec<f64> {
    let ones = gpu.ones(&[100, 100], dtype).unwrap();
    download(&ones.dropout(p, seed).unwrap()).values
}

#[test]
fn dropout_drops_its_share_by_the_seed_and_the_place() {
    let mut drawn: Vec<Vec<f64>> = vec![];
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let got = dropped(&gpu, 0.25, 7, dtype);
            let kept = got.iter().filter(|&&v| v != 0.0).count();
            assert!((7300..7700).contains(&kept), "{name} {kept}");
            let is_scaled =
                |v: &f64| *v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-3_f64.max(tolerance(dtype) / 2.0);
            assert!(got.iter().all(is_scaled), "{name}");
            drawn.push(got.iter().map(|v| f64::from(u8::from(*v != 0.0))).collect());
            assert_ne!(got, dropped(&gpu, 0.25, 8, dtype), "{name}");
            assert_ne!(got, dropped(&gpu, 0.25, 7 + (1 << 32), dtype), "{name}");
            assert!(dropped(&gpu, 0.0, 7, dtype).iter().all(|v| *v == 1.0));
            assert!(dropped(&gpu, 1.0, 7, dtype).iter().all(|v| *v == 0.0));
        }
        let nan = gpu.full(&[40, 3], f32::NAN, DType::F32).unwrap();
        // A view drops elements by their index in the view.
        let got = nan
            .t()
            .unwrap()
            .dropout(0.5, 1)
            .unwrap()
            .to_vec::<f32>()
            .unwrap();
        let ones = gpu
            .ones(&[3, 40], DType::F32)
            .unwrap()
            .dropout(0.5, 1)
            .unwrap();
        let same = (got.iter().zip(ones.to_vec::<f32>().unwrap())).all(|(a, b)| match b {
            0.0 => *a == 0.0,
            _ => a.is_nan(),
        });
        assert!(same, "{name}");
        assert!(matches!(nan.dropout(1.5, 1), Err(Error::Option { .. })));
        assert!(matches!(
            nan.dropout(f32::NAN, 1),
            Err(Error::Option { .. })
        ));
        let ints = gpu.zeros(&[4], DType::I32).unwrap();
        assert!(matches!(ints.dropout(0.5, 1), Err(Error::DType { .. })));
    }
    assert!(drawn.windows(2).all(|pair| pair[0] == pair[1]));
}

/// The index of the element along an axis of `size` for index `at`, behind a padding of `before`.
fn source(mode: PadMode, size: usize, at: usize, before: usize) -> usize {
    let (size, at) = (size as isize, at as isize - before as isize);
    let from = match mode {
        PadMode::Reflect if at < 0 => -at,
        PadMode::Reflect if at >= size => 2 * (size - 1) - at,
        PadMode::Reflect => at,
        PadMode::Replicate => at.clamp(0, size - 1),
        PadMode::Circular => at.rem_euclid(size),
    };
    from as usize
}

const MODES: [PadMode; 3] = [PadMode::Reflect, PadMode::Replicate, PadMode::Circular];

#[test]
fn what_is_padded_with_its_own_elements_agrees_with_the_model() {
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            let shape = [2, 3, 5];
            let array = Array::new(&shape, noise(dtype)).rounded(dtype);
            let tensor = array.upload(&gpu, dtype);
            for (view, array, tensor) in views(&array, &tensor) {
                let shape = array.shape.clone();
                for mode in MODES {
                    let widths: Vec<(usize, usize)> = (shape.iter().enumerate())
                        .map(|(at, &size)| match at {
                            1 => (size - 1, 1.min(size - 1)),
                            _ => (0, (size - 1).min(2)),
                        })
                        .collect();
                    let wider: Vec<usize> = (shape.iter().zip(&widths))
                        .map(|(size, (before, after))| size + before + after)
                        .collect();
                    let expected = array.remap(&wider, |index| {
                        let along = |at: usize| source(mode, shape[at], index[at], widths[at].0);
                        (0..index.len()).map(along).collect()
                    });
                    let got = tensor.pad_with(&widths, mode).unwrap();
                    let what = format!("{name} {dtype} {view} {mode:?} {widths:?}");
                    assert_close(&download(&got), &expected, 0.0, &what);
                    assert!(!got.shares_storage_with(&tensor), "{what}");
                }
            }
        }
    }
}

#[test]
fn an_axis_is_padded_with_no_more_than_it_has() {
    for (_, gpu) in gpus() {
        let t = gpu.tensor(&[1, 2, 3], &[3]).unwrap();
        let most = [2, 9, 3];
        for (mode, most) in MODES.into_iter().zip(most) {
            assert_eq!(t.pad_with(&[(most, 0)], mode).unwrap().shape(), [3 + most]);
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
        let none = gpu.zeros(&[0, 2], DType::F32).unwrap();
        let wide = none.pad_with(&[(0, 0), (1, 1)], PadMode::Reflect).unwrap();
        assert_eq!(wide.shape(), [0, 4]);
        for mode in MODES {
            let refused = none.pad_with(&[(1, 0), (0, 0)], mode);
            assert!(matches!(refused, Err(Error::Shape { .. })), "{mode:?}");
        }
    }
}
