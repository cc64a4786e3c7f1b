//! Tokens must match Python's tokenizer, and vectors PyTorch's.

use crate::setup;

/// The least cosine between our vector of a text and PyTorch's.
const LEAST_COSINE: f64 = 0.99999;

#[test]
fn tokens_are_those_of_python() {
    if !setup::is_there() {
        return;
    }
    let (_, model) = setup::open(None);
    for golden in setup::texts() {
        let tokens = model.words.tokens(&golden.text).unwrap();
        assert_eq!(tokens.ids, golden.tokens, "{:?}", golden.text);
    }
}

#[test]
fn vectors_are_those_of_pytorch() {
    if !setup::is_there() {
        return;
    }
    let (_, model) = setup::open(None);
    let (ours, theirs) = (setup::embed(&model, usize::MAX), setup::vectors());
    assert_eq!((ours.vectors.len(), ours.cut), (theirs.len(), 2));
    let texts = setup::texts();
    let pairs = ours
        .vectors
        .chunks(ours.width)
        .zip(theirs.chunks(ours.width));
    for (golden, (ours, theirs)) in texts.iter().zip(pairs) {
        let cosine = cosine(ours, theirs);
        assert!(cosine >= LEAST_COSINE, "{:?}: {cosine}", golden.text);
        let length = dot(ours, ours).sqrt();
        assert!(
            (length - 1.0).abs() < 1e-5,
            "{:?} is {length} long",
            golden.text
        );
    }
}

#[test]
fn a_text_that_is_too_long_is_cut() {
    if !setup::is_there() {
        return;
    }
    let (_, model) = setup::open(None);
    let cut_from = |words: usize| model.words.tokens(&"word ".repeat(words)).unwrap().cut_from;
    assert_eq!(
        (cut_from(253), cut_from(254), cut_from(255)),
        (None, None, Some(257))
    );
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum()
}

pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}
