//! The cache: the layout of its pages, and new pages.

use std::fmt;
use std::sync::Arc;

use super::sequence::Sequence;
use super::step::KvStep;
use crate::gpu::Gpu;
use crate::ops::paged::Geometry;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::units::Bytes;
use lapidary_core::{DType, Error, Result};

/// The largest head. Its queries and keys fit into the memory of a workgroup on each device.
const MOST_HEAD_SIZE: usize = 256;

/// The most bytes of a page. More are no ordinary block.
const MOST_PAGE_BYTES: u64 = 128 << 20;

/// The shape of a [`KvCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvOptions {
    /// The layers of the model that have attention.
    pub layers: usize,
    /// The heads of keys and values. Those of queries are a multiple of them.
    pub kv_heads: usize,
    /// Elements of a key, and of a value: a multiple of 4, at most 256.
    pub head_size: usize,
    /// How keys and values are stored: [`DType::F32`], [`DType::F16`] or [`DType::I8`]. Bytes have
    /// one scale for each key, and for each value.
    pub dtype: DType,
    /// Tokens of a page, 16 or 32. Each sequence leaves half a page empty on average.
    pub page_tokens: usize,
}

/// Keys and values of all layers of a model, for any number of sequences. Cheap to clone: see the
/// [module](crate::kv).
#[derive(Clone)]
pub struct KvCache {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) gpu: Gpu,
    pub(super) options: KvOptions,
}

/// Keys and values of some tokens, in all layers.
pub(super) struct Page(pub(super) Tensor);

impl KvCache {
    /// A cache without sequences. It takes no memory yet.
    ///
    /// # Errors
    /// [`Error::Option`] for a shape that no page can have.
    pub fn new(gpu: &Gpu, options: KvOptions) -> Result<KvCache> {
        options.check(gpu.caps().max_binding_bytes)?;
        let inner = Inner {
            gpu: gpu.clone(),
            options,
        };
        Ok(KvCache {
            inner: Arc::new(inner),
        })
    }

    /// The shape of the cache.
    pub fn options(&self) -> KvOptions {
        self.inner.options
    }

    /// An empty sequence. Reports count its pages under this name.
    pub fn sequence(&self, name: &str) -> Sequence {
        Sequence::new(self.inner.clone(), name)
    }

    /// Makes room for so many new tokens at the end of each sequence: one step of a model. The
    /// rows of the step's tensors are these tokens, one sequence after the other.
    ///
    /// A page that sequences share is copied first, if the step writes to it.
    ///
    /// # Errors
    /// [`Error::Shape`] for no sequence, for no new token of one, for a sequence of another cache,
    /// and for more than 2³¹ tokens. [`Error::DeviceLost`]. The sequences are as before then.
    #[track_caller]
    pub fn step<'a>(&self, work: Vec<(&'a mut Sequence, usize)>) -> Result<KvStep<'a>> {
        KvStep::new(&self.inner, work).called("step")
    }
}

impl fmt::Debug for KvCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KvCache").field(&self.inner.options).finish()
    }
}

impl KvOptions {
    /// Refuses what no page can have, and pages that one binding of the device cannot show.
    fn check(&self, max_binding_bytes: u64) -> Result<()> {
        let refuse = |option, reason: String| Err(Error::Option { option, reason });
        for (option, number) in [("layers", self.layers), ("kv_heads", self.kv_heads)] {
            if number == 0 {
                return refuse(option, "0, where a model has at least 1".to_owned());
            }
        }
        let size = self.head_size;
        if size == 0 || size > MOST_HEAD_SIZE || !size.is_multiple_of(4) {
            return refuse(
                "head_size",
                format!("{size}: give a multiple of 4, at most {MOST_HEAD_SIZE}"),
            );
        }
        if !matches!(self.dtype, DType::F32 | DType::F16 | DType::I8) {
            return refuse("dtype", format!("{}: give F32, F16 or I8", self.dtype));
        }
        if !matches!(self.page_tokens, 16 | 32) {
            return refuse(
                "page_tokens",
                format!("{}: give 16 or 32", self.page_tokens),
            );
        }
        let most_bytes = MOST_PAGE_BYTES.min(max_binding_bytes);
        match self.page_bytes() <= most_bytes {
            true => Ok(()),
            false => refuse(
                "layers",
                format!(
                    "a page of {} tokens in {} layers of {} heads takes {}, and {} are the most: \
                     use several caches of fewer layers",
                    self.page_tokens,
                    self.layers,
                    self.kv_heads,
                    Bytes(self.page_bytes()),
                    Bytes(most_bytes)
                ),
            ),
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            head_size: self.head_size as u32,
            page_tokens: self.page_tokens as u32,
            dtype: self.dtype,
        }
    }

    /// The bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        let block_bytes = 16 * u64::from(self.geometry().block_units());
        let layer_bytes = block_bytes.saturating_mul(self.kv_heads as u64);
        layer_bytes.saturating_mul(self.layers as u64)
    }
}

impl Inner {
    /// The pages of so many tokens.
    pub(super) fn pages(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.options.page_tokens)
    }

    /// A new page, whose memory comes with its first token.
    #[track_caller]
    pub(super) fn page(&self, name: &str) -> Result<Arc<Page>> {
        let words = self.options.page_bytes() / 4;
        let page = Tensor::output(self.gpu.engine(), &[words as usize], DType::U32)?;
        Ok(Arc::new(Page(page.named(name))))
    }
}
