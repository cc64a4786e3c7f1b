//! New tensors: from slices, and filled on the device.

use super::Gpu;
use crate::ops::{Scalar, fill, random};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Layout, checked};
use lapidary_core::internal::MadeFor;
use lapidary_core::{Buffer, DType, Element, Error, Result, Source};

impl Gpu {
    /// A tensor of `shape` with the elements of a slice, in row-major order. The call copies the
    /// slice before it returns.
    ///
    /// # Errors
    /// [`Error::Length`] when the slice does not fill the shape, [`Error::Overflow`] and
    /// [`Error::NeverFits`] for shapes beyond the device, [`Error::DeviceLost`]. A slice larger
    /// than staging also has the errors of its memory: [`Error::OutOfMemory`], and
    /// [`Error::NeverFits`] by the budget.
    ///
    /// In a browser also [`Error::WouldBlock`], for more than 1 MiB and more bytes than the staging
    /// memory has room for until the page's next wait. It has 64 MiB, or a part of a small budget.
    /// There, use [`tensor_async`](Gpu::tensor_async) for large slices.
    #[doc(alias = "from_slice")]
    #[track_caller]
    pub fn tensor<T: Element>(&self, data: &[T], shape: &[usize]) -> Result<Tensor> {
        let tensor = self.without_value(data, shape).called("tensor")?;
        let storage = tensor.storage.here();
        (self.engine().here()).upload(&storage, 0, T::bytes_of(data))?;
        Ok(tensor)
    }

    /// As [`tensor`](Gpu::tensor), as a future. In a browser it waits for staging memory without
    /// blocking, so the slice may have any size that a tensor can have.
    ///
    /// ```no_run
    /// # async fn show() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open_async(Default::default()).await?;
    /// let weights = vec![0.0_f32; 32 << 20];
    /// let weights = gpu.tensor_async(&weights, &[8192, 4096]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`tensor`](Gpu::tensor), without [`Error::WouldBlock`].
    #[track_caller]
    pub fn tensor_async<T: Element>(
        &self,
        data: &[T],
        shape: &[usize],
    ) -> impl Future<Output = Result<Tensor>> {
        let tensor = self.without_value(data, shape).called("tensor_async");
        async move {
            let tensor = tensor?;
            let bytes = T::bytes_of(data);
            let storage = tensor.storage.here();
            (self.engine().here())
                .upload_async(&storage, 0, bytes)
                .await?;
            Ok(tensor)
        }
    }

    /// A tensor without a value yet, for the slice.
    #[track_caller]
    fn without_value<T: Element>(&self, data: &[T], shape: &[usize]) -> Result<Tensor> {
        let tensor = Tensor::output(self.engine(), shape, T::DTYPE)?;
        if tensor.len() != data.len() {
            return Err(Error::Length {
                operation: "tensor",
                expected: tensor.len(),
                got: data.len(),
                shape: shape.to_vec(),
                at: String::new(),
            });
        }
        Ok(tensor)
    }

    /// A tensor of `shape` with unspecified elements, for a tensor that is written before it is
    /// read. It costs nothing, while [`zeros`](Gpu::zeros) writes every byte.
    ///
    /// The bytes may be those of dropped tensors of this `Gpu`, and reads and saved files show
    /// them. So overwrite bytes that must not show. They are never those of another process or
    /// device. They keep their values until they are written, also during eviction. If the device
    /// is lost first, the tensor has no value, as any tensor. Bools are `false`, because no byte
    /// other than 0 and 1 is valid.
    ///
    /// ```
    /// # use lapidary::{DType, Gpu, Tensor};
    /// # fn demo(gpu: &Gpu, first: &Tensor, second: &Tensor) -> lapidary::Result<()> {
    /// let both = gpu.empty(&[2, 64], DType::F32)?;
    /// both.select(0, 0)?.copy_(first)?;
    /// both.select(0, 1)?.copy_(second)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`zeros`](Gpu::zeros).
    #[track_caller]
    pub fn empty(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        fill::empty(self.engine(), shape, dtype).called("empty")
    }

    /// A tensor of `shape` full of zeros (`false`).
    ///
    /// # Errors
    /// [`Error::Overflow`] and [`Error::NeverFits`] for shapes beyond the device,
    /// [`Error::DeviceLost`].
    #[track_caller]
    pub fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let _method = MadeFor::method("zeros");
        Tensor::zeroed(self.engine(), shape, dtype).called("zeros")
    }

    /// A tensor of `shape` full of ones (`true`).
    ///
    /// # Errors
    /// As [`zeros`](Gpu::zeros).
    #[track_caller]
    pub fn ones(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let _method = MadeFor::method("ones");
        self.full(shape, fill::one_of(dtype), dtype).called("ones")
    }

    /// One value with shape `[]`.
    ///
    /// # Errors
    /// As [`tensor`](Gpu::tensor).
    #[track_caller]
    pub fn scalar<T: Element>(&self, value: T) -> Result<Tensor> {
        self.tensor(&[value], &[])
    }

    /// A tensor of `shape` where every element is `value`. A float beyond a float type becomes
    /// infinite.
    ///
    /// # Errors
    /// [`Error::DType`] when the type holds no such value; else as [`zeros`](Gpu::zeros).
    #[track_caller]
    pub fn full(&self, shape: &[usize], value: impl Into<Scalar>, dtype: DType) -> Result<Tensor> {
        let _method = MadeFor::method("full");
        fill::full(self.engine(), shape, value.into(), dtype).called("full")
    }

    /// The numbers `start`, `start + step`, … before `end`, in one dimension. The step may be
    /// negative. Floats are computed in f32 from their places: after 2²⁴ elements, neighbours may
    /// be equal.
    ///
    /// # Errors
    /// [`Error::Shape`] for a step of 0 or bounds that are not finite, [`Error::DType`] when the
    /// type does not hold `start` or `step`; else as [`zeros`](Gpu::zeros).
    #[track_caller]
    pub fn arange(
        &self,
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("arange");
        let (start, end, step) = (start.into(), end.into(), step.into());
        fill::arange(self.engine(), start, end, step, dtype).called("arange")
    }

    /// `steps` floats from `start` to `end`, both included, at equal distances. One step gives
    /// `start`. They are computed in f32; from 2²⁴ steps on, neighbours may be equal.
    ///
    /// # Errors
    /// [`Error::DType`] for a type other than a float; else as [`zeros`](Gpu::zeros).
    #[track_caller]
    pub fn linspace(&self, start: f32, end: f32, steps: usize, dtype: DType) -> Result<Tensor> {
        let _method = MadeFor::method("linspace");
        fill::linspace(self.engine(), start, end, steps, dtype).called("linspace")
    }

    /// The identity matrix: `n` rows and columns, ones on the diagonal.
    ///
    /// # Errors
    /// As [`zeros`](Gpu::zeros).
    #[track_caller]
    pub fn eye(&self, n: usize, dtype: DType) -> Result<Tensor> {
        let _method = MadeFor::method("eye");
        fill::eye(self.engine(), [n, n], dtype).called("eye")
    }

    /// A matrix with ones on the diagonal from its first element, and zeros elsewhere: PyTorch's
    /// `eye(rows, columns)`.
    ///
    /// # Errors
    /// As [`zeros`](Gpu::zeros).
    #[track_caller]
    pub fn eye_with(&self, rows: usize, columns: usize, dtype: DType) -> Result<Tensor> {
        let _method = MadeFor::method("eye_with");
        fill::eye(self.engine(), [rows, columns], dtype).called("eye_with")
    }

    /// Floats drawn uniformly from `low` to `high`, without `high` (f16 and bf16 may be rounded to
    /// it). The same seed gives the same numbers on every device, except for the last bits.
    ///
    /// # Errors
    /// [`Error::Option`] unless `low` is below `high`, [`Error::DType`] for a type other than a
    /// float; else as [`zeros`](Gpu::zeros).
    #[track_caller]
    pub fn rand_uniform(
        &self,
        shape: &[usize],
        low: f32,
        high: f32,
        seed: u64,
        dtype: DType,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("rand_uniform");
        let made = random::rand_uniform(self.engine(), shape, low, high, seed, dtype);
        made.called("rand_uniform")
    }

    /// Floats drawn from the normal distribution. The same seed gives the same numbers on every
    /// device, except for the last bits.
    ///
    /// # Errors
    /// [`Error::Option`] unless the mean is finite and the standard deviation at least 0,
    /// [`Error::DType`] for a type other than a float; else as [`zeros`](Gpu::zeros).
    #[track_caller]
    pub fn rand_normal(
        &self,
        shape: &[usize],
        mean: f32,
        std: f32,
        seed: u64,
        dtype: DType,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("rand_normal");
        let made = random::rand_normal(self.engine(), shape, mean, std, seed, dtype);
        made.called("rand_normal")
    }

    /// A tensor with a source. At its first use the source gives the elements, in row-major order
    /// and this machine's byte order. Before that it takes no memory, and its eviction costs
    /// nothing. So the weights of a model may be larger than the device.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// use lapidary::{DType, Source};
    ///
    /// let source = Source::file("weights.bin", 4096)?;
    /// let weights = gpu.backed(source, &[4096, 4096], DType::F32)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Length`] when the source has fewer bytes than the shape needs; [`Error::Overflow`]
    /// and [`Error::NeverFits`] for shapes beyond the device.
    #[track_caller]
    pub fn backed(&self, source: Source, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let tensor = Tensor::output(self.engine(), shape, dtype).called("backed")?;
        if let Some(len_bytes) = source.len_bytes() {
            if len_bytes < tensor.size_bytes() {
                return Err(Error::Length {
                    operation: "backed",
                    expected: tensor.len(),
                    got: (len_bytes / dtype.size_bytes()) as usize,
                    shape: shape.to_vec(),
                    at: String::new(),
                })
                .located();
            }
        }
        (self.engine().here()).back_new(&tensor.storage.here(), source);
        Ok(tensor)
    }

    /// A tensor that shares the bytes of a buffer, in row-major order.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// use lapidary::DType;
    ///
    /// let buffer = gpu.buffer_from(&[1.0_f32, 2.0, 3.0, 4.0])?;
    /// let tensor = gpu.tensor_of(&buffer, &[2, 2], DType::F32)?;
    /// assert_eq!(tensor.sum_all()?.item::<f32>()?, 10.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Foreign`]; [`Error::Buffer`] for a buffer of another size than the shape needs, or
    /// a slice that starts inside an element; [`Error::Overflow`].
    #[track_caller]
    pub fn tensor_of(&self, buffer: &Buffer, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let operation = "tensor_of";
        if !self.engine().may_read(buffer.engine(), buffer.storage()) {
            return Err(Error::Foreign { operation });
        }
        let (_, needed_bytes) = checked(shape, dtype).called(operation)?;
        let (start_bytes, size_bytes) = (buffer.offset_bytes(), buffer.size_bytes());
        let reason = if dtype == DType::Bool {
            // Kernels do not check for bytes other than 0 and 1.
            "the bytes may be other than 0 and 1: make a tensor of u8, and compare it with 0".into()
        } else if needed_bytes != size_bytes {
            format!("{size_bytes} bytes; shape {shape:?} of {dtype} takes {needed_bytes}")
        } else if !start_bytes.is_multiple_of(dtype.size_bytes()) {
            format!("the slice starts at byte {start_bytes}, inside an element of {dtype}")
        } else {
            let mut layout = Layout::contiguous(shape);
            layout.offset = (start_bytes / dtype.size_bytes()) as _;
            let storage = buffer.storage().clone();
            return Ok(Tensor::from_parts(self.engine(), storage, layout, dtype));
        };
        Err(Error::Buffer { operation, reason })
    }
}
