//! Models: weights from a file in the format safetensors, uploaded at once or when they are used.

use std::collections::BTreeMap;
#[cfg(not(target_arch = "wasm32"))]
use std::path::Path;
use std::sync::Arc;

use super::Gpu;
use crate::dtype::DType;
use crate::engine::block_on;
use crate::error::{Error, ModelFailure, Result};
use crate::memory::Source;
use crate::tensor::Tensor;
use crate::transfer::{ModelDirectory, ModelEntry, ModelFault, ModelReader, can_load, device_type};

mod near;

/// So much is read, converted and handed on at once.
const PART_BYTES: u64 = 1 << 20;

/// A model's file in the format [safetensors](https://huggingface.co/docs/safetensors), open: what
/// tensors there are, of which types and shapes. Cheap to clone.
///
/// A file may come from anybody: all that its header says is checked against the file when it is opened,
/// before anything is allocated for a tensor. Its contents are read when tensors are loaded:
///
/// | stored | loaded as |
/// | --- | --- |
/// | `F32`, `F16`, `BF16`, `I8`, `U8`, `I32`, `U32`, `BOOL` | the same |
/// | `I64`, `U64`, `F64` | `i32`, `u32`, `f32`, if each element fits; floats are rounded |
/// | `I16`, `U16` | `i32`, `u32` |
/// | `F8_…`, `F4`, `C64`, … | nothing: they are listed, and refused |
///
/// The file is read at positions and not mapped, so whoever cuts it off meanwhile causes an error and
/// not the end of the process. It must stay as it was when it was opened: once its length or the time of
/// its last change is another, whatever is read from it is an error. To put another file into its place, or to
/// remove it, does no harm.
///
/// ```no_run
/// # fn main() -> lapidary::Result<()> {
/// # let gpu = lapidary::Gpu::open(Default::default())?;
/// use lapidary::ModelFile;
///
/// let file = ModelFile::open("model.safetensors")?;
/// for tensor in file.tensors() {
///     println!("{}: {:?} of {}", tensor.name, tensor.shape, tensor.stored);
/// }
/// let model = gpu.load_model(&file, |at| {
///     println!("{} of {} bytes", at.done_bytes, at.total_bytes);
/// })?;
/// let query = model.expect("encoder.layer.0.attention.self.query.weight", &[384, 384])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ModelFile {
    reader: Arc<ModelReader>,
    /// What floats are loaded as, if not as they are.
    floats: Option<DType>,
}

/// What a file says of one of its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelTensor<'a> {
    /// Its name.
    pub name: &'a str,
    /// The type of the elements in the file, as the format spells it: `F32`, `BF16`, `I64`, …
    pub stored: String,
    /// The type that they are loaded as; `None` for one that no device here computes with.
    pub dtype: Option<DType>,
    /// Its shape.
    pub shape: &'a [usize],
    /// Its bytes in the file.
    pub stored_bytes: u64,
}

/// How far a model is loaded.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LoadProgress<'a> {
    /// The tensor that is loaded now.
    pub name: &'a str,
    /// Bytes of the file that were read.
    pub done_bytes: u64,
    /// Bytes of all its tensors.
    pub total_bytes: u64,
}

impl ModelFile {
    /// Opens a file, and checks its header.
    ///
    /// # Errors
    /// [`Error::Model`]: of a file that is not there, is cut off, contradicts itself, or is something else.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        ModelReader::open(path.as_ref()).map(Self::over)
    }

    /// A file that is in memory already, as in a browser, or compiled into the program. The bytes are kept
    /// for as long as this is, or a tensor that is backed by them.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<ModelFile> {
        ModelReader::from_bytes(bytes.into()).map(Self::over)
    }

    fn over(reader: ModelReader) -> ModelFile {
        ModelFile {
            reader: Arc::new(reader),
            floats: None,
        }
    }

    /// The same file, whose floats are loaded as this type, rounded on the way: half of the
    /// memory, for `DType::F16` or `DType::Bf16`. One that is finite and would become infinite is an error, with its place.
    ///
    /// # Errors
    /// [`Error::DType`] for a type that is no float.
    pub fn floats_as(&self, dtype: DType) -> Result<ModelFile> {
        if !dtype.is_float() {
            return Err(Error::DType {
                operation: "floats_as",
                expected: "a float".into(),
                got: dtype,
                hint: "",
            });
        }
        Ok(ModelFile {
            reader: self.reader.clone(),
            floats: Some(dtype),
        })
    }

    /// The names, in the order in which the tensors lie in the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        names(self.directory())
    }

    /// All that is there, in the order in which it lies in the file.
    pub fn tensors(&self) -> impl Iterator<Item = ModelTensor<'_>> {
        let entries = self.directory().entries().iter();
        entries.map(|entry| self.described(entry))
    }

    /// What there is under a name.
    ///
    /// # Errors
    /// [`Error::Model`] with [`ModelFailure::Name`], and the names that are nearest, if there is nothing.
    pub fn describe(&self, name: &str) -> Result<ModelTensor<'_>> {
        let index = find(self.directory(), name)?;
        Ok(self.described(&self.directory().entries()[index]))
    }

    /// What there is under a name, which must have this shape.
    ///
    /// # Errors
    /// As [`describe`](Self::describe), and [`ModelFailure::Shape`] with both shapes.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<ModelTensor<'_>> {
        let index = expect(self.directory(), name, shape)?;
        Ok(self.described(&self.directory().entries()[index]))
    }

    /// What the writer of the file has noted: names and texts.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        self.directory().metadata()
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.directory().entries().len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.directory().entries().is_empty()
    }

    fn directory(&self) -> &Arc<ModelDirectory> {
        self.reader.directory()
    }

    fn described<'a>(&self, entry: &'a ModelEntry) -> ModelTensor<'a> {
        ModelTensor {
            name: &entry.name,
            stored: entry.stored.to_string(),
            dtype: self.dtype(entry),
            shape: &entry.shape,
            stored_bytes: entry.len_bytes,
        }
    }

    fn dtype(&self, entry: &ModelEntry) -> Option<DType> {
        let wanted = self.floats.filter(|&float| can_load(entry.stored, float));
        wanted.or_else(|| device_type(entry.stored))
    }

    /// A tensor as an entry describes it, without a value yet.
    #[track_caller]
    fn tensor_for(&self, gpu: &Gpu, entry: &ModelEntry) -> Result<Tensor> {
        let Some(dtype) = self.dtype(entry) else {
            let reason = format!(
                "{} is of {}, which no operation here takes",
                crate::memory::printable(&entry.name, 100),
                entry.stored
            );
            return Err(self
                .directory()
                .error(ModelFault(ModelFailure::Unsupported, reason)));
        };
        let tensor = Tensor::output(&gpu.engine, &entry.shape, dtype)?;
        Ok(tensor.named(&entry.name))
    }

    /// Where the elements of a tensor can be had again.
    fn source(&self, index: usize, dtype: DType) -> Source {
        let reader = self.reader.clone();
        Source::reader(move |offset_bytes, bytes| {
            let read = reader.read(index, dtype, offset_bytes, bytes);
            read.map_err(std::io::Error::other)
        })
    }
}

/// The tensors of a model, on a [`Gpu`]: see [`Gpu::load_model`].
#[derive(Clone, Debug)]
pub struct Model {
    directory: Arc<ModelDirectory>,
    /// As many, and in the same order, as the file has.
    tensors: Vec<Tensor>,
}

impl Model {
    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::Model`] with [`ModelFailure::Name`], and the names that are nearest, if there is none.
    pub fn get(&self, name: &str) -> Result<Tensor> {
        Ok(self.tensors[find(&self.directory, name)?].clone())
    }

    /// The tensor of this name, which must have this shape.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`ModelFailure::Shape`] with both shapes.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        Ok(self.tensors[expect(&self.directory, name, shape)?].clone())
    }

    /// The names, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        names(&self.directory)
    }

    /// What the writer of the file has noted: names and texts.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        self.directory.metadata()
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }
}

fn names(directory: &ModelDirectory) -> impl Iterator<Item = &str> {
    directory.entries().iter().map(|entry| entry.name.as_str())
}

fn find(directory: &ModelDirectory, name: &str) -> Result<usize> {
    directory.find(name).ok_or_else(|| {
        let reason = near::missing(name, names(directory));
        directory.error(ModelFault(ModelFailure::Name, reason))
    })
}

/// Finds a tensor that has this shape.
fn expect(directory: &ModelDirectory, name: &str, expected: &[usize]) -> Result<usize> {
    let index = find(directory, name)?;
    let shape = &directory.entries()[index].shape;
    if shape == expected {
        return Ok(index);
    }
    let is_transpose = shape.iter().rev().eq(expected);
    let hint = if is_transpose { ", its transpose," } else { "" };
    let name = crate::memory::printable(name, 100);
    let reason = format!("{name} has shape {shape:?}, where {expected:?}{hint} is expected");
    Err(directory.error(ModelFault(ModelFailure::Shape, reason)))
}

impl Gpu {
    /// Loads all tensors of a file; each gets its name (see [`Tensor::named`]). The file is read in pieces,
    /// and before each of them a function hears how far it is; it may use this [`Gpu`].
    ///
    /// They stay [backed](Gpu::backed) by the file: when memory is short they are dropped and read again, and
    /// never written out, until they are written to. So a file larger than the device can be loaded.
    ///
    /// # Errors
    /// [`Error::Model`] for elements of a type that is not supported and for those that do not fit, and for a
    /// file that is no longer as it was; what [`tensor`](Gpu::tensor) says, for tensors beyond this device.
    #[track_caller]
    pub fn load_model(
        &self,
        file: &ModelFile,
        progress: impl FnMut(LoadProgress<'_>),
    ) -> Result<Model> {
        block_on("Gpu::load_model", self.load_model_async(file, progress))
    }

    /// As [`load_model`](Self::load_model), as a future: the only form in a browser.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model).
    #[track_caller]
    pub fn load_model_async(
        &self,
        file: &ModelFile,
        mut progress: impl FnMut(LoadProgress<'_>),
    ) -> impl Future<Output = Result<Model>> {
        let tensors = self.model_tensors(file);
        async move {
            let tensors = tensors?;
            let entries = file.directory().entries();
            let total_bytes = entries.iter().map(|entry| entry.len_bytes).sum();
            let mut before_bytes = 0;
            for (index, tensor) in tensors.iter().enumerate() {
                let entry = &entries[index];
                let mut tell = |share: f64| {
                    progress(LoadProgress {
                        name: &entry.name,
                        done_bytes: before_bytes + (entry.len_bytes as f64 * share) as u64,
                        total_bytes,
                    });
                };
                self.load_entry(file, index, tensor, &mut tell).await?;
                before_bytes += entry.len_bytes;
            }
            Ok(Model {
                directory: file.directory().clone(),
                tensors,
            })
        }
    }

    /// As [`load_model`](Self::load_model), but nothing is read before somebody uses it, and then no
    /// more than what is used. So a model opens at once, whatever its size.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model); what is wrong with the elements, and what becomes of the file
    /// later, is [`Error::Source`] for whoever uses the tensor.
    #[track_caller]
    pub fn load_model_backed(&self, file: &ModelFile) -> Result<Model> {
        let tensors = self.model_tensors(file)?;
        for (index, tensor) in tensors.iter().enumerate() {
            self.back_entry(file, index, tensor);
        }
        Ok(Model {
            directory: file.directory().clone(),
            tensors,
        })
    }

    /// Loads one tensor of a file, as [`load_model`](Self::load_model) does all.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model), and [`ModelFailure::Name`] if there is none of this name.
    #[track_caller]
    pub fn load_tensor(&self, file: &ModelFile, name: &str) -> Result<Tensor> {
        block_on("Gpu::load_tensor", self.load_tensor_async(file, name))
    }

    /// As [`load_tensor`](Self::load_tensor), as a future: the only form in a browser.
    ///
    /// # Errors
    /// As [`load_tensor`](Self::load_tensor).
    #[track_caller]
    pub fn load_tensor_async(
        &self,
        file: &ModelFile,
        name: &str,
    ) -> impl Future<Output = Result<Tensor>> {
        let found = self.model_tensor(file, name);
        async move {
            let (index, tensor) = found?;
            self.load_entry(file, index, &tensor, &mut |_| {}).await?;
            Ok(tensor)
        }
    }

    /// One tensor of a file, read when somebody uses it, as [`load_model_backed`](Self::load_model_backed)
    /// does with all.
    ///
    /// # Errors
    /// As [`load_model_backed`](Self::load_model_backed), and [`ModelFailure::Name`] if there is none of
    /// this name.
    #[track_caller]
    pub fn load_tensor_backed(&self, file: &ModelFile, name: &str) -> Result<Tensor> {
        let (index, tensor) = self.model_tensor(file, name)?;
        self.back_entry(file, index, &tensor);
        Ok(tensor)
    }

    /// All tensors of a file without a value, so that what cannot be is known before anything is read.
    #[track_caller]
    fn model_tensors(&self, file: &ModelFile) -> Result<Vec<Tensor>> {
        let mut tensors = Vec::with_capacity(file.len());
        for entry in file.directory().entries() {
            tensors.push(file.tensor_for(self, entry)?);
        }
        Ok(tensors)
    }

    #[track_caller]
    fn model_tensor(&self, file: &ModelFile, name: &str) -> Result<(usize, Tensor)> {
        let index = find(file.directory(), name)?;
        let tensor = file.tensor_for(self, &file.directory().entries()[index])?;
        Ok((index, tensor))
    }

    async fn load_entry(
        &self,
        file: &ModelFile,
        index: usize,
        tensor: &Tensor,
        tell: &mut impl FnMut(f64),
    ) -> Result<()> {
        let (len_bytes, mut at) = (tensor.size_bytes(), 0);
        let mut part = Vec::new();
        while at < len_bytes {
            tell(at as f64 / len_bytes as f64);
            let part_bytes = PART_BYTES.min(len_bytes - at);
            part.resize(part_bytes as usize, 0);
            file.reader.read(index, tensor.dtype(), at, &mut part)?;
            self.engine.upload_async(&tensor.storage, at, &part).await?;
            at += part_bytes;
        }
        tell(1.0);
        if len_bytes > 0 && file.reader.is_on_disk() {
            let source = file.source(index, tensor.dtype());
            self.engine.back(&tensor.storage, source).await?;
        }
        Ok(())
    }

    fn back_entry(&self, file: &ModelFile, index: usize, tensor: &Tensor) {
        if tensor.size_bytes() > 0 {
            let source = file.source(index, tensor.dtype());
            self.engine.back_new(&tensor.storage, source);
        }
    }
}
