//! The history of memory: a bounded ring of small events. New events replace the oldest.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Residency, Tag};
use crate::alloc::SlabClass;
use crate::shortage::ReclaimStep;

/// Most kernel names. Further kernels share one name.
const MOST_KERNELS: usize = 1 << 12;

/// One event in memory. Numbers of storages and slabs are unique over the device's life. A tag is
/// an index in the list of tags that comes with the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A storage got a block.
    Alloc {
        /// Number of the storage.
        storage: u64,
        /// Tag of its maker.
        tag: u32,
        /// Its size, in bytes.
        bytes: u64,
        /// The slab of the block.
        slab: u32,
        /// Offset of the block in the slab, in bytes.
        offset_bytes: u64,
    },
    /// A storage was dropped, and its block is free.
    Free {
        /// Number of the storage.
        storage: u64,
        /// Its size, in bytes.
        bytes: u64,
    },
    /// An output took over the block of an operand that nothing else holds.
    Donate {
        /// The storage that had the block.
        storage: u64,
        /// The storage that has it now.
        heir: u64,
        /// Tag of the maker of `heir`.
        tag: u32,
        /// The block's bytes.
        bytes: u64,
    },
    /// A storage was moved to another block.
    Move {
        /// Number of the storage.
        storage: u64,
        /// Its size, in bytes.
        bytes: u64,
        /// The slab of the new block.
        slab: u32,
        /// Offset of the block in the slab, in bytes.
        offset_bytes: u64,
    },
    /// A storage left the device.
    Evict {
        /// Number of the storage.
        storage: u64,
        /// Its size, in bytes.
        bytes: u64,
        /// Where its bytes are now.
        to: Residency,
    },
    /// A storage was restored to the device.
    Restore {
        /// Number of the storage.
        storage: u64,
        /// Tag of its maker.
        tag: u32,
        /// Its size, in bytes.
        bytes: u64,
        /// The slab of the block.
        slab: u32,
        /// Offset of the block in the slab, in bytes.
        offset_bytes: u64,
    },
    /// A slab was created.
    SlabCreated {
        /// Number of the slab.
        slab: u32,
        /// Its size, in bytes.
        bytes: u64,
        /// Which requests it serves.
        class: SlabClass,
    },
    /// A slab was released.
    SlabReleased {
        /// Number of the slab.
        slab: u32,
        /// Its size, in bytes.
        bytes: u64,
    },
    /// A slab was created in the host's memory: see
    /// [`Options::host_heap`](crate::Options::host_heap).
    HostSlabCreated {
        /// Number of the slab.
        slab: u32,
        /// Its size, in bytes.
        bytes: u64,
        /// Which requests it serves.
        class: SlabClass,
    },
    /// A slab in the host's memory was released.
    HostSlabReleased {
        /// Number of the slab.
        slab: u32,
        /// Its size, in bytes.
        bytes: u64,
    },
    /// A storage got a block in a slab of the host's memory. [`Evict`](Event::Evict) follows once
    /// its bytes move there.
    HostAlloc {
        /// Number of the storage.
        storage: u64,
        /// Tag of its maker.
        tag: u32,
        /// Its size, in bytes.
        bytes: u64,
        /// The slab of the block.
        slab: u32,
        /// Offset of the block in the slab, in bytes.
        offset_bytes: u64,
    },
    /// The block of a storage in a slab of the host's memory is free. The storage was written or
    /// dropped, or has its bytes elsewhere.
    HostFree {
        /// Number of the storage.
        storage: u64,
        /// Its size, in bytes.
        bytes: u64,
    },
    /// A storage was moved to another block in a slab of the host's memory.
    HostMove {
        /// Number of the storage.
        storage: u64,
        /// Its size, in bytes.
        bytes: u64,
        /// The slab of the new block.
        slab: u32,
        /// Offset of the block in the slab, in bytes.
        offset_bytes: u64,
    },
    /// A batch was submitted.
    Submission {
        /// Serial number of the submission.
        serial: u64,
        /// Commands encoded so far.
        commands: u64,
    },
    /// A reclaim step freed something.
    ReclaimStep {
        /// The step.
        step: ReclaimStep,
        /// Bytes that the step freed.
        freed_bytes: u64,
    },
    /// A request found no room.
    Refusal {
        /// Requested bytes.
        bytes: u64,
    },
    /// The device was lost, and a new one replaced it. It is still empty.
    Reopened,
    /// The host copied bytes to a storage, or has queued the copy.
    Upload {
        /// Number of the storage.
        storage: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// The host read bytes of a storage, or has queued the read.
    Read {
        /// Number of the storage.
        storage: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// A kernel ran while [kernels are timed](crate::diagnostics::GpuKernels::time). The times come
    /// from the device's clock. They are shifted so that a submission ends when the engine noticed
    /// its end.
    Kernel {
        /// Index in the list of kernel names.
        kernel: u32,
        /// When the kernel began, in nanoseconds since the device was opened.
        begin_ns: u64,
        /// When the kernel ended, in nanoseconds since the device was opened.
        end_ns: u64,
    },
}

/// An event and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since the device was opened. The clock is read once per execution pass, so
    /// events of one pass share a time. 0 in a browser.
    pub at_ns: u64,
    /// The event.
    pub event: Event,
}

/// The last events in memory: see [`GpuMemory::history`](crate::GpuMemory::history).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct History {
    /// The events, oldest first.
    pub moments: Vec<Moment>,
    /// The makers. Events hold an index into this list. `None` stands for all makers beyond the
    /// limit.
    pub tags: Vec<Option<Tag>>,
    /// The names of the kernels. Events hold an index into this list.
    pub kernels: Vec<String>,
    /// Number of earlier events that were dropped.
    pub dropped: u64,
}

/// A ring of the last events.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// A full ring begins at `oldest` and wraps around.
    moments: Vec<Moment>,
    oldest: usize,
    /// Most events that are kept; 0 turns the history off.
    most: usize,
    /// How many events newer ones have replaced.
    dropped: u64,
    pub(crate) now_ns: u64,
    /// Kernel names, by the index that events use. The first name stands for all kernels beyond the
    /// limit.
    kernels: Vec<Arc<str>>,
    kernel_numbers: FxHashMap<Arc<str>, u32>,
}

impl Ring {
    /// Keeps up to `most` events from now on.
    pub(crate) fn keep(&mut self, most: usize) {
        self.moments.rotate_left(self.oldest);
        self.oldest = 0;
        let gone = self.moments.len().saturating_sub(most);
        self.moments.drain(..gone);
        self.moments.shrink_to(most);
        self.dropped += gone as u64;
        self.most = most;
    }

    /// Are events recorded?
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.most > 0
    }

    /// Records an event, if events are recorded.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        if self.is_on() {
            self.keep_one(Moment {
                at_ns: self.now_ns,
                event,
            });
        }
    }

    /// Records that a kernel ran. Its times are on the events' clock.
    pub(crate) fn push_kernel(&mut self, name: &Arc<str>, begin_ns: u64, end_ns: u64) {
        if self.kernels.is_empty() {
            self.kernels.push("others".into());
        }
        let known = self.kernel_numbers.get(name).copied();
        let kernel = match known {
            Some(kernel) => kernel,
            None if self.kernels.len() >= MOST_KERNELS => 0,
            None => {
                let kernel = self.kernels.len() as u32;
                self.kernels.push(name.clone());
                self.kernel_numbers.insert(name.clone(), kernel);
                kernel
            }
        };
        self.push(Event::Kernel {
            kernel,
            begin_ns,
            end_ns,
        });
    }

    #[inline(never)]
    fn keep_one(&mut self, moment: Moment) {
        if self.moments.len() < self.most {
            self.moments.push(moment);
            return;
        }
        if let Some(oldest) = self.moments.get_mut(self.oldest) {
            *oldest = moment;
            self.dropped += 1;
            self.oldest += 1;
            if self.oldest == self.most {
                self.oldest = 0;
            }
        }
    }

    /// All kept events and the kernels that they name. `tags` has the makers that they name.
    pub(super) fn history(&self, tags: Vec<Option<Tag>>) -> History {
        let (newer, older) = self.moments.split_at(self.oldest);
        let kernels = self.kernels.iter().map(|name| name.to_string());
        History {
            moments: [older, newer].concat(),
            tags,
            kernels: kernels.collect(),
            dropped: self.dropped,
        }
    }
}
