//! Means far from 0 and equal elements: normalizations, variances and their gradients, against f64.

use fastrand::Rng;
use lapidary::sim::{SimKernels, SimOptions};
use lapidary::{DType, Gpu, Result, Tensor, adapter::AdapterKind};

use super::model::gpus;

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

/// A row in f64, less its mean, and its population variance.
fn spread(row: &[f32]) -> (Vec<f64>, f64) {
    let row: Vec<f64> = row.iter().map(|&x| x.into()).collect();
    let count = row.len() as f64;
    let mean = row.iter().sum::<f64>() / count;
    let away: Vec<f64> = row.iter().map(|x| x - mean).collect();
    let variance = away.iter().map(|d| d * d).sum::<f64>() / count;
    (away, variance)
}

/// The gradient of a normalized row by that of its result.
fn through(away: &[f64], variance: f64, g: &[f32], eps: f64) -> Vec<f64> {
    let (count, scale) = (away.len() as f64, (variance + eps).sqrt().recip());
    let shift = g.iter().map(|&g| f64::from(g)).sum::<f64>() / count;
    let pairs = || away.iter().zip(g).map(|(d, &g)| (d * scale, f64::from(g)));
    let along = pairs().map(|(n, g)| n * g).sum::<f64>() / count;
    pairs()
        .map(|(n, g)| (g - shift - n * along) * scale)
        .collect()
}

/// Compares, relative to the largest expected number.
fn near(what: &str, got: &Tensor, expected: &[f64]) {
    near_to(what, got, expected, 1e-30);
}

/// The same for numbers that are sums of terms up to `largest`.
fn near_to(what: &str, got: &Tensor, expected: &[f64], largest: f64) {
    let got: Vec<f32> = got.to_vec().unwrap();
    let largest = expected.iter().fold(largest, |most, x| most.max(x.abs()));
    for (at, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let off = (f64::from(got) - expected).abs() / largest;
        assert!(off < 1e-5, "{what}, {at}: {got} is not {expected}");
    }
}

/// What `f` gives for a parameter with the elements of `x`, and the gradient by `seed`.
fn with_gradient(x: &Tensor, seed: &Tensor, f: impl Fn(&Tensor) -> Tensor) -> (Tensor, Tensor) {
    let x = x.copy().unwrap().requires_grad().unwrap();
    let y = f(&x);
    let seed = seed.reshape(y.shape()).unwrap();
    let gradients = y.backprop().seed(&seed).run().unwrap();
    let gradient = gradients.get(&x).expect("it depends on it").clone();
    (y.detach(), gradient)
}

fn check(what: &str, gpu: &Gpu, [rows, length]: [usize; 2], data: &[f32], g: &[f32]) {
    const EPS: f32 = 1e-9;
    let eps = f64::from(EPS);
    let spreads: Vec<_> = data.chunks(length).map(spread).collect();
    let normal: Vec<f64> = (spreads.iter())
        .flat_map(|(away, variance)| away.iter().map(move |d| d / (variance + eps).sqrt()))
        .collect();
    let by_input: Vec<f64> = (spreads.iter().zip(g.chunks(length)))
        .flat_map(|((away, variance), g)| through(away, *variance, g, eps))
        .collect();
    let scales = spreads
        .iter()
        .map(|(_, variance)| (variance + eps).sqrt().recip());
    let terms = scales.fold(0.0, f64::max);
    let variances: Vec<f64> = spreads.iter().map(|(_, variance)| *variance).collect();
    let x = gpu.tensor(data, &[rows, length]).unwrap();
    let seed = gpu.tensor(g, &[rows, length]).unwrap();
    let norm = |x: &Tensor| x.layer_norm(&[length], None, None, EPS).unwrap();
    let (y, gradient) = with_gradient(&x, &seed, norm);
    near(&format!("layer_norm {what}"), &y, &normal);
    near_to(
        &format!("layer_norm backward {what}"),
        &gradient,
        &by_input,
        terms,
    );
    // The same for what is computed where it is read.
    let doubled = (&x.copy().unwrap() * 2.0).unwrap();
    near(
        &format!("layer_norm of a product {what}"),
        &norm(&(doubled * 0.5).unwrap()),
        &normal,
    );

    let planes = |t: &Tensor| t.reshape(&[1, rows, length]).unwrap();
    let norm = |x: &Tensor| planes(x).group_norm(rows, None, None, EPS).unwrap();
    let (y, gradient) = with_gradient(&x, &seed, norm);
    near(&format!("group_norm {what}"), &y, &normal);
    near_to(
        &format!("group_norm backward {what}"),
        &gradient,
        &by_input,
        terms,
    );

    let (y, gradient) = with_gradient(&x, &seed, |x| {
        let [y, mean, variance] = planes(x).batch_norm_train(None, None, EPS).unwrap();
        let sample: Vec<f64> = (variances.iter())
            .map(|v| v * length as f64 / (length - 1) as f64)
            .collect();
        near(&format!("running variance {what}"), &variance, &sample);
        let means = data
            .chunks(length)
            .map(|row| row.iter().map(|&x| f64::from(x)).sum::<f64>() / length as f64);
        near(
            &format!("running mean {what}"),
            &mean,
            &means.collect::<Vec<_>>(),
        );
        y
    });
    near(&format!("batch_norm_train {what}"), &y, &normal);
    near_to(
        &format!("batch_norm_train backward {what}"),
        &gradient,
        &by_input,
        terms,
    );
    let [gradient, ..] = planes(&seed)
        .batch_norm_backward(&planes(&x), None, EPS)
        .unwrap();
    near_to(
        &format!("batch_norm_backward {what}"),
        &gradient,
        &by_input,
        terms,
    );

    let of_rows = seed.narrow(1, 0, 1).unwrap().contiguous().unwrap();
    let firsts: Vec<f64> = g.chunks(length).map(|g| g[0].into()).collect();
    for (view, x, axis) in [
        ("", x.clone(), 1),
        (" across", x.t().unwrap().contiguous().unwrap(), 0),
    ] {
        let turned = |expected: Vec<f64>| match axis {
            1 => expected,
            _ => (0..rows * length)
                .map(|at| expected[at % rows * length + at / rows])
                .collect(),
        };
        let (y, gradient) = with_gradient(&x, &of_rows, |x| x.var(&[axis], 0).unwrap());
        near(&format!("var {what}{view}"), &y, &variances);
        let by_var = (spreads.iter().zip(&firsts))
            .flat_map(|((away, _), g)| away.iter().map(move |d| 2.0 * g * d / length as f64));
        near(
            &format!("var backward {what}{view}"),
            &gradient,
            &turned(by_var.collect()),
        );
        let (y, gradient) = with_gradient(&x, &of_rows, |x| x.std(&[axis], 0).unwrap());
        let roots: Vec<f64> = variances.iter().map(|v| v.sqrt()).collect();
        near(&format!("std {what}{view}"), &y, &roots);
        let by_std =
            (spreads.iter().zip(&firsts).zip(&roots)).flat_map(|(((away, _), g), root)| {
                let of = move |d: &f64| {
                    if *root > 0.0 {
                        g * d / (root * length as f64)
                    } else {
                        0.0
                    }
                };
                away.iter().map(of)
            });
        near(
            &format!("std backward {what}{view}"),
            &gradient,
            &turned(by_std.collect()),
        );
    }
    let reversed = x.flip(&[1]).unwrap();
    let flipped = planes(&reversed).batch_norm_train(None, None, EPS).unwrap();
    let y = flipped[0]
        .reshape(&[rows, length])
        .unwrap()
        .flip(&[1])
        .unwrap();
    near(&format!("batch_norm_train reversed {what}"), &y, &normal);
    near(
        &format!("var reversed {what}"),
        &reversed.var(&[1], 0).unwrap(),
        &variances,
    );
}

#[test]
fn a_mean_far_from_zero_costs_no_precision() -> Result<()> {
    let data: Vec<f32> = (0..16).map(|i| 1e4 + 1e-3 * i as f32).collect();
    let g: Vec<f32> = (0..16).map(|i| ((i * 7) % 5) as f32 - 1.5).collect();
    for (name, gpu) in devices() {
        check(name, &gpu, [1, 16], &data, &g);
        let y = gpu.tensor(&data, &[16])?;
        let y = y.layer_norm(&[16], None, None, 1e-5)?;
        let first: f32 = y.to_vec::<f32>()?[0];
        assert!((first + 1.3313).abs() < 1e-4, "{name}: {first}");
        for seed in 0..12 {
            let mut rng = Rng::with_seed(seed);
            let offset = [1.0, 30.0, -1e3, 1e4, -1e6, 3e7][rng.usize(..6)];
            // Some units in the last place of the offset, or more.
            let range = offset * [3e-7, 1e-5, 1e-2, 10.0][rng.usize(..4)];
            // From 64 rows on, software adapters go back in one launch.
            let rows = [1, 2, 5, 64][rng.usize(..4)];
            let length =
                [2, 3, 4, 16, 37, 64, 130, 1000][rng.usize(..if rows == 64 { 6 } else { 8 })];
            let data: Vec<f32> = (0..rows * length)
                .map(|_| offset + range * (rng.f32() - 0.5))
                .collect();
            let g: Vec<f32> = (0..rows * length).map(|_| rng.f32() - 0.3).collect();
            let what = format!("on {name}, seed {seed}, {rows} rows of {length} about {offset}");
            check(&what, &gpu, [rows, length], &data, &g);
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
                        let var = |x: &Tensor| x.var(&[axis], correction).unwrap();
                        let std = |x: &Tensor| x.std(&[axis], correction).unwrap();
                        for (of, made) in [
                            ("var", with_gradient(&x, &seed, var)),
                            ("std", with_gradient(&x, &seed, std)),
                        ] {
                            zero(&format!("{of} {view}"), &made.0);
                            zero(&format!("gradient of {of} {view}"), &made.1);
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
