//! Operations on two elements, and the choice between two.

use half::{bf16, f16};
use lapidary::internal::BinaryRow;
use lapidary::{DType, Gpu, Result, Tensor};

use crate::common::operands::numbers;
use crate::common::rows;
use crate::devices::{each, gives, gpus, reference, refused};
use crate::ops_elementwise::model::{Sample, check_all, samples, tensor, views};
use crate::ops_reduce::model::{all_same, same};

pub(crate) type Method = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Two shapes, and the shape to which they broadcast.
type Pair = (&'static [usize], &'static [usize], &'static [usize]);

const PAIRS: [Pair; 14] = [
    (&[0], &[0], &[0]),
    (&[0], &[1], &[0]),
    (&[], &[], &[]),
    (&[5], &[5], &[5]),
    (&[1000], &[], &[1000]),
    (&[1], &[64], &[64]),
    (&[7, 1500], &[1500], &[7, 1500]),
    (&[6, 8], &[6, 1], &[6, 8]),
    (&[6, 7], &[6, 1], &[6, 7]),
    (&[3, 1], &[1, 5], &[3, 5]),
    (&[4, 1], &[1, 8], &[4, 8]),
    (&[2, 1, 4, 1], &[3, 1, 4], &[2, 3, 4, 4]),
    (
        &[2, 1, 2, 1, 2, 1, 2, 1],
        &[1, 3, 1, 2, 1, 3, 1, 4],
        &[2, 3, 2, 2, 2, 3, 2, 4],
    ),
    (&[65, 4], &[65, 4], &[65, 4]),
];

/// The pairs to test for a type. Each needs a compilation. Types that are computed like another
/// type differ only in loads and stores, so a few pairs are enough.
pub(crate) fn pairs(dtype: DType) -> &'static [Pair] {
    match dtype {
        DType::Bf16 | DType::I8 => &PAIRS[6..9],
        _ => &PAIRS,
    }
}

/// An operation with its method.
pub(crate) type Case = (&'static BinaryRow, Method);

macro_rules! of_rows {
    ({ $($name:ident)* } { $($in_place:ident)* }) => {
        &[$((stringify!($name), |x, y| x.$name(y)),)*]
    };
}

const ROWS: &[(&str, Method)] = lapidary::binary_methods!(of_rows);

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    ROWS.iter()
        .map(|&(name, method)| (rows::binary(name), method))
}

/// Is the operation tested with this pair of shapes? Each needs a compilation. A kernel reads its
/// operands the same way whatever it computes. So a sum and a comparison, whose result has another
/// type, are tested with all pairs, and the others with one whose operands take several windows.
fn is_tested(name: &str, shape: &[usize]) -> bool {
    name == "add" || name == "lt" || shape == [7, 1500]
}

/// The absolute error of a result.
pub(crate) fn absolute(row: &BinaryRow, a: f32) -> f32 {
    match row.name {
        // Results from logarithms have their absolute error, even near 0.
        "xlogy" | "xlog1py" => 1e-6 * a.abs().min(1e30),
        _ => row.error[1],
    }
}

fn check_pairs<T: Sample>(device: &str, gpu: &Gpu, reference: &Gpu) -> Result<()> {
    let random = &mut fastrand::Rng::with_seed(3);
    for &(shape_a, shape_b, shape) in pairs(T::DTYPE) {
        let a = tensor::<T>(gpu, random, shape_a);
        let b = tensor::<T>(gpu, random, shape_b);
        let (far_a, far_b) = (a.to(reference)?, b.to(reference)?);
        let (x, y) = (
            numbers(&a.broadcast_to(shape)?)?,
            numbers(&b.broadcast_to(shape)?)?,
        );
        for (row, method) in cases() {
            if !row.accepts(T::DTYPE) || !is_tested(row.name, shape) {
                continue;
            }
            let (got, wanted) = (method(&a, &b)?, method(&far_a, &far_b)?);
            assert_eq!(got.shape(), shape);
            let what = format!("{} of {a} and {b} on {device}", row.name);
            let exact = numbers(&wanted)?;
            let error = |at: usize| {
                // If a result is near the largest f32, an intermediate may overflow.
                let is_defined = row.name != "pow" || exact[at].abs() <= 1e36;
                is_defined.then(|| [row.error[0], absolute(row, x[at] as f32)])
            };
            check_all(&what, &got, &wanted, error, |at| {
                format!("({}, {})", x[at], y[at])
            })?;
        }
    }
    Ok(())
}

macro_rules! operands_meet {
    ($($name:ident $type:ty;)*) => {$(
        #[test]
        fn $name() -> Result<()> {
            let reference = reference();
            let mut gpus = gpus().into_iter();
            gpus.try_for_each(|(device, gpu)| check_pairs::<$type>(device, &gpu, &reference))
        }
    )*};
}

operands_meet! {
    operands_of_f32_meet_in_every_shape f32;
    operands_of_f16_meet_in_every_shape f16;
    operands_of_bf16_meet_in_every_shape bf16;
    operands_of_i32_meet_in_every_shape i32;
    operands_of_u32_meet_in_every_shape u32;
    operands_of_u8_meet_in_every_shape u8;
    operands_of_i8_meet_in_every_shape i8;
    operands_of_bools_meet_in_every_shape bool;
}

/// What PyTorch does not define, or refuses.
#[test]
fn division_by_zero_and_the_least_number_are_defined() -> Result<()> {
    for gpu in each() {
        for dtype in [DType::I32, DType::U32, DType::U8, DType::I8] {
            let x = gpu.tensor(&[0_u8, 7, 100], &[3])?.cast(dtype)?;
            let zero = x.zeros_like()?;
            for kept in [&x / &zero, x.floor_divide(&zero)] {
                assert_eq!(numbers(&kept?)?, numbers(&x)?, "{dtype}");
            }
            for rest in [&x % &zero, x.remainder(&zero)] {
                assert_eq!(numbers(&rest?)?, [0.0; 3], "{dtype}");
            }
        }
        let least = gpu.tensor(&[i32::MIN; 4], &[4])?;
        let by = gpu.tensor(&[-1, 0, 1, 2], &[4])?;
        let halved = [i32::MIN, i32::MIN, i32::MIN, i32::MIN / 2];
        assert_eq!((&least / &by)?.to_vec::<i32>()?, halved);
        assert_eq!(least.floor_divide(&by)?.to_vec::<i32>()?, halved);
        gives!(i32: &least % &by => [0; 4]);
        gives!(i32: least.remainder(&by) => [0; 4]);
        let few = gpu.tensor(&[1, -1, -1, 0, 7, -7], &[6])?;
        let by = gpu.tensor(&[-3, -2, -3, -1, -1, -1], &[6])?;
        gives!(i32: few.pow(&by) => [1, 1, -1, 0, 0, 0]);
        let few = few.cast(DType::I8)?.pow(&by.cast(DType::I8)?)?;
        assert_eq!(few.to_vec::<i8>()?, [1, 1, -1, 0, 0, 0]);
    }
    Ok(())
}

#[test]
fn views_of_every_kind_meet() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        let random = &mut fastrand::Rng::with_seed(6);
        let [a, b] = [views::<u8>(&gpu, random)?, views::<u8>(&gpu, random)?];
        for (a, b) in a.iter().zip(&b) {
            let what = format!("{a} - {b}");
            same(&what, &reference, &[a, b], 0.0, |t| &t[0] - &t[1]);
        }
        let [a, b] = [views::<i32>(&gpu, random)?, views::<i32>(&gpu, random)?];
        for (a, b) in a.iter().zip(&b) {
            let row = tensor::<i32>(&gpu, random, &a.shape()[a.rank().min(1)..]);
            let what = format!("{a}, {b} and {row}");
            all_same(&what, &reference, &[a, b, &row], 0.0, |t| {
                let lesser = t[0].lt(&t[1])?.where_(&t[0], &t[1])?;
                Ok([(&t[0] + &t[2])?, lesser])
            });
        }
    }
    Ok(())
}

#[test]
fn where_broadcasts_all_three_and_takes_more_dimensions_than_its_parameters_hold() -> Result<()> {
    let bits = |t: Result<Tensor>| -> Result<Vec<u32>> {
        Ok(t?.to_vec::<f32>()?.iter().map(|x| x.to_bits()).collect())
    };
    let reference = reference();
    for gpu in each() {
        let random = &mut fastrand::Rng::with_seed(7);
        let c = tensor::<bool>(&gpu, random, &[2, 1, 2, 1, 2, 1, 2, 1]);
        let a = tensor::<f32>(&gpu, random, &[2, 3, 2, 2, 2, 3, 2, 2]);
        let a = a.permute(&[7, 6, 5, 4, 3, 2, 1, 0])?;
        let a = a.permute(&[7, 6, 5, 4, 3, 2, 1, 0])?;
        let b = tensor::<f32>(&gpu, random, &[3, 1, 2, 1, 3, 1, 2]);
        let [x, y, z] = [&c, &a, &b].map(|t| t.to(&reference).unwrap());
        assert_eq!(bits(c.where_(&a, &b))?, bits(x.where_(&y, &z))?);
    }
    Ok(())
}

#[test]
fn an_operand_of_one_element_is_read_where_it_is() -> Result<()> {
    for gpu in each() {
        let base = gpu.tensor(&[10.0_f32, 20.0, 30.0, 40.0], &[4])?;
        let one = base.select(0, 2)?;
        let x = gpu
            .tensor(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?
            .t()?;
        gives!(f32: x.mul(&one) => [30.0, 90.0, 150.0, 60.0, 120.0, 180.0]);
        let is_more = x.mul(&one)?.gt(&base.select(0, 3)?)?.to_vec::<bool>()?;
        assert_eq!(is_more, [false, true, true, true, true, true]);
        x.add_(&one)?;
        let sum = [31.0, 33.0, 35.0, 32.0, 34.0, 36.0];
        assert_eq!(x.to_vec::<f32>()?, sum);
    }
    Ok(())
}

#[test]
fn numbers_take_the_place_of_tensors_on_either_side() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[1.0_f32, 2.0, 4.0], &[3])?;
        gives!(f32: &x * 2.0 => [2.0, 4.0, 8.0]);
        gives!(f32: 8.0 / &x => [8.0, 4.0, 2.0]);
        gives!(f32: 1 - &x => [0.0, -1.0, -3.0]);
        gives!(f32: -&x => [-1.0, -2.0, -4.0]);
        gives!(f32: x.pow(2) => [1.0, 4.0, 16.0]);
        assert_eq!(x.pow(0.5)?.to_vec::<f32>()?[2], 2.0);
        gives!(f32: x.maximum(1.5) => [1.5, 2.0, 4.0]);
        gives!(bool: x.ge(2) => [false, true, true]);
        let chain = ((&x + &x)? + &x)?.relu()?;
        assert_eq!(chain.to_vec::<f32>()?, [3.0, 6.0, 12.0]);
        let n = gpu.tensor(&[7_u8, 255], &[2])?;
        gives!(u8: n.add(1) => [8, 0]);
        refused!(DType: n.add(256));
        refused!(DType: &n * 0.5);
        // A little more than half a step above 1 is rounded up.
        let above = |step: i32| 1.0 + 2_f64.powi(step - 1) + 2_f64.powi(-22);
        let halves = gpu.zeros(&[1], DType::F16)?.add(above(-10))?;
        assert_eq!(
            halves.to_vec::<f16>()?,
            [f16::from_f32(1.0 + 2_f32.powi(-10))]
        );
        let halves = gpu.zeros(&[1], DType::Bf16)?.add(above(-7))?;
        assert_eq!(
            halves.to_vec::<bf16>()?,
            [bf16::from_f32(1.0 + 2_f32.powi(-7))]
        );
    }
    Ok(())
}

#[test]
fn operands_that_do_not_go_together_are_refused() -> Result<()> {
    for gpu in each() {
        let random = &mut fastrand::Rng::with_seed(8);
        let a = tensor::<f32>(&gpu, random, &[4]);
        let b = tensor::<f16>(&gpu, random, &[4]);
        let c = tensor::<f32>(&gpu, random, &[3]);
        let d = tensor::<bool>(&gpu, random, &[4]);
        let mixed = a.add(&b).expect_err("two types");
        assert!(mixed.to_string().contains("cast"), "{mixed}");
        refused!(Shape: a.add(&c));
        refused!(DType: d.add(&d));
        refused!(DType: a.bitwise_and(&a));
        refused!(DType: d.left_shift(&d));
        refused!(DType: a.where_(&a, &a));
        let other = reference();
        let far = other.tensor(&samples::<f32>(random, 4), &[4])?;
        refused!(Foreign: a.add(&far));
    }
    Ok(())
}
