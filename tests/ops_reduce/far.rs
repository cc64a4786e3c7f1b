//! Rows far from 0, and equal elements: normalizations, variances and their gradients. A row that
//! is shifted gives what the reference gives for the row about 0, which `tests/torch/rows.rs`
//! compares with PyTorch.

use fastrand::Rng;
use lapidary::sim::{SimKernels, SimOptions};
use lapidary::{DType, Gpu, Result, Tensor, adapter::AdapterKind};

use crate::devices::reference;

use super::model::{download, gpus};

const EPS: f32 = 1e-9;

/// These devices, and two that interpret the shaders. Reference kernels average in f64.
fn devices() -> Vec<(&'static str, Gpu)> {
    let mut devices = gpus();
    for (name, kind) in [
        ("interpreted", AdapterKind::Discrete),
        ("interpreted software", AdapterKind::Cpu),
    ] {
        let options = SimOptions {
            kernels: SimKernels::Interpreted,
            kind,
            ..SimOptions::default()
        };
        devices.push((name, Gpu::simulated(options).expect("a simulation").0));
    }
    devices
}

/// What `f` gives for a parameter with the elements of `x`, and the gradient by `seed`.
fn with_gradient(
    x: &Tensor,
    seed: &Tensor,
    f: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<[Tensor; 2]> {
    let x = x.copy()?.requires_grad()?;
    let y = f(&x)?;
    let gradients = y.backprop().seed(&seed.reshape(y.shape())?).run()?;
    let gradient = gradients.get(&x).expect("it depends on it").clone();
    Ok([y.detach(), gradient])
}

/// Normalizations and spreads of the rows of `x`, and their gradients by `g`. None of them changes
/// if a row is shifted. The last are the rows' means, which do.
fn made(x: &Tensor, g: &Tensor) -> Result<Vec<(String, Tensor)>> {
    let [rows, length] = [x.shape()[0], x.shape()[1]];
    let planes = |t: &Tensor| t.reshape(&[1, rows, length]);
    let layer_norm = |x: &Tensor| x.layer_norm(&[length], None, None, EPS);
    let batch_norm = |x: &Tensor| planes(x)?.batch_norm_train(None, None, EPS);
    let mut made = Vec::new();
    let mut both = |name: String, x: &Tensor, g: &Tensor, f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let [y, gradient] = with_gradient(x, g, f)?;
        made.push((format!("{name} backward"), gradient));
        made.push((name, y));
        Result::Ok(())
    };
    both("layer_norm".into(), x, g, &layer_norm)?;
    let group_norm = |x: &Tensor| planes(x)?.group_norm(rows, None, None, EPS);
    both("group_norm".into(), x, g, &group_norm)?;
    let normal = |x: &Tensor| batch_norm(x).map(|[y, ..]| y);
    both("batch_norm_train".into(), x, g, &normal)?;
    let of_rows = g.narrow(1, 0, 1)?.contiguous()?;
    for (view, x, axis) in [("along", x.clone(), 1), ("across", x.t()?.contiguous()?, 0)] {
        both(format!("var {view}"), &x, &of_rows, &|x| x.var(&[axis], 0))?;
        both(format!("std {view}"), &x, &of_rows, &|x| x.std(&[axis], 0))?;
    }
    // What is computed where it is read, and what is read backwards.
    let product = ((&x.copy()? * 2.0)? * 0.5)?;
    let reversed = x.flip(&[1])?;
    let [_, mean, variance] = batch_norm(x)?;
    let [gradient, ..] = planes(g)?.batch_norm_backward(&planes(x)?, None, EPS)?;
    let more = [
        ("layer_norm of a product", layer_norm(&product)?),
        ("batch_norm_backward", gradient),
        ("batch_norm_train reversed", normal(&reversed)?),
        ("var reversed", reversed.var(&[1], 0)?),
        ("running variance", variance),
        ("running mean", mean),
    ];
    made.extend(more.map(|(name, of)| (name.to_string(), of)));
    Ok(made)
}

/// Compares what is made of `rows` far from 0, at `offset`, with what the reference makes of them
/// about 0. Errors are relative to the largest expected number, or to the largest term of a sum.
fn check(
    what: &str,
    [gpu, reference]: [&Gpu; 2],
    shape: [usize; 2],
    (offset, rows): (f32, &[f32]),
    g: &[f32],
) -> Result<()> {
    let far: Vec<f32> = rows.iter().map(|x| offset + x).collect();
    assert!(
        far.iter().zip(rows).all(|(far, x)| far - offset == *x),
        "{what}: they are rounded"
    );
    let of = |gpu: &Gpu, rows| made(&gpu.tensor(rows, &shape)?, &gpu.tensor(g, &shape)?);
    let expected = of(reference, rows)?;
    let variances = expected.iter().find(|(name, _)| name == "var along");
    let variances = download(&variances.expect("it is made").1).values;
    let scales = variances
        .iter()
        .map(|v| (v + f64::from(EPS)).sqrt().recip());
    let term = scales.fold(0.0, f64::max);
    for ((name, got), (_, expected)) in of(gpu, &far)?.iter().zip(&expected) {
        let mut expected = download(expected).values;
        if name == "running mean" {
            expected
                .iter_mut()
                .for_each(|mean| *mean += f64::from(offset));
        }
        let is_sum = name.contains("norm") && name.ends_with("backward");
        let least = if is_sum { term } else { 1e-30 };
        let largest = expected.iter().fold(least, |most, x| most.max(x.abs()));
        for (at, (got, expected)) in download(got).values.iter().zip(&expected).enumerate() {
            let off = (got - expected).abs() / largest;
            assert!(off < 1e-5, "{name} {what}, {at}: {got} is not {expected}");
        }
    }
    Ok(())
}

#[test]
fn a_mean_far_from_zero_costs_no_precision() -> Result<()> {
    let reference = reference();
    let data: Vec<f32> = (0..16).map(|i| 1e4 + 1e-3 * i as f32).collect();
    for (name, gpu) in devices() {
        let y = gpu.tensor(&data, &[16])?;
        let y = y.layer_norm(&[16], None, None, 1e-5)?;
        let first: f32 = y.to_vec::<f32>()?[0];
        assert!((first + 1.3313).abs() < 1e-4, "{name}: {first}");
        for seed in 0..13 {
            let mut rng = Rng::with_seed(seed);
            let offset: f32 = [1.0, 30.0, -1e3, 1e4, -1e6, 3e7][rng.usize(..6)];
            // Some units in the last place about the offset, or more. So sums are exact.
            let above = 2.0 * offset.abs();
            let (unit, most) = (above.next_up() - above, [2, 80, 80_000][rng.usize(..3)]);
            // From 64 rows on, software adapters go back in one launch.
            let rows = [1, 2, 5, 64][rng.usize(..4)];
            let length =
                [2, 3, 4, 16, 37, 64, 130, 1000][rng.usize(..if rows == 64 { 6 } else { 8 })];
            let mut near = |_| rng.i32(-most..=most) as f32 * unit;
            let near: Vec<f32> = (0..rows * length).map(&mut near).collect();
            let g: Vec<f32> = (0..rows * length).map(|_| rng.f32() - 0.3).collect();
            let what = format!("on {name}, seed {seed}, {rows} rows of {length} about {offset}");
            check(
                &what,
                [&gpu, &reference],
                [rows, length],
                (offset, &near),
                &g,
            )?;
        }
    }
    Ok(())
}

#[test]
fn equal_elements_have_no_spread_and_no_gradient() -> Result<()> {
    for (name, gpu) in devices() {
        for value in [0.1_f32, -7.7e8, 1.3e-30, 3.3e37, 16_777_217.0, 0.0] {
            for (rows, length) in [(3, 2), (4, 7), (64, 16), (1, 4097)] {
                let what = format!("{rows} rows of {length} times {value} on {name}");
                let x = gpu.full(&[rows, length], value, DType::F32)?;
                let zero = |of: &str, t: &Tensor| {
                    let t: Vec<f32> = t.to_vec().unwrap();
                    assert!(
                        t.iter().all(|&x| x == 0.0),
                        "{of} of {what}: {:?}",
                        &t[..2.min(t.len())]
                    );
                };
                for (view, x, axis) in [("along", x.clone(), 1), ("across", x.t()?, 0)] {
                    let seed = gpu.full(&[rows], 1.5, DType::F32)?;
                    for correction in [0, 1] {
                        let var = |x: &Tensor| x.var(&[axis], correction);
                        let std = |x: &Tensor| x.std(&[axis], correction);
                        for (of, made) in [
                            ("var", with_gradient(&x, &seed, var)?),
                            ("std", with_gradient(&x, &seed, std)?),
                        ] {
                            zero(&format!("{of} {view}"), &made[0]);
                            zero(&format!("gradient of {of} {view}"), &made[1]);
                        }
                    }
                }
                zero("std_all", &x.std_all(1)?);
                zero("layer_norm", &x.layer_norm(&[length], None, None, 1e-5)?);
                let planes = x.reshape(&[1, rows, length])?;
                zero("group_norm", &planes.group_norm(rows, None, None, 1e-5)?);
                let [y, _, variance] = planes.batch_norm_train(None, None, 1e-5)?;
                zero("batch_norm_train", &y);
                zero("the variance of batch_norm_train", &variance);
            }
        }
    }
    Ok(())
}
