//! A training as named tensors, with which it goes on to the bit.

use lapidary::{Result, Tensor};

use crate::training::Training;

/// The number of steps that were made.
const DONE: &str = "done";

impl Training {
    /// Parameters, the optimizer's state, and the steps that were made. The next step changes the
    /// tensors.
    ///
    /// # Errors
    /// Those of an upload.
    pub fn state(&self) -> Result<Vec<(String, Tensor)>> {
        let done = self.gpu.tensor(&[self.done as u32], &[1])?;
        let mut state = vec![(DONE.to_owned(), done)];
        state.extend(self.model.parameters.state("model"));
        state.extend(self.adam.state("adam"));
        Ok(state)
    }

    /// Takes a state over that [`state`](Self::state) gave. `get` returns the tensor of a name.
    ///
    /// # Errors
    /// Those of `get`, and those of tensors that do not fit.
    pub fn load_state(&mut self, mut get: impl FnMut(&str) -> Result<Tensor>) -> Result<()> {
        let done = get(DONE)?.item::<u32>()?;
        self.adam.load_state("adam", &mut get)?;
        self.model.parameters.load_state("model", &mut get)?;
        self.done = done as usize;
        Ok(())
    }
}
