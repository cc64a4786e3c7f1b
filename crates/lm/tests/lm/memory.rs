//! Weights in every form, and too little memory for them: the same tokens.

use lapidary::files::WeightForm;
use lapidary::shares::ShareOptions;
use lapidary::sim::SimOptions;
use lapidary::{Budget, DType, Gpu};
use lapidary_lm::{LanguageModel, ModelOptions, Request, Scheduler, SchedulerOptions};

use crate::weights::{deep, expected, folder, gpu, greedy, model, safetensors};

fn say(model: &LanguageModel, prompt: &[u32], most: usize) -> Vec<u32> {
    let mut scheduler = Scheduler::new(model, SchedulerOptions::default()).unwrap();
    let id = scheduler.open("one");
    scheduler
        .say(id, Request::new(prompt.to_vec(), most))
        .unwrap();
    while scheduler.is_busy() {
        scheduler.step().unwrap();
    }
    scheduler.tokens(id)[prompt.len()..].to_vec()
}

#[test]
fn each_form_of_the_weights_is_near_the_stored_one() {
    let expected = expected("qwen3");
    for (form, most) in [
        (WeightForm::Float(DType::F32), 1e-5),
        (WeightForm::Float(DType::F16), 1e-5),
        (WeightForm::Float(DType::Bf16), 0.2),
        (WeightForm::Int8 { group: Some(32) }, 0.3),
    ] {
        let model = model(&gpu(), "qwen3", form);
        let (logits, _) = greedy(&model, &expected.prompt, 64, 1);
        assert_eq!(logits.len(), expected.logits.len());
        assert!(logits.iter().all(|logit| logit.is_finite()), "{form:?}");
        let far = |(got, wanted): (&f32, &f32)| (got - wanted).abs();
        let worst = logits
            .iter()
            .zip(&expected.logits)
            .map(far)
            .fold(0.0, f32::max);
        assert!(worst <= most, "{form:?}: {worst}");
    }
}

#[test]
fn a_model_beyond_the_budget_says_the_same() {
    let prompt = expected("llama3").prompt;
    let wanted = say(&deep(&gpu(), 24).0, &prompt, 16);
    for part in [2, 4] {
        let gpu = gpu();
        let (model, weights) = deep(&gpu, 24);
        gpu.memory()
            .set_budget(Budget::device(weights / part))
            .unwrap();
        assert_eq!(
            say(&model, &prompt, 16),
            wanted,
            "in 1/{part} of the weights"
        );
        let stats = gpu.memory().stats();
        assert!(stats.restored_bytes > weights, "weights are read again");
        assert!(
            stats.reserved_bytes.peak <= weights,
            "{} bytes",
            stats.reserved_bytes.peak
        );
    }
}

#[test]
fn models_in_shares_say_what_they_say_alone() {
    let prompt = expected("llama3").prompt;
    let (model, weights) = deep(&gpu(), 24);
    let wanted = say(&model, &prompt, 16);
    let gpu = gpu();
    let urgent = ShareOptions {
        priority: Some(1),
        ..ShareOptions::guaranteed(2 * weights)
    };
    let calm = ShareOptions::guaranteed(0).with_ceiling(weights / 4);
    let shares = [("urgent", urgent), ("calm", calm)];
    let shares = shares.map(|(name, options)| gpu.share(name, options).unwrap());
    let mut talks = [0, 1].map(|index| {
        let (model, _) = deep(&shares[index], 24);
        let mut scheduler = Scheduler::new(&model, SchedulerOptions::default()).unwrap();
        let id = scheduler.open("one");
        let request = Request::new(prompt.clone(), 16);
        scheduler.say(id, request).unwrap();
        (scheduler, id)
    });
    while talks.iter().any(|(scheduler, _)| scheduler.is_busy()) {
        for (scheduler, _) in &mut talks {
            scheduler.step().unwrap();
        }
    }
    for (scheduler, id) in &talks {
        assert_eq!(scheduler.tokens(*id)[prompt.len()..], wanted);
    }
    let [urgent, calm] = shares.map(|share| share.memory().share_use().unwrap());
    assert_eq!(urgent.evictions, 0, "{urgent:?}");
    assert!(
        calm.evictions > 0 && calm.bytes.peak <= weights / 4,
        "{calm:?}"
    );
}

#[test]
fn a_lost_device_changes_no_token() {
    let expected = expected("qwen2");
    let (gpu, device) = Gpu::simulated(SimOptions::default()).unwrap();
    let model = model(&gpu, "qwen2", WeightForm::Stored);
    let wanted = say(&model, &expected.prompt, 24);
    let mut scheduler = Scheduler::new(&model, SchedulerOptions::default()).unwrap();
    let id = scheduler.open("one");
    scheduler
        .say(id, Request::new(expected.prompt.clone(), 24))
        .unwrap();
    for _ in 0..9 {
        scheduler.step().unwrap();
    }
    device.lose("a test");
    let mut lost = 0;
    while scheduler.is_busy() {
        if scheduler.step().is_err() {
            lost += 1;
            assert!(lost < 4, "it goes on after the device is there again");
            if gpu.flush().is_err() {
                gpu.reopen().unwrap();
            }
        }
    }
    assert!(lost > 0);
    assert_eq!(scheduler.tokens(id)[expected.prompt.len()..], wanted);
}

#[test]
fn a_folder_opens_with_its_description() {
    let expected = expected("gemma3");
    let target = std::env::temp_dir().join(format!("lapidary-lm-{}", std::process::id()));
    std::fs::create_dir_all(&target).unwrap();
    std::fs::copy(
        folder("gemma3").join("config.json"),
        target.join("config.json"),
    )
    .unwrap();
    std::fs::write(target.join("model.safetensors"), safetensors(&expected)).unwrap();
    let model = LanguageModel::open(&gpu(), &target, ModelOptions::default()).unwrap();
    assert_eq!(
        greedy(&model, &expected.prompt, 64, 8).1,
        expected.tokens[..8]
    );
    std::fs::remove_dir_all(&target).unwrap();
}

#[test]
fn a_token_takes_few_commands_and_no_new_buffer() {
    let gpu = gpu();
    let (model, _) = deep(&gpu, 8);
    let mut scheduler = Scheduler::new(&model, SchedulerOptions::default()).unwrap();
    let id = scheduler.open("steady");
    scheduler
        .say(id, Request::new(expected("llama3").prompt, 64))
        .unwrap();
    let steps = |scheduler: &mut Scheduler, count: usize| {
        for _ in 0..count {
            scheduler.step().unwrap();
        }
        gpu.memory().stats()
    };
    let before = steps(&mut scheduler, 20);
    let after = steps(&mut scheduler, 30);
    let commands = (after.commands - before.commands) / 30;
    println!("{commands} commands a token");
    // Two uploads, of cosines and sines, and two reads are no dispatches.
    assert!(commands - 4 <= 100, "{commands} commands a token");
    assert_eq!(after.buffers_created, before.buffers_created);
}
