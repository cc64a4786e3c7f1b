//! Vectors with their texts: searched on the device, saved to a file and loaded from it.

use lapidary::{Gpu, Tensor};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::Embedded;

/// A text that can be found, and where it stands.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Entry {
    pub text: String,
    /// The file.
    pub place: String,
    /// Its line, from 1 on.
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
}

impl Index {
    pub fn new(gpu: &Gpu, entries: Vec<Entry>, embedded: &Embedded) -> Result<Index> {
        if entries.is_empty() {
            return Err(Error::Input(
                "there are no texts to search in: name a folder that has some".into(),
            ));
        }
        let vectors = gpu.tensor(&embedded.vectors, &[entries.len(), embedded.width])?;
        Ok(Index {
            entries,
            vectors: vectors.named("vectors of texts"),
        })
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries whose vectors are closest to that of a query, best first.
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
        let (scores, which) = (scores.read::<f32>(), which.read::<u32>());
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
    use std::path::Path;

    use super::{Entry, Error, Gpu, Index, Result};

    const VECTORS: &str = "vectors";
    const ENTRIES: &str = "entries";

    impl Index {
        /// Saves it as a state of lapidary's: whole or not at all.
        pub fn save(&self, gpu: &Gpu, path: &Path) -> Result<()> {
            let entries = serde_json::to_vec(&self.entries);
            let entries = entries.map_err(|error| Error::Input(error.to_string()))?;
            let entries = gpu.tensor(&entries, &[entries.len()])?;
            gpu.save_state(path, &[(VECTORS, &self.vectors), (ENTRIES, &entries)])?;
            Ok(())
        }

        /// Loads what was saved. The vectors stay in the file until they are searched, and whenever room
        /// is short.
        pub fn load(gpu: &Gpu, path: &Path) -> Result<Index> {
            let state = gpu.load_state_backed(path)?;
            let vectors = state.get(VECTORS)?;
            let entries: Vec<u8> = state.get(ENTRIES)?.to_vec()?;
            let other = || {
                Error::file(
                    &path.display().to_string(),
                    "no index of this program. Make one: `embed index`",
                )
            };
            let entries: Vec<Entry> = serde_json::from_slice(&entries).map_err(|_| other())?;
            match vectors.shape() {
                [count, _] if *count == entries.len() => Ok(Index { entries, vectors }),
                _ => Err(other()),
            }
        }
    }
}
