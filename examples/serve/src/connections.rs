//! Sockets: a limited number at once, with time-outs for heads and for answers that nobody takes,
//! and a stop that lets requests end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::patience::Patient;
use crate::server::Limits;

/// Most bytes of a head.
const HEAD_BYTES: usize = 32 << 10;
/// The pause after a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves connections until `stop`. Then requests have some time to end.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(limits.connections));
    let mut tasks = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let slot = tokio::select! {
            slot = slots.clone().acquire_owned() => slot,
            () = &mut stop => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        while tasks.try_join_next().is_some() {}
        let Ok((stream, _)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let connection = graceful.watch(connection(stream, &router, limits));
        tasks.spawn(async move {
            let _slot = slot;
            // A connection that breaks off concerns nobody else.
            let _ = connection.await;
        });
    }
    drop(listener);
    let _ = timeout(limits.stop, graceful.shutdown()).await;
    // Requests that still run lose their connections, and leave the queues.
    tasks.shutdown().await;
}

type Connection = http1::Connection<TokioIo<Patient>, TowerToHyperService<Router>>;

fn connection(stream: TcpStream, router: &Router, limits: Limits) -> Connection {
    // An answer is written at once.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(router.clone());
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Patient::new(stream, limits.write)), service)
}
