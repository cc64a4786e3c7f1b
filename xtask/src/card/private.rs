//! Data that a report must not contain: the user, the machine's name, and the paths of files.

use std::env;

use crate::process::{Shell, cmd, root, target_dir};

/// The words of this machine that identify its user, longest first.
pub(super) struct Private {
    words: Vec<(String, &'static str)>,
}

impl Private {
    /// Asks the environment and the system for these words.
    pub(super) fn of_this_machine(sh: &Shell) -> Private {
        let variable = |name: &str| env::var(name).ok();
        let users = ["USER", "USERNAME", "LOGNAME"].map(variable);
        let hosts = [
            variable("HOSTNAME"),
            variable("COMPUTERNAME"),
            cmd!(sh, "hostname").read().ok(),
        ];
        let homes = ["HOME", "USERPROFILE", "CARGO_HOME", "TMPDIR", "TEMP"].map(variable);
        let own = [root(), target_dir()].map(|path| Some(path.display().to_string()));
        let folders = own
            .into_iter()
            .chain(homes)
            .flatten()
            .map(|word| (word, "FOLDER"));
        let hosts = hosts.into_iter().flatten().map(|word| (word, "MACHINE"));
        let users = users.into_iter().flatten().map(|word| (word, "USER"));
        Private::new(folders.chain(hosts).chain(users))
    }

    fn new(words: impl Iterator<Item = (String, &'static str)>) -> Private {
        let trimmed = words.map(|(word, name)| (word.trim().to_owned(), name));
        // Words of two letters are part of other words and identify no user.
        let mut words: Vec<_> = trimmed.filter(|(word, _)| word.len() > 2).collect();
        words.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
        Private { words }
    }

    /// The text with a placeholder for each word.
    pub(super) fn without(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (word, name) in &self.words {
            text = replaced(&text, word, name);
        }
        text
    }

    /// A word that a text still contains, as a whole word.
    pub(super) fn found_in(&self, text: &str) -> Option<&str> {
        let mut words = self.words.iter().map(|(word, _)| word.as_str());
        words.find(|word| places(text, word).next().is_some())
    }
}

fn replaced(text: &str, word: &str, name: &str) -> String {
    let mut made = String::new();
    let mut rest = 0;
    for at in places(text, word) {
        made += &text[rest..at];
        made += name;
        rest = at + word.len();
    }
    made + &text[rest..]
}

/// The places of a word in a text, not within longer words: a user may be called "test".
fn places<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_outside = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let (before, after) = (&text[..at], &text[at + word.len()..]);
            let is_path = word.contains(['/', '\\']);
            is_path || (is_outside(before.chars().next_back()) && is_outside(after.chars().next()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private() -> Private {
        let words = [
            ("/srv/ada/lapidary", "FOLDER"),
            ("/srv/ada", "FOLDER"),
            ("ada", "USER"),
        ];
        Private::new(
            words
                .into_iter()
                .chain([("engine\n", "MACHINE")])
                .map(|(word, name)| (word.to_owned(), name)),
        )
    }

    #[test]
    fn users_machines_and_folders_are_replaced() {
        let text = "error: /srv/ada/lapidary/src/gpu.rs, by ada on engine, in /srv/ada/.cache";
        let clean = private().without(text);
        assert_eq!(
            clean,
            "error: FOLDER/src/gpu.rs, by USER on MACHINE, in FOLDER/.cache"
        );
        assert_eq!(private().found_in(text), Some("/srv/ada/lapidary"));
        assert_eq!(private().found_in(&clean), None);
    }

    #[test]
    fn words_that_only_hold_such_a_word_stay() {
        let text = "adapter: Ada Lovelace (AD102), the engine's tests: engine_order";
        // The machine's name is an ordinary word and is removed everywhere, which is safer.
        assert_eq!(
            private().without(text),
            "adapter: Ada Lovelace (AD102), the MACHINE's tests: engine_order"
        );
    }
}
