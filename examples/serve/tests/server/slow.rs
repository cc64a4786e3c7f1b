//! Clients that do not read their answers.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::client::{PATIENCE, connect, embed};
use crate::setup::{QUIET, aside, limits, start};

/// So many pages that the buffers of the system do not hold them.
const PAGES: usize = 20_000;

/// Asks for pages and reads none.
fn ask_and_never_read(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    stream.set_nonblocking(true).unwrap();
    let requests = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(PAGES);
    let (mut sent, mut moved) = (0, Instant::now());
    // A server that waits for this client reads no more.
    while sent < requests.len() && moved.elapsed() < Duration::from_millis(100) {
        match stream.write(&requests[sent..]) {
            Ok(count) => (sent, moved) = (sent + count, Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => break,
        }
    }
    stream
}

#[tokio::test]
async fn clients_that_read_no_answers_lose_their_connections() {
    let mut limits = limits();
    limits.connections = 2;
    let setup = start(limits).await;
    let address = setup.address;
    aside(move || {
        let held = [(); 2].map(|()| ask_and_never_read(address));
        let start = Instant::now();
        // There is no slot until a client has lost its connection.
        assert_eq!(embed(address, QUIET, &["stone"]).status, 200);
        assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
        drop(held);
    })
    .await;
    assert_eq!(setup.server.stop().await.unwrap().texts, 1);
}
