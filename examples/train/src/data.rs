//! The text to learn from: sentences of documentation, one a line, and batches of it.

use std::collections::HashSet;
use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lapidary::loader::{Loader, LoaderOptions, Uploader};
use lapidary::{Gpu, Result, Tensor};

use crate::SEED;
use crate::model::CONTEXT;
use example_parts::{packages, sentences};

/// Threads that prepare batches, unless a flag says otherwise.
pub(crate) const THREADS: usize = 1;
/// Sequences of a step.
pub const BATCH: usize = 8;
/// Folders of this repository with documentation.
const OWN: [&str; 3] = ["docs", "src", "crates"];
/// Most text of one package, so that none fills the model's head.
const MOST_PACKAGE_BYTES: usize = 32 << 10;
/// One in this many sentences is held out.
const HELD_OUT: usize = 20;
/// The fewest bytes to learn from, and the fewest to be held out.
const FEWEST_BYTES: usize = 4 * CONTEXT;

/// Sentences in ASCII, one a line.
#[derive(Debug)]
pub struct Text {
    /// What a model learns from.
    pub learned: Arc<[u8]>,
    /// Never learned from.
    pub held_out: Arc<[u8]>,
}

impl Text {
    /// The documentation in a folder, or lapidary's own and that in the sources of its
    /// dependencies.
    ///
    /// # Errors
    /// If there is too little text.
    pub fn load(folder: Option<&Path>) -> std::result::Result<Text, Box<dyn Error>> {
        let mut sentences = Sentences::default();
        match folder {
            Some(folder) => sentences.take(folder, usize::MAX),
            None => {
                for own in OWN {
                    sentences.take(&root().join(own), usize::MAX);
                }
                let lock = root().join("Cargo.lock");
                for package in packages::folders(&lock)? {
                    sentences.take(&package.join("src"), MOST_PACKAGE_BYTES);
                }
            }
        }
        let (mut learned, mut held_out) = (Vec::new(), Vec::new());
        for (number, sentence) in sentences.all.iter().enumerate() {
            let part = match number % HELD_OUT {
                0 => &mut held_out,
                _ => &mut learned,
            };
            part.extend_from_slice(sentence.as_bytes());
            part.push(b'\n');
        }
        if learned.len().min(held_out.len()) < FEWEST_BYTES {
            let place = folder.unwrap_or(Path::new("the sources of lapidary and its dependencies"));
            return Err(format!(
                "{} has {} sentences, which are too few: give a `--folder` with more text in files \
                 that end in .rs, .md or .txt",
                place.display(),
                sentences.all.len(),
            )
            .into());
        }
        Ok(Text {
            learned: learned.into(),
            held_out: held_out.into(),
        })
    }
}

/// Different sentences in ASCII.
#[derive(Default)]
struct Sentences {
    all: Vec<String>,
    known: HashSet<String>,
}

impl Sentences {
    /// Takes those of a folder's files, until they have `most_bytes`.
    fn take(&mut self, folder: &Path, most_bytes: usize) {
        let mut len_bytes = 0;
        for file in files(folder) {
            let Ok(text) = std::fs::read_to_string(&file) else {
                continue;
            };
            let is_rust = file.extension().is_some_and(|extension| extension == "rs");
            let found = match is_rust {
                true => sentences::of_rust(&text),
                false => sentences::of_text(&text),
            };
            for (_, sentence) in found {
                if len_bytes >= most_bytes {
                    return;
                }
                if sentence.is_ascii() && self.known.insert(sentence.clone()) {
                    len_bytes += sentence.len();
                    self.all.push(sentence);
                }
            }
        }
    }
}

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files with text in a folder and its subfolders, in alphabetical order. Those that cannot be
/// read are left out.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            let extension = path.extension().and_then(|extension| extension.to_str());
            let has_text = matches!(extension, Some("rs" | "md" | "txt"));
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            match kind {
                Ok(kind) if kind.is_dir() && !is_hidden => folders.push(path),
                Ok(kind) if kind.is_file() && has_text => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Sequences, and the byte after each of theirs.
#[derive(Debug)]
pub struct Batch {
    /// `[sequences, CONTEXT]`
    pub seen: Tensor,
    /// `[sequences · CONTEXT]`
    pub next: Tensor,
}

impl Batch {
    /// The sequences that begin at these bytes of the text.
    fn upload(uploader: &Uploader<'_>, text: &[u8], starts: &[usize]) -> Result<Batch> {
        let windows = |shift: usize| -> Vec<u32> {
            let windows = starts.iter().map(|start| &text[start + shift..][..CONTEXT]);
            windows.flatten().map(|&byte| byte.into()).collect()
        };
        let (seen, next) = (windows(0), windows(1));
        Ok(Batch {
            seen: (uploader.tensor(&seen, &[starts.len(), CONTEXT])?).named("batch"),
            next: uploader.tensor(&next, &[next.len()])?.named("batch"),
        })
    }

    /// Equal parts of a batch.
    pub(crate) fn split(&self, parts: usize) -> Result<Vec<Batch>> {
        let [seen, next] = [&self.seen, &self.next].map(|of| of.chunk(parts, 0));
        let pairs = seen?.into_iter().zip(next?);
        Ok(pairs.map(|(seen, next)| Batch { seen, next }).collect())
    }
}

/// Which sequences come when.
#[derive(Clone, Debug)]
pub struct Order {
    /// The same seed gives the same batches.
    pub seed: u64,
    /// Batches that are left out, because a training had them before.
    pub skipped: usize,
    /// The sequences of each batch that are wanted: a part of `0..BATCH`.
    pub part: Range<usize>,
}

impl Default for Order {
    fn default() -> Self {
        Order {
            seed: SEED,
            skipped: 0,
            part: 0..BATCH,
        }
    }
}

/// Batches without end, of random sequences. Threads prepare and upload them ahead of need.
///
/// # Errors
/// As [`Gpu::loader`].
pub fn batches(gpu: &Gpu, text: &Arc<[u8]>, order: Order, threads: usize) -> Result<Loader<Batch>> {
    let (most, text) = (text.len() - CONTEXT, text.clone());
    let mut random = fastrand::Rng::with_seed(order.seed);
    let starts = std::iter::repeat_with(move || [0; BATCH].map(|_| random.usize(..most)));
    let starts = starts.skip(order.skipped);
    let starts = starts.map(move |starts| starts[order.part.clone()].to_vec());
    let options = LoaderOptions {
        threads,
        ..LoaderOptions::default()
    };
    gpu.loader(starts, options, move |uploader, starts| {
        Ok(Batch::upload(uploader, &text, &starts)?)
    })
}
