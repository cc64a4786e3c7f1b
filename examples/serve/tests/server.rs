//! The server on a simulated device, with a small model and clients that are no browsers.

#[path = "server/client.rs"]
mod client;
#[path = "server/loss.rs"]
mod loss;
#[path = "server/memory.rs"]
mod memory;
#[path = "server/overload.rs"]
mod overload;
#[path = "server/requests.rs"]
mod requests;
#[path = "server/setup.rs"]
mod setup;
#[path = "server/slow.rs"]
mod slow;
#[path = "server/stop.rs"]
mod stop;
