//! The search of the page, in a browser and by its own controls: its vectors are PyTorch's, in a small budget too;
//! what means the same is found; what cannot be is a sentence, after which it works again.

use std::time::Duration;

use super::test::{expect, wait};
use crate::browser::Browser;
use crate::process::{Result, target_dir};

/// The software adapter computes on the machine's cores, and compiles first.
const PATIENCE: Duration = Duration::from_secs(120);

/// About half of the weights, in MiB.
const BUDGET_MIB: u64 = 43;

/// What the page's script has not, and the test needs: vectors beside PyTorch's, and files of one's own.
const SCRIPT: &str = "
globalThis.searching = {
  section: document.querySelector('#search'),
  part(name) { return this.section.querySelector('.' + name); },
  said() { return this.part('state').textContent; },
  async vectors(count) {
    const texts = await (await fetch('golden/texts.json')).json();
    return lapidary.search.vectors(texts.slice(0, count).map(golden => golden.text));
  },
  async cosine(count) {
    const ours = await this.vectors(count);
    const theirs = new Float32Array(await (await fetch('golden/embeddings.f32')).arrayBuffer());
    const width = 384;
    let least = 1;
    for (let at = 0; at < ours.length; at += width) {
      let [dot, a, b] = [0, 0, 0];
      for (let i = at; i < at + width; i++) {
        dot += ours[i] * theirs[i];
        a += ours[i] ** 2;
        b += theirs[i] ** 2;
      }
      least = Math.min(least, dot / Math.sqrt(a * b));
    }
    return ours.length === count * width ? least : NaN;
  },
  async give(changed) {
    const files = new DataTransfer();
    for (const name of ['config.json', 'tokenizer.json', 'model.safetensors']) {
      const file = await (await fetch('model/' + name)).blob();
      files.items.add(new File([changed[name] ? changed[name](file) : file], name));
    }
    this.part('files').files = files.files;
    this.part('files').dispatchEvent(new Event('change'));
  },
  async refusal(promise) {
    return promise.then(() => 'it was not refused', error => error.message);
  },
  fill(name, value) { this.part(name).value = value; },
};";

/// Runs it on a page that is open.
pub(super) fn search(browser: &mut Browser) -> Result<String> {
    browser.evaluate(&format!("(() => {{{SCRIPT}}})()"))?;
    press(browser, "load", "The model is here")?;
    let told = press(browser, "index", "40 texts in")?;
    println!("  search | f32 | {told}");
    finds(browser, "a pet takes a nap", "The cat slept")?;
    browser.evaluate("searching.section.scrollIntoView()")?;
    browser.screenshot(&target_dir().join("web-search.png"))?;
    finds(browser, "RAM usage grows without end", "The program keeps")?;
    finds(browser, "how to stay calm on stage", "Breathe slowly")?;
    let cosine = vectors(browser, 25, 0.99999)?;
    browser.evaluate("searching.vectors(12).then(vectors => { searching.free = vectors; })")?;

    browser.evaluate(&format!("searching.fill('budget', {BUDGET_MIB})"))?;
    let told = press(browser, "index", "40 texts in")?;
    println!("  search | f32 in {BUDGET_MIB} MiB | {told}");
    finds(browser, "a pet takes a nap", "The cat slept")?;
    expect(
        browser,
        "(await searching.vectors(12)).every((number, at) => number === searching.free[at])",
        "vectors in a small budget are the same",
    )?;
    expect(
        browser,
        &format!("lapidary.search.extent()[1] <= {BUDGET_MIB} * 2 ** 20"),
        "the budget was kept",
    )?;
    Ok(format!("{cosine}"))
}

/// Presses a button, and waits until the page has done what it does; what it says must begin like this.
fn press(browser: &mut Browser, button: &str, start: &str) -> Result<String> {
    browser.evaluate(&format!("searching.part('{button}').click()"))?;
    settled(browser, start)
}

fn settled(browser: &mut Browser, start: &str) -> Result<String> {
    wait(browser, "!searching.section.querySelector('fieldset').disabled", PATIENCE)?;
    let said = browser.evaluate("searching.said()")?;
    match said.starts_with(start) {
        true => Ok(said),
        false => Err(format!("the search should say `{start} ...`, and says: {said}")),
    }
}

/// Types a query, and looks at what is found first.
fn finds(browser: &mut Browser, query: &str, first: &str) -> Result {
    browser.evaluate(&format!("searching.fill('query', '{query}')"))?;
    browser.evaluate("searching.section.querySelector('.asking button').click()")?;
    settled(browser, "Found in")?;
    let found = browser.evaluate("searching.part('found').textContent")?;
    let text = found.trim_start_matches(|letter: char| !letter.is_alphabetic());
    match text.starts_with(first) {
        true => Ok(()),
        false => Err(format!("`{query}` finds first: {found}")),
    }
}

/// The least cosine with PyTorch's vectors of the first texts.
fn vectors(browser: &mut Browser, count: usize, least: f64) -> Result<f64> {
    let text = browser.evaluate(&format!("searching.cosine({count})"))?;
    match text.parse() {
        Ok(cosine) if cosine >= least => Ok(cosine),
        _ => Err(format!(
            "the vectors of {count} texts have a cosine of {text} with PyTorch's, not {least}"
        )),
    }
}
