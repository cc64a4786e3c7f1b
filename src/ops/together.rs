//! Tensors that one launch takes together, and tensors that it takes in parts.
//!
//! Small tensors share launches, which saves the cost of a launch for each. All operands of a
//! launch must be on the device at once, so large tensors get launches of their own. A tensor
//! beyond one binding is taken in parts, each with its own range of the storage.

use crate::tensor::Tensor;
use lapidary_core::Caps;
use lapidary_core::units::MIB;

/// Most bytes of the operands of a launch that takes several tensors. Beyond, the cost of a launch
/// is small beside that of its bytes.
const TOGETHER_BYTES: u64 = 4 * MIB;

/// Parts begin at multiples of this many elements, which suits every device's bindings.
const PART_UNIT: usize = 256;

/// Puts tensors into groups of at most `most`, in their order. `sizes_bytes` has the bytes of all
/// operands for each. A tensor that is too large for a group is alone in one.
pub(crate) fn groups(caps: &Caps, sizes_bytes: &[u64], most: usize) -> Vec<Vec<usize>> {
    let limit_bytes = TOGETHER_BYTES.min(caps.max_binding_bytes);
    let (mut groups, mut open, mut open_bytes) = (Vec::new(), Vec::new(), 0);
    for (index, &size_bytes) in sizes_bytes.iter().enumerate() {
        if size_bytes > limit_bytes {
            groups.push(vec![index]);
            continue;
        }
        if open.len() == most.max(1) || open_bytes + size_bytes > limit_bytes {
            groups.push(std::mem::take(&mut open));
            open_bytes = 0;
        }
        open.push(index);
        open_bytes += size_bytes;
    }
    groups.push(open);
    groups.retain(|group| !group.is_empty());
    groups
}

/// The parts of a tensor of `len` elements that fit into one binding each, as (start, length).
pub(super) fn parts(caps: &Caps, len: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
    let most = (caps.max_binding_bytes / 4) as usize;
    let most = (most / PART_UNIT * PART_UNIT).max(PART_UNIT);
    let starts = (0..len).step_by(most);
    starts.map(move |start| (start, most.min(len - start)))
}

/// The bytes of a part of a whole storage.
pub(super) fn range(tensor: &Tensor, (start, len): (usize, usize)) -> (u64, u64) {
    let width = tensor.dtype.size_bytes();
    let start_bytes = start as u64 * width;
    let len_bytes = (len as u64 * width).next_multiple_of(16);
    let left_bytes = tensor.storage.size_bytes() - start_bytes;
    (start_bytes, len_bytes.min(left_bytes))
}

impl Tensor {
    /// Is it row-major, and all of its storage? Then a kernel may write it by vec4s, and count
    /// from 0.
    pub(crate) fn is_whole_storage(&self) -> bool {
        self.layout.is_contiguous() && self.size_bytes() == self.storage.len_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Gpu;
    use lapidary_core::sim::SimOptions;

    #[test]
    fn small_tensors_share_groups_and_large_ones_are_alone() {
        let (gpu, _) = Gpu::simulated(SimOptions::default()).unwrap();
        let check = |sizes: &[u64], most, expected: &[&[usize]]| {
            assert_eq!(groups(gpu.caps(), sizes, most), expected, "{sizes:?}");
        };
        check(&[], 3, &[]);
        check(&[1, 2, 3, 4], 3, &[&[0, 1, 2], &[3]]);
        check(&[1, 64 * MIB, 3, 4], 3, &[&[1], &[0, 2, 3]]);
        check(&[3 * MIB, 3 * MIB, 1], 3, &[&[0], &[1, 2]]);
        check(&[1, 1], 0, &[&[0], &[1]]);
    }

    #[test]
    fn parts_cover_a_tensor_and_fit_into_a_binding() {
        let options = SimOptions {
            max_binding_bytes: 16 << 10,
            ..SimOptions::default()
        };
        let (gpu, _) = Gpu::simulated(options).unwrap();
        let all: Vec<_> = parts(gpu.caps(), 9000).collect();
        assert_eq!(all, [(0, 4096), (4096, 4096), (8192, 808)]);
        assert_eq!(parts(gpu.caps(), 0).count(), 0);
    }
}
