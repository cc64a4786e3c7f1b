//! The collective operations, against plain loops on the host.

use half::{bf16, f16};
use lapidary::devices::{Group, Reduce};
use lapidary::{DType, Element, Result, Tensor};

use super::groups;

/// Numbers whose sum depends on its order.
fn values(device: usize, len: usize) -> Vec<f32> {
    let value = |at: usize| {
        let small = ((at * 7 + device * 31) % 97) as f32 / 7.0 - 5.0;
        match (at + device) % 3 {
            0 => small * 1e7,
            _ => small,
        }
    };
    (0..len).map(value).collect()
}

fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|float| float.to_bits()).collect()
}

/// The elements of each tensor are these.
#[track_caller]
fn assert_all<T: Element + PartialEq>(name: &str, tensors: &[Tensor], expected: &[T]) {
    for (device, tensor) in tensors.iter().enumerate() {
        let got = tensor.to_vec::<T>().expect("it has a value");
        assert!(got == expected, "{name}, device {device}");
    }
}

#[test]
fn a_sum_has_the_order_of_the_devices_and_the_same_bits_on_all() -> Result<()> {
    for (name, gpus) in groups(3) {
        let group = Group::new(&gpus)?;
        for len in [0, 1, 1001, (1 << 20) + 5] {
            let parts: Vec<Vec<f32>> = (0..3).map(|device| values(device, len)).collect();
            let tensors: Vec<Tensor> = (gpus.iter().zip(&parts))
                .map(|(gpu, part)| gpu.tensor(part, &[len]))
                .collect::<Result<_>>()?;
            let sum = |at: usize| (parts[0][at] + parts[1][at]) + parts[2][at];
            let sums: Vec<f32> = (0..len).map(sum).collect();
            let means: Vec<f32> = sums.iter().map(|sum| sum / 3.0).collect();
            for (reduce, expected) in [(Reduce::Sum, &sums), (Reduce::Mean, &means)] {
                for tensor in group.all_reduce(&tensors, reduce)? {
                    let got = tensor.to_vec::<f32>()?;
                    assert!(bits(&got) == bits(expected), "{name}, {reduce:?}, {len}");
                }
            }
            for (tensor, part) in tensors.iter().zip(&parts) {
                assert!(
                    tensor.to_vec::<f32>()? == *part,
                    "{name}: an operand changed"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn halves_are_added_in_f32_and_integers_wrap_around() -> Result<()> {
    for (name, gpus) in groups(3) {
        let group = Group::new(&gpus)?;
        let of = |value: [f32; 3], dtype: DType| -> Result<Vec<Tensor>> {
            let full = |(gpu, value): (&lapidary::Gpu, f32)| gpu.full(&[1001], value, dtype);
            group.all_reduce(
                &gpus
                    .iter()
                    .zip(value)
                    .map(full)
                    .collect::<Result<Vec<_>>>()?,
                Reduce::Sum,
            )
        };
        // Each 1 alone would be rounded away.
        let sum = of([2048.0, 1.0, 1.0], DType::F16)?;
        assert_all(name, &sum, &[f16::from_f32(2050.0); 1001]);
        let sum = of([256.0, 1.0, 1.0], DType::Bf16)?;
        assert_all(name, &sum, &[bf16::from_f32(258.0); 1001]);
        let words: Vec<Tensor> = (gpus.iter().zip([u32::MAX, 2, 5]))
            .map(|(gpu, word)| gpu.full(&[7], word, DType::U32))
            .collect::<Result<_>>()?;
        assert_all(name, &group.all_reduce(&words, Reduce::Sum)?, &[6_u32; 7]);
    }
    Ok(())
}

#[test]
fn broadcast_gather_and_scatter_give_each_device_its_part() -> Result<()> {
    for (name, gpus) in groups(3) {
        let group = Group::new(&gpus)?;
        let rows: Vec<Vec<i32>> = (0..3).map(|d| (100 * d..100 * d + 4).collect()).collect();
        let tensors: Vec<Tensor> = (gpus.iter().zip(&rows))
            .map(|(gpu, row)| gpu.tensor(row, &[2, 2])?.t())
            .collect::<Result<_>>()?;

        let copies = group.broadcast(&tensors[1])?;
        assert_all(name, &copies, &[100, 102, 101, 103]);
        let flags = gpus[2].tensor(&[true, false, true], &[3])?;
        assert_all(name, &group.broadcast(&flags)?, &[true, false, true]);

        let all = group.all_gather(&tensors, 0)?;
        let expected: Vec<i32> = [0, 100, 200].map(|d| [d, d + 2, d + 1, d + 3]).concat();
        assert_all(name, &all, &expected);
        let wide = group.all_gather(&tensors, -1)?;
        assert_all(
            name,
            &wide,
            &[0, 2, 100, 102, 200, 202, 1, 3, 101, 103, 201, 203],
        );

        let parts = group.reduce_scatter(&tensors, 1, Reduce::Sum)?;
        let shapes: Vec<&[usize]> = parts.iter().map(Tensor::shape).collect();
        assert_eq!(shapes, [[2, 1], [2, 1], [2, 0]], "{name}");
        assert_eq!(parts[0].to_vec::<i32>()?, [300, 303], "{name}");
        assert_eq!(parts[1].to_vec::<i32>()?, [306, 309], "{name}");
        for (part, gpu) in parts.iter().zip(&gpus) {
            assert!(
                part.to(gpu)?.shares_storage_with(part),
                "{name}: on its device"
            );
        }
    }
    Ok(())
}

#[test]
fn a_group_of_one_device_gives_what_it_got() -> Result<()> {
    for (name, gpus) in groups(1) {
        let group = Group::new(&gpus)?;
        let x = [gpus[0].tensor(&[1.0_f32, -0.0, f32::NAN], &[3])?];
        for reduced in [
            group.all_reduce(&x, Reduce::Mean)?,
            group.reduce_scatter(&x, 0, Reduce::Sum)?,
            group.all_gather(&x, 0)?,
            group.broadcast(&x[0])?,
        ] {
            let got = reduced[0].to_vec::<f32>()?;
            assert_eq!(bits(&got)[..2], bits(&[1.0, -0.0]), "{name}");
            assert!(got[2].is_nan(), "{name}");
        }
    }
    Ok(())
}
