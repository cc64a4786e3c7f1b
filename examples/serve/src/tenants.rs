//! Who may ask: names, keys and weights.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};

/// Most tenants: each has its own numbers in the metrics.
const MOST_TENANTS: usize = 1000;
const MOST_WEIGHT: u32 = 1000;
/// Shorter keys are guessed.
const LEAST_KEY_BYTES: usize = 16;

/// A tenant, as the file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Its name in metrics and logs.
    pub name: String,
    /// Its key, which requests carry.
    pub key: String,
    /// Its part of the device's time, relative to others that ask at the same time.
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

/// All tenants, by key.
#[derive(Debug)]
pub struct Tenants {
    all: Vec<Tenant>,
    by_key: HashMap<String, usize>,
}

impl Tenants {
    /// Reads a file of JSON: `[{"name": "…", "key": "…", "weight": 1}]`.
    ///
    /// # Errors
    /// [`Error::File`], and those of [`new`](Self::new).
    pub fn read(path: &Path) -> Result<Tenants> {
        let explain = |reason: String| Error::File {
            path: path.to_owned(),
            reason,
        };
        let text = std::fs::read(path).map_err(|error| explain(error.to_string()))?;
        let all = serde_json::from_slice(&text)
            .map_err(|error| explain(format!("no list of tenants ({error})")))?;
        Tenants::new(all)
    }

    /// # Errors
    /// [`Error::Tenants`] if there is none, or two have one name or key, or a key or a weight makes
    /// no sense. The error names tenants and never their keys.
    pub fn new(all: Vec<Tenant>) -> Result<Tenants> {
        let refuse = |reason: String| Err(Error::Tenants(reason));
        if all.is_empty() || all.len() > MOST_TENANTS {
            return refuse(format!(
                "{} tenants are given, and 1 to {MOST_TENANTS} can be",
                all.len()
            ));
        }
        let (mut by_key, mut names) = (HashMap::new(), HashSet::new());
        for (at, tenant) in all.iter().enumerate() {
            let name = &tenant.name;
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || name.len() > 60 || !name.chars().all(is_plain) {
                return refuse(format!(
                    "the tenant {name:?} needs a name of 1 to 60 letters, digits, `-`, `_` and `.`"
                ));
            }
            let key = &tenant.key;
            if key.len() < LEAST_KEY_BYTES || !key.chars().all(|c| c.is_ascii_graphic()) {
                return refuse(format!(
                    "the tenant `{name}` needs a key of at least {LEAST_KEY_BYTES} visible ASCII \
                     characters"
                ));
            }
            if !(1..=MOST_WEIGHT).contains(&tenant.weight) {
                return refuse(format!(
                    "the weight of the tenant `{name}` is {}, and 1 to {MOST_WEIGHT} are possible",
                    tenant.weight
                ));
            }
            if !names.insert(name) {
                return refuse(format!("two tenants have the name `{name}`"));
            }
            if let Some(other) = by_key.insert(key.clone(), at) {
                let other = &all[other].name;
                return refuse(format!("the tenants `{other}` and `{name}` have one key"));
            }
        }
        Ok(Tenants { all, by_key })
    }

    /// The number of the tenant with this key.
    pub(crate) fn find(&self, key: &str) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn name(&self, tenant: usize) -> &str {
        &self.all[tenant].name
    }

    pub(crate) fn weights(&self) -> Vec<u32> {
        self.all.iter().map(|tenant| tenant.weight).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Tenants, String> {
        let all: Vec<Tenant> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Tenants::new(all).map_err(|error| error.to_string())
    }

    #[test]
    fn tenants_are_found_by_their_key_only() {
        let text = r#"[{"name": "a", "key": "0123456789abcdef"},
                       {"name": "b", "key": "0123456789abcdeF", "weight": 3}]"#;
        let tenants = parsed(text).unwrap();
        assert_eq!(tenants.find("0123456789abcdeF"), Some(1));
        assert_eq!(tenants.weights(), [1, 3]);
        for key in ["", "a", "0123456789abcde", "0123456789abcdef "] {
            assert_eq!(tenants.find(key), None);
        }
    }

    #[test]
    fn tenants_that_contradict_each_other_are_refused_without_their_keys() {
        let key = "0123456789abcdef";
        for (text, part) in [
            ("[]".to_owned(), "0 tenants"),
            (
                format!(r#"[{{"name": "", "key": "{key}"}}]"#),
                "needs a name",
            ),
            (
                format!(r#"[{{"name": "a\n", "key": "{key}"}}]"#),
                "needs a name",
            ),
            (
                r#"[{"name": "a", "key": "short"}]"#.to_owned(),
                "needs a key",
            ),
            (
                format!(r#"[{{"name": "a", "key": "{key}é"}}]"#),
                "needs a key",
            ),
            (
                format!(r#"[{{"name": "a", "key": "{key}", "weight": 0}}]"#),
                "is 0",
            ),
            (
                format!(r#"[{{"name": "a", "key": "{key}"}}, {{"name": "a", "key": "{key}x"}}]"#),
                "the name `a`",
            ),
            (
                format!(r#"[{{"name": "a", "key": "{key}"}}, {{"name": "b", "key": "{key}"}}]"#),
                "`a` and `b` have one key",
            ),
            (
                format!(r#"[{{"name": "a", "key": "{key}", "wait": 1}}]"#),
                "wait",
            ),
        ] {
            let refused = parsed(&text).unwrap_err();
            assert!(refused.contains(part), "{refused}");
            assert!(!refused.contains(key), "{refused}");
        }
    }
}
