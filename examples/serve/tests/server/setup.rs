//! A server with two tenants.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use embed::small;
use lapidary::Gpu;
use lapidary::shares::{Share, ShareOptions};
use lapidary::sim::{Fault, FaultKind, SimHandle, SimOptions, Site};
use serve::{Limits, Server, Tenant, Tenants};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::client::PATIENCE;

pub(crate) const LOUD: &str = "the-key-of-loud-0";
pub(crate) const QUIET: &str = "the-key-of-quiet-0";

pub(crate) struct Setup {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    pub(crate) gpu: Gpu,
    pub(crate) share: Share,
    pub(crate) sim: SimHandle,
    number: usize,
}

impl Setup {
    /// The name of a tenant. The servers of one process have common metrics, so each has tenants of
    /// its own.
    pub(crate) fn name(&self, of: &str) -> String {
        format!("{of}-{}", self.number)
    }

    /// The device is lost, and no other comes until the faults are gone.
    pub(crate) fn halt(&self) {
        self.sim
            .arm(Fault::for_ever(Site::Reopen, 1, FaultKind::Lost));
        self.sim.lose("a test halts the device");
    }

    /// Waits until the worker has taken a batch and looks for a device.
    pub(crate) async fn until_taken(&self) {
        let sim = self.sim.clone();
        let is_taken = move || sim.counters().calls(Site::Reopen) > 0;
        until(is_taken).await;
    }

    /// Waits until `texts` texts of a tenant wait.
    pub(crate) async fn until_waiting(&self, tenant: &str, texts: usize) {
        let name = self.name(tenant);
        let line = format!("serve_waiting_texts{{tenant=\"{name}\"}} {texts}");
        let address = self.address;
        let is_waiting = move || {
            let metrics = crate::client::get(address, "/metrics").body;
            metrics.lines().any(|found| found == line)
        };
        until(is_waiting).await;
    }
}

/// Waits until a condition holds.
async fn until(holds: impl Fn() -> bool + Send + 'static) {
    aside(move || {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < PATIENCE, "it does not come to that");
            std::thread::sleep(Duration::from_millis(5));
        }
    })
    .await;
}

/// Small limits, so that a few requests reach them.
pub(crate) fn limits() -> Limits {
    Limits {
        body_bytes: 1 << 16,
        request_texts: 4,
        waiting_texts: 8,
        head: Duration::from_millis(300),
        body: Duration::from_millis(300),
        write: Duration::from_millis(300),
        stop: Duration::from_secs(5),
        ..Limits::default()
    }
}

pub(crate) async fn start(limits: Limits) -> Setup {
    let (gpu, sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let share = ShareOptions::guaranteed(16 << 20).with_ceiling(16 << 20);
    let share = gpu.share("serve", share).unwrap();
    static SERVERS: AtomicUsize = AtomicUsize::new(0);
    let number = SERVERS.fetch_add(1, Ordering::Relaxed);
    let tenant = |name: &str, key: &str| Tenant {
        name: format!("{name}-{number}"),
        key: key.into(),
        weight: 1,
    };
    let tenants = Tenants::new(vec![tenant("loud", LOUD), tenant("quiet", QUIET)]).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(small::model(&share).unwrap(), tenants, address, limits).await;
    let server = server.unwrap();
    Setup {
        address: server.address(),
        server,
        gpu,
        share,
        sim,
        number,
    }
}

/// Runs what waits for answers beside the server.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.unwrap()
}

/// Starts a request and goes on.
pub(crate) fn under_way<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    spawn_blocking(work)
}
