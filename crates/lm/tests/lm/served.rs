//! A model whose weights a server sends, on a device that awaits them as a browser does.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use lapidary::files::{ModelFile, WeightForm};
use lapidary::sim::SimOptions;
use lapidary::{Gpu, Source};
use lapidary_lm::{Config, LanguageModel, Request, Scheduler, SchedulerOptions};

use crate::weights::{expected, folder, gpu, model as alike, safetensors};

/// Each answer comes late.
fn server(bytes: Arc<[u8]>) -> Source {
    Source::reader_async(move |from, len| {
        let (bytes, mut is_late) = (bytes.clone(), true);
        poll_fn(move |context| {
            if std::mem::take(&mut is_late) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let range = from as usize..(from + len) as usize;
            Poll::Ready(Ok(bytes[range].to_vec()))
        })
    })
}

#[test]
fn a_server_that_answers_late_changes_no_token() {
    let expected = expected("qwen2");
    let bytes: Arc<[u8]> = safetensors(&expected).into();
    let (pausing, _device) = Gpu::simulated(SimOptions {
        pauses: 1,
        ..SimOptions::default()
    })
    .unwrap();
    let open = async {
        let len_bytes = bytes.len() as u64;
        let file = ModelFile::from_source_async("a server", server(bytes.clone()), len_bytes);
        let description = std::fs::read(folder("qwen2").join("config.json")).unwrap();
        let config = Config::from_json("config.json".as_ref(), &description, None).unwrap();
        LanguageModel::new_async(&pausing, &file.await.unwrap(), config).await
    };
    let model = pollster::block_on(open).unwrap();
    let wanted = say(
        &alike(&gpu(), "qwen2", WeightForm::Stored),
        &expected.prompt,
    );
    assert_eq!(say(&model, &expected.prompt), wanted);
}

fn say(model: &LanguageModel, prompt: &[u32]) -> Vec<u32> {
    let mut scheduler = Scheduler::new(model, SchedulerOptions::default()).unwrap();
    let id = scheduler.open("one");
    let request = Request::new(prompt.to_vec(), 24);
    scheduler.say(id, request).unwrap();
    while scheduler.is_busy() {
        scheduler.step().unwrap();
    }
    scheduler.tokens(id)[prompt.len()..].to_vec()
}
