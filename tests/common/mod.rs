//! What several test programs share: operands, views into scattered storages, the list of
//! operations and their rows.

pub(crate) mod operands;
pub(crate) mod operations;
pub(crate) mod rows;
pub(crate) mod scattered;
