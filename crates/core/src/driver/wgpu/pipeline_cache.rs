//! Compiled pipelines, kept on disk where the driver hands them out: Vulkan's does. They save the
//! next start most of what compiling takes. (Many desktop drivers keep such a cache by themselves;
//! those of phones do not.)

#![allow(
    unsafe_code,
    reason = "wgpu leaves it to us that a cache's bytes are what the driver gave out"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache_file::{self, Kind};

const KIND: Kind = Kind {
    name: "pipelines",
    version: 1,
};

/// The pipelines of one opened device, and the file that they came from and go to.
pub(super) struct PipelineCache {
    raw: wgpu::PipelineCache,
    file: PathBuf,
    /// Compiled since the file was read or written.
    fresh: AtomicU64,
}

impl PipelineCache {
    /// What the folder holds for the device; none where its driver hands nothing out.
    pub(super) fn open(device: &wgpu::Device, folder: &Path) -> Option<Self> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let name = wgpu::util::pipeline_cache_key(&device.adapter_info())?;
        let file = folder.join(name);
        let data = cache_file::read(&file, KIND);
        // SAFETY: the bytes are what `get_data` returned to us: their checksum, and our name for
        // the format, stand before them in a file that only the user may write. wgpu checks that
        // they are from this adapter, the driver that it is still the same, and with `fallback`
        // both start empty where not.
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

    /// For a pipeline that is about to be compiled.
    pub(super) fn for_one_more(&self) -> &wgpu::PipelineCache {
        self.fresh.fetch_add(1, Ordering::Relaxed);
        &self.raw
    }

    /// Writes the file anew, if there is something new.
    pub(super) fn keep(&self) {
        if self.fresh.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(data) = self.raw.get_data() {
            cache_file::replace(&self.file, KIND, &data);
        }
    }
}
