//! What happened to memory: a bounded ring of small events, the oldest of which make room for the
//! newest.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Residency;
use crate::alloc::SlabClass;
use crate::shortage::ReclaimStep;

/// Of more kernels than so many the rest share a name.
const MOST_KERNELS: usize = 1 << 12;

/// One thing that happened to memory. Storages and slabs are told by numbers that none before or
/// after them has; tags by their place in the list that comes with the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A storage got a block.
    Alloc {
        /// Which.
        storage: u64,
        /// Who made it.
        tag: u32,
        /// Its bytes.
        bytes: u64,
        /// The slab of the block.
        slab: u32,
        /// Where in the slab it begins.
        offset_bytes: u64,
    },
    /// A storage is gone, and its block free.
    Free {
        /// Which.
        storage: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// An output took over the block of an operand that nobody holds any more.
    Donate {
        /// Whose block it was.
        storage: u64,
        /// Whose it is.
        heir: u64,
        /// Who made that.
        tag: u32,
        /// Its bytes.
        bytes: u64,
    },
    /// A storage was moved to another block.
    Move {
        /// Which.
        storage: u64,
        /// Its bytes.
        bytes: u64,
        /// The slab of the new block.
        slab: u32,
        /// Where in the slab it begins.
        offset_bytes: u64,
    },
    /// A storage left the device.
    Evict {
        /// Which.
        storage: u64,
        /// Its bytes.
        bytes: u64,
        /// Where its bytes are.
        to: Residency,
    },
    /// A storage came back to the device.
    Restore {
        /// Which.
        storage: u64,
        /// Who made it.
        tag: u32,
        /// Its bytes.
        bytes: u64,
        /// The slab of the block.
        slab: u32,
        /// Where in the slab it begins.
        offset_bytes: u64,
    },
    /// A slab was created.
    SlabCreated {
        /// Which.
        slab: u32,
        /// Its bytes.
        bytes: u64,
        /// What it is for.
        class: SlabClass,
    },
    /// A slab was given back.
    SlabReleased {
        /// Which.
        slab: u32,
        /// Its bytes.
        bytes: u64,
    },
    /// Work was submitted.
    Submission {
        /// The how manieth it is.
        serial: u64,
        /// Commands encoded so far.
        commands: u64,
    },
    /// A reclaim step freed something.
    ReclaimStep {
        /// Which.
        step: ReclaimStep,
        /// How much.
        freed_bytes: u64,
    },
    /// A storage found no room.
    Refusal {
        /// Its bytes.
        bytes: u64,
    },
    /// The device was lost, and another has taken its place: nothing is on it yet.
    Reopened,
    /// Bytes of the host's were copied, or are on their way, to a storage.
    Upload {
        /// Which.
        storage: u64,
        /// How many.
        bytes: u64,
    },
    /// Bytes of a storage were copied, or are on their way, to the host.
    Read {
        /// Which.
        storage: u64,
        /// How many.
        bytes: u64,
    },
    /// A kernel ran, while [kernels are timed](crate::Gpu::time_kernels). Its times are those of
    /// the device's clock, put so that a submission ends when its end was noticed.
    Kernel {
        /// Which, by place in the list of kernels' names.
        kernel: u32,
        /// When it began, in nanoseconds since the device was opened, ...
        begin_ns: u64,
        /// ... and when it ended.
        end_ns: u64,
    },
}

/// An event and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since the device was opened, as of the execution pass that it happened in: the
    /// clock is read once for many events. 0 in a browser.
    pub at_ns: u64,
    /// What happened.
    pub event: Event,
}

/// The last things that happened.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// From `oldest` on around, once there are as many as there may be.
    moments: Vec<Moment>,
    oldest: usize,
    /// How many there may be; 0: nobody wants to know.
    most: usize,
    /// How many have made room for others.
    dropped: u64,
    now_ns: u64,
    /// The names of kernels that events name by their place here; the first is that of all others.
    kernels: Vec<Arc<str>>,
    kernel_numbers: FxHashMap<Arc<str>, u32>,
}

impl Ring {
    /// Keeps so many from now on.
    pub(super) fn keep(&mut self, most: usize) {
        self.moments.rotate_left(self.oldest);
        self.oldest = 0;
        let gone = self.moments.len().saturating_sub(most);
        self.moments.drain(..gone);
        self.moments.shrink_to(most);
        self.dropped += gone as u64;
        self.most = most;
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.most > 0
    }

    pub(super) fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    #[inline]
    pub(super) fn push(&mut self, event: Event) {
        if self.is_on() {
            self.keep_one(Moment {
                at_ns: self.now_ns,
                event,
            });
        }
    }

    /// A kernel ran.
    pub(super) fn push_kernel(&mut self, name: &Arc<str>, begin_ns: u64, end_ns: u64) {
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

    pub(super) fn kernels(&self) -> &[Arc<str>] {
        &self.kernels
    }

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

    /// The oldest first.
    pub(super) fn moments(&self) -> Vec<Moment> {
        let (newer, older) = self.moments.split_at(self.oldest);
        [older, newer].concat()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}
