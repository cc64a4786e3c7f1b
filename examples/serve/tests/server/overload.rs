//! More requests than the device can compute.

use crate::client::{connect, embed, get, head};
use crate::setup::{LOUD, QUIET, aside, limits, start, under_way};

#[tokio::test]
async fn a_full_queue_answers_429_and_only_to_its_tenant() {
    let setup = start(limits()).await;
    let address = setup.address;
    setup.halt();
    // The worker takes the first text, and waits for a device.
    let mut waiting = vec![under_way(move || embed(address, LOUD, &["stone"]))];
    setup.until_taken().await;
    for _ in 0..2 {
        waiting.push(under_way(move || embed(address, LOUD, &["stone"; 4])));
    }
    waiting.push(under_way(move || embed(address, QUIET, &["cutter"])));
    setup.until_waiting("loud", 8).await;
    setup.until_waiting("quiet", 1).await;

    let refused = aside(move || embed(address, LOUD, &["stone"])).await;
    assert_eq!(refused.status, 429);
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds));
    assert!(
        refused.body.contains("8 texts of yours wait"),
        "{}",
        refused.body
    );

    setup.sim.disarm();
    for answer in waiting {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    let metrics = aside(move || get(address, "/metrics").body).await;
    let line = format!(
        "serve_requests_total{{tenant=\"{}\",status=\"429\"}} 1",
        setup.name("loud")
    );
    assert!(metrics.contains(&line), "{metrics}");
    assert!(metrics.contains("lapidary_device_bytes{"), "{metrics}");
    assert!(metrics.contains("lapidary_share_bytes{"), "{metrics}");
    let served = setup.server.stop().await.unwrap();
    assert_eq!((served.texts, served.losses), (10, 1));
}

#[tokio::test]
async fn the_texts_of_a_client_that_went_leave_the_queue() {
    use std::io::Write;

    let setup = start(limits()).await;
    let address = setup.address;
    setup.halt();
    let first = under_way(move || embed(address, LOUD, &["stone"]));
    setup.until_taken().await;
    let gone = aside(move || {
        let body = br#"{"texts": ["stone", "cutter"]}"#;
        let mut stream = connect(address);
        let request = [head(QUIET, body.len() as u64).as_bytes(), body].concat();
        stream.write_all(&request).unwrap();
        stream
    })
    .await;
    setup.until_waiting("quiet", 2).await;
    drop(gone);
    setup.until_waiting("quiet", 0).await;
    setup.sim.disarm();
    assert_eq!(first.await.unwrap().status, 200);
    assert_eq!(setup.server.stop().await.unwrap().texts, 1);
}
