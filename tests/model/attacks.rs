//! All known attacks on the reader, by name. Each gives an error that names the fault, before
//! anything is created on a device.

use lapidary::{failure::ModelFailure, files::ModelFile};

use crate::model::files::{Folder, failure, file_of, file_with};

/// Asserts that the file is refused with this message.
#[track_caller]
fn refuses(bytes: &[u8], says: &str) {
    let folder = Folder::new();
    let path = folder.with("hostile.safetensors", bytes);
    for result in [ModelFile::open(path), ModelFile::from_bytes(bytes)] {
        let (failed, text) = failure(result);
        assert_eq!(failed, ModelFailure::Damaged, "{text}");
        assert!(text.contains(says), "{text:?} should say {says:?}");
        assert!(text.len() < 2000, "{text}");
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}

/// A file whose header's length is this number.
fn with_length(length: u64, rest: &[u8]) -> Vec<u8> {
    [&length.to_le_bytes(), rest].concat()
}

/// The header of one tensor.
fn entry(dtype: &str, shape: &str, from: u64, to: u64) -> String {
    format!(r#"{{"it":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}}}"#)
}

#[test]
fn a_file_that_is_too_short_for_a_header() {
    refuses(b"", "it has 0 bytes");
    refuses(b"\x02\0\0\0\0\0\0", "it has 7 bytes");
    refuses(&with_length(0, b""), "does not begin with `{`");
    refuses(&with_length(1, b"{"), "cannot be understood");
}

#[test]
fn what_acts_upon_a_terminal_does_not_reach_it() {
    for hidden in [
        "\\u001b[2J",
        "\\u007f",
        "\\u009b31m",
        "\\u202e",
        "\\n",
        "\\u2066",
        "\u{9b}",
        "\u{202e}",
    ] {
        for (dtype, shape) in [
            (format!("F32{hidden}"), "[1]".to_owned()),
            ("F32".to_owned(), format!("\"{hidden}\"")),
        ] {
            let header = entry(&dtype, &shape, 0, 4);
            let bytes = with_length(header.len() as u64, header.as_bytes());
            let error = ModelFile::from_bytes(bytes).unwrap_err().to_string();
            let acts = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{2066}');
            assert!(!error.contains(acts), "{error:?}");
            assert!(error.contains("cannot be understood"), "{error:?}");
        }
    }
}

#[test]
fn a_header_longer_than_the_file_or_than_any_may_be() {
    refuses(
        &with_length(u64::MAX, b"{}"),
        "should have 18446744073709551615 bytes",
    );
    refuses(&with_length(i64::MAX as u64, b"{}"), "the file has 2");
    refuses(&with_length(100_000_001, b"{}"), "100000000 are the most");
    refuses(
        &with_length(3, b"{}"),
        "it was cut off, or is not a safetensors file",
    );
}

#[test]
fn a_header_longer_than_any_may_be_in_a_file_that_has_room_for_it() {
    let folder = Folder::new();
    let path = folder.with("large.safetensors", &with_length(100_000_001, b"{}"));
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // A sparse file that takes no space on the disk.
    file.set_len(200_000_000).unwrap();
    let (failed, text) = failure(ModelFile::open(&path));
    assert_eq!(failed, ModelFailure::Damaged);
    assert!(text.contains("100000000 are the most"), "{text}");
}

#[test]
fn what_people_take_for_a_model_is_named() {
    refuses(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a",
        "git lfs pull",
    );
    refuses(b"PK\x03\x04\0\0\x08\x08\0\0", "a pickle of PyTorch's");
    refuses(
        b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
        "a pickle of PyTorch's",
    );
    refuses(b"<!DOCTYPE html><html>404", "a web page");
    refuses(
        b"GGUF\x03\0\0\0\0\0\0\0",
        "it ends in its header, at byte 8",
    );
}

#[test]
fn a_header_that_is_no_json() {
    refuses(&with_length(4, b"{\"\xff\""), "is not UTF-8, at byte 10");
    refuses(&file_of("{nothing}", b""), "cannot be understood");
    refuses(&file_of("\u{feff}{}", b""), "does not begin with `{`");
    refuses(&file_of(" {}", b""), "does not begin with `{`");
    refuses(&file_of("[]", b""), "does not begin with `{`");
    refuses(&file_of("{}{}", b""), "trailing characters");
    refuses(&file_of("{\0}", b""), "cannot be understood");
    refuses(
        &file_of("{\"it\":\n\"\u{1b}[31m\"}", b""),
        "cannot be understood",
    );
}

#[test]
fn a_header_padded_with_spaces_is_sound() {
    assert!(
        ModelFile::from_bytes(file_of("{}          ", b""))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_header_nested_deeply() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        refuses(
            &file_of(&format!("{{\"it\":{}}}", nested(100_000)), b""),
            "\"it\"",
        );
        let extra = format!(
            r#"{{"it":{{"dtype":"U8","shape":[],"data_offsets":[0,1],"extra":{}}}}}"#,
            nested(100_000)
        );
        // The file may be accepted or refused; the unused part must have no effect.
        if let Ok(file) = ModelFile::from_bytes(file_of(&extra, b"\0")) {
            assert_eq!(file.len(), 1);
        }
    }
}

#[test]
fn a_name_that_comes_twice() {
    let one = r#""it":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    let two = r#""it":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}"#;
    refuses(
        &file_of(&format!("{{{one},{two}}}"), b"ab"),
        "two tensors called",
    );
    refuses(
        &file_of(&format!("{{{one},{one}}}"), b"a"),
        "\"it\" begins at byte 0, inside another",
    );
    let none = r#""it":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#;
    refuses(
        &file_of(&format!("{{{none},{none}}}"), b""),
        "two tensors called",
    );
    let notes = r#""__metadata__":{"a":"b"}"#;
    refuses(
        &file_of(&format!("{{{notes},{notes}}}"), b""),
        "comes twice",
    );
    refuses(
        &file_of(r#"{"__metadata__":{"a":"b","a":"c"}}"#, b""),
        "\"a\" comes twice",
    );
    let fields = r#"{"it":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
    refuses(&file_of(fields, b""), "duplicate field");
}

#[test]
fn notes_that_are_no_texts() {
    refuses(&file_of(r#"{"__metadata__":{"a":1}}"#, b""), "__metadata__");
    refuses(&file_of(r#"{"__metadata__":[]}"#, b""), "__metadata__");
}

#[test]
fn offsets_that_do_not_go_together() {
    refuses(
        &file_of(&entry("U8", "[1]", 1, 0), b"a"),
        "and ends before that",
    );
    refuses(
        &file_of(&entry("U8", "[2]", 0, 2), b"a"),
        "of which the file has 1",
    );
    refuses(
        &file_of(&entry("U8", "[1]", 1, 2), b"ab"),
        "\"it\" begins at byte 1, but the tensor before it ends at byte 0",
    );
    refuses(
        &file_of(&entry("U8", "[1]", 0, 1), b"ab"),
        "end at byte 1 of its data, which has 2",
    );
    refuses(
        &file_of("{}", b"a"),
        "end at byte 0 of its data, which has 1",
    );
    refuses(
        &file_of(&entry("U8", "[1]", u64::MAX - 1, u64::MAX), b"a"),
        "\"it\"",
    );
    let two = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
        "b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#;
    refuses(
        &file_of(two, b"abc"),
        "\"b\" begins at byte 1, inside another tensor that ends at byte 2",
    );
}

#[test]
fn numbers_that_are_none() {
    refuses(&file_of(&entry("U8", "[-1]", 0, 1), b"a"), "\"it\"");
    refuses(&file_of(&entry("U8", "[1.5]", 0, 1), b"a"), "\"it\"");
    refuses(&file_of(&entry("U8", "[1e30]", 0, 1), b"a"), "\"it\"");
    refuses(
        &file_of(&entry("U8", "[18446744073709551616]", 0, 1), b"a"),
        "\"it\"",
    );
    refuses(&file_of(&entry("U8", "null", 0, 1), b"a"), "\"it\"");
    let three = r#"{"it":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}"#;
    refuses(&file_of(three, b"a"), "\"it\"");
    refuses(
        &file_of(r#"{"it":{"dtype":"U8","shape":[1]}}"#, b"a"),
        "missing field",
    );
}

#[test]
fn a_size_that_is_not_that_of_shape_and_type() {
    refuses(
        &file_of(&entry("F32", "[1]", 0, 3), b"abc"),
        "which takes 4 bytes, and has 3",
    );
    refuses(
        &file_of(&entry("U8", "[2]", 0, 1), b"a"),
        "U8 of shape [2], which takes 2 bytes",
    );
    refuses(
        &file_of(&entry("F4", "[3]", 0, 1), b"a"),
        "12 bits, which are no whole bytes",
    );
    let vast = format!("[{},{}]", u32::MAX, u64::MAX / 2);
    refuses(
        &file_of(&entry("U8", &vast, 0, 1), b"a"),
        "more bytes than can be counted",
    );
    refuses(
        &file_of(&entry("U8", &format!("[{}, 2, 0]", u64::MAX), 0, 0), b""),
        "more bytes",
    );
    let long = format!("[{}2]", "1,".repeat(1_000_000));
    refuses(
        &file_of(&entry("U8", &long, 0, 1), b"a"),
        "and 999989 more, which takes 2 bytes",
    );
}

#[test]
fn a_type_that_nobody_knows() {
    refuses(&file_of(&entry("F7", "[1]", 0, 1), b"a"), "F7");
    refuses(&file_of(&entry("f32", "[0]", 0, 0), b""), "f32");
}

#[test]
fn names_of_every_kind_are_names() {
    let long = "n".repeat(1 << 20);
    for name in [
        "",
        "a\0b",
        "../../etc/passwd",
        "\u{202e}evil",
        "\u{1b}[31m",
        &long,
    ] {
        let json = serde_json::to_string(name).unwrap();
        let header = format!(r#"{{{json}:{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#);
        let file = ModelFile::from_bytes(file_of(&header, b"a")).unwrap();
        assert_eq!(file.names().collect::<Vec<_>>(), [name]);
        let (_, text) = failure(file.expect(name, &[2]));
        assert!(
            text.len() < 1000 && !text.contains(['\0', '\u{1b}', '\u{202e}']),
            "{text:?}"
        );
        let gpu = crate::model::files::open();
        let loaded = gpu.files().load_tensor(&file, name).unwrap();
        assert_eq!(loaded.to_vec::<u8>().unwrap(), b"a");
        let (_, text) = failure(file.describe("another"));
        assert!(
            text.len() < 1000 && !text.contains(['\0', '\u{1b}', '\u{202e}']),
            "{text:?}"
        );
    }
}

#[test]
fn tensors_without_elements_are_sound() {
    let file = file_with(&[
        ("none", "F32", &[0], b""),
        ("one", "U8", &[1], b"a"),
        ("none of many", "I64", &[7, 0, 40], b""),
    ]);
    let file = ModelFile::from_bytes(file).unwrap();
    let model = crate::model::files::open()
        .files()
        .load_model(&file, |_| {})
        .unwrap();
    assert_eq!(
        model.get("none").unwrap().to_vec::<f32>().unwrap(),
        [0.0; 0]
    );
    assert!(model.get("none of many").unwrap().is_empty());
}

#[test]
fn many_tensors_are_found_by_name() {
    let count = 100_000;
    let mut header = String::from("{");
    for at in 0..count {
        let comma = if at > 0 { "," } else { "" };
        header += &format!(
            r#"{comma}"layer.{at}":{{"dtype":"U8","shape":[],"data_offsets":[{at},{}]}}"#,
            at + 1
        );
    }
    header.push('}');
    let file = ModelFile::from_bytes(file_of(&header, &vec![7; count])).unwrap();
    assert_eq!(file.len(), count);
    assert!(file.expect("layer.77777", &[]).is_ok());
    assert_eq!(failure(file.describe("layer.x")).0, ModelFailure::Name);
}

#[test]
fn a_folder_a_device_and_nothing_are_no_files() {
    let folder = Folder::new();
    assert_eq!(
        failure(ModelFile::open(folder.file("none"))).0,
        ModelFailure::NotFound
    );
    let (failed, text) = failure(ModelFile::open(folder.file("")));
    assert_eq!(failed, ModelFailure::NotFound);
    assert!(text.contains("it is a folder"), "{text}");
    #[cfg(unix)]
    assert_eq!(failure(ModelFile::open("/dev/zero")).0, ModelFailure::Io);
}
