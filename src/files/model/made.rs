//! Bytes of tensors, made from those of a file: at once, or after those of the file were awaited.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::file_formats::{ModelReader, StoredArray};
use lapidary_core::internal::block_on;
use lapidary_core::{Result, Source};

/// Fills a slice with made bytes from an offset on.
type Make = dyn Fn(&StoredArray<'_>, u64, &mut [u8]) -> Result<()> + Send + Sync;

/// Bytes that are made from an array of a file.
#[derive(Clone)]
pub(super) struct Made {
    reader: Arc<ModelReader>,
    index: usize,
    /// So many bytes of the array become so many made bytes, from any multiple on.
    unit_bytes: [u64; 2],
    /// The made bytes before these.
    skipped_bytes: u64,
    make: Arc<Make>,
}

impl Made {
    pub(super) fn new<F>(
        reader: &Arc<ModelReader>,
        index: usize,
        unit_bytes: [u64; 2],
        make: F,
    ) -> Made
    where
        F: Fn(&StoredArray<'_>, u64, &mut [u8]) -> Result<()> + Send + Sync + 'static,
    {
        Made {
            reader: reader.clone(),
            index,
            unit_bytes,
            skipped_bytes: 0,
            make: Arc::new(make),
        }
    }

    /// The same bytes, from an offset on.
    pub(super) fn after(self, skipped_bytes: u64) -> Made {
        Made {
            skipped_bytes,
            ..self
        }
    }

    /// Other bytes, which are made of these. So many bytes of the array become so many of them.
    pub(super) fn then<F>(&self, unit_bytes: [u64; 2], then: F) -> Made
    where
        F: Fn(&dyn Fn(u64, &mut [u8]) -> Result<()>, u64, &mut [u8]) -> Result<()>,
        F: Send + Sync + 'static,
    {
        let (make, skipped_bytes) = (self.make.clone(), self.skipped_bytes);
        Made::new(
            &self.reader,
            self.index,
            unit_bytes,
            move |array, at, bytes| {
                then(
                    &|at, bytes| make(array, skipped_bytes + at, bytes),
                    at,
                    bytes,
                )
            },
        )
    }

    /// The bytes of the array that these need.
    fn stored(&self, offset_bytes: u64, len_bytes: u64) -> Range<u64> {
        let [stored, made] = self.unit_bytes;
        let first = offset_bytes / made.max(1);
        let end = (offset_bytes + len_bytes).div_ceil(made.max(1));
        first * stored..end * stored
    }

    /// Fills a slice from an offset on.
    pub(super) async fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<()> {
        let at = self.skipped_bytes + offset_bytes;
        let stored = self.stored(at, bytes.len() as u64);
        let fetched = self.reader.fetch(self.index, stored).await?;
        (self.make)(&self.reader.array(self.index, &fetched), at, bytes)
    }
}

/// A source of the bytes of several, so many of each, one after the other.
pub(super) fn source(parts: Vec<(u64, Made)>) -> Source {
    let comes_later = parts.iter().any(|(_, made)| made.reader.comes_later());
    let parts: Arc<[(u64, Made)]> = parts.into();
    if !comes_later {
        return Source::reader(move |offset_bytes, bytes| {
            // It has nothing to wait for.
            let filled = block_on("a source", fill(&parts, offset_bytes, bytes));
            filled.map_err(io::Error::other)
        });
    }
    Source::reader_async(move |offset_bytes, len_bytes| {
        let parts = parts.clone();
        async move {
            let mut bytes = vec![0; len_bytes as usize];
            let filled = fill(&parts, offset_bytes, &mut bytes).await;
            filled.map_err(io::Error::other).map(|()| bytes)
        }
    })
}

async fn fill(parts: &[(u64, Made)], mut offset_bytes: u64, mut bytes: &mut [u8]) -> Result<()> {
    for (len_bytes, made) in parts {
        if offset_bytes >= *len_bytes {
            offset_bytes -= len_bytes;
            continue;
        }
        if bytes.is_empty() {
            break;
        }
        let count = (len_bytes - offset_bytes).min(bytes.len() as u64) as usize;
        let (of_part, rest) = bytes.split_at_mut(count);
        made.read(offset_bytes, of_part).await?;
        (bytes, offset_bytes) = (rest, 0);
    }
    Ok(())
}
