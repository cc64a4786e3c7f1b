//! A frame: at most 1 MiB of a block, with a header that names its owner, and checksums for both.
//!
//! ```text
//!    0 magic "LAPSPILL"   8 version u16   10 codec u16   12 stored bytes u32
//!   16 share u64        24 generation u64
//!   32 block bytes u64   40 start in the block, bytes u64
//!   48 raw bytes u32     52 zero u32      56 checksum of stored bytes   60 checksum of the above
//!   64 the stored bytes …
//! ```
//!
//! All fields are little-endian. The reader has every field in memory and compares it. So it never
//! accepts a frame of another share or block, or of an earlier block at the same place. The
//! checksums are CRC-32, which finds every change within 32 consecutive bits.

use std::borrow::Cow;

use super::room::FileRange;
use crate::units::MIB;

/// The size of a header.
pub(super) const HEADER_BYTES: u64 = 64;

/// The most bytes of a frame, including its header. Frames are whole pages, and small enough that
/// the caches still hold a frame when it is checked.
pub(super) const FRAME_BYTES: u64 = MIB;

const MAGIC: [u8; 8] = *b"LAPSPILL";
const VERSION: u16 = 1;
const CHECKED_BYTES: usize = HEADER_BYTES as usize - 4;

/// The encoding of a frame's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Raw = 0,
    #[cfg(feature = "lz4")]
    Lz4 = 1,
}

/// The fields of a frame's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) share: u64,
    pub(super) generation: u64,
    pub(super) block_bytes: u64,
    /// The start of the frame in the block.
    pub(super) start_bytes: u64,
    pub(super) raw_bytes: u32,
    pub(super) stored_bytes: u32,
    pub(super) codec: Codec,
    /// The checksum of the stored bytes.
    pub(super) checksum: u32,
}

/// A part of a block, and its place in the file.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) piece: FileRange,
    pub(super) header: Header,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(self.codec as u16).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.share.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.block_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.start_bytes.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.raw_bytes.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The end of the frame in the block.
    pub(super) fn end_bytes(&self) -> u64 {
        self.start_bytes + u64::from(self.raw_bytes)
    }

    /// Checks that `frame`, header and stored bytes, is the frame of this header. Returns the
    /// stored bytes, or what is wrong.
    pub(super) fn check<'a>(&self, frame: &'a [u8]) -> Result<&'a [u8], &'static str> {
        let whole = HEADER_BYTES as usize + self.stored_bytes as usize;
        if frame.len() < whole {
            return Err("the frame is cut off");
        }
        let (header, stored) = frame[..whole].split_at(HEADER_BYTES as usize);
        let expected = self.encode();
        if header != expected {
            let sound = crc32fast::hash(&header[..CHECKED_BYTES]).to_le_bytes();
            let differs = |range: std::ops::Range<usize>| header[range.clone()] != expected[range];
            return Err(match () {
                () if differs(0..8) => "it does not begin as a frame does",
                () if header[CHECKED_BYTES..] != sound => "the header's checksum is wrong",
                () if differs(16..24) => "the frame is another share's",
                () if differs(24..32) => "the frame is another block's",
                () => "the header is not the one that was written",
            });
        }
        if crc32fast::hash(stored) != self.checksum {
            return Err("the checksum of the bytes is wrong");
        }
        Ok(stored)
    }

    /// Decodes stored bytes that were checked.
    pub(super) fn unpack<'a>(&self, stored: &'a [u8]) -> Result<Cow<'a, [u8]>, &'static str> {
        match self.codec {
            Codec::Raw => Ok(Cow::Borrowed(stored)),
            #[cfg(feature = "lz4")]
            Codec::Lz4 => lz4_flex::block::decompress(stored, self.raw_bytes as usize)
                .map(Cow::Owned)
                .map_err(|_| "it cannot be decompressed"),
        }
    }

    /// Chooses the form to store: the packed one if it saves an eighth.
    #[cfg(feature = "lz4")]
    pub(super) fn choose<'a>(&mut self, raw: &'a [u8], packed: &'a [u8]) -> &'a [u8] {
        let (codec, stored) = match packed.len() < raw.len() / 8 * 7 {
            true => (Codec::Lz4, packed),
            false => (Codec::Raw, raw),
        };
        self.codec = codec;
        self.stored_bytes = stored.len() as u32;
        stored
    }
}

/// The frames of a block of `block_bytes` in these pieces, in order.
pub(super) fn plan(
    pieces: Vec<FileRange>,
    block_bytes: u64,
    share: u64,
    generation: u64,
) -> Vec<Frame> {
    let mut start_bytes = 0;
    let frame = |piece: FileRange| {
        let room_bytes = (piece.size_bytes - HEADER_BYTES).min(FRAME_BYTES);
        let raw_bytes = room_bytes.min(block_bytes - start_bytes) as u32;
        let header = Header {
            share,
            generation,
            block_bytes,
            start_bytes,
            raw_bytes,
            stored_bytes: raw_bytes,
            codec: Codec::Raw,
            checksum: 0,
        };
        start_bytes += u64::from(raw_bytes);
        Frame { piece, header }
    };
    let frames: Vec<Frame> = pieces.into_iter().map(frame).collect();
    debug_assert_eq!(
        start_bytes, block_bytes,
        "the pieces were taken for this block"
    );
    frames
}
