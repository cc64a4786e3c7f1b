//! Good requests, and all kinds of bad ones.

use std::io::Write;
use std::net::Shutdown;

use embed::small::{self, LONGEST};

use crate::client::{connect, embed, get, head, post, reply, send};
use crate::setup::{LOUD, QUIET, Setup, aside, limits, start};

#[tokio::test]
async fn vectors_are_those_of_the_model() {
    let Setup {
        server, address, ..
    } = start(limits()).await;
    let (gpu, _) = lapidary::Gpu::simulated(Default::default()).unwrap();
    let model = small::model(&gpu).unwrap();
    aside(move || {
        let long = "stone ".repeat(50);
        for texts in [&["stone"][..], &["cutter", "stone cutter", "", &long]] {
            let reply = embed(address, QUIET, texts);
            for (vector, text) in reply.vectors().iter().zip(texts) {
                let tokens = model.words.tokens(text).unwrap();
                assert_eq!(tokens.ids.len().min(LONGEST), tokens.ids.len());
                let expected = model
                    .encoder
                    .encode(&[&tokens])
                    .unwrap()
                    .to_vec::<f32>()
                    .unwrap();
                let apart = expected.iter().zip(vector).map(|(a, b)| (a - b).abs());
                assert!(apart.fold(0.0, f32::max) < 1e-5, "{text}");
            }
            assert_eq!(
                reply.body.contains(r#""cut":[3]"#),
                texts.len() == 4,
                "{}",
                reply.body
            );
        }
    })
    .await;
    let served = server.stop().await.unwrap();
    assert_eq!((served.texts, served.losses), (5, 0));
}

#[tokio::test]
async fn only_tenants_get_vectors() {
    let Setup {
        server, address, ..
    } = start(limits()).await;
    aside(move || {
        for key in ["", "x", "the-key-of-loud-00", "the-key-of-loud-\u{e9}"] {
            let refused = embed(address, key, &["stone"]);
            assert_eq!(refused.status, 401, "{key}");
            assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
            assert!(!refused.body.contains("the-key"), "{}", refused.body);
        }
        let without = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(send(address, without).unwrap().status, 401);
        assert_eq!(get(address, "/health/live").status, 200);
        assert_eq!(get(address, "/health/ready").status, 200);
        assert_eq!(get(address, "/embed").status, 405);
        assert_eq!(get(address, "/other").status, 404);
    })
    .await;
    assert_eq!(server.stop().await.unwrap().texts, 0);
}

#[tokio::test]
async fn bodies_that_are_no_requests_are_told_so() {
    let Setup {
        server, address, ..
    } = start(limits()).await;
    aside(move || {
        let many = format!(r#"{{"texts": {:?}}}"#, ["stone"; 5]);
        for (body, part) in [
            (&b""[..], "no {"),
            (b"{", "no {"),
            (b"[]", "no {"),
            (br#"{"texts": "stone"}"#, "no {"),
            (br#"{"texts": ["a"], "model": "b"}"#, "model"),
            (br#"{"texts": [1]}"#, "no {"),
            (br#"{"texts": []}"#, "0 texts"),
            (many.as_bytes(), "5 texts are given, and 1 to 4"),
            (b"{\"texts\": [\"\xff\"]}", "no {"),
            (&[b'['; 5000], "no {"),
        ] {
            let refused = post(address, QUIET, body);
            assert_eq!(refused.status, 400, "{}", refused.body);
            assert!(refused.body.contains(part), "{}", refused.body);
        }
        assert_eq!(embed(address, QUIET, &["stone"]).vectors().len(), 1);
    })
    .await;
    assert_eq!(server.stop().await.unwrap().texts, 1);
}

#[tokio::test]
async fn a_body_of_a_gigabyte_is_refused_without_being_read() {
    let Setup {
        server, address, ..
    } = start(limits()).await;
    aside(move || {
        // Its length is known: the answer comes before any of it is sent.
        let refused = send(address, head(LOUD, 1 << 30).as_bytes()).unwrap();
        assert_eq!(refused.status, 413);
        assert!(refused.body.contains("65536 bytes"), "{}", refused.body);

        // It comes in chunks, without its length.
        let mut stream = connect(address);
        let head = format!(
            "POST /embed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {LOUD}\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let chunk = [&b"10000\r\n"[..], &[b' '; 1 << 16], b"\r\n"].concat();
        let written = (0..1 << 14)
            .take_while(|_| stream.write_all(&chunk).is_ok())
            .count();
        // What was written beyond the limit is in the buffers of the system.
        assert!(written < 1 << 10, "{written} chunks of 64 KiB were taken");
        // The system may drop the answer of a connection that was closed while bytes came.
        if let Some(refused) = reply(&mut stream) {
            assert_eq!(refused.status, 413);
        }
        assert_eq!(embed(address, LOUD, &["stone"]).vectors().len(), 1);
    })
    .await;
    assert_eq!(server.stop().await.unwrap().texts, 1);
}

#[tokio::test]
async fn requests_that_break_off_or_come_too_slowly_end() {
    let Setup {
        server, address, ..
    } = start(limits()).await;
    aside(move || {
        let body = br#"{"texts": ["stone"]}"#;
        let whole = [head(LOUD, body.len() as u64).as_bytes(), body].concat();
        for cut in [1, 30, whole.len() - body.len(), whole.len() - 1] {
            // It ends.
            let mut stream = connect(address);
            stream.write_all(&whole[..cut]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            if let Some(refused) = reply(&mut stream) {
                assert_eq!(refused.status, 400);
            }
            // It stops without an end.
            let mut stream = connect(address);
            stream.write_all(&whole[..cut]).unwrap();
            if let Some(refused) = reply(&mut stream) {
                assert_eq!(refused.status, 408, "{}", refused.body);
            }
        }
        assert_eq!(
            send(address, b"\x16\x03\x01\x00\xff\r\n\r\n")
                .unwrap()
                .status,
            400
        );
        assert_eq!(embed(address, LOUD, &["stone"]).vectors().len(), 1);
    })
    .await;
    assert_eq!(server.stop().await.unwrap().texts, 1);
}
