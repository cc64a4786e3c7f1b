//! Training that was saved and loaded goes on to the bit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use lapidary::optim::{AdamW, AdamWOptions, LossScaler, LossScalerOptions, Optimizer};
use lapidary::optim::{Sgd, SgdOptions};
use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu, Result, Tensor, files::ModelFile};

use super::elements;

const STATE_BF16: AdamWOptions = AdamWOptions {
    lr: 0.01,
    betas: (0.9, 0.99),
    eps: 1e-8,
    weight_decay: 0.1,
    state_dtype: DType::Bf16,
};

const MOMENTUM: SgdOptions = SgdOptions {
    lr: 0.01,
    momentum: 0.9,
    dampening: 0.0,
    weight_decay: 0.0,
    nesterov: false,
    state_dtype: DType::F32,
};

fn path(ending: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!(
        "lapidary-test-optim-{}-{count}.{ending}",
        std::process::id()
    );
    std::env::temp_dir().join(name)
}

/// A device whose groups depend on the size of its bindings.
fn open(max_binding_bytes: u64) -> Gpu {
    let options = SimOptions {
        max_binding_bytes,
        dirty: true,
        ..SimOptions::default()
    };
    Gpu::simulated(options).unwrap().0
}

/// The parameters of a small network.
fn network(gpu: &Gpu) -> Result<Vec<Tensor>> {
    let shapes: [&[usize]; 5] = [&[16, 90], &[90], &[90, 70], &[70], &[70, 3]];
    let made = shapes.iter().zip(0..);
    made.map(|(shape, seed)| {
        let made = gpu.rand_normal(shape, 0.0, 0.2, seed, DType::F32)?;
        made.requires_grad()
    })
    .collect()
}

fn loss(gpu: &Gpu, w: &[Tensor], step: u64) -> Result<Tensor> {
    let x = gpu.rand_normal(&[8, 16], 0.0, 1.0, 100 + step, DType::F32)?;
    let hidden = (x.matmul(&w[0])? + &w[1])?.tanh()?;
    let hidden = (hidden.matmul(&w[2])? + &w[3])?.tanh()?;
    hidden.matmul(&w[4])?.square()?.mean_all()
}

/// One of the two kinds of optimizer over a network.
type Make<O> = fn(&[&Tensor]) -> Result<Optimizer<O>>;

/// A training under way.
struct Training<O> {
    gpu: Gpu,
    network: Vec<Tensor>,
    optimizer: Optimizer<O>,
    scaler: LossScaler,
}

impl<O> Training<O> {
    fn new(gpu: Gpu, network: Vec<Tensor>, make: Make<O>) -> Result<Self> {
        let parameters: Vec<&Tensor> = network.iter().collect();
        let options = LossScalerOptions {
            growth_interval: 4,
            ..LossScalerOptions::default()
        };
        Ok(Training {
            optimizer: make(&parameters)?,
            scaler: LossScaler::new(&gpu, options)?,
            gpu,
            network,
        })
    }

    fn run(&mut self, steps: std::ops::Range<u64>) -> Result<()> {
        for step in steps {
            let loss = loss(&self.gpu, &self.network, step)?;
            // The third step is skipped.
            let loss = if step == 2 { (loss / 0.0)? } else { loss };
            let gradients = self.scaler.scale(&loss)?.backward()?;
            self.optimizer.step_scaled(&gradients, &mut self.scaler)?;
            self.scaler.update()?;
        }
        Ok(())
    }

    fn tensors(&self) -> Vec<(String, Tensor)> {
        let named = |(number, w): (usize, &Tensor)| (format!("w{number}"), w.clone());
        let mut tensors: Vec<_> = self.network.iter().enumerate().map(named).collect();
        tensors.extend(self.optimizer.state());
        tensors.extend(self.scaler.state());
        tensors
    }

    fn load(gpu: Gpu, make: Make<O>, get: impl Fn(&str) -> Result<Tensor> + Copy) -> Result<Self> {
        let network = (0..5).map(|number| get(&format!("w{number}"))?.requires_grad());
        let mut training = Training::new(gpu, network.collect::<Result<_>>()?, make)?;
        training.optimizer.load_state(get)?;
        training.scaler.load_state(get)?;
        Ok(training)
    }

    fn bits(&self) -> Vec<(String, Vec<u32>)> {
        let bits = |tensor: &Tensor| elements(tensor).into_iter().map(f32::to_bits).collect();
        let tensors = self.tensors().into_iter();
        tensors
            .map(|(name, tensor)| (name, bits(&tensor)))
            .collect()
    }
}

fn check<O>(make: Make<O>) -> Result<()> {
    let begin = || {
        let gpu = open(128 << 20);
        let network = network(&gpu)?;
        Training::new(gpu, network, make)
    };
    let mut whole = begin()?;
    whole.run(0..10)?;
    let expected = whole.bits();
    for is_model in [false, true] {
        let mut first = begin()?;
        first.run(0..5)?;
        let tensors = first.tensors();
        let named: Vec<(&str, &Tensor)> = tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
            .collect();
        // Another device has other groups, and the same names.
        let fresh = open(16 << 10);
        let path = path(if is_model { "safetensors" } else { "state" });
        let mut second = match is_model {
            true => {
                first.gpu.files().save_model(&path, &named, &[])?;
                let file = ModelFile::open(&path)?;
                let model = fresh.files().load_model(&file, |_| {})?;
                Training::load(fresh, make, |name| model.get(name))?
            }
            false => {
                first.gpu.files().save_state(&path, &named)?;
                let state = fresh.files().load_state(&path)?;
                Training::load(fresh, make, |name| state.get(name))?
            }
        };
        second.run(5..10)?;
        assert!(second.bits() == expected, "{}", path.display());
        std::fs::remove_file(&path).expect("the file is there");
    }
    Ok(())
}

#[test]
fn training_goes_on_to_the_bit_from_both_kinds_of_files() {
    check(|list| AdamW::new(list, AdamWOptions::default())).unwrap();
    check(|list| AdamW::new(list, STATE_BF16)).unwrap();
    check(|list| Sgd::new(list, MOMENTUM)).unwrap();
}
