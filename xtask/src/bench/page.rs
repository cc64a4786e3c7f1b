//! The files that `bench` writes, and the page of the documentation.

use std::fs;

use crate::process::{Result, root, target_dir};

/// The folder of the pages that `--docs` writes to.
const DOCS: &str = "docs/benchmarks";

/// Writes a file among the build outputs.
pub(super) fn write(name: &str, text: &str) -> Result {
    let folder = target_dir().join("bench");
    let path = folder.join(name);
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| format!("{}: {error}.", path.display()))?;
    eprintln!("{}", path.display());
    Ok(())
}

/// Replaces the text between two marks in a page of `docs/benchmarks`.
pub(super) fn into_docs(page: &str, mark: &str, text: &str) -> Result {
    let path = root().join(DOCS).join(page);
    let explain = |error: std::io::Error| format!("{}: {error}.", path.display());
    let old = fs::read_to_string(&path).map_err(explain)?;
    let replaced = between(&old, mark, text).ok_or(format!(
        "{DOCS}/{page} has no marks `<!-- bench {mark} -->`."
    ))?;
    fs::write(&path, replaced).map_err(explain)
}

fn between(page: &str, mark: &str, text: &str) -> Option<String> {
    let (open, close) = (format!("<!-- bench {mark} -->\n"), "<!-- end -->");
    let start = page.find(&open)? + open.len();
    let end = start + page[start..].find(close)?;
    Some(format!("{}\n{text}\n{}", &page[..start], &page[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_a_page_is_replaced_again_and_again() {
        let page =
            "a\n<!-- bench table -->\nold\n<!-- end -->\nb\n<!-- bench peers -->\n<!-- end -->\n";
        let once = between(page, "table", "new").expect("the marks are there");
        assert_eq!(
            once,
            "a\n<!-- bench table -->\n\nnew\n<!-- end -->\nb\n<!-- bench peers -->\n<!-- end -->\n"
        );
        assert_eq!(between(&once, "table", "new"), Some(once));
        assert_eq!(between(page, "other", "new"), None);
    }
}
