//! A client that sends any bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// No test waits longer for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = headers.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(found.1)
    }

    /// The vectors of a good answer.
    pub(crate) fn vectors(&self) -> Vec<Vec<f32>> {
        assert_eq!(self.status, 200, "{}", self.body);
        let body: Value = serde_json::from_str(&self.body).unwrap();
        serde_json::from_value(body["vectors"].clone()).unwrap()
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads until the end of an answer. `None` if the connection ended without one.
pub(crate) fn reply(stream: &mut TcpStream) -> Option<Reply> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(reply) = parse(&bytes) {
            return Some(reply);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("no answer: {error}"),
        }
    }
}

/// A whole answer, if these bytes are one.
fn parse(bytes: &[u8]) -> Option<Reply> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let reply = Reply {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    };
    let length: usize = reply
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    (reply.body.len() >= length).then_some(reply)
}

/// Sends bytes and reads the answer.
pub(crate) fn send(address: SocketAddr, bytes: &[u8]) -> Option<Reply> {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    reply(&mut stream)
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Reply {
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    send(address, head.as_bytes()).unwrap()
}

/// The head of a request for vectors, with a body of this length.
pub(crate) fn head(key: &str, length: u64) -> String {
    format!(
        "POST /embed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// A request with this body.
pub(crate) fn post(address: SocketAddr, key: &str, body: &[u8]) -> Reply {
    let head = head(key, body.len() as u64);
    send(address, &[head.as_bytes(), body].concat()).unwrap()
}

/// A request for the vectors of these texts.
pub(crate) fn embed(address: SocketAddr, key: &str, texts: &[&str]) -> Reply {
    post(
        address,
        key,
        serde_json::json!({ "texts": texts }).to_string().as_bytes(),
    )
}
