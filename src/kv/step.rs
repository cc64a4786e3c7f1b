//! A step of a model: new tokens of some sequences, for all layers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::cache::{Inner, Page};
use super::sequence::Sequence;
use crate::ops::paged::{self, Attention, Planned, Run};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

/// Positions are u32, and so are indices of words in kernels.
const MOST_TOKENS: usize = 1 << 31;

/// How [`KvStep::attend`] weighs keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attend {
    /// Scores are multiplied by it: 1/√size unless given.
    pub scale: Option<f32>,
    /// A token sees this many keys, its own and those right before it (a sliding window). All
    /// earlier ones unless given.
    pub window: Option<usize>,
    /// Scores become `c · tanh(score / c)`, as in Gemma 2.
    pub softcap: Option<f32>,
}

/// One step of a model: see [`KvCache::step`](super::KvCache::step).
pub struct KvStep<'a> {
    cache: Arc<Inner>,
    work: Vec<Work<'a>>,
    tokens: usize,
    positions: Tensor,
    /// What the layers share.
    plans: Mutex<Vec<Planned>>,
    is_finished: bool,
}

/// New tokens of a sequence.
struct Work<'a> {
    sequence: &'a mut Sequence,
    before: usize,
    /// The last page before the step, if the step has copied it.
    shared: Option<Arc<Page>>,
}

impl<'a> KvStep<'a> {
    #[track_caller]
    pub(super) fn new(
        cache: &Arc<Inner>,
        work: Vec<(&'a mut Sequence, usize)>,
    ) -> Result<KvStep<'a>> {
        let mut positions = Vec::new();
        for (sequence, tokens) in &work {
            check(cache, sequence, *tokens)?;
            positions.extend((sequence.len..sequence.len + tokens).map(|at| at as u32));
        }
        if positions.is_empty() {
            return refuse("no sequence: give at least one with new tokens");
        }
        let tokens = positions.len();
        let positions = cache.gpu.tensor(&positions, &[tokens])?;
        // From here on a drop takes back what was done.
        let mut step = KvStep {
            cache: cache.clone(),
            work: Vec::with_capacity(work.len()),
            tokens,
            positions,
            plans: Mutex::default(),
            is_finished: false,
        };
        for (sequence, tokens) in work {
            let before = sequence.len;
            step.work.push(Work {
                sequence,
                before,
                shared: None,
            });
            if let Some(last) = step.work.last_mut() {
                last.make_room(tokens)?;
            }
        }
        Ok(step)
    }

    /// The new tokens of all sequences: the rows of the step's tensors, one sequence after the
    /// other.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The position of each new token in its sequence: u32 `[tokens]`.
    pub fn positions(&self) -> &Tensor {
        &self.positions
    }

    /// Writes keys and values of the new tokens into the pages of a layer. Then it returns
    /// `softmax(q · kᵀ · scale) · v`, where each token sees the keys of its own sequence up to its
    /// own position.
    ///
    /// Queries are `[tokens, heads, size]`, keys and values `[tokens, kv heads, size]`, all floats.
    /// The result is `[tokens, heads, size]`, of the type of the queries. Sums are in f32. Each
    /// head of keys serves a group of neighbouring heads of queries. Only one tile of scores is
    /// ever stored, so any number of keys needs no more memory.
    ///
    /// Keys and values are to be finite as elements of the pages: 70,000 is none in f16. Others may
    /// make NaN also of tokens from whose view they are hidden.
    ///
    /// # Errors
    /// [`Error::Shape`] for shapes that do not match the cache, and for a layer, window, scale or
    /// softcap that cannot be. [`Error::DType`] for integers and bools, [`Error::Foreign`] for
    /// tensors of another `Gpu`, and [`Error::Gradient`] for tensors that gradients pass through.
    #[track_caller]
    pub fn attend(
        &self,
        layer: usize,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        how: Attend,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("attend");
        self.run(layer, [q, k, v], how).called("attend")
    }

    /// Keeps the new tokens. A step that is dropped without it takes them back.
    pub fn finish(mut self) {
        self.is_finished = true;
    }

    #[track_caller]
    fn run(&self, layer: usize, operands: [&Tensor; 3], how: Attend) -> Result<Tensor> {
        let options = self.cache.options;
        if layer >= options.layers {
            return refuse(format!(
                "layer {layer} of a cache with {} layers: they count from 0",
                options.layers
            ));
        }
        self.check_operands(operands)?;
        let scale = how.scale.unwrap_or(1.0 / (options.head_size as f32).sqrt());
        if !scale.is_finite() {
            return refuse(format!("a scale of {scale}: give a finite number"));
        }
        if how
            .softcap
            .is_some_and(|cap| !(cap.is_normal() && cap > 0.0))
        {
            return refuse("the softcap must be a finite number above 0");
        }
        let window = match how.window {
            Some(0) => return refuse("a window of 0 keys: a token sees at least its own"),
            window => window.and_then(|window| u32::try_from(window).ok()),
        };
        let [q, k, v] = [0, 1, 2].map(|index| lines(operands[index]));
        let call = Attention {
            geometry: options.geometry(),
            kv_heads: options.kv_heads as u32,
            layer: layer as u32,
            q: &q?,
            k: &k?,
            v: &v?,
            scale,
            window,
            softcap: how.softcap,
        };
        let runs: Vec<Run> = self.work.iter().map(Work::run).collect();
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        paged::attend(&call, &runs, &mut plans)
    }

    #[track_caller]
    fn check_operands(&self, operands: [&Tensor; 3]) -> Result<()> {
        let options = self.cache.options;
        let names = ["queries", "keys", "values"];
        for (index, (tensor, name)) in operands.into_iter().zip(names).enumerate() {
            tensor.same_engine("attend", &self.positions)?;
            if tensor.is_tracked() {
                return Err(Error::Gradient {
                    operation: "attend",
                    reason: format!(
                        "gradients do not pass through a cache: use `detach` on the {name}, or \
                         `scaled_dot_product_attention`"
                    ),
                });
            }
            if !tensor.dtype().is_float() {
                return Err(Error::DType {
                    operation: "attend",
                    expected: "f32, f16 or bf16".to_owned(),
                    got: tensor.dtype(),
                    hint: "Cast it to f32 first",
                    at: String::new(),
                });
            }
            let fits = match *tensor.shape() {
                [tokens, heads, size] if tokens == self.tokens && size == options.head_size => {
                    match index {
                        0 => heads > 0 && heads % options.kv_heads == 0,
                        _ => heads == options.kv_heads,
                    }
                }
                _ => false,
            };
            if !fits {
                let heads = match index {
                    0 => format!("a multiple of {}", options.kv_heads),
                    _ => options.kv_heads.to_string(),
                };
                return refuse(format!(
                    "{name} of shape {:?}: the step needs [{} tokens, {heads} heads, {}]",
                    tensor.shape(),
                    self.tokens,
                    options.head_size
                ));
            }
        }
        Ok(())
    }
}

/// `x` without gaps, from a multiple of 4 elements on. Copies it if necessary.
#[track_caller]
fn lines(x: &Tensor) -> Result<Tensor> {
    match x.is_contiguous() && x.layout.offset.is_multiple_of(4) {
        true => Ok(x.clone()),
        false => x.copy(),
    }
}

fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Shape {
        operation: "step",
        reason: reason.into(),
    })
}

/// Whether the sequence can have so many new tokens.
fn check(cache: &Arc<Inner>, sequence: &Sequence, tokens: usize) -> Result<()> {
    let name = sequence.name();
    if !Arc::ptr_eq(&sequence.cache, cache) {
        return refuse(format!(
            "the sequence `{name}` is of another cache: use the one that made it"
        ));
    }
    if tokens == 0 {
        return refuse(format!(
            "no new tokens of the sequence `{name}`: leave it out of the step"
        ));
    }
    match sequence.len.checked_add(tokens) {
        Some(all) if all <= MOST_TOKENS => Ok(()),
        _ => refuse(format!(
            "{tokens} more tokens of the sequence `{name}`, which has {}: {MOST_TOKENS} are the \
             most",
            sequence.len
        )),
    }
}

impl Work<'_> {
    /// Adds pages for new tokens, and copies the last one if another sequence shares it.
    #[track_caller]
    fn make_room(&mut self, tokens: usize) -> Result<()> {
        let sequence = &mut *self.sequence;
        let cache = sequence.cache.clone();
        let name = sequence.name().to_owned();
        let is_partial = !(sequence.len).is_multiple_of(cache.options.page_tokens);
        if let Some(last) = sequence.pages.last_mut().filter(|_| is_partial) {
            if Arc::get_mut(last).is_none() {
                let own = Arc::new(Page(last.0.copy()?.named(&name)));
                self.shared = Some(std::mem::replace(last, own));
            }
        }
        while sequence.pages.len() < cache.pages(sequence.len + tokens) {
            sequence.pages.push(cache.page(&name)?);
        }
        sequence.len += tokens;
        Ok(())
    }

    fn run(&self) -> Run {
        let pages = self.sequence.pages.iter();
        Run {
            before: self.before,
            rows: self.sequence.len - self.before,
            pages: pages.map(|page| page.0.storage.here().clone()).collect(),
        }
    }

    /// Takes the new tokens back.
    fn take_back(&mut self) {
        let sequence = &mut *self.sequence;
        sequence.len = self.before;
        sequence.pages.truncate(sequence.cache.pages(self.before));
        if let (Some(last), Some(shared)) = (sequence.pages.last_mut(), self.shared.take()) {
            *last = shared;
        }
    }
}

impl Drop for KvStep<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.work.iter_mut().for_each(Work::take_back);
        }
    }
}

impl fmt::Debug for KvStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvStep")
            .field("sequences", &self.work.len())
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}
