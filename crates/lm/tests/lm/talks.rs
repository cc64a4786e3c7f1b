//! Conversations over one model: what others do, and memory, change no token.

use lapidary::DType;
use lapidary::files::WeightForm;
use lapidary_lm::{
    ConversationId, End, Error, LanguageModel, Request, Sampling, Scheduler, SchedulerOptions,
};

use crate::weights::{expected, gpu, model};

fn options() -> SchedulerOptions {
    SchedulerOptions {
        cache: DType::F32,
        ..SchedulerOptions::default()
    }
}

/// Steps until nothing is left to say, and returns the tokens that a conversation said.
fn run(scheduler: &mut Scheduler, id: ConversationId) -> Vec<u32> {
    let mut said = Vec::new();
    while scheduler.is_busy() {
        for one in scheduler.step().unwrap() {
            if one.conversation == id {
                said.push(one.token);
            }
        }
    }
    said
}

/// What a model answers to a prompt when it is alone.
fn alone(model: &LanguageModel, request: Request) -> Vec<u32> {
    let mut scheduler = Scheduler::new(model, options()).unwrap();
    let id = scheduler.open("alone");
    scheduler.say(id, request).unwrap();
    run(&mut scheduler, id)
}

/// A prompt of so many tokens that differs from those with other numbers.
fn prompt(number: u32, len: u32) -> Vec<u32> {
    (0..len)
        .map(|at| (at * at * 5 + at * number + 3 * number) % 96)
        .collect()
}

#[test]
fn a_conversation_says_what_the_model_says() {
    let expected = expected("llama3");
    let model = model(&gpu(), "llama3", WeightForm::Stored);
    let said = alone(&model, Request::new(expected.prompt, 64));
    let end = expected
        .tokens
        .iter()
        .position(|&token| token == 1)
        .map_or(64, |at| at + 1);
    assert_eq!(said, expected.tokens[..end]);
}

#[test]
fn others_change_no_token() {
    let model = model(&gpu(), "qwen3", WeightForm::Stored);
    let mut sampling = Sampling::at(0.9, 7);
    sampling.repetition_penalty = 1.2;
    let request = |number: u32| {
        let mut request = Request::new(prompt(number, 5 + 9 * number), 12 + number as usize);
        if number % 2 == 1 {
            request.sampling = sampling;
        }
        request
    };
    let wanted: Vec<Vec<u32>> = (0..5)
        .map(|number| alone(&model, request(number)))
        .collect();
    let mut few_rows = options();
    few_rows.rows = 7;
    let mut in_turns = options();
    in_turns.cache_bytes = Some(3 * 2 * 2 * 16 * 4 * 70);
    in_turns.turn_tokens = 4;
    for options in [options(), few_rows, in_turns] {
        let mut scheduler = Scheduler::new(&model, options).unwrap();
        let mut ids = Vec::new();
        let mut said = vec![Vec::new(); 5];
        // They join one after the other.
        for number in 0..5 {
            let id = scheduler.open(&format!("{number}"));
            scheduler.say(id, request(number)).unwrap();
            ids.push(id);
            for one in scheduler.step().unwrap() {
                said[ids.iter().position(|id| *id == one.conversation).unwrap()].push(one.token);
            }
        }
        while scheduler.is_busy() {
            for one in scheduler.step().unwrap() {
                said[ids.iter().position(|id| *id == one.conversation).unwrap()].push(one.token);
            }
        }
        assert_eq!(said, wanted, "{options:?}");
    }
}

#[test]
fn new_requests_do_not_keep_an_older_one_waiting() {
    let model = model(&gpu(), "qwen3", WeightForm::Stored);
    let mut in_turns = options();
    // Room for one conversation.
    in_turns.cache_bytes = Some(1);
    in_turns.turn_tokens = 4;
    let mut scheduler = Scheduler::new(&model, in_turns).unwrap();
    let old = scheduler.open("old");
    scheduler.say(old, Request::new(prompt(1, 5), 12)).unwrap();
    let (mut said, mut steps, mut new) = (0, 0, Vec::new());
    while said < 12 {
        // There is always one more that has said nothing yet.
        let id = scheduler.open("new");
        scheduler.say(id, Request::new(prompt(2, 5), 3)).unwrap();
        new.push(id);
        let heard = scheduler.step().unwrap();
        said += heard.iter().filter(|one| one.conversation == old).count();
        steps += 1;
        assert!(steps < 200, "{said} tokens in {steps} steps");
    }
    for id in new {
        scheduler.close(id);
    }
}

#[test]
fn a_conversation_goes_on_forks_and_goes_back() {
    let model = model(&gpu(), "mistral", WeightForm::Stored);
    let mut scheduler = Scheduler::new(&model, options()).unwrap();
    let id = scheduler.open("first");
    scheduler.say(id, Request::new(prompt(1, 9), 6)).unwrap();
    let first = run(&mut scheduler, id);
    assert_eq!(scheduler.tokens(id), [prompt(1, 9), first.clone()].concat());
    let fork = scheduler.fork(id, "fork").unwrap();
    scheduler.say(id, Request::new(prompt(2, 5), 6)).unwrap();
    let second = run(&mut scheduler, id);
    let whole = [prompt(1, 9), first.clone(), prompt(2, 5)].concat();
    assert_eq!(second, alone(&model, Request::new(whole, 6)));
    scheduler.say(fork, Request::new(prompt(2, 5), 6)).unwrap();
    assert_eq!(
        run(&mut scheduler, fork),
        second,
        "the fork has the same past"
    );
    scheduler.truncate(id, 9).unwrap();
    assert_eq!(scheduler.tokens(id), prompt(1, 9));
    scheduler.say(id, Request::new(prompt(3, 4), 6)).unwrap();
    let other = alone(
        &model,
        Request::new([prompt(1, 9), prompt(3, 4)].concat(), 6),
    );
    assert_eq!(
        run(&mut scheduler, id),
        other,
        "it goes on from where it went back to"
    );
}

#[test]
fn an_urgent_conversation_comes_first() {
    let model = model(&gpu(), "qwen2", WeightForm::Stored);
    // One conversation fits into a step, by the bytes of its cache or by its rows.
    let by_bytes = SchedulerOptions {
        cache_bytes: Some(1),
        ..options()
    };
    let by_rows = SchedulerOptions {
        rows: 1,
        ..options()
    };
    for options in [by_bytes, by_rows] {
        let mut scheduler = Scheduler::new(&model, options).unwrap();
        let [calm, urgent] = ["calm", "urgent"].map(|name| scheduler.open(name));
        scheduler.say(calm, Request::new(prompt(1, 4), 8)).unwrap();
        scheduler.step().unwrap();
        let request = Request {
            priority: 1,
            ..Request::new(prompt(2, 4), 8)
        };
        scheduler.say(urgent, request).unwrap();
        let mut order = Vec::new();
        while scheduler.is_busy() {
            let said = scheduler.step().unwrap();
            order.extend(said.into_iter().map(|said| said.conversation));
        }
        assert_eq!(order.len(), 16);
        // The calm one has said a token at most, when the urgent one begins.
        let first = order.iter().position(|id| *id == urgent).unwrap();
        assert!(first <= 1, "{order:?}");
        assert_eq!(order[first..first + 8], [urgent; 8], "until it is done");
    }
}

#[test]
fn impossible_requests_are_refused_and_change_nothing() {
    let model = model(&gpu(), "qwen2", WeightForm::Stored);
    let mut scheduler = Scheduler::new(&model, options()).unwrap();
    let id = scheduler.open("asked");
    let refused = |scheduler: &mut Scheduler, request: Request| {
        let error = scheduler.say(id, request).unwrap_err();
        assert!(!scheduler.is_busy());
        error
    };
    let error = refused(&mut scheduler, Request::new(vec![3, 96], 4));
    assert!(
        matches!(
            error,
            Error::Token {
                token: 96,
                vocabulary: 96
            }
        ),
        "{error}"
    );
    let error = refused(&mut scheduler, Request::new(vec![3; 129], 4));
    assert!(
        matches!(
            error,
            Error::Context {
                tokens: 129,
                context: 128,
                ..
            }
        ),
        "{error}"
    );
    for request in [Request::new(vec![], 4), Request::new(vec![3], 0)] {
        let error = refused(&mut scheduler, request);
        assert!(matches!(error, Error::Argument(_)), "{error}");
    }
    let wrong = |change: fn(&mut Sampling)| {
        let mut request = Request::new(vec![3], 4);
        change(&mut request.sampling);
        request
    };
    for request in [
        wrong(|sampling| sampling.temperature = -1.0),
        wrong(|sampling| sampling.temperature = f32::NAN),
        wrong(|sampling| sampling.top_k = Some(0)),
        wrong(|sampling| sampling.top_p = 0.0),
        wrong(|sampling| sampling.min_p = 1.5),
        wrong(|sampling| sampling.repetition_penalty = 0.0),
    ] {
        let error = refused(&mut scheduler, request);
        assert!(matches!(error, Error::Argument(_)), "{error}");
    }
    scheduler.say(id, Request::new(vec![3], 200)).unwrap();
    assert!(matches!(
        scheduler.say(id, Request::new(vec![3], 1)),
        Err(Error::Argument(_))
    ));
    let mut last = None;
    while scheduler.is_busy() {
        last = scheduler.step().unwrap().last().copied().or(last);
    }
    let end = last.unwrap().end;
    assert!(matches!(end, Some(End::Context | End::Token)), "{end:?}");
    assert!(scheduler.tokens(id).len() <= 128);
    scheduler.close(id);
    assert!(matches!(
        scheduler.say(id, Request::new(vec![3], 1)),
        Err(Error::Argument(_))
    ));
}
