//! The collective operations of a group.

use lapidary_core::{Error, Result};

use super::accumulator::Accumulator;
use super::exchange::{Column, Outgoing, exchange};
use super::group::{Group, Reduce};
use super::split::even_sizes;
use crate::tensor::Tensor;
use crate::tensor::layout::axis;

impl Reduce {
    /// The number by which a sum over `count` devices is divided.
    pub(super) fn divisor(self, count: usize) -> f32 {
        match self {
            Reduce::Sum => 1.0,
            Reduce::Mean => count as f32,
        }
    }

    fn check(self, operation: &'static str, tensors: &[Tensor]) -> Result<()> {
        let Some(first) = tensors.first() else {
            return Ok(());
        };
        let dtype = first.dtype();
        let is_float = dtype.is_float();
        if !Accumulator::sums(dtype) || (self == Reduce::Mean && !is_float) {
            let expected = match self {
                Reduce::Sum => "f32, f16, bf16, i32 or u32",
                Reduce::Mean => "f32, f16 or bf16",
            };
            return Err(Error::DType {
                operation,
                expected: expected.into(),
                got: dtype,
                hint: "`cast` it",
                at: String::new(),
            });
        }
        for (index, tensor) in tensors.iter().enumerate() {
            if tensor.shape() != first.shape() {
                return Err(Error::Shape {
                    operation,
                    reason: format!(
                        "the tensor of device 0 has shape {:?}, and that of device {index} {:?}",
                        first.shape(),
                        tensor.shape()
                    ),
                });
            }
            if tensor.dtype() != dtype {
                return Err(Error::DType {
                    operation,
                    expected: format!("{dtype}, the type on device 0, on device {index} too"),
                    got: tensor.dtype(),
                    hint: "`cast` it",
                    at: String::new(),
                });
            }
        }
        Ok(())
    }
}

impl Group {
    /// Reduces one tensor of each device to a value that all devices get. It waits for the tensors
    /// and returns when the results are on their way.
    ///
    /// The tensors have one shape and type. The results have the same bits on every device and in
    /// every run, as the order of a sum is that of the group.
    ///
    /// ```no_run
    /// # use lapidary::Tensor;
    /// # use lapidary::devices::{Group, Reduce};
    /// # fn demo(group: &Group, gradients: &[Tensor]) -> lapidary::Result<()> {
    /// let mean = group.all_reduce(gradients, Reduce::Mean)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::DType`] for tensors that do not fit each other or the group.
    /// [`Error::Device`] names the device where something failed. Causes are a tensor of another
    /// device ([`Error::Foreign`]), one that is tracked for gradients ([`Error::Gradient`]), a lost
    /// device, a closed share, no memory. There is no result then, and all tensors are as they
    /// were.
    #[track_caller]
    pub fn all_reduce(&self, tensors: &[Tensor], reduce: Reduce) -> Result<Vec<Tensor>> {
        const OPERATION: &str = "all_reduce";
        let tensors = self.checked(OPERATION, tensors)?;
        reduce.check(OPERATION, &tensors)?;
        let all: Vec<usize> = (0..self.len()).collect();
        let from = tensors.iter().enumerate();
        let from = from.map(|(device, tensor)| Outgoing::new(device, tensor));
        let from = from.collect::<Result<Vec<_>>>()?;
        let column = Column::new(self, from, &all)?;
        let results = exchange(self, vec![column], reduce.divisor(self.len()))?;
        Ok(results.into_iter().flatten().collect())
    }

    /// The same tensor on every device of the group, in the order of the group. Its own device
    /// keeps it without a copy, so both handles share their memory.
    ///
    /// # Errors
    /// [`Error::Foreign`] for a tensor of no device of the group; else as
    /// [`all_reduce`](Group::all_reduce).
    #[track_caller]
    pub fn broadcast(&self, tensor: &Tensor) -> Result<Vec<Tensor>> {
        const OPERATION: &str = "broadcast";
        let here = tensor.engine.here();
        let is_home = |gpu: &crate::gpu::Gpu| gpu.engine().here().is_same(&here);
        let Some(home) = self.gpus().iter().position(is_home) else {
            return Err(Error::Foreign {
                operation: OPERATION,
            });
        };
        let tensor = match self.checked_one(OPERATION, home, tensor) {
            Ok(tensor) => tensor,
            Err(error) => return Err(self.named(home, error)),
        };
        let from = vec![Outgoing::new(home, &tensor)?];
        let column = Column::new(self, from, &self.all_but(home))?;
        let mut all: Vec<Tensor> = exchange(self, vec![column], 1.0)?
            .into_iter()
            .flatten()
            .collect();
        all.insert(home, tensor);
        Ok(all)
    }

    /// One tensor of each device, put together along `axis` in the order of the group, on every
    /// device. Other dimensions and the types are equal.
    ///
    /// # Errors
    /// [`Error::Axis`] if there is no such axis. Those of [`Tensor::concat`]; else as
    /// [`all_reduce`](Group::all_reduce).
    #[track_caller]
    pub fn all_gather(&self, tensors: &[Tensor], axis: isize) -> Result<Vec<Tensor>> {
        const OPERATION: &str = "all_gather";
        let tensors = self.checked(OPERATION, tensors)?;
        // Before any byte moves.
        self::axis(OPERATION, axis, tensors[0].rank())?;
        let mut columns = Vec::with_capacity(tensors.len());
        for (home, tensor) in tensors.iter().enumerate() {
            let from = vec![Outgoing::new(home, tensor)?];
            columns.push(Column::new(self, from, &self.all_but(home))?);
        }
        let mut arrived = exchange(self, columns, 1.0)?;
        for (home, tensor) in tensors.into_iter().enumerate() {
            arrived[home].insert(home, tensor);
        }
        let mut gathered = Vec::with_capacity(self.len());
        for device in 0..self.len() {
            let parts: Vec<&Tensor> = arrived.iter().map(|of| &of[device]).collect();
            match Tensor::concat(&parts, axis) {
                Ok(all) => gathered.push(all),
                Err(error) => return Err(self.named(device, error)),
            }
        }
        Ok(gathered)
    }

    /// Reduces one tensor of each device, and gives each device its part of the result along
    /// `axis`. The parts are those of [`split`](super::split).
    ///
    /// # Errors
    /// [`Error::Axis`] if there is no such axis; else as [`all_reduce`](Group::all_reduce).
    #[track_caller]
    pub fn reduce_scatter(
        &self,
        tensors: &[Tensor],
        axis: isize,
        reduce: Reduce,
    ) -> Result<Vec<Tensor>> {
        const OPERATION: &str = "reduce_scatter";
        let tensors = self.checked(OPERATION, tensors)?;
        reduce.check(OPERATION, &tensors)?;
        let shape = tensors[0].shape();
        let at = self::axis(OPERATION, axis, shape.len())?;
        let sizes = even_sizes(shape[at], self.len());
        let mut columns = Vec::with_capacity(self.len());
        let mut start = 0;
        for (part, size) in sizes.into_iter().enumerate() {
            let mut from = Vec::with_capacity(self.len());
            for (device, tensor) in tensors.iter().enumerate() {
                match tensor.narrow(axis, start, size)?.contiguous() {
                    Ok(tensor) => from.push(Outgoing::new(device, &tensor)?),
                    Err(error) => return Err(self.named(device, error)),
                }
            }
            start += size;
            columns.push(Column::new(self, from, &[part])?);
        }
        let parts = exchange(self, columns, reduce.divisor(self.len()))?;
        Ok(parts.into_iter().flatten().collect())
    }

    fn all_but(&self, home: usize) -> Vec<usize> {
        (0..self.len()).filter(|device| *device != home).collect()
    }
}
