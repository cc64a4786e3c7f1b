//! The rows of the tables of operations, by the names of their methods.

use lapidary::internal::{BINARY_ROWS, BinaryRow, UNARY_ROWS, UnaryRow};

/// The row of a method on one tensor, which may write in place.
pub(crate) fn unary(method: &str) -> &'static UnaryRow {
    let name = method.trim_end_matches('_');
    let row = UNARY_ROWS.iter().find(|row| row.name == name);
    row.unwrap_or_else(|| panic!("{method} has no row"))
}

/// The row of a method on two tensors, or on a tensor and a number.
pub(crate) fn binary(method: &str) -> &'static BinaryRow {
    let name = method.trim_end_matches(", a number");
    let name = name.trim_end_matches('_');
    let row = BINARY_ROWS.iter().find(|row| row.name == name);
    row.unwrap_or_else(|| panic!("{method} has no row"))
}
