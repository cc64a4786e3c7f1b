//! Names that are similar to a missing one.

/// Most names that an error shows.
const SHOWN: usize = 3;

/// Counting letters takes long, so it is left out for files with more tensors, and for longer
/// names.
const MOST_NAMES: usize = 10_000;
const MOST_LEN: usize = 200;

/// The text of the error: the name is missing, and these are near.
pub(super) fn missing<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let (mut near, mut count) = (Vec::new(), 0);
    for other in names {
        count += 1;
        if let Some(distance) = distance(name, other, count <= MOST_NAMES) {
            near.push((distance, other));
            near.sort_by_key(|&(distance, _)| distance);
            near.truncate(SHOWN);
        }
    }
    let name = lapidary_core::internal::printable(name, 100);
    let mut text = format!("none of its {count} tensors is called {name}");
    for (at, (_, other)) in near.iter().enumerate() {
        text += if at == 0 { "; there is " } else { ", " };
        text += &lapidary_core::internal::printable(other, 100);
    }
    text
}

/// The distance between two names; `None` if it is too large. It is 0 if one name ends with the
/// other at a dot, as where a model is a part of another. It is also 0 if the other continues after
/// a dot, as `q_proj.weight` does. Otherwise it is the number of letters to change.
fn distance(name: &str, other: &str, counts_letters: bool) -> Option<usize> {
    let is_part = |whole: &str, part: &str| {
        whole
            .strip_suffix(part)
            .is_some_and(|rest| rest.ends_with('.'))
    };
    let rest = other.strip_prefix(name);
    let begins_with_it = rest.is_some_and(|rest| rest.starts_with('.'));
    if begins_with_it || is_part(name, other) || is_part(other, name) {
        return Some(0);
    }
    let most = 2 + name.len() / 8;
    let is_long = name.len().max(other.len()) > MOST_LEN;
    if !counts_letters || is_long || name.len().abs_diff(other.len()) > most {
        return None;
    }
    let (name, other) = (name.as_bytes(), other.as_bytes());
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in name.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().filter(|&distance| distance <= most)
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[track_caller]
    fn check(name: &str, names: &[&str], expected: &str) {
        assert_eq!(missing(name, names.iter().copied()), expected);
    }

    #[test]
    fn names_that_are_like_it_are_told() {
        check("a", &[], "none of its 0 tensors is called a");
        check(
            "bert.pooler.bias",
            &["x", "pooler.bias", "cooler.bias"],
            "none of its 3 tensors is called bert.pooler.bias; there is pooler.bias",
        );
        check(
            "layer.0.wieght",
            &["layer.9.bias", "layer.1.weight", "layer.0.weight"],
            "none of its 3 tensors is called layer.0.wieght; there is layer.0.weight, layer.1.weight",
        );
        check(
            "model.layers.0.self_attn.q_proj",
            &[
                "model.layers.0.self_attn.q_projection",
                "model.layers.0.self_attn.q_proj.weight",
            ],
            "none of its 2 tensors is called model.layers.0.self_attn.q_proj; there is \
             model.layers.0.self_attn.q_proj.weight",
        );
        check(
            "w",
            &["a\u{202e}b.w"],
            "none of its 1 tensors is called w; there is a?b.w",
        );
    }
}
