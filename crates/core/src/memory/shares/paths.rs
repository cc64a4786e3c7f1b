//! The numbers of the paths of shares. Tags carry them, so they stay given when a share ends.
//!
//! They are no part of the table of shares. A promise copies the table, and there may be as many
//! paths as there were jobs.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::share::ShareHandle;

/// Most paths with a number. Reports group what is made under further ones by their lines only.
const MOST_PATHS: usize = 1 << 16;

/// The numbers of all paths so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharePaths(FxHashMap<Arc<str>, u32>);

impl SharePaths {
    /// The path of a share of this name, and its number. 0 if no number is left.
    pub(crate) fn numbered(
        &mut self,
        name: &str,
        around: Option<&Arc<ShareHandle>>,
    ) -> (Arc<str>, u32) {
        let path: Arc<str> = match around {
            Some(around) => format!("{}/{name}", around.path()).into(),
            None => name.into(),
        };
        let next = self.0.len() as u32 + 1;
        match self.0.get(&path) {
            Some(&number) => (path, number),
            None if self.0.len() >= MOST_PATHS => (path, 0),
            None => {
                self.0.insert(path.clone(), next);
                (path, next)
            }
        }
    }
}
