//! What recorded operations keep, what they compute again, and in how many launches.

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{DType, Error, Gpu, Result, Tensor};

const SIDE: usize = 128;
const BYTES: u64 = (SIDE * SIDE * 4) as u64;

fn simulated() -> (Gpu, SimHandle) {
    Gpu::simulated(SimOptions::default()).unwrap()
}

/// Parameters of `SIDE` × `SIDE`.
fn parameters(gpu: &Gpu, count: u64) -> Vec<Tensor> {
    let make = |seed| {
        let made = gpu.rand_normal(&[SIDE, SIDE], 0.0, 0.1, seed, DType::F32)?;
        made.requires_grad()
    };
    (1..=count).map(make).collect::<Result<_>>().unwrap()
}

type Network = fn(&[Tensor]) -> Result<Tensor>;

#[test]
fn a_value_that_is_cheap_to_compute_is_not_kept() {
    // Beside the result: the matrices that the history keeps.
    let cases: [(&str, usize, Network); 7] = [
        ("relu keeps its result, which the product shares", 1, |x| {
            x[0].matmul(&x[1])?.relu()?.matmul(&x[2])
        }),
        ("gelu keeps its operand", 1, |x| {
            x[0].matmul(&x[1])?.gelu()?.matmul(&x[2])
        }),
        ("two products of one value", 1, |x| {
            let y = x[0].matmul(&x[1])?.gelu()?;
            y.matmul(&x[2])? + y.t()?.matmul(&x[3])?
        }),
        ("a norm keeps its operand", 1, |x| {
            let (weight, bias) = (x[2].select(0, 0)?, x[2].select(0, 1)?);
            let h = x[0].matmul(&x[1])?;
            let y = h.layer_norm(&[SIDE], Some(&weight), Some(&bias), 1e-5)?;
            y.matmul(&x[3])
        }),
        ("a norm without bias", 1, |x| {
            let h = x[0].matmul(&x[1])?;
            h.rms_norm(&[SIDE], Some(&x[2].select(0, 0)?), 1e-5)?
                .matmul(&x[3])
        }),
        ("a gate keeps both factors", 2, |x| {
            let (gate, up) = (x[0].matmul(&x[1])?, x[0].matmul(&x[2])?);
            (gate.silu()? * up)?.matmul(&x[3])
        }),
        ("a chain keeps one in three", 2, |x| {
            let y = x[0].matmul(&x[1])?.sin()?.cos()?.sin()?.cos()?.sin()?;
            y.matmul(&x[2])
        }),
    ];
    for (name, kept, network) in cases {
        let (gpu, _) = simulated();
        let x = parameters(&gpu, 4);
        gpu.finish().unwrap();
        let before = gpu.memory().stats().live_bytes.now;
        let y = network(&x).unwrap();
        gpu.finish().unwrap();
        let bytes = gpu.memory().stats().live_bytes.now - before;
        assert_eq!(bytes / BYTES, kept as u64 + 1, "{name}");
        // What is computed again is freed again.
        let loss = y.sum_all().unwrap();
        drop(y);
        let gradients = loss.backward().unwrap();
        gpu.finish().unwrap();
        let bytes = gpu.memory().stats().live_bytes.now - before;
        let of_gradients = gradients.len() as u64;
        assert_eq!(bytes / BYTES, of_gradients, "{name}, after the backward");
    }
}

#[test]
fn what_is_computed_again_is_freed_though_the_history_is_kept() {
    let (gpu, _) = simulated();
    let x = parameters(&gpu, 1);
    let y = x[0].gelu().unwrap();
    let product = y.matmul(&y.t().unwrap().detach()).unwrap();
    let sum = (product.sum_all().unwrap() + y.square().unwrap().sum_all().unwrap()).unwrap();
    drop((y, product));
    let stats = || {
        gpu.finish().unwrap();
        let stats = gpu.memory().stats();
        (stats.live_bytes.now, stats.saved_bytes)
    };
    let before = stats();
    drop(sum.backprop().keep_history().run().unwrap());
    assert_eq!(stats(), before);
    // A function for a value that comes after the first use fails.
    x[0].on_gradient(|gradient| gradient.reshape(&[1])).unwrap();
    assert!(sum.backprop().keep_history().run().is_err());
    assert_eq!(stats(), before, "after an error");
}

#[test]
fn what_is_computed_again_gives_the_gradients_to_the_bit() {
    let gpu = super::check::gpu();
    let x = parameters(&gpu, 3);
    let gradients_of = |is_kept: bool| -> Result<Vec<Vec<f32>>> {
        let h = x[0].matmul(&x[1])?;
        let y = match is_kept {
            // A value that was written in place is kept.
            true => {
                let y = h.copy()?;
                y.gelu_()?;
                y
            }
            false => h.gelu()?,
        };
        let z = (y.matmul(&x[2])? + y.t()?.matmul(&x[2])?)?;
        if !is_kept {
            // Nobody needs this memory again.
            let _no_grad = gpu.no_grad();
            y.fill_(3.0)?;
        }
        let loss = z.square()?.sum_all()?;
        let first = loss.backprop().keep_history().run()?;
        let second = loss.backward()?;
        let all = [&first, &second].into_iter();
        let all = all.flat_map(|gradients| x.iter().filter_map(|x| gradients.get(x)));
        all.map(|gradient| gradient.to_vec::<f32>()).collect()
    };
    let (found, expected) = (gradients_of(false).unwrap(), gradients_of(true).unwrap());
    assert_eq!(found.len(), 2 * x.len());
    assert!(found == expected);
}

#[test]
fn what_a_value_is_computed_of_must_stay_as_it_is() {
    let (gpu, _) = simulated();
    let x = parameters(&gpu, 3);
    let bias = gpu.zeros(&[SIDE], DType::F32).unwrap();
    let h = x[0].matmul(&x[1]).unwrap();
    let y = h.layer_norm(&[SIDE], None, Some(&bias), 1e-5).unwrap();
    let loss = y.matmul(&x[2]).unwrap().sum_all().unwrap();
    drop(y);
    bias.add_(1.0).unwrap();
    let error = loss.backward().unwrap_err();
    let Error::Gradient { reason, .. } = &error else {
        panic!("{error}");
    };
    assert!(reason.contains("layer_norm"), "{error}");
    assert_eq!(reason.matches("tests/grad/kept.rs").count(), 3, "{error}");
}

#[test]
fn the_backward_of_a_chain_is_one_launch() {
    let chains: [(&str, u64, Network); 7] = [
        ("activations by their results", 1, |x| {
            x[0].tanh()?.relu()?.sigmoid()
        }),
        ("activations by their operands", 1, |x| {
            x[0].sin()?.gelu()?.silu()
        }),
        ("numbers", 1, |x| {
            ((((&x[0] * 2.0)? + 1.0)? / 3.0)?.neg()? - 4.0)?.square()
        }),
        ("tensors", 1, |x| {
            (((&x[0] * &x[1])? + &x[1])? - &x[0])?.exp()
        }),
        ("masks", 1, |x| {
            let y = x[0].clamp(-0.1, 0.1)?.leaky_relu(0.1)?;
            y.masked_fill(&x[1].detach().gt(0.0)?, 0.0)
        }),
        ("two chains that share a mask", 2, |x| {
            x[0].detach().gt(0.0)?.where_(&x[0].exp()?, &x[1].sin()?)
        }),
        ("a chain of eight", 1, |x| {
            x[0].sin()?.cos()?.sin()?.cos()?.sin()?.cos()?.sin()?.cos()
        }),
    ];
    for (name, launches, chain) in chains {
        let (gpu, sim) = simulated();
        let x = parameters(&gpu, 2);
        let seed = gpu
            .rand_normal(&[SIDE, SIDE], 0.0, 1.0, 9, DType::F32)
            .unwrap();
        let y = chain(&x).unwrap();
        gpu.finish().unwrap();
        let before = sim.counters().dispatches;
        let gradients = y.backprop().seed(&seed).run().unwrap();
        gpu.finish().unwrap();
        let made = sim.counters().dispatches - before;
        assert_eq!(made, launches, "{name}: {:?}", gpu.fused_kernels());
        drop(gradients);
    }
}

#[test]
fn a_value_that_was_overwritten_is_kept_as_it_is_now() {
    type Write = fn(&Gpu, &Tensor, &Tensor) -> Result<()>;
    let writes: [(&str, Write); 2] = [
        ("under no_grad", |gpu, y, mask| {
            let _no_grad = gpu.no_grad();
            y.mul_(mask)
        }),
        ("through a detached handle", |_, y, mask| {
            y.detach().mul_(mask)
        }),
    ];
    let values: [(&str, Network); 3] = [
        ("gelu", |x| x[0].mul(1.0)?.gelu()),
        ("a product", |x| &x[0] * &x[1]),
        ("a norm", |x| x[0].layer_norm(&[SIDE], None, None, 1e-5)),
    ];
    let gpu = super::check::gpu();
    let x = parameters(&gpu, 3);
    // Small values are kept anyhow.
    for rows in [1, SIDE] {
        let x: Vec<Tensor> = x.iter().map(|x| x.narrow(0, 0, rows).unwrap()).collect();
        let mask = x[1].detach().gt(0.0).unwrap().cast(DType::F32).unwrap();
        let cases = values
            .iter()
            .flat_map(|value| writes.iter().map(move |write| (value, write)));
        for ((what, value), (how, write)) in cases {
            let name = format!("{what}, {how}, {rows} rows");
            let w = x[2].copy().unwrap().detach().requires_grad().unwrap();
            // Written, then used: the gradient belongs to what the product read.
            let y = value(&x).unwrap();
            write(&gpu, &y, &mask).unwrap();
            let loss = (&y * &w).unwrap().sum_all().unwrap();
            let gradient = loss.backward().unwrap().get(&w).unwrap();
            let found = gradient.to_vec::<f32>().unwrap();
            assert!(found == y.to_vec::<f32>().unwrap(), "{name}");
            // Used, then written: the value is computed again, or the backward says what is wrong.
            let y = value(&x).unwrap();
            let read = y.to_vec::<f32>().unwrap();
            let loss = (&y * &w).unwrap().sum_all().unwrap();
            write(&gpu, &y, &mask).unwrap();
            match loss.backward() {
                Ok(gradients) => {
                    assert_eq!(rows, SIDE, "{name}");
                    let found = gradients.get(&w).unwrap().to_vec::<f32>().unwrap();
                    assert!(found == read, "{name}");
                }
                Err(error) => {
                    assert_eq!(rows, 1, "{name}: {error}");
                    assert!(matches!(error, Error::Gradient { .. }), "{name}: {error}");
                }
            }
        }
    }
}
