//! Text to tokens and back, as the model was trained with them.

mod gguf;

use std::path::{Path, PathBuf};

use lapidary::files::ModelFile;
use tokenizers::Tokenizer;

use crate::error::{Error, Result};

/// The bytes of a file in the folder of a model, if it is there.
pub type Beside<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// The tokenizer of a model: `tokenizer.json` in its folder, or the vocabulary of a GGUF file.
///
/// # Errors
///
/// [`Error::Tokenizer`] if there is none that can be read, [`Error::Vocabulary`] if it has tokens
/// that the model has not.
pub fn load(
    path: &Path,
    file: &ModelFile,
    beside: Beside<'_>,
    vocabulary: usize,
) -> Result<Tokenizer> {
    let tokenizer = match gguf::is_there(file) {
        true => gguf::tokenizer(file),
        false => match beside("tokenizer.json") {
            Some(bytes) => Tokenizer::from_bytes(bytes).map_err(|error| error.to_string()),
            None => Err("there is no `tokenizer.json` beside it".into()),
        },
    };
    let tokenizer = tokenizer.map_err(|reason| Error::Tokenizer {
        path: path.to_owned(),
        reason,
    })?;
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
