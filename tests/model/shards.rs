//! Models in several files, which an index names.

use lapidary::failure::ModelFailure;
use lapidary::files::ModelFile;

use crate::model::files::{Folder, failure, file_with, open};

const INDEX: &str = "model.safetensors.index.json";

/// Two files with a tensor each, and their index.
fn model(index: &str) -> Folder {
    let folder = Folder::new();
    for (name, value) in [("a", 1_u8), ("b", 2)] {
        let file = file_with(&[(name, "U8", &[3], &[value; 3])]);
        folder.with(&format!("of_{name}.safetensors"), &file);
    }
    folder.with(INDEX, index.as_bytes());
    folder
}

const GOOD: &str = r#"{"metadata":{"total_size":6},
    "weight_map":{"a":"of_a.safetensors","b":"of_b.safetensors"}}"#;

#[track_caller]
fn refuses(index: &str, of: ModelFailure, says: &str) {
    let folder = model(index);
    let (failed, text) = failure(ModelFile::open(folder.file(INDEX)));
    assert_eq!(failed, of, "{text}");
    assert!(text.contains(says), "{text:?} should say {says:?}");
}

#[test]
fn the_index_or_its_folder_opens_all_files() {
    let folder = model(GOOD);
    let gpu = open();
    for path in [folder.file(INDEX), folder.file("")] {
        let file = ModelFile::open(path).unwrap();
        assert_eq!(file.names().collect::<Vec<_>>(), ["a", "b"]);
        for model in [
            gpu.files().load_model(&file, |_| {}).unwrap(),
            gpu.files().load_model_backed(&file).unwrap(),
        ] {
            for (name, value) in [("a", 1_u8), ("b", 2)] {
                let values = model.get(name).unwrap().to_vec::<u8>().unwrap();
                assert_eq!(values, [value; 3]);
            }
        }
    }
    // The index of a variant is one by its name, too.
    let variant = folder.with("model.safetensors.index.fp16.json", GOOD.as_bytes());
    assert_eq!(ModelFile::open(variant).unwrap().len(), 2);
    // A folder with one file needs no index.
    let alone = Folder::new();
    alone.with("model.safetensors", &file_with(&[("a", "U8", &[1], &[9])]));
    assert_eq!(ModelFile::open(alone.file("")).unwrap().len(), 1);
    let (failed, text) = failure(ModelFile::open(Folder::new().file("")));
    assert_eq!(failed, ModelFailure::NotFound);
    assert!(text.contains(INDEX) && text.contains("GGUF"), "{text}");
}

#[test]
fn a_missing_file_and_a_missing_tensor_are_named() {
    let folder = model(GOOD);
    std::fs::remove_file(folder.file("of_b.safetensors")).unwrap();
    let (failed, text) = failure(ModelFile::open(folder.file("")));
    assert_eq!(failed, ModelFailure::NotFound);
    assert!(
        text.contains("of_b.safetensors") && text.contains("The index names it"),
        "{text}"
    );
    let lost = GOOD.replace("\"a\":", "\"c\":");
    refuses(
        &lost,
        ModelFailure::Damaged,
        "it lacks \"c\", which the index expects",
    );
    // The same tensor in two files.
    let folder = model(GOOD);
    let twice = file_with(&[("a", "U8", &[3], &[5; 3]), ("b", "U8", &[3], &[5; 3])]);
    folder.with("of_b.safetensors", &twice);
    let (_, text) = failure(ModelFile::open(folder.file("")));
    assert!(text.contains("two tensors called \"a\""), "{text}");
}

#[test]
fn a_file_that_changes_is_named_by_its_own_path() {
    let folder = model(GOOD);
    let file = ModelFile::open(folder.file("")).unwrap();
    folder.with("of_b.safetensors", b"something else");
    let gpu = open();
    assert!(gpu.files().load_tensor(&file, "a").is_ok());
    let (failed, text) = failure(gpu.files().load_tensor(&file, "b"));
    assert_eq!(failed, ModelFailure::Changed);
    assert!(text.contains("of_b.safetensors"), "{text}");
}

#[test]
fn an_index_reads_nothing_but_files_beside_it() {
    for name in ["../x", "/etc/passwd", "a/b", "..", ".", "", "c:x", "a\\\\b"] {
        let index = format!(r#"{{"weight_map":{{"a":"{name}"}}}}"#);
        refuses(
            &index,
            ModelFailure::Damaged,
            "the file of \"a\" is not the name",
        );
    }
    let number = r#"{"weight_map":{"a":7}}"#;
    refuses(number, ModelFailure::Damaged, "expected a string");
}

#[test]
fn an_index_that_is_none_is_refused() {
    for index in ["{}", r#"{"weight_map":null}"#] {
        refuses(index, ModelFailure::Damaged, "it has no `weight_map`");
    }
    let twice = r#"{"weight_map":{"a":"x","a":"y"}}"#;
    refuses(twice, ModelFailure::Damaged, "\"a\" comes twice");
    let long = format!("{}{}", GOOD, " ".repeat(33 << 20));
    refuses(
        &long,
        ModelFailure::Damaged,
        "an index has at most 33554432",
    );
    refuses(
        r#"{"weight_map":{}}"#,
        ModelFailure::Damaged,
        "`weight_map` is empty",
    );
    for index in [
        "",
        "{",
        "7",
        r#"{"weight_map":[]}"#,
        "\u{feff}{}",
        &"[".repeat(1_000_000),
    ] {
        refuses(index, ModelFailure::Damaged, "cannot be understood");
    }
}
