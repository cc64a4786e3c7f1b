//! Stores: a tier of evicted tensors between the host's memory and the disk. A store is memory
//! outside of this machine, or anything else that keeps bytes under keys.
//!
//! A [`Store`] of the app only writes, reads and removes values. The keys, the checksums and the
//! account are the engine's. A tensor is cut into parts of at most 1 MiB. Each part has a key and a
//! checksum, which stays in this process, so bytes are either right or not returned at all.
//!
//! ```text
//!   execution pass ─ writer, reader (`block`) ─► queue ─► thread of the store (`worker`) ─► Store
//!        waits with a time-out                    │
//!                       account and health (`ledger`): bytes in use, failures, rest
//! ```
//!
//! Each store has one thread, so a store that hangs holds up no other one. A pass waits for a call
//! no longer than the time-out. After that it goes on with the next tier, and the store rests.

mod block;
mod ledger;
mod open;
#[cfg(feature = "redis")]
mod redis;
mod store;
#[cfg(test)]
mod tests;
mod tier;
mod worker;

pub(crate) use block::{StoreBlock, StoreReader, StoreWriter};
pub use ledger::StoreUse;
pub(crate) use open::OpenStore;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
pub use store::{Key, MOST_VALUE_BYTES, Store};
pub(crate) use tier::MOST_STORES;
pub use tier::StoreTier;
