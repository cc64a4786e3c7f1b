//! Text to tokens and back, as the model was trained with them.

mod gguf;

use std::path::{Path, PathBuf};

use lapidary::files::ModelFile;
use tokenizers::Tokenizer;

use crate::error::{Error, Result};

/// The tokenizer of a model: `tokenizer.json` in its folder, or the vocabulary of a GGUF file.
///
/// # Errors
///
/// [`Error::Tokenizer`] if there is none that can be read, [`Error::Vocabulary`] if it has tokens
/// that the model has not.
pub fn load(path: &Path, file: &ModelFile, vocabulary: usize) -> Result<Tokenizer> {
    let (from, tokenizer) = match gguf::is_there(file) {
        true => (path.to_owned(), gguf::tokenizer(file)),
        false => {
            let from = beside(path, "tokenizer.json");
            let tokenizer = Tokenizer::from_file(&from).map_err(|error| error.to_string());
            (from, tokenizer)
        }
    };
    let tokenizer = tokenizer.map_err(|reason| Error::Tokenizer { path: from, reason })?;
    // Tokens that were added for pictures may lie beyond the vocabulary of the text.
    let last = tokenizer
        .get_vocab(false)
        .into_values()
        .max()
        .unwrap_or_default();
    if last as usize >= vocabulary {
        return Err(Error::Vocabulary {
            token: last,
            vocabulary,
        });
    }
    Ok(tokenizer)
}

/// A file in the folder of a model.
pub fn beside(path: &Path, name: &str) -> PathBuf {
    match path.is_dir() {
        true => path.join(name),
        false => path.with_file_name(name),
    }
}
