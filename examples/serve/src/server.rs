//! A server: the worker's thread, the connections' task, and their end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use embed::Model;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::connections;
use crate::desk::Desk;
use crate::error::{Error, Result};
use crate::numbers;
use crate::routes::{self, App};
use crate::tenants::Tenants;
use crate::worker::{Done, Worker};

/// The exporter folds its samples together this often, also if nobody asks for metrics.
const UPKEEP: Duration = Duration::from_secs(5);

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of a body.
    pub body_bytes: usize,
    /// Most texts of a request.
    pub request_texts: usize,
    /// Most texts that wait for one tenant.
    pub waiting_texts: usize,
    /// Most texts in a batch. 1 computes one text at a time.
    pub batch_texts: usize,
    /// Time for the head of a request.
    pub head: Duration,
    /// Time for a body.
    pub body: Duration,
    /// Time in which a client takes at least a byte of the answers that wait for it.
    pub write: Duration,
    /// Time for requests to end when the server stops.
    pub stop: Duration,
    /// Most connections at once.
    pub connections: usize,
    /// Declares the device lost after this many batches, to try the recovery.
    pub lose_every: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes: 256 << 10,
            request_texts: 32,
            waiting_texts: 64,
            batch_texts: 64,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            write: Duration::from_secs(10),
            stop: Duration::from_secs(20),
            connections: 512,
            lose_every: None,
        }
    }
}

impl Limits {
    fn check(&self) -> Result<()> {
        let refuse = |option, reason: String| Err(Error::Option { option, reason });
        for (option, value) in [
            ("body_bytes", self.body_bytes),
            ("request_texts", self.request_texts),
            ("batch_texts", self.batch_texts),
            ("connections", self.connections),
        ] {
            if value == 0 {
                return refuse(option, "0 lets nothing through".into());
            }
        }
        if self.waiting_texts < self.request_texts {
            return refuse(
                "waiting_texts",
                format!(
                    "a request of {} texts never fits into a queue of {}",
                    self.request_texts, self.waiting_texts
                ),
            );
        }
        if self.write.is_zero() {
            return refuse("write", "0 s leave a client no time for its answers".into());
        }
        if self.lose_every == Some(0) {
            return refuse("lose_every", "0 batches leave no device".into());
        }
        Ok(())
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    desk: Arc<Desk>,
    stop: oneshot::Sender<()>,
    connections: JoinHandle<()>,
    worker: thread::JoinHandle<Done>,
    upkeep: JoinHandle<()>,
}

/// What a server did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Batches that were computed.
    pub batches: u64,
    /// Texts in them.
    pub texts: u64,
    /// Devices that were lost and replaced.
    pub losses: u64,
    /// Batches that found no room and were cut in half.
    pub splits: u64,
}

impl Server {
    /// Reads the weights, compiles kernels, then listens. Port 0 takes a free one. It blocks its
    /// thread until then.
    ///
    /// # Errors
    /// [`Error::Address`] for an address that cannot be used, [`Error::Option`] for limits that
    /// make no sense, [`Error::Thread`], and those of the model.
    pub async fn start(
        model: Model,
        tenants: Tenants,
        address: SocketAddr,
        limits: Limits,
    ) -> Result<Server> {
        limits.check()?;
        let explain = |cause| Error::Address {
            address: address.to_string(),
            cause,
        };
        let model = Arc::new(model);
        let width = model.config.hidden_size;
        let desk = Arc::new(Desk::new(tenants, limits.waiting_texts, width));
        let mut worker = Worker::new(model.clone(), desk.clone(), limits);
        worker.warm_up()?;
        let listener = TcpListener::bind(address).await.map_err(explain)?;
        let address = listener.local_addr().map_err(explain)?;
        let worker = thread::Builder::new()
            .name("worker".into())
            .spawn(move || worker.run())
            .map_err(Error::Thread)?;
        let app = App {
            desk: desk.clone(),
            model,
            limits,
        };
        let router = routes::router(Arc::new(app));
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            // A sender that is dropped stops the server, too.
            let _ = stopped.await;
        };
        let connections = connections::serve(listener, router, limits, stopped);
        Ok(Server {
            address,
            desk,
            stop,
            connections: tokio::spawn(connections),
            worker,
            upkeep: tokio::spawn(upkeep()),
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops: accepts nothing, lets requests end, then ends the threads.
    ///
    /// # Errors
    /// [`Error::Thread`] if the worker has panicked.
    pub async fn stop(self) -> Result<Served> {
        self.desk.close();
        let _ = self.stop.send(());
        let _ = self.connections.await;
        self.upkeep.abort();
        let worker = self.worker;
        let joined = tokio::task::spawn_blocking(move || worker.join()).await;
        match joined {
            Ok(Ok(done)) => Ok(Served {
                batches: done.batches,
                texts: done.texts,
                losses: done.losses,
                splits: done.splits,
            }),
            _ => Err(Error::Thread(std::io::Error::other("the worker panicked"))),
        }
    }
}

async fn upkeep() {
    let Some(exporter) = numbers::exporter() else {
        return;
    };
    let mut turns = interval(UPKEEP);
    loop {
        turns.tick().await;
        exporter.run_upkeep();
    }
}
