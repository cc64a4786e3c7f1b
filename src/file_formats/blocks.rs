//! Formats of blocks: some bits for each element, with scales for a block. They are ggml's
//! (`ggml-quants.c` of llama.cpp).

#[cfg(any(test, feature = "sim", feature = "model-files"))]
mod decode;
#[cfg(feature = "model-files")]
mod encode;

/// A format of blocks that kernels read: see [`Weight`](crate::operations::Weight).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockFormat {
    /// Four bits and a scale for 32 elements.
    Q4_0,
    /// Four bits, a scale and a minimum for 32 elements.
    Q4_1,
    /// Five bits and a scale for 32 elements.
    Q5_0,
    /// Five bits, a scale and a minimum for 32 elements.
    Q5_1,
    /// Eight bits and a scale for 32 elements.
    Q8_0,
    /// `Q4_K`: four bits; a scale and a minimum of six bits each for 32 elements, 256 a block.
    Q4K,
    /// `Q5_K`: as [`Q4K`](Self::Q4K), with five bits.
    Q5K,
    /// `Q6_K`: six bits; a scale of eight bits for 16 elements, 256 a block.
    Q6K,
}

impl BlockFormat {
    /// All formats, in the order of their codes.
    pub const ALL: [BlockFormat; 8] = [
        BlockFormat::Q4_0,
        BlockFormat::Q4_1,
        BlockFormat::Q5_0,
        BlockFormat::Q5_1,
        BlockFormat::Q8_0,
        BlockFormat::Q4K,
        BlockFormat::Q5K,
        BlockFormat::Q6K,
    ];

    /// The name in ggml.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Elements of a block.
    pub const fn block_len(self) -> usize {
        self.row().1
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.row().2
    }

    /// The stored number that means zero; 0 if each block says it, or if numbers are signed.
    pub(crate) const fn zero(self) -> u32 {
        self.row().3
    }

    /// Name, elements and bytes of a block, and zero.
    const fn row(self) -> (&'static str, usize, usize, u32) {
        match self {
            BlockFormat::Q4_0 => ("Q4_0", 32, 18, 8),
            BlockFormat::Q4_1 => ("Q4_1", 32, 20, 0),
            BlockFormat::Q5_0 => ("Q5_0", 32, 22, 16),
            BlockFormat::Q5_1 => ("Q5_1", 32, 24, 0),
            BlockFormat::Q8_0 => ("Q8_0", 32, 34, 0),
            BlockFormat::Q4K => ("Q4_K", 256, 144, 0),
            BlockFormat::Q5K => ("Q5_K", 256, 176, 0),
            BlockFormat::Q6K => ("Q6_K", 256, 210, 32),
        }
    }

    /// Writes the elements of a block of these bytes.
    #[cfg(any(test, feature = "sim", feature = "model-files"))]
    pub(crate) fn decode(self, block: &[u8], into: &mut [f32]) {
        decode::decode(self, block, into);
    }

    /// Appends the block of these elements. `None` for a format that lapidary only reads.
    #[cfg(feature = "model-files")]
    pub(crate) fn encode(self, elements: &[f32], into: &mut Vec<u8>) -> Option<()> {
        encode::encode(self, elements, into)
    }
}
