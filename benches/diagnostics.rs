//! The cost of diagnostics: the same steps without diagnostics, with each kind, and with all.
//!
//! ```text
//! cargo bench --bench diagnostics
//! ```
//!
//! A small network's forward pass and gradients on the adapter, with a read of the loss after every
//! step. The kinds alternate. Shown are the best step of each, and its ratio to that without
//! diagnostics.

use std::time::Instant;

use lapidary::{DType, Gpu, Options, Result, Tensor, diagnostics::Diagnostics};

const ROUNDS: usize = 60;

/// A network of two layers, and a batch for it.
struct Network {
    gpu: Gpu,
    images: Tensor,
    weights: [Tensor; 2],
}

impl Network {
    fn open(diagnostics: Diagnostics) -> Result<Network> {
        let options = Options {
            diagnostics: Some(diagnostics),
            ..Options::from_env().unwrap()
        };
        let gpu = Gpu::open(options)?;
        let normal = |shape: &[usize], seed| gpu.rand_normal(shape, 0.0, 0.05, seed, DType::F32);
        Ok(Network {
            images: normal(&[64, 784], 1)?,
            weights: [normal(&[784, 256], 2)?, normal(&[256, 10], 3)?],
            gpu,
        })
    }

    fn step(&self) -> Result<f32> {
        let [first, second] = &self.weights;
        let hidden = self.images.matmul(first)?.relu()?;
        let scores = hidden.matmul(second)?.softmax(1)?;
        let error = (&scores - 0.1)?;
        let of_second = hidden.t()?.matmul(&error)?;
        let back = (error.matmul(&second.t()?)? * hidden.gt(0)?.cast(DType::F32)?)?;
        let of_first = self.images.t()?.matmul(&back)?;
        second.sub_(&(of_second * 1e-3)?)?;
        first.sub_(&(of_first * 1e-3)?)?;
        Ok((&error * &error)?.sum_all()?.to_vec::<f32>()?[0])
    }

    /// Seconds of a step.
    fn time(&self) -> Result<f64> {
        let start = Instant::now();
        self.step()?;
        Ok(start.elapsed().as_secs_f64())
    }
}

fn main() -> Result<()> {
    let names = [
        "none",
        "canaries",
        "poison",
        "unwritten",
        "non_finite",
        "all",
    ];
    let mut networks = Vec::new();
    for name in names {
        let network = Network::open(name.parse()?)?;
        network.step()?;
        networks.push((name, network, f64::INFINITY));
    }
    for _ in 0..ROUNDS {
        for (_, network, best) in &mut networks {
            *best = best.min(network.time()?);
        }
    }
    let none = networks[0].2;
    println!("{}", networks[0].1.gpu.caps().name);
    for (name, network, best) in &networks {
        let ms = best * 1e3;
        println!("  {name:<12} {ms:>9.2} ms a step {:>7.2} ×", best / none);
        assert_eq!(network.gpu.diagnostics().check()?, []);
    }
    Ok(())
}
