//! Vocabularies of GGUF files split texts as the libraries do that made them.

use std::path::Path;

use chat::error::Error;
use lapidary::files::ModelFile;
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    texts: Vec<String>,
    bytes: Vec<Vec<u32>>,
    pieces: Vec<Vec<u32>>,
}

fn check(name: &str, wanted: fn(Expected) -> Vec<Vec<u32>>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let text = std::fs::read_to_string(folder.join("vocabularies.json")).unwrap();
    let expected: Expected = serde_json::from_str(&text).unwrap();
    let path = folder.join(name);
    let file = ModelFile::open(&path).unwrap();
    let tokenizer = chat::tokenizer::load(&path, &file, &|_| None, 600).unwrap();
    let texts = expected.texts.clone();
    for (text, wanted) in texts.iter().zip(wanted(expected)) {
        let encoded = tokenizer.encode_fast(text.as_str(), false).unwrap();
        assert_eq!(encoded.get_ids(), wanted, "{text:?}");
        if text.contains("<|") {
            // A space is put before each text between special tokens.
            continue;
        }
        let decoded = tokenizer.decode(encoded.get_ids(), false).unwrap();
        assert_eq!(decoded, *text);
    }
    let error = chat::tokenizer::load(&path, &file, &|_| None, 599).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Vocabulary {
                token: 599,
                vocabulary: 599
            }
        ),
        "{error}"
    );
}

#[test]
fn pairs_of_bytes() {
    check("bytes.gguf", |expected| expected.bytes);
}

#[test]
fn pieces_with_scores() {
    check("pieces.gguf", |expected| expected.pieces);
}
