//! Reads whose bytes a caller may see where they arrive, without a copy.

use std::sync::Arc;

use crate::engine::handle::Engine;
use crate::engine::read;
use crate::error::Result;
use crate::memory::Storage;
use crate::transfer::{Piece, ReadingGuard, Sink, refusal};

/// A read that was appended to the queue.
#[derive(Debug)]
pub(crate) struct SeenRead {
    engine: Arc<Engine>,
    src: Arc<Storage>,
    reading: ReadingGuard,
    /// All bytes arrive in one read-back buffer, and a caller may look at them there.
    is_shown: bool,
}

impl SeenRead {
    /// Appends a read of bytes (any offset and length). They go to `sink`, unless they are
    /// [seen](Self::see) before.
    #[track_caller]
    pub(crate) fn begin(
        engine: &Arc<Engine>,
        src: &Arc<Storage>,
        whole: Piece,
        sink: Sink,
    ) -> Result<Self> {
        engine.check_has_values()?;
        let (_, size_bytes) = whole.words();
        let is_shown = !engine.caps().maps_slabs && engine.readbacks.may_show(size_bytes);
        let piece_bytes = match is_shown {
            true => size_bytes,
            false => engine.readbacks.piece_bytes(),
        };
        let reading = read::begin_read(engine, src, whole, piece_bytes, sink)?;
        Ok(SeenRead {
            engine: engine.clone(),
            src: src.clone(),
            reading,
            is_shown,
        })
    }

    /// Waits for the bytes, and shows them to `look` with no lock held. `false` if the sink got
    /// them.
    pub(crate) async fn see(self, look: &mut impl FnMut(&[u8])) -> Result<bool> {
        let (engine, src, reading) = (&self.engine, &self.src, &self.reading);
        if !self.is_shown {
            read::finish_read(engine, src, reading).await?;
            return Ok(false);
        }
        // The bytes stay in the read-back buffer in which they arrive.
        read::submit_read(engine, src, reading, false).await?;
        let shown = engine.readbacks.show(reading, look).await;
        engine.check_lost()?;
        let is_shown = shown.map_err(|error| refusal("a read", error))?;
        if !is_shown {
            read::take_in(engine, reading).await?;
        }
        Ok(is_shown)
    }
}
