//! Kernel parameters where there are no immediates: slots of uniform pages, chosen by a dynamic
//! offset.
//!
//! ```text
//!   page 0 │ dispatch 0 │ dispatch 1 │ … │ dispatch n │ unused …    page 1 │ …
//!          └ slots are a uniform alignment, or a few, apart
//! ```
//!
//! A page is written by `Queue::write_buffer`: the queue copies in order, after all that was
//! submitted and before what comes next. So a page may be written again at once, as long as
//! nobody else does between its writing and its submission: pages are taken and put back.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use super::super::{Caps, DriverResult};
use super::Opened;
use crate::units::KIB;

/// 1,024 slots where the alignment is 256, as it mostly is.
const PAGE_BYTES: u64 = 256 * KIB;

/// The size of a pipeline's uniform binding; none where it takes no parameters, or immediates.
pub(super) fn uniform_bytes(caps: &Caps, params_bytes: u32) -> Option<NonZeroU64> {
    match caps.max_immediate_bytes {
        0 => NonZeroU64::new(u64::from(params_bytes).checked_next_multiple_of(16)?),
        _ => None,
    }
}

/// The pages that nobody uses now.
pub(super) struct ParamPages {
    alignment_bytes: u64,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    free: Vec<Page>,
    made: usize,
}

/// A page in somebody's hands.
pub(super) struct Page {
    number: usize,
    raw: wgpu::Buffer,
    bytes: Vec<u8>,
}

impl ParamPages {
    pub(super) fn new(caps: &Caps) -> Self {
        ParamPages {
            alignment_bytes: caps.uniform_alignment_bytes.max(16),
            pool: Mutex::default(),
        }
    }

    /// The page with the lowest number that is free, so that few bind groups are needed; a new
    /// one if there is none.
    pub(super) fn take(&self, driver: &Opened) -> DriverResult<Page> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let lowest = (0..pool.free.len()).min_by_key(|index| pool.free[*index].number);
        if let Some(index) = lowest {
            return Ok(pool.free.swap_remove(index));
        }
        let number = pool.made;
        pool.made += 1;
        drop(pool);
        let guarded = driver.guarded_quietly(|| {
            driver.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("lapidary parameters"),
                size: PAGE_BYTES,
                usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        let raw = driver.now(guarded)?;
        driver.buffers_created.fetch_add(1, Ordering::Relaxed);
        let bytes = Vec::new();
        Ok(Page { number, raw, bytes })
    }

    pub(super) fn put_back(&self, mut page: Page) {
        page.bytes.clear();
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.free.push(page);
    }

    /// Writes parameters into the next slot and says at which offset; none if the page is full.
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

impl Page {
    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn buffer(&self) -> &wgpu::Buffer {
        &self.raw
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
