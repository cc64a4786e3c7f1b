//! Inspection of fused kernels.

use super::Gpu;

/// A kernel fused at run time from several operations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FusedKernel {
    /// The formula in operands `a`, `b`, … and numbers `s0`, `s1`, …: `relu(a * b + c)`.
    pub name: String,
    /// The whole shader, in WGSL, as first compiled.
    pub wgsl: String,
}

impl Gpu {
    /// The kernels fused since the device was opened that are still cached (a few hundred at most).
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
        let kernels = self.engine().here().fused();
        let compiled = kernels.iter().filter_map(|kernel| {
            let wgsl = kernel.shader.get()?.clone();
            let name = kernel.name.clone();
            Some(FusedKernel { name, wgsl })
        });
        compiled.collect()
    }
}
