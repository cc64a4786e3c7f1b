//! The queues of the tenants, and whose texts go into the next batch.
//!
//! Each tenant has a bounded queue, so a flood fills only its own. Turns follow start-time fair
//! queueing (P. Goyal et al., 1996): a tenant's *served* counts the tokens that it had, divided by
//! its weight. A tenant that comes back after a pause starts where the others are, so that nobody
//! saves turns up.
//!
//! 1. The tenant that was served the least leads the batch. Its first text decides the length.
//! 2. Others join as long as they are at most a quarter of a batch ahead of it.
//! 3. If every tenant of the batch has more waiting, their texts fill it up. Otherwise somebody
//!    gets all of its answers from this batch, and a larger batch would only delay those.
//!
//! While a batch of tenants that are far ahead runs, texts of others are *urgent*: the worker
//! pauses that batch for them.

use std::collections::VecDeque;

/// Units of `served` for a token at weight 1.
const SCALE: u64 = 1000;

/// A text that waits.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    /// The number of its request.
    pub(crate) request: u64,
    pub(crate) tokens: usize,
    pub(crate) item: T,
}

/// A batch.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    pub(crate) texts: Vec<T>,
    /// Tokens of the batch, padding included.
    pub(crate) tokens: usize,
    /// Whether no further text may be in it.
    pub(crate) is_full: bool,
    /// A quarter of a full batch, in units of `served`.
    turn: u64,
    /// The most that any of its tenants was served, this batch included.
    most_served: u64,
}

impl<T> Taken<T> {
    /// Two batches with half of the texts each.
    pub(crate) fn halves(mut self) -> [Taken<T>; 2] {
        let later = self.texts.split_off(self.texts.len() / 2);
        let tokens = self.tokens / 2;
        let [turn, most_served] = [self.turn, self.most_served];
        [self.texts, later].map(|texts| Taken {
            texts,
            tokens,
            is_full: false,
            turn,
            most_served,
        })
    }
}

/// Why texts cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) waiting: usize,
}

#[derive(Debug)]
struct Lane<T> {
    weight: u64,
    served: u64,
    waiting: VecDeque<Waiting<T>>,
    /// Texts that will wait here soon.
    reserved: usize,
}

/// The queues of all tenants.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    lanes: Vec<Lane<T>>,
    /// Most texts that wait for one tenant.
    most_waiting: usize,
    /// What the leader of the last batch was served before it. It never falls.
    now: u64,
}

impl<T> FairQueue<T> {
    pub(crate) fn new(weights: &[u32], most_waiting: usize) -> FairQueue<T> {
        let lane = |&weight: &u32| Lane {
            weight: u64::from(weight.max(1)),
            served: 0,
            waiting: VecDeque::new(),
            reserved: 0,
        };
        FairQueue {
            lanes: weights.iter().map(lane).collect(),
            most_waiting,
            now: 0,
        }
    }

    /// The number of texts of a tenant that wait.
    pub(crate) fn waiting(&self, tenant: usize) -> usize {
        self.lanes[tenant].waiting.len()
    }

    /// Are there places for this many texts of a tenant?
    pub(crate) fn check_places(&self, tenant: usize, texts: usize) -> Result<(), Full> {
        let lane = &self.lanes[tenant];
        let waiting = lane.waiting.len() + lane.reserved;
        match waiting + texts <= self.most_waiting {
            true => Ok(()),
            false => Err(Full { waiting }),
        }
    }

    /// Reserves places for all texts of a request, or none.
    pub(crate) fn reserve(&mut self, tenant: usize, texts: usize) -> Result<(), Full> {
        self.check_places(tenant, texts)?;
        self.lanes[tenant].reserved += texts;
        Ok(())
    }

    /// Gives reserved places back.
    pub(crate) fn release(&mut self, tenant: usize, texts: usize) {
        self.lanes[tenant].reserved -= texts;
    }

    /// Adds texts, whose places the caller has reserved and releases now.
    pub(crate) fn push(&mut self, tenant: usize, texts: Vec<Waiting<T>>) {
        let lane = &mut self.lanes[tenant];
        if lane.waiting.is_empty() {
            lane.served = lane.served.max(self.now);
        }
        lane.waiting.extend(texts);
    }

    /// Removes the texts of a request whose client is gone.
    pub(crate) fn cancel(&mut self, tenant: usize, request: u64) {
        let waiting = &mut self.lanes[tenant].waiting;
        waiting.retain(|text| text.request != request);
    }

    /// Removes everything.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let lanes = self.lanes.iter_mut();
        let texts = lanes.flat_map(|lane| lane.waiting.drain(..));
        texts.map(|text| text.item).collect()
    }

    /// The next batch. `most` is the number of texts of a length that fit into one.
    pub(crate) fn take(&mut self, most: impl Fn(usize) -> usize) -> Option<Taken<T>> {
        let leader = self.leader()?;
        let start = self.lanes[leader].served;
        self.now = self.now.max(start);
        let first = self.lanes[leader].waiting.front()?.tokens;
        let length = first.next_power_of_two();
        let most = most(length).max(1);
        let turn = (most * length) as u64 * SCALE / 4;
        let mut batch = Batch {
            tenants: Vec::new(),
            texts: Vec::new(),
            longest: 0,
            most_served: 0,
        };
        self.fill(&mut batch, length, most, start + turn);
        let has_more = |&tenant: &usize| !self.lanes[tenant].waiting.is_empty();
        if batch.tenants.iter().all(has_more) {
            self.fill(&mut batch, length, most, u64::MAX);
        }
        Some(Taken {
            tokens: batch.longest * batch.texts.len(),
            is_full: batch.texts.len() == most,
            texts: batch.texts,
            turn,
            most_served: batch.most_served,
        })
    }

    /// The next batch, if its tenants should not wait until `running` ends.
    pub(crate) fn take_urgent(
        &mut self,
        running: &Taken<T>,
        most: impl Fn(usize) -> usize,
    ) -> Option<Taken<T>> {
        let leader = self.leader()?;
        match self.lanes[leader].served + running.turn < running.most_served {
            true => self.take(most),
            false => None,
        }
    }

    /// The tenant that was served the least, of those that wait.
    fn leader(&self) -> Option<usize> {
        let lanes = self.lanes.iter().enumerate();
        let waiting = lanes.filter(|(_, lane)| !lane.waiting.is_empty());
        Some(waiting.min_by_key(|(_, lane)| lane.served)?.0)
    }

    /// Adds texts of like lengths while there is room, always of the tenant that was served the
    /// least and at most `limit`.
    fn fill(&mut self, batch: &mut Batch<T>, length: usize, most: usize, limit: u64) {
        let fits = |text: &Waiting<T>| text.tokens <= length && text.tokens * 2 >= length;
        while batch.texts.len() < most {
            let lanes = self.lanes.iter().enumerate();
            let lanes = lanes.filter(|(_, lane)| lane.served <= limit);
            let next = lanes
                .filter_map(|(at, lane)| Some((at, lane.waiting.iter().position(fits)?)))
                .min_by_key(|(at, _)| self.lanes[*at].served);
            let Some((tenant, at)) = next else {
                return;
            };
            let lane = &mut self.lanes[tenant];
            let Some(text) = lane.waiting.remove(at) else {
                return;
            };
            lane.served += text.tokens as u64 * SCALE / lane.weight;
            batch.most_served = batch.most_served.max(lane.served);
            batch.longest = batch.longest.max(text.tokens);
            if !batch.tenants.contains(&tenant) {
                batch.tenants.push(tenant);
            }
            batch.texts.push(text.item);
        }
    }
}

/// A batch that is being filled.
struct Batch<T> {
    tenants: Vec<usize>,
    texts: Vec<T>,
    longest: usize,
    most_served: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds texts of one length; their items name the tenant.
    fn add(queue: &mut FairQueue<usize>, tenant: usize, count: usize, tokens: usize) {
        let text = |_| Waiting {
            request: tokens as u64,
            tokens,
            item: tenant,
        };
        queue.reserve(tenant, count).unwrap();
        queue.push(tenant, (0..count).map(text).collect());
        queue.release(tenant, count);
    }

    fn count(batch: &Taken<usize>, tenant: usize) -> usize {
        batch.texts.iter().filter(|&&of| of == tenant).count()
    }

    #[test]
    fn a_lone_tenant_fills_batches_of_like_lengths() {
        let mut queue = FairQueue::new(&[1], 100);
        add(&mut queue, 0, 10, 4);
        add(&mut queue, 0, 3, 16);
        let sizes = std::iter::from_fn(|| queue.take(|length| 32 / length));
        let sizes: Vec<_> = sizes
            .map(|batch| (batch.texts.len(), batch.tokens))
            .collect();
        assert_eq!(sizes, [(8, 32), (2, 8), (2, 32), (1, 16)]);
        assert_eq!(queue.waiting(0), 0);
    }

    #[test]
    fn a_flood_fills_only_its_own_queue() {
        let mut queue = FairQueue::new(&[1, 1], 8);
        add(&mut queue, 0, 4, 4);
        queue.reserve(0, 4).unwrap();
        assert_eq!(queue.reserve(0, 1), Err(Full { waiting: 8 }));
        queue.release(0, 4);
        add(&mut queue, 0, 4, 4);
        assert_eq!(queue.reserve(0, 1), Err(Full { waiting: 8 }));
        add(&mut queue, 1, 8, 4);
        queue.cancel(0, 4);
        assert_eq!((queue.waiting(0), queue.waiting(1)), (0, 8));
        assert_eq!(queue.drain().len(), 8);
    }

    #[test]
    fn tenants_that_always_wait_get_tokens_by_their_weights() {
        let mut queue = FairQueue::new(&[1, 1, 2], 100);
        let mut had = [0; 3];
        for _ in 0..400 {
            // The first has short texts, the others long ones.
            for (tenant, tokens) in [4, 16, 16].into_iter().enumerate() {
                let missing = 20 - queue.waiting(tenant);
                add(&mut queue, tenant, missing, tokens);
            }
            let batch = queue.take(|length| 64 / length).unwrap();
            for (tenant, tokens) in [4, 16, 16].into_iter().enumerate() {
                had[tenant] += count(&batch, tenant) * tokens;
            }
        }
        let per_weight = [had[0], had[1], had[2] / 2];
        let (least, most) = (per_weight.iter().min(), per_weight.iter().max());
        assert!(most.unwrap() - least.unwrap() <= 64, "{had:?}");
    }

    #[test]
    fn a_quiet_tenant_is_urgent_while_a_flood_runs_and_goes_alone() {
        let mut queue = FairQueue::new(&[1, 1], 100);
        add(&mut queue, 0, 100, 4);
        let flood = queue.take(|_| 16).unwrap();
        assert_eq!(count(&flood, 0), 16);
        assert!(queue.take_urgent(&flood, |_| 16).is_none());
        for _ in 0..8 {
            add(&mut queue, 1, 1, 4);
            let urgent = queue.take_urgent(&flood, |_| 16).unwrap();
            assert_eq!((count(&urgent, 0), count(&urgent, 1)), (0, 1));
        }
        // It is no longer behind by more than a quarter of a batch.
        add(&mut queue, 1, 20, 4);
        let urgent: usize = std::iter::from_fn(|| queue.take_urgent(&flood, |_| 1))
            .map(|batch| count(&batch, 1))
            .sum();
        assert!(urgent <= 4, "{urgent}");
    }

    #[test]
    fn many_tenants_with_one_text_each_share_a_batch() {
        let mut queue = FairQueue::new(&[1; 40], 100);
        add(&mut queue, 0, 1, 4);
        let running = queue.take(|_| 32).unwrap();
        for tenant in 1..40 {
            add(&mut queue, tenant, 1, 4);
        }
        assert!(queue.take_urgent(&running, |_| 32).is_none());
        assert_eq!(queue.take(|_| 32).unwrap().texts.len(), 32);
        assert_eq!(queue.take(|_| 32).unwrap().texts.len(), 7);
    }

    #[test]
    fn a_tenant_that_paused_saved_no_turns_up() {
        let mut queue = FairQueue::new(&[1, 1], 1000);
        add(&mut queue, 0, 900, 4);
        for _ in 0..50 {
            queue.take(|_| 16).unwrap();
        }
        add(&mut queue, 1, 500, 4);
        let mut had = [0, 0];
        for _ in 0..12 {
            let batch = queue.take(|_| 16).unwrap();
            had = [had[0] + count(&batch, 0), had[1] + count(&batch, 1)];
        }
        assert!(had[0] * 3 > had[1], "{had:?}");
    }
}
