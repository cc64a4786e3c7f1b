//! Tensors for other shares and other devices: loans and copies.

use lapidary_core::{Buffer, Error, Result};

use super::Gpu;
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;

impl Tensor {
    /// The same elements for operations in another share of the device, which may read them. So
    /// many shares use one set of weights. Nothing is copied: the memory counts for the share that
    /// lends it, and lives as long as either tensor.
    ///
    /// An operation reads what the lender wrote before it. Its result is in the borrower's share.
    /// The borrower may evict and pin a loan; [`named`](Self::named) has no effect. No gradient
    /// flows through a loan: in the borrower's share it is a tensor without a history.
    ///
    /// ```no_run
    /// # use lapidary::shares::ShareOptions;
    /// # fn demo(gpu: &lapidary::Gpu) -> lapidary::Result<()> {
    /// let weight = gpu.ones(&[512, 512], lapidary::DType::F32)?;
    /// let user = gpu.share("user", ShareOptions::guaranteed(64 << 20))?;
    /// let x = user.ones(&[8, 512], lapidary::DType::F32)?;
    /// let y = x.matmul(&weight.lend_to(&user)?)?; // in the share `user`
    /// # drop(y);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Foreign`] for the handle of another device: copy there with [`to`](Self::to). Each
    /// write to it later is [`Error::Lent`].
    pub fn lend_to(&self, gpu: &Gpu) -> Result<Tensor> {
        if self.engine.here().is_same(&gpu.engine().here()) {
            return Ok(self.clone());
        }
        let lent = self.memory().lend_to(gpu)?;
        Ok(Tensor::of_buffer(&lent, self.layout.clone(), self.dtype).detached())
    }

    /// A tensor with the same elements in the share, or on the device, of another handle. A tensor
    /// that is there already is returned as it is, with its layout; then both share their memory.
    ///
    /// Between two shares of one device the copy stays on the device. Between two devices it goes
    /// through the host, in pieces: one is written while the next is read.
    ///
    /// ```no_run
    /// # fn demo(here: &lapidary::Gpu, there: &lapidary::Gpu) -> lapidary::Result<()> {
    /// let a = here.tensor(&[1.0_f32, 2.0], &[2])?;
    /// let b = a.to(there)?;
    /// assert_eq!((&b + &b)?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Gpu::tensor`] on `gpu`, and as [`to_vec_async`](Self::to_vec_async) here.
    /// [`Error::Gradient`] if the tensor is tracked: no backward crosses devices or shares. Copy
    /// [`detach`](Self::detach)ed.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn to(&self, gpu: &Gpu) -> Result<Tensor> {
        match self.to_copied("to", gpu)? {
            None => Ok(self.clone()),
            Some(bytes) => Ok(self.arrived(&bytes.to(gpu)?)),
        }
    }

    /// As [`to`](Self::to), as a future: the only form in a browser.
    #[track_caller]
    pub fn to_async(&self, gpu: &Gpu) -> impl Future<Output = Result<Tensor>> + use<> {
        let copied = self.to_copied("to_async", gpu);
        let copied = copied.map(|bytes| bytes.map(|bytes| bytes.to_async(gpu)));
        let here = self.clone();
        async move {
            match copied? {
                None => Ok(here),
                Some(bytes) => Ok(here.arrived(&bytes.await?)),
            }
        }
    }

    /// The bytes to copy, in row-major order; `None` if the tensor is there already.
    #[track_caller]
    fn to_copied(&self, operation: &'static str, gpu: &Gpu) -> Result<Option<Buffer>> {
        if self.engine.here().is_same(&gpu.engine().here()) {
            return Ok(None);
        }
        if self.is_tracked() {
            return Err(Error::Gradient {
                operation,
                reason: "no backward crosses devices or shares: copy `detach()`".into(),
            });
        }
        Ok(Some(self.contiguous()?.bytes()))
    }

    fn arrived(&self, bytes: &Buffer) -> Tensor {
        Tensor::of_buffer(bytes, Layout::contiguous(self.shape()), self.dtype)
    }
}
