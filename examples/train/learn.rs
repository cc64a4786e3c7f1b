//! What a training step keeps, and for how long: the habits, and the optimizer (Adam) that follows
//! them.

use lapidary::{DType, Gpu, Result, Tensor};

use crate::model::{Block, Kept, Model};

/// How a training step treats memory.
#[derive(Clone, Copy)]
pub(crate) struct Habits {
    /// Images in one pass through the model.
    pub(crate) batch: usize,
    /// Passes before the weights change; their gradients are added up.
    pub(crate) pieces: usize,
    /// Activations stay until the pass is over, and gradients until the step is: as long as a
    /// variable names them.
    pub(crate) hold: bool,
    /// New weights are made beside the old ones.
    pub(crate) beside: bool,
    /// A block keeps only its input; the backward pass computes the rest again.
    pub(crate) recompute: bool,
    /// Activations for the backward pass are kept in 16 bits.
    pub(crate) half: bool,
    /// Adam's moments leave the device until the next step.
    pub(crate) park: bool,
}

impl Habits {
    pub(crate) const CARELESS: Habits = Habits {
        batch: crate::BATCH,
        pieces: 1,
        hold: true,
        beside: true,
        recompute: false,
        half: false,
        park: false,
    };

    pub(crate) const CAREFUL: Habits = Habits {
        batch: crate::BATCH / 4,
        pieces: 4,
        hold: false,
        beside: false,
        recompute: true,
        half: true,
        park: true,
    };

    /// An activation as it is kept until the backward pass.
    pub(crate) fn keep(&self, activation: &Tensor) -> Result<Tensor> {
        match self.half {
            true => activation.cast(DType::F16),
            false => Ok(activation.clone()),
        }
    }
}

/// Weights, Adam's moments, and the gradient of this step.
pub(crate) struct Param {
    pub(crate) value: Tensor,
    mean: Tensor,
    square: Tensor,
    gradient: Option<Tensor>,
}

impl Param {
    pub(crate) fn new(gpu: &Gpu, value: Tensor) -> Result<Param> {
        let shape = value.shape().to_vec();
        Ok(Param {
            value: value.named("weights"),
            mean: gpu.zeros(&shape, DType::F32)?.named("mean of gradients"),
            square: gpu.zeros(&shape, DType::F32)?.named("square of gradients"),
            gradient: None,
        })
    }
}

/// Adam's constants.
const BETA_MEAN: f32 = 0.9;
const BETA_SQUARE: f32 = 0.99;
const EPS: f32 = 1e-8;

/// Collects gradients, and updates weights according to the habits.
pub(crate) struct Learner {
    pub(crate) habits: Habits,
    rate: f32,
    steps: i32,
    is_last_piece: bool,
    /// Tensors that live until the end of the pass only because they are held.
    held: Vec<Tensor>,
}

impl Learner {
    pub(crate) fn new(habits: Habits) -> Learner {
        Learner {
            habits,
            rate: 0.0,
            steps: 0,
            is_last_piece: true,
            held: Vec::new(),
        }
    }

    /// One step over the images in `rows`. Returns the mean loss, of shape `[]`, without waiting
    /// for it.
    pub(crate) fn step(
        &mut self,
        model: &mut Model,
        images: &Tensor,
        targets: &Tensor,
        rows: &Tensor,
        rate: f32,
    ) -> Result<Tensor> {
        (self.rate, self.steps) = (rate, self.steps + 1);
        let Habits { batch, pieces, .. } = self.habits;
        let mut loss: Option<Tensor> = None;
        for piece in 0..pieces {
            self.is_last_piece = piece + 1 == pieces;
            let rows = rows.narrow(0, piece * batch, batch)?;
            let x = images.index_select(0, &rows)?;
            let y = targets.index_select(0, &rows)?;
            let of_piece = model.learn(&x, &y, 1.0 / (batch * pieces) as f32, self)?;
            self.held.clear();
            loss = Some(match loss {
                Some(loss) => (loss + of_piece)?,
                None => of_piece,
            });
        }
        model.each_param(&mut |param| match param.gradient.take() {
            Some(gradient) => self.update(param, &gradient),
            None => Ok(()),
        })?;
        loss.map_or_else(|| targets.sum_all(), Ok)
    }

    /// Holds a block's results, if the habit says so.
    pub(crate) fn hold(&mut self, kept: &Kept) {
        if self.habits.hold {
            self.held.extend(kept.tensors().cloned());
        }
    }

    /// Runs a block on `input` and keeps what its backward pass needs.
    pub(crate) fn keep(&self, block: &Block, input: &Tensor) -> Result<(Tensor, Kept)> {
        let (output, kept) = block.forward(input, &self.habits)?;
        match self.habits.recompute {
            true => Ok((output, Kept::Input(self.habits.keep(input)?))),
            false => Ok((output, kept)),
        }
    }

    /// Takes the gradient of one parameter. It adds the gradient up, keeps it until the end of the
    /// step, or applies it at once, so that no two gradients are alive together.
    pub(crate) fn take(&mut self, param: &mut Param, gradient: Tensor) -> Result<()> {
        let gradient = match param.gradient.take() {
            Some(before) => {
                before.add_(&gradient)?;
                before
            }
            None => gradient,
        };
        if self.habits.hold || !self.is_last_piece {
            param.gradient = Some(gradient);
            return Ok(());
        }
        self.update(param, &gradient)
    }

    /// Adam: Kingma and Ba, 2015.
    fn update(&self, param: &mut Param, gradient: &Tensor) -> Result<()> {
        let [of_mean, of_square] = [BETA_MEAN, BETA_SQUARE].map(|beta| 1.0 - beta.powi(self.steps));
        let mean = ((&param.mean * BETA_MEAN)? + (gradient * (1.0 - BETA_MEAN))?)?;
        let square =
            ((&param.square * BETA_SQUARE)? + (gradient.square()? * (1.0 - BETA_SQUARE))?)?;
        let root = ((&square / of_square)?.sqrt()? + EPS)?;
        let value = (&param.value - ((&mean * (self.rate / of_mean))? / root)?)?;
        if self.habits.beside {
            (param.mean, param.square, param.value) = (mean, square, value);
        } else {
            param.value.copy_(&value)?;
            param.mean.copy_(&mean)?;
            param.square.copy_(&square)?;
        }
        if self.habits.park {
            param.mean.evict()?;
            param.square.evict()?;
        }
        Ok(())
    }
}
