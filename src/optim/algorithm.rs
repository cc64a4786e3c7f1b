//! The options of optimizers, and the factors of their formulas.

use crate::ops::optim::UpdateFormula;
use lapidary_core::{DType, Error, Result};

/// Options of [`Sgd`](super::Sgd). The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdOptions {
    /// The learning rate.
    pub lr: f64,
    /// The part of the momentum that stays in each step. 0 is without momentum, and without state.
    pub momentum: f64,
    /// The part of a gradient that does not go into the momentum.
    pub dampening: f64,
    /// The part of a parameter that is added to its gradient.
    pub weight_decay: f64,
    /// Looks ahead along the momentum (Sutskever et al., *On the importance of initialization and
    /// momentum in deep learning*, 2013).
    pub nesterov: bool,
    /// The type of the momentum: f32 or bf16.
    pub state_dtype: DType,
}

impl Default for SgdOptions {
    fn default() -> Self {
        SgdOptions {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            state_dtype: DType::F32,
        }
    }
}

/// Options of [`AdamW`](super::AdamW). The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWOptions {
    /// The learning rate.
    pub lr: f64,
    /// The parts of the first and the second moments that stay in each step.
    pub betas: (f64, f64),
    /// Is added to the root of the second moment, so that nothing is divided by 0.
    pub eps: f64,
    /// The part of a parameter, times the learning rate, that each step takes away. With 0 it is
    /// plain Adam.
    pub weight_decay: f64,
    /// The type of both moments: f32 or bf16.
    pub state_dtype: DType,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        AdamWOptions {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 1e-2,
            state_dtype: DType::F32,
        }
    }
}

/// An algorithm with its options.
#[derive(Clone, Copy, Debug)]
pub(super) enum Algorithm {
    Sgd(SgdOptions),
    AdamW(AdamWOptions),
}

impl Algorithm {
    pub(super) fn lr(&self) -> f64 {
        match self {
            Algorithm::Sgd(options) => options.lr,
            Algorithm::AdamW(options) => options.lr,
        }
    }

    pub(super) fn set_lr(&mut self, lr: f64) {
        match self {
            Algorithm::Sgd(options) => options.lr = lr,
            Algorithm::AdamW(options) => options.lr = lr,
        }
    }

    pub(super) fn state_dtype(&self) -> DType {
        match self {
            Algorithm::Sgd(options) => options.state_dtype,
            Algorithm::AdamW(options) => options.state_dtype,
        }
    }

    /// The names of the states of a parameter, which are PyTorch's.
    pub(super) fn names(&self) -> &'static [&'static str] {
        match self.formula() {
            UpdateFormula::Sgd => &[],
            UpdateFormula::SgdMomentum | UpdateFormula::SgdNesterov => &["momentum_buffer"],
            UpdateFormula::AdamW => &["exp_avg", "exp_avg_sq"],
        }
    }

    pub(super) fn formula(&self) -> UpdateFormula {
        match self {
            Algorithm::Sgd(options) if options.momentum == 0.0 => UpdateFormula::Sgd,
            Algorithm::Sgd(options) if options.nesterov => UpdateFormula::SgdNesterov,
            Algorithm::Sgd(_) => UpdateFormula::SgdMomentum,
            Algorithm::AdamW(_) => UpdateFormula::AdamW,
        }
    }

    /// The factors of the formula, computed in f64 and rounded once.
    pub(super) fn factors(&self) -> [f32; 8] {
        let factors = match *self {
            Algorithm::Sgd(of) => {
                let share = 1.0 - of.dampening;
                [
                    of.lr,
                    of.momentum,
                    share,
                    of.weight_decay,
                    0.0,
                    0.0,
                    0.0,
                    0.0,
                ]
            }
            Algorithm::AdamW(of) => {
                let kept = 1.0 - of.lr * of.weight_decay;
                let (beta1, beta2) = of.betas;
                let (share1, share2) = (1.0 - beta1, 1.0 - beta2);
                [of.lr, kept, share1, beta2, share2, of.eps, 0.0, 0.0]
            }
        };
        factors.map(|factor| factor as f32)
    }

    /// The logarithms of both betas.
    pub(super) fn logs(&self) -> [f32; 2] {
        // exp(-100) is 0 in f32, and -100 times a count is a number.
        let ln = |beta: f64| beta.ln().max(-100.0) as f32;
        match self {
            Algorithm::Sgd(_) => [ln(0.0); 2],
            Algorithm::AdamW(of) => [ln(of.betas.0), ln(of.betas.1)],
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        match *self {
            Algorithm::Sgd(of) => {
                at_least_0("momentum", of.momentum)?;
                at_least_0("weight_decay", of.weight_decay)?;
                if !(of.dampening as f32).is_finite() {
                    return refuse("dampening", format!("{} is not finite", of.dampening));
                }
                if of.nesterov && (of.momentum == 0.0 || of.dampening != 0.0) {
                    let reason = format!(
                        "it needs a momentum above 0 and a dampening of 0, and they are {} and {}",
                        of.momentum, of.dampening
                    );
                    return refuse("nesterov", reason);
                }
            }
            Algorithm::AdamW(of) => {
                for beta in [of.betas.0, of.betas.1] {
                    if !(0.0..1.0).contains(&beta) {
                        return refuse("betas", format!("{beta} is not in 0 to 1, without 1"));
                    }
                }
                at_least_0("eps", of.eps)?;
                at_least_0("weight_decay", of.weight_decay)?;
            }
        }
        at_least_0("lr", self.lr())?;
        match self.state_dtype() {
            DType::F32 | DType::Bf16 => Ok(()),
            got => Err(Error::DType {
                operation: "state_dtype",
                expected: "f32 or bf16".into(),
                got,
                hint: "",
                at: String::new(),
            }),
        }
    }
}

/// Refuses a negative number, NaN, and what is infinite in f32.
pub(super) fn at_least_0(option: &'static str, number: f64) -> Result<()> {
    match (number as f32).is_finite() && number >= 0.0 {
        true => Ok(()),
        false => refuse(option, format!("{number} is not a finite f32 of 0 or more")),
    }
}

pub(super) fn refuse(option: &'static str, reason: String) -> Result<()> {
    Err(Error::Option { option, reason })
}
