//! A cache of keys and values for models that generate text: pages of the device's memory, which
//! attention reads where they lie.
//!
//! A [`KvCache`] holds the keys and values of all layers of a model. A [`Sequence`] is a
//! conversation: a table of pages, each of 16 or 32 tokens. A new token goes into the last page, so
//! nothing is ever copied to append. A page is memory like that of any tensor. Within the budget it
//! moves, is evicted and restored, and it counts under the name of its sequence.
//!
//! A [`KvStep`] is one run of the model: new tokens of one or more sequences. Each layer calls
//! [`attend`](KvStep::attend), which appends and computes attention:
//!
//! ```
//! use lapidary::kv::{Attend, KvCache, KvOptions};
//! use lapidary::{DType, Gpu, Result, Tensor};
//!
//! # fn queries(_: usize, _: &Tensor) -> Result<(Tensor, Tensor, Tensor)> { unimplemented!() }
//! fn chat(gpu: &Gpu) -> Result<()> {
//!     let cache = KvCache::new(gpu, KvOptions {
//!         layers: 22,
//!         kv_heads: 4,
//!         head_size: 64,
//!         dtype: DType::F16,
//!         page_tokens: 16,
//!     })?;
//!     let mut ann = cache.sequence("Ann");
//!     let mut bob = cache.sequence("Bob");
//!     // Ann's prompt of 200 tokens and Bob's of 13 run together.
//!     let step = cache.step(vec![(&mut ann, 200), (&mut bob, 13)])?;
//!     for layer in 0..22 {
//!         // q: [213, 32, 64], k and v: [213, 4, 64]; rotated by `step.positions()`.
//!         let (q, k, v) = queries(layer, step.positions())?;
//!         let y = step.attend(layer, &q, &k, &v, Attend::default())?;
//!         // y: [213, 32, 64]
//!     }
//!     step.finish();
//!     assert_eq!(ann.len(), 200);
//!
//!     // Both go on from the same 200 tokens, and share their pages.
//!     let mut other = ann.fork("Ann's other try");
//!     let step = cache.step(vec![(&mut ann, 1), (&mut other, 1), (&mut bob, 1)])?;
//!     // …
//!     # drop(step);
//!     Ok(())
//! }
//! ```
//!
//! [`truncate`](Sequence::truncate) takes tokens back. A step that ends without
//! [`finish`](KvStep::finish) leaves its sequences as they were, so an error loses nothing.
//!
//! Gradients do not pass through a cache.

mod cache;
mod sequence;
mod step;

pub use cache::{KvCache, KvOptions};
pub use sequence::Sequence;
pub use step::{Attend, KvStep};
