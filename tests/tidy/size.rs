//! How long files and functions may be.

use crate::source::{Source, past_closing, words};

/// No file is longer than this.
const MOST_LINES: usize = 600;
/// Longer files are rare: one in ten.
const MANY_LINES: usize = 400;
const LONG_FILES_PER_HUNDRED: usize = 10;

/// A newcomer can read all names at the root of a crate.
const MOST_ROOT_NAMES: usize = 40;

/// A function fits on a screen, or on one and a half.
const MOST_FUNCTION_LINES: usize = 80;

/// No file is too long, and few are long.
pub(crate) fn check_files(files: &[Source]) -> Vec<String> {
    let lines = |file: &Source| file.text.lines().count();
    let mut offences = Vec::new();
    for file in files.iter().filter(|file| lines(file) > MOST_LINES) {
        offences.push(format!(
            "{}: {} lines, at most {MOST_LINES}",
            file.path,
            lines(file)
        ));
    }
    let long: Vec<_> = files
        .iter()
        .filter(|file| lines(file) > MANY_LINES)
        .collect();
    if long.len() * 100 > files.len() * LONG_FILES_PER_HUNDRED {
        let names: Vec<_> = long
            .iter()
            .map(|file| format!("{} ({})", file.path, lines(file)))
            .collect();
        offences.push(format!(
            "{} of {} files are over {MANY_LINES} lines, at most {LONG_FILES_PER_HUNDRED} %: {}",
            long.len(),
            files.len(),
            names.join(", ")
        ));
    }
    offences
}

/// The root of a crate has few names.
pub(crate) fn check_roots(files: &[Source]) -> Vec<String> {
    let roots = files
        .iter()
        .filter(|file| file.path.ends_with("src/lib.rs"));
    let mut offences = Vec::new();
    for root in roots {
        let count = root_names(&root.code);
        if count > MOST_ROOT_NAMES {
            offences.push(format!(
                "{}: {count} public names, at most {MOST_ROOT_NAMES}",
                root.path
            ));
        }
    }
    offences
}

/// The number of modules and re-exports that are public at the top of a file.
fn root_names(code: &str) -> usize {
    let at_top = |text: &str| -> Vec<usize> {
        let all = code.match_indices(text).map(|(offset, _)| offset);
        all.filter(|&offset| offset == 0 || code[..offset].ends_with('\n'))
            .collect()
    };
    let uses = at_top("pub use ").into_iter().map(|offset| {
        let (statement, _) = code[offset..]
            .split_once(';')
            .unwrap_or((&code[offset..], ""));
        // Each name ends at a comma or a brace, whatever the depth.
        let names = statement.split([',', '{', '}']).map(str::trim);
        names
            .filter(|name| !name.is_empty() && !name.ends_with("::"))
            .count()
    });
    at_top("pub mod ").len() + uses.sum::<usize>()
}

/// No function is too long, counted from its `fn` to its closing brace.
pub(crate) fn check_functions(files: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
        for start in words(&file.code, "fn") {
            let Some(open) = body(&file.code, start) else {
                continue;
            };
            let end = past_closing(&file.code, open);
            let lines = file.code[start..end].lines().count();
            if lines > MOST_FUNCTION_LINES {
                let what = format!("a function of {lines} lines, at most {MOST_FUNCTION_LINES}");
                offences.push(file.offence(start, &what));
            }
        }
    }
    offences
}

/// The offset at which the body of the function at `start` opens. None for a type or a declaration.
fn body(code: &str, start: usize) -> Option<usize> {
    let is_named = code[start + 2..]
        .trim_start()
        .starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut depth = 0;
    for (offset, byte) in code
        .bytes()
        .enumerate()
        .skip(start)
        .take_while(|_| is_named)
    {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(offset),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
fn files_of(lengths: &[usize]) -> Vec<Source> {
    lengths
        .iter()
        .map(|lines| Source::new("src/a.rs", &"\n".repeat(*lines)))
        .collect()
}

#[test]
fn a_file_that_is_too_long_is_found() {
    let short = [10; 20];
    assert_eq!(check_files(&files_of(&short)).len(), 0);
    assert_eq!(
        check_files(&files_of(&[&short[..], &[600]].concat())).len(),
        0
    );
    assert_eq!(
        check_files(&files_of(&[&short[..], &[601]].concat())).len(),
        1
    );
}

#[test]
fn too_many_long_files_are_found() {
    assert_eq!(check_files(&files_of(&[401; 1])).len(), 1);
    assert_eq!(
        check_files(&files_of(&[&[10; 9][..], &[401; 1]].concat())).len(),
        0
    );
    assert_eq!(
        check_files(&files_of(&[&[10; 9][..], &[401; 2]].concat())).len(),
        1
    );
}

#[test]
fn a_function_that_is_too_long_is_found() {
    let found = |text: &str| check_functions(&[Source::new("src/a.rs", text)]).len();
    let function =
        |lines: usize| format!("fn f(a: [u8; 4]) -> u8 {{{}}}\n", "\n".repeat(lines - 1));
    assert_eq!(found(&function(80)), 0);
    assert_eq!(found(&function(81)), 1);
    assert_eq!(found(&format!("impl A {{ {} }}", function(90))), 1);
    // Braces in strings, characters and comments do not end a function.
    assert_eq!(
        found(&format!(
            "fn f() {{ \"}}\"; '}}'; // }}\n{}}}",
            "\n".repeat(90)
        )),
        1
    );
    // Types and declarations have no body.
    assert_eq!(
        found(&format!(
            "type F = fn(u8);\ntrait T {{ fn f(&self);\n{}}}",
            "\n".repeat(90)
        )),
        0
    );
}

#[test]
fn names_at_a_root_are_counted_whatever_their_depth() {
    assert_eq!(root_names("mod a;\npub mod b;\npub use c;\n"), 2);
    assert_eq!(root_names("pub use d::{A, B};\npub use e as f;\n"), 3);
    let deep =
        "pub use self::{\n    a::{A, B},\n    c::C,\n};\npub mod d {\n    pub use x::X;\n}\n";
    assert_eq!(root_names(deep), 4);
    let wide = format!("pub use a::{{{}}};", "A, ".repeat(MOST_ROOT_NAMES + 1));
    assert_eq!(check_roots(&[Source::new("src/lib.rs", &wide)]).len(), 1);
}
