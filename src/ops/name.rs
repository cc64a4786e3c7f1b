//! The names of operations in errors and findings.

use lapidary_core::internal::{Launch, Program};

use super::families::family_of;
use super::readers::reader_of;

/// What a launch computes, in the caller's terms.
pub(crate) fn name_of(launch: &Launch) -> String {
    let Program::Builtin(kernel) = &launch.program else {
        return launch.program.name().to_owned();
    };
    if let Some((element, _)) = family_of(kernel) {
        return (element.section)(&launch.variant()).to_owned();
    }
    let reader = reader_of(kernel);
    reader.map_or(kernel.name.to_owned(), |reader| {
        (reader.name)(launch.code).to_string()
    })
}
