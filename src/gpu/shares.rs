//! Shares of the device, and tensors that go from one to another.

use lapidary_core::Result;
use lapidary_core::shares::ShareOptions;

use crate::shares::Share;

use super::Gpu;

impl Gpu {
    /// A handle for a share of this device's memory: see [`lapidary_core::Gpu::share`]. Tensors
    /// that are made through it, and the results of operations on them, count for the share.
    ///
    /// ```no_run
    /// use lapidary::DType;
    /// use lapidary::shares::{Amount, ShareOptions};
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    ///
    /// let preview = gpu.share("preview", ShareOptions::guaranteed(64 << 20))?;
    /// let job = gpu.share("job", ShareOptions::guaranteed(0).with_ceiling(Amount::OfBudget(75)))?;
    /// let x = job.zeros(&[1024, 1024], DType::F32)?;
    /// let y = x.matmul(&x)?; // counts for `job`, too
    /// let shown = y.to(&preview)?;
    /// println!("{:?}", job.memory().share_use());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`lapidary_core::Gpu::share`].
    pub fn share(&self, name: &str, options: ShareOptions) -> Result<Share> {
        Ok(self.0.share(name, options)?.map(Gpu))
    }
}
