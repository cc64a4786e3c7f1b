//! The lists of operations are complete: a new method must be added to them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::operations;

/// Methods that are no operations.
const NO_OPERATIONS: &[&str] = &[
    // Properties of a tensor.
    "shape",
    "strides",
    "rank",
    "len",
    "is_empty",
    "dtype",
    "size_bytes",
    "tag",
    "named",
    "residency",
    "version",
    "is_contiguous",
    "buffer",
    "shares_storage_with",
    // Transfers and residency; the device's tests cover them.
    "to_vec_async",
    "to_vec",
    "read_into",
    "read_with",
    "item",
    "write",
    "force",
    "evict",
    "prefetch",
    "advise",
    "pin",
    "recompute_with",
    "backed_by",
    "to_array_async",
    "to_array",
    "lend_to",
    "to",
    "to_async",
    // Gradients; `tests/grad` covers them.
    "backprop",
    "backward",
    "detach",
    "has_grad",
    "on_gradient",
    "requires_grad",
];

/// Operations that read no elements, so the tests of views need not run them.
const ELSEWHERE: &[&str] = &[
    // Views; the tests of layouts cover them.
    "view_as",
    "permute",
    "transpose",
    "t",
    "slice",
    "narrow",
    "select",
    "squeeze",
    "squeeze_axis",
    "unsqueeze",
    "flip",
    "broadcast_to",
    // New tensors that take only the shape and the type from another one.
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "rand_uniform_like",
    "rand_normal_like",
];

/// Calls of macros that write methods, but for the rows of tables: these are in the list, and on
/// the pages, because they are rows. Each line begins with their names.
const TABLES: &[&str] = &[
    "reductions! {",
    "trios! {",
    "pools! {",
    "adaptive_pools! {",
    "pools_with_indices! {",
];

/// The names of public methods in `impl Tensor` blocks, including those that macros write.
fn methods() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the sources") {
            let path = entry.expect("the sources").path();
            match path.is_dir() {
                true => folders.push(path),
                false => texts.push(std::fs::read_to_string(path).expect("a source")),
            }
        }
    }
    for text in texts.iter().filter(|text| text.contains("impl Tensor {")) {
        // The block that contains the line.
        let mut block = "";
        for line in text.lines() {
            if line.starts_with(|c: char| !c.is_whitespace()) {
                block = line;
            }
            let Some(line) = line.strip_prefix("    ") else {
                continue;
            };
            if block.starts_with("impl Tensor {") {
                let method = line.strip_prefix("pub fn ");
                let name = method.and_then(|rest| rest.split(['(', '<']).next());
                found.extend(name.map(str::to_string));
            } else if TABLES.contains(&block) {
                let is_name = |word: &&str| {
                    word.starts_with(|c: char| c.is_ascii_lowercase())
                        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                };
                let names = line.split(' ').take_while(is_name);
                found.extend(names.map(str::to_string));
            }
        }
    }
    found
}

/// The names of methods that are operations.
fn operations() -> impl Iterator<Item = String> {
    let methods = methods();
    assert!(methods.len() > 250, "the methods were not found");
    let is_operation = |name: &String| !NO_OPERATIONS.contains(&name.as_str());
    methods.into_iter().filter(is_operation)
}

#[test]
fn every_method_of_a_tensor_that_computes_is_in_the_list() {
    let listed: BTreeSet<&str> = operations::all().map(|one| one.method()).collect();
    let is_known = |name: &str| listed.contains(name) || ELSEWHERE.contains(&name);
    let missing: Vec<String> = operations().filter(|name| !is_known(name)).collect();
    assert!(
        missing.is_empty(),
        "tests/common/operations has no call of {missing:?}"
    );
}

#[test]
fn every_operation_is_on_a_page_of_its_family() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/operations");
    let pages = std::fs::read_dir(folder).expect("the pages");
    let pages: String = pages
        .map(|page| std::fs::read_to_string(page.expect("a page").path()).expect("a text"))
        .collect();
    let is_listed = |name: &String| pages.contains(&format!("(crate::Tensor::{name})"));
    let missing: Vec<String> = operations().filter(|name| !is_listed(name)).collect();
    assert!(missing.is_empty(), "src/operations lists no {missing:?}");
}
