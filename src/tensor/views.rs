//! Views: tensors that share another tensor's memory with another layout. They copy nothing and run
//! nothing on the device. A write through one shows in all.

use super::Tensor;
use crate::tensor::called::Called;
use lapidary_core::{Error, Result};

impl Tensor {
    /// The same elements, in row-major order, under another shape with as many of them.
    ///
    /// # Errors
    ///
    /// [`Shape`](Error::Shape) if the counts differ, or if no strides express the new shape. Then
    /// copy the elements with `contiguous` first, or call `reshape`, which copies where necessary.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// let t = gpu.zeros(&[4, 6], DType::F32)?;
    /// assert_eq!(t.view_as(&[2, 2, 6])?.shape(), [2, 2, 6]);
    /// assert!(t.t()?.view_as(&[24]).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn view_as(&self, shape: &[usize]) -> Result<Tensor> {
        match self.layout.reshape(shape).called("view_as")? {
            Some(layout) => Ok(self.view(layout)),
            None => Err(Error::Shape {
                operation: "view_as",
                reason: format!(
                    "{:?} with strides {:?} is not a view of {shape:?}: use reshape, or \
                     contiguous first",
                    self.shape(),
                    self.strides()
                ),
            })
            .located(),
        }
    }

    /// The axes in another order: axis `d` of the result is axis `axes[d]`. Negative axes count
    /// from the last.
    ///
    /// # Errors
    ///
    /// [`Axis`](Error::Axis) for an axis that does not exist, [`Shape`](Error::Shape) unless each
    /// axis is named once.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// let image = gpu.zeros(&[480, 640, 3], DType::U8)?;
    /// assert_eq!(image.permute(&[2, 0, 1])?.shape(), [3, 480, 640]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn permute(&self, axes: &[isize]) -> Result<Tensor> {
        Ok(self.view(self.layout.permute(axes).called("permute")?))
    }

    /// Exchanges two axes. Negative axes count from the last.
    ///
    /// # Errors
    ///
    /// [`Axis`](Error::Axis) for an axis that does not exist.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// let heads = gpu.zeros(&[2, 8, 12, 64], DType::F16)?;
    /// assert_eq!(heads.transpose(1, 2)?.shape(), [2, 12, 8, 64]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        Ok(self.view(self.layout.transpose(a, b).called("transpose")?))
    }

    /// Exchanges rows and columns of a matrix.
    ///
    /// # Errors
    ///
    /// [`Shape`](Error::Shape) unless the tensor has two dimensions; [`transpose`](Self::transpose)
    /// takes any two axes.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// assert_eq!(gpu.zeros(&[2, 3], DType::F32)?.t()?.shape(), [3, 2]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        if self.rank() != 2 {
            return Err(Error::Shape {
                operation: "t",
                reason: format!(
                    "{:?} is not a matrix; transpose takes two axes",
                    self.shape()
                ),
            })
            .located();
        }
        self.transpose(0, 1)
    }

    /// The elements `start`, `start + step`, … before `end` along an axis, as Python's
    /// `start:end:step`. Negative bounds count from the end, and bounds out of range are clamped.
    /// `None` means no bound. A negative step goes backwards, from `start` down.
    ///
    /// # Errors
    ///
    /// [`Axis`](Error::Axis) for an axis that does not exist, [`Shape`](Error::Shape) for a step of
    /// 0.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// let t = gpu.tensor(&[0, 1, 2, 3, 4, 5], &[6])?;
    /// assert_eq!(t.slice(0, 1, -1, 1)?.to_vec::<i32>()?, [1, 2, 3, 4]);
    /// assert_eq!(t.slice(0, None, None, -2)?.to_vec::<i32>()?, [5, 3, 1]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn slice(
        &self,
        axis: isize,
        start: impl Into<Option<isize>>,
        end: impl Into<Option<isize>>,
        step: isize,
    ) -> Result<Tensor> {
        let layout = self.layout.slice(axis, start.into(), end.into(), step);
        Ok(self.view(layout.called("slice")?))
    }

    /// `len` elements along an axis, from `start` on. `start` is any integer; a negative one counts
    /// from the end. Unlike [`slice`](Self::slice) it clamps nothing.
    ///
    /// # Errors
    ///
    /// [`Axis`](Error::Axis) for an axis that does not exist, [`Shape`](Error::Shape) if the axis
    /// has fewer elements.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// let batch = gpu.zeros(&[100, 28], DType::F32)?.narrow(0, 32, 16)?;
    /// assert_eq!(batch.shape(), [16, 28]);
    /// assert_eq!(batch.narrow(0, -3, 3)?.shape(), [3, 28]); // The last three.
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn narrow(&self, axis: isize, start: impl TryInto<isize>, len: usize) -> Result<Tensor> {
        // A number that fits no isize is beyond any axis.
        let start = start.try_into().unwrap_or(isize::MAX);
        Ok(self.view(self.layout.narrow(axis, start, len).called("narrow")?))
    }

    /// One index along an axis, which is removed. Negative indices count from the end.
    ///
    /// # Errors
    ///
    /// [`Axis`](Error::Axis) for an axis that does not exist, [`Shape`](Error::Shape) for an index
    /// out of range.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// let last_row = gpu.zeros(&[4, 6], DType::F32)?.select(0, -1)?;
    /// assert_eq!(last_row.shape(), [6]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn select(&self, axis: isize, index: isize) -> Result<Tensor> {
        Ok(self.view(self.layout.select(axis, index).called("select")?))
    }

    /// Removes all dimensions of size 1.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// assert_eq!(gpu.zeros(&[1, 3, 1], DType::F32)?.squeeze().shape(), [3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn squeeze(&self) -> Tensor {
        self.view(self.layout.squeeze())
    }

    /// Removes one dimension of size 1.
    ///
    /// # Errors
    ///
    /// [`Axis`](Error::Axis) for an axis that does not exist, [`Shape`](Error::Shape) if its size
    /// is not 1 (as in NumPy; PyTorch ignores it).
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// assert_eq!(gpu.zeros(&[1, 3, 1], DType::F32)?.squeeze_axis(-1)?.shape(), [1, 3]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn squeeze_axis(&self, axis: isize) -> Result<Tensor> {
        Ok(self.view(self.layout.squeeze_axis(axis).called("squeeze_axis")?))
    }

    /// Adds a dimension of size 1, which becomes axis `axis` of the result; −1 puts it last.
    ///
    /// # Errors
    ///
    /// [`Axis`](Error::Axis) for an axis that the result does not have, [`Shape`](Error::Shape) for
    /// more than 8 dimensions.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// assert_eq!(gpu.zeros(&[3], DType::F32)?.unsqueeze(-1)?.shape(), [3, 1]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Result<Tensor> {
        Ok(self.view(self.layout.unsqueeze(axis).called("unsqueeze")?))
    }

    /// Reverses each of the axes.
    ///
    /// # Errors
    ///
    /// [`Axis`](Error::Axis) for an axis that does not exist, [`Shape`](Error::Shape) for an axis
    /// named twice.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// let t = gpu.tensor(&[1.0_f32, 2.0, 3.0], &[3])?;
    /// assert_eq!(t.flip(&[0])?.to_vec::<f32>()?, [3.0, 2.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn flip(&self, axes: &[isize]) -> Result<Tensor> {
        Ok(self.view(self.layout.flip(axes).called("flip")?))
    }

    /// Repeats dimensions of size 1, and adds dimensions in front, up to this shape. The elements
    /// exist once: the result can be read, but not written.
    ///
    /// # Errors
    ///
    /// [`Shape`](Error::Shape) if a dimension is neither 1 nor the requested size,
    /// [`NeverFits`](Error::NeverFits) for more than 2³² − 4 elements.
    ///
    /// ```no_run
    /// # use lapidary::{DType, Gpu};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = Gpu::open(Default::default())?;
    /// let bias = gpu.zeros(&[3], DType::F32)?.broadcast_to(&[2, 3])?;
    /// assert_eq!(bias.strides(), [0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Tensor> {
        Ok(self.view(self.layout.broadcast_to(shape).called("broadcast_to")?))
    }
}
