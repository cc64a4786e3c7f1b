//! Training on several devices is training on one, to the bit.

use lapidary::devices::{Group, Reduce, Replicas, ReplicasOptions, split};
use lapidary::grad::Gradients;
use lapidary::optim::{AdamW, AdamWOptions};
use lapidary::{DType, Gpu, Result, Tensor};

use super::groups;

const INPUTS: usize = 20;
const HIDDEN: usize = 33;
const ROWS: usize = 12;
const STEPS: u64 = 4;

/// Two layers, and a parameter that nothing uses.
fn parameters(gpu: &Gpu) -> Result<Vec<Tensor>> {
    let normal = |shape: &[usize], seed: usize| -> Result<Tensor> {
        let host: Vec<f32> = (0..shape.iter().product::<usize>())
            .map(|at| ((at * 37 + seed * 11) % 101) as f32 / 101.0 - 0.5)
            .collect();
        gpu.tensor(&host, shape)
    };
    Ok(vec![
        normal(&[INPUTS, HIDDEN], 1)?.named("first"),
        normal(&[HIDDEN], 2)?,
        normal(&[HIDDEN, 1], 3)?.named("last"),
        normal(&[5], 4)?,
    ])
}

fn batch(gpu: &Gpu, step: u64) -> Result<Tensor> {
    let value = |at: usize| ((at as u64 * 29 + step * 13) % 89) as f32 / 89.0 - 0.4;
    let host: Vec<f32> = (0..ROWS * INPUTS).map(value).collect();
    gpu.tensor(&host, &[ROWS, INPUTS])
}

fn loss(parameters: &[Tensor], x: &Tensor) -> Result<Tensor> {
    let [first, bias, last, _] = parameters else {
        panic!("four parameters");
    };
    let hidden = (x.matmul(first)? + bias)?.gelu()?;
    let targets = x.sum(&[1])?.unsqueeze(1)?;
    (hidden.matmul(last)? - targets)?.square()?.mean_all()
}

fn options() -> AdamWOptions {
    AdamWOptions {
        lr: 0.05,
        ..Default::default()
    }
}

fn bits(tensors: &[Tensor]) -> Vec<Vec<u32>> {
    let bits = |tensor: &Tensor| {
        let floats = tensor.to_vec::<f32>().expect("it has a value");
        floats.into_iter().map(f32::to_bits).collect()
    };
    tensors.iter().map(bits).collect()
}

/// A mean over three devices would be divided on the host here and on the device there.
fn reduce(count: usize) -> Reduce {
    match count {
        2 => Reduce::Mean,
        _ => Reduce::Sum,
    }
}

/// One device that computes a part after the other, and adds the gradients in the same order.
fn on_one(gpu: &Gpu, parts: usize) -> Result<(Vec<Vec<u32>>, Vec<u32>)> {
    let marked = parameters(gpu)?.into_iter().map(Tensor::requires_grad);
    let parameters: Vec<Tensor> = marked.collect::<Result<_>>()?;
    let mut adam = AdamW::new(&parameters.iter().collect::<Vec<_>>(), options())?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let mut gradients = Gradients::default();
        for part in batch(gpu, step)?.chunk(parts, 0)? {
            let loss = loss(&parameters, &part)?;
            loss.backprop().add_to(&mut gradients)?;
            losses.push(loss.item::<f32>()?.to_bits());
        }
        let mut means = Gradients::default();
        for parameter in &parameters {
            if let Some(sum) = gradients.get(parameter) {
                let mean = match reduce(parts) {
                    Reduce::Mean => (sum / parts as f32)?,
                    Reduce::Sum => sum,
                };
                parameter.backprop().seed(&mean).add_to(&mut means)?;
            }
        }
        adam.step(&means)?;
    }
    Ok((bits(&parameters), losses))
}

#[test]
fn training_on_several_devices_is_training_on_one_to_the_bit() -> Result<()> {
    for count in [2, 3] {
        for (name, gpus) in groups(count) {
            let (expected, expected_losses) = on_one(&gpus[0], count)?;
            for bucket_bytes in [1, 200, u64::MAX] {
                let group = Group::new(&gpus)?;
                let first = parameters(&gpus[0])?;
                let options_of = ReplicasOptions {
                    bucket_bytes,
                    reduce: reduce(count),
                };
                let all: Vec<&Tensor> = first.iter().collect();
                let mut replicas = Replicas::new(&group, &all, options_of)?;
                let mut adams = replicas.each(|own| AdamW::new(own, options()))?;
                let mut losses = Vec::new();
                for step in 0..STEPS {
                    let parts = split(&batch(&gpus[0], step)?, 0, &gpus)?;
                    let of_step = replicas.step(&mut adams, |own| {
                        loss(own.parameters(), &parts[own.index()])
                    })?;
                    for loss in of_step {
                        losses.push(loss.item::<f32>()?.to_bits());
                    }
                }
                assert_eq!(losses, expected_losses, "{name}");
                for device in 0..count {
                    let got = bits(replicas.parameters(device).expect("it is there"));
                    assert!(
                        got == expected,
                        "{name}, {count} devices, buckets of {bucket_bytes}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// The time of the kernels of a backward on each of several simulated devices.
#[cfg(feature = "sim")]
fn kernels_ns(devices: usize) -> Result<u64> {
    use lapidary::sim::{SimMode, SimOptions, Speed};

    let simulated = |_| {
        let options = SimOptions {
            mode: SimMode::SizesOnly,
            speed: Some(Speed {
                upload_bytes_per_s: 1 << 30,
                download_bytes_per_s: 1 << 30,
                memory_bytes_per_s: 1 << 30,
                multiply_adds_per_s: 1 << 40,
                copy_ns: 0,
                submission_ns: 0,
            }),
            ..SimOptions::default()
        };
        Ok(Gpu::simulated(options)?.0)
    };
    let gpus: Vec<Gpu> = (0..devices).map(simulated).collect::<Result<_>>()?;
    let parameters = parameters(&gpus[0])?;
    let of_model: Vec<&Tensor> = parameters.iter().collect();
    let mut replicas = Replicas::new(&Group::new(&gpus)?, &of_model, Default::default())?;
    let batches: Vec<Tensor> = gpus
        .iter()
        .map(|gpu| batch(gpu, 0))
        .collect::<Result<_>>()?;
    let before_ns = gpus[0].memory().stats().kernels_ns;
    let backward = replicas.backward(|own| loss(own.parameters(), &batches[own.index()]))?;
    gpus[0].finish()?;
    assert_eq!(backward.gradients.len(), devices);
    Ok(gpus[0].memory().stats().kernels_ns - before_ns)
}

#[cfg(feature = "sim")]
#[test]
fn reducing_gradients_takes_no_kernel() -> Result<()> {
    let alone_ns = kernels_ns(1)?;
    assert!(alone_ns > 0);
    assert_eq!(kernels_ns(3)?, alone_ns);
    Ok(())
}

#[test]
fn replicas_keep_names_and_take_a_loaded_state_over() -> Result<()> {
    for (name, gpus) in groups(2) {
        let first = parameters(&gpus[0])?;
        let all: Vec<&Tensor> = first.iter().collect();
        let mut replicas = Replicas::new(&Group::new(&gpus)?, &all, Default::default())?;
        let there = replicas.parameters(1).expect("two devices").to_vec();
        assert_eq!(there[0].tag().name(), Some("first"), "{name}");
        assert!(replicas.parameters(0).expect("two")[0].shares_storage_with(&first[0]));
        {
            let _no_grad = gpus[0].no_grad();
            first[2].fill_(3.0)?;
        }
        replicas.copy_from(0)?;
        assert_eq!(there[2].to_vec::<f32>()?, [3.0; HIDDEN], "{name}");
        assert!(there[2].has_grad(), "{name}");
        assert!(replicas.parameters(2).is_none());
    }
    Ok(())
}

#[test]
fn a_parameter_that_some_devices_use_gets_their_gradient_and_other_backwards_keep_theirs()
-> Result<()> {
    for (name, gpus) in groups(2) {
        let w = gpus[0].ones(&[4], DType::F32)?.named("w");
        let v = gpus[0].ones(&[4], DType::F32)?;
        let sum = ReplicasOptions {
            reduce: Reduce::Sum,
            ..Default::default()
        };
        let mut replicas = Replicas::new(&Group::new(&gpus)?, &[&w, &v], sum)?;
        let backward = replicas.backward(|own| {
            let [w, v] = own.parameters() else {
                panic!("two parameters");
            };
            // A backward of the function's own hands nothing over.
            let inner = (w * 5.0)?.sum_all()?.backward()?;
            let inner = inner.get(w).expect("it depends on it");
            assert_eq!(inner.to_vec::<f32>()?, [5.0; 4]);
            match own.index() {
                0 => (w * 2.0)?.sum_all(),
                _ => (w * v)?.sum_all(),
            }
        })?;
        for (device, gradients) in backward.gradients.iter().enumerate() {
            let own = replicas.parameters(device).expect("two devices");
            let of = |index: usize| gradients.get(&own[index]).expect("one device used it");
            assert_eq!(of(0).to_vec::<f32>()?, [3.0; 4], "{name}");
            assert_eq!(of(1).to_vec::<f32>()?, [1.0; 4], "{name}");
        }
        assert_eq!(backward.times.len(), 2);
        // Outside of a step, and without the replicas, hooks change nothing.
        let alone = (&w * 7.0)?
            .sum_all()?
            .backward()?
            .get(&w)
            .expect("it depends on it");
        assert_eq!(alone.to_vec::<f32>()?, [7.0; 4], "{name}");
        drop(replicas);
        let alone = w
            .square()?
            .sum_all()?
            .backward()?
            .get(&w)
            .expect("it depends on it");
        assert_eq!(alone.to_vec::<f32>()?, [2.0; 4], "{name}");
    }
    Ok(())
}
