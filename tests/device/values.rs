//! Elements: uploads and reads in every type, single elements, views, and writes in place.

use half::{bf16, f16};
use lapidary::{DType, Element, Error, Gpu, Result, Tensor};

use super::{assert_close, everyday, floats, gpu, ramp};

/// Uploads and reads back odd lengths, also through a copy on the device.
fn check_round_trip<T: Element>(gpu: &Gpu, value: impl Fn(usize) -> T) -> Result<()> {
    for len in [0, 1, 2, 3, 4, 5, 17, 1000, 70_001] {
        let data: Vec<T> = (0..len).map(&value).collect();
        let tensor = gpu.tensor(&data, &[len])?;
        assert_eq!(tensor.dtype(), T::DTYPE);
        assert_eq!(tensor.to_vec::<T>()?, data, "{} x {len}", T::DTYPE);
        assert_eq!(tensor.copy()?.to_vec::<T>()?, data, "{} x {len}", T::DTYPE);
        let backwards: Vec<T> = data.iter().rev().copied().collect();
        let flipped = tensor.flip(&[0])?;
        assert_eq!(flipped.to_vec::<T>()?, backwards, "{} x {len}", T::DTYPE);
        assert_eq!(flipped.contiguous()?.to_vec::<T>()?, backwards);
    }
    Ok(())
}

#[test]
fn every_type_comes_back_as_it_went_whatever_its_length() -> Result<()> {
    let gpu = gpu();
    check_round_trip(&gpu, |i| i as f32 * 0.25 - 3.0)?;
    check_round_trip(&gpu, |i| f16::from_f32((i % 2048) as f32))?;
    check_round_trip(&gpu, |i| i as i32 - 500)?;
    check_round_trip(&gpu, |i| u32::MAX - i as u32)?;
    check_round_trip(&gpu, |i| i as u8)?;
    check_round_trip(&gpu, |i| i as i8)?;
    check_round_trip(&gpu, |i| bf16::from_f32((i % 256) as f32))?;
    check_round_trip(&gpu, |i| i % 3 == 0)
}

#[test]
fn special_floats_survive_the_way() -> Result<()> {
    let gpu = gpu();
    let bits = [
        0,
        1 << 31,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0001,
        0x0000_0001,
    ];
    let data = bits.map(f32::from_bits);
    let back = floats(&gpu.tensor(&data, &[6])?);
    assert_eq!(back.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), bits);
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let back = gpu.tensor(&halves, &[halves.len()])?.to_vec::<f16>()?;
    assert!(
        back.iter()
            .zip(&halves)
            .all(|(a, b)| a.to_bits() == b.to_bits())
    );
    Ok(())
}

#[test]
fn a_single_number_and_no_number_at_all_are_tensors() -> Result<()> {
    let gpu = gpu();
    let one = gpu.scalar(4.0_f32)?;
    assert_eq!((one.rank(), one.sqrt()?.item::<f32>()?), (0, 2.0));
    for shape in [&[0][..], &[3, 0], &[0, 5]] {
        let none = gpu.zeros(shape, DType::F32)?;
        assert!((&none + &none)?.exp()?.to_vec::<f32>()?.is_empty());
        assert_eq!(none.sum_all()?.item::<f32>()?, 0.0);
    }
    Ok(())
}

#[test]
fn every_family_computes() -> Result<()> {
    everyday::run(&gpu())
}

#[test]
fn shapes_broadcast_as_in_numpy() -> Result<()> {
    let gpu = gpu();
    let column = gpu.tensor(&ramp(0, 5), &[5, 1])?;
    let row = gpu.tensor(&ramp(0, 7), &[7])?;
    let table: Vec<f32> = (0..35).map(|i| (i / 7 * 10 + i % 7) as f32).collect();
    let sum = (&(&column * 10.0)? + &row)?;
    assert_eq!(sum.shape(), [5, 7]);
    assert_eq!(floats(&sum), table);
    let deep = gpu.tensor(&ramp(0, 2), &[2, 1, 1])?;
    let got = (&deep * &sum)?;
    assert_eq!(got.shape(), [2, 5, 7]);
    assert_eq!(floats(&got), [vec![0.0; 35], table].concat());
    assert!(matches!(column.t()?.add(&row), Err(Error::Shape { .. })));
    Ok(())
}

#[test]
fn views_are_operands_like_any_other() -> Result<()> {
    let gpu = gpu();
    let x = gpu.tensor(&ramp(0, 60), &[3, 4, 5])?;
    let views: [Tensor; 6] = [
        x.permute(&[2, 0, 1])?,
        x.flip(&[0, 2])?,
        x.slice(2, 1, None, 2)?,
        x.narrow(1, 1, 2)?,
        x.select(0, -1)?,
        x.select(1, 2)?.unsqueeze(1)?.broadcast_to(&[3, 6, 5])?,
    ];
    for view in views {
        let expected: Vec<f32> = floats(&view).iter().map(|x| 2.0 * x + 1.0).collect();
        let computed = (&(&view + &view)? + 1.0)?;
        assert!(computed.is_contiguous());
        assert_eq!(computed.shape(), view.shape());
        assert_eq!(floats(&computed), expected, "{view:?}");
    }
    Ok(())
}

#[test]
fn nan_goes_through_and_bounds_hold() -> Result<()> {
    let gpu = gpu();
    let x = gpu.tensor(&[f32::NAN, -2.0, 0.5, f32::INFINITY], &[4])?;
    let expected = [f32::NAN, 0.0, 0.5, f32::INFINITY];
    assert_close(&floats(&x.relu()?), &expected);
    assert_close(&floats(&x.clamp(-1.0, 1.0)?), &[f32::NAN, -1.0, 0.5, 1.0]);
    assert!(x.max_all()?.item::<f32>()?.is_nan());
    assert_eq!(x.is_nan()?.to_vec::<bool>()?, [true, false, false, false]);
    assert_eq!(x.is_finite()?.to_vec::<bool>()?, [false, true, true, false]);
    Ok(())
}

#[test]
fn integers_wrap_and_narrow_types_keep_their_width() -> Result<()> {
    let gpu = gpu();
    let bytes = gpu.tensor(&[250_u8, 251, 252, 253, 254, 255, 0], &[7])?;
    assert_eq!((&bytes + 3)?.to_vec::<u8>()?, [253, 254, 255, 0, 1, 2, 3]);
    let bytes = gpu.tensor(&[125_i8, 126, 127, -128, -2], &[5])?;
    assert_eq!((&bytes + 3)?.to_vec::<i8>()?, [-128, -127, -126, -125, 1]);
    assert_eq!((&bytes / 2)?.to_vec::<i8>()?, [62, 63, 63, -64, -1]);
    let words = gpu.tensor(&[i32::MAX, i32::MIN, -7], &[3])?;
    assert_eq!((&words + 1)?.to_vec::<i32>()?, [i32::MIN, i32::MIN + 1, -6]);
    assert_eq!(
        (&words / 2)?.to_vec::<i32>()?,
        [i32::MAX / 2, i32::MIN / 2, -3]
    );
    let halves = gpu.full(&[5], 1.0, DType::F16)?;
    let thirds = (&halves / 3.0)?.to_vec::<f16>()?;
    assert_eq!(thirds, [f16::from_f32(1.0 / 3.0); 5]);
    let upper = gpu.full(&[5], 1.0, DType::Bf16)?;
    let thirds = (&upper / 3.0)?.to_vec::<bf16>()?;
    assert_eq!(thirds, [bf16::from_f32(1.0 / 3.0); 5]);
    Ok(())
}

#[test]
fn writes_in_place_are_seen_through_every_view() -> Result<()> {
    let gpu = gpu();
    let x = gpu.tensor(&ramp(0, 12), &[3, 4])?;
    let (rows, columns) = (x.narrow(0, 1, 2)?, x.t()?);
    x.add_(100.0)?;
    rows.mul_(2.0)?;
    x.slice(1, None, None, 2)?.fill_(0.0)?;
    let mut expected = ramp(100, 12);
    for value in &mut expected[4..] {
        *value *= 2.0;
    }
    for value in expected.iter_mut().step_by(2) {
        *value = 0.0;
    }
    assert_eq!(floats(&x), expected);
    let transposed: Vec<f32> = (0..12).map(|i| expected[i % 3 * 4 + i / 3]).collect();
    assert_eq!(floats(&columns), transposed);
    x.select(0, 0)?.write(&[9.0_f32; 4])?;
    assert_eq!(floats(&x)[..5], [9.0, 9.0, 9.0, 9.0, 0.0]);
    Ok(())
}

#[test]
fn an_operand_that_is_written_is_read_before() -> Result<()> {
    let gpu = gpu();
    let x = gpu.tensor(&ramp(1, 9), &[3, 3])?;
    x.add_(&x.t()?)?;
    assert_eq!(
        floats(&x),
        [2.0, 6.0, 10.0, 6.0, 10.0, 14.0, 10.0, 14.0, 18.0]
    );
    let line = gpu.tensor(&ramp(0, 8), &[8])?;
    line.narrow(0, 1, 7)?.copy_(&line.narrow(0, 0, 7)?)?;
    assert_eq!(floats(&line), [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    line.copy_(&line.flip(&[0])?)?;
    assert_eq!(floats(&line), [6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0, 0.0]);
    Ok(())
}

#[test]
fn a_view_in_which_two_indices_name_one_element_is_not_written() -> Result<()> {
    let gpu = gpu();
    let x = gpu.zeros(&[3, 1], DType::F32)?;
    let broadcast = x.broadcast_to(&[3, 4])?;
    assert!(matches!(broadcast.add_(1.0), Err(Error::Shape { .. })));
    assert!(matches!(
        broadcast.write(&[1.0_f32; 12]),
        Err(Error::Shape { .. })
    ));
    assert_eq!(floats(&x), [0.0; 3]);
    Ok(())
}
