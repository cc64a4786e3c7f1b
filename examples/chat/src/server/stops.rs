//! Texts that end an answer.

/// The texts, and what of the answer may be the beginning of one.
#[derive(Debug)]
pub(super) struct Stops {
    texts: Vec<String>,
    held: String,
}

/// A piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: String,
    /// A stop text follows. It belongs to no answer.
    pub(super) is_end: bool,
}

impl Stops {
    /// None of the texts is empty.
    pub(super) fn new(texts: Vec<String>) -> Stops {
        let held = String::new();
        Stops { texts, held }
    }

    /// Takes the next piece of an answer. Returns what of it may be said.
    pub(super) fn take(&mut self, piece: &str) -> Said {
        self.held.push_str(piece);
        let found = self.texts.iter().filter_map(|text| self.held.find(text));
        let (end, is_end) = match found.min() {
            Some(at) => (at, true),
            None => (self.held.len() - self.begun(), false),
        };
        let rest = self.held.split_off(end);
        let text = std::mem::replace(&mut self.held, rest);
        Said { text, is_end }
    }

    /// What is left at the end of the answer.
    pub(super) fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The bytes at the end that may be the beginning of a stop text.
    fn begun(&self) -> usize {
        let begun = |text: &String| {
            let mut starts = (1..text.len())
                .rev()
                .filter(|&at| text.is_char_boundary(at));
            starts.find(|&at| self.held.ends_with(&text[..at]))
        };
        self.texts.iter().filter_map(begun).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(texts: &[&str], pieces: &[&str], expected: &str, ends: bool) {
        let mut stops = Stops::new(texts.iter().map(|text| (*text).to_owned()).collect());
        let mut answer = String::new();
        for piece in pieces {
            let said = stops.take(piece);
            answer.push_str(&said.text);
            if said.is_end {
                assert!(ends, "{pieces:?}");
                return assert_eq!(answer, expected);
            }
        }
        answer.push_str(&stops.rest());
        assert_eq!((&*answer, false), (expected, ends), "{pieces:?}");
    }

    #[test]
    fn an_answer_ends_before_the_first_stop_text_however_it_is_cut() {
        check(&[], &["a", "b"], "ab", false);
        check(&["\n\n"], &["one\n", "two\n", "\nthree"], "one\ntwo", true);
        check(&["END"], &["the E", "N", "D of it"], "the ", true);
        check(&["END"], &["the E", "N", "G"], "the ENG", false);
        check(&["END"], &["EEN", "D"], "E", true);
        check(&["b", "ab"], &["xa", "b"], "x", true);
        check(&["é!"], &["caf", "é", "?"], "café?", false);
        check(&["é!"], &["caf", "é", "!"], "caf", true);
    }

    #[test]
    fn what_cannot_be_the_beginning_of_a_stop_text_is_said_at_once() {
        let mut stops = Stops::new(vec!["</end>".into()]);
        let said = |text: &str| Said {
            text: text.into(),
            is_end: false,
        };
        assert_eq!(stops.take("a <"), said("a "));
        assert_eq!(stops.take("b"), said("<b"));
    }
}
