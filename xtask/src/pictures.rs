//! `pictures`: the pictures of the documentation, made by the programs that they show. Nightly
//! compares them with what these programs show now.
//!
//! Times and bytes of the run differ each time, and fonts differ between machines. So the words of
//! the page are kept beside the picture, without numbers, and these are compared.

use std::fs;
use std::path::{Path, PathBuf};

use crate::browser::Browser;
use crate::driver::cargo_with_gpu;
use crate::process::{Result, root, run, target_dir};
use crate::suite::FEATURES;

/// Width and height of a page.
pub(crate) const SIZE: [u32; 2] = [1440, 1060];

/// The colour schemes, with the ends of the pictures' names.
const SCHEMES: [(&str, &str); 2] = [("light", ""), ("dark", "-dark")];

/// The first part of the names of the pictures and of their words, in `docs`.
const NAME: &str = "snapshot-viewer";

/// Every text that a reader of the picture sees, once, with `#` for numbers and `.` for letters
/// beyond ASCII. The lanes are drawn, and tags are the example's.
const WORDS: &str = "(() => { \
    const texts = [...document.querySelectorAll('h1, h2, .figure > span, button, option, th, label')] \
        .filter(element => !element.closest('[hidden], dialog')) \
        .flatMap(element => [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.textContent)); \
    const all = [...texts, ...lapidary.model.lanes.map(lane => lane.name)]; \
    const plain = all.map(text => text.replace(/[+-]?\\d[\\d,.]*(?: (?:[KMG]iB|B|%|m?s)(?![a-z]))?/g, '#').replace(/[^ -~]/g, '.').trim()); \
    return [...new Set(plain)].filter(Boolean).join('|'); })()";

/// Words of a figure that is there only if the run dropped tensors.
const OF_SOME_RUNS: [&str; 2] = ["dropped", "copies or recipes stay"];

pub(crate) fn pictures(_args: &[String]) -> Result {
    let mut browser = shown()?;
    for (scheme, end) in SCHEMES {
        browser.look(scheme, SIZE)?;
        browser.screenshot(&docs(&format!("{NAME}{end}.png")))?;
    }
    let path = docs(&format!("{NAME}.txt"));
    fs::write(&path, words_of(&mut browser)?)
        .map_err(|error| format!("{}: {error}.", path.display()))
}

/// Are the pictures those of this version?
pub(crate) fn check() -> Result<String> {
    for (_, end) in SCHEMES {
        let path = docs(&format!("{NAME}{end}.png"));
        let png = fs::read(&path).map_err(|error| format!("{}: {error}.", path.display()))?;
        if size_of(&png) != Some(SIZE) {
            return Err(format!("{} is no picture of {SIZE:?}.", path.display()));
        }
    }
    let path = docs(&format!("{NAME}.txt"));
    let known = fs::read_to_string(&path);
    let known = known.map_err(|error| format!("{}: {error}.", path.display()))?;
    let mut browser = shown()?;
    match differing(&known, &words_of(&mut browser)?) {
        None => Ok(format!("{} words as in the picture", known.lines().count())),
        Some(word) => Err(format!(
            "the pictures of the page are of another version, which differs in `{word}`: run \
             `cargo xtask pictures`, and look at them."
        )),
    }
}

/// The words of the page that the browser shows, a line each. The browser escapes other letters.
fn words_of(browser: &mut Browser) -> Result<String> {
    Ok(browser.evaluate(WORDS)?.replace('|', "\n") + "\n")
}

/// The first line that only one of the texts has.
fn differing(known: &str, found: &str) -> Option<String> {
    let only = |of: &str, other: &str| {
        let mut lines = of.lines();
        let is_same =
            |line: &&str| OF_SOME_RUNS.contains(line) || other.lines().any(|one| one == *line);
        let line = lines.find(|line| !is_same(line));
        line.map(str::to_owned)
    };
    only(found, known).or_else(|| only(known, found))
}

/// The page of the example in a browser.
fn shown() -> Result<Browser> {
    let folder = target_dir().join("pictures");
    write_pages(&folder, None)?;
    let mut browser = Browser::start(&folder)?;
    browser.look("light", SIZE)?;
    browser.open(&folder.join("memory.html"))?;
    browser.settle()?;
    Ok(browser)
}

/// Runs the example that writes snapshots and their pages.
pub(crate) fn write_pages(folder: &Path, option: Option<&str>) -> Result {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let mut example = cargo_with_gpu()?;
    example.args(["run", "--release", "--quiet"]).args(FEATURES);
    example.args(["--example", "snapshot", "--"]).arg(folder);
    run(example.args(option))
}

fn docs(name: &str) -> PathBuf {
    root().join("docs").join(name)
}

/// Width and height of a PNG file.
fn size_of(png: &[u8]) -> Option<[u32; 2]> {
    let head = png.strip_prefix(b"\x89PNG\r\n\x1a\n")?.get(8..16)?;
    let number = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?));
    Some([number(0)?, number(4)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_another_version_is_found() {
        assert_eq!(differing("a\nb\n", "b\na\ndropped\n"), None);
        assert_eq!(
            differing("a\nladder\n", "a\nreclaim\n"),
            Some("reclaim".into())
        );
        assert_eq!(differing("a\nladder\n", "a\n"), Some("ladder".into()));
    }

    #[test]
    fn the_pictures_are_there_with_their_words() {
        for (_, end) in SCHEMES {
            let png = fs::read(docs(&format!("{NAME}{end}.png"))).unwrap();
            assert_eq!(size_of(&png), Some(SIZE));
        }
        let words = fs::read_to_string(docs(&format!("{NAME}.txt"))).unwrap();
        let page = root().join("crates/tools/src/page/model.js");
        let model = fs::read_to_string(page).unwrap();
        let (_, lanes) = model.split_once("const LANES = [").unwrap();
        let (lanes, _) = lanes.split_once("];").unwrap();
        for lane in lanes.lines().filter(|line| !line.contains("isOptional")) {
            let Some((_, after)) = lane.split_once("name: \"") else {
                continue;
            };
            let name = after.split('"').next().unwrap();
            let name = name.replace(|letter: char| !letter.is_ascii(), ".");
            assert!(words.lines().any(|word| word == name), "{name} in {words}");
        }
    }
}
