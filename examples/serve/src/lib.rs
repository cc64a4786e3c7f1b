//! A sentence encoder over HTTP, for many tenants on one device.
//!
//! ```text
//!  connections ─► routes ─► desk: a bounded queue for each tenant ─► worker ─► device
//!  (time-outs)    (keys,    (`fair`: whose turn it is)               (one thread: batches,
//!                 bodies)                                            retries, a lost device)
//! ```
//!
//! | file | what it holds |
//! | --- | --- |
//! | `tenants` | who may ask: names, keys, weights |
//! | `fair` | the queues, and which texts go into the next batch |
//! | `answer` | the vectors of a request, collected from several batches |
//! | `desk` | where requests wait, and where the worker takes them |
//! | `room`, `pace` | how many texts fit into a batch: by memory, by time |
//! | `worker` | the thread that drives the device |
//! | `routes` | from HTTP to requests and back |
//! | `connections` | sockets with time-outs, and the graceful stop |
//! | `patience` | a socket that waits for its client only so long |
//! | `numbers` | metrics for Prometheus |
//! | `server` | all of these combined |

mod answer;
mod connections;
mod desk;
mod error;
mod fair;
mod numbers;
mod pace;
mod patience;
mod room;
mod routes;
mod server;
mod tenants;
mod worker;

pub use error::{Error, Result};
pub use server::{Limits, Served, Server};
pub use tenants::{Tenant, Tenants};
