//! States: tensors in a file, so that a long job can continue in another process.

use std::path::Path;
use std::sync::Arc;

use super::Files;
use super::stream::{PART_BYTES, changed, stream, versions};
use crate::file_formats::{StateEntry, StateReader, StateWriter};
use crate::tensor::Tensor;
use lapidary_core::{Error, Result, Source, failure::StateFailure};

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

impl Files<'_> {
    /// Saves named tensors into a file, for [`load_state`](Self::load_state) of this program or
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
    /// let (mut weights, mut step) = match gpu.files().load_state("job.state") {
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
    ///         let tensors = [("weights", &weights), ("step", &saved_step)];
    ///         gpu.files().save_state("job.state", &tensors)?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::State`] when two tensors have one name, or a name exceeds 64 KiB. Also when the
    /// file cannot be written, or a tensor was written to meanwhile. [`Error::Foreign`] for a
    /// tensor of another `Gpu`. The errors of [`to_vec_async`](Tensor::to_vec_async).
    #[track_caller]
    pub fn save_state(self, path: impl AsRef<Path>, tensors: &[(&str, &Tensor)]) -> Result<()> {
        let path = path.as_ref();
        let saved: Vec<&Tensor> = tensors.iter().map(|&(_, tensor)| tensor).collect();
        let versions = versions(self.gpu, &saved, "save_state")?;
        let entries = tensors.iter();
        let entries = entries.map(|(name, t)| StateEntry::new(name, t.dtype(), t.shape()));
        let options = self.gpu.file_options();
        let mut writer = StateWriter::create(path, entries.collect(), &options)?;

        stream("Files::save_state", &saved, |part| writer.append(part))?;
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

    /// Loads the tensors of a file that [`save_state`](Self::save_state) has written. Every byte is
    /// checked; each tensor gets its name (see [`Tensor::named`]). The tensors need not fit on the
    /// device together: those without room there are evicted.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// for (name, tensor) in gpu.files().load_state("job.state")? {
    ///     println!("{name}: {:?} of {}", tensor.shape(), tensor.dtype());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::State`] for a file that does not exist, is cut off or changed, or is not a state
    /// file. The errors of [`tensor`](crate::Gpu::tensor) for tensors beyond this device.
    #[track_caller]
    pub fn load_state(self, path: impl AsRef<Path>) -> Result<State> {
        let reader = StateReader::open(path.as_ref(), &self.gpu.file_options())?;
        let (mut tensors, mut part) = (Vec::new(), Vec::new());
        for (index, entry) in reader.entries().iter().enumerate() {
            let tensor = self.tensor_for(entry)?;
            let mut at = 0;
            while at < entry.len_bytes {
                let part_bytes = PART_BYTES.min(entry.len_bytes - at);
                part.resize(part_bytes as usize, 0);
                reader.read(index, at, &mut part)?;
                (tensor.engine.here()).upload(&tensor.storage.here(), at, &part)?;
                at += part_bytes;
            }
            tensors.push((entry.name.clone(), tensor));
        }
        Ok(State::new(&reader, tensors))
    }

    /// As [`load_state`](Self::load_state), but the file stays the tensors' [source](Source). A
    /// tensor is uploaded at its first use, and its eviction costs nothing until it is written to.
    /// So a state may be larger than the device.
    ///
    /// The whole file is read and checked once; later reads are checked again. The file stays open.
    /// Saving to the same path, or removing the file, does the tensors no harm, but no program may
    /// write into it.
    ///
    /// # Errors
    /// As [`load_state`](Self::load_state). Later changes of the file are [`Error::Source`] of the
    /// calls that use the tensor.
    #[track_caller]
    pub fn load_state_backed(self, path: impl AsRef<Path>) -> Result<State> {
        let reader = StateReader::open(path.as_ref(), &self.gpu.file_options())?;
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
                (tensor.engine.here()).back_new(&tensor.storage.here(), source);
            }
            tensors.push((entry.name.clone(), tensor));
        }
        Ok(State::new(&reader, tensors))
    }

    /// A tensor as an entry describes it, without a value yet.
    #[track_caller]
    fn tensor_for(self, entry: &StateEntry) -> Result<Tensor> {
        let dims = entry.shape.iter().map(|&dim| usize::try_from(dim));
        let shape: Vec<usize> = dims.collect::<Result<_, _>>().map_err(|_| Error::Shape {
            operation: "load_state",
            reason: format!("{:?} exceeds what this machine can address", entry.shape),
        })?;
        let tensor = Tensor::output(self.gpu.engine(), &shape, entry.dtype)?;
        Ok(tensor.named(&entry.name))
    }
}
