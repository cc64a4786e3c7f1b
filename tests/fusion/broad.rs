//! Long tensors on a discrete GPU have broad workgroups.

use lapidary::sim::{SimKernels, SimOptions};
use lapidary::{DType, Result};

use crate::fusion::simulated;

/// One element more than the least length, so that the last workgroup is nearly empty.
const LEN: usize = 4 * (1 << 16) + 1;

#[test]
fn long_tensors_have_broad_workgroups_and_the_same_values() -> Result<()> {
    for fuse in [false, true] {
        let device = SimOptions {
            kernels: SimKernels::Interpreted,
            ..SimOptions::default()
        };
        let (gpu, _) = simulated(fuse, device);
        let x = gpu.arange(0.0, LEN as f32, 1.0, DType::F32)?;
        let y = ((&x * 2.0)? + 1.0)?.to_vec::<f32>()?;
        let differs = |(at, value): (usize, &f32)| *value != 2.0 * at as f32 + 1.0;
        assert_eq!(y.iter().enumerate().position(differs), None);
        let short = ((x.narrow(0, 0, 100)? * 2.0)? + 1.0)?.to_vec::<f32>()?;
        assert_eq!(short[99], 199.0);
        if fuse {
            let kernels = gpu.fused_kernels();
            let has = |size: &str| kernels.iter().any(|kernel| kernel.wgsl.contains(size));
            assert!(has("@workgroup_size(256)") && has("@workgroup_size(64)"));
        }
    }
    Ok(())
}
