//! Links between pages of Markdown, and the pages that list all operations.

use std::collections::BTreeSet;

use crate::source::Source;

/// Every link to a file of the repository has a target, and every link to a heading too.
///
/// `paths` are all files of the repository. A page that rustdoc renders has no links to files:
/// the reader's browser would not find them.
pub(crate) fn check_targets(files: &[Source], paths: &[String]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
        let is_rendered = file.path.starts_with("src/");
        for (offset, target) in targets(&file.text) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            if path.contains("://") || path.contains("::") {
                continue;
            }
            if is_rendered && !path.is_empty() {
                offences.push(file.offence(offset, "rustdoc renders this page: link to an item"));
                continue;
            }
            let path = match path {
                "" => file.path.clone(),
                relative => joined(&file.path, relative),
            };
            let is_folder = || paths.iter().any(|one| one.starts_with(&format!("{path}/")));
            if !paths.contains(&path) && !is_folder() {
                offences.push(file.offence(offset, &format!("there is no {path}")));
                continue;
            }
            let page = files.iter().find(|page| page.path == path);
            if let Some(page) = page.filter(|_| !heading.is_empty() && !is_rendered) {
                if !headings(&page.text).contains(heading) {
                    offences.push(file.offence(offset, &format!("{path} has no #{heading}")));
                }
            }
        }
    }
    offences
}

/// The targets of a page's links and pictures, with their offsets. Code is no text.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut is_code, mut start) = (Vec::new(), false, 0);
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        for (opening, closing) in [
            ("](", ')'),
            ("]: ", '\n'),
            ("src=\"", '"'),
            ("srcset=\"", '"'),
        ] {
            // A definition stands at the beginning of a line.
            let is_possible = !is_code && (opening != "]: " || line.starts_with('['));
            let places = line.match_indices(opening).filter(|_| is_possible);
            for (place, _) in places {
                let rest = &line[place + opening.len()..];
                let target = rest.split(closing).next().unwrap_or_default();
                found.push((start + place, target.trim()));
            }
        }
        start += line.len();
    }
    found
}

/// The path that a page means by a relative one.
fn joined(page: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The names by which links reach a page's headings: lower case, hyphens for spaces, no signs.
fn headings(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| {
        let title = line.trim_start_matches('#').strip_prefix(' ')?;
        line.starts_with('#').then_some(title.trim())
    });
    let name = |title: &str| -> String {
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c })
            .flat_map(char::to_lowercase)
            .collect()
    };
    headings.map(name).collect()
}

#[test]
fn a_link_without_a_target_is_found() {
    let page = |path: &str, text: &str| Source::new(path, text);
    let other = page("docs/b.md", "# All of `it`, now\n");
    let paths = ["docs/a.md", "docs/b.md", "src/x.rs"].map(str::to_owned);
    let found = |path: &str, text: &str| {
        let files = [page(path, text), page(&other.path, &other.text)];
        check_targets(&files, &paths).len()
    };
    assert_eq!(
        found("docs/a.md", "[b](b.md) [x](../src/x.rs) [s](../src)"),
        0
    );
    assert_eq!(
        found("docs/a.md", "[b](b.md#all-of-it-now) [c](https://c.d/#e)"),
        0
    );
    assert_eq!(
        found("docs/a.md", "[c](c.md)\n[d]: d.md\n<img src=\"e.png\">"),
        3
    );
    assert_eq!(found("docs/a.md", "[b](b.md#all)"), 1);
    assert_eq!(found("docs/a.md", "```text\n[c](c.md)\n```\n"), 0);
    assert_eq!(
        found("src/guides/a.md", "[b](crate::B) [b](#b)"),
        1,
        "it is another page"
    );
    assert_eq!(found("src/guides/a.md", "[b](../../docs/b.md)"), 1);
}
