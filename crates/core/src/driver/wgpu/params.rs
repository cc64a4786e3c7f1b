//! Parameters of kernels on devices without immediates: slots of uniform pages, chosen by a dynamic
//! offset. Bytes that a submission writes into slabs ([`Op::Write`](crate::driver::Op)) are copied
//! from such slots, too.
//!
//! ```text
//!   page 0 │ dispatch 0 │ dispatch 1 │ … │ dispatch n │ unused …    page 1 │ …
//!          └ slots are a uniform alignment, or a few, apart
//! ```
//!
//! `Queue::write_buffer` writes a page. The queue copies in order: after all earlier submissions,
//! and before the next. So a page can be reused at once, unless two threads write it before one of
//! them submits. Therefore a thread takes a page out of the pool and puts it back.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::super::{Caps, DriverResult};
use super::guard::Guard;
use crate::units::KIB;

/// 1024 slots with an alignment of 256, which most devices have.
pub(super) const PAGE_BYTES: u64 = 256 * KIB;

/// The size of a pipeline's uniform binding. `None` without parameters, or with immediates.
pub(super) fn uniform_bytes(caps: &Caps, params_bytes: u32) -> Option<NonZeroU64> {
    match caps.max_immediate_bytes {
        0 => NonZeroU64::new(u64::from(params_bytes).checked_next_multiple_of(16)?),
        _ => None,
    }
}

/// The pages that no thread uses now.
pub(super) struct ParamPages {
    alignment_bytes: u64,
    pool: Mutex<ParamsPool>,
}

#[derive(Default)]
struct ParamsPool {
    free: Vec<Page>,
    made: usize,
}

/// A page that a thread uses.
pub(super) struct Page {
    pub(super) number: usize,
    pub(super) raw: wgpu::Buffer,
    pub(super) bytes: Vec<u8>,
}

/// As a [`BufferEntry`](super::tables::BufferEntry).
#[cfg(target_arch = "wasm32")]
impl Drop for Page {
    fn drop(&mut self) {
        self.raw.destroy();
    }
}

impl ParamPages {
    pub(super) fn new(caps: &Caps) -> Self {
        ParamPages {
            alignment_bytes: caps.uniform_alignment_bytes.max(16),
            pool: Mutex::default(),
        }
    }

    /// The free page with the lowest number, so that few bind groups are needed. A new page if none
    /// is free.
    pub(super) fn take(&self, guard: &Guard) -> DriverResult<Page> {
        let mut pool = self.pool.lock();
        let lowest = (0..pool.free.len()).min_by_key(|index| pool.free[*index].number);
        if let Some(index) = lowest {
            return Ok(pool.free.swap_remove(index));
        }
        let number = pool.made;
        pool.made += 1;
        drop(pool);
        let guarded = guard.guarded_quietly(|| {
            guard.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("lapidary parameters"),
                size: PAGE_BYTES,
                usage: wgpu::BufferUsages::UNIFORM
                    | wgpu::BufferUsages::COPY_DST
                    | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            })
        });
        let raw = guard.now(guarded)?;
        guard.buffers_created.fetch_add(1, Ordering::Relaxed);
        let bytes = Vec::new();
        Ok(Page { number, raw, bytes })
    }

    pub(super) fn put_back(&self, mut page: Page) {
        page.bytes.clear();
        self.pool.lock().free.push(page);
    }

    /// Writes parameters into the next slot and returns its offset. `None` if the page is full.
    pub(super) fn write(&self, page: &mut Page, params: &[u8]) -> Option<u32> {
        let offset = (page.bytes.len() as u64).checked_next_multiple_of(self.alignment_bytes)?;
        let size = (params.len() as u64).checked_next_multiple_of(16)?;
        if offset + size > PAGE_BYTES {
            return None;
        }
        page.bytes.resize(offset as usize, 0);
        page.bytes.extend_from_slice(params);
        page.bytes.resize((offset + size) as usize, 0);
        Some(offset as u32)
    }
}
