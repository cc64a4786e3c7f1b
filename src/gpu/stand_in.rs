//! Stand-ins for operators, so that the memory of another program can be replayed.

use super::Gpu;
use crate::dtype::DType;
use crate::engine::kernel::Role;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Gpu {
    /// Runs what stands in for an operator: `reads` and `updates` are needed on the device, a
    /// tensor of so many bytes is made for each of `makes`, and nothing is computed. For replaying
    /// what another program did, on a simulated device. Each tensor is named once.
    ///
    /// ```
    /// use lapidary::Gpu;
    /// use lapidary::sim::SimOptions;
    ///
    /// let (gpu, _) = Gpu::simulated(SimOptions::default())?;
    /// let made = gpu.stand_in(&[], &[], &[1000, 2000])?;
    /// gpu.stand_in(&[&made[0]], &[&made[1]], &[])?;
    /// # Ok::<(), lapidary::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] on a device that is not simulated, [`Error::Foreign`] for tensors of another
    /// `Gpu`, [`Error::NeverFits`] for bytes beyond the device, [`Error::DeviceLost`].
    #[track_caller]
    pub fn stand_in(
        &self,
        reads: &[&Tensor],
        updates: &[&Tensor],
        makes: &[usize],
    ) -> Result<Vec<Tensor>> {
        if self.caps().backend != "sim" {
            return Err(Error::Option {
                option: "stand_in",
                reason: "only a simulated device replays what it does not compute".into(),
            });
        }
        let mut operands = Vec::with_capacity(reads.len() + updates.len() + makes.len());
        for (tensors, role) in [(reads, Role::Read), (updates, Role::Update)] {
            for tensor in tensors {
                if !self.engine.owns(&tensor.storage) {
                    return Err(Error::Foreign {
                        operation: "stand_in",
                    });
                }
                operands.push((tensor.storage.clone(), role));
            }
        }
        let mut made = Vec::with_capacity(makes.len());
        for &bytes in makes {
            let tensor = Tensor::output(&self.engine, &[bytes], DType::U8)?;
            operands.push((tensor.storage.clone(), Role::Write));
            made.push(tensor);
        }
        self.engine.touch(operands)?;
        Ok(made)
    }
}
