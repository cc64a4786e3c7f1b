//! Names of types: a name that a whole crate sees means one type there.

use std::collections::BTreeMap;

use crate::source::Source;

/// Names that two types of a crate have, by the crate's folder, and why.
const EXCEPTIONS: [(&str, &str); 4] = [
    // Each kernel has its own, equal to the `Params` of its WGSL.
    ("src", "Params"),
    // Rules of gradients take one, and `devices::Replicas` gives another to its users.
    ("src", "Backward"),
    // Each command of the program has its own.
    ("crates/tools/src", "Args"),
    // The program's errors, and the library's.
    ("crates/tools/src", "Result"),
];

const KEYWORDS: [&str; 5] = ["struct ", "enum ", "union ", "trait ", "type "];

/// No crate has two types of one name that all of it sees.
pub(crate) fn check(files: &[Source]) -> Vec<String> {
    let mut first: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut offences = Vec::new();
    for file in files {
        let Some((folder, _)) = file.path.split_once("src/") else {
            continue;
        };
        let folder = &file.path[..folder.len() + "src".len()];
        for (offset, name) in seen_by_all(&file.shipped) {
            if EXCEPTIONS.contains(&(folder, name)) {
                continue;
            }
            let before = first.entry((folder, name)).or_insert(&file.path);
            // One file may declare a type twice, for two platforms.
            if *before != file.path {
                let what = format!("`{name}` is a type of {before} too: rename one of them");
                offences.push(file.offence(offset, &what));
            }
        }
    }
    offences
}

/// The types that a file declares as `pub` or `pub(crate)`, outside of other items.
fn seen_by_all(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    code.split_inclusive('\n').filter_map(move |line| {
        let start = offset;
        offset += line.len();
        let rest = line
            .strip_prefix("pub(crate) ")
            .or(line.strip_prefix("pub "))?;
        let name = KEYWORDS.iter().find_map(|word| rest.strip_prefix(word))?;
        let end = name.find(|letter: char| !letter.is_alphanumeric());
        Some((start, &name[..end?]))
    })
}

#[test]
fn a_name_of_two_types_is_found_and_what_only_one_module_sees_is_not() {
    let file = |path, text| Source::new(path, text);
    let files = [
        file("crates/core/src/a.rs", "pub struct One;\nstruct Two;\n"),
        file(
            "crates/core/src/b.rs",
            "\npub(crate) enum One {}\npub struct Two;\n",
        ),
        file(
            "crates/core/src/c.rs",
            "pub(super) struct One;\ntype Two = u8;\n",
        ),
        file(
            "crates/tools/src/d.rs",
            "pub struct One;\npub struct One;\n",
        ),
    ];
    let found = "crates/core/src/b.rs:2: `One` is a type of crates/core/src/a.rs too: rename one of \
                 them";
    assert_eq!(check(&files), [found]);
}
