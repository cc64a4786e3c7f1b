//! The page in Chromium without a window, on its software adapter. Runs the page's own test, and
//! checks its messages without WebGPU and without a model.

use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::search::{search, without_model};
use super::serve;
use crate::browser::{Browser, WEBGPU};
use crate::model;
use crate::process::{Result, root, target_dir};

/// The software adapter compiles some hundred kernels, on machines with two cores.
const PATIENCE: Duration = Duration::from_secs(240);

/// Parts of the page's test: all cases, and six things that only a browser has.
const PARTS: f64 = 28.0;

/// Time limit for things that take a moment.
const A_WHILE: Duration = Duration::from_secs(60);

/// Tests the page in this folder. Returns a summary.
pub(crate) fn test(folder: &Path) -> Result<String> {
    let site = |beside| {
        served(serve::Site {
            folder: folder.to_owned(),
            beside,
        })
    };
    let golden = root().join("examples/embed/golden");
    let whole = site(vec![("model", model::folder()), ("golden", golden)])?;
    let found = with_webgpu(&whole)?;
    let bare = site(Vec::new())?;
    without_model(&bare)?;
    without_webgpu(&bare)?;
    Ok(found)
}

/// Serves a page until this program ends. Returns its address.
fn served(site: serve::Site) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0");
    let listener = listener.map_err(|error| format!("no port can be had: {error}."))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    thread::spawn(move || serve::serve(&listener, &site));
    Ok(format!("http://{address}"))
}

fn with_webgpu(site: &str) -> Result<String> {
    let mut browser = Browser::start_with(&target_dir().join("web-browser"), WEBGPU, Some(site))?;
    browser.open_url(&format!("{site}/?test"), PATIENCE)?;
    let tested = browser.evaluate("JSON.stringify(lapidary.tested)")?;
    if tested == "null" {
        let said = browser.evaluate("document.querySelector('#state').textContent")?;
        return Err(format!("the page did not run its test: {said}"));
    }
    for row in browser.evaluate("[...document.querySelectorAll('#test tr')].map(row => [...row.cells].map(cell => cell.textContent).join(' | ')).join(' ;; ')")?.split(" ;; ") {
        println!("  {row}");
    }
    let failed = browser.evaluate("lapidary.tested.failed.join('; ')")?;
    if !failed.is_empty() {
        return Err(format!("the page's test failed: {failed}"));
    }
    let number = |browser: &mut Browser, of: &str| -> Result<f64> {
        let text = browser.evaluate(&format!("lapidary.tested.{of}"))?;
        text.parse()
            .map_err(|_| format!("`{of}` is no number: {text}."))
    };
    let [parts, slabs, seconds] =
        ["parts", "snapshot", "seconds"].map(|of| number(&mut browser, of));
    let (parts, slabs, seconds) = (parts?, slabs?, seconds?);
    if parts < PARTS || slabs < 1.0 {
        return Err(format!(
            "the page tested {parts} parts, and its snapshot has {slabs} slabs."
        ));
    }
    fluid(&mut browser, site)?;
    let found = match model::is_there() {
        true => search(&mut browser)?,
        false => "its search was NOT TESTED: `cargo xtask fetch-model` gets the model".into(),
    };
    is_quiet(&browser)?;
    Ok(format!(
        "{parts} parts good in {seconds:.0} s, and the fluid flows; {found}"
    ))
}

/// The fluid flows, the pointer stirs it, it is visible, and the page reports its memory. A lost
/// device is reported too.
fn fluid(browser: &mut Browser, site: &str) -> Result {
    browser.open_url(site, PATIENCE)?;
    browser.evaluate("document.querySelector('#fluid button').click()")?;
    wait_until(browser, "lapidary.fluid?.frames > 20")?;
    let corner = "document.querySelector('#fluid canvas').getBoundingClientRect()";
    let mut side = |side: &str| -> Result<f64> {
        let text = browser.evaluate(&format!("{corner}.{side}"))?;
        text.parse()
            .map_err(|_| format!("the canvas is nowhere: {text}."))
    };
    let (left, top) = (side("left")?, side("top")?);
    for step in 0..12 {
        let across = f64::from(step) * 20.0;
        browser.mouse(
            "mouseMoved",
            [left + 100.0 + across, top + 80.0 + across / 2.0],
            0.0,
        )?;
    }
    browser.evaluate("document.querySelector('#fluid button').click()")?;
    wait_until(
        browser,
        "!lapidary.fluid.isRunning && !lapidary.fluid.isBusy",
    )?;
    let holds = [
        (
            "(await lapidary.fluid.simulation.dye()).every(sum => sum > 1 && sum < 1e9)",
            "there is dye of every colour",
        ),
        (
            "document.querySelector('#fluid pre').textContent.includes('fluid')",
            "the report names the holders of memory",
        ),
        ("lapidary.errors.length === 0", "no error went uncaught"),
        (SEEN, "the canvas shows many colours"),
    ];
    for (expression, what) in holds {
        expect(browser, expression, what)?;
    }
    browser.screenshot(&target_dir().join("web-fluid.png"))?;
    let before = browser.evaluate("lapidary.fluid.frames")?;
    browser.evaluate("document.querySelector('#fluid button').click()")?;
    wait_until(browser, &format!("lapidary.fluid.frames > {before}"))?;
    browser.evaluate("lapidary.destroyDevices()")?;
    wait_until(
        browser,
        "document.querySelector('#state').textContent.includes('The fluid stopped')",
    )?;
    // The fluid flows again on another device.
    browser.evaluate("document.querySelector('#fluid button').click()")?;
    wait_until(browser, "lapidary.fluid?.frames > 2")
}

/// Whether the canvas has more than a few colours.
const SEEN: &str = "(canvas => new Set(new Uint32Array(canvas.getContext('2d') \
    .getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size > 50)(document.querySelector('#fluid canvas'))";

/// Checks a condition on the page.
pub(super) fn expect(browser: &mut Browser, expression: &str, what: &str) -> Result {
    let is_so = browser.evaluate(&format!("(async () => {expression})()"))?;
    match is_so == "true" {
        true => Ok(()),
        false => Err(format!("not true on the page: {what} ({is_so}).")),
    }
}

fn wait_until(browser: &mut Browser, condition: &str) -> Result {
    wait(browser, condition, A_WHILE)
}

pub(super) fn wait(browser: &mut Browser, condition: &str, patience: Duration) -> Result {
    let until = Instant::now() + patience;
    while Instant::now() < until {
        if browser.evaluate(condition)? == "true" {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    let said = browser.evaluate("`${document.querySelector('#state').textContent} (${lapidary.fluid?.frames} frames, ${lapidary.errors})`")?;
    Err(format!(
        "`{condition}` does not become true; the page says: {said}"
    ))
}

/// The page in a browser without WebGPU says so and loads nothing.
fn without_webgpu(site: &str) -> Result {
    let mut browser = Browser::start_with(
        &target_dir().join("web-browser"),
        &["--disable-gpu"],
        Some(site),
    )?;
    browser.open_url(&format!("{site}/?test"), PATIENCE)?;
    let said = browser.evaluate("document.querySelector('#state').textContent")?;
    if !said.starts_with("This browser has no WebGPU") {
        return Err(format!("without WebGPU the page says: {said}"));
    }
    // The browser reports it on its console too.
    is_quiet_but_for(&browser, "No available adapters.")
}

fn is_quiet(browser: &Browser) -> Result {
    is_quiet_but_for(browser, "\0")
}

pub(super) fn is_quiet_but_for(browser: &Browser, known: &str) -> Result {
    let complaints: Vec<_> = (browser.complaints().iter())
        .filter(|complaint| !complaint.contains(known))
        .collect();
    match complaints[..] {
        [] => Ok(()),
        [first, ..] => Err(format!("the page complains, or asks the network: {first}")),
    }
}
