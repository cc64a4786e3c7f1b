//! Timestamps of a submission: where the device writes them, and how the host reads them.

use super::super::{DriverError, DriverResult, Signal};
use super::guard::Guard;

const STAMP_BYTES: u64 = wgpu::QUERY_SIZE as u64;

/// Room for some timestamps of one submission.
pub(super) struct Stamps {
    pub(super) queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    readable: wgpu::Buffer,
    tick_ns: f64,
    /// Whether the timestamps are mapped, or will soon be.
    is_mapped: bool,
}

impl Stamps {
    pub(super) fn new(device: &wgpu::Device, queue: &wgpu::Queue, label: &str, count: u32) -> Self {
        use wgpu::BufferUsages as Usages;
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size: u64::from(count) * STAMP_BYTES,
                usage,
                mapped_at_creation: false,
            })
        };
        Stamps {
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some(label),
                ty: wgpu::QueryType::Timestamp,
                count,
            }),
            resolved: buffer(Usages::QUERY_RESOLVE | Usages::COPY_SRC),
            readable: buffer(Usages::COPY_DST | Usages::MAP_READ),
            tick_ns: f64::from(queue.get_timestamp_period()),
            is_mapped: false,
        }
    }

    /// The time between two timestamps.
    pub(super) fn ns_between(&self, from: u64, to: u64) -> u64 {
        (to.saturating_sub(from) as f64 * self.tick_ns) as u64
    }

    /// Encodes the last commands of a submission, which copy its timestamps to where they can be
    /// read.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, count: u32) {
        encoder.resolve_query_set(&self.queries, 0..count, &self.resolved, 0);
        let bytes = u64::from(count) * STAMP_BYTES;
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.readable, 0, bytes);
    }

    /// Asks for the timestamps of the last submission. They can be read after the signal.
    pub(super) fn ask(&mut self, guard: &Guard, count: u32) -> DriverResult<Signal> {
        let bytes = u64::from(count) * STAMP_BYTES;
        let (signal, notice) = guard.progress.mapping();
        let asked = guard.guarded(|| {
            let tell = move |result: Result<(), _>| notice.tell(result.is_ok());
            (self.readable).map_async(wgpu::MapMode::Read, 0..bytes, tell);
        });
        guard.now(asked)?;
        self.is_mapped = true;
        Ok(signal)
    }

    /// Reads the timestamps that were asked for.
    pub(super) fn read(&mut self, guard: &Guard, count: u32) -> DriverResult<Vec<u64>> {
        let bytes = u64::from(count) * STAMP_BYTES;
        let shown = guard.guarded(|| self.readable.get_mapped_range(0..bytes));
        let view = guard.now(shown)?;
        let view = view.map_err(|error| DriverError::Invalid(error.to_string()))?;
        let stamps: Vec<u64> = (view.chunks_exact(8))
            .map(|stamp| (stamp.iter().rev()).fold(0, |all, byte| all << 8 | u64::from(*byte)))
            .collect();
        drop(view);
        guard.now(guard.guarded(|| self.readable.unmap()))?;
        self.is_mapped = false;
        Ok(stamps)
    }

    /// Gives up timestamps that cannot be read.
    pub(super) fn give_up(&mut self, guard: &Guard) {
        if std::mem::take(&mut self.is_mapped) {
            // Only a mapped buffer may be unmapped, and unmapping may fail with the device.
            let _ = guard.now(guard.guarded(|| self.readable.unmap()));
        }
    }
}
