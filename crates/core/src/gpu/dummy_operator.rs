//! Dummy operators, to replay the memory use of another program.

use super::Gpu;
use crate::buffer::Buffer;
use crate::engine::kernel::Role;
use crate::error::{Error, Result};

impl Gpu {
    /// Runs a dummy operator. It needs `reads` and `updates` on the device, makes a
    /// buffer for each size in `makes` (in bytes), and computes nothing. Use it to replay another
    /// program on a simulated device. Name each buffer only once.
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
            return Err(Error::option(
                "dummy_operator",
                "only a simulated device runs dummy operators",
            ));
        }
        let mut operands = Vec::with_capacity(reads.len() + updates.len() + makes.len());
        for (buffers, role) in [(reads, Role::Read), (updates, Role::Update)] {
            for buffer in buffers {
                let storage = buffer.storage().here();
                if !self.engine.here().owns(&storage) {
                    return Err(Error::foreign("dummy_operator"));
                }
                operands.push((storage.clone(), role));
            }
        }
        let mut made = Vec::with_capacity(makes.len());
        for &bytes in makes {
            let buffer = self.buffer(bytes)?;
            operands.push((buffer.storage().here().clone(), Role::Write));
            made.push(buffer);
        }
        self.engine.here().touch(operands)?;
        Ok(made)
    }
}
