//! States: tensors in a file, so that a long job can continue in another process.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::Gpu;
use crate::files::{Entry, StateReader, StateWriter};
use crate::tensor::Tensor;
use crate::tensor::layout::{Dims, Layout, Strides};
use lapidary_core::internal::{BoxFuture, block_on};
use lapidary_core::units::MIB;
use lapidary_core::{DType, Element, Error, Result, Source, failure::StateFailure};

/// Most bytes of a part. Tensors pass through the host in parts.
const PART_BYTES: u64 = 8 * MIB;

/// Most parts, and bytes of parts, under way at once: the device copies while the disk writes.
const PARTS_UNDER_WAY: usize = 64;
const BYTES_UNDER_WAY: u64 = 2 * PART_BYTES;

/// The device gathers a view whose lowest and highest elements are further apart than this.
const FAR_BYTES: u64 = 4 * PART_BYTES;

/// The contents of a state file: named tensors, in the order in which they were saved.
#[derive(Clone, Debug)]
pub struct State {
    path: String,
    tensors: Vec<(String, Tensor)>,
    /// Indices of the tensors, sorted by name.
    sorted: Vec<usize>,
}

impl State {
    fn new(reader: &StateReader, tensors: Vec<(String, Tensor)>) -> State {
        let mut sorted: Vec<usize> = (0..tensors.len()).collect();
        sorted.sort_by(|&a, &b| tensors[a].0.cmp(&tensors[b].0));
        State {
            path: reader.path().display().to_string(),
            tensors,
            sorted,
        }
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::State`] with [`StateFailure::Name`] if there is none.
    pub fn get(&self, name: &str) -> Result<Tensor> {
        let found = self
            .sorted
            .binary_search_by(|&at| self.tensors[at].0.as_str().cmp(name));
        match found {
            Ok(at) => Ok(self.tensors[self.sorted[at]].1.clone()),
            Err(_) => Err(Error::State {
                path: self.path.clone(),
                failure: StateFailure::Name,
                reason: format!(
                    "none of its {} tensors is called {}",
                    self.len(),
                    lapidary_core::internal::printable(name, 60)
                ),
            }),
        }
    }

    /// The names, in the order in which the tensors were saved.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|(name, _)| name.as_str())
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether the state has no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }
}

impl IntoIterator for State {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.into_iter()
    }
}

impl Gpu {
    /// Saves named tensors into a file, for [`load_state`](Gpu::load_state) of this program or
    /// another one, on any adapter.
    ///
    /// The file replaces the one at `path` only when it is whole and on the disk. After any
    /// failure, or if the program is killed, the old file is still there, unchanged. (A program
    /// that is killed leaves a hidden file beside it, which a later save removes.) Only the file's
    /// owner may read it.
    ///
    /// The call saves the values that the tensors have after all queued work, a few MiB at a time.
    /// Evicted tensors are not restored. A view is saved with its own elements only. The elements
    /// of a view may be tens of MiB apart, as in the transpose of a large matrix. Such a view is
    /// copied on the device, a few MiB at a time. If another thread writes to a tensor before the
    /// call returns, the call fails.
    ///
    /// There is no asynchronous form: natively it would block just the same, and a browser has no
    /// files.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// use lapidary::{DType, Error, failure::StateFailure};
    ///
    /// let (mut weights, mut step) = match gpu.load_state("job.state") {
    ///     Ok(state) => (state.get("weights")?, state.get("step")?.item::<u32>()?),
    ///     Err(Error::State { failure: StateFailure::NotFound, .. }) => {
    ///         (gpu.zeros(&[1000, 1000], DType::F32)?, 0)
    ///     }
    ///     Err(error) => return Err(error),
    /// };
    /// while step < 1000 {
    ///     weights = (weights + 1.0)?;
    ///     step += 1;
    ///     if step % 100 == 0 {
    ///         let saved_step = gpu.scalar(step)?;
    ///         gpu.save_state("job.state", &[("weights", &weights), ("step", &saved_step)])?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::State`] when two tensors have one name, or a name exceeds 64 KiB. Also when the
    /// file cannot be written, or a tensor was written to meanwhile. [`Error::Foreign`] for a
    /// tensor of another `Gpu`. The errors of [`read`](Tensor::read).
    #[track_caller]
    pub fn save_state(&self, path: impl AsRef<Path>, tensors: &[(&str, &Tensor)]) -> Result<()> {
        let path = path.as_ref();
        let saved: Vec<&Tensor> = tensors.iter().map(|&(_, tensor)| tensor).collect();
        let versions = self.versions(&saved, "save_state")?;
        let entries = tensors.iter();
        let entries = entries.map(|(name, t)| Entry::new(name, t.dtype(), t.shape()));
        let options = self.file_options();
        let mut writer = StateWriter::create(path, entries.collect(), &options)?;

        stream("Gpu::save_state", &saved, |part| writer.append(part))?;
        if let Some(changed) = changed(&saved, &versions) {
            let name = lapidary_core::internal::printable(tensors[changed].0, 60);
            return Err(Error::State {
                path: path.display().to_string(),
                failure: StateFailure::Changed,
                reason: format!("{name} was written to while it was being saved"),
            });
        }
        writer.finish()
    }

    /// The versions of tensors before they are saved. Refuses tensors of another `Gpu`.
    pub(super) fn versions(
        &self,
        tensors: &[&Tensor],
        operation: &'static str,
    ) -> Result<Vec<Option<u64>>> {
        if !tensors
            .iter()
            .all(|tensor| self.engine().may_read(&tensor.engine, &tensor.storage))
        {
            return Err(Error::Foreign { operation });
        }
        let version = |tensor: &&Tensor| {
            let version = tensor.version();
            (!tensor.storage.is_half_written()).then_some(version)
        };
        Ok(tensors.iter().map(version).collect())
    }

    /// Loads the tensors of a file that [`save_state`](Gpu::save_state) has written. Every byte is
    /// checked; each tensor gets its name (see [`Tensor::named`]). The tensors need not fit on the
    /// device together: those without room there are evicted.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// for (name, tensor) in gpu.load_state("job.state")? {
    ///     println!("{name}: {:?} of {}", tensor.shape(), tensor.dtype());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::State`] for a file that does not exist, is cut off or changed, or is not a state
    /// file. The errors of [`tensor`](Gpu::tensor) for tensors beyond this device.
    #[track_caller]
    pub fn load_state(&self, path: impl AsRef<Path>) -> Result<State> {
        let reader = StateReader::open(path.as_ref(), &self.file_options())?;
        let (mut tensors, mut part) = (Vec::new(), Vec::new());
        for (index, entry) in reader.entries().iter().enumerate() {
            let tensor = self.tensor_for(entry)?;
            let mut at = 0;
            while at < entry.len_bytes {
                let part_bytes = PART_BYTES.min(entry.len_bytes - at);
                part.resize(part_bytes as usize, 0);
                reader.read(index, at, &mut part)?;
                self.engine().upload(&tensor.storage, at, &part)?;
                at += part_bytes;
            }
            tensors.push((entry.name.clone(), tensor));
        }
        Ok(State::new(&reader, tensors))
    }

    /// As [`load_state`](Gpu::load_state), but the file stays the tensors' [source](Source). A
    /// tensor is uploaded at its first use, and its eviction costs nothing until it is written to.
    /// So a state may be larger than the device.
    ///
    /// The whole file is read and checked once; later reads are checked again. The file stays open.
    /// Saving to the same path, or removing the file, does the tensors no harm, but no program may
    /// write into it.
    ///
    /// # Errors
    /// As [`load_state`](Gpu::load_state). Later changes of the file are [`Error::Source`] of the
    /// calls that use the tensor.
    #[track_caller]
    pub fn load_state_backed(&self, path: impl AsRef<Path>) -> Result<State> {
        let reader = StateReader::open(path.as_ref(), &self.file_options())?;
        reader.verify()?;
        let reader = Arc::new(reader);
        let mut tensors = Vec::new();
        for (index, entry) in reader.entries().iter().enumerate() {
            let tensor = self.tensor_for(entry)?;
            if entry.len_bytes > 0 {
                let reader = reader.clone();
                let source = Source::reader(move |offset_bytes, bytes| {
                    let read = reader.read(index, offset_bytes, bytes);
                    read.map_err(std::io::Error::other)
                });
                self.engine().back_new(&tensor.storage, source);
            }
            tensors.push((entry.name.clone(), tensor));
        }
        Ok(State::new(&reader, tensors))
    }

    /// A tensor as an entry describes it, without a value yet.
    #[track_caller]
    fn tensor_for(&self, entry: &Entry) -> Result<Tensor> {
        let dims = entry.shape.iter().map(|&dim| usize::try_from(dim));
        let shape: Vec<usize> = dims.collect::<Result<_, _>>().map_err(|_| Error::Shape {
            operation: "load_state",
            reason: format!("{:?} exceeds what this machine can address", entry.shape),
        })?;
        let tensor = Tensor::output(self.engine(), &shape, entry.dtype)?;
        Ok(tensor.named(&entry.name))
    }
}

/// The first tensor that was written to since it had this version.
pub(super) fn changed(tensors: &[&Tensor], versions: &[Option<u64>]) -> Option<usize> {
    let mut pairs = tensors.iter().zip(versions);
    pairs.position(|(tensor, version)| Some(tensor.version()) != *version)
}

/// Passes the elements of tensors on, one tensor after the other, in parts.
#[track_caller]
pub(super) fn stream(
    operation: &'static str,
    tensors: &[&Tensor],
    mut append: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut parts = tensors.iter().flat_map(|tensor| parts(tensor));
    let (mut under_way, mut bytes_under_way) = (VecDeque::new(), 0);
    loop {
        while under_way.len() < PARTS_UNDER_WAY && bytes_under_way < BYTES_UNDER_WAY {
            let Some(part) = parts.next() else { break };
            bytes_under_way += part.size_bytes();
            under_way.push_back((part.size_bytes(), start(&part)?));
        }
        let Some((part_bytes, reading)) = under_way.pop_front() else {
            return Ok(());
        };
        append(&block_on(operation, reading)?)?;
        bytes_under_way -= part_bytes;
    }
}

/// Starts to read a part.
#[track_caller]
fn start(part: &Tensor) -> Result<BoxFuture<'static, Result<Vec<u8>>>> {
    let far = part.layout.span().is_some_and(|(lowest, highest)| {
        (highest - lowest) as u64 * part.dtype().size_bytes() > FAR_BYTES
    });
    let gathered;
    let part = if far {
        gathered = part.contiguous()?;
        &gathered
    } else {
        part
    };
    Ok(match part.dtype() {
        DType::F32 => start_typed::<f32>(part),
        DType::F16 => start_typed::<half::f16>(part),
        DType::I32 => start_typed::<i32>(part),
        DType::U32 => start_typed::<u32>(part),
        DType::U8 => start_typed::<u8>(part),
        DType::Bool => start_typed::<bool>(part),
        DType::Bf16 => start_typed::<half::bf16>(part),
        DType::I8 => start_typed::<i8>(part),
    })
}

#[track_caller]
fn start_typed<T: Element>(part: &Tensor) -> BoxFuture<'static, Result<Vec<u8>>> {
    let reading = part.read::<T>();
    Box::pin(async move { Ok(T::bytes_of(&reading.await?).to_vec()) })
}

/// A tensor in parts of at most [`PART_BYTES`], in row-major order.
fn parts(tensor: &Tensor) -> impl Iterator<Item = Tensor> {
    let most = (PART_BYTES / tensor.dtype().size_bytes()) as usize;
    layouts(&tensor.layout, most).map(|layout| tensor.view(layout))
}

/// A layout in parts of at most `most` elements. A part is a run along the first axis whose steps
/// are no larger than that, for each index of the axes before it.
fn layouts(layout: &Layout, most: usize) -> impl Iterator<Item = Layout> + use<> {
    let mut whole = layout.clone();
    if whole.is_contiguous() {
        whole.shape = Dims::from_slice(&[layout.len()]);
        whole.strides = Strides::from_slice(&[1]);
    }
    let (mut axis, mut step_len) = (0, whole.len());
    for (at, &dim) in whole.shape.iter().enumerate() {
        axis = at;
        step_len = step_len.checked_div(dim).unwrap_or(0);
        if step_len <= most {
            break;
        }
    }
    let dim = whole.shape[axis];
    let run = most.checked_div(step_len).unwrap_or(1).clamp(1, dim.max(1));
    let runs = dim.div_ceil(run);
    let outer: usize = match whole.len() {
        0 => 0,
        _ => whole.shape[..axis].iter().product(),
    };
    (0..outer * runs).map(move |number| {
        let (mut rest, first) = (number / runs, number % runs * run);
        let mut offset = whole.offset as isize + first as isize * whole.strides[axis];
        for at in (0..axis).rev() {
            offset += (rest % whole.shape[at]) as isize * whole.strides[at];
            rest /= whole.shape[at];
        }
        let mut shape = Dims::from_slice(&whole.shape[axis..]);
        shape[0] = run.min(dim - first);
        Layout {
            shape,
            strides: Strides::from_slice(&whole.strides[axis..]),
            offset: offset as usize,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(layout: &Layout) {
        for most in [1, 2, 3, 7, 24, 1000] {
            let all: Vec<usize> = layout.elements().collect();
            let mut seen = Vec::new();
            for part in layouts(layout, most) {
                assert!((1..=most).contains(&part.len()), "{part:?}");
                seen.extend(part.elements());
            }
            assert_eq!(seen, all, "{layout:?} in parts of {most}");
        }
    }

    #[test]
    fn parts_are_all_elements_in_order_and_none_is_too_large() {
        let base = Layout::contiguous(&[3, 4, 5]);
        check(&base);
        check(&base.permute(&[2, 0, 1]).unwrap());
        check(&base.flip(&[0, 2]).unwrap());
        check(&base.slice(1, Some(1), None, 2).unwrap());
        check(&base.select(2, 3).unwrap());
        check(
            &Layout::contiguous(&[1, 5, 1])
                .broadcast_to(&[6, 5, 4])
                .unwrap(),
        );
        check(&Layout::contiguous(&[]));
        check(&Layout::contiguous(&[4, 0, 3]));
        check(&Layout::contiguous(&[4, 0, 3]).permute(&[2, 1, 0]).unwrap());
    }
}
