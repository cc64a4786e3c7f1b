//! Loading from a model file: tensors, some rows of one, or eight bits of its elements. They are
//! uploaded in pieces, or read at their first use.

use std::ops::Range;

use super::{LoadProgress, Model, ModelFile, back_new, find, made, weight};
use crate::file_formats::{ModelFault, ShownShape};
use crate::files::Files;
use crate::ops::{Quantized, Weight};
use crate::tensor::Tensor;
#[cfg(doc)]
use crate::{Error, Gpu};
use lapidary_core::internal::{block_on, printable};
use lapidary_core::{Result, failure::ModelFailure};

/// Bytes that are read, converted and uploaded at once.
const PART_BYTES: u64 = 1 << 20;

impl Files<'_> {
    /// Loads all tensors of a file; each gets its name (see [`Tensor::named`]). The file is read in
    /// pieces. Before each piece a function gets the progress; it may use this [`Gpu`].
    ///
    /// Tensors of an [opened](ModelFile::open) file, or of a
    /// [source](ModelFile::from_source), stay [backed](Gpu::backed) by it. When memory
    /// is short, the engine drops and later rereads them; it never writes them out before they are
    /// written to. So a file larger than the device can be loaded. Bytes from the app do not back
    /// their tensors; [`load_model_backed`](Self::load_model_backed) does that.
    ///
    /// # Errors
    /// [`Error::Model`] for elements of an unsupported type, for elements that do not fit, and for
    /// a file that has changed. The errors of [`tensor`](Gpu::tensor) for tensors beyond this
    /// device.
    #[track_caller]
    pub fn load_model(
        self,
        file: &ModelFile,
        progress: impl FnMut(LoadProgress<'_>),
    ) -> Result<Model> {
        block_on("Files::load_model", self.load_model_async(file, progress))
    }

    /// As [`load_model`](Self::load_model), as a future: the only form in a browser.
    #[track_caller]
    pub fn load_model_async(
        self,
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

    /// As [`load_model`](Self::load_model), but a tensor is read at its first use, and only the
    /// bytes in use are read. So a model of any size opens at once.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model). Invalid elements, and later changes of the file, are
    /// [`Error::Source`] of the calls that use the tensor.
    #[track_caller]
    pub fn load_model_backed(self, file: &ModelFile) -> Result<Model> {
        let tensors = self.model_tensors(file)?;
        for (index, tensor) in tensors.iter().enumerate() {
            self.back_entry(file, index, tensor, 0);
        }
        Ok(Model {
            directory: file.directory().clone(),
            tensors,
        })
    }

    /// Loads one tensor of a file, in the way of [`load_model`](Self::load_model).
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model), and [`ModelFailure::Name`] if no tensor has this name.
    #[track_caller]
    pub fn load_tensor(self, file: &ModelFile, name: &str) -> Result<Tensor> {
        block_on("Files::load_tensor", self.load_tensor_async(file, name))
    }

    /// As [`load_tensor`](Self::load_tensor), as a future: the only form in a browser.
    #[track_caller]
    pub fn load_tensor_async(
        self,
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

    /// One tensor of a file, read at its first use, in the way of
    /// [`load_model_backed`](Self::load_model_backed).
    ///
    /// # Errors
    /// As [`load_model_backed`](Self::load_model_backed), and [`ModelFailure::Name`] if no tensor
    /// has this name.
    #[track_caller]
    pub fn load_tensor_backed(self, file: &ModelFile, name: &str) -> Result<Tensor> {
        let (index, tensor) = self.model_tensor(file, name)?;
        self.back_entry(file, index, &tensor, 0);
        Ok(tensor)
    }

    /// Some rows of a tensor of a file, read at their first use, as with
    /// [`load_tensor_backed`](Self::load_tensor_backed). So a table larger than the budget, such as
    /// a language model's word embeddings, becomes several tensors that each fit. A row is one
    /// index of the first dimension.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let file = lapidary::files::ModelFile::open("model.safetensors")?;
    /// let table = "embeddings.word_embeddings.weight";
    /// let first = gpu.files().load_rows_backed(&file, table, 0..1000)?;
    /// assert_eq!(first.shape(), [1000, 384]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`load_tensor_backed`](Self::load_tensor_backed), and [`ModelFailure::Shape`] for rows
    /// that the tensor does not have.
    #[track_caller]
    pub fn load_rows_backed(
        self,
        file: &ModelFile,
        name: &str,
        rows: Range<usize>,
    ) -> Result<Tensor> {
        let index = find(file.directory(), name)?;
        let mut entry = file.directory().entries()[index].clone();
        match entry.shape.first_mut() {
            Some(count) if rows.start <= rows.end && rows.end <= *count => *count = rows.len(),
            _ => {
                let name = printable(name, 100);
                let reason = format!(
                    "{name} of shape {:?} has no rows {rows:?}",
                    ShownShape(&entry.shape)
                );
                return Err(file
                    .directory()
                    .error(ModelFault(ModelFailure::Shape, reason)));
            }
        }
        let tensor = file.tensor_for(self.gpu, &entry)?;
        let row_bytes = tensor
            .size_bytes()
            .checked_div(rows.len() as u64)
            .unwrap_or(0);
        self.back_entry(file, index, &tensor, rows.start as u64 * row_bytes);
        Ok(tensor)
    }

    /// A matrix of a file, of any float type, in eight bits, as
    /// [`Tensor::quantize`](crate::Tensor::quantize) makes it. The host quantizes it at its first
    /// use, so the device never has the floats. Under pressure it is dropped and read again, as
    /// with [`load_tensor_backed`](Self::load_tensor_backed).
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// # let x = gpu.zeros(&[1, 384], lapidary::DType::F32)?;
    /// let file = lapidary::files::ModelFile::open("model.safetensors")?;
    /// let name = "encoder.layer.0.output.dense.weight";
    /// let dense = gpu.files().load_quantized_backed(&file, name, Some(64))?;
    /// let y = x.matmul_quantized(&dense)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`load_tensor_backed`](Self::load_tensor_backed). [`Error::Shape`] for a tensor that is
    /// not a matrix. [`Error::DType`] for integers. [`Error::Option`] for a group that is not a
    /// power of two from 8 to 4096.
    #[track_caller]
    pub fn load_quantized_backed(
        self,
        file: &ModelFile,
        name: &str,
        group: Option<u64>,
    ) -> Result<Quantized> {
        weight::load_quantized(self.gpu, file, name, group)
    }

    /// A matrix of a file, read at its first use, in the form that the file has for weights:
    /// [`ModelFile::weights_as`]. Unless it says otherwise, blocks of GGUF stay blocks, and floats
    /// have their type. Under pressure the matrix is dropped and read again, as with
    /// [`load_tensor_backed`](Self::load_tensor_backed).
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// # let x = gpu.zeros(&[1, 2048], lapidary::DType::F32)?;
    /// let file = lapidary::files::ModelFile::open("model-Q4_K_M.gguf")?;
    /// let up = gpu.files().load_weight_backed(&file, "blk.0.ffn_up.weight")?;
    /// let hidden = up.linear(&x, None)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`load_tensor_backed`](Self::load_tensor_backed), and those of [`Weight::new`]. For a
    /// form of fewer bits those of [`load_quantized_backed`](Self::load_quantized_backed), and
    /// [`Error::Shape`] for rows that are no whole blocks.
    #[track_caller]
    pub fn load_weight_backed(self, file: &ModelFile, name: &str) -> Result<Weight> {
        weight::load("load_weight_backed", self.gpu, file, &[name])
    }

    /// The rows of several matrices of a file as one weight, such as queries, keys and values: one
    /// product makes all. Otherwise as [`load_weight_backed`](Self::load_weight_backed). Nothing is
    /// there twice, since each read of the weight reads the parts.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// # let x = gpu.zeros(&[1, 2048], lapidary::DType::F32)?;
    /// let file = lapidary::files::ModelFile::open("model-Q8_0.gguf")?;
    /// let names = ["blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"];
    /// let both = gpu.files().load_joined_weight_backed(&file, &names)?.linear(&x, None)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`load_weight_backed`](Self::load_weight_backed). [`Error::Shape`] for matrices whose
    /// rows differ in length or in the type that they are stored in, and without a name.
    #[track_caller]
    pub fn load_joined_weight_backed(self, file: &ModelFile, names: &[&str]) -> Result<Weight> {
        weight::load("load_joined_weight_backed", self.gpu, file, names)
    }

    /// Makes all tensors of a file without values, so that impossible ones are refused before
    /// anything is read.
    #[track_caller]
    fn model_tensors(self, file: &ModelFile) -> Result<Vec<Tensor>> {
        let mut tensors = Vec::with_capacity(file.len());
        for entry in file.directory().entries() {
            tensors.push(file.tensor_for(self.gpu, entry)?);
        }
        Ok(tensors)
    }

    #[track_caller]
    fn model_tensor(self, file: &ModelFile, name: &str) -> Result<(usize, Tensor)> {
        let index = find(file.directory(), name)?;
        let tensor = file.tensor_for(self.gpu, &file.directory().entries()[index])?;
        Ok((index, tensor))
    }

    async fn load_entry(
        self,
        file: &ModelFile,
        index: usize,
        tensor: &Tensor,
        tell: &mut impl FnMut(f64),
    ) -> Result<()> {
        let (len_bytes, mut at) = (tensor.size_bytes(), 0);
        let mut part = Vec::new();
        let elements = file.elements(index, tensor.dtype());
        while at < len_bytes {
            tell(at as f64 / len_bytes as f64);
            let part_bytes = PART_BYTES.min(len_bytes - at);
            part.resize(part_bytes as usize, 0);
            elements.read(at, &mut part).await?;
            let (engine, storage) = (tensor.engine.here(), tensor.storage.here());
            engine.upload_async(&storage, at, &part).await?;
            at += part_bytes;
        }
        tell(1.0);
        if len_bytes > 0 && file.reader.is_elsewhere() {
            let source = made::source(vec![(len_bytes, elements)]);
            let (engine, storage) = (tensor.engine.here(), tensor.storage.here());
            engine.back(&storage, source).await?;
        }
        Ok(())
    }

    /// Makes an entry, from an offset on, the source of a tensor.
    fn back_entry(self, file: &ModelFile, index: usize, tensor: &Tensor, from_bytes: u64) {
        let elements = file.elements(index, tensor.dtype()).after(from_bytes);
        back_new(tensor, vec![(tensor.size_bytes(), elements)]);
    }
}
