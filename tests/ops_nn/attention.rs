//! Scaled dot-product attention. `tests/torch/networks.rs` compares it with PyTorch.

use lapidary::{DType, Gpu, Options, Result, Tensor, operations::Causal};

use crate::devices::refused;
use crate::ops_reduce::model::*;

#[test]
fn attention_of_what_is_not_finite_is_not_a_number_in_its_row_only() -> Result<()> {
    for gpu in each() {
        let mut q = Array::new(&[40, 4], |at| (at % 5) as f64);
        q.values[4 * 7] = f64::NAN;
        q.values[4 * 9] = f64::INFINITY;
        let k = Array::new(&[40, 4], |at| (at % 3) as f64 - 1.0);
        let [q, k] = [&q, &k].map(|array| array.upload(&gpu, DType::F32));
        let y = q.scaled_dot_product_attention(&k, &k, None, true, None)?;
        let y = download(&y);
        for (row, values) in y.values.chunks(4).enumerate() {
            let are_nan = values.iter().all(|v| v.is_nan());
            assert_eq!(are_nan, matches!(row, 7 | 9), "row {row} is {values:?}");
        }
    }
    Ok(())
}

#[test]
fn attention_over_keys_without_elements_weighs_all_alike() -> Result<()> {
    for gpu in each() {
        let v = Array::new(&[2, 3, 4], |at| at as f64);
        for queries in [1, 5] {
            let q = gpu.zeros(&[2, queries, 0], DType::F32)?;
            let k = gpu.zeros(&[2, 3, 0], DType::F32)?;
            let v = v.upload(&gpu, DType::F32);
            let y = q.scaled_dot_product_attention(&k, &v, None, false, None)?;
            let expected = v.mean_keepdim(&[1])?;
            assert!(
                download(&y.sub(&expected)?)
                    .values
                    .iter()
                    .all(|v| v.abs() < 1e-5)
            );
        }
    }
    Ok(())
}

/// The heads of a group are rows: one launch for any number of heads that share keys.
#[test]
fn one_query_of_grouped_heads_is_one_launch() -> Result<()> {
    for gpu in each() {
        let q = gpu.ones(&[1, 8, 1, 64], DType::F32)?;
        let k = gpu.ones(&[1, 4, 64, 64], DType::F32)?;
        gpu.finish()?;
        let before = gpu.memory().stats().commands;
        let y = q.scaled_dot_product_attention(&k, &k, None, Causal::LastKey, None)?;
        gpu.finish()?;
        assert_eq!(gpu.memory().stats().commands - before, 1);
        assert_eq!(y.shape(), [1, 8, 1, 64]);
    }
    Ok(())
}

/// A cache grows by one key for each token. Only every fourth length has rows of whole vec4s.
#[test]
fn one_query_takes_as_many_launches_whatever_the_number_of_keys() {
    for gpu in each() {
        let launches = [64, 65, 66, 67].map(|keys| {
            let q = gpu.ones(&[8, 1, 64], DType::F32).unwrap();
            let k = gpu.ones(&[8, keys, 64], DType::F32).unwrap();
            gpu.finish().unwrap();
            let before = gpu.memory().stats().commands;
            let y = q.scaled_dot_product_attention(&k, &k, None, false, None);
            gpu.finish().unwrap();
            assert!(
                download(&y.unwrap())
                    .values
                    .iter()
                    .all(|&y| (y - 1.0).abs() < 1e-6)
            );
            gpu.memory().stats().commands - before
        });
        assert_eq!(launches, [launches[0]; 4]);
    }
}

/// A decoder reads its cache for each token. A cast would take more memory and time than the rest.
#[test]
fn one_query_reads_a_cache_of_halves_as_it_is() -> Result<()> {
    for (name, gpu) in gpus() {
        for dtype in [DType::F16, DType::Bf16] {
            let q = gpu.ones(&[8, 1, 64], dtype)?;
            let k = gpu.ones(&[8, 256, 64], dtype)?;
            gpu.finish()?;
            gpu.memory().reset_peaks();
            let before = gpu.memory().stats().live_bytes.now;
            let y = q.scaled_dot_product_attention(&k, &k, None, false, None)?;
            gpu.finish()?;
            let grown = gpu.memory().stats().live_bytes.peak - before;
            assert!(grown < k.size_bytes(), "{grown} bytes of {dtype}, {name}");
            assert!(download(&y).values.iter().all(|&value| value == 1.0));
        }
    }
    Ok(())
}

#[test]
fn attention_needs_no_memory_for_scores() -> Result<()> {
    let gpus = [
        (Gpu::open(Options::from_env()?)?, 6000),
        (Gpu::simulated(lapidary::sim::SimOptions::default())?.0, 400),
    ];
    for (gpu, rows) in gpus {
        let x = gpu.rand_normal(&[rows, 4], 0.0, 1.0, 1, DType::F32)?;
        gpu.finish()?;
        gpu.memory().reset_peaks();
        let before = gpu.memory().stats().live_bytes.now;
        let y = x.scaled_dot_product_attention(&x, &x, None, false, None)?;
        gpu.finish()?;
        let grown = gpu.memory().stats().live_bytes.peak - before;
        assert!(
            grown <= y.size_bytes() + 4096,
            "{grown} bytes for {rows} rows"
        );
    }
    Ok(())
}

#[test]
fn attention_over_more_keys_than_an_invocation_may_loop_is_whole() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let keys = 250_000;
    let k = gpu.zeros(&[keys, 4], DType::F32)?;
    let v = gpu.arange(0.0, keys as f64, 1.0, DType::F32)?;
    let v = (v.unsqueeze(1)? * (1.0 / keys as f32))?;
    let q = gpu.ones(&[3, 4], DType::F32)?;
    let y = q.scaled_dot_product_attention(&k, &v, None, false, None)?;
    for mean in y.to_vec::<f32>()? {
        assert!((mean - 0.5).abs() < 1e-3, "{mean}");
    }
    Ok(())
}

#[test]
fn attention_refuses_what_does_not_go_together() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let x = |shape: &[usize], dtype| gpu.zeros(shape, dtype).unwrap();
    let f = |shape: &[usize]| x(shape, DType::F32);
    let q = f(&[2, 4, 5, 8]);
    let attend = |k: &Tensor, v: &Tensor, mask: Option<&Tensor>| {
        q.scaled_dot_product_attention(k, v, mask, false, None)
    };
    let k = f(&[2, 4, 6, 8]);
    for (k, v, mask) in [
        (f(&[2, 4, 6, 7]), k.clone(), None),
        (k.clone(), f(&[2, 4, 5, 8]), None),
        (f(&[2, 3, 6, 8]), f(&[2, 3, 6, 8]), None),
        (f(&[3, 4, 6, 8]), f(&[3, 4, 6, 8]), None),
        (f(&[8]), k.clone(), None),
        (k.clone(), k.clone(), Some(f(&[5, 5]))),
        (k.clone(), k.clone(), Some(f(&[1, 2, 4, 5, 6]))),
    ] {
        refused!(Shape: attend(&k, &v, mask.as_ref()));
    }
    let ints = x(&[5, 6], DType::I32);
    refused!(DType: attend(&k, &k, Some(&ints)));
    let halves = x(&[2, 4, 6, 8], DType::F16);
    refused!(DType: attend(&halves, &halves, None));
    let elsewhere = Gpu::open(Options::from_env()?)?.zeros(&[2, 4, 6, 8], DType::F32)?;
    refused!(Foreign: attend(&elsewhere, &k, None));
    Ok(())
}
