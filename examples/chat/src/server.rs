//! Conversations over HTTP, as OpenAI's clients ask for them.
//!
//! ```text
//! POST /v1/chat/completions   {"messages": [{"role": "user", "content": "…"}], "stream": true, …}
//! GET  /v1/models
//! GET  /health
//! ```
//!
//! A question may say `stream`, `stream_options.include_usage`, `max_completion_tokens` or
//! `max_tokens`, `temperature`, `top_p`, `seed` and `stop`. What would change the answer in a way
//! that this server does not know is refused. Other fields change nothing.

mod question;
mod routes;
mod stops;
mod worker;

use std::net::SocketAddr;
use std::thread;

use lapidary_lm::SchedulerOptions;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::talk::Speaker;
use worker::Worker;

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
    served: Option<thread::JoinHandle<()>>,
}

impl Server {
    /// Listens. Port 0 takes a free one. One thread has the model, and all conversations share its
    /// steps.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] for an address that cannot be used, and those of the scheduler.
    pub fn start(
        speaker: Speaker,
        options: SchedulerOptions,
        name: &str,
        address: &str,
    ) -> Result<Server> {
        let explained = |cause| Error::Address {
            address: address.to_owned(),
            cause,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(explained)?;
        let listener = runtime
            .block_on(TcpListener::bind(address))
            .map_err(explained)?;
        let address = listener.local_addr().map_err(explained)?;
        let worker = Worker::start(speaker, options)?;
        let router = routes::router(worker, name);
        let (stop, stopped) = oneshot::channel();
        let served = thread::spawn(move || {
            let serving = axum::serve(listener, router).with_graceful_shutdown(async {
                // An error means that the server was dropped.
                let _ = stopped.await;
            });
            if let Err(error) = runtime.block_on(async { serving.await }) {
                eprintln!("the server ended: {error}");
            }
        });
        Ok(Server {
            address,
            _stop: stop,
            served: Some(served),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the process ends.
    pub fn wait(mut self) {
        if let Some(served) = self.served.take() {
            // Whatever ended it was printed.
            let _ = served.join();
        }
    }
}
