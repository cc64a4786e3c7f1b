//! What became of fusion.

use super::Gpu;

/// A kernel that was put together at run time out of several operations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FusedKernel {
    /// What it computes, of operands `a`, `b`, … and numbers `s0`, `s1`, …: `relu(a * b + c)`.
    pub name: String,
    /// The whole shader, in WGSL, as it was compiled first.
    pub wgsl: String,
}

impl Gpu {
    /// The kernels that were put together out of several operations since the device was opened,
    /// and are still kept (a few hundred at the most).
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let x = gpu.ones(&[64], lapidary::DType::F32)?;
    /// (&x * 2.0)?.sqrt()?.force()?;
    /// for kernel in gpu.fused_kernels() {
    ///     println!("{}:\n{}", kernel.name, kernel.wgsl);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn fused_kernels(&self) -> Vec<FusedKernel> {
        let kernels = self.engine().fused();
        let compiled = kernels.iter().filter_map(|kernel| {
            let wgsl = kernel.shader.get()?.clone();
            let name = kernel.name.clone();
            Some(FusedKernel { name, wgsl })
        });
        compiled.collect()
    }
}
