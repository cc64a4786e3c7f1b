//! A file server for one page on this machine. It knows only GET.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Longest request that a page sends.
const MOST_REQUEST_BYTES: u64 = 16 << 10;

/// Time limit for a browser to send a request or to read an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pause after the listener failed to give a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// The served files.
#[derive(Clone)]
pub(super) struct Site {
    /// The folder of the page.
    pub(super) folder: PathBuf,
    /// Other folders, by the names that they have beside the page.
    pub(super) beside: Vec<(&'static str, PathBuf)>,
}

impl Site {
    /// The path of a requested file.
    fn find(&self, file: &Path) -> PathBuf {
        let mut folders = self.beside.iter();
        let found =
            folders.find_map(|(name, folder)| Some(folder.join(file.strip_prefix(name).ok()?)));
        found.unwrap_or_else(|| self.folder.join(file))
    }
}

/// Answers until the program ends. Each connection has its own thread, because browsers open some
/// before they need them.
pub(super) fn serve(listener: &TcpListener, site: &Site) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // The failure may last, for example with too many open files. The pause avoids a busy
            // loop.
            thread::sleep(PAUSE);
            continue;
        };
        let site = site.clone();
        thread::spawn(move || {
            // The browser may close the connection at any time.
            let _ = answer(stream, &site);
        });
    }
}

fn answer(mut stream: TcpStream, site: &Site) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let asked = Asked {
        stream: &stream,
        until: Instant::now() + PATIENCE,
    };
    let mut lines = BufReader::new(asked.take(MOST_REQUEST_BYTES));
    let mut request = String::new();
    lines.read_line(&mut request)?;
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 && !line.trim().is_empty() {
        line.clear();
    }
    let file = file_of(&request).map(|file| site.find(&file));
    match file.and_then(|file| Some((kind_of(&file), opened(&file)?))) {
        Some((kind, (bytes, file))) => {
            stream.write_all(head("200 OK", kind, bytes).as_bytes())?;
            // Sends no more than the stated length, even if the file grows.
            std::io::copy(&mut file.take(bytes), &mut stream)?;
        }
        None => {
            let text = "There is no such file.\n";
            let head = head("404 Not Found", "text/plain", text.len() as u64);
            stream.write_all(format!("{head}{text}").as_bytes())?;
        }
    }
    Ok(())
}

/// A file and its length in bytes.
fn opened(path: &Path) -> Option<(u64, File)> {
    let file = File::open(path).ok()?;
    let about = file.metadata().ok()?;
    about.is_file().then_some((about.len(), file))
}

fn head(status: &str, kind: &str, bytes: u64) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {bytes}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
}

/// The request, with a deadline for all of it. A read alone only has its own time limit.
struct Asked<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Asked<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(rest))?;
        self.stream.read(bytes)
    }
}

/// The file in the first line of a request, if it is inside the folder.
fn file_of(request: &str) -> Option<PathBuf> {
    let mut words = request.split_ascii_whitespace();
    let ("GET", path) = (words.next()?, words.next()?) else {
        return None;
    };
    let path = path.split(['?', '#']).next()?.strip_prefix('/')?;
    let path = Path::new(if path.is_empty() { "index.html" } else { path });
    let is_inside = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    is_inside.then(|| path.to_owned())
}

fn kind_of(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_elsewhere_is_served_beside_the_page() {
        let site = Site {
            folder: "page".into(),
            beside: vec![("model", "elsewhere".into())],
        };
        for (asked, file) in [
            ("page.js", "page/page.js"),
            ("model/config.json", "elsewhere/config.json"),
            ("models/config.json", "page/models/config.json"),
        ] {
            assert_eq!(site.find(Path::new(asked)), Path::new(file));
        }
    }

    #[test]
    fn only_files_inside_the_folder_are_served() {
        for (request, file) in [
            ("GET / HTTP/1.1\r\n", Some("index.html")),
            ("GET /?test HTTP/1.1", Some("index.html")),
            (
                "GET /model/model.safetensors HTTP/1.1",
                Some("model/model.safetensors"),
            ),
            ("GET /../secret HTTP/1.1", None),
            ("GET /a/../../secret HTTP/1.1", None),
            ("GET //etc/passwd HTTP/1.1", None),
            ("GET etc HTTP/1.1", None),
            ("POST / HTTP/1.1", None),
            ("GET", None),
            ("", None),
        ] {
            assert_eq!(file_of(request), file.map(PathBuf::from), "{request}");
        }
    }
}
