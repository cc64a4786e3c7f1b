//! Convolution by matmul. Patches of the input become columns, for a slab of rows of the result at
//! a time. If patches do not overlap, nothing is copied.

use super::geometry::{Geometry, padded, windows};
use crate::tensor::Tensor;
use lapidary_core::Result;

/// Most bytes of a slab of patches. A slab always holds one row of the result of one sample.
const SLAB_BYTES: usize = 16 << 20;

/// The number of rows of the result in a slab, and of samples.
pub(super) struct Slabs<'a> {
    geometry: &'a Geometry,
    padded: Tensor,
    samples: usize,
    rows: usize,
}

impl<'a> Slabs<'a> {
    #[track_caller]
    pub(super) fn new(x: &Tensor, geometry: &'a Geometry) -> Result<Self> {
        let [height, width] = geometry.output;
        let row = geometry.taps() * geometry.groups * width * x.dtype.size_bytes() as usize;
        let rows = (SLAB_BYTES / row.max(1)).max(1);
        Ok(Slabs {
            geometry,
            padded: padded(x, geometry.options.padding, geometry.options.padding, 0.0)?,
            samples: (rows / height.max(1)).clamp(1, geometry.samples.max(1)),
            rows: rows.min(height),
        })
    }

    /// For every slab: the first sample, the number of samples, the first row, the number of rows.
    pub(super) fn ranges(&self) -> Vec<[usize; 4]> {
        let height = self.geometry.output[0];
        let mut ranges = vec![];
        for sample in (0..self.geometry.samples).step_by(self.samples) {
            let samples = self.samples.min(self.geometry.samples - sample);
            for row in (0..height).step_by(self.rows.max(1)) {
                ranges.push([sample, samples, row, self.rows.min(height - row)]);
            }
        }
        ranges
    }

    /// A slab, `[samples, groups, taps, pixels]`: a view if strides can express it.
    #[track_caller]
    pub(super) fn patches(&self, [sample, samples, row, rows]: [usize; 4]) -> Result<Tensor> {
        let own = self.geometry;
        let all = windows(
            &self.padded,
            own.output,
            own.kernel,
            own.options.stride,
            own.options.dilation,
        );
        let slab = all.narrow(0, sample, samples)?.narrow(2, row, rows)?;
        let by_tap = slab.permute(&[0, 1, 4, 5, 2, 3])?;
        by_tap.reshape(&[samples, own.groups, own.taps(), rows * own.output[1]])
    }
}

/// The convolution by matmul.
#[track_caller]
pub(super) fn conv(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    geometry: &Geometry,
) -> Result<Tensor> {
    let [height, width] = geometry.output;
    let (samples, groups) = (geometry.samples, geometry.groups);
    let channels = geometry.out_channels / groups;
    let shape = [samples, geometry.out_channels, height, width];
    let matrix = weight.reshape(&[groups, channels, geometry.taps()])?;
    let slabs = Slabs::new(x, geometry)?;
    let ranges = slabs.ranges();
    let y = match &ranges[..] {
        [range] => matrix.matmul(&slabs.patches(*range)?)?.reshape(&shape)?,
        ranges => {
            let y = Tensor::output(&x.engine, &shape, x.dtype)?;
            y.clear_storage()?;
            for &[sample, samples, row, rows] in ranges {
                let part = matrix.matmul(&slabs.patches([sample, samples, row, rows])?)?;
                let to = y.narrow(0, sample, samples)?.narrow(2, row, rows)?;
                to.copy_(&part.reshape(to.shape())?)?;
            }
            y
        }
    };
    if let Some(bias) = bias {
        y.add_(&bias.reshape(&[geometry.out_channels, 1, 1])?)?;
    }
    Ok(y)
}
