//! Identifies a model by a number: vectors of different models cannot be compared, even if they
//! have the same width.

use lapidary::files::ModelFile;

use crate::model::Files;

/// A checksum, FNV-1a of 64 bits: the same on every system and in every build. It is no protection
/// against models that are made to have the same checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity(u64);

impl Identity {
    /// The checksum of the model's description, before any weight is read.
    pub(crate) fn described(files: Files<'_>, weights: &ModelFile) -> Identity {
        let mut identity = Identity(0xcbf2_9ce4_8422_2325);
        identity.take(files.config);
        identity.take(files.sentences.unwrap_or_default());
        identity.take(files.tokenizer);
        for tensor in weights.tensors() {
            identity.take(tensor.name.as_bytes());
            identity.take(tensor.stored.as_bytes());
            for &size in tensor.shape {
                identity.number(size as u64);
            }
            identity.number(tensor.stored_bytes);
        }
        identity
    }

    /// Adds these weights.
    pub(crate) fn with(mut self, weights: &[f32]) -> u64 {
        for weight in weights {
            self.number(weight.to_bits().into());
        }
        self.0
    }

    /// Adds bytes and their number, so that bytes cannot move between neighbouring parts unnoticed.
    fn take(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.hash(bytes);
    }

    fn number(&mut self, number: u64) {
        self.hash(&number.to_le_bytes());
    }

    fn hash(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
