//! Search by meaning on a page: the sentence encoder of examples/embed on a device that is opened
//! here. The model's files and the texts come from the page. This module fetches nothing, and keeps
//! everything in memory only.

use std::cell::RefCell;
use std::iter;
use std::rc::Rc;
use std::sync::Arc;

use embed::{Entry, Error, Files, Index, Model, Precision};
use js_sys::{Function, Uint8Array};
use lapidary::units::Bytes;
use lapidary::{Gpu, Options, files::ModelFile};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};

use crate::script::{budget, limit, shows_memory, told};

/// The least budget.
const LEAST_MIB: f64 = 1.0;

/// Tokens that go through the encoder at once: few enough to report progress often.
const BATCH_TOKENS: usize = 512;

/// A model's files, a device, and the index. Waiting calls take `&self`, so that the page can ask
/// for the memory meanwhile.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Search {
    gpu: Gpu,
    config: Vec<u8>,
    sentences: Option<Vec<u8>>,
    tokenizer: Vec<u8>,
    weights: ModelFile,
    indexed: RefCell<Option<Rc<Indexed>>>,
}

/// A loaded model, and the texts that it has vectors of.
#[derive(Debug)]
struct Indexed {
    model: Model,
    index: Index,
}

/// The results of a query, best first.
#[wasm_bindgen(getter_with_clone)]
#[derive(Debug)]
pub struct Answer {
    pub texts: Vec<String>,
    /// The cosine of each text's vector with the query's.
    pub scores: Vec<f32>,
    /// The number of the query's tokens, if the model reads fewer.
    pub cut_from: Option<usize>,
}

#[wasm_bindgen]
impl Search {
    /// Opens a device for a model of these files: `config.json`, `sentence_bert_config.json` if
    /// there is one, `tokenizer.json` and `model.safetensors`. The error says why files are not a
    /// model.
    pub async fn open(
        config: Vec<u8>,
        sentences: Option<Vec<u8>>,
        tokenizer: Vec<u8>,
        weights: &Uint8Array,
    ) -> Result<Search, JsError> {
        let weights = ModelFile::from_bytes(copied(weights)?).map_err(told)?;
        let gpu = Gpu::open_async(Options::default()).await.map_err(told)?;
        let search = Search {
            gpu,
            config,
            sentences,
            tokenizer,
            weights,
            indexed: RefCell::default(),
        };
        search.model(Precision::default()).map_err(told)?;
        Ok(search)
    }

    /// Indexes these texts, with weights as `f32`, `f16` or `int8`, in a budget if there is one.
    /// Calls `tell` with the number of finished texts. Returns how many are longer than the model
    /// reads.
    ///
    /// A device that is lost, before or meanwhile, is reopened.
    pub async fn index(
        &self,
        texts: Vec<String>,
        precision: &str,
        budget_mib: Option<f64>,
        tell: &Function,
    ) -> Result<usize, JsError> {
        let precision: Precision = precision.parse().map_err(told)?;
        let budget = budget(budget_mib, LEAST_MIB)?;
        // Drop the old weights before loading new ones.
        self.indexed.take();
        limit(&self.gpu, budget).await.map_err(told)?;
        let model = self.model(precision).map_err(told)?;
        let done = |count: usize| {
            // The browser reports errors of the script.
            let _ = tell.call1(&JsValue::NULL, &count.into());
        };
        let embedded = model.embed(&texts, done).await.map_err(told)?;
        let entries = (1..).zip(texts).map(|(line, text)| Entry {
            text,
            place: String::new(),
            line,
        });
        let index = Index::new(&self.gpu, entries.collect(), &embedded).await;
        let index = index.map_err(told)?;
        self.indexed
            .replace(Some(Rc::new(Indexed { model, index })));
        Ok(embedded.cut)
    }

    /// The `count` texts that are closest to a query.
    pub async fn query(&self, text: &str, count: usize) -> Result<Answer, JsError> {
        match self.indexed()?.search(text, count).await {
            // The vectors were only on the device.
            Err(error @ Error::Gpu(lapidary::Error::DeviceLost { .. })) => {
                self.indexed.take();
                Err(told(format_args!("{error}. Index the texts again")))
            }
            ended => ended.map_err(told),
        }
    }

    /// The vectors of texts, one after the other, for tests.
    pub async fn vectors(&self, texts: Vec<String>) -> Result<Vec<f32>, JsError> {
        let embedded = self.indexed()?.model.embed(&texts, |_| {}).await;
        Ok(embedded.map_err(told)?.vectors)
    }

    /// Bytes of the weights in use.
    pub fn weights_bytes(&self) -> Result<f64, JsError> {
        Ok(self.indexed()?.model.encoder.weights_bytes() as f64)
    }

    /// The most bytes on the device since indexing of these texts began.
    pub fn peak_bytes(&self) -> f64 {
        self.gpu.memory().stats().device_bytes.peak as f64
    }
}

shows_memory!(Search);

impl Search {
    fn indexed(&self) -> Result<Rc<Indexed>, JsError> {
        let indexed = self.indexed.borrow().clone();
        indexed.ok_or_else(|| told("there is nothing to search in: index texts first"))
    }

    /// The model, before anything of it is read.
    fn model(&self, precision: Precision) -> embed::Result<Model> {
        let files = Files {
            config: &self.config,
            sentences: self.sentences.as_deref(),
            tokenizer: &self.tokenizer,
        };
        let mut model = Model::new_as(&self.gpu, files, &self.weights, precision)?;
        model.batch_tokens = model.batch_tokens.min(BATCH_TOKENS);
        Ok(model)
    }
}

impl Indexed {
    async fn search(&self, text: &str, count: usize) -> embed::Result<Answer> {
        let (vector, cut_from) = self.model.query(text)?;
        let hits = self.index.search(&vector, count.max(1)).await?;
        Ok(Answer {
            texts: hits.iter().map(|hit| hit.entry.text.clone()).collect(),
            scores: hits.iter().map(|hit| hit.score).collect(),
            cut_from,
        })
    }
}

/// Copies a file of the page into the program's memory, once.
fn copied(file: &Uint8Array) -> Result<Arc<[u8]>, JsError> {
    let len = file.length() as usize;
    // Check for room first, because a failed allocation would end the program.
    let room = Vec::<u8>::new().try_reserve_exact(len.saturating_add(64));
    room.map_err(|_| {
        let bytes = Bytes(len as u64);
        told(format_args!(
            "there is no room for a file of {bytes}: a page has 4 GiB at most. Take a smaller model"
        ))
    })?;
    let mut bytes: Arc<[u8]> = iter::repeat_n(0, len).collect();
    if let Some(bytes) = Arc::get_mut(&mut bytes) {
        file.copy_to(bytes);
    }
    Ok(bytes)
}
