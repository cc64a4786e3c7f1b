//! The search of the page, in a browser and by its own controls: its vectors are PyTorch's, also in
//! a small budget and with smaller weights; what means the same is found; what cannot be is a
//! sentence, after which it goes on.

use std::time::Duration;

use super::test::{expect, is_quiet_but_for, wait};
use crate::browser::{Browser, WEBGPU};
use crate::process::{Result, target_dir};

/// The software adapter computes on the machine's cores, and compiles first.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the page's own script has not.
const SCRIPT: &str = include_str!("search.js");

/// So many of the texts that PyTorch has computed, which is all but the four longest; and where
/// fewer do.
const GOLDEN: usize = 21;
const SHORT: usize = 3;

/// So many of the page's texts are indexed once all of them have been.
const FEW: usize = 3;

/// About half of the weights, in MiB.
const BUDGET_MIB: u64 = 43;

/// What is searched for, and the beginning of the text that means it: of the page's 40.
const QUERIES: [(&str, &str); 3] = [
    ("a pet takes a nap", "The cat slept"),
    ("RAM usage grows without end", "The program keeps asking"),
    ("staying calm on stage", "Breathe slowly"),
];

/// A file that is something else, and what the page says of that.
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

/// Where there is no model beside the page, it says how to get one.
pub(super) fn without_model(site: &str) -> Result {
    let mut browser = Browser::start_with(&target_dir().join("web-browser"), WEBGPU, Some(site))?;
    browser.open_url(site, PATIENCE)?;
    browser.evaluate(&format!("(() => {{{SCRIPT}}})()"))?;
    press(&mut browser, "load", "There is no model beside this page")?;
    // The browser tells its console as much.
    is_quiet_but_for(&browser, "status of 404")
}

/// Runs it on a page that is open, beside which there is the model.
pub(super) fn search(browser: &mut Browser) -> Result<String> {
    browser.look("light", [960, 1280])?;
    browser.evaluate(&format!("(() => {{{SCRIPT}}})()"))?;
    press(browser, "load", "The model is here")?;
    let cosine = whole(browser)?;
    nonsense(browser)?;
    // It is the same with fewer texts, and the software adapter takes its time.
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

/// With room for about half of them, nothing is another but where they are.
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

/// What cannot be done is a sentence.
fn nonsense(browser: &mut Browser) -> Result {
    expect(
        browser,
        "(await lapidary.search.query(' ', 5).catch(error => error.message)).includes('type some words')",
        "a query of nothing is refused",
    )?;
    expect(
        browser,
        "(await lapidary.search.query('word '.repeat(10000), 5)).cut_from === 10002",
        "of a long query the beginning is looked for",
    )?;
    // A layer's matrix has more.
    for (budget_mib, says) in [
        (1, "the operands and results of one operation"),
        (-1, "a budget is 1 to"),
    ] {
        browser.evaluate(&format!("searching.part('budget').value = {budget_mib}"))?;
        press(browser, "index", says)?;
    }
    browser.evaluate("searching.part('budget').value = ''")?;
    Ok(())
}

/// A device that is gone, and files that are no model, are told of; and it goes on with the right
/// files, and where the device is gone before there are texts.
fn again(browser: &mut Browser) -> Result {
    browser.evaluate("lapidary.destroyDevices()")?;
    press(browser, "asking button", "the device is lost")?;
    for (name, change, says) in REFUSED {
        browser.evaluate(&format!("searching.give('{name}', {change})"))?;
        let said = settled(browser)?;
        if !said.contains(says) {
            return Err(format!("of a {name} that is none the search says: {said}"));
        }
        let holds = "!searching.part('index').disabled && searching.part('state').classList.contains('bad')";
        expect(browser, holds, "the model that there was is still there")?;
    }
    browser.evaluate("searching.give()")?;
    let said = settled(browser)?;
    if !said.starts_with("The model is here") {
        return Err(format!("of the model's files the search says: {said}"));
    }
    browser.evaluate("lapidary.destroyDevices()")?;
    browser.evaluate("searching.part('precision').value = 'f32'")?;
    only(browser, 2)?;
    index(browser, "f32, on another device")?;
    finds(browser, QUERIES[0])
}

/// Leaves so many of the texts.
fn only(browser: &mut Browser, count: usize) -> Result {
    let few = format!("searching.part('texts').value.split('\\n', {count}).join('\\n')");
    browser.evaluate(&format!("searching.part('texts').value = {few}"))?;
    Ok(())
}

/// Has the page's texts indexed, and shows what it says of that.
fn index(browser: &mut Browser, how: &str) -> Result {
    let count = browser.evaluate("searching.part('texts').value.trim().split('\\n').length")?;
    let said = press(browser, "index", &format!("{count} texts in"))?;
    println!("  search | {how} | {said}");
    Ok(())
}

/// Types a query, and looks at what is found first.
fn finds(browser: &mut Browser, (query, first): (&str, &str)) -> Result {
    browser.evaluate(&format!("searching.part('query').value = '{query}'"))?;
    press(browser, "asking button", "Found in")?;
    let found = browser.evaluate("searching.part('found li').textContent")?;
    match found.contains(first) {
        true => Ok(()),
        false => Err(format!("`{query}` finds first: {found}")),
    }
}

/// Presses a button, and waits until the page has done what it does; what it says then must begin
/// like this.
fn press(browser: &mut Browser, button: &str, start: &str) -> Result<String> {
    browser.evaluate(&format!("searching.part('{button}').click()"))?;
    let said = settled(browser)?;
    match said.starts_with(start) {
        true => Ok(said),
        false => Err(format!(
            "the search says, where `{start}` is wanted: {said}"
        )),
    }
}

fn settled(browser: &mut Browser) -> Result<String> {
    // Asked all the time, a browser on the cores that compute would have less of them.
    wait(browser, "searching.settled()", PATIENCE)?;
    browser.evaluate("searching.part('state').textContent")
}

/// The least cosine of vectors with PyTorch's of so many texts, if it is not too little.
fn cosine(browser: &mut Browser, vectors: &str, count: usize, least: f64) -> Result<f64> {
    let computed = format!("(async () => searching.cosine({vectors}, {count}))()");
    let text = browser.evaluate(&computed)?;
    match text.parse() {
        Ok(cosine) if cosine >= least => Ok(cosine),
        _ => Err(format!(
            "vectors of the page and PyTorch's have a cosine of {text}, which is less than {least}"
        )),
    }
}
