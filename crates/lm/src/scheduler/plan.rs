//! Which conversations the next step takes, and how many rows of each.

use super::Scheduler;
use super::conversation::Conversation;
use super::request::ConversationId;

/// The rows of one conversation in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) conversation: ConversationId,
    pub(super) rows: usize,
    /// Its input is a token that is still on the device.
    pub(super) is_ahead: bool,
    /// A token follows from its last row.
    pub(super) speaks: bool,
}

impl Scheduler {
    /// The next step: those that go on from a token on the device, then the others. A conversation
    /// beyond the bytes of cache waits, but the first one of all never does.
    pub(super) fn plan(&self) -> Vec<Piece> {
        let context = self.model.config().context;
        let waiting = self.conversations.iter().filter_map(|(id, conversation)| {
            let rows = conversation.waiting_rows(context);
            (rows > 0).then_some((*id, conversation, rows))
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|(id, conversation, _)| {
            (conversation.rank(self.options.turn_tokens), *id)
        });
        let most_bytes = self.cache_limit();
        let mut bytes = 0;
        waiting.retain(|(_, conversation, rows)| {
            let needed = self.bytes_after(conversation, (*rows).min(self.options.rows));
            let fits = bytes == 0 || bytes + needed <= most_bytes;
            bytes += if fits { needed } else { 0 };
            fits
        });
        // Each takes a row, so those of a lower rank wait.
        waiting.truncate(self.options.rows);
        // Whoever speaks now waits for one row only, so a long prompt does not delay it.
        let mut left = self.options.rows;
        waiting.sort_by_key(|(_, conversation, rows)| (!conversation.is_ahead(), *rows > 1));
        let pieces = waiting
            .into_iter()
            .map_while(|(conversation, of, waiting)| {
                let rows = waiting.min(left);
                left -= rows;
                let (is_ahead, speaks) = (of.is_ahead(), rows == waiting);
                (rows > 0).then_some(Piece {
                    conversation,
                    rows,
                    is_ahead,
                    speaks,
                })
            });
        pieces.collect()
    }

    fn cache_limit(&self) -> u64 {
        let of_bounds = || {
            let memory = self.model.gpu().memory();
            let ceiling_bytes = memory.share_use().and_then(|share| share.ceiling_bytes);
            let bounds = [memory.budget().device_bytes, ceiling_bytes];
            Some(bounds.into_iter().flatten().min()? / 2)
        };
        self.options
            .cache_bytes
            .or_else(of_bounds)
            .unwrap_or(u64::MAX)
    }

    /// Bytes of cache that a conversation has after so many more rows, in whole pages.
    fn bytes_after(&self, conversation: &Conversation, rows: usize) -> u64 {
        let options = self.cache.options();
        let pages = (conversation.cached() + rows).div_ceil(options.page_tokens);
        pages as u64 * options.page_bytes()
    }
}
