//! Storages and where they are: slabs, places, and the numbers about them.

mod storage;

pub(crate) use storage::{DeadList, Storage};
pub use storage::{Residency, Tag, TenantId};
