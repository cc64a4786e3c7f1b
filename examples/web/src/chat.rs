//! A language model on a page: the decoder of `lapidary-lm`, with what is around it of
//! examples/chat. The page's script gives ranges of the model's file, such as by HTTP. lapidary
//! asks for the bytes of a weight at its first use, and again after it was dropped. So neither the
//! device nor wasm's memory has to hold the model.

use std::cell::RefCell;
use std::io;
use std::path::Path;

use chat::talk::{Report, Speaker, Talk};
use js_sys::{Error, Function, Map, Promise, Uint8Array};
use lapidary::{Gpu, Options, Source, files::ModelFile};
use lapidary_lm::{Config, LanguageModel, Sampling, SchedulerOptions};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsError, JsValue};
use wasm_bindgen_futures::JsFuture;

use crate::script::{budget, limit, shows_memory, told};

/// The least budget. Some layers fit into less than a MiB.
const LEAST_MIB: f64 = 0.01;

/// A model on a device, and the conversation with it.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Chat {
    gpu: Gpu,
    /// `None` while it speaks.
    talk: RefCell<Option<Talk>>,
}

#[wasm_bindgen]
impl Chat {
    /// Opens a device for a model of safetensors or GGUF, whose file has so many bytes.
    /// `range(from, length)` promises bytes of it. `beside` has the files of its folder by their
    /// names. Errors show the address.
    pub async fn open(
        address: &str,
        len_bytes: f64,
        range: Function,
        beside: &Map,
    ) -> Result<Chat, JsError> {
        let source = Source::reader_async(move |from, len| {
            let called = range.call2(&JsValue::NULL, &(from as f64).into(), &(len as f64).into());
            async move { given(called).await.map_err(of_script) }
        });
        let file = ModelFile::from_source_async(address, source, len_bytes as u64);
        let (file, path) = (file.await.map_err(told)?, Path::new(address));
        let beside = |name: &str| {
            let file = beside.get(&name.into()).dyn_into::<Uint8Array>();
            Some(file.ok()?.to_vec())
        };
        let config = match beside("config.json") {
            Some(config) => {
                Config::from_json(path, &config, beside("generation_config.json").as_deref())
            }
            None => Config::read(path, &file),
        };
        let gpu = Gpu::open_async(Options::default()).await.map_err(told)?;
        let model = LanguageModel::new_async(&gpu, &file, config.map_err(told)?).await;
        let speaker = Speaker::new(model.map_err(told)?, path, &file, &beside).map_err(told)?;
        let talk = Talk::new(speaker, SchedulerOptions::default()).map_err(told)?;
        Ok(Chat {
            gpu,
            talk: RefCell::new(Some(talk)),
        })
    }

    /// Begins a conversation with a question, in a budget if there is one. Calls `hear` with each
    /// piece of the answer, and the number of tokens so far. Returns their number, at most
    /// `most_tokens`. A temperature of 0 says the likeliest tokens.
    ///
    /// A device that is lost before is reopened.
    pub async fn ask(
        &self,
        question: &str,
        most_tokens: usize,
        temperature: f32,
        seed: u32,
        budget_mib: Option<f64>,
        hear: &Function,
    ) -> Result<usize, JsError> {
        let budget = budget(budget_mib, LEAST_MIB)?;
        let talk = self.talk.take();
        let mut talk = talk.ok_or_else(|| told("the model is still speaking: wait"))?;
        let asking = async {
            if limit(&self.gpu, budget).await? {
                talk.forget()?;
            }
            talk.set_messages(Vec::new());
            talk.most_tokens = most_tokens;
            talk.sampling = Sampling::at(temperature, seed.into());
            let heard = |piece: &str, report: &Report| {
                // The browser reports errors of the script.
                let _ = hear.call2(&JsValue::NULL, &piece.into(), &report.said.into());
            };
            talk.ask_async(question, heard).await
        };
        let asked = asking.await;
        self.talk.replace(Some(talk));
        Ok(asked.map_err(told)?.said)
    }

    /// The most bytes on the device since the last question.
    pub fn peak_bytes(&self) -> f64 {
        self.gpu.memory().stats().device_bytes.peak as f64
    }
}

shows_memory!(Chat);

/// The bytes that a call of the script promised.
async fn given(called: Result<JsValue, JsValue>) -> Result<Vec<u8>, JsValue> {
    let given = JsFuture::from(Promise::resolve(&called?)).await?;
    Ok(Uint8Array::new(&given).to_vec())
}

/// An error of the script, with its message.
fn of_script(error: JsValue) -> io::Error {
    io::Error::other(match error.dyn_ref::<Error>() {
        Some(error) => String::from(error.message()),
        None => format!("{error:?}"),
    })
}
