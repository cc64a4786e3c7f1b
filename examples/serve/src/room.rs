//! How many texts of a length fit into the memory at once, from dry runs.

use std::collections::BTreeMap;

use embed::{Encoder, Error, Result, Tokens};
use lapidary::{Budget, Gpu};

/// If even one text evicts something, larger batches may be slower by this factor.
const SLOWER: f64 = 1.1;

/// Shorter texts count as this long.
const SHORTEST: usize = 4;

/// Most texts of a batch, by their length.
#[derive(Debug)]
pub(crate) struct Room {
    most_texts: usize,
    longest: usize,
    /// For each length in question, a power of two.
    texts: BTreeMap<usize, usize>,
    /// The limits of memory for which that holds.
    limits: Option<Limits>,
}

/// The budget of the device, and the ceiling of the share.
type Limits = (Budget, Option<u64>);

impl Room {
    /// For texts of up to `longest` tokens, at most `most_texts` at once.
    pub(crate) fn new(longest: usize, most_texts: usize) -> Room {
        Room {
            most_texts,
            longest,
            texts: BTreeMap::new(),
            limits: None,
        }
    }

    /// Most texts of a length.
    pub(crate) fn texts(&self, length: usize) -> usize {
        let (_, texts) = self.texts.range(length..).next().unwrap_or((&0, &1));
        *texts
    }

    /// Asks again if the memory's limits have changed.
    pub(crate) fn refresh(&mut self, gpu: &Gpu, encoder: &Encoder) -> Result<()> {
        let memory = gpu.memory();
        let ceiling_bytes = memory.share_use().and_then(|share| share.ceiling_bytes);
        let limits = (memory.budget(), ceiling_bytes);
        if self.limits == Some(limits) {
            return Ok(());
        }
        let mut texts = BTreeMap::new();
        let mut most = self.most_texts;
        let mut length = SHORTEST;
        loop {
            // Longer texts take at least as much memory.
            most = fit(gpu, encoder, length.min(self.longest), most)?;
            texts.insert(length, most);
            if length >= self.longest {
                break;
            }
            length *= 2;
        }
        (self.texts, self.limits) = (texts, Some(limits));
        Ok(())
    }
}

/// Most texts of this many tokens that evict nothing. With less memory than the weights take, every
/// batch evicts something; then it is the most that a small batch's slowdown allows.
fn fit(gpu: &Gpu, encoder: &Encoder, length: usize, most: usize) -> Result<usize> {
    let text = Tokens {
        ids: vec![0; length],
        cut_from: None,
    };
    let run = |count: usize| match encoder.encode(&vec![&text; count]) {
        Ok(vectors) => Ok(vectors),
        Err(Error::Gpu(error)) => Err(error),
        Err(error) => Err(lapidary::Error::Option {
            option: "texts",
            reason: error.to_string(),
        }),
    };
    match gpu.fit_batch(1..=most, |_, count| run(count)) {
        Ok(fit) => return Ok(fit.batch),
        Err(lapidary::Error::NeverFits { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let slowdown = gpu.dry_run(|_| run(1))?.slowdown() * SLOWER;
    match gpu.fit_batch_within(1..=most, slowdown.max(1.0), |_, count| run(count)) {
        Ok(fit) => Ok(fit.batch),
        Err(lapidary::Error::NeverFits { .. }) => Ok(1),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use embed::small;
    use lapidary::shares::ShareOptions;

    use super::*;

    #[test]
    fn fewer_and_shorter_texts_fit_into_less_memory() {
        let (gpu, _) = Gpu::simulated(Default::default()).unwrap();
        let share = gpu
            .share("serve", ShareOptions::guaranteed(1 << 20))
            .unwrap();
        let model = small::model(&share).unwrap();

        let mut room = Room::new(small::LONGEST, 100);
        let mut ask = |ceiling_bytes: u64| {
            let limits = ShareOptions::guaranteed(0).with_ceiling(ceiling_bytes);
            share.resize(limits).unwrap();
            room.refresh(&share, &model.encoder).unwrap();
            [4, 8, 16].map(|length| room.texts(length))
        };
        assert_eq!(ask(64 << 20), [100; 3]);
        let some = ask(96 << 10);
        assert!(
            some[0] >= some[1] && some[1] > some[2] && some[2] > 8,
            "{some:?}"
        );
        let few = ask(24 << 10);
        assert!(few[1] < some[1] && few[2] < some[2], "{few:?}");
        assert_eq!(ask(64 << 20), [100; 3]);
    }
}
