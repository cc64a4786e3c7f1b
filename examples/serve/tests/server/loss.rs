//! The device is lost, once or again and again.

use lapidary::sim::{Fault, FaultKind, Site};

use crate::client::{embed, get};
use crate::setup::{LOUD, QUIET, aside, limits, start, under_way};

#[tokio::test]
async fn a_lost_device_costs_no_request() {
    let setup = start(limits()).await;
    let address = setup.address;
    // So long that the batch runs in steps.
    let ask = move || {
        embed(
            address,
            QUIET,
            &["stone cutter stone cutter stone cutter"; 4],
        )
    };
    let expected = aside(move || ask().vectors()).await;
    for nth in 1..60 {
        setup.sim.arm(Fault::lose_at_call(nth));
        let vectors = aside(move || ask().vectors()).await;
        assert!(vectors == expected, "lost at call {nth}");
        setup.sim.disarm();
    }
    let served = setup.server.stop().await.unwrap();
    assert!(served.losses > 10 && served.texts == 240, "{served:?}");
}

#[tokio::test]
async fn a_device_that_is_lost_again_and_again_refuses_until_it_stays() {
    let setup = start(limits()).await;
    let address = setup.address;
    setup
        .sim
        .arm(Fault::for_ever(Site::Submit, 1, FaultKind::Lost));
    let requests = [LOUD, QUIET].map(|key| under_way(move || embed(address, key, &["stone"])));
    for request in requests {
        let refused = request.await.unwrap();
        assert_eq!(refused.status, 503);
        assert!(refused.header("retry-after").is_some());
    }
    setup.sim.disarm();
    assert_eq!(
        aside(move || embed(address, LOUD, &["stone"]).status).await,
        200
    );
    setup.server.stop().await.unwrap();
}

#[tokio::test]
async fn without_a_device_it_is_alive_and_not_ready_until_there_is_one() {
    let setup = start(limits()).await;
    let address = setup.address;
    setup
        .sim
        .arm(Fault::for_ever(Site::Reopen, 1, FaultKind::Lost));
    setup.sim.lose("a test says so");
    // The first waits while the worker looks for a device. The others are refused at once.
    let refused = aside(move || {
        let running = embed(address, QUIET, &["stone"]);
        assert_eq!(get(address, "/health/live").status, 200);
        assert_eq!(get(address, "/health/ready").status, 503);
        [running, embed(address, QUIET, &["stone"])]
    });
    for refused in refused.await {
        assert_eq!(refused.status, 503);
        assert!(refused.header("retry-after").is_some());
    }
    setup.sim.disarm();
    aside(move || {
        while get(address, "/health/ready").status != 200 {
            std::thread::yield_now();
        }
        assert_eq!(embed(address, QUIET, &["stone"]).status, 200);
    })
    .await;
    assert_eq!(setup.server.stop().await.unwrap().losses, 1);
}
