//! The precision of weights.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The precision of the layers' matrices and of the word table on the device. All arithmetic with
/// them is in single precision. So are biases, norms and positions, which are small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Half precision.
    F16,
    /// Eight bits, with a scale for each row or for `n` elements of one. The word table is in half
    /// precision, because every text reads other rows of it.
    Int8(Option<u64>),
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let group = text.strip_prefix("int8:").map(str::parse);
        match (text, group) {
            ("f32", _) => Ok(Precision::F32),
            ("f16", _) => Ok(Precision::F16),
            ("int8", _) => Ok(Precision::Int8(None)),
            (_, Some(Ok(group))) => Ok(Precision::Int8(Some(group))),
            _ => Err(Error::Input(format!(
                "weights are kept as f32, f16, int8, or int8:64 for a scale for every 64, not as {text:?}"
            ))),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Precision::F32 => f.write_str("f32"),
            Precision::F16 => f.write_str("f16"),
            Precision::Int8(None) => f.write_str("int8"),
            Precision::Int8(Some(group)) => write!(f, "int8:{group}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Precision;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["f32", "f16", "int8", "int8:64"] {
            assert_eq!(name.parse::<Precision>().unwrap().to_string(), name);
        }
        for name in ["", "int4", "int8:", "int8:many", "f16:64"] {
            let refused = name.parse::<Precision>().unwrap_err().to_string();
            assert!(
                refused.contains("int8:64") && refused.contains(name),
                "{refused}"
            );
        }
    }
}
