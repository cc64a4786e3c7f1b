//! Where a tensor's bytes should be: hints and commands.

use super::Tensor;
use super::history::Paused;
use crate::tensor::called::Called;
use lapidary_core::internal::{MaybeShared, block_on};
use lapidary_core::interop::Pin;
use lapidary_core::{Advice, Buffer, Error, Residency, Result, Source};

/// The operation's name in errors.
const OPERATION: &str = "recompute_with";

impl Tensor {
    /// Evicts the tensor now, with all its views: to the host's memory, a store or the disk. If
    /// another copy is valid, nothing is moved. The next command that uses the tensor restores it.
    ///
    /// # Errors
    /// [`Error::Pinned`] for a pinned or imported tensor; [`Error::Spill`] when neither the host, a
    /// store nor the disk has room; the errors of [`force`](Self::force). After an error the tensor
    /// stays where it is.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// use lapidary::Residency;
    ///
    /// let t = gpu.tensor(&[1.0_f32, 2.0], &[2])?;
    /// t.evict()?;
    /// assert_ne!(t.residency(), Residency::Device);
    /// assert_eq!(t.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn evict(&self) -> Result<()> {
        block_on("Tensor::evict", self.evict_async())
    }

    /// As [`evict`](Self::evict), as a future: the only form in a browser.
    pub async fn evict_async(&self) -> Result<()> {
        self.engine.here().evict(&self.storage.here()).await
    }

    /// Asks for the tensor to be on the device soon. The queue restores it before the work that is
    /// recorded next. It is a hint: if there is no room, nothing happens.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// # let layers = [gpu.ones(&[8, 8], lapidary::DType::F32)?];
    /// # let mut x = layers[0].clone();
    /// for (index, layer) in layers.iter().enumerate() {
    ///     if let Some(next) = layers.get(index + 1) {
    ///         next.prefetch()?;
    ///     }
    ///     x = x.matmul(layer)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn prefetch(&self) -> Result<()> {
        self.engine.here().prefetch(&self.storage.here())
    }

    /// Says when the tensor is used next, where its past uses would mislead. The advice only
    /// affects the order of eviction. The last advice counts, for all views.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// use lapidary::Advice;
    ///
    /// let best_so_far = gpu.ones(&[1000, 1000], lapidary::DType::F32)?;
    /// best_so_far.advise(Advice::Late);
    /// # Ok(())
    /// # }
    /// ```
    pub fn advise(&self, advice: Advice) {
        self.storage.here().advise(advice);
    }

    /// Restores the tensor to the device, and keeps it at its place, with all its views. Until the
    /// [`Pin`] is dropped it is neither evicted nor moved. Keep a pin short, because it obstructs
    /// compaction and eviction.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let weights = gpu.ones(&[1000, 1000], lapidary::DType::F32)?;
    /// let pin = weights.pin()?;
    /// assert!(weights.evict().is_err());
    /// drop(pin);
    /// weights.evict()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`force`](Self::force).
    pub fn pin(&self) -> Result<Pin> {
        block_on("Tensor::pin", self.pin_async())
    }

    /// As [`pin`](Self::pin), as a future: the only form in a browser.
    pub async fn pin_async(&self) -> Result<Pin> {
        self.memory().pin_async().await
    }

    /// Registers a function that can compute the tensor's current elements again. When memory is
    /// short, the engine drops the elements. When a command uses the tensor, it computes them again
    /// from `inputs`. This is activation checkpointing, without automatic differentiation.
    ///
    /// The function gets the inputs, and returns a new tensor of this shape and type. It runs while
    /// work is under way: it may record operations, but calls that wait return
    /// [`Error::Reentered`]. It should not hold tensors. After a write to an input the elements are
    /// no longer dropped. If they were dropped before the write, they are lost:
    /// [`Error::Recompute`]. If the function fails, the call that needs the elements fails too; a
    /// later call tries again.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let x = gpu.ones(&[512, 512], lapidary::DType::F32)?;
    /// let activation = x.matmul(&x)?.relu()?;
    /// activation.recompute_with(&[&x], |inputs| inputs[0].matmul(&inputs[0])?.relu())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] for a view that does not cover all of its memory in order;
    /// [`Error::Foreign`]; [`Error::Pinned`] for an imported tensor. [`Error::Recompute`] if the
    /// tensor is one of the inputs, or if an input is computed from it. The errors of
    /// [`force`](Self::force).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn recompute_with(
        &self,
        inputs: &[&Tensor],
        compute: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Result<()> {
        block_on(OPERATION, self.recompute(inputs, compute))
    }

    /// As [`recompute_with`](Self::recompute_with), as a future.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn recompute_with_async(
        &self,
        inputs: &[&Tensor],
        compute: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Result<()> {
        self.recompute(inputs, compute).await
    }

    /// Registers a function that can compute the tensor's current elements again. When memory is
    /// short, the engine drops the elements. When a command uses the tensor, it computes them again
    /// from `inputs`.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Foreign`], [`Error::Pinned`], [`Error::Recompute`]; the errors of
    /// [`force_async`](Self::force_async).
    #[cfg(target_arch = "wasm32")]
    pub async fn recompute_with_async(
        &self,
        inputs: &[&Tensor],
        compute: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
    ) -> Result<()> {
        self.recompute(inputs, compute).await
    }

    async fn recompute(
        &self,
        inputs: &[&Tensor],
        compute: impl Fn(&[Tensor]) -> Result<Tensor> + MaybeShared + 'static,
    ) -> Result<()> {
        self.check_whole(OPERATION)?;
        let (mut buffers, mut views) = (Vec::new(), Vec::new());
        for input in inputs {
            self.same_engine(OPERATION, input)?;
            buffers.push(input.memory());
            views.push((input.layout.clone(), input.dtype));
        }
        let (shape, dtype) = (self.shape().to_vec(), self.dtype);
        let made_at = self.tag().to_string();
        let recompute = move |buffers: &[Buffer]| {
            let inputs = buffers
                .iter()
                .zip(&views)
                .map(|(buffer, (layout, dtype))| Tensor::of_buffer(buffer, layout.clone(), *dtype));
            let _not_recorded = Paused::new();
            let made = compute(&inputs.collect::<Vec<_>>())?;
            let fits = made.shape() == shape && made.dtype == dtype;
            match fits && made.check_whole(OPERATION).is_ok() {
                true => Ok(made.memory()),
                false => Err(Error::Recompute {
                    made_at: made_at.clone(),
                    reason: format!("the function must make {shape:?} of {dtype}, and made {made}"),
                }),
            }
        };
        let buffers: Vec<&Buffer> = buffers.iter().collect();
        let memory = self.memory();
        memory.recompute_with_async(&buffers, recompute).await
    }

    /// All bytes of the tensor's memory.
    pub(crate) fn memory(&self) -> Buffer {
        let len_bytes = self.storage.len_bytes();
        Buffer::part(&self.engine, self.storage.clone(), 0, len_bytes)
    }

    /// Refuses a view that does not cover all of its memory in order.
    #[track_caller]
    fn check_whole(&self, operation: &'static str) -> Result<()> {
        let is_whole = self.is_contiguous()
            && self.layout.offset == 0
            && self.size_bytes() == self.storage.len_bytes();
        match (is_whole, self.residency()) {
            (true, Residency::Imported) => Err(Error::Pinned {
                operation,
                made_at: self.tag().to_string(),
            }),
            (true, _) => Ok(()),
            (false, _) => Err(Error::Shape {
                operation,
                reason:
                    "a view does not cover all of its memory; use the tensor that it belongs to"
                        .into(),
            })
            .located(),
        }
    }

    /// Gives the tensor a source that has its current elements. Until the next write to the tensor,
    /// its eviction then costs nothing. The source has the bytes of the whole tensor, in row-major
    /// order and this machine's byte order; they are not compared.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// use lapidary::Source;
    ///
    /// // The app keeps these bytes anyhow.
    /// let image: std::sync::Arc<[u8]> = vec![7; 1 << 20].into();
    /// let tensor = gpu.tensor(&image[..], &[1024, 1024])?;
    /// tensor.backed_by(Source::bytes(image))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] for a view that does not cover all of its memory in order.
    /// [`Error::Length`] for a source that is too short. [`Error::Pinned`] for an imported tensor.
    /// The errors of [`force`](Self::force).
    #[track_caller]
    pub fn backed_by(&self, source: Source) -> Result<()> {
        block_on("Tensor::backed_by", self.backed_by_async(source)).located()
    }

    /// As [`backed_by`](Self::backed_by), as a future: the only form in a browser.
    pub async fn backed_by_async(&self, source: Source) -> Result<()> {
        const OPERATION: &str = "backed_by";
        self.check_whole(OPERATION)?;
        if let Some(len_bytes) = source.len_bytes() {
            if len_bytes < self.size_bytes() {
                return Err(Error::Length {
                    operation: OPERATION,
                    expected: self.len(),
                    got: (len_bytes / self.dtype.size_bytes()) as usize,
                    shape: self.shape().to_vec(),
                    at: String::new(),
                });
            }
        }
        self.engine.here().back(&self.storage.here(), source).await
    }
}
