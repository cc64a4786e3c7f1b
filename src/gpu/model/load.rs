//! Loading of tensors from a model file: uploaded in pieces, or read at their first use.

use super::{LoadProgress, Model, ModelFile, find};
use crate::gpu::Gpu;
use crate::tensor::Tensor;
use lapidary_core::Result;
use lapidary_core::internal::block_on;

/// Bytes that are read, converted and uploaded at once.
const PART_BYTES: u64 = 1 << 20;

impl Gpu {
    /// Loads all tensors of a file; each gets its name (see [`Tensor::named`]). The file is read in
    /// pieces. Before each piece a function gets the progress; it may use this [`Gpu`].
    ///
    /// Tensors of an [opened](ModelFile::open) file stay [backed](Gpu::backed) by it. When memory
    /// is short, the engine drops and later rereads them; it never writes them out before they are
    /// written to. So a file larger than the device can be loaded. Bytes from the app do not back
    /// their tensors; [`load_model_backed`](Gpu::load_model_backed) does that.
    ///
    /// # Errors
    /// [`Error::Model`](crate::Error::Model) for elements of an unsupported type, for elements that
    /// do not fit, and for a file that has changed. The errors of [`tensor`](Gpu::tensor) for
    /// tensors beyond this device.
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

    /// As [`load_model`](Self::load_model), but a tensor is read at its first use, and only the
    /// bytes in use are read. So a model of any size opens at once.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model). Invalid elements, and later changes of the file, are
    /// [`Error::Source`](crate::Error::Source) of the calls that use the tensor.
    #[track_caller]
    pub fn load_model_backed(&self, file: &ModelFile) -> Result<Model> {
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
    /// As [`load_model`](Self::load_model), and
    /// [`ModelFailure::Name`](crate::failure::ModelFailure::Name) if no tensor has this name.
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

    /// One tensor of a file, read at its first use, in the way of
    /// [`load_model_backed`](Self::load_model_backed).
    ///
    /// # Errors
    /// As [`load_model_backed`](Self::load_model_backed), and
    /// [`ModelFailure::Name`](crate::failure::ModelFailure::Name) if no tensor has this name.
    #[track_caller]
    pub fn load_tensor_backed(&self, file: &ModelFile, name: &str) -> Result<Tensor> {
        let (index, tensor) = self.model_tensor(file, name)?;
        self.back_entry(file, index, &tensor, 0);
        Ok(tensor)
    }

    /// Makes all tensors of a file without values, so that impossible ones are refused before
    /// anything is read.
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
            self.engine()
                .upload_async(&tensor.storage, at, &part)
                .await?;
            at += part_bytes;
        }
        tell(1.0);
        if len_bytes > 0 && file.reader.is_on_disk() {
            let source = file.source(index, tensor.dtype(), 0);
            self.engine().back(&tensor.storage, source).await?;
        }
        Ok(())
    }

    /// Makes an entry, from an offset on, the source of a tensor.
    pub(super) fn back_entry(
        &self,
        file: &ModelFile,
        index: usize,
        tensor: &Tensor,
        from_bytes: u64,
    ) {
        if tensor.size_bytes() > 0 {
            let source = file.source(index, tensor.dtype(), from_bytes);
            self.engine().back_new(&tensor.storage, source);
        }
    }
}
