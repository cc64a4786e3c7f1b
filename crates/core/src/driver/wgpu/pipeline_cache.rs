//! Compiled pipelines on disk, if the driver exports them, as Vulkan drivers do. They save the next
//! start most of the compile time. (Many desktop drivers have such a cache themselves; those of
//! phones do not.)

#![allow(
    unsafe_code,
    reason = "wgpu leaves it to us that a cache's bytes are what the driver gave out"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::pipeline_file;

/// The pipelines of one opened device, and their file.
pub(super) struct PipelineCache {
    raw: wgpu::PipelineCache,
    file: PathBuf,
    /// The number of pipelines compiled since the file was read or written.
    fresh: AtomicU64,
}

impl PipelineCache {
    /// The folder's cache for the device. `None` if its driver exports no pipelines.
    pub(super) fn open(device: &wgpu::Device, folder: &Path) -> Option<Self> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let name = wgpu::util::pipeline_cache_key(&device.adapter_info())?;
        let file = folder.join(name);
        let data = pipeline_file::read(&file);
        // SAFETY: `get_data` returned these bytes to us. A checksum and our name of the format
        // stand before them, in a file that only the user may write. wgpu checks that they are from
        // this adapter, and the driver that it has not changed. With `fallback` both start with an
        // empty cache if the check fails.
        let raw = unsafe {
            device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                label: Some("lapidary"),
                data: data.as_deref(),
                fallback: true,
            })
        };
        Some(PipelineCache {
            raw,
            file,
            fresh: AtomicU64::new(0),
        })
    }

    /// The cache, for a pipeline that is compiled next.
    pub(super) fn for_one_more(&self) -> &wgpu::PipelineCache {
        self.fresh.fetch_add(1, Ordering::Relaxed);
        &self.raw
    }

    /// Rewrites the file if there are new pipelines.
    pub(super) fn keep(&self) {
        if self.fresh.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(data) = self.raw.get_data() {
            pipeline_file::replace(&self.file, &data);
        }
    }
}
