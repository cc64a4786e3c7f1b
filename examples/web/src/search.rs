//! Search by meaning on a page: the sentence encoder of examples/embed on a device that is opened here, with the
//! model's files and the texts from the page. Nothing is fetched here, and nothing is kept but in memory.

use std::cell::RefCell;
use std::iter;
use std::rc::Rc;
use std::sync::Arc;

use embed::{Entry, Error, Files, Index, Model, Precision};
use js_sys::{Function, Uint8Array};
use lapidary::units::Bytes;
use lapidary::{Budget, Gpu, ModelFile, Options};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};

use crate::script::{levels, told};

/// Tokens that go through the encoder at once, so that there is something to tell of before all is done.
const BATCH_TOKENS: usize = 512;

/// A model, and what can be found with it. What waits takes it shared, so that the page may ask for its memory
/// meanwhile.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Search {
    gpu: Gpu,
    model: Model,
    index: RefCell<Option<Rc<Index>>>,
}

/// What a query found, best first.
#[wasm_bindgen(getter_with_clone)]
#[derive(Debug)]
pub struct Answer {
    pub texts: Vec<String>,
    /// The cosine of each text's vector with the query's.
    pub scores: Vec<f32>,
    /// The tokens of the query, if the model reads fewer.
    pub cut_from: Option<usize>,
}

#[wasm_bindgen]
impl Search {
    /// Opens a device, and puts a model together of its files: `config.json`, `sentence_bert_config.json` if
    /// there is one, `tokenizer.json` and `model.safetensors`. Weights are kept as `f32`, `f16` or `int8`.
    pub async fn open(
        config: &[u8],
        sentences: Option<Vec<u8>>,
        tokenizer: &[u8],
        weights: &Uint8Array,
        precision: &str,
        budget_mib: Option<f64>,
    ) -> Result<Search, JsError> {
        let precision: Precision = precision.parse().map_err(told)?;
        let options = Options {
            budget: budget_mib.map(budget).transpose()?,
            ..Options::default()
        };
        let weights = ModelFile::from_bytes(copied(weights)?).map_err(told)?;
        let gpu = Gpu::open_async(options).await.map_err(told)?;
        let files = Files {
            config,
            sentences: sentences.as_deref(),
            tokenizer,
        };
        let mut model = Model::new_as(&gpu, files, &weights, precision).map_err(told)?;
        model.batch_tokens = model.batch_tokens.min(BATCH_TOKENS);
        Ok(Search {
            gpu,
            model,
            index: RefCell::default(),
        })
    }

    /// Makes these texts what is searched. `tell` is called with how many are done. Returns how many are longer
    /// than the model reads.
    ///
    /// A device that was lost, before or meanwhile, is opened again.
    pub async fn index(&self, texts: Vec<String>, tell: &Function) -> Result<usize, JsError> {
        self.index.take();
        let done = |count: usize| {
            // A script that fails is the browser's to complain of.
            let _ = tell.call1(&JsValue::NULL, &count.into());
        };
        let embedded = self.model.embed(&texts, done).await.map_err(told)?;
        let entries = (1..).zip(texts).map(|(line, text)| Entry {
            text,
            place: String::new(),
            line,
        });
        let index = Index::new(&self.gpu, entries.collect(), &embedded);
        let index = index.await.map_err(told)?;
        self.index.replace(Some(Rc::new(index)));
        Ok(embedded.cut)
    }

    /// So many texts that are closest to a query.
    pub async fn query(&self, text: &str, count: usize) -> Result<Answer, JsError> {
        let index = self.index.borrow().clone();
        let index = index.ok_or_else(|| told("there is nothing to search in: index texts first"))?;
        match self.search(&index, text, count).await {
            // The vectors were on the device alone.
            Err(error @ Error::Gpu(lapidary::Error::DeviceLost { .. })) => {
                self.index.take();
                Err(told(format_args!("{error}. Index the texts again")))
            }
            ended => ended.map_err(told),
        }
    }

    /// The vectors of texts, one after the other, for tests.
    pub async fn vectors(&self, texts: Vec<String>) -> Result<Vec<f32>, JsError> {
        let embedded = self.model.embed(&texts, |_| {}).await;
        Ok(embedded.map_err(told)?.vectors)
    }

    /// What the weights take that are used, and the most that was held on the device so far, in bytes.
    pub fn extent(&self) -> Vec<f64> {
        let peak_bytes = self.gpu.memory().device_bytes.peak;
        let extent = [self.model.encoder.weights_bytes(), peak_bytes];
        extent.iter().map(|&bytes| bytes as f64).collect()
    }

    /// The report, as people read it.
    pub fn memory(&self) -> String {
        self.gpu.memory().to_string()
    }

    /// Live, in slabs, and all that lapidary has made on the device, in bytes, for a bar.
    pub fn bytes(&self) -> Vec<f64> {
        levels(&self.gpu)
    }
}

impl Search {
    async fn search(&self, index: &Index, text: &str, count: usize) -> embed::Result<Answer> {
        let (vector, cut_from) = self.model.query(text)?;
        let hits = index.search(&vector, count.max(1)).await?;
        Ok(Answer {
            texts: hits.iter().map(|hit| hit.entry.text.clone()).collect(),
            scores: hits.iter().map(|hit| hit.score).collect(),
            cut_from,
        })
    }
}

/// What the page's field says.
fn budget(mib: f64) -> Result<Budget, JsError> {
    const MOST: f64 = 1_048_576.0;
    match (1.0..=MOST).contains(&mib) {
        true => Ok(Budget::device((mib * 1_048_576.0) as u64)),
        false => Err(told(format_args!(
            "a budget is 1 to {MOST} MiB, or none, and not {mib}"
        ))),
    }
}

/// A file of the page's in the program's memory, once.
fn copied(file: &Uint8Array) -> Result<Arc<[u8]>, JsError> {
    let len = file.length() as usize;
    // Asked for first, since memory that cannot be had ends the program.
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
