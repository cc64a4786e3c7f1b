//! A training with the habits that save memory. Each is a line or two.

use lapidary::grad::Gradients;
use lapidary::optim::{AdamW, AdamWOptions, LossScaler, LossScalerOptions};
use lapidary::{DType, Gpu, Result, Tensor};

use crate::data::Batch;
use crate::model::{Model, Pass};

/// The highest learning rate.
const RATE: f64 = 3e-3;
/// Steps over which the learning rate rises.
const WARM_UP: usize = 20;
const MOST_NORM: f64 = 1.0;

/// How a training treats memory.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Habits {
    /// Blocks keep only their inputs.
    pub(crate) checkpoint: bool,
    /// Parts of a batch, one after the other; their gradients are added up.
    pub(crate) parts: usize,
    /// Activations are f16, and the loss is scaled.
    pub(crate) f16: bool,
    /// The optimizer's state is bf16.
    pub(crate) bf16_state: bool,
}

impl Habits {
    pub(crate) const PLAIN: Habits = Habits {
        checkpoint: false,
        parts: 1,
        f16: false,
        bf16_state: false,
    };

    fn pass(&self) -> Pass {
        Pass {
            checkpoint: self.checkpoint,
            dtype: if self.f16 { DType::F16 } else { DType::F32 },
        }
    }
}

/// A model with its optimizer, on its way.
pub struct Training {
    pub(crate) model: Model,
    pub(crate) gpu: Gpu,
    habits: Habits,
    pub(crate) adam: AdamW,
    scaler: Option<LossScaler>,
    steps: usize,
    pub(crate) done: usize,
}

impl std::fmt::Debug for Training {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Training({} of {} steps)", self.done, self.steps)
    }
}

impl Training {
    /// A new model, to be trained for `steps` without habits that save memory.
    ///
    /// # Errors
    /// Those of the operations.
    pub fn plain(gpu: &Gpu, steps: usize, seed: u64) -> Result<Training> {
        Self::new(gpu, Habits::PLAIN, steps, seed)
    }

    /// A new model, to be trained for `steps`.
    pub(crate) fn new(gpu: &Gpu, habits: Habits, steps: usize, seed: u64) -> Result<Training> {
        let model = Model::new(gpu, seed)?;
        let options = AdamWOptions {
            betas: (0.9, 0.99),
            state_dtype: if habits.bf16_state {
                DType::Bf16
            } else {
                DType::F32
            },
            ..AdamWOptions::default()
        };
        let scaler = || LossScaler::new(gpu, LossScalerOptions::default());
        Ok(Training {
            adam: AdamW::new(&model.parameters.tensors(), options)?,
            scaler: habits.f16.then(scaler).transpose()?,
            model,
            gpu: gpu.clone(),
            habits,
            steps,
            done: 0,
        })
    }

    /// Learns from a batch. Returns the loss before, of shape `[]`. It waits for nothing.
    pub(crate) fn step(&mut self, batch: &Batch) -> Result<Tensor> {
        let mut gradients = Gradients::default();
        let mut total = self.gpu.zeros(&[], DType::F32)?;
        for part in batch.split(self.habits.parts)? {
            let loss = self.loss(&part)?;
            let share = (loss / self.habits.parts as f32)?;
            match &self.scaler {
                Some(scaler) => scaler.scale(&share)?.backprop().add_to(&mut gradients)?,
                None => share.backprop().add_to(&mut gradients)?,
            }
            total = (total + share.detach())?;
        }
        self.apply(gradients)?;
        Ok(total)
    }

    /// The mean loss of a batch, whose gradients [`apply`](Self::apply) takes.
    ///
    /// # Errors
    /// Those of the operations.
    pub fn loss(&self, batch: &Batch) -> Result<Tensor> {
        self.model
            .loss(&batch.seen, &batch.next, self.habits.pass())
    }

    /// Changes the parameters by the gradients of a step.
    ///
    /// # Errors
    /// Those of the optimizer.
    pub fn apply(&mut self, mut gradients: Gradients) -> Result<()> {
        self.adam.set_learning_rate(self.rate())?;
        self.done += 1;
        match &mut self.scaler {
            Some(scaler) => {
                scaler.unscale(&mut gradients)?;
                gradients.clip_global_norm(MOST_NORM)?;
                self.adam.step_scaled(&gradients, scaler)?;
                scaler.update()
            }
            None => {
                gradients.clip_global_norm(MOST_NORM)?;
                self.adam.step(&gradients)
            }
        }
    }

    /// The parameters of the model, in one order.
    pub fn parameters(&self) -> Vec<&Tensor> {
        self.model.parameters.tensors()
    }

    /// Steps that were made.
    pub fn done(&self) -> usize {
        self.done
    }

    /// The learning rate rises, stays, and falls to 0 in the second half.
    fn rate(&self) -> f64 {
        let rising = (self.done + 1) as f64 / WARM_UP as f64;
        let falling = 2.0 - 2.0 * self.done as f64 / self.steps as f64;
        RATE * rising.min(falling).min(1.0)
    }
}
