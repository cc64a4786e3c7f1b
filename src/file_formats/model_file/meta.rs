//! Values of a model file's metadata.

/// A value of a model file's metadata. Those of safetensors are texts, those of GGUF have types.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetaValue {
    /// A truth.
    Bool(bool),
    /// A number that is not negative, of 8 to 64 bits.
    Unsigned(u64),
    /// A number with a sign, of 8 to 64 bits.
    Signed(i64),
    /// A float of 32 or 64 bits.
    Float(f64),
    /// A text.
    Text(String),
    /// Values of one type, such as the words of a vocabulary.
    List(Vec<MetaValue>),
}

impl MetaValue {
    /// The truth, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            MetaValue::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if it is an integer from 0 on.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            MetaValue::Unsigned(value) => Some(*value),
            MetaValue::Signed(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// The number, if it is an integer of 64 bits with a sign.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            MetaValue::Unsigned(value) => i64::try_from(*value).ok(),
            MetaValue::Signed(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if it is one. Large integers are rounded.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            MetaValue::Unsigned(value) => Some(*value as f64),
            MetaValue::Signed(value) => Some(*value as f64),
            MetaValue::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            MetaValue::Text(value) => Some(value),
            _ => None,
        }
    }

    /// The values, if it is a list.
    pub fn as_list(&self) -> Option<&[MetaValue]> {
        match self {
            MetaValue::List(values) => Some(values),
            _ => None,
        }
    }
}
