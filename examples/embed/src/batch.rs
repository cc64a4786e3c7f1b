//! Batches of texts with similar lengths, so that padding costs little.

use crate::words::Tokens;

/// Texts that the encoder processes at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Indices of the texts.
    pub texts: Vec<usize>,
    /// Tokens of the longest text.
    pub length: usize,
}

/// Divides texts into batches of at most `most_tokens` tokens, padding included. The longest come
/// first, so that the first batch needs the most memory. A text with more tokens is a batch by
/// itself.
pub fn batches(texts: &[Tokens], most_tokens: usize) -> Vec<Batch> {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&text| std::cmp::Reverse(texts[text].ids.len()));
    let mut batches: Vec<Batch> = Vec::new();
    for text in order {
        match batches.last_mut() {
            Some(batch) if (batch.texts.len() + 1) * batch.length <= most_tokens => {
                batch.texts.push(text)
            }
            _ => batches.push(Batch {
                texts: vec![text],
                length: texts[text].ids.len(),
            }),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(of: &[usize], most_tokens: usize) -> Vec<Vec<usize>> {
        let tokens = |&length: &usize| Tokens {
            ids: vec![0; length],
            cut_from: None,
        };
        let texts: Vec<_> = of.iter().map(tokens).collect();
        let lengths = |batch: Batch| batch.texts.iter().map(|&text| of[text]).collect();
        batches(&texts, most_tokens)
            .into_iter()
            .map(lengths)
            .collect()
    }

    #[test]
    fn texts_of_like_lengths_are_together_and_padding_counts() {
        assert_eq!(lengths(&[3, 9, 4, 8], 18), [vec![9, 8], vec![4, 3]]);
        assert_eq!(lengths(&[3, 9, 4, 8], 17), [vec![9], vec![8, 4], vec![3]]);
    }

    #[test]
    fn a_text_that_is_too_long_for_a_batch_is_one_by_itself() {
        assert_eq!(lengths(&[30, 2, 2], 10), [vec![30], vec![2, 2]]);
        assert_eq!(lengths(&[], 10), Vec::<Vec<usize>>::new());
    }
}
