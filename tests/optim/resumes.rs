//! Training that was saved and loaded goes on to the bit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use lapidary::files::by_name;
use lapidary::optim::{AdamW, AdamWOptions, LossScaler, LossScalerOptions, Optimizer};
use lapidary::optim::{Parameters, Sgd, SgdOptions};
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
fn network(gpu: &Gpu) -> Result<Parameters> {
    let shapes: [&[usize]; 5] = [&[16, 90], &[90], &[90, 70], &[70], &[70, 3]];
    let mut network = Parameters::default();
    for (shape, number) in shapes.iter().zip(0..) {
        let made = gpu.rand_normal(shape, 0.0, 0.2, number, DType::F32)?;
        network.add(&format!("w{number}"), made)?;
    }
    Ok(network)
}

fn loss(gpu: &Gpu, w: &[&Tensor], step: u64) -> Result<Tensor> {
    let x = gpu.rand_normal(&[8, 16], 0.0, 1.0, 100 + step, DType::F32)?;
    let hidden = (x.matmul(w[0])? + w[1])?.tanh()?;
    let hidden = (hidden.matmul(w[2])? + w[3])?.tanh()?;
    hidden.matmul(w[4])?.square()?.mean_all()
}

/// One of the two kinds of optimizer over a network.
type Make<O> = fn(&[&Tensor]) -> Result<Optimizer<O>>;

/// A training under way, with two optimizers of one kind, and a number of its own.
struct Training<O> {
    gpu: Gpu,
    network: Parameters,
    optimizers: [(&'static str, Optimizer<O>); 2],
    step: u64,
    scaler: LossScaler,
}

impl<O> Training<O> {
    fn new(gpu: Gpu, make: Make<O>) -> Result<Self> {
        let network = network(&gpu)?;
        let (first, second) = (&network.tensors()[..2], &network.tensors()[2..]);
        let options = LossScalerOptions {
            growth_interval: 4,
            ..LossScalerOptions::default()
        };
        Ok(Training {
            optimizers: [("first", make(first)?), ("second", make(second)?)],
            step: 0,
            scaler: LossScaler::new(&gpu, options)?,
            gpu,
            network,
        })
    }

    fn run(&mut self, steps: u64) -> Result<()> {
        for _ in 0..steps {
            let loss = loss(&self.gpu, &self.network.tensors(), self.step)?;
            // The third step is skipped.
            let loss = if self.step == 2 { (loss / 0.0)? } else { loss };
            let gradients = self.scaler.scale(&loss)?.backward()?;
            for (_, optimizer) in &mut self.optimizers {
                optimizer.step_scaled(&gradients, &mut self.scaler)?;
            }
            self.scaler.update()?;
            self.step += 1;
        }
        Ok(())
    }

    fn tensors(&self) -> Result<Vec<(String, Tensor)>> {
        let step = self.gpu.scalar(self.step as u32)?;
        let mut tensors = vec![("step".to_owned(), step)];
        tensors.extend(self.network.state(""));
        for (name, optimizer) in &self.optimizers {
            tensors.extend(optimizer.state(name));
        }
        tensors.extend(self.scaler.state("scaler"));
        Ok(tensors)
    }

    fn load(gpu: Gpu, make: Make<O>, get: impl Fn(&str) -> Result<Tensor> + Copy) -> Result<Self> {
        let mut training = Training::new(gpu, make)?;
        training.network.load_state("", get)?;
        for (name, optimizer) in &mut training.optimizers {
            optimizer.load_state(name, get)?;
        }
        training.scaler.load_state("scaler", get)?;
        training.step = get("step")?.item::<u32>()?.into();
        Ok(training)
    }

    fn bits(&self) -> Vec<(String, Vec<u32>)> {
        let bits = |tensor: &Tensor| elements(tensor).into_iter().map(f32::to_bits).collect();
        let tensors = self.tensors().expect("an upload").into_iter();
        tensors
            .map(|(name, tensor)| (name, bits(&tensor)))
            .collect()
    }
}

fn check<O>(make: Make<O>) -> Result<()> {
    let begin = || Training::new(open(128 << 20), make);
    let mut whole = begin()?;
    whole.run(10)?;
    let expected = whole.bits();
    for is_model in [false, true] {
        let mut first = begin()?;
        first.run(5)?;
        let tensors = first.tensors()?;
        let named = by_name(&tensors);
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
        second.run(5)?;
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

/// Files that were written before there were prefixes.
#[test]
fn an_empty_prefix_reads_plain_names() {
    let gpu = open(128 << 20);
    let network = network(&gpu).unwrap();
    let mut adam = AdamW::new(&network.tensors(), AdamWOptions::default()).unwrap();
    let names = |state: Vec<(String, Tensor)>| -> Vec<String> {
        state.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(adam.state(""))[..2], ["step", "exp_avg.0"]);
    assert_eq!(names(adam.state("a.b"))[..2], ["a.b.step", "a.b.exp_avg.0"]);
    let old = |name: &str| match name {
        "step" => gpu.full(&[5], 7, DType::U32),
        _ => {
            let (_, number) = name.split_once('.').expect("a number");
            gpu.ones(
                network.get(&format!("w{number}")).unwrap().shape(),
                DType::F32,
            )
        }
    };
    adam.load_state("", old).unwrap();
    let state = adam.state("adam");
    assert_eq!(state[0].1.to_vec::<u32>().unwrap(), [7; 5]);
    assert_eq!(elements(&state[10].1), [1.0; 210]);
    let scaler = LossScaler::new(&gpu, LossScalerOptions::default()).unwrap();
    let expected = ["scale", "good_steps", "skipped_steps"];
    assert_eq!(names(scaler.state("")), expected);
}
