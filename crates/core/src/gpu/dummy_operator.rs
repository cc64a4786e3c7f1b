//! Dummy operators, so that the memory of another program can be replayed.

use super::Gpu;
use crate::buffer::Buffer;
use crate::engine::kernel::Role;
use crate::error::{Error, Result};

impl Gpu {
    /// Runs what stands in for an operator: `reads` and `updates` are needed on the device, a
    /// buffer of so many bytes is made for each of `makes`, and nothing is computed. For replaying
    /// what another program did, on a simulated device. Each buffer is named once.
    ///
    /// ```
    /// use lapidary_core::Gpu;
    /// use lapidary_core::sim::SimOptions;
    ///
    /// let (gpu, _) = Gpu::simulated(SimOptions::default())?;
    /// let made = gpu.dummy_operator(&[], &[], &[1000, 2000])?;
    /// gpu.dummy_operator(&[&made[0]], &[&made[1]], &[])?;
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] on a device that is not simulated, [`Error::Foreign`] for buffers of
    /// another `Gpu`, [`Error::NeverFits`] for bytes beyond the device, [`Error::DeviceLost`].
    #[track_caller]
    pub fn dummy_operator(
        &self,
        reads: &[&Buffer],
        updates: &[&Buffer],
        makes: &[u64],
    ) -> Result<Vec<Buffer>> {
        if self.caps().backend != "sim" {
            return Err(Error::Option {
                option: "dummy_operator",
                reason: "only a simulated device replays what it does not compute".into(),
            });
        }
        let mut operands = Vec::with_capacity(reads.len() + updates.len() + makes.len());
        for (buffers, role) in [(reads, Role::Read), (updates, Role::Update)] {
            for buffer in buffers {
                if !self.engine.owns(buffer.storage()) {
                    return Err(Error::Foreign {
                        operation: "dummy_operator",
                    });
                }
                operands.push((buffer.storage().clone(), role));
            }
        }
        let mut made = Vec::with_capacity(makes.len());
        for &bytes in makes {
            let buffer = self.buffer(bytes)?;
            operands.push((buffer.storage().clone(), Role::Write));
            made.push(buffer);
        }
        self.engine.touch(operands)?;
        Ok(made)
    }
}
