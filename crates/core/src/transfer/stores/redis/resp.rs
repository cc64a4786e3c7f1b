//! The protocol of Redis, RESP 2, as far as the store needs it: requests, and replies that are a
//! line or one value.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::error::StoreFailure;

/// A line of a reply is no longer.
const MOST_LINE_BYTES: u64 = 4096;

/// A longer word costs less to send by itself than to copy.
const LONG_WORD_BYTES: usize = 16 << 10;

/// The stream of a connection.
trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// A connection to a server.
pub(super) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    /// Requests that were not sent, without values, which are sent at once.
    out: Vec<u8>,
    /// Requests whose replies have not arrived.
    pending: u32,
}

/// A reply of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Simple(String),
    Number(i64),
    /// A value, which was put where the caller wants it.
    Bulk,
    Nil,
    Error(String),
}

impl Reply {
    pub(super) fn number(self) -> Result<i64, StoreFailure> {
        match self {
            Reply::Number(number) => Ok(number),
            other => Err(other.unexpected()),
        }
    }

    pub(super) fn ok(self) -> Result<(), StoreFailure> {
        match self {
            Reply::Simple(text) if text == "OK" => Ok(()),
            other => Err(other.unexpected()),
        }
    }

    /// The failure of a call that expects another reply.
    pub(super) fn unexpected(self) -> StoreFailure {
        match self {
            Reply::Error(text) if text.starts_with("OOM ") => StoreFailure::Full,
            // Another client has put something else in the place of the hash.
            Reply::Error(text) if text.starts_with("WRONGTYPE ") => StoreFailure::Damaged(text),
            Reply::Error(text) => StoreFailure::Other(text),
            other => StoreFailure::Other(format!("it replied {other:?}")),
        }
    }
}

/// Whether a new connection may help.
pub(super) fn is_broken(failure: &StoreFailure) -> bool {
    matches!(failure, StoreFailure::Gone(_))
}

impl Connection {
    /// Connects to `host:port`, or to a Unix socket by its path.
    pub(super) fn open(address: &str, timeout: Duration) -> Result<Connection, StoreFailure> {
        let stream = connect(address, timeout).map_err(failed)?;
        Ok(Connection {
            stream: BufReader::new(stream),
            out: Vec::new(),
            pending: 0,
        })
    }

    /// Sends a request and waits for its reply, which is no value.
    pub(super) fn command(&mut self, words: &[&[u8]]) -> Result<Reply, StoreFailure> {
        self.send(words)?;
        self.receive()
    }

    /// Whether every request has its reply, so that the connection can be used again.
    pub(super) fn is_done(&self) -> bool {
        self.pending == 0
    }

    /// Sends a request, at the latest when its reply is waited for.
    pub(super) fn send(&mut self, words: &[&[u8]]) -> Result<(), StoreFailure> {
        self.pending += 1;
        write_request(self.stream.get_mut(), &mut self.out, words).map_err(failed)
    }

    /// Waits for the reply to the oldest request, which is no value.
    pub(super) fn receive(&mut self) -> Result<Reply, StoreFailure> {
        self.receive_into(&mut [])
    }

    /// Waits for the reply to the oldest request. A value goes to `bytes`, which has its length.
    pub(super) fn receive_into(&mut self, bytes: &mut [u8]) -> Result<Reply, StoreFailure> {
        if !self.out.is_empty() {
            self.stream.get_mut().write_all(&self.out).map_err(failed)?;
            self.out.clear();
        }
        let reply = read_reply(&mut self.stream, bytes)?;
        self.pending -= 1;
        Ok(reply)
    }
}

fn connect(address: &str, timeout: Duration) -> io::Result<Box<dyn Stream>> {
    #[cfg(unix)]
    if address.starts_with('/') {
        let stream = std::os::unix::net::UnixStream::connect(address)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        return Ok(Box::new(stream));
    }
    let mut failure = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(Box::new(stream));
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Appends a request to `out`. A long word is sent at once, behind what is in `out`.
fn write_request(stream: &mut dyn Stream, out: &mut Vec<u8>, words: &[&[u8]]) -> io::Result<()> {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        // It is not copied.
        if word.len() > LONG_WORD_BYTES {
            stream.write_all(out)?;
            stream.write_all(word)?;
            out.clear();
        } else {
            out.extend_from_slice(word);
        }
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

fn read_reply(stream: &mut impl BufRead, bytes: &mut [u8]) -> Result<Reply, StoreFailure> {
    let mut line = Vec::new();
    let mut limited = stream.by_ref().take(MOST_LINE_BYTES);
    limited.read_until(b'\n', &mut line).map_err(failed)?;
    let line = match line.strip_suffix(b"\r\n") {
        Some(line) => String::from_utf8_lossy(line),
        None if (line.len() as u64) < MOST_LINE_BYTES => {
            return Err(failed(ErrorKind::UnexpectedEof.into()));
        }
        None => return Err(garbled("a reply is too long")),
    };
    let mut text = line.chars();
    let kind = text.next();
    let text = text.as_str();
    let number = || text.parse::<i64>().map_err(|_| garbled("a number is none"));
    match kind {
        Some('+') => Ok(Reply::Simple(text.into())),
        Some('-') => Ok(Reply::Error(text.into())),
        Some(':') => Ok(Reply::Number(number()?)),
        Some('$') => match number()? {
            -1 => Ok(Reply::Nil),
            len if len == bytes.len() as i64 => {
                let mut end = [0; 2];
                stream.read_exact(bytes).map_err(failed)?;
                stream.read_exact(&mut end).map_err(failed)?;
                match end == *b"\r\n" {
                    true => Ok(Reply::Bulk),
                    false => Err(garbled("a value has no end")),
                }
            }
            len => Err(StoreFailure::Damaged(format!(
                "a value of {len} bytes instead of {}",
                bytes.len()
            ))),
        },
        _ => Err(garbled("a reply begins as none does")),
    }
}

fn garbled(what: &str) -> StoreFailure {
    StoreFailure::Other(format!("it does not speak Redis' protocol: {what}"))
}

fn failed(error: io::Error) -> StoreFailure {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => StoreFailure::TimedOut,
        _ => StoreFailure::Gone(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], bytes: &mut [u8]) -> Result<Reply, StoreFailure> {
        read_reply(&mut &*text, bytes)
    }

    #[test]
    fn replies_are_read_to_their_end() {
        let mut bytes = [0; 3];
        assert_eq!(read(b"+OK\r\n", &mut []), Ok(Reply::Simple("OK".into())));
        assert_eq!(read(b":-7\r\n", &mut []), Ok(Reply::Number(-7)));
        assert_eq!(read(b"$-1\r\n", &mut bytes), Ok(Reply::Nil));
        assert_eq!(read(b"$3\r\n\r\n\x00\r\n", &mut bytes), Ok(Reply::Bulk));
        assert_eq!(bytes, *b"\r\n\x00");
        let full = read(b"-OOM command not allowed\r\n", &mut []).unwrap();
        assert_eq!(full.unexpected(), StoreFailure::Full);
    }

    #[test]
    fn replies_that_are_cut_off_or_garbled_give_errors() {
        let whole = b"$3\r\nabc\r\n";
        for len in 0..whole.len() {
            let cut = read(&whole[..len], &mut [0; 3]);
            assert!(matches!(cut, Err(StoreFailure::Gone(_))), "{len}: {cut:?}");
        }
        for garbage in [
            &b"\r\n"[..],
            b"?\r\n",
            b":x\r\n",
            b"$\r\n",
            b"$3\r\nabcde",
            &[b'+'; 5000],
        ] {
            let got = read(garbage, &mut [0; 3]);
            assert!(matches!(got, Err(StoreFailure::Other(_))), "{got:?}");
        }
        for len in ["2", "4", "-2", "9223372036854775807"] {
            let got = read(format!("${len}\r\nabcd\r\n").as_bytes(), &mut [0; 3]);
            assert!(matches!(got, Err(StoreFailure::Damaged(_))), "{got:?}");
        }
    }

    #[test]
    fn requests_are_arrays_of_words() {
        let (mut sent, mut out) = (io::Cursor::new(Vec::new()), Vec::new());
        write_request(&mut sent, &mut out, &[b"HDEL", b"", b"x"]).unwrap();
        assert_eq!(sent.get_ref(), b"");
        assert_eq!(out, b"*3\r\n$4\r\nHDEL\r\n$0\r\n\r\n$1\r\nx\r\n");
        out.clear();
        let long = [7; LONG_WORD_BYTES + 1];
        write_request(&mut sent, &mut out, &[b"HSET", &long]).unwrap();
        let expected = [b"*2\r\n$4\r\nHSET\r\n$16385\r\n", &long[..]].concat();
        assert_eq!((sent.into_inner(), out), (expected, b"\r\n".to_vec()));
    }
}
