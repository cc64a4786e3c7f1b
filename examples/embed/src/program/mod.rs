//! The program: its arguments and commands.

mod corpus;
mod index;
mod output;
mod search;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use embed::{Error, Model, Precision, Result, places};
use lapidary::{Budget, Gpu, Options};

use output::Output;
pub(crate) use output::printable;

/// Find texts by their meaning.
#[derive(Debug, Parser)]
#[command(name = "embed", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compute the vectors of a folder's sentences, and keep them in a file.
    Index {
        #[command(flatten)]
        texts: Texts,
        #[command(flatten)]
        setup: Setup,
        /// Time every kernel, and list the slowest. The device idles in between.
        #[arg(long, conflicts_with = "json")]
        kernels: bool,
    },
    /// Find the sentences that are closest to a query. Without a query, ask for queries until an
    /// empty line.
    Search {
        /// The text to look for.
        query: Vec<String>,
        /// The number of results.
        #[arg(long, value_name = "N", default_value = "5")]
        top: NonZeroUsize,
        #[command(flatten)]
        setup: Setup,
    },
    /// Print the sentences that `index` would take, one a line.
    Sentences {
        #[command(flatten)]
        texts: Texts,
    },
}

/// The choice of sentences.
#[derive(Args, Debug)]
struct Texts {
    /// A folder with sources in Rust (whose documentation is taken), Markdown and plain text.
    /// Without it: the sources of the packages that this was built from.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Take at most this many sentences, spread evenly.
    #[arg(long, value_name = "N", default_value = "6000")]
    most: NonZeroUsize,
}

#[derive(Args, Debug)]
struct Setup {
    /// The folder with the model [default: where `cargo xtask fetch-model` puts it].
    #[arg(long, value_name = "FOLDER")]
    model: Option<PathBuf>,
    /// The file of the index [default: target/embed.index].
    #[arg(long, value_name = "FILE")]
    index: Option<PathBuf>,
    /// The memory limit on the device, such as 45MiB.
    #[arg(long, value_name = "BYTES")]
    budget: Option<Budget>,
    /// The type of the weights: f32, f16, int8, or int8:64 for a scale for every 64.
    #[arg(long, value_name = "TYPE", default_value_t = Precision::F32)]
    weights: Precision,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Setup {
    fn open(&self) -> Result<(Gpu, Model)> {
        let options = Options::from_env()?;
        let gpu = Gpu::open(Options {
            budget: self.budget.or(options.budget),
            ..options
        })?;
        let folder = self.model.clone().unwrap_or_else(places::model_folder);
        let model = Model::open_as(&gpu, &folder, self.weights)?;
        Ok((gpu, model))
    }

    fn index_file(&self) -> PathBuf {
        self.index.clone().unwrap_or_else(places::index_file)
    }
}

/// Does something with a device; if the device is lost meanwhile, once more with a new one. Weights
/// and indices come from files, so the new device can have all of them.
fn once_more<T>(gpu: &Gpu, work: impl Fn() -> Result<T>) -> Result<T> {
    match work() {
        Err(Error::Gpu(lapidary::Error::DeviceLost { .. })) => {
            gpu.reopen()?;
            work()
        }
        done => done,
    }
}

pub(crate) fn run() -> Result<()> {
    let arguments = Arguments::parse();
    let out = &mut Output::new(std::io::stdout().lock());
    match arguments.command {
        Command::Index {
            texts,
            setup,
            kernels,
        } => index::run(&texts, &setup, kernels, out),
        Command::Search { query, top, setup } => {
            search::run(&query.join(" "), top.get(), &setup, out)
        }
        Command::Sentences { texts } => {
            for entry in corpus::entries(&texts)? {
                out.line(entry.text)?;
                if out.is_closed() {
                    break;
                }
            }
            Ok(())
        }
    }
}
