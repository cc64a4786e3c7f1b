//! No client hears that memory is short.

use std::time::Duration;

use lapidary::shares::ShareOptions;
use lapidary::sim::{Fault, FaultKind, Site};

use crate::client::embed;
use crate::setup::{LOUD, QUIET, aside, limits, start, under_way};

#[tokio::test]
async fn a_batch_that_finds_no_room_is_cut_until_it_does() {
    let setup = start(limits()).await;
    let address = setup.address;
    let expected = aside(move || embed(address, QUIET, &["stone", "cutter"]).vectors()).await;
    for _ in 0..5 {
        // The buffers are released, and the next batch finds no new ones for a while.
        setup.gpu.memory().trim(0).unwrap();
        setup.sim.arm(Fault::for_ever(
            Site::CreateBuffer,
            1,
            FaultKind::OutOfMemory,
        ));
        let requests = [LOUD, QUIET]
            .map(|key| under_way(move || embed(address, key, &["stone", "cutter"]).vectors()));
        tokio::time::sleep(Duration::from_millis(20)).await;
        setup.sim.disarm();
        for request in requests {
            assert_eq!(request.await.unwrap(), expected);
        }
    }
    assert!(setup.server.stop().await.unwrap().splits > 0);
}

#[tokio::test]
async fn a_device_without_any_memory_answers_503_and_recovers() {
    let setup = start(limits()).await;
    let address = setup.address;
    setup.gpu.memory().trim(0).unwrap();
    setup.sim.arm(Fault::for_ever(
        Site::CreateBuffer,
        1,
        FaultKind::OutOfMemory,
    ));
    let refused = aside(move || embed(address, QUIET, &["stone", "cutter"])).await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    assert!(refused.body.contains("busy") && !refused.body.contains("memory"));
    setup.sim.disarm();
    assert_eq!(
        aside(move || embed(address, QUIET, &["stone"]).status).await,
        200
    );
    setup.server.stop().await.unwrap();
}

#[tokio::test]
async fn others_go_on_while_a_text_waits_for_room() {
    let setup = start(limits()).await;
    let address = setup.address;
    let share = |bytes| ShareOptions::guaranteed(bytes).with_ceiling(bytes);
    // Room for a short text, and not for a long one.
    setup.share.resize(share(2 << 10)).unwrap();
    let long = "stone cutter ".repeat(5);
    let waiting = under_way(move || embed(address, LOUD, &[&long]));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let status = aside(move || embed(address, QUIET, &["stone"]).status).await;
    assert_eq!(status, 200);
    assert!(!waiting.is_finished(), "the other one waited for it");
    setup.share.resize(share(16 << 20)).unwrap();
    assert_eq!(waiting.await.unwrap().status, 200);
    setup.server.stop().await.unwrap();
}

#[tokio::test]
async fn batches_follow_a_share_that_shrinks() {
    let setup = start(limits()).await;
    let address = setup.address;
    let expected = aside(move || embed(address, QUIET, &["stone", "cutter"]).vectors()).await;
    for bytes in [64 << 10, 16 << 10, 12 << 10, 1 << 20] {
        let share = ShareOptions::guaranteed(bytes).with_ceiling(bytes);
        setup.share.resize(share).unwrap();
        setup.share.memory().reset_peaks();
        let requests = [LOUD, QUIET, LOUD, QUIET]
            .map(|key| under_way(move || embed(address, key, &["stone", "cutter"]).vectors()));
        for request in requests {
            assert_eq!(request.await.unwrap(), expected);
        }
        let peak = setup.share.memory().share_use().unwrap().bytes.peak;
        assert!(peak <= bytes, "{peak} bytes of {bytes}");
    }
    setup.server.stop().await.unwrap();
}
