//! A conversation goes on after its device was lost.

use std::path::Path;

use chat::talk::{Speaker, Talk};
use lapidary::Gpu;
use lapidary::sim::SimOptions;
use lapidary_lm::{ModelOptions, Sampling, SchedulerOptions};

#[test]
fn an_answer_goes_on_when_the_device_is_lost() {
    let (gpu, sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/model");
    let speaker = Speaker::open(&gpu, &path, ModelOptions::default()).unwrap();
    let mut talk = Talk::new(speaker, SchedulerOptions::default()).unwrap();
    talk.sampling = Sampling::greedy();
    talk.most_tokens = 8;
    let mut ask = |lost_at: usize| {
        talk.set_messages(Vec::new());
        let mut answer = String::new();
        let report = talk.ask("The memory of the device", |piece, report| {
            answer.push_str(piece);
            if report.said == lost_at {
                sim.lose("a test");
            }
        });
        let report = report.unwrap();
        let reopened = u32::from(lost_at <= 8);
        assert_eq!((report.said, report.reopened), (8, reopened));
        answer
    };
    let expected = ask(usize::MAX);
    for lost_at in [1, 4] {
        assert_eq!(ask(lost_at), expected);
    }
}
