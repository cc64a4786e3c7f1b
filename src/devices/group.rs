//! Devices that work together, in an order.

use std::sync::Arc;

use lapidary_core::internal::Filling;
use lapidary_core::{Error, Result};

use crate::gpu::Gpu;
use crate::tensor::Tensor;

/// How values of several devices become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Their sum, in the order of the devices. Floats are added in f32 and rounded once, integers
    /// wrap around.
    #[default]
    Sum,
    /// Their sum divided by the number of devices. For floats.
    Mean,
}

/// Devices that work together: see the [module](super). Cheap to clone.
///
/// The order of the devices is that of every list of tensors, and that of every sum.
#[derive(Clone, Debug)]
pub struct Group {
    gpus: Arc<[Gpu]>,
}

impl Group {
    /// A group of these devices. Two shares of one device may be in it, too.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// use lapidary::devices::Group;
    /// use lapidary::{Gpu, Options};
    ///
    /// let group = Group::new(&Gpu::open_all(Options::default())?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] for no devices, or for one that is there twice.
    pub fn new(gpus: &[Gpu]) -> Result<Group> {
        let refuse = |reason: String| {
            Err(Error::Option {
                option: "gpus",
                reason,
            })
        };
        if gpus.is_empty() {
            return refuse("the list is empty, and a group needs a device".into());
        }
        for (index, gpu) in gpus.iter().enumerate() {
            let is_same = |other: &Gpu| other.engine().here().is_same(&gpu.engine().here());
            if let Some(first) = gpus[..index].iter().position(is_same) {
                return refuse(format!(
                    "numbers {first} and {index} are the same device: open one `Gpu` for each"
                ));
            }
        }
        Ok(Group { gpus: gpus.into() })
    }

    /// The devices, in their order.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// The number of devices.
    #[allow(
        clippy::len_without_is_empty,
        reason = "a group has at least one device"
    )]
    pub fn len(&self) -> usize {
        self.gpus.len()
    }

    /// The error of a device, with its number and name.
    pub(super) fn named(&self, index: usize, error: Error) -> Error {
        if let Error::Device { .. } = error {
            return error;
        }
        Error::Device {
            index,
            count: self.len(),
            name: self.gpus[index].caps().name.clone(),
            cause: Arc::new(error),
        }
    }

    /// Memory of a device for a value that arrives later. It takes none until then.
    #[track_caller]
    pub(super) fn new_filling(&self, index: usize, size_bytes: u64) -> Result<Filling> {
        match self.gpus[index].buffer(size_bytes) {
            Ok(buffer) => Ok(Filling::new(buffer)),
            Err(error) => Err(self.named(index, error)),
        }
    }

    /// The tensors, row-major and without gaps, if there is one of each device.
    #[track_caller]
    pub(super) fn checked(
        &self,
        operation: &'static str,
        tensors: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        if tensors.len() != self.len() {
            return Err(Error::Shape {
                operation,
                reason: format!(
                    "{} tensors were given, and the group has {} devices",
                    tensors.len(),
                    self.len()
                ),
            });
        }
        let mut checked = Vec::with_capacity(tensors.len());
        for (index, tensor) in tensors.iter().enumerate() {
            match self.checked_one(operation, index, tensor) {
                Ok(tensor) => checked.push(tensor),
                Err(error) => return Err(self.named(index, error)),
            }
        }
        Ok(checked)
    }

    /// The tensor of a device, row-major and without gaps.
    #[track_caller]
    pub(super) fn checked_one(
        &self,
        operation: &'static str,
        index: usize,
        tensor: &Tensor,
    ) -> Result<Tensor> {
        let engine = self.gpus[index].engine();
        if !tensor.engine.here().is_same(&engine.here()) {
            return Err(Error::Foreign { operation });
        }
        if tensor.is_tracked() {
            return Err(Error::Gradient {
                operation,
                reason: "no backward crosses devices: give `detach()`".into(),
            });
        }
        engine.here().check_lost()?;
        tensor.untracked().contiguous()
    }
}
