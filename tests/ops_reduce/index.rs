//! index, index_put, masked_select, search_sorted and multinomial.

use lapidary::{DType, Gpu, Result, Tensor};

use crate::devices::{gives, reference, refused};

use super::model::*;

fn counting(gpu: &Gpu, shape: &[usize]) -> Result<Tensor> {
    let len: usize = shape.iter().product();
    gpu.arange(0, len as i64, 1, DType::I32)?.reshape(shape)
}

#[test]
fn several_index_tensors_name_elements_together() -> Result<()> {
    for gpu in each() {
        let x = counting(&gpu, &[2, 3, 4])?;
        let i = gpu.tensor(&[1_u32, 0, 1], &[3])?;
        let j = gpu.tensor(&[2_i32, 0], &[2, 1])?;
        // x[i, j]: the shapes [3] and [2, 1] broadcast.
        let got = x.index(&[Some(&i), Some(&j)])?;
        assert_eq!(got.shape(), [2, 3, 4]);
        let rows = [20, 8, 20, 12, 0, 12];
        let expected: Vec<i32> = rows.iter().flat_map(|&row| row..row + 4).collect();
        assert_eq!(got.to_vec::<i32>()?, expected);
        // x[:, i]: in the place of the axis.
        let got = x.index(&[None, Some(&j)])?;
        assert_eq!(got.shape(), [2, 2, 1, 4]);
        let rows = [8, 0, 20, 12];
        let expected: Vec<i32> = rows.iter().flat_map(|&row| row..row + 4).collect();
        assert_eq!(got.to_vec::<i32>()?, expected);
        // x[i, :, k]: the indexed axes are apart, so their broadcast shape comes first.
        let k = gpu.tensor(&[3_u32], &[1])?;
        let got = x.index(&[Some(&i), None, Some(&k)])?;
        assert_eq!(got.shape(), [3, 3]);
        assert_eq!(got.to_vec::<i32>()?, [15, 19, 23, 3, 7, 11, 15, 19, 23]);
        // A 0-d tensor as an index removes the axis.
        let one = gpu.scalar(1_i32)?;
        let got = x.index(&[Some(&one), Some(&one), Some(&one)])?;
        assert_eq!((got.shape(), got.item::<i32>()?), (&[][..], 17));
        // A view of any kind.
        let got = x.permute(&[2, 0, 1])?.flip(&[0])?;
        gives!(i32: got.index(&[Some(&k), Some(&i)]) => [12, 16, 20, 0, 4, 8, 12, 16, 20]);
    }
    Ok(())
}

#[test]
fn an_index_that_is_not_there_gives_0_and_is_not_written() -> Result<()> {
    for gpu in each() {
        let x = counting(&gpu, &[2, 3])?.add(1)?;
        let i = gpu.tensor(&[0_i32, 0, -1, 1, 2], &[5])?;
        let j = gpu.tensor(&[3_i32, 2, 1, -1, 0], &[5])?;
        gives!(i32: x.index(&[Some(&i), Some(&j)]) => [0, 3, 0, 0, 0]);
        let put = x.index_put(&[Some(&i), Some(&j)], &gpu.full(&[], 9, DType::I32)?, false)?;
        assert_eq!(put.to_vec::<i32>()?, [1, 2, 9, 4, 5, 6]);
        let empty = gpu.zeros(&[0, 3], DType::I32)?;
        gives!(i32: empty.index(&[Some(&i), Some(&j)]) => [0; 5]);
        let none = gpu.zeros(&[0], DType::U32)?;
        assert_eq!(x.index(&[Some(&none)])?.shape(), [0, 3]);
        gives!(i32: x.index_put(&[Some(&none)], &x.narrow(0, 0, 1)?, true) => [1, 2, 3, 4, 5, 6]);
    }
    Ok(())
}

#[test]
fn what_is_put_is_where_index_finds_it() -> Result<()> {
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
            let x = counting(&gpu, &[2, 3, 4])?.cast(dtype)?;
            let i = gpu.tensor(&[1_u32, 0, 1], &[3])?;
            let k = gpu.tensor(&[3_u32, 0, 3], &[3])?;
            let of = |x: &Tensor| x.cast(DType::I32)?.to_vec::<i32>();
            // Indexed axes apart and together. If two indices refer to one element, the last one
            // wins.
            let values = counting(&gpu, &[3, 3])?.add(40)?.cast(dtype)?;
            let put = x.index_put(&[Some(&i), None, Some(&k)], &values, false)?;
            let mut expected: Vec<i32> = (0..24).collect();
            for (at, value) in [(0, 43), (4, 44), (8, 45), (15, 46), (19, 47), (23, 48)] {
                expected[at] = value;
            }
            assert_eq!(of(&put)?, expected, "{dtype}");
            let values = gpu.tensor(&[10_i32, 20, 30], &[3, 1])?.cast(dtype)?;
            let sum = x.index_put(&[Some(&i), Some(&gpu.scalar(2_u32)?)], &values, true)?;
            let mut expected: Vec<i32> = (0..24).collect();
            (8..12).for_each(|at| expected[at] += 20);
            (20..24).for_each(|at| expected[at] += 40);
            assert_eq!(of(&sum)?, expected, "{dtype}");
            // For bools it is `or`.
            let flags = gpu.tensor(&[true, false, false, false], &[4])?;
            let at = gpu.tensor(&[0_u32, 1, 1, 2], &[4])?;
            let more = gpu.tensor(&[false, true, false, false], &[4])?;
            let flags = flags.index_put(&[Some(&at)], &more, true)?;
            assert_eq!(flags.to_vec::<bool>()?, [true, true, false, false]);
            let written = x.copy()?;
            written.index_put_(&[None, Some(&gpu.scalar(1_u32)?)], &x.select(1, 0)?, false)?;
            assert_eq!(
                of(&written.select(1, 1)?)?,
                of(&x.select(1, 0)?)?,
                "{dtype}"
            );
        }
    }
    Ok(())
}

#[test]
fn a_mask_picks_what_it_lets_through() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        for len in [1, 5, 64, 5000] {
            let x = counting(&gpu, &[len])?;
            let mask = x.mul(7919)?.remainder(13)?.lt(5)?;
            same("a mask", &reference, &[&x, &mask], 0.0, |t| {
                t[0].masked_select(&t[1])
            });
        }
        let x = counting(&gpu, &[3, 4])?;
        let columns = gpu.tensor(&[false, true, false, true], &[4])?;
        gives!(i32: x.masked_select(&columns) => [1, 3, 5, 7, 9, 11]);
        let row = gpu.tensor(&[true, false], &[2, 1, 1])?;
        let got = x.t()?.masked_select(&row)?;
        assert_eq!(got.to_vec::<i32>()?, x.t()?.to_vec::<i32>()?);
        gives!(i32: x.masked_select_first(&columns, 4) => [1, 3, 5, 7]);
        gives!(i32: x.masked_select_first(&columns, 8) => [1, 3, 5, 7, 9, 11, 0, 0]);
        let nothing = x.masked_select(&columns.zeros_like()?)?;
        assert_eq!(nothing.shape(), [0]);
        let empty = gpu.zeros(&[0, 4], DType::F16)?;
        assert_eq!(empty.masked_select(&columns)?.shape(), [0]);
        refused!(DType: x.masked_select(&x));
        refused!(Shape: x.masked_select(&x.t()?.gt(0)?));
    }
    Ok(())
}

#[test]
fn values_are_found_where_they_belong() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        let sorted = [-3.0, -1.0, -1.0, 0.5, 2.0, 2.0, 2.0, 9.0];
        let values = [-4.0, -3.0, -1.0, 0.0, 2.0, 5.0, 9.0, 10.0, 0.5];
        for dtype in [DType::F32, DType::Bf16, DType::I32, DType::I8] {
            let sorted = Array::new(&[8], |at| sorted[at]).rounded(dtype);
            let values = Array::new(&[3, 3], |at| values[at]).rounded(dtype);
            let [sorted, values] = [sorted, values].map(|of| of.upload(&gpu, dtype));
            let what = format!("{dtype}");
            all_same(&what, &reference, &[&sorted, &values], 0.0, |t| {
                let up_to = t[0].search_sorted(&t[1], true)?;
                Ok([t[0].search_sorted(&t[1], false)?, up_to])
            });
        }
        // A row of sorted elements for each row of values.
        let rows = gpu.tensor(&[1_u32, 5, 2, 3], &[2, 2])?;
        let values = gpu.tensor(&[0_u32, 4, 9, 2, 3, 4], &[2, 3])?;
        gives!(u32: rows.search_sorted(&values, false) => [0, 1, 2, 0, 1, 2]);
        let none = gpu.zeros(&[0], DType::U32)?;
        gives!(u32: none.search_sorted(&values, true) => [0; 6]);
        refused!(Shape: rows.search_sorted(&none, true));
        let floats = values.cast(DType::F32)?;
        refused!(DType: rows.search_sorted(&floats, true));
    }
    Ok(())
}

#[test]
fn indices_are_drawn_as_often_as_their_weights_say() -> Result<()> {
    for gpu in each() {
        let given = [0.0, 3.0, 1.0, 0.0, 4.0, 0.0];
        let weights = gpu.tensor(&given.map(|weight| weight as f32), &[6])?;
        let count = 4_000;
        let check = |drawn: Vec<u32>, expected: &[f64; 6], how: &str| {
            let mut seen = [0.0; 6];
            drawn.iter().for_each(|&index| seen[index as usize] += 1.0);
            for (seen, share) in seen.into_iter().zip(expected) {
                let (mean, n) = (share * drawn.len() as f64, drawn.len() as f64);
                // Five standard deviations.
                let bound = 5.0 * (n * share * (1.0 - share)).sqrt();
                assert!((seen - mean).abs() <= bound, "{how}: {seen}, not {mean}");
            }
        };
        let drawn = weights.multinomial(count, true, 5)?;
        check(
            drawn.to_vec()?,
            &given.map(|weight| weight / 8.0),
            "replaced",
        );
        let again = weights.multinomial(count, true, 5)?;
        assert_eq!(drawn.to_vec::<u32>()?, again.to_vec::<u32>()?);
        assert_ne!(
            drawn.to_vec::<u32>()?,
            weights.multinomial(count, true, 6)?.to_vec::<u32>()?
        );
        // The first draws of many rows, and the second draws after a first one of 4.
        let rows = weights.broadcast_to(&[count, 6])?;
        let pairs = rows.multinomial(2, false, 9)?.to_vec::<u32>()?;
        let pairs: Vec<(u32, u32)> = pairs.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        assert!(pairs.iter().all(|(first, second)| first != second));
        let firsts = pairs.iter().map(|pair| pair.0).collect();
        check(firsts, &given.map(|weight| weight / 8.0), "first");
        let seconds = pairs.iter().filter(|pair| pair.0 == 4).map(|pair| pair.1);
        check(
            seconds.collect(),
            &[0.0, 0.75, 0.25, 0.0, 0.0, 0.0],
            "second",
        );
    }
    Ok(())
}

#[test]
fn what_has_no_weight_is_never_drawn() -> Result<()> {
    for gpu in each() {
        // Long enough for sums in blocks, whose rounding differs.
        let len = 20_000;
        let weights: Vec<f32> = (0..len)
            .map(|at| if at % 97 == 3 { 0.1 } else { 0.0 })
            .collect();
        let weights = gpu.tensor(&weights, &[1, len])?;
        for (drawn, how) in [
            (weights.multinomial(3000, true, 1)?, "replaced"),
            (weights.multinomial(200, false, 1)?, "once"),
        ] {
            let drawn = drawn.to_vec::<u32>()?;
            assert!(drawn.iter().all(|index| index % 97 == 3), "{how}");
        }
        // After two draws nothing is left, and the third element never had a weight.
        let few = gpu.tensor(&[0.0_f32, 2.0, 0.0, 1.0], &[4])?;
        let mut drawn = few.multinomial(4, false, 3)?.to_vec::<u32>()?;
        drawn.sort();
        assert_eq!(drawn, [1, 3, u32::MAX, u32::MAX]);
        let none = few.zeros_like()?;
        gives!(u32: none.multinomial(2, true, 3) => [u32::MAX; 2]);
        gives!(u32: none.multinomial(2, false, 3) => [u32::MAX; 2]);
        assert_eq!(few.multinomial(0, true, 3)?.shape(), [0]);
        assert_eq!(
            few.cast(DType::F16)?
                .reshape(&[2, 2])?
                .multinomial(3, true, 1)?
                .shape(),
            [2, 3]
        );
        refused!(Shape: few.multinomial(5, false, 3));
        refused!(Shape: few.reshape(&[1, 2, 2])?.multinomial(1, true, 3));
        let whole = few.cast(DType::I32)?;
        refused!(DType: whole.multinomial(1, true, 3));
    }
    Ok(())
}

#[test]
fn a_mask_without_dimensions_stands_for_a_new_axis() -> Result<()> {
    for gpu in each() {
        let x = counting(&gpu, &[2, 3])?;
        let [yes, no] = [gpu.scalar(true)?, gpu.scalar(false)?];
        let i = gpu.tensor(&[2_u32, 0], &[2])?;
        let all: Vec<i32> = (0..6).collect();
        // As x[True], x[False], x[:, True] and x[:, False, i].
        for (indices, shape, expected) in [
            (&[Some(&yes)][..], &[1, 2, 3][..], &all[..]),
            (&[Some(&no)], &[0, 2, 3], &[]),
            (&[None, Some(&yes)], &[2, 1, 3], &all),
            (&[None, Some(&yes), Some(&i)], &[2, 2], &[2, 0, 5, 3]),
            (&[Some(&yes), None, Some(&i)], &[2, 2], &[2, 5, 0, 3]),
            (&[Some(&yes), Some(&yes)], &[1, 2, 3], &all),
        ] {
            let got = x.index(indices)?;
            assert_eq!(got.shape(), shape);
            assert_eq!(got.to_vec::<i32>()?, expected);
        }
        refused!(Shape: x.index(&[None, Some(&no), Some(&i)]));
        let ten = gpu.scalar(10_i32)?;
        let put = x.index_put(&[Some(&yes), None, Some(&i)], &ten, true)?;
        assert_eq!(put.shape(), [2, 3]);
        assert_eq!(put.to_vec::<i32>()?, [10, 1, 12, 13, 4, 15]);
        let same = x.index_put(&[Some(&no)], &ten, false)?;
        assert_eq!(same.to_vec::<i32>()?, all);
        x.index_put_(&[Some(&no)], &ten, false)?;
        assert_eq!(x.to_vec::<i32>()?, all);
        x.t()?.index_put_(&[Some(&i), Some(&yes)], &ten, false)?;
        assert_eq!(x.to_vec::<i32>()?, [10, 1, 10, 10, 4, 10]);
        // Through the new axis, gradients go back to the old ones.
        let x = gpu.ones(&[2, 3], DType::F32)?.requires_grad()?;
        let gradients = x
            .index(&[Some(&yes), None, Some(&i)])?
            .sum_all()?
            .backward()?;
        let gradient = gradients.get(&x).expect("a gradient").to_vec::<f32>()?;
        assert_eq!(gradient, [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]);
        let old = x.copy()?;
        old.index_put_(&[Some(&yes)], &gpu.scalar(2.0_f32)?, false)?;
        let gradients = old.sum_all()?.backward()?;
        let gradient = gradients.get(&x).expect("a gradient").to_vec::<f32>()?;
        assert_eq!(gradient, [0.0; 6]);
    }
    Ok(())
}

#[test]
fn index_tensors_that_do_not_go_together_are_refused() -> Result<()> {
    for gpu in each() {
        let x = gpu.zeros(&[2, 3], DType::F32)?;
        let [two, three] = [gpu.zeros(&[2], DType::U32)?, gpu.zeros(&[3], DType::I32)?];
        refused!(Shape: x.index(&[Some(&two), Some(&three)]));
        refused!(Shape: x.index(&[None, None]));
        refused!(Shape: x.index(&[]));
        refused!(Shape: x.index(&[None, None, Some(&two)]));
        refused!(Shape: gpu.zeros(&[1; 8], DType::F32)?.index(&[Some(&two.reshape(&[2, 1])?)]));
        refused!(Shape: x.index_put(&[Some(&two)], &gpu.zeros(&[2, 2], DType::F32)?, false));
        refused!(DType: x.index(&[Some(&x)]));
        // A mask has the sizes of its axes.
        refused!(Shape: x.index(&[Some(&three.eq(0)?)]));
        refused!(DType: x.index_put(&[Some(&two)], &gpu.zeros(&[], DType::I32)?, false));
        let other = reference();
        let far = other.zeros(&[2], DType::U32)?;
        refused!(Foreign: x.index(&[Some(&far)]));
    }
    Ok(())
}
