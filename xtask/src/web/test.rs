//! The page in Chromium without a window, on its software adapter: the test that it runs itself, and what it
//! says where there is no WebGPU.

use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::serve;
use crate::browser::{Browser, WEBGPU};
use crate::process::{Result, target_dir};

/// The software adapter compiles some hundred kernels, on machines with two cores.
const PATIENCE: Duration = Duration::from_secs(240);

/// Tests the page in that folder. Returns what was found, in a few words.
pub(crate) fn test(folder: &Path) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0");
    let listener = listener.map_err(|error| format!("no port can be had: {error}."))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let served = folder.to_owned();
    // It ends with this program.
    thread::spawn(move || serve::serve(&listener, &served));
    let site = format!("http://{address}");
    let found = with_webgpu(&site)?;
    without_webgpu(&site)?;
    Ok(found)
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
    let (parts, slabs) = (
        number(&mut browser, "parts")?,
        number(&mut browser, "snapshot")?,
    );
    if parts < 20.0 || slabs < 1.0 {
        return Err(format!(
            "the page tested {parts} parts, and its snapshot has {slabs} slabs."
        ));
    }
    is_quiet(&browser)?;
    Ok(format!(
        "{parts} parts good in {:.0} s",
        number(&mut browser, "seconds")?
    ))
}

/// The same page in a browser without: it says so, and loads nothing.
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
    // The browser itself tells its console as much.
    is_quiet_but_for(&browser, "No available adapters.")
}

fn is_quiet(browser: &Browser) -> Result {
    is_quiet_but_for(browser, "\0")
}

fn is_quiet_but_for(browser: &Browser, known: &str) -> Result {
    let complaints: Vec<_> = (browser.complaints().iter())
        .filter(|complaint| !complaint.contains(known))
        .collect();
    match complaints[..] {
        [] => Ok(()),
        [first, ..] => Err(format!("the page complains, or asks the network: {first}")),
    }
}
