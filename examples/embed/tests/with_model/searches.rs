//! Searching: texts with the same meaning come before texts that only share a word. An index is
//! kept in a file.

use embed::{Entry, Error, Index};

use crate::setup;

const TEXTS: [&str; 5] = [
    "Gives the memory back to the operating system.",
    "The cat slept on a warm windowsill.",
    "Returns the length of the string in bytes.",
    "He ran out of memory of what had happened that night.",
    "Opens a socket and waits for somebody to connect.",
];

#[test]
fn what_means_the_same_is_found_also_in_a_loaded_index() {
    if !setup::is_there() {
        return;
    }
    let (gpu, model) = setup::open(None);
    let entries = TEXTS.iter().enumerate().map(|(line, text)| Entry {
        text: (*text).to_owned(),
        place: "texts.txt".into(),
        line: line as u32 + 1,
    });
    let embedded = pollster::block_on(model.embed(&TEXTS, |_| {})).unwrap();
    let index = pollster::block_on(Index::new(&gpu, entries.collect(), &embedded)).unwrap();
    let path = std::env::temp_dir().join(format!("embed-test-{}.index", std::process::id()));
    index.save(&gpu, &path).unwrap();
    let loaded = Index::load(&gpu, &path, pollster::block_on(model.id()).unwrap());
    std::fs::remove_file(&path).unwrap();
    for index in [&index, &loaded.unwrap()] {
        let first = |query: &str| {
            let (vector, _) = model.query(query).unwrap();
            let hits = pollster::block_on(index.search(&vector, 2)).unwrap();
            assert_eq!(hits.len(), 2);
            assert!(hits[0].score > hits[1].score);
            hits[0].entry.line
        };
        assert_eq!(first("free RAM"), 1);
        assert_eq!(first("a pet takes a nap"), 2);
        assert_eq!(first("listen on a port"), 5);
    }
}

#[test]
fn an_empty_query_is_told_to_be_one() {
    if !setup::is_there() {
        return;
    }
    let (_, model) = setup::open(None);
    let refused = model.query(" \n").unwrap_err();
    assert!(matches!(refused, Error::Input(_)));
    assert!(refused.to_string().contains("type some words"), "{refused}");
}
