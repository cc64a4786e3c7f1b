//! Gradients of several backwards, added up in one set.

use lapidary::{DType, Error, Gpu, Options, Result, Tensor, grad::Gradients};

use super::{elements, parameter};

fn gpu() -> Gpu {
    Gpu::open(Options::from_env().unwrap()).expect("the tests need an adapter")
}

/// A loss by several parameters of 256 KiB each.
fn loss(parameters: &[Tensor], factor: f32) -> Result<Tensor> {
    let mut loss = (parameters[0].sum_all()? * factor)?;
    for parameter in &parameters[1..] {
        loss = (loss + parameter.square()?.sum_all()?)?;
    }
    Ok(loss)
}

#[test]
fn a_batch_in_parts_has_the_gradient_of_the_whole() {
    let gpu = gpu();
    let w = parameter(&gpu, &[0.5, -1.0], &[2]);
    let x = [[1.0_f32, 2.0], [3.0, -1.0], [0.5, 4.0]];
    let x = x.map(|row| gpu.tensor(&row, &[2]).unwrap());
    let mut gradients = Gradients::default();
    for row in &x {
        let loss = (&w * row).unwrap().square().unwrap().sum_all().unwrap();
        loss.backprop().add_to(&mut gradients).unwrap();
    }
    assert_eq!(gradients.len(), 1);
    let expected = [0.5 * 2.0 * (1.0 + 9.0 + 0.25), -2.0 * (4.0 + 1.0 + 16.0)];
    assert_eq!(elements(&gradients.get(&w).unwrap()), expected);
}

#[test]
fn there_is_never_a_second_set_of_gradients() {
    const BYTES: u64 = 256 << 10;
    let gpu = gpu();
    let parameters: Vec<Tensor> = (0..8)
        .map(|_| gpu.ones(&[BYTES as usize / 4], DType::F32)?.requires_grad())
        .collect::<Result<_>>()
        .unwrap();
    let mut gradients = Gradients::default();
    let mut peaks = Vec::new();
    for part in 0..4 {
        gpu.finish().unwrap();
        gpu.memory().reset_peaks();
        let loss = loss(&parameters, part as f32).unwrap();
        loss.backprop().add_to(&mut gradients).unwrap();
        gpu.finish().unwrap();
        peaks.push(gpu.memory().stats().live_bytes.peak);
    }
    // Later parts have one gradient more than the first, and what its operation needs.
    let more = peaks[1..].iter().max().unwrap() - peaks[0];
    assert!(more <= 2 * BYTES, "{more} bytes more: {peaks:?}");
    let set = gradients.len() as u64 * BYTES;
    assert_eq!(set, 8 * BYTES);
    let sum = gradients.get(&parameters[0]).unwrap();
    assert_eq!(elements(&sum)[0], 0.0 + 1.0 + 2.0 + 3.0);
    assert_eq!(elements(&gradients.get(&parameters[1]).unwrap())[0], 8.0);
}

type View = fn(&Tensor) -> Result<Tensor>;

#[test]
fn gradients_of_views_add_up_like_others() {
    let gpu = gpu();
    let x: Vec<f32> = (0..12).map(|at| at as f32 / 4.0 - 1.0).collect();
    let views: [(&str, View); 8] = [
        ("itself", |x| Ok(x.clone())),
        ("t", |x| x.t()),
        ("narrow", |x| x.narrow(1, 1, 2)),
        ("flip", |x| x.flip(&[0])),
        ("broadcast", |x| x.unsqueeze(0)?.broadcast_to(&[2, 3, 4])),
        ("unfold", |x| x.unfold(1, 3, 1)),
        ("two views", |x| x.narrow(1, 0, 2)? + x.narrow(1, 2, 2)?),
        ("a row and all", |x| x.select(0, 0)?.mul(x)),
    ];
    let make = |is_whole: bool| match is_whole {
        true => parameter(&gpu, &x, &[3, 4]),
        // Its gradient is contiguous, and it is not.
        false => {
            let made = gpu.tensor(&x, &[4, 3]).unwrap();
            made.t().unwrap().requires_grad().unwrap()
        }
    };
    for (name, view) in views {
        for w in [make(true), make(false)] {
            let loss = || view(&w)?.square()?.sum_all();
            let once = loss().unwrap().backward().unwrap().get(&w).unwrap();
            let mut gradients = Gradients::default();
            for _ in 0..3 {
                let loss = loss().unwrap();
                loss.backprop().add_to(&mut gradients).unwrap();
            }
            let expected: Vec<f32> = elements(&once).iter().map(|one| 3.0 * one).collect();
            assert_eq!(elements(&gradients.get(&w).unwrap()), expected, "{name}");
        }
    }
}

#[test]
fn a_hook_sees_the_gradient_of_one_backward() {
    let gpu = gpu();
    let w = parameter(&gpu, &[2.0], &[1]);
    w.on_gradient(|gradient| gradient.clamp(-1.0, 1.0)).unwrap();
    let mut gradients = Gradients::default();
    for _ in 0..3 {
        let loss = w.square().unwrap();
        loss.backprop().add_to(&mut gradients).unwrap();
    }
    assert_eq!(elements(&gradients.get(&w).unwrap()), [3.0]);
}

#[test]
fn an_error_in_the_middle_leaves_no_half_of_a_sum() {
    let gpu = gpu();
    let [a, b] = [parameter(&gpu, &[1.0], &[1]), parameter(&gpu, &[2.0], &[1])];
    let mut gradients = Gradients::default();
    let factor = gpu.ones(&[1], DType::F32).unwrap();
    let good = (&a * &b).unwrap();
    good.backprop().add_to(&mut gradients).unwrap();
    assert_eq!(gradients.len(), 2);
    // Nothing has begun, so nothing changes.
    let other = self::gpu();
    let foreign = parameter(&other, &[1.0], &[1]).square().unwrap();
    let error = foreign.backprop().add_to(&mut gradients).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    assert!(factor.backprop().add_to(&mut gradients).is_err());
    assert_eq!(gradients.len(), 2);
    // The gradient of `b` is made before the operation that has lost its operand.
    let bad = ((&a * &factor).unwrap() + &b).unwrap();
    factor.add_(1.0).unwrap();
    let error = bad.backprop().add_to(&mut gradients).unwrap_err();
    assert!(matches!(error, Error::Gradient { .. }), "{error}");
    assert!(gradients.is_empty());
    good.backprop().add_to(&mut gradients).unwrap_err();
    let again = (&a * &b).unwrap();
    again.backprop().add_to(&mut gradients).unwrap();
    assert_eq!(elements(&gradients.get(&a).unwrap()), [2.0]);
}

#[test]
fn recorded_gradients_add_up_and_are_not_changed_in_place() {
    let gpu = gpu();
    let w = parameter(&gpu, &[3.0], &[1]);
    let mut gradients = Gradients::default();
    for _ in 0..2 {
        let cube = w.pow(3.0).unwrap();
        cube.backprop().record().add_to(&mut gradients).unwrap();
    }
    let error = gradients.clip_global_norm(1.0).unwrap_err();
    assert!(matches!(error, Error::Gradient { .. }), "{error}");
    let sum = gradients.get(&w).unwrap();
    let second = sum.backward().unwrap().get(&w).unwrap();
    assert_eq!(elements(&second), [36.0]);
}
