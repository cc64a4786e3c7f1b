//! The server stops: what has begun ends, and nothing begins.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::client::{connect, embed, head, reply};
use crate::setup::{LOUD, QUIET, aside, limits, start, under_way};

#[tokio::test]
async fn requests_that_wait_are_answered_and_idle_connections_end() {
    let setup = start(limits()).await;
    let address = setup.address;
    // A connection that stays open after an answer.
    let mut idle = aside(move || {
        let body = br#"{"texts": ["stone"]}"#;
        let mut stream = connect(address);
        let request = [head(QUIET, body.len() as u64).as_bytes(), body].concat();
        stream.write_all(&request).unwrap();
        assert_eq!(reply(&mut stream).unwrap().status, 200);
        stream
    })
    .await;
    setup.halt();
    let first = under_way(move || embed(address, LOUD, &["stone"]));
    setup.until_taken().await;
    let second = under_way(move || embed(address, LOUD, &["stone"; 4]));
    setup.until_waiting("loud", 4).await;

    let stopping = tokio::spawn(setup.server.stop());
    let ended = aside(move || idle.read(&mut [0; 16]).unwrap_or(0)).await;
    assert_eq!(ended, 0, "the idle connection is still open");
    setup.sim.disarm();
    for answer in [first, second] {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    assert_eq!(stopping.await.unwrap().unwrap().texts, 6);
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test]
async fn a_client_that_never_ends_does_not_keep_it_alive() {
    let mut limits = limits();
    limits.head = std::time::Duration::from_secs(3600);
    limits.body = limits.head;
    limits.stop = std::time::Duration::from_millis(50);
    let setup = start(limits).await;
    let address = setup.address;
    let streams = aside(move || {
        ["", "POST", &head(LOUD, 100)].map(|text| {
            let mut stream = connect(address);
            stream.write_all(text.as_bytes()).unwrap();
            stream
        })
    })
    .await;
    assert_eq!(setup.server.stop().await.unwrap().texts, 0);
    drop(streams);
}
