//! Shares that mark what they write, for searches in what others can read.

use lapidary::{Buffer, Gpu};

/// Each word of a share has its number in the upper half, and this in the lower one.
const MARK: u32 = 0xbeef;

/// One share with what it holds. Every word of a buffer is the share's own, or was never written.
pub(crate) struct Tenant {
    pub(crate) number: u32,
    pub(crate) gpu: Gpu,
    pub(crate) buffers: Vec<Buffer>,
}

impl Tenant {
    /// One for each handle, with numbers from 1 on.
    pub(crate) fn of(gpus: impl IntoIterator<Item = Gpu>) -> Vec<Tenant> {
        let numbered = gpus.into_iter().zip(1..);
        let tenants = numbered.map(|(gpu, number)| Tenant {
            number,
            gpu,
            buffers: Vec::new(),
        });
        tenants.collect()
    }

    /// What it writes everywhere.
    pub(crate) fn word(&self) -> u32 {
        self.number << 16 | MARK
    }

    /// Did another share write this word?
    pub(crate) fn is_foreign(&self, word: u32) -> bool {
        word & 0xffff == MARK && word >> 16 > 0 && word != self.word()
    }
}
