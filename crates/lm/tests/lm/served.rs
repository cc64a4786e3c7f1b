//! A model whose weights a server sends, on a device that awaits them as a browser does.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use lapidary::files::{ModelFile, WeightForm};
use lapidary::sim::SimOptions;
use lapidary::{Gpu, Source};
use lapidary_lm::{Config, LanguageModel, Request, Scheduler, SchedulerOptions};

use crate::weights::{expected, folder, gpu, model as alike, safetensors};

/// Each answer comes late. For a while all are failures, longer than the engine asks by itself.
fn server(bytes: Arc<[u8]>) -> Source {
    let calls = AtomicU64::new(0);
    Source::reader_async(move |from, len| {
        let fails = (8..40).contains(&calls.fetch_add(1, Ordering::Relaxed));
        let (bytes, mut is_late) = (bytes.clone(), true);
        poll_fn(move |context| {
            if std::mem::take(&mut is_late) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(match fails {
                true => Err(io::Error::other("status 503")),
                false => Ok(bytes[from as usize..(from + len) as usize].to_vec()),
            })
        })
    })
}

#[test]
fn a_server_that_answers_late_and_fails_for_a_while_changes_no_token() {
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
    )
    .0;
    let (said, failures) = say(&model, &expected.prompt);
    assert!(failures > 0);
    assert_eq!(said, wanted);
}

/// What a model says, and how many steps failed.
fn say(model: &LanguageModel, prompt: &[u32]) -> (Vec<u32>, u32) {
    let mut scheduler = Scheduler::new(model, SchedulerOptions::default()).unwrap();
    let id = scheduler.open("one");
    let request = Request::new(prompt.to_vec(), 24);
    scheduler.say(id, request).unwrap();
    let mut failures = 0;
    while scheduler.is_busy() {
        if let Err(error) = scheduler.step() {
            assert!(error.to_string().contains("status 503"), "{error}");
            failures += 1;
            assert!(failures < 100, "it never goes on");
        }
    }
    (scheduler.tokens(id)[prompt.len()..].to_vec(), failures)
}
