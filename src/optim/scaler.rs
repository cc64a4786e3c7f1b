//! Scaling of losses, so that small gradients do not vanish in f16.

use std::sync::{Arc, Weak};

use super::algorithm::refuse;
use crate::gpu::Gpu;
use crate::grad::Gradients;
use crate::ops::{clip, fill};
use crate::tensor::Tensor;
use crate::tensor::history::Paused;
use lapidary_core::internal::{Engine, Handle, MadeFor, Storage};
use lapidary_core::{DType, Error, Result};

/// Gradients are multiplied by the inverse of the scale. A device may take that of a larger scale
/// for 0.
const MOST_SCALE: f32 = 1.0 / f32::MIN_POSITIVE;

/// Options of a [`LossScaler`]. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScalerOptions {
    /// The first scale, at most 2¹²⁶.
    pub initial_scale: f32,
    /// The scale is multiplied by this after `growth_interval` good steps, unless it would exceed
    /// 2¹²⁶.
    pub growth_factor: f32,
    /// The scale is multiplied by this after gradients that were not finite.
    pub backoff_factor: f32,
    /// Good steps in a row before the scale grows.
    pub growth_interval: u32,
}

impl Default for LossScalerOptions {
    fn default() -> Self {
        LossScalerOptions {
            initial_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
        }
    }
}

/// Scales losses by as much as f16 allows, as `torch.amp.GradScaler` does. (Micikevicius et al.,
/// *Mixed Precision Training*, 2018.)
///
/// ```no_run
/// # use lapidary::{Gpu, Tensor, optim::AdamW};
/// # fn demo(gpu: &Gpu, adam: &mut AdamW, forward: impl Fn() -> lapidary::Result<Tensor>)
/// # -> lapidary::Result<()> {
/// let mut scaler = lapidary::optim::LossScaler::new(gpu, Default::default())?;
/// for _ in 0..1000 {
///     let loss = forward()?;
///     let mut gradients = scaler.scale(&loss)?.backward()?;
///     scaler.unscale(&mut gradients)?; // only to look at them, or to clip them
///     gradients.clip_global_norm(1.0)?;
///     adam.step_scaled(&gradients, &mut scaler)?;
///     scaler.update()?;
/// }
/// println!("{} steps were skipped", scaler.skipped_steps()?.item::<u32>()?);
/// # Ok(()) }
/// ```
///
/// The scale, what was found and all counts are on the device, and the device skips the step. So,
/// unlike PyTorch's, no call waits. Several optimizers may share a scaler: `unscale` the gradients
/// of all before the first step, and all of them skip together.
#[derive(Debug)]
pub struct LossScaler {
    options: LossScalerOptions,
    /// These four are f32 of shape `[]`, and written in place: so a dry run changes its own only.
    scale: Tensor,
    good_steps: Tensor,
    skipped_steps: Tensor,
    /// Above 0 if gradients that were checked were not finite.
    found: Tensor,
    /// Where `found` was written since the last update: its own storage, and those of dry runs.
    checked: Vec<Weak<Storage>>,
}

impl LossScaler {
    /// A scaler with its first scale.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for a scale that is not above 0 or above 2¹²⁶, or for a growth of 1 or
    /// less. Also for a backoff outside of 0 to 1, or an interval of 0.
    #[track_caller]
    pub fn new(gpu: &Gpu, options: LossScalerOptions) -> Result<LossScaler> {
        options.check()?;
        LossScaler::on(gpu.engine(), options)
    }

    #[track_caller]
    pub(super) fn on(engine: &Handle<Engine>, options: LossScalerOptions) -> Result<LossScaler> {
        let number = |value: f32| fill::full(engine, &[], value.into(), DType::F32);
        Ok(LossScaler {
            options,
            scale: number(options.initial_scale)?,
            good_steps: number(0.0)?,
            skipped_steps: number(0.0)?,
            found: number(0.0)?,
            checked: Vec::new(),
        })
    }

    /// The loss times the scale, in f32: go backward from it.
    ///
    /// # Errors
    ///
    /// [`Error::Foreign`] for a loss of another `Gpu`.
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        loss.cast(DType::F32)?.mul(&self.scale)
    }

    /// Divides gradients by the scale, in place. Only clipping, or your own look at them, needs
    /// this. [`step_scaled`](super::Optimizer::step_scaled) divides in f32, and rounds nothing to
    /// f16.
    ///
    /// # Errors
    ///
    /// [`Error::Gradient`] for gradients that were unscaled before or that were recorded, and
    /// [`Error::Foreign`] for those of another `Gpu`.
    #[track_caller]
    pub fn unscale(&mut self, gradients: &mut Gradients) -> Result<()> {
        const OPERATION: &str = "unscale";
        let _method = MadeFor::method(OPERATION);
        if gradients.is_unscaled() {
            return Err(Error::Gradient {
                operation: OPERATION,
                reason: format!("the {} gradients were unscaled before", gradients.len()),
            });
        }
        gradients.check_engine(OPERATION, &self.scale)?;
        let tensors = gradients.for_writing(OPERATION)?;
        self.check(OPERATION, gradients)?;
        let tensors: Vec<&Tensor> = tensors.iter().filter(|one| !one.is_empty()).collect();
        clip::divide(&tensors, &self.scale)?;
        gradients.set_unscaled();
        Ok(())
    }

    /// Adapts the scale after the steps of a round. If gradients were not finite, it counts a
    /// skipped step and lowers the scale. Otherwise it counts a good one, and after enough of them
    /// in a row raises the scale.
    ///
    /// # Errors
    ///
    /// [`Error::Gradient`] if no gradients were unscaled or used in a step since the last update.
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        let _paused = Paused::new();
        let of = self.options;
        let is_bad = self.checked_number("update")?.gt(0.0)?;
        let good = (&self.good_steps + 1.0)?.masked_fill(&is_bad, 0.0)?;
        let is_enough = good.ge(of.growth_interval as f32)?;
        let may_grow = self.scale.le(MOST_SCALE / of.growth_factor)?;
        let grown = (&self.scale * of.growth_factor)?;
        let grown = is_enough
            .logical_and(&may_grow)?
            .where_(&grown, &self.scale)?;
        let lower = (&self.scale * of.backoff_factor)?.maximum(f32::MIN_POSITIVE)?;
        self.scale.copy_(&is_bad.where_(&lower, &grown)?)?;
        self.good_steps.copy_(&good.masked_fill(&is_enough, 0.0)?)?;
        self.skipped_steps.add_(&is_bad.cast(DType::F32)?)?;
        self.forget_check();
        Ok(())
    }

    /// The scale of the next loss, as an f32 of shape `[]` on the device.
    ///
    /// # Errors
    ///
    /// Those of [`copy`](Tensor::copy).
    #[track_caller]
    pub fn current_scale(&self) -> Result<Tensor> {
        self.scale.copy()
    }

    /// The number of updates after gradients that were not finite, as a u32 of shape `[]` on the
    /// device. It is exact up to 2²⁴.
    ///
    /// # Errors
    ///
    /// Those of [`cast`](Tensor::cast).
    #[track_caller]
    pub fn skipped_steps(&self) -> Result<Tensor> {
        self.skipped_steps.cast(DType::U32)
    }

    /// Notes whether these gradients are finite, unless that was done as they were unscaled.
    #[track_caller]
    pub(super) fn check(&mut self, operation: &'static str, gradients: &Gradients) -> Result<()> {
        gradients.check_engine(operation, &self.scale)?;
        if gradients.is_unscaled() {
            return Ok(());
        }
        let _paused = Paused::new();
        let tensors = gradients.for_reading()?;
        let tensors: Vec<&Tensor> = tensors.iter().filter(|one| !one.is_empty()).collect();
        let found = match &tensors[..] {
            [] => self.good_steps.zeros_like()?,
            tensors => clip::not_finite(tensors)?,
        };
        match self.has_checked() {
            true => self.found.copy_(&self.found.maximum(&found)?)?,
            false => self.found.copy_(&found)?,
        };
        self.forget_check();
        let here = Arc::downgrade(&self.found.storage.here());
        self.checked.push(here);
        Ok(())
    }

    fn has_checked(&self) -> bool {
        let here = Arc::as_ptr(&self.found.storage.here());
        self.checked.iter().any(|one| one.as_ptr() == here)
    }

    fn forget_check(&mut self) {
        let here = Arc::as_ptr(&self.found.storage.here());
        (self.checked).retain(|one| one.as_ptr() != here && one.strong_count() > 0);
    }

    /// Whether gradients that are not finite were found, as a number above 0.
    pub(super) fn checked_number(&self, operation: &'static str) -> Result<&Tensor> {
        match self.has_checked() {
            true => Ok(&self.found),
            false => Err(Error::Gradient {
                operation,
                reason: "no gradients were checked since the last `update`: call `unscale` or \
                         `step_scaled` before"
                    .into(),
            }),
        }
    }

    pub(super) fn engine(&self) -> &Handle<Engine> {
        &self.scale.engine
    }

    pub(super) fn options(&self) -> LossScalerOptions {
        self.options
    }

    pub(super) fn scale_tensor(&self) -> &Tensor {
        &self.scale
    }

    pub(super) fn tensors(&self) -> [(&'static str, &Tensor); 3] {
        [
            ("scale", &self.scale),
            ("good_steps", &self.good_steps),
            ("skipped_steps", &self.skipped_steps),
        ]
    }
}

impl LossScalerOptions {
    fn check(&self) -> Result<()> {
        let scale = self.initial_scale;
        if !(scale > 0.0 && scale <= MOST_SCALE) {
            return refuse(
                "initial_scale",
                format!("{scale} is not above 0 and at most 2¹²⁶, whose inverse devices know"),
            );
        }
        let growth = self.growth_factor;
        if !(growth.is_finite() && growth > 1.0) {
            return refuse(
                "growth_factor",
                format!("{growth} is not a finite number above 1"),
            );
        }
        let backoff = self.backoff_factor;
        if !(backoff > 0.0 && backoff < 1.0) {
            return refuse(
                "backoff_factor",
                format!("{backoff} is not between 0 and 1"),
            );
        }
        match self.growth_interval {
            0 => refuse("growth_interval", "0 steps: it must be 1 or more".into()),
            _ => Ok(()),
        }
    }
}
