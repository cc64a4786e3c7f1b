//! Connecting to a process that accepts no connection.

use std::{fs, io};

use super::place::{connect, is_served, prepare};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

#[test]
fn a_full_queue_of_arrivals_is_waited_for_in_vain_but_not_for_ever() {
    let folder = std::env::temp_dir().join(format!("lapidary-full-{}", std::process::id()));
    prepare(&folder).expect("a folder");
    let path = folder.join("s");
    let _ = fs::remove_file(&path);
    assert!(!is_served(&path), "nobody is there");
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    let address = SocketAddrUnix::new(&path).expect("a short name");
    bind(&listener, &address).expect("a place");
    assert!(!is_served(&path), "nobody listens yet");
    listen(&listener, 0).expect("a listener");
    let mut waiting = Vec::new();
    let error = loop {
        match connect(&path) {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
        assert!(waiting.len() < 10, "a queue of length 0 holds many");
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(is_served(&path), "somebody listens");
    drop(listener);
    assert!(!is_served(&path), "nobody does any more");
    fs::remove_dir_all(&folder).expect("a folder");
}
