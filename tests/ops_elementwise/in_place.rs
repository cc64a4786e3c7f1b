//! Writes through views leave other elements unchanged.

use half::{bf16, f16};
use lapidary::{Error, Gpu, Result, Tensor};

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

/// Runs `write` on a view of a tensor, and the same by hand on its elements.
fn check<T: Sample>(
    device: &str,
    gpu: &Gpu,
    random: &mut fastrand::Rng,
    write: impl Fn(&Tensor, &Tensor) -> Result<()>,
    model: impl Fn(T, T) -> T,
) -> Result<()> {
    for (which, view) in VIEWS.iter().enumerate() {
        let x = tensor::<T>(gpu, random, &[6, 10, 8]);
        // Indices seen through the same view say which elements are written.
        let numbers: Vec<i32> = (0..480).collect();
        let numbers = view(&gpu.tensor(&numbers, &[6, 10, 8])?)?.to_vec::<i32>()?;
        let mut wanted = x.to_vec::<T>()?;
        let target = view(&x)?;
        let other = tensor::<T>(gpu, random, target.shape());
        for (number, value) in numbers.iter().zip(other.to_vec::<T>()?) {
            let element = &mut wanted[*number as usize];
            *element = model(*element, value);
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
    Ok(())
}

#[test]
fn copies_go_through_views_of_every_kind_and_width() -> Result<()> {
    for (device, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(20);
        check::<f32>(device, &gpu, random, Tensor::copy_, |_, new| new)?;
        check::<f16>(device, &gpu, random, Tensor::copy_, |_, new| new)?;
        check::<bf16>(device, &gpu, random, Tensor::copy_, |_, new| new)?;
        check::<u8>(device, &gpu, random, Tensor::copy_, |_, new| new)?;
        check::<i8>(device, &gpu, random, Tensor::copy_, |_, new| new)?;
        check::<bool>(device, &gpu, random, Tensor::copy_, |_, new| new)?;
    }
    Ok(())
}

#[test]
fn arithmetic_in_place_writes_the_view_and_nothing_else() -> Result<()> {
    for (device, gpu) in gpus() {
        let random = &mut fastrand::Rng::with_seed(21);
        check::<u8>(
            device,
            &gpu,
            random,
            |x: &Tensor, y: &Tensor| x.add_(y),
            u8::wrapping_add,
        )?;
        check::<i8>(
            device,
            &gpu,
            random,
            |x: &Tensor, y: &Tensor| x.add_(y),
            i8::wrapping_add,
        )?;
        check::<i32>(
            device,
            &gpu,
            random,
            |x: &Tensor, y: &Tensor| x.mul_(y),
            i32::wrapping_mul,
        )?;
        check::<f32>(
            device,
            &gpu,
            random,
            |x: &Tensor, y: &Tensor| x.sub_(y),
            |a, b| a - b,
        )?;
        let sum = |a: f16, b: f16| f16::from_f32(a.to_f32() + b.to_f32());
        check::<f16>(
            device,
            &gpu,
            random,
            |x: &Tensor, y: &Tensor| x.add_(y),
            sum,
        )?;
        let relu = |x: &Tensor, _: &Tensor| x.relu_();
        check::<i32>(device, &gpu, random, relu, |a, _| a.max(0))?;
        let fill = |x: &Tensor, _: &Tensor| x.fill_(7);
        check::<u8>(device, &gpu, random, fill, |_, _| 7)?;
        check::<u32>(device, &gpu, random, fill, |_, _| 7)?;
        let fill = |x: &Tensor, _: &Tensor| x.fill_(true);
        check::<bool>(device, &gpu, random, fill, |_, _| true)?;
        let more = |x: &Tensor, _: &Tensor| x.add_(3);
        check::<u8>(device, &gpu, random, more, |a, _| a.wrapping_add(3))?;
        let clamp = |x: &Tensor, _: &Tensor| x.clamp_(-5, 5);
        check::<i32>(device, &gpu, random, clamp, |a, _| a.clamp(-5, 5))?;
        check::<i32>(
            device,
            &gpu,
            random,
            |x: &Tensor, y: &Tensor| x.bitwise_xor_(y),
            |a, b| a ^ b,
        )?;
        let less = |x: &Tensor, _: &Tensor| x.right_shift_(2);
        check::<u8>(device, &gpu, random, less, |a, _| a >> 2)?;
        let rest = |x: &Tensor, _: &Tensor| x.remainder_(5);
        check::<i32>(device, &gpu, random, rest, |a, _| a.rem_euclid(5))?;
        let floor = |x: &Tensor, _: &Tensor| x.floor_();
        check::<f32>(device, &gpu, random, floor, |a, _| a.floor())?;
    }
    Ok(())
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
