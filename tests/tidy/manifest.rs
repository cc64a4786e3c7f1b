//! People read `Cargo.toml`. Each dependency has a reason, and `docs/dependencies.md` lists those
//! that a user gets.

/// Every dependency has a comment on its line or right above it. A dependency in several tables
/// needs only one.
pub(crate) fn check_comments(manifest: &str) -> Vec<String> {
    let found = dependencies(manifest);
    let is_explained = |name: &str| {
        found
            .iter()
            .any(|found| found.name == name && found.is_explained)
    };
    let mut offences: Vec<_> = found
        .iter()
        .filter(|dependency| !is_explained(dependency.name))
        .map(|dependency| {
            format!(
                "Cargo.toml:{}: `{}` has no comment",
                dependency.line, dependency.name
            )
        })
        .collect();
    offences.dedup();
    offences
}

/// `docs/dependencies.md` names every dependency that is not for development only.
pub(crate) fn check_list(manifest: &str, list: &str) -> Vec<String> {
    let shipped = dependencies(manifest)
        .into_iter()
        .filter(|dependency| !dependency.is_for_development);
    let mut missing: Vec<_> = shipped
        .filter(|dependency| !is_named(list, dependency.name))
        .map(|dependency| {
            format!(
                "docs/dependencies.md does not name the dependency `{}`",
                dependency.name
            )
        })
        .collect();
    missing.dedup();
    missing
}

struct Dependency<'a> {
    name: &'a str,
    line: usize,
    is_explained: bool,
    is_for_development: bool,
}

/// The entries of all dependency tables, `[dependencies]` and `[dependencies.name]` alike.
fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut table = "";
    let mut is_commented = false;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        let mut add = |name, is_explained| {
            let is_for_development = table.contains("dev-dependencies");
            found.push(Dependency {
                name,
                line: index + 1,
                is_explained,
                is_for_development,
            });
        };
        if let Some(header) = line.strip_prefix('[') {
            table = header.split(']').next().unwrap_or_default();
            if let Some((_, name)) = table.rsplit_once("dependencies.") {
                add(name, is_commented);
            }
        } else if table.ends_with("dependencies") && !line.starts_with('#') {
            if let Some((key, value)) = line.split_once('=') {
                let name = key.trim().split('.').next().unwrap_or_default();
                add(name, is_commented || value.contains('#'));
            }
        }
        is_commented = line.starts_with('#');
    }
    found
}

/// Whether `name` is a separate word of the text: `wgpu-types` does not name `wgpu`.
fn is_named(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    text.split(|c| !is_part(c)).any(|word| word == name)
}

#[cfg(test)]
const SAMPLE: &str = "\
[dependencies]
# Why.
a = \"1\"
b = { version = \"1\" } # Why.
c.workspace = true

[target.'cfg(unix)'.dependencies]
a = \"1\"
d = \"1\"

[dev-dependencies]
e = \"1\"

# Why.
[dependencies.f]
version = \"1\"

[features]
g = []
";

#[test]
fn a_dependency_without_a_comment_is_found() {
    let names = ["`c`", "`d`", "`e`"];
    let offences = check_comments(SAMPLE);
    assert_eq!(offences.len(), names.len(), "{offences:?}");
    assert!(
        names
            .iter()
            .zip(&offences)
            .all(|(name, offence)| offence.contains(name)),
        "{offences:?}"
    );
}

#[test]
fn a_dependency_that_is_missing_from_the_list_is_found() {
    assert_eq!(
        check_list(SAMPLE, "a, `b`, c and d-macros; (f)"),
        ["docs/dependencies.md does not name the dependency `d`"]
    );
    assert_eq!(check_list(SAMPLE, "a b c d f").len(), 0);
}
