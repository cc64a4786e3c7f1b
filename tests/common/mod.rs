//! What several test programs share: operands, views into scattered storages, the list of
//! operations.

pub(crate) mod operands;
pub(crate) mod operations;
pub(crate) mod scattered;
