//! The grouping of tests: few programs, and no file outside of them. Only programs of the main
//! workspace count: `lapidary-egui`, `lapidary-mpi`, `embed` and `serve` belong to the examples'
//! workspace.

use crate::source::Source;

/// Each program is linked separately with the whole library. A published crate has one.
const MOST_PROGRAMS: usize = 7;

/// A package of the workspace: its manifest, and the files directly in its folder `tests`.
pub(crate) struct Package {
    pub(crate) manifest: String,
    pub(crate) files: Vec<Source>,
}

/// There are few test programs, and each file is a program or a module of one.
pub(crate) fn check(packages: &[Package]) -> Vec<String> {
    let mut offences = Vec::new();
    let mut count = 0;
    for package in packages.iter().filter(|package| !package.files.is_empty()) {
        let names = programs(&package.manifest);
        count += names.len();
        let is_program = |file: &&Source| names.contains(&stem(file));
        let programs: Vec<_> = package.files.iter().filter(is_program).collect();
        let is_module = |file: &Source| {
            let declared = format!("mod {};", stem(file));
            let mut programs = programs.iter();
            programs.any(|program| program.code.lines().any(|line| line.trim() == declared))
        };
        if !package.manifest.contains("autotests = false") {
            offences.push(format!(
                "{}: cargo makes it a program",
                package.files[0].path
            ));
        }
        let lost = |file: &&Source| !is_program(file) && !is_module(file);
        let lost = package.files.iter().filter(lost);
        offences.extend(lost.map(|file| format!("{}: in no program of tests", file.path)));
    }
    if count > MOST_PROGRAMS {
        offences.push(format!(
            "{count} programs of tests, at most {MOST_PROGRAMS}"
        ));
    }
    offences
}

/// The names in the sections `[[test]]` of the manifest.
fn programs(manifest: &str) -> Vec<&str> {
    let sections = manifest.split("[[test]]").skip(1);
    let named = sections.filter_map(|section| section.split_once("name = \""));
    named
        .filter_map(|(_, rest)| rest.split('"').next())
        .collect()
}

fn stem(file: &Source) -> &str {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".rs").unwrap_or(name)
}

#[test]
fn a_file_that_belongs_to_no_program_and_too_many_programs_are_found() {
    let package = |manifest: &str, files: &[(&str, &str)]| Package {
        manifest: manifest.into(),
        files: files
            .iter()
            .map(|(path, text)| Source::new(path, text))
            .collect(),
    };
    let named = "autotests = false\n[[test]]\nname = \"all\"\n";
    let files = [("tests/all.rs", "mod a;\n// mod b;"), ("tests/a.rs", "")];
    assert_eq!(check(&[package(named, &files)]), [""; 0]);
    assert_eq!(check(&[package("", &[])]), [""; 0]);
    let lost = [&files[..], &[("tests/b.rs", "")]].concat();
    assert_eq!(
        check(&[package(named, &lost)]),
        ["tests/b.rs: in no program of tests"]
    );
    let by_itself = named.replace("autotests = false\n", "");
    assert_eq!(check(&[package(&by_itself, &files)]).len(), 1);
    let too_many = format!(
        "autotests = false\n{}",
        "[[test]]\nname = \"all\"\n".repeat(MOST_PROGRAMS + 1)
    );
    assert_eq!(check(&[package(&too_many, &files)]).len(), 1);
}
