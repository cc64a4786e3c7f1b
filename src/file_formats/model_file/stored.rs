//! How a file stores the elements of an array.

use std::fmt;

use safetensors::Dtype;

use super::block_type::BlockType;

/// How a file stores the elements of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored {
    /// One after the other.
    Plain(Dtype),
    /// In blocks with scales, as GGUF does.
    Blocks(&'static BlockType),
}

impl Stored {
    /// The bytes of an array. The error says what is wrong with the shape.
    pub(super) fn array_bytes(self, shape: &[usize]) -> Result<u64, String> {
        let too_many = || "more bytes than can be counted".to_owned();
        let count = shape
            .iter()
            .try_fold(1_u64, |count, &dim| count.checked_mul(dim as u64));
        let count = count.ok_or_else(too_many)?;
        match self {
            Stored::Plain(dtype) => {
                let bits = count.checked_mul(dtype.bitsize() as u64);
                let bits = bits.ok_or_else(too_many)?;
                match bits.is_multiple_of(8) {
                    true => Ok(bits / 8),
                    false => Err(format!("{bits} bits, which are no whole bytes")),
                }
            }
            Stored::Blocks(kind) => {
                let row = shape.last().copied().unwrap_or(1);
                if !row.is_multiple_of(kind.elements) {
                    let blocks = kind.elements;
                    return Err(format!(
                        "rows of {row}, which are no whole blocks of {blocks}"
                    ));
                }
                let blocks = count / kind.elements as u64;
                blocks.checked_mul(kind.bytes as u64).ok_or_else(too_many)
            }
        }
    }
}

/// As the format spells it: `F32`, `BF16`, `Q4_K`.
impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stored::Plain(dtype) => dtype.fmt(f),
            Stored::Blocks(kind) => f.write_str(kind.name),
        }
    }
}
