//! Who holds memory when most of it is live.

use super::tag::Tag;
use super::tags::Tags;
use crate::shortage::Holder;
use std::cmp::Reverse;

/// The holders at the highest live bytes so far.
#[derive(Debug)]
pub(super) struct Peak {
    live_bytes: u64,
    /// Are the present levels those of the peak?
    is_now: bool,
    /// For each tag that holds something at the peak: its number, bytes, storages.
    held: Vec<(u32, u64, u64)>,
}

impl Peak {
    /// Starts with the present level as the peak.
    pub(super) fn new(live_bytes: u64) -> Self {
        Peak {
            live_bytes,
            is_now: true,
            held: Vec::new(),
        }
    }

    /// A block was handed out. All blocks now have this many bytes.
    pub(super) fn rose(&mut self, live_bytes: u64) {
        if live_bytes > self.live_bytes {
            (self.live_bytes, self.is_now) = (live_bytes, true);
        }
    }

    /// A block is about to be freed.
    pub(super) fn falls(&mut self, tags: &Tags) {
        if std::mem::take(&mut self.is_now) {
            let entries = (0..).zip(tags.entries());
            let held = entries.map(|(number, one)| (number, one.bytes.now, one.storages.now));
            self.held.clear();
            self.held.extend(held.filter(|(_, bytes, _)| *bytes > 0));
        }
    }

    /// The holders at the peak, the most bytes first.
    pub(super) fn holders(&mut self, tags: &Tags) -> Vec<Holder> {
        self.falls(tags);
        let mut held = self.held.clone();
        held.sort_by_key(|&(_, bytes, _)| Reverse(bytes));
        let holders = held.into_iter().map(|(number, bytes, storages)| {
            let entry = tags.entries().get(number as usize);
            let tag = entry.and_then(|one| one.tag.as_ref());
            Holder {
                tag: tag.map_or("others".into(), Tag::to_string),
                bytes,
                storages,
                saved_bytes: 0,
            }
        });
        holders.collect()
    }
}
