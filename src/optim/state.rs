//! The state of optimizers, scalers and parameters as named tensors, to save it and to go on.

use super::{LossScaler, Optimizer};
use crate::ops::optim::{COUNT_STEP, FIRST_COUNT};
use crate::tensor::Tensor;
use crate::tensor::history::Paused;
use crate::tensor::layout::Layout;
use lapidary_core::{Error, Result};

impl<O> Optimizer<O> {
    /// The state as named tensors, for [`save_state`](crate::files::Files::save_state) or
    /// `save_model` beside the parameters. With them, training goes on to the bit.
    ///
    /// The prefix tells optimizers of one file apart. With `"adam"` the names are:
    ///
    /// | name | what it is |
    /// | --- | --- |
    /// | `adam.step` | the number of updates of each parameter, as u32 |
    /// | `adam.exp_avg.0`, `adam.exp_avg_sq.0`, … | AdamW: the moments, in a parameter's shape |
    /// | `adam.momentum_buffer.0`, … | SGD: the momentum, in a parameter's shape |
    ///
    /// Parameters are numbered from 0 in the order of `new`. The names do not depend on the device.
    /// The tensors are the state itself, not copies: the next step changes them. Options, the
    /// learning rate among them, are the app's to save. An empty prefix gives plain names, such as
    /// `step`.
    ///
    /// ```no_run
    /// # use lapidary::{Gpu, Tensor, optim::AdamW};
    /// use lapidary::files::by_name;
    ///
    /// # fn demo(gpu: &Gpu, w: &Tensor, adam: &mut AdamW) -> lapidary::Result<()> {
    /// let state = adam.state("adam");
    /// let mut tensors = by_name(&state);
    /// tensors.push(("w", w));
    /// gpu.files().save_state("training.state", &tensors)?;
    ///
    /// let saved = gpu.files().load_state("training.state")?;
    /// adam.load_state("adam", |name| saved.get(name))?;
    /// # Ok(()) }
    /// ```
    pub fn state(&self, prefix: &str) -> Vec<(String, Tensor)> {
        let mut layout = Layout::contiguous(&[self.parameters.len()]);
        layout.offset = FIRST_COUNT;
        layout.strides[0] = COUNT_STEP as isize;
        let mut state = vec![(name_of(prefix, "step"), self.counts.view(layout))];
        for (plane, name) in self.algorithm.names().iter().enumerate() {
            let mut of_plane = Vec::new();
            for group in &self.groups {
                let members = group.members().iter();
                of_plane.extend(members.map(|one| (one.number, group.state_of(one, plane))));
            }
            of_plane.sort_by_key(|(number, _)| *number);
            let named = |(number, tensor)| (name_of(prefix, &format!("{name}.{number}")), tensor);
            state.extend(of_plane.into_iter().map(named));
        }
        state
    }

    /// Takes a state over that [`state`](Self::state) gave, of an optimizer with the same kind of
    /// options and parameters of the same shapes. `get` returns the tensor of a name, which begins
    /// with the prefix. The elements are copied to new tensors. So the optimizer goes on after its
    /// state was lost with a device, or has no value because a step failed.
    ///
    /// # Errors
    ///
    /// Those of `get`. [`Error::Shape`] and [`Error::DType`] for a tensor that does not fit, and
    /// [`Error::Foreign`] for one of another `Gpu`. The state has not changed then.
    #[track_caller]
    pub fn load_state(
        &mut self,
        prefix: &str,
        get: impl FnMut(&str) -> Result<Tensor>,
    ) -> Result<()> {
        if is_from_outside(&self.counts) {
            return load(&self.state(prefix), get);
        }
        // Parameters share tensors, and one without a value would get none part by part.
        let parameters: Vec<&Tensor> = self.parameters.iter().collect();
        let loaded = Optimizer::with(&parameters, self.algorithm)?;
        load(&loaded.state(prefix), get)?;
        *self = loaded;
        Ok(())
    }
}

impl LossScaler {
    /// The state as named tensors: the prefix, then `.scale`, `.good_steps` and `.skipped_steps`.
    /// Each is an f32 of shape `[]`. See [`Optimizer::state`].
    pub fn state(&self, prefix: &str) -> Vec<(String, Tensor)> {
        let named = self.tensors().into_iter();
        named
            .map(|(name, tensor)| (name_of(prefix, name), tensor.clone()))
            .collect()
    }

    /// Takes a state over that [`state`](Self::state) gave. The elements are copied to new tensors,
    /// as by [`Optimizer::load_state`]. Gradients that were checked before do not count any more.
    ///
    /// # Errors
    ///
    /// Those of [`Optimizer::load_state`].
    #[track_caller]
    pub fn load_state(
        &mut self,
        prefix: &str,
        get: impl FnMut(&str) -> Result<Tensor>,
    ) -> Result<()> {
        if is_from_outside(self.scale_tensor()) {
            return load(&self.state(prefix), get);
        }
        let loaded = LossScaler::on(self.engine(), self.options())?;
        load(&loaded.state(prefix), get)?;
        *self = loaded;
        Ok(())
    }
}

/// A name behind its prefix.
pub(super) fn name_of(prefix: &str, name: &str) -> String {
    match prefix {
        "" => name.to_owned(),
        _ => format!("{prefix}.{name}"),
    }
}

/// Is there a dry run of the tensor's device? Then the state keeps its tensors, whose fakes are
/// written to: the app goes on with them after the run.
fn is_from_outside(tensor: &Tensor) -> bool {
    tensor.engine.is_faked()
}

/// Copies tensors of the same names into `state`, if all of them fit.
#[track_caller]
pub(super) fn load(
    state: &[(String, Tensor)],
    mut get: impl FnMut(&str) -> Result<Tensor>,
) -> Result<()> {
    const OPERATION: &str = "load_state";
    let mut loaded = Vec::with_capacity(state.len());
    for (name, own) in state {
        let tensor = get(name)?;
        own.same_engine(OPERATION, &tensor)?;
        if tensor.shape() != own.shape() {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!(
                    "`{name}` has shape {:?}, and {:?} is needed",
                    tensor.shape(),
                    own.shape()
                ),
            });
        }
        if tensor.dtype != own.dtype {
            return Err(Error::DType {
                operation: OPERATION,
                expected: format!("`{name}` of {}", own.dtype),
                got: tensor.dtype,
                hint: "`cast` it, or set `state_dtype` of an optimizer",
                at: String::new(),
            });
        }
        loaded.push(tensor);
    }
    let _paused = Paused::new();
    for ((_, own), tensor) in state.iter().zip(&loaded) {
        own.copy_(tensor)?;
    }
    Ok(())
}
