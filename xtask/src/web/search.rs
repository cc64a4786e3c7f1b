//! The search of the page in a browser, used through its own controls. Its vectors equal PyTorch's,
//! also in a small budget and with smaller weights. Texts of the same meaning are found. Errors are
//! sentences, and the search works after them.

use std::time::Duration;

use super::test::{expect, is_quiet_but_for, wait};
use crate::browser::{Browser, WEBGPU};
use crate::process::{Result, target_dir};

/// The software adapter compiles kernels and computes on the machine's cores.
const PATIENCE: Duration = Duration::from_secs(120);

/// Functions for the test that the page's own script lacks.
const SCRIPT: &str = include_str!("search.js");

/// The number of texts with PyTorch's vectors, all but the four longest; and the smaller number for
/// fast tests.
const GOLDEN: usize = 21;
const SHORT: usize = 3;

/// The number of texts for repeated indexing, after all were indexed once.
const FEW: usize = 3;

/// About half of the weights, in MiB.
const BUDGET_MIB: u64 = 43;

/// Queries, and the beginning of the text with the same meaning, of the page's 40.
const QUERIES: [(&str, &str); 3] = [
    ("a pet takes a nap", "The cat slept"),
    ("RAM usage grows without end", "The program keeps asking"),
    ("staying calm on stage", "Breathe slowly"),
];

/// A file that was replaced, and the page's message about it.
const REFUSED: [(&str, &str, &str); 4] = [
    ("model.safetensors", "file => file.slice(0, 1e6)", "cut off"),
    (
        "model.safetensors",
        "() => null",
        "There is no model.safetensors",
    ),
    (
        "tokenizer.json",
        "() => new Blob(['{}'])",
        "tokenizer.json: no tokenizer",
    ),
    (
        "config.json",
        "() => new Blob([''])",
        "config.json: no description",
    ),
];

/// Without a model beside the page, the page says how to get one.
pub(super) fn without_model(site: &str) -> Result {
    let mut browser = Browser::start_with(&target_dir().join("web-browser"), WEBGPU, Some(site))?;
    browser.open_url(site, PATIENCE)?;
    browser.evaluate(&format!("(() => {{{SCRIPT}}})()"))?;
    press(&mut browser, "load", "There is no model beside this page")?;
    // The browser reports the missing file on its console too.
    is_quiet_but_for(&browser, "status of 404")
}

/// Tests the search on an open page with the model beside it.
pub(super) fn search(browser: &mut Browser) -> Result<String> {
    browser.look("light", [960, 1280])?;
    browser.evaluate(&format!("(() => {{{SCRIPT}}})()"))?;
    press(browser, "load", "The model is here")?;
    let cosine = whole(browser)?;
    nonsense(browser)?;
    // Fewer texts test the same, and the software adapter is slow.
    only(browser, FEW)?;
    in_a_budget(browser)?;
    smaller_weights(browser)?;
    again(browser)?;
    expect(
        browser,
        "lapidary.errors.length === 0",
        "no error went uncaught",
    )?;
    Ok(format!(
        "the search finds what is meant, with vectors that are PyTorch's to a cosine of {cosine:.8}"
    ))
}

/// With all weights on the device.
fn whole(browser: &mut Browser) -> Result<f64> {
    index(browser, "f32")?;
    for query in QUERIES {
        finds(browser, query)?;
    }
    browser.evaluate("searching.section.scrollIntoView()")?;
    browser.screenshot(&target_dir().join("web-search.png"))?;
    let vectors = format!("searching.free = await searching.vectors({GOLDEN})");
    browser.evaluate(&format!("(async () => {{ {vectors}; }})()"))?;
    cosine(browser, "searching.free", GOLDEN, 0.99999)
}

/// With memory for about half of the weights, the results are the same.
fn in_a_budget(browser: &mut Browser) -> Result {
    browser.evaluate(&format!("searching.part('budget').value = {BUDGET_MIB}"))?;
    index(browser, &format!("f32 in {BUDGET_MIB} MiB"))?;
    finds(browser, QUERIES[0])?;
    let holds = [
        (
            format!(
                "(await searching.vectors({SHORT})).every((number, at) => Math.abs(number - searching.free[at]) < 1e-6)"
            ),
            "the vectors are the same in a small budget",
        ),
        (
            format!("lapidary.search.peak_bytes() <= {BUDGET_MIB} * 2 ** 20"),
            "the budget was kept",
        ),
        (
            format!("lapidary.search.weights_bytes() > 1.9 * {BUDGET_MIB} * 2 ** 20"),
            "the budget is about half of the weights",
        ),
    ];
    for (expression, what) in holds {
        expect(browser, &expression, what)?;
    }
    browser.evaluate("searching.part('budget').value = ''")?;
    Ok(())
}

fn smaller_weights(browser: &mut Browser) -> Result {
    for (precision, least) in [("f16", 0.9999), ("int8", 0.995)] {
        browser.evaluate(&format!(
            "searching.part('precision').value = '{precision}'"
        ))?;
        index(browser, precision)?;
        finds(browser, QUERIES[0])?;
        let vectors = format!("await searching.vectors({SHORT})");
        cosine(browser, &vectors, SHORT, least)?;
    }
    Ok(())
}

/// Impossible requests give sentences.
fn nonsense(browser: &mut Browser) -> Result {
    expect(
        browser,
        "(await lapidary.search.query(' ', 5).catch(error => error.message)).includes('type some words')",
        "an empty query is refused",
    )?;
    expect(
        browser,
        "(await lapidary.search.query('word '.repeat(10000), 5)).cut_from === 10002",
        "a long query is cut",
    )?;
    // A matrix of one layer is larger.
    let what = "a command with operands and results";
    for (budget_mib, start, part) in [
        (1, "add for the tensor made at ", what),
        (-1, "a budget is 1 to", ""),
    ] {
        browser.evaluate(&format!("searching.part('budget').value = {budget_mib}"))?;
        let said = press(browser, "index", start)?;
        if !said.contains(part) {
            return Err(format!("the search should say `{part}`, but says: {said}"));
        }
    }
    browser.evaluate("searching.part('budget').value = ''")?;
    Ok(())
}

/// A lost device and invalid files are reported. The search works again with the right files, and
/// after a loss before the first index.
fn again(browser: &mut Browser) -> Result {
    browser.evaluate("lapidary.destroyDevices()")?;
    press(browser, "asking button", "the device is lost")?;
    for (name, change, says) in REFUSED {
        browser.evaluate(&format!("searching.give('{name}', {change})"))?;
        let said = settled(browser)?;
        if !said.contains(says) {
            return Err(format!("after an invalid {name} the search says: {said}"));
        }
        let holds = "!searching.part('index').disabled && searching.part('state').classList.contains('bad')";
        expect(browser, holds, "the previous model is still there")?;
    }
    browser.evaluate("searching.give()")?;
    let said = settled(browser)?;
    if !said.starts_with("The model is here") {
        return Err(format!("after the model's files the search says: {said}"));
    }
    browser.evaluate("lapidary.destroyDevices()")?;
    browser.evaluate("searching.part('precision').value = 'f32'")?;
    only(browser, 2)?;
    index(browser, "f32, on another device")?;
    finds(browser, QUERIES[0])
}

/// Limits the number of texts.
fn only(browser: &mut Browser, count: usize) -> Result {
    let few = format!("searching.part('texts').value.split('\\n', {count}).join('\\n')");
    browser.evaluate(&format!("searching.part('texts').value = {few}"))?;
    Ok(())
}

/// Indexes the page's texts and prints the page's message.
fn index(browser: &mut Browser, how: &str) -> Result {
    let count = browser.evaluate("searching.part('texts').value.trim().split('\\n').length")?;
    let said = press(browser, "index", &format!("{count} texts in"))?;
    println!("  search | {how} | {said}");
    Ok(())
}

/// Types a query and checks the first result.
fn finds(browser: &mut Browser, (query, first): (&str, &str)) -> Result {
    browser.evaluate(&format!("searching.part('query').value = '{query}'"))?;
    press(browser, "asking button", "Found in")?;
    let found = browser.evaluate("searching.part('found li').textContent")?;
    match found.contains(first) {
        true => Ok(()),
        false => Err(format!("`{query}` finds first: {found}")),
    }
}

/// Presses a button and waits until the page has finished. The page's message must begin with
/// `start`.
fn press(browser: &mut Browser, button: &str, start: &str) -> Result<String> {
    browser.evaluate(&format!("searching.part('{button}').click()"))?;
    let said = settled(browser)?;
    match said.starts_with(start) {
        true => Ok(said),
        false => Err(format!("the search should say `{start}`, but says: {said}")),
    }
}

fn settled(browser: &mut Browser) -> Result<String> {
    // Frequent polling would take time from the cores that compute.
    wait(browser, "searching.settled()", PATIENCE)?;
    browser.evaluate("searching.part('state').textContent")
}

/// The least cosine between the vectors and PyTorch's of `count` texts; an error if it is below
/// `least`.
fn cosine(browser: &mut Browser, vectors: &str, count: usize, least: f64) -> Result<f64> {
    let computed = format!("(async () => searching.cosine({vectors}, {count}))()");
    let text = browser.evaluate(&computed)?;
    match text.parse() {
        Ok(cosine) if cosine >= least => Ok(cosine),
        _ => Err(format!(
            "the cosine between the page's and PyTorch's vectors is {text}, below {least}"
        )),
    }
}
