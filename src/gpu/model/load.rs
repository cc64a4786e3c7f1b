//! Tensors of a model's file on a device: uploaded in pieces, or read when somebody uses them.

use super::{LoadProgress, Model, ModelFile, find};
use crate::gpu::Gpu;
use crate::tensor::Tensor;
use lapidary_core::Result;
use lapidary_core::internal::block_on;

/// So much is read, converted and handed on at once.
const PART_BYTES: u64 = 1 << 20;

impl Gpu {
    /// Loads all tensors of a file; each gets its name (see [`Tensor::named`]). The file is read in
    /// pieces, and before each of them a function hears how far it is; it may use this [`Gpu`].
    ///
    /// They stay [backed](Gpu::backed) by a file that was [opened](ModelFile::open): when memory is
    /// short they are dropped and read again, and never written out, until they are written to. So
    /// a file larger than the device can be loaded. Bytes that the app gave are not kept for that:
    /// [`load_model_backed`](Gpu::load_model_backed) keeps them.
    ///
    /// # Errors
    /// [`Error::Model`](crate::Error::Model) for elements of a type that is not supported and for
    /// those that do not fit, and for a file that is no longer as it was; what
    /// [`tensor`](Gpu::tensor) says, for tensors beyond this device.
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

    /// As [`load_model`](Self::load_model), but nothing is read before somebody uses it, and then
    /// no more than what is used. So a model opens at once, whatever its size.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model); what is wrong with the elements, and what becomes of
    /// the file later, is [`Error::Source`](crate::Error::Source) for whoever uses the tensor.
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

    /// Loads one tensor of a file, as [`load_model`](Self::load_model) does all.
    ///
    /// # Errors
    /// As [`load_model`](Self::load_model), and [`ModelFailure::Name`](crate::ModelFailure::Name)
    /// if there is none of this name.
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

    /// One tensor of a file, read when somebody uses it, as
    /// [`load_model_backed`](Self::load_model_backed) does with all.
    ///
    /// # Errors
    /// As [`load_model_backed`](Self::load_model_backed), and
    /// [`ModelFailure::Name`](crate::ModelFailure::Name) if there is none of this name.
    #[track_caller]
    pub fn load_tensor_backed(&self, file: &ModelFile, name: &str) -> Result<Tensor> {
        let (index, tensor) = self.model_tensor(file, name)?;
        self.back_entry(file, index, &tensor, 0);
        Ok(tensor)
    }

    /// All tensors of a file without a value, so that what cannot be is known before anything is
    /// read.
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

    /// Lets an entry, from an offset on, be where the elements of a tensor come from.
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
