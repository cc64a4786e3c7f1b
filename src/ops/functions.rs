//! WGSL functions that kernels of several families call. A kernel's text contains only those that
//! it calls.

use lapidary_core::internal::sections::{names, push_sections};

const WGSL: &str = include_str!("../../shaders/functions.wgsl");

/// Appends the functions that `out` calls but does not define, and those that they call.
pub(crate) fn push_functions(out: &mut String) {
    let mut left: Vec<&str> = names(WGSL).collect();
    left.retain(|name| !out.contains(&format!("fn {name}(")));
    while let Some(index) = left.iter().position(|name| calls(out, name)) {
        push_sections(out, WGSL, &[left.swap_remove(index)]);
    }
}

fn calls(text: &str, name: &str) -> bool {
    text.contains(&format!("{name}("))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_comes_with_what_it_calls_and_once() {
        let mut out = String::from("fn op(x: A) -> Y { return sigmoid_of(x) + exp_of(x); }\n");
        push_functions(&mut out);
        for name in ["sigmoid_of", "exp_of", "is_nan"] {
            assert_eq!(out.matches(&format!("fn {name}(")).count(), 1, "{out}");
        }
        assert_eq!(out.matches("fn ").count(), 4, "{out}");
    }
}
