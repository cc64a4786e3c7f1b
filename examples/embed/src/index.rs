//! Vectors with their texts: searched on the device, saved to a file and loaded from it.

use lapidary::{Gpu, Tensor};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::Embedded;

/// A text that can be found, and its place.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Entry {
    pub text: String,
    /// The name of the file.
    pub place: String,
    /// The line in it, from 1.
    pub line: u32,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hit<'a> {
    /// The cosine of the angle between both vectors: 1 for the same.
    pub score: f32,
    #[serde(flatten)]
    pub entry: &'a Entry,
}

/// Texts and their vectors.
#[derive(Debug)]
pub struct Index {
    entries: Vec<Entry>,
    /// `[entries, width]`.
    vectors: Tensor,
    /// The model that made the vectors; saved with them.
    #[cfg_attr(
        target_arch = "wasm32",
        expect(dead_code, reason = "there are no files")
    )]
    model_id: u64,
}

impl Index {
    pub async fn new(gpu: &Gpu, entries: Vec<Entry>, embedded: &Embedded) -> Result<Index> {
        if entries.is_empty() {
            return Err(Error::Input(
                "there are no texts to search in: name a folder that has some".into(),
            ));
        }
        let shape = [entries.len(), embedded.width];
        let vectors = gpu.tensor_async(&embedded.vectors, &shape).await?;
        Ok(Index {
            entries,
            vectors: vectors.named("vectors of texts"),
            model_id: embedded.model_id,
        })
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries whose vectors are closest to the query's, best first.
    pub async fn search(&self, query: &Tensor, count: usize) -> Result<Vec<Hit<'_>>> {
        let (&[_, width], &[wanted]) = (self.vectors.shape(), query.shape()) else {
            return Err(Error::Input("a query is one vector".into()));
        };
        if width != wanted {
            return Err(Error::Input(format!(
                "the index has vectors of {width} numbers and the model makes {wanted}: it was made with \
                 another model. Index again"
            )));
        }
        let count = count.min(self.entries.len());
        let (scores, which) = self.vectors.matmul(query)?.top_k(count, 0, true)?;
        let (scores, which) = (scores.to_vec_async::<f32>(), which.to_vec_async::<u32>());
        let (scores, which) = (scores.await?, which.await?);
        let hit = |(score, at): (f32, u32)| {
            Some(Hit {
                score,
                entry: self.entries.get(at as usize)?,
            })
        };
        Ok(scores.into_iter().zip(which).filter_map(hit).collect())
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod file {
    use std::fs::{self, File};
    use std::path::Path;
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::{Entry, Error, Gpu, Index, Result};

    const VECTORS: &str = "vectors";
    const ENTRIES: &str = "entries";
    const MODEL: &str = "model";

    impl Index {
        /// Checks that an index can be saved at `path`, before the long work. Creates the folder if
        /// necessary. An existing index stays.
        pub fn prepare(path: &Path) -> Result<()> {
            let refuse = |reason: String| {
                let name = path.display().to_string();
                let reason =
                    format!("an index cannot be written here: {reason}. Name another file");
                Err(Error::file(&name, reason))
            };
            if path.metadata().is_ok_and(|about| !about.is_file()) {
                return refuse("the path is not a file".into());
            }
            let name = path.as_os_str().to_string_lossy();
            if path.file_name().is_none() || name.ends_with(std::path::is_separator) {
                return refuse("the path does not end with a file name".into());
            }
            try_folder(path).or_else(|error| refuse(error.to_string()))
        }

        /// Saves the index as a lapidary state file: whole or not at all.
        pub fn save(&self, gpu: &Gpu, path: &Path) -> Result<()> {
            let entries = serde_json::to_vec(&self.entries);
            let entries = entries.map_err(|error| Error::Input(error.to_string()))?;
            let entries = gpu.tensor(&entries, &[entries.len()])?;
            let model = self.model_id.to_le_bytes();
            let model = gpu.tensor(&model, &[model.len()])?;
            let saved = [
                (VECTORS, &self.vectors),
                (ENTRIES, &entries),
                (MODEL, &model),
            ];
            gpu.files().save_state(path, &saved)?;
            Ok(())
        }

        /// Loads a saved index, if its vectors are those of the model with this
        /// [id](crate::Model::id). The vectors stay in the file until they are searched, and
        /// whenever memory is short.
        pub fn load(gpu: &Gpu, path: &Path, model_id: u64) -> Result<Index> {
            let refuse = |reason: &str| Error::file(&path.display().to_string(), reason);
            let other =
                || refuse("no index of this version of the program. Make one: `embed index`");
            let state = gpu.files().load_state_backed(path)?;
            if [VECTORS, ENTRIES, MODEL]
                .iter()
                .any(|wanted| state.names().all(|name| name != *wanted))
            {
                return Err(other());
            }
            let vectors = state.get(VECTORS)?;
            let entries: Vec<u8> = state.get(ENTRIES)?.to_vec()?;
            let model: Vec<u8> = state.get(MODEL)?.to_vec()?;
            if model != model_id.to_le_bytes() {
                return Err(refuse(
                    "it was made with another model, whose vectors mean something else. Make one with this \
                     model: `embed index`; or name the model that it was made with: `--model`",
                ));
            }
            let entries: Vec<Entry> = serde_json::from_slice(&entries).map_err(|_| other())?;
            match vectors.shape() {
                [count, _] if *count == entries.len() => Ok(Index {
                    entries,
                    vectors,
                    model_id,
                }),
                _ => Err(other()),
            }
        }
    }

    /// Creates the folder of a file, and a file in it that is removed again: on some systems
    /// nothing else tells whether that is possible. The folder must allow it, because an index is
    /// replaced, not overwritten.
    fn try_folder(path: &Path) -> std::io::Result<()> {
        let target = match path.is_symlink() {
            true => path.canonicalize()?,
            false => path.to_owned(),
        };
        let folder = match target.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        fs::create_dir_all(folder)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        let tried = folder.join(format!(".embed-{}-{now}.tmp", std::process::id()));
        File::create_new(&tried)?;
        fs::remove_file(&tried)
    }
}
