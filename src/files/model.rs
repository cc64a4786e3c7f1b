//! Models: weights from files of safetensors or GGUF, uploaded at once or at their first use.

mod load;
mod made;
mod near;
mod save;
mod weight;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::file_formats::{
    BlockFormat, MetaValue, ModelDirectory, ModelEntry, ModelFault, ModelReader, ShownShape,
    Stored, can_load, device_type,
};
use crate::gpu::Gpu;
use crate::ops::quantizing::checked_group;
use crate::tensor::Tensor;
use lapidary_core::internal::block_on;
use lapidary_core::{DType, Error, Result, Source, failure::ModelFailure};
use made::Made;

/// An open model: the names, types and shapes of its tensors. The format is
/// [safetensors](https://huggingface.co/docs/safetensors), in one file or in several with an index,
/// or [GGUF](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3. Cheap to
/// clone.
///
/// A file may come from anybody. Opening checks every claim of the header against the file, before
/// it allocates anything for a tensor. Loading a tensor reads its contents:
///
/// | stored | loaded as |
/// | --- | --- |
/// | `F32`, `F16`, `BF16`, `I8`, `U8`, `I32`, `U32`, `BOOL` | the same |
/// | `I64`, `U64`, `F64` | `i32`, `u32`, `f32`, if each element fits; floats are rounded |
/// | `I16`, `U16` | `i32`, `u32` |
/// | `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0`, `Q4_K`, `Q5_K`, `Q6_K` | `f32`; as they are by [`load_weight_backed`](super::Files::load_weight_backed) |
/// | `F8_…`, `F4`, `C64`, `Q2_K`, `IQ…`, … | not loaded: listed, and refused |
///
/// The file is read at positions and not mapped. So if another process truncates it, the result is
/// an error and not the end of this process. The file must not change while it is open: once its
/// length or its time of change differs, every read is an error. Replacing it by another file, or
/// removing it, does no harm.
///
/// ```no_run
/// # fn main() -> lapidary::Result<()> {
/// # let gpu = lapidary::Gpu::open(Default::default())?;
/// use lapidary::files::ModelFile;
///
/// let file = ModelFile::open("model.safetensors")?;
/// for tensor in file.tensors() {
///     println!("{}: {:?} of {}", tensor.name, tensor.shape, tensor.stored);
/// }
/// let model = gpu.files().load_model(&file, |at| {
///     println!("{} of {} bytes", at.done_bytes, at.total_bytes);
/// })?;
/// let query = model.expect("encoder.layer.0.attention.self.query.weight", &[384, 384])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ModelFile {
    reader: Arc<ModelReader>,
    /// The type that floats are loaded as; `None` keeps theirs.
    floats: Option<DType>,
    /// The form of weights.
    weights: WeightForm,
}

/// The form in which [`load_weight_backed`](super::Files::load_weight_backed) loads the matrices of
/// a file: see [`ModelFile::weights_as`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightForm {
    /// As the file has them: floats of their type, or blocks.
    #[default]
    Stored,
    /// Floats of this type.
    Float(DType),
    /// Eight bits, with a scale for each row or for each group of so many elements, as
    /// [`Tensor::quantize`] makes them.
    Int8 {
        /// Elements of a group: a power of two from 8 to 4096.
        group: Option<u64>,
    },
    /// Blocks of 32 elements: `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1` or `Q8_0`, rounded as ggml does.
    Blocks(BlockFormat),
}

/// The description of one tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelTensor<'a> {
    /// Its name.
    pub name: &'a str,
    /// The type of the elements in the file, as the format spells it: `F32`, `BF16`, `Q4_K`, …
    pub stored: String,
    /// The type that they are loaded as; `None` if no device here computes with it.
    pub dtype: Option<DType>,
    /// Its shape.
    pub shape: &'a [usize],
    /// Size in the file, in bytes.
    pub stored_bytes: u64,
}

/// The progress of loading a model.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LoadProgress<'a> {
    /// The tensor that is being loaded.
    pub name: &'a str,
    /// Bytes of the file read so far.
    pub done_bytes: u64,
    /// Bytes of all tensors in the file.
    pub total_bytes: u64,
}

impl ModelFile {
    /// Opens a model, and checks its headers. The path is that of a file, of an index
    /// (`….index.json`), or of a folder with `model.safetensors` or its index.
    ///
    /// # Errors
    /// [`Error::Model`] for a file that does not exist, is cut off, contradicts itself, or is of
    /// another format. Also for a file that the index names and that is missing, and in a browser,
    /// which has no files.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        ModelReader::open(path.as_ref()).map(Self::over)
    }

    /// A file that is in memory already, as in a browser, or compiled into the program. The bytes
    /// are kept as long as this value, or a tensor backed by them, is alive.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<ModelFile> {
        ModelReader::from_bytes(bytes.into()).map(Self::over)
    }

    /// A file of so many bytes that a source gives, such as a server's by
    /// [`Source::reader_async`]. Only its header is read now. Errors show the name.
    ///
    /// ```no_run
    /// # async fn fetch(url: &str, from: u64, len: u64) -> std::io::Result<Vec<u8>> { todo!() }
    /// # async fn demo(gpu: lapidary::Gpu, len_bytes: u64) -> lapidary::Result<()> {
    /// use lapidary::{Source, files::ModelFile};
    ///
    /// let url = "https://example.org/model.safetensors";
    /// let source = Source::reader_async(move |from, len| fetch(url, from, len));
    /// let file = ModelFile::from_source_async(url, source, len_bytes).await?;
    /// let model = gpu.files().load_model_backed(&file)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open). The source's own are those of [`ModelFailure::Io`].
    pub fn from_source(
        name: impl Into<String>,
        source: Source,
        len_bytes: u64,
    ) -> Result<ModelFile> {
        let opened = Self::from_source_async(name, source, len_bytes);
        block_on("ModelFile::from_source", opened)
    }

    /// As [`from_source`](Self::from_source), as a future: the only form in a browser.
    pub async fn from_source_async(
        name: impl Into<String>,
        source: Source,
        len_bytes: u64,
    ) -> Result<ModelFile> {
        let opened = ModelReader::from_source(name.into(), source, len_bytes).await;
        opened.map(Self::over)
    }

    fn over(reader: ModelReader) -> ModelFile {
        ModelFile {
            reader: Arc::new(reader),
            floats: None,
            weights: WeightForm::Stored,
        }
    }

    /// The same file, with its floats loaded as this type: half of the memory for `DType::F16` or
    /// `DType::Bf16`. Elements are rounded. A finite element that would become infinite is an error
    /// that names its place.
    ///
    /// # Errors
    /// [`Error::DType`] for a type other than a float.
    pub fn floats_as(&self, dtype: DType) -> Result<ModelFile> {
        if !dtype.is_float() {
            return Err(Error::DType {
                operation: "floats_as",
                expected: "a float".into(),
                got: dtype,
                hint: "",
                at: String::new(),
            });
        }
        Ok(ModelFile {
            floats: Some(dtype),
            ..self.clone()
        })
    }

    /// The same file, whose weights have this form wherever a model loads them by
    /// [`load_weight_backed`](super::Files::load_weight_backed). Norms and biases, which are loaded
    /// as tensors, keep their type. The host quantizes at each read, so the device never has more
    /// than the form.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// use lapidary::files::{ModelFile, WeightForm};
    /// use lapidary::operations::BlockFormat;
    ///
    /// let file = ModelFile::open("model.safetensors")?;
    /// let small = file.weights_as(WeightForm::Blocks(BlockFormat::Q4_0))?;
    /// let up = gpu.files().load_weight_backed(&small, "model.layers.0.mlp.up_proj.weight")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::DType`] for a type other than a float. [`Error::Option`] for a group that is not a
    /// power of two from 8 to 4096, and for blocks that lapidary only reads.
    pub fn weights_as(&self, form: WeightForm) -> Result<ModelFile> {
        match form {
            WeightForm::Stored => {}
            WeightForm::Float(dtype) => drop(self.floats_as(dtype)?),
            WeightForm::Int8 { group } => drop(group.map(checked_group).transpose()?),
            WeightForm::Blocks(format) => {
                let none = [0.0; 256];
                format
                    .encode(&none[..format.block_len()], &mut Vec::new())
                    .ok_or_else(|| Error::Option {
                        option: "WeightForm::Blocks",
                        reason: format!(
                            "{} is only read: take Q4_0, Q4_1, Q5_0, Q5_1 or Q8_0",
                            format.name()
                        ),
                    })?;
            }
        }
        Ok(ModelFile {
            weights: form,
            ..self.clone()
        })
    }

    /// The names, in the order of the tensors in the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        names(self.directory())
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> impl Iterator<Item = ModelTensor<'_>> {
        let entries = self.directory().entries().iter();
        entries.map(|entry| self.described(entry))
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::Model`] with [`ModelFailure::Name`], and the nearest names, if there is none.
    pub fn describe(&self, name: &str) -> Result<ModelTensor<'_>> {
        let index = find(self.directory(), name)?;
        Ok(self.described(&self.directory().entries()[index]))
    }

    /// The tensor of this name, which must have this shape.
    ///
    /// # Errors
    /// As [`describe`](Self::describe), and [`ModelFailure::Shape`] with both shapes.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<ModelTensor<'_>> {
        let index = expect(self.directory(), name, shape)?;
        Ok(self.described(&self.directory().entries()[index]))
    }

    /// The metadata of the file, from its writer. Those of safetensors are texts, those of GGUF
    /// describe the model, such as `general.architecture` and `tokenizer.ggml.tokens`.
    pub fn metadata(&self) -> &BTreeMap<String, MetaValue> {
        self.directory().metadata()
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.directory().entries().len()
    }

    /// Whether the file has no tensors.
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
        let dtype = self.dtype(entry).ok_or_else(|| self.unsupported(entry))?;
        self.tensor_of(gpu, entry, dtype)
    }

    fn unsupported(&self, entry: &ModelEntry) -> Error {
        let reason = format!(
            "{} has elements of {}, which no operation here takes",
            lapidary_core::internal::printable(&entry.name, 100),
            entry.stored
        );
        self.directory()
            .error(ModelFault(ModelFailure::Unsupported, reason))
    }

    /// As [`tensor_for`](Self::tensor_for), with another type.
    #[track_caller]
    fn tensor_of(&self, gpu: &Gpu, entry: &ModelEntry, dtype: DType) -> Result<Tensor> {
        let tensor = Tensor::output(gpu.engine(), &entry.shape, dtype)?;
        Ok(tensor.named(&entry.name))
    }

    /// The blocks in which an entry is stored, unless its floats have a type that the app chose.
    fn blocks_of(&self, entry: &ModelEntry) -> Option<BlockFormat> {
        match entry.stored {
            Stored::Blocks(kind) if self.floats.is_none() => kind.format,
            _ => None,
        }
    }

    /// The shape of an entry that must be a matrix.
    fn matrix_shape(&self, operation: &'static str, entry: &ModelEntry) -> Result<[usize; 2]> {
        entry.shape[..].try_into().map_err(|_| Error::Shape {
            operation,
            reason: format!(
                "a tensor of {:?}: it is a matrix, [n, k]",
                ShownShape(&entry.shape)
            ),
        })
    }

    /// The bytes of a tensor as they are stored.
    fn stored_bytes(&self, index: usize) -> Made {
        Made::new(&self.reader, index, [1, 1], |array, at, bytes| {
            array.read_stored(at, bytes)
        })
    }

    /// The elements of a tensor.
    fn elements(&self, index: usize, dtype: DType) -> Made {
        let unit_bytes = self.reader.unit_bytes(index, dtype);
        Made::new(&self.reader, index, unit_bytes, move |array, at, bytes| {
            array.read(dtype, at, bytes)
        })
    }
}

/// These bytes are the value of a tensor that has none yet, and elements.
fn back_new(tensor: &Tensor, parts: Vec<(u64, Made)>) {
    if !tensor.is_empty() {
        (tensor.engine.here()).back_new(&tensor.storage.here(), made::source(parts));
    }
}

/// The tensors of a model, on a [`Gpu`]: see [`Files::load_model`](super::Files::load_model).
#[derive(Clone, Debug)]
pub struct Model {
    directory: Arc<ModelDirectory>,
    /// The tensors, in the order of the file.
    tensors: Vec<Tensor>,
}

impl Model {
    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::Model`] with [`ModelFailure::Name`], and the nearest names, if there is none.
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

    /// The metadata of the file, as [`ModelFile::metadata`].
    pub fn metadata(&self) -> &BTreeMap<String, MetaValue> {
        self.directory.metadata()
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether the model has no tensors.
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

/// Finds a tensor and checks its shape.
fn expect(directory: &ModelDirectory, name: &str, expected: &[usize]) -> Result<usize> {
    let index = find(directory, name)?;
    let shape = &directory.entries()[index].shape;
    if shape == expected {
        return Ok(index);
    }
    let is_transpose = shape.iter().rev().eq(expected);
    let hint = if is_transpose { ", its transpose," } else { "" };
    let name = lapidary_core::internal::printable(name, 100);
    let (shape, expected) = (ShownShape(shape), ShownShape(expected));
    let reason = format!("{name} has shape {shape:?}, where {expected:?}{hint} is expected");
    Err(directory.error(ModelFault(ModelFailure::Shape, reason)))
}
