//! Operations whose elements decide the shape of the result: nonzero, masks as indices, repetitions
//! by counts, classes that are counted; and writes by masks.

use lapidary::{DType, Error, Result, Tensor};

use crate::devices::{gives, reference, refused};

use super::model::*;

#[test]
fn nonzero_names_the_places_that_are_not_0_in_every_type_and_view() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        for dtype in DType::ALL {
            let array = Array::new(&[3, 5], |at| (at * at % 3) as f64).rounded(dtype);
            for (view, x) in views(&array.upload(&gpu, dtype)) {
                let what = format!("{dtype} {view}");
                all_same(&what, &reference, &[&x], 0.0, |t| {
                    Ok([t[0].nonzero()?, pollster::block_on(t[0].nonzero_async())?])
                });
            }
        }
        // A number has no axes. NaN is not 0, and −0 is.
        assert_eq!(gpu.scalar(2)?.nonzero()?.shape(), [1, 0]);
        assert_eq!(gpu.scalar(0)?.nonzero()?.shape(), [0, 0]);
        assert_eq!(gpu.zeros(&[0, 3], DType::F32)?.nonzero()?.shape(), [0, 2]);
        assert_eq!(gpu.zeros(&[4, 3], DType::F16)?.nonzero()?.shape(), [0, 2]);
        let odd = gpu.tensor(&[f32::NAN, -0.0, f32::MIN_POSITIVE], &[3])?;
        gives!(u32: odd.nonzero() => [0, 2]);
    }
    Ok(())
}

#[test]
fn a_mask_of_some_axes_picks_and_replaces_what_it_names() -> Result<()> {
    for gpu in each() {
        let x = gpu.arange(0, 24, 1, DType::I32)?.reshape(&[2, 3, 4])?;
        let rows = gpu.tensor(&[true, false, true], &[3])?;
        let got = x.index(&[None, Some(&rows)])?;
        assert_eq!(got.shape(), [2, 2, 4]);
        let expected: Vec<i32> = [0..4, 8..12, 12..16, 20..24]
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(got.to_vec::<i32>()?, expected);
        // Beside indices, which broadcast against the two that the mask names.
        let last = gpu.tensor(&[3_u32, 0], &[2])?;
        gives!(i32: x.index(&[None, Some(&rows), Some(&last)]) => [3, 8, 15, 20]);
        // Of two axes, and of a view.
        let upper = gpu.ones(&[2, 3], DType::Bool)?.triu(1)?;
        let got = x.index(&[Some(&upper)])?;
        assert_eq!(got.shape(), [3, 4]);
        gives!(i32: got.select(1, 0) => [4, 8, 20]);
        let turned = x.permute(&[1, 0, 2])?;
        let got = turned.index(&[Some(&upper.t()?)])?;
        gives!(i32: got.select(1, 0) => [4, 8, 20]);
        let none = gpu.zeros(&[3], DType::Bool)?;
        assert_eq!(x.index(&[None, Some(&none)])?.shape(), [2, 0, 4]);
        // x[:, mask] = values, and x[mask] = one value.
        let nines = gpu.full(&[4], 9, DType::I32)?;
        let put = x.index_put(&[None, Some(&rows)], &nines, false)?;
        let expected = x.to_vec::<i32>()?.into_iter().enumerate();
        let expected = expected.map(|(at, x)| if at / 4 % 3 == 1 { x } else { 9 });
        assert_eq!(put.to_vec::<i32>()?, expected.collect::<Vec<_>>());
        let written = x.copy()?;
        written.index_put_(&[Some(&upper)], &nines, false)?;
        assert_eq!(written.sum_all()?.item::<i32>()?, 276 - 146 + 108);
        let wrong = |entries: &[Option<&Tensor>]| x.index(entries).unwrap_err();
        // A mask of rank 0 names no axis: it stands for a new one.
        let number = gpu.scalar(true)?;
        assert_eq!(x.index(&[Some(&number)])?.shape(), [1, 2, 3, 4]);
        for entries in [&[Some(&rows)][..], &[None, None, None, Some(&rows)]] {
            assert!(matches!(wrong(entries), Error::Shape { .. }), "{entries:?}");
        }
        let entries = [Some(&upper), Some(&last), Some(&last)];
        assert!(matches!(wrong(&entries), Error::Shape { .. }));
    }
    Ok(())
}

#[test]
fn masked_scatter_takes_the_source_in_order() -> Result<()> {
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
            let of = |x: &Tensor| x.cast(DType::I32)?.to_vec::<i32>();
            let x = gpu.zeros(&[2, 3], dtype)?;
            let source = gpu.arange(1, 7, 1, DType::I32)?.cast(dtype)?;
            let mask = gpu.tensor(&[true, false, true], &[3])?;
            let got = x.masked_scatter(&mask, &source)?;
            assert_eq!(of(&got)?, [1, 0, 2, 3, 0, 4], "{dtype}");
            // Any views, and a mask that makes the result larger.
            let turned = source.reshape(&[2, 3])?.t()?;
            let got = x.t()?.masked_scatter(&mask.unsqueeze(1)?, &turned)?;
            assert_eq!(of(&got)?, [1, 4, 0, 0, 2, 5], "{dtype}");
            let row = x.narrow(0, 0, 1)?;
            let got = row.masked_scatter(&mask.broadcast_to(&[2, 3])?, &source)?;
            assert_eq!(of(&got)?, [1, 0, 2, 3, 0, 4], "{dtype}");
            // Too few elements: the rest stays.
            let few = source.narrow(0, 4, 1)?;
            let got = x.masked_scatter(&mask, &few)?;
            assert_eq!(of(&got)?, [5, 0, 0, 0, 0, 0], "{dtype}");
            let got = x.masked_scatter(&mask, &source.narrow(0, 0, 0)?)?;
            assert_eq!(of(&got)?, [0; 6], "{dtype}");
            let written = x.copy()?;
            written.t()?.masked_scatter_(&mask.unsqueeze(1)?, &source)?;
            assert_eq!(of(&written)?, [1, 0, 3, 2, 0, 4], "{dtype}");
            let wide = mask.broadcast_to(&[2, 3])?;
            refused!(Shape: row.masked_scatter_(&wide, &source));
            refused!(DType: x.masked_scatter(&x, &source));
        }
        let number = gpu.scalar(1.0_f32)?;
        let yes = gpu.scalar(true)?;
        let got = number.masked_scatter(&yes, &gpu.scalar(3.0_f32)?)?;
        assert_eq!((got.shape(), got.item::<f32>()?), (&[][..], 3.0));
        let empty = gpu.zeros(&[0], DType::F32)?;
        let got = empty.masked_scatter(&gpu.zeros(&[0], DType::Bool)?, &number)?;
        assert_eq!(got.shape(), [0]);
    }
    Ok(())
}

#[test]
fn counts_say_how_often_each_index_comes() -> Result<()> {
    for gpu in each() {
        let x = gpu.arange(0, 6, 1, DType::I32)?.reshape(&[2, 3])?;
        let counts = gpu.tensor(&[2_u32, 0, 1], &[3])?;
        gives!(i32: x.repeat_interleave_by(&counts, -1) => [0, 0, 2, 3, 3, 5]);
        let got = pollster::block_on(x.t()?.repeat_interleave_by_async(&counts, 0))?;
        assert_eq!(got.to_vec::<i32>()?, [0, 3, 0, 3, 2, 5]);
        // One count for all.
        let twice = gpu.scalar(2_i32)?;
        let got = x.repeat_interleave_by(&twice, 0)?;
        assert_eq!(
            got.to_vec::<i32>()?,
            x.repeat_interleave(2, 0)?.to_vec::<i32>()?
        );
        let none = gpu.zeros(&[2], DType::I32)?;
        assert_eq!(x.repeat_interleave_by(&none, 0)?.shape(), [0, 3]);
        let empty = gpu.zeros(&[0, 3], DType::F16)?;
        let no_counts = gpu.zeros(&[0], DType::U32)?;
        assert_eq!(empty.repeat_interleave_by(&no_counts, 0)?.shape(), [0, 3]);
        for wrong in [&[1, -1, 2][..], &[1, 2]] {
            let counts = gpu.tensor(wrong, &[wrong.len()])?;
            refused!(Shape: x.repeat_interleave_by(&counts, 1));
            refused!(Shape: pollster::block_on(x.repeat_interleave_by_async(&counts, 1)));
        }
        // The sum of these does not fit into 32 bits.
        let huge = gpu.full(&[3], i32::MAX, DType::I32)?;
        assert!(x.repeat_interleave_by(&huge, 1).is_err());
        let shares = counts.cast(DType::F32)?;
        refused!(DType: x.repeat_interleave_by(&shares, 1));
        refused!(Axis: x.repeat_interleave_by(&counts, 2));
    }
    Ok(())
}

#[test]
fn classes_are_counted_where_no_number_is_given() -> Result<()> {
    for gpu in each() {
        let signed = gpu.tensor(&[2_i32, 0], &[2])?;
        for labels in [
            signed.clone(),
            signed.cast(DType::U32)?,
            signed.flip(&[0])?.flip(&[0])?,
        ] {
            gives!(u8: labels.one_hot(None, DType::U8) => [2, 3], [0, 0, 1, 1, 0, 0]);
        }
        assert_eq!(gpu.scalar(1_u32)?.one_hot(None, DType::F32)?.shape(), [2]);
        for wrong in [
            signed.sub(1)?,
            signed.narrow(0, 0, 0)?,
            gpu.full(&[1], u32::MAX, DType::U32)?,
        ] {
            refused!(Shape: wrong.one_hot(None, DType::F32));
        }
    }
    Ok(())
}
