//! What several test programs share: operands, views into scattered storages, the list of
//! operations.

pub(crate) mod operands;
#[cfg(feature = "sim")]
pub(crate) mod operations;
#[cfg(feature = "sim")]
pub(crate) mod scattered;
