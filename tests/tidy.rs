//! The architecture and the style as tests. They only read the files and need no compiler.
//!
//! [`source`] reads a file and marks which bytes are code, and [`modules`] follows paths between
//! files. [`layers`] has the order of modules, [`structure`] the links between modules, and
//! [`size`] the limits of lengths. [`names`] checks that a name means one type, [`panics`] has the
//! rules for panics, [`prose`] those for texts, and [`markdown`] those for pages. [`links`] checks
//! that links have targets, [`kernels`] that a shader has its layout and its reference kernel, and
//! [`manifest`] that dependencies are explained. [`programs`] checks how the tests are grouped.
//! Each check returns its findings as `file:line: what`, so each is tested with a bad sample. The
//! exceptions and their reasons are at the top of those files.

#[path = "tidy/kernels.rs"]
mod kernels;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/manifest.rs"]
mod manifest;
#[path = "tidy/markdown.rs"]
mod markdown;
#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/panics.rs"]
mod panics;
#[path = "tidy/paths.rs"]
mod paths;
#[path = "tidy/programs.rs"]
mod programs;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/size.rs"]
mod size;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/structure.rs"]
mod structure;

use std::path::Path;

use source::{Source, root};

/// Fails with all findings at once, one on each line.
#[track_caller]
fn assert_tidy(offences: Vec<String>) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}

/// The folders with the crates' sources.
const CRATES: [&str; 8] = [
    "src",
    "crates/alloc/src",
    "crates/core/src",
    "crates/egui/src",
    "crates/lm/src",
    "crates/mpi/src",
    "crates/tools/src",
    "crates/wgsl-interpreter/src",
];

/// The folders with sources of the crates that are not published, beside [`CRATES`].
const UNPUBLISHED: [&str; 4] = [
    "crates/fuzzing/src",
    "crates/harness/src",
    "crates/testing/src",
    "xtask/src",
];

/// The files of the crates.
fn crate_files() -> Vec<Source> {
    let files = source::read_folders(&CRATES, &["rs"]);
    assert!(
        files.iter().any(|file| file.path == "src/lib.rs"),
        "src/ was not found"
    );
    files
}

/// All Rust files of the repository.
fn rust_files() -> Vec<Source> {
    source::read_folders(
        &["src", "crates", "tests", "examples", "benches", "xtask"],
        &["rs"],
    )
}

#[test]
fn data_flows_down_the_list_of_layers() {
    assert_tidy(layers::check_order(&crate_files()));
}

#[test]
fn modules_import_each_other_in_small_circles_only() {
    let folders = [&CRATES[..], &UNPUBLISHED].concat();
    let files = source::read_folders(&folders, &["rs"]);
    assert_tidy(structure::check_cycles(&files, &folders));
}

#[test]
fn few_files_implement_a_type() {
    let folders = [&CRATES[..], &UNPUBLISHED].concat();
    let files = source::read_folders(&folders, &["rs"]);
    assert_tidy(structure::check_implementors(&files, &folders));
}

#[test]
fn no_package_takes_files_of_another() {
    let is_package = |path: &Path| root().join(path).join("Cargo.toml").exists();
    assert_tidy(paths::check(&rust_files(), is_package));
}

#[test]
fn what_shows_memory_has_no_device() {
    assert_tidy(layers::check_showing(&crate_files()));
}

#[test]
fn only_the_driver_calls_wgpu_and_only_custom_kernels_reflect() {
    assert_tidy(layers::check_foreign(&crate_files()));
}

#[test]
fn unsafe_is_where_it_is_allowed_and_nowhere_else() {
    assert_tidy(layers::check_unsafe(&crate_files()));
}

#[test]
fn files_and_functions_fit_into_a_head() {
    assert_tidy(size::check_files(&crate_files()));
    assert_tidy(size::check_functions(&crate_files()));
}

#[test]
fn a_name_that_a_crate_sees_means_one_type() {
    assert_tidy(names::check(&crate_files()));
}

#[test]
fn the_root_of_a_crate_has_few_names() {
    assert_tidy(size::check_roots(&crate_files()));
}

#[test]
fn every_file_opens_by_saying_what_it_is() {
    assert_tidy(prose::check_openings(&rust_files()));
}

#[test]
fn comments_fit_into_100_columns() {
    let folders = ["crates", "fuzz", "shaders", "xtask"];
    let mut files = source::read_folders(&folders, &["toml", "wgsl"]);
    files.extend(source::read_top(&["toml"]));
    files.extend(rust_files());
    assert_tidy(prose::check_comment_columns(&files));
}

#[test]
fn nothing_gives_up_without_saying_why() {
    assert_tidy(panics::check(&crate_files()));
}

#[test]
fn every_kernel_has_its_shader_its_layout_and_its_reference() {
    assert_tidy(kernels::check(&source::list(&["shaders", "src/ops"])));
}

#[test]
fn every_silenced_lint_has_a_reason() {
    assert_tidy(prose::check_silenced_lints(&rust_files()));
}

#[test]
fn no_text_names_a_folder_of_somebodys_machine() {
    let text = [
        "rs", "wgsl", "md", "toml", "txt", "yml", "html", "js", "run",
    ];
    let folders = [
        "src", "crates", "shaders", "tests", "examples", "benches", "xtask", "docs", ".ci",
    ];
    let hidden = [".cargo", ".config", ".github"];
    let mut files = source::read_folders(&[&folders[..], &hidden].concat(), &text);
    files.extend(source::read_top(&["md", "toml"]));
    assert_tidy(prose::check_machine_paths(&files));
}

#[test]
fn the_readme_and_the_architecture_are_short_and_lines_of_markdown_fit() {
    let folders = [
        "docs", "src", "crates", "examples", "tests", "benches", "xtask",
    ];
    let mut files = source::read_folders(&folders, &["md"]);
    files.extend(source::read_top(&["md"]));
    assert_tidy(markdown::check_readme(&files));
    assert_tidy(markdown::check_architecture(&files));
    assert_tidy(markdown::check_columns(&files));
}

#[test]
fn links_between_pages_have_targets() {
    let folders = [
        "docs", "src", "crates", "examples", "tests", "benches", "xtask", "shaders", "fuzz",
        ".github",
    ];
    let mut files = source::read_folders(&folders, &["md"]);
    files.extend(source::read_top(&["md"]));
    let mut paths = source::list(&folders);
    let top = std::fs::read_dir(root()).expect("the root is a folder");
    paths.extend(
        top.flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned()),
    );
    assert_tidy(links::check_targets(&files, &paths));
}

#[test]
fn every_dependency_is_explained() {
    let list = std::fs::read_to_string(root().join("docs/dependencies.md"));
    let list = list.expect("the list of dependencies is there");
    for folder in [
        "",
        "crates/alloc",
        "crates/core",
        "crates/egui",
        "crates/lm",
        "crates/mpi",
        "crates/tools",
        "crates/wgsl-interpreter",
    ] {
        let manifest = manifest_of(folder);
        assert_tidy(manifest::check_comments(&manifest));
        assert_tidy(manifest::check_list(&manifest, &list));
    }
}

#[test]
fn the_tests_are_few_programs_and_no_file_is_left_out() {
    let folders = [
        "",
        "crates/alloc",
        "crates/core",
        "crates/fuzzing",
        "crates/harness",
        "crates/lm",
        "crates/testing",
        "crates/tools",
        "crates/wgsl-interpreter",
        "xtask",
    ];
    let packages = folders.map(|folder| {
        let tests = format!("{folder}/tests/");
        let tests = tests.trim_start_matches('/');
        let mut files = source::read_folders(&[tests], &["rs"]);
        files.retain(|file| file.path[tests.len()..].matches('/').count() == 0);
        programs::Package {
            manifest: manifest_of(folder),
            files,
        }
    });
    assert_tidy(programs::check(&packages));
}

/// The manifest of a package.
fn manifest_of(folder: &str) -> String {
    let path = root().join(folder).join("Cargo.toml");
    std::fs::read_to_string(path).expect("a package has a manifest")
}
