//! The program: see the library beside it.

use std::process::ExitCode;

use chat::arguments::Arguments;
use chat::error::Result;
use chat::server::Server;
use chat::talk::{Speaker, Talk};
use chat::terminal;
use clap::Parser;
use lapidary::{Budget, Gpu, Options};
use lapidary_lm::{ModelOptions, SchedulerOptions};

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut options = Options::from_env()?;
    if let Some(bytes) = arguments.budget {
        options.budget = Some(Budget::device(bytes));
    }
    let gpu = Gpu::open(options)?;
    let model = ModelOptions {
        weights: arguments.weights(),
        context: arguments.context,
    };
    let speaker = Speaker::open(&gpu, &arguments.model(), model)?;
    let scheduler = SchedulerOptions {
        cache: arguments.cache(),
        ..SchedulerOptions::default()
    };
    if let Some(address) = &arguments.serve {
        let path = arguments.model();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let server = Server::start(speaker, scheduler, &name, address)?;
        println!("http://{}/v1", server.address());
        server.wait();
        return Ok(());
    }
    let mut talk = Talk::new(speaker, scheduler)?;
    talk.sampling = arguments.sampling();
    talk.most_tokens = arguments.tokens;
    terminal::run(&gpu, &mut talk, arguments)
}
