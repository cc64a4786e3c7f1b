//! The generated text is valid on every API, and its name is the formula.

use std::collections::HashMap;

use crate::ops::families;
use crate::ops::fill::full;
use crate::tensor::Tensor;
use lapidary_core::internal::{Engine, Handle, block_on};
use lapidary_core::sim::SimOptions;
use lapidary_core::{DType, Gpu, Result};
use lapidary_testing::translate;

fn engine(options: SimOptions) -> Handle<Engine> {
    let (gpu, _) = Gpu::simulated(options).expect("the options go together");
    gpu.engine()
        .here()
        .fuse_with(super::fuse(&gpu.engine().here()));
    gpu.engine().clone()
}

fn tensor(engine: &Handle<Engine>, shape: &[usize], dtype: DType) -> Tensor {
    let tensor = Tensor::output(engine, shape, dtype).expect("room");
    tensor.clear_storage().expect("a device");
    tensor
}

/// The names and shaders of the kernels that `work` is fused to. Checks that the shaders are valid
/// everywhere.
fn kernels(dtype: DType, work: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>) -> Vec<(String, String)> {
    let mut names = Vec::new();
    // With one window an operand, and with several.
    for max_binding_bytes in [128 << 20, 256] {
        let engine = engine(SimOptions {
            max_binding_bytes,
            ..SimOptions::default()
        });
        let [a, row, column] =
            [&[6, 8][..], &[8], &[6, 1]].map(|shape| tensor(&engine, shape, dtype));
        let odd = tensor(&engine, &[7, 5], dtype);
        let made = work(&[a, row, column, odd]).expect("shapes that fit");
        block_on("a test", engine.here().finish()).expect("a device");
        drop(made);
        for kernel in engine.here().fused() {
            let shader = kernel.shader.get().expect("it was compiled");
            translate(&kernel.name, shader);
            names.push((kernel.name.clone(), shader.clone()));
        }
    }
    names
}

#[test]
fn every_type_and_map_gives_a_valid_shader() {
    for dtype in DType::ALL {
        let count = kernels(dtype, |x| {
            let (a, row, column, odd) = (&x[0], &x[1], &x[2], &x[3]);
            let is_more = a.gt(row)?;
            let whole = is_more.where_(&a.cast(DType::F32)?, &column.cast(DType::F32)?)?;
            let turned = odd.t()?.eq(&odd.t()?.copy()?)?.logical_not()?;
            let part = tensor(&a.engine, &[6, 8], dtype);
            part.narrow(0, 1, 3)?
                .copy_(&a.narrow(0, 2, 3)?.cast(DType::I32)?.cast(dtype)?)?;
            Ok(vec![whole.exp()?.cast(dtype)?, turned, part, is_more])
        });
        assert!(count.len() >= 4, "{dtype}: {count:?}");
    }
}

#[test]
fn every_reader_takes_every_map_and_type_in_a_valid_shader() {
    for dtype in [DType::F32, DType::I32, DType::U8, DType::Bf16, DType::I8] {
        let made = kernels(dtype, |x| {
            let (a, row, column, odd) = (&x[0], &x[1], &x[2], &x[3]);
            let sum = || a + row;
            let turned = || (odd + 1)?.t();
            let mut made = vec![
                sum()?.sum(&[1])?,
                sum()?.max(&[0])?,
                turned()?.min(&[1])?,
                turned()?.sum(&[])?,
                (a - column)?.argmax(1)?,
                (column * a)?.argmin(0)?,
            ];
            if dtype.is_float() {
                made.extend([
                    sum()?.softmax(1)?,
                    turned()?.softmax(-1)?,
                    sum()?.log_softmax(1)?,
                    sum()?.layer_norm(&[8], Some(row), None, 1e-5)?,
                    (a * row)?.layer_norm(&[8], None, None, 1e-5)?,
                    sum()?.exp()?.mean(&[1])?,
                ]);
            }
            Ok(made)
        });
        let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
        assert!(
            names.contains(&"sum(a + b)") && names.contains(&"argreduce(a - b)"),
            "{names:?}"
        );
    }
}

#[test]
fn every_reader_is_gone_on_with_in_a_valid_shader_of_every_type() {
    for dtype in [DType::F32, DType::I32, DType::U8, DType::Bf16, DType::I8] {
        let made = kernels(dtype, |x| {
            let (a, row, odd) = (&x[0], &x[1], &x[3]);
            let mut made = vec![
                (a.max(&[0])? * row)?,
                (odd.max(&[1])? + 1)?,
                odd.t()?.sum(&[1])?.cast(DType::F32)?.exp()?,
                a.argmin(1)?.cast(dtype)?,
            ];
            let sums = tensor(&a.engine, &[3, 8], a.sum(&[0])?.dtype());
            sums.narrow(0, 1, 1)?.add_(&a.sum(&[0])?)?;
            made.push(sums);
            if dtype.is_float() {
                made.extend([
                    (a.softmax(1)? * row)?,
                    (odd.softmax(-1)? + odd)?,
                    a.layer_norm(&[8], Some(row), None, 1e-5)?.relu()?,
                ]);
            }
            Ok(made)
        });
        let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"max(x) * a"), "{names:?}");
    }
}

#[test]
fn every_reader_has_an_expression_on_either_side_in_a_valid_shader() {
    for dtype in [DType::F32, DType::I32, DType::U8, DType::Bf16, DType::I8] {
        let made = kernels(dtype, |x| {
            let (a, row, column, odd) = (&x[0], &x[1], &x[2], &x[3]);
            let mut made = vec![
                ((a * a)?.max(&[0])? * row)?,
                ((odd + 1)?.t()?.min(&[1])? - 1)?,
                (a - column)?.argmax(1)?.cast(dtype)?,
            ];
            if dtype.is_float() {
                made.extend([
                    ((a + row)?.softmax(1)? * row)?,
                    ((odd.t()? * 2)?.log_softmax(0)? + odd.t()?)?,
                    (a * column)?
                        .layer_norm(&[8], Some(row), None, 1e-5)?
                        .exp()?,
                    ((a * row)?.layer_norm(&[8], None, None, 1e-5)? * column)?,
                ]);
            }
            Ok(made)
        });
        let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"max(a * a) * b"), "{names:?}");
        let of_floats = ["softmax(a + b) * c", "layer_norm(a * b) * c"];
        if dtype.is_float() {
            assert!(
                of_floats.iter().all(|name| names.contains(name)),
                "{names:?}"
            );
        }
    }
}

#[test]
fn operations_of_one_name_differ_in_the_scalars_that_they_read() {
    let mut known: HashMap<(&str, usize), &str> = HashMap::new();
    for element in families::all() {
        let heads = element
            .file
            .lines()
            .filter_map(|line| line.strip_prefix("//# "));
        for section in heads.map(|head| head.split('.').next().unwrap_or(head)) {
            let scalars = element
                .scalars(section)
                .into_iter()
                .filter(|is_read| *is_read);
            let file = *known
                .entry((section, scalars.count()))
                .or_insert(element.file);
            assert!(std::ptr::eq(file, element.file), "two texts of `{section}`");
        }
    }
}

#[test]
fn operations_of_one_name_share_a_valid_shader() {
    let made = kernels(DType::F32, |x| {
        let (a, row, column) = (&x[0], &x[1], &x[2]);
        Ok(vec![a.lerp(row, 0.25)?.lerp(column, row)?])
    });
    for (name, shader) in made {
        assert_eq!(name, "lerp(lerp(a, b, s0), c, b)");
        assert!(
            shader.contains("fn lerp_1_f32(") && shader.contains("fn lerp_f32("),
            "{shader}"
        );
    }
}

#[test]
fn a_kernel_reads_like_what_it_computes() {
    let made = kernels(DType::F32, |x| {
        let y = ((&x[0] * &x[1])? + &x[2])?.relu()?;
        Ok(vec![(y / (1.0 - &x[0])?)?])
    });
    let (name, shader) = &made[0];
    assert_eq!(name, "relu(a * b + c) / (s0 - a)");
    for line in [
        "// relu(a * b + c) / (s0 - a)",
        "fn mul_f32(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return a * b; }",
        "  let b = b_get4(i.b);",
        "  let t1 = as_is(add_f32(t0, c));",
        "  let t2 = as_is(relu_f32(t1));",
        "  y0_put4(k, t4);",
    ] {
        assert!(shader.contains(line), "{line}\n{shader}");
    }
}

/// A fill sees its storage as words, so one element of a narrow type fills one too.
#[test]
fn an_element_that_was_filled_is_copied_over_by_a_valid_shader() {
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
        let engine = engine(SimOptions::default());
        let x = tensor(&engine, &[1], dtype);
        block_on("a test", engine.here().finish()).expect("a device");
        let y = full(&engine, &[1], 1.into(), dtype).expect("room");
        y.copy_(&x).expect("one shape");
        let read = y.cast(DType::F32).expect("room");
        block_on("a test", engine.here().finish()).expect("a device");
        drop(read);
        let kernels = engine.here().fused();
        assert!(!kernels.is_empty(), "{dtype}");
        for kernel in kernels {
            let shader = kernel.shader.get().expect("it was compiled");
            translate(&kernel.name, shader);
        }
    }
}
