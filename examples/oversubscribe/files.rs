//! The file of weights, and how fast this machine writes and reads such a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::chain::WEIGHT_BYTES;

/// A file in a new temporary folder; both are removed on drop.
pub(crate) struct Weights {
    folder: PathBuf,
    path: PathBuf,
}

impl Weights {
    pub(crate) fn write(bytes: &[u8]) -> io::Result<Weights> {
        let name = format!("lapidary-oversubscribe-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)?;
        let path = folder.join("weights.bin");
        let weights = Weights { folder, path };
        File::create(&weights.path)?.write_all(bytes)?;
        Ok(weights)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Bytes a second, one weight after the other, by one otherwise idle thread.
#[derive(Clone, Copy)]
pub(crate) struct Rates {
    /// From one place in the host's memory to another.
    pub(crate) copy: f64,
    /// From the file. The system may have it in memory, here and in the runs.
    pub(crate) read: f64,
    /// To the file, over its contents.
    pub(crate) write: f64,
}

impl Rates {
    /// The best of three for each. The file holds `bytes`, before and after.
    pub(crate) fn measure(weights: &Weights, bytes: &[u8]) -> io::Result<Rates> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&weights.path)?;
        let mut weight = vec![0; WEIGHT_BYTES as usize];
        let mut rates = Rates {
            copy: 0.0,
            read: 0.0,
            write: 0.0,
        };
        for _ in 0..3 {
            let start = Instant::now();
            for piece in bytes.chunks_exact(weight.len()) {
                weight.copy_from_slice(piece);
                std::hint::black_box(&mut weight);
            }
            rates.copy = rates.copy.max(rate(bytes, start));
            file.rewind()?;
            let start = Instant::now();
            for _ in bytes.chunks_exact(weight.len()) {
                file.read_exact(&mut weight)?;
            }
            rates.read = rates.read.max(rate(bytes, start));
            file.rewind()?;
            let start = Instant::now();
            for piece in bytes.chunks_exact(weight.len()) {
                file.write_all(piece)?;
            }
            rates.write = rates.write.max(rate(bytes, start));
        }
        Ok(rates)
    }
}

fn rate(bytes: &[u8], start: Instant) -> f64 {
    bytes.len() as f64 / start.elapsed().as_secs_f64().max(1e-9)
}
