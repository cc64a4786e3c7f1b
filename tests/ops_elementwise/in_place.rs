//! Writes through views give what the copying forms give, and leave other elements unchanged.

use half::{bf16, f16};
use lapidary::{Error, Result, Tensor};

use crate::devices::{each, gpus, refused};
use crate::ops_elementwise::model::{Sample, alike, tensor};

/// Makes a view of a tensor of shape `[6, 10, 8]`.
type View = fn(&Tensor) -> Result<Tensor>;

const VIEWS: [View; 18] = [
    |x| Ok(x.clone()),
    |x| x.view_as(&[480])?.narrow(0, 0, 5),
    |x| x.view_as(&[480])?.narrow(0, 4, 7),
    |x| x.view_as(&[480])?.narrow(0, 1, 6),
    |x| x.view_as(&[480])?.narrow(0, 3, 1),
    |x| x.view_as(&[480])?.slice(0, Some(2), None, 3),
    |x| x.view_as(&[480])?.slice(0, None, None, -5),
    |x| x.view_as(&[480])?.narrow(0, 7, 0),
    |x| x.narrow(1, 3, 2),
    |x| x.narrow(2, 2, 5),
    |x| x.narrow(2, 4, 4),
    |x| x.narrow(2, 7, 1),
    |x| x.permute(&[2, 0, 1]),
    |x| x.flip(&[0, 2]),
    |x| x.select(2, 3),
    |x| x.select(1, -1),
    |x| {
        x.narrow(2, 1, 3)?
            .slice(1, None, None, -3)?
            .permute(&[1, 2, 0])
    },
    |x| x.narrow(2, 0, 1)?.narrow(1, 0, 1),
];

/// Runs `write` on each view of a tensor of random elements, and `make` on a copy of the view. Both
/// give the same, and the other elements of the tensor stay.
fn check<T: Sample>(
    write: impl Fn(&Tensor, &Tensor) -> Result<()>,
    make: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<()> {
    for (device, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(20);
        // Indices seen through the same view say which elements are written.
        let numbers = gpu.tensor(&(0..480).collect::<Vec<i32>>(), &[6, 10, 8])?;
        for (which, view) in VIEWS.iter().enumerate() {
            let x = tensor::<T>(&gpu, random, &[6, 10, 8]);
            let mut wanted = x.to_vec::<T>()?;
            let target = view(&x)?;
            let other = tensor::<T>(&gpu, random, target.shape());
            let made = make(&target.copy()?, &other)?.to_vec::<T>()?;
            for (number, made) in view(&numbers)?.to_vec::<i32>()?.iter().zip(made) {
                wanted[*number as usize] = made;
            }
            let before = x.version();
            write(&target, &other)?;
            assert!(x.version() > before || target.is_empty(), "view {which}");
            let got = x.to_vec::<T>()?;
            assert!(
                alike(&got, &wanted),
                "view {which} of {} on {device}: {got:?}, not {wanted:?}",
                T::DTYPE
            );
        }
    }
    Ok(())
}

#[test]
fn copies_go_through_views_of_every_kind_and_width() -> Result<()> {
    fn check<T: Sample>() -> Result<()> {
        self::check::<T>(Tensor::copy_, |_, new| Ok(new.clone()))
    }
    check::<f32>()?;
    check::<f16>()?;
    check::<bf16>()?;
    check::<u8>()?;
    check::<i8>()?;
    check::<bool>()
}

#[test]
fn arithmetic_in_place_writes_the_view_and_nothing_else() -> Result<()> {
    check::<u8>(|x, y| x.add_(y), |x, y| x.add(y))?;
    check::<i8>(|x, y| x.add_(y), |x, y| x.add(y))?;
    check::<f16>(|x, y| x.add_(y), |x, y| x.add(y))?;
    check::<i32>(|x, y| x.mul_(y), |x, y| x.mul(y))?;
    check::<f32>(|x, y| x.sub_(y), |x, y| x.sub(y))?;
    check::<i32>(|x, y| x.bitwise_xor_(y), |x, y| x.bitwise_xor(y))?;
    check::<i32>(|x, _| x.relu_(), |x, _| x.relu())?;
    check::<f32>(|x, _| x.floor_(), |x, _| x.floor())?;
    check::<u8>(|x, _| x.fill_(7), |x, _| x.full_like(7))?;
    check::<u32>(|x, _| x.fill_(7), |x, _| x.full_like(7))?;
    check::<bool>(|x, _| x.fill_(true), |x, _| x.full_like(true))?;
    check::<u8>(|x, _| x.add_(3), |x, _| x.add(3))?;
    check::<u8>(|x, _| x.right_shift_(2), |x, _| x.right_shift(2))?;
    check::<i32>(|x, _| x.clamp_(-5, 5), |x, _| x.clamp(-5, 5))?;
    check::<i32>(|x, _| x.remainder_(5), |x, _| x.remainder(5))
}

#[test]
fn an_operand_that_shares_the_storage_is_read_before_it_is_written() -> Result<()> {
    for gpu in each() {
        for len in [8, 64, 1001] {
            let data: Vec<i32> = (0..len).collect();
            let x = gpu.tensor(&data, &[data.len()])?;
            x.add_(&x.flip(&[0])?)?;
            assert_eq!(x.to_vec::<i32>()?, vec![len - 1; data.len()]);
            let x = gpu.tensor(&data, &[data.len()])?;
            let (front, back) = (data.len() as isize - 1, data.len());
            x.narrow(0, 1, back - 1)?
                .copy_(&x.narrow(0, 0, back - 1)?)?;
            let mut wanted = data.clone();
            wanted.copy_within(..front as usize, 1);
            assert_eq!(x.to_vec::<i32>()?, wanted);
            let x = gpu.tensor(&data, &[data.len()])?;
            x.mul_(&x)?;
            let squares: Vec<i32> = data.iter().map(|x| x * x).collect();
            assert_eq!(x.to_vec::<i32>()?, squares);
            let x = gpu.tensor(&data, &[data.len()])?;
            x.add_(&x.narrow(0, 3, 1)?)?;
            let more: Vec<i32> = data.iter().map(|x| x + 3).collect();
            assert_eq!(x.to_vec::<i32>()?, more);
        }
        let x = gpu.tensor(&(0..16).collect::<Vec<i32>>(), &[4, 4])?;
        x.copy_(&x.t()?)?;
        assert_eq!(x.to_vec::<i32>()?[..6], [0, 4, 8, 12, 1, 5]);
    }
    Ok(())
}

#[test]
fn smaller_operands_broadcast_into_the_view() -> Result<()> {
    for gpu in each() {
        let x = gpu.zeros(&[3, 4], lapidary::DType::F32)?;
        x.copy_(&gpu.tensor(&[1.0_f32, 2.0, 3.0], &[3, 1])?)?;
        x.add_(&gpu.tensor(&[0.1_f32, 0.2, 0.3, 0.4], &[4])?)?;
        assert_eq!(x.to_vec::<f32>()?[4..8], [2.1, 2.2, 2.3, 2.4]);
        x.t()?.copy_(&gpu.tensor(&[7.0_f32, 8.0, 9.0], &[3])?)?;
        assert_eq!(x.to_vec::<f32>()?[3..6], [7.0, 8.0, 8.0]);
        let wide = gpu.zeros(&[2, 3, 4], lapidary::DType::F32)?;
        refused!(Shape: x.add_(&wide));
    }
    Ok(())
}

#[test]
fn views_that_name_an_element_twice_are_refused() -> Result<()> {
    for gpu in each() {
        let x = gpu.zeros(&[4, 1], lapidary::DType::F32)?;
        let wide = x.broadcast_to(&[4, 3])?;
        for result in [wide.add_(&x), wide.copy_(&x), wide.fill_(1), wide.relu_()] {
            let error = result.expect_err("several indices name one element");
            assert!(matches!(error, Error::Shape { .. }), "{error}");
        }
        refused!(DType: x.add_(&x.cast(lapidary::DType::I32)?));
    }
    Ok(())
}
