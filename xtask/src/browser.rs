//! Chromium without a window, controlled through a pipe with the DevTools protocol. The few
//! messages here need no JSON parser.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::apt;
use crate::process::{Result, capture, command};

/// The packages on Debian and its derivatives: the browser, and a font.
const PACKAGES: &[&str] = &["chromium", "fonts-dejavu-core"];

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser's message about an exception that the page did not catch.
const THROWN: &str = "Runtime.exceptionThrown";

/// The browser's message when the page's process has ended. The page answers no calls after it.
const CRASHED: &str = "Inspector.targetCrashed";

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<String>,
    session: String,
    calls: u32,
    /// Errors of the page, and its requests to the network.
    complaints: Vec<String>,
    /// The site that the page may load from, in addition to files.
    site: Option<String>,
}

/// Options that give a page WebGPU on a machine without a GPU.
pub(crate) const WEBGPU: &[&str] = &[
    "--enable-unsafe-webgpu",
    "--enable-features=Vulkan",
    "--use-webgpu-adapter=swiftshader",
];

impl Browser {
    /// Starts the browser, if it can be installed. Its files are in `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Browser> {
        Self::start_with(folder, &["--disable-gpu"], None)
    }

    /// As [`start`](Self::start), with additional options, for a page that loads from one site of
    /// this machine.
    pub(crate) fn start_with(
        folder: &Path,
        options: &[&str],
        site: Option<&str>,
    ) -> Result<Browser> {
        let program = find()?;
        let profile = folder.join("profile");
        let _ = fs::remove_dir_all(&profile);
        fs::create_dir_all(&profile).map_err(|error| format!("{}: {error}.", profile.display()))?;
        // The browser reads commands from file 3 and answers on file 4, the two ends of this pipe.
        let mut shell = command("sh");
        shell
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null"])
            .arg(&program)
            .args([
                "--headless",
                "--no-sandbox",
                "--no-first-run",
                "--hide-scrollbars",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-quic",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--remote-debugging-pipe",
            ])
            .args(options)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        shell.stderr(Stdio::null());
        let mut child = shell
            .spawn()
            .map_err(|error| format!("`{program}` cannot be run: {error}."))?;
        let to = child.stdin.take().ok_or("the browser has no input.")?;
        let out = child.stdout.take().ok_or("the browser has no output.")?;
        let mut browser = Browser {
            child,
            to,
            from: messages(out),
            session: String::new(),
            calls: 0,
            complaints: Vec::new(),
            site: site.map(str::to_owned),
        };
        browser.attach()?;
        Ok(browser)
    }

    fn attach(&mut self) -> Result {
        let made = self.call("Target.createTarget", r#"{"url":"about:blank"}"#)?;
        let target = field(&made, "targetId").ok_or("the browser made no page.")?;
        let params = format!(r#"{{"targetId":"{target}","flatten":true}}"#);
        let attached = self.call("Target.attachToTarget", &params)?;
        self.session = field(&attached, "sessionId")
            .ok_or("the browser's page cannot be talked to.")?
            .into();
        for domain in ["Page", "Runtime", "Log", "Network", "DOM", "Inspector"] {
            self.call(&format!("{domain}.enable"), "{}")?;
        }
        Ok(())
    }

    /// Calls a method with parameters in JSON and returns the answer.
    pub(crate) fn call(&mut self, method: &str, params: &str) -> Result<String> {
        self.calls += 1;
        let id = self.calls;
        let session = match self.session.is_empty() {
            true => String::new(),
            false => format!(r#","sessionId":"{}""#, self.session),
        };
        let message =
            format!("{{\"id\":{id},\"method\":\"{method}\",\"params\":{params}{session}}}\0");
        self.to
            .write_all(message.as_bytes())
            .and_then(|()| self.to.flush())
            .map_err(|error| format!("the browser is gone before {method}: {error}."))?;
        let start = format!("{{\"id\":{id},");
        let until = Instant::now() + PATIENCE;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let answer = self.from.recv_timeout(rest).map_err(|error| match error {
                RecvTimeoutError::Timeout => {
                    format!("the browser does not answer to {method} {params}.")
                }
                RecvTimeoutError::Disconnected => {
                    format!("the browser is gone before it answers to {method}.")
                }
            })?;
            if !answer.starts_with(&start) {
                let is_crash = is_event(&answer, CRASHED);
                self.listen(answer);
                if is_crash {
                    return Err(format!("the page crashed before it answers to {method}."));
                }
            } else if answer.contains("\"error\":{") {
                return Err(format!("{method}: {answer}"));
            } else {
                return Ok(answer);
            }
        }
    }

    /// Records messages about errors and network requests.
    fn listen(&mut self, message: String) {
        let is_bad = [
            THROWN,
            CRASHED,
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
        ]
        .iter()
        .any(|method| is_event(&message, method));
        let mut ours = ["file:", "data:", "about:"]
            .into_iter()
            .chain(self.site.as_deref());
        let is_request = is_event(&message, "Network.requestWillBeSent")
            && !ours.any(|ours| message.contains(&format!("\"request\":{{\"url\":\"{ours}")));
        if is_bad || is_request {
            self.complaints.push(message);
        }
    }

    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// The value of an expression, awaited if it is a promise, as text. Characters outside of plain
    /// ASCII become `?`.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Result<String> {
        let plain = format!(
            "(async () => String(await ({expression})).replace(/[^ !#-\\[\\]-~]/g, '?'))()"
        );
        let params = format!(
            r#"{{"expression":{},"awaitPromise":true,"returnByValue":true}}"#,
            quoted(&plain)
        );
        let answer = self.call("Runtime.evaluate", &params)?;
        match field(&answer, "value") {
            Some(value) if !answer.contains("\"exceptionDetails\"") => Ok(value.into()),
            _ => Err(format!("`{expression}` failed: {answer}")),
        }
    }

    /// Opens a file and waits until the page is ready. Returns the milliseconds that this took.
    pub(crate) fn open(&mut self, path: &Path) -> Result<f64> {
        self.open_url(&format!("file://{}", path.display()), PATIENCE)
    }

    /// As [`open`](Self::open), for an address and with a time limit.
    pub(crate) fn open_url(&mut self, url: &str, patience: Duration) -> Result<f64> {
        // The previous page may have the same address.
        self.evaluate("delete document.documentElement?.dataset.readyMs")?;
        let answer = self.call("Page.navigate", &format!(r#"{{"url":{}}}"#, quoted(url)))?;
        if let Some(error) = field(&answer, "errorText") {
            return Err(format!("{url} cannot be opened: {error}."));
        }
        let before = self.complaints.len();
        let ready = format!(
            "document.URL === new URL({}).href ? document.documentElement.dataset.readyMs ?? '' : ''",
            quoted(url)
        );
        let until = Instant::now() + patience;
        while Instant::now() < until {
            // The call also fails while one page replaces the other.
            let ready = self.evaluate(&ready);
            if let Some(ms) = ready.ok().and_then(|ms| ms.parse().ok()) {
                return Ok(ms);
            }
            let mut new = self.complaints[before..].iter();
            let ends = |said: &&String| is_event(said, THROWN) || is_event(said, CRASHED);
            if let Some(said) = new.find(ends) {
                return Err(format!("{url} fails: {said}"));
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the browser is gone ({status}) with {url} open."));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{url} does not get ready: {:?}", self.complaints))
    }

    /// Sets the colour scheme, `light` or `dark`, and the size in pixels.
    pub(crate) fn look(&mut self, scheme: &str, [width, height]: [u32; 2]) -> Result {
        let media =
            format!(r#"{{"features":[{{"name":"prefers-color-scheme","value":"{scheme}"}}]}}"#);
        self.call("Emulation.setEmulatedMedia", &media)?;
        let size = format!(
            r#"{{"width":{width},"height":{height},"deviceScaleFactor":1,"mobile":false}}"#
        );
        self.call("Emulation.setDeviceMetricsOverride", &size)?;
        self.settle()
    }

    /// Waits two frames, so that requested painting is done.
    pub(crate) fn settle(&mut self) -> Result {
        let frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0, 1))))";
        self.evaluate(frames).map(|_| ())
    }

    /// Sends `mouseMoved`, `mousePressed`, `mouseReleased` or `mouseWheel` at a point. `wheel` is
    /// the distance.
    pub(crate) fn mouse(&mut self, kind: &str, [x, y]: [f64; 2], wheel: f64) -> Result {
        let button = match kind {
            "mousePressed" | "mouseReleased" => r#","button":"left","clickCount":1"#,
            _ => "",
        };
        let params =
            format!(r#"{{"type":"{kind}","x":{x},"y":{y},"deltaX":0,"deltaY":{wheel}{button}}}"#);
        self.call("Input.dispatchMouseEvent", &params)?;
        self.settle()
    }

    pub(crate) fn click(&mut self, point: [f64; 2]) -> Result {
        self.mouse("mouseMoved", point, 0.0)?;
        self.mouse("mousePressed", point, 0.0)?;
        self.mouse("mouseReleased", point, 0.0)
    }

    /// Presses a key, named as in `KeyboardEvent.key`.
    pub(crate) fn key(&mut self, key: &str) -> Result {
        let text = match key.chars().count() {
            1 => format!(r#","text":{}"#, quoted(key)),
            _ => String::new(),
        };
        for kind in ["keyDown", "keyUp"] {
            let params = format!(r#"{{"type":"{kind}","key":{}{text}}}"#, quoted(key));
            self.call("Input.dispatchKeyEvent", &params)?;
        }
        self.settle()
    }

    /// Types text into the focused element.
    pub(crate) fn insert(&mut self, text: &str) -> Result {
        self.call(
            "Input.insertText",
            &format!(r#"{{"text":{}}}"#, quoted(text)),
        )?;
        self.settle()
    }

    /// Saves a screenshot as a PNG file.
    pub(crate) fn screenshot(&mut self, path: &Path) -> Result {
        let answer = self.call("Page.captureScreenshot", r#"{"format":"png"}"#)?;
        let data = field(&answer, "data").ok_or("the browser gave no picture.")?;
        let png = from_base64(data).ok_or("the browser's picture is broken.")?;
        fs::write(path, png).map_err(|error| format!("{}: {error}.", path.display()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The browser's command, after an installation if necessary.
fn find() -> Result<String> {
    let here = || {
        ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find(|name| capture(command(name).arg("--version")).is_ok())
    };
    if here().is_none() {
        if !apt::is_here() {
            return Err("there is no Chromium: install it by hand.".into());
        }
        println!("There is no Chromium here: installing it.");
        apt::install(PACKAGES)?;
    }
    let name = here().ok_or("Chromium is installed, but cannot be started.")?;
    Ok(name.into())
}

/// The messages of the pipe, which zero bytes separate.
fn messages(out: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for message in BufReader::new(out).split(0).map_while(std::io::Result::ok) {
            if sender
                .send(String::from_utf8_lossy(&message).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    receiver
}

fn is_event(message: &str, method: &str) -> bool {
    message.contains(&format!("\"method\":\"{method}\""))
}

/// The value of the first field of this name that is a string without escapes.
fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = json.split_once(&format!("\"{name}\":\""))?;
    after.split_once('"').map(|(value, _)| value)
}

fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c.is_control() => json += &format!("\\u{:04x}", u32::from(c)),
            c => json.push(c),
        }
    }
    json + "\""
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        for (text, bytes) in [
            ("", ""),
            ("TQ==", "M"),
            ("TWE=", "Ma"),
            ("TWFuTWE=", "ManMa"),
        ] {
            assert_eq!(from_base64(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(from_base64("<"), None);
    }

    #[test]
    fn text_is_quoted_for_json() {
        assert_eq!(quoted("a\"\\\n"), r#""a\"\\\u000a""#);
        assert_eq!(field(r#"{"id":1,"value":"x"}"#, "value"), Some("x"));
        assert_eq!(field(r#"{"value":1}"#, "value"), None);
    }
}
