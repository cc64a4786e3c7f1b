//! Types of elements that GGUF stores in blocks.

use crate::file_formats::BlockFormat;

/// A type of blocks.
#[derive(Debug)]
pub(crate) struct BlockType {
    /// The name in ggml.
    pub(crate) name: &'static str,
    /// Elements of a block.
    pub(super) elements: usize,
    /// Bytes of a block.
    pub(super) bytes: usize,
    /// `None`: files may have this type, and it is not loaded.
    pub(crate) format: Option<BlockFormat>,
}

/// The most elements of a block.
pub(super) const MOST_ELEMENTS: usize = 256;

/// The types by the numbers that a file has for them.
static TYPES: &[(u32, BlockType)] = &[
    (2, loaded(BlockFormat::Q4_0)),
    (3, loaded(BlockFormat::Q4_1)),
    (6, loaded(BlockFormat::Q5_0)),
    (7, loaded(BlockFormat::Q5_1)),
    (8, loaded(BlockFormat::Q8_0)),
    (10, listed("Q2_K", 256, 84)),
    (11, listed("Q3_K", 256, 110)),
    (12, loaded(BlockFormat::Q4K)),
    (13, loaded(BlockFormat::Q5K)),
    (14, loaded(BlockFormat::Q6K)),
    (15, listed("Q8_K", 256, 292)),
    (16, listed("IQ2_XXS", 256, 66)),
    (17, listed("IQ2_XS", 256, 74)),
    (18, listed("IQ3_XXS", 256, 98)),
    (19, listed("IQ1_S", 256, 50)),
    (20, listed("IQ4_NL", 32, 18)),
    (21, listed("IQ3_S", 256, 110)),
    (22, listed("IQ2_S", 256, 82)),
    (23, listed("IQ4_XS", 256, 136)),
    (29, listed("IQ1_M", 256, 56)),
    (34, listed("TQ1_0", 256, 54)),
    (35, listed("TQ2_0", 256, 66)),
    (39, listed("MXFP4", 32, 17)),
    (40, listed("NVFP4", 64, 36)),
    (41, listed("Q1_0", 128, 18)),
];

const fn listed(name: &'static str, elements: usize, bytes: usize) -> BlockType {
    BlockType {
        name,
        elements,
        bytes,
        format: None,
    }
}

const fn loaded(format: BlockFormat) -> BlockType {
    BlockType {
        format: Some(format),
        ..listed(format.name(), format.block_len(), format.block_bytes())
    }
}

impl BlockType {
    /// The type that has this number in a file.
    pub(super) fn of_number(number: u32) -> Option<&'static BlockType> {
        let found = TYPES.iter().find(|(of, _)| *of == number);
        found.map(|(_, kind)| kind)
    }
}
