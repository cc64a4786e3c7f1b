//! The program: reads its arguments, serves until it is told to stop, and says what it did.
//!
//! ```text
//! cargo xtask fetch-model
//! cargo run --release --manifest-path examples/Cargo.toml -p serve -- --tenants tenants.json
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use embed::{Model, Precision, places};
use lapidary::shares::ShareOptions;
use lapidary::units::Bytes;
use lapidary::{Gpu, Options};
use serve::{Limits, Result, Server, Tenants};

/// Vectors of sentences over HTTP, for many tenants on one device.
#[derive(Debug, Parser)]
#[command(name = "serve")]
struct Arguments {
    /// Where to listen. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    address: SocketAddr,
    /// Names, keys and weights: [{"name": "…", "key": "…", "weight": 1}].
    #[arg(long, value_name = "FILE")]
    tenants: PathBuf,
    /// The folder with the model [default: where `cargo xtask fetch-model` puts it].
    #[arg(long, value_name = "FOLDER")]
    model: Option<PathBuf>,
    /// The type of the weights: f32, f16, int8, or int8:64 for a scale for every 64.
    #[arg(long, value_name = "TYPE", default_value_t = Precision::F32)]
    weights: Precision,
    /// The memory of the server's share on the device, in MiB.
    #[arg(long, value_name = "MIB", default_value = "512")]
    memory: u64,
    /// Most texts in a batch; 1 computes one at a time.
    #[arg(long, value_name = "N", default_value_t = Limits::default().batch_texts)]
    batch: usize,
    /// Most texts that wait for one tenant.
    #[arg(long, value_name = "N", default_value_t = Limits::default().waiting_texts)]
    waiting: usize,
    /// Close connections whose clients take no byte of their answers for this long, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().write.as_secs())]
    write_timeout: u64,
    /// Declare the device lost after every N batches, to try the recovery.
    #[arg(long, value_name = "N")]
    lose_every: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let tenants = Tenants::read(&arguments.tenants)?;
    let gpu = Gpu::open(Options::from_env()?)?;
    // What else the program does on this device keeps its memory.
    let bytes = arguments.memory << 20;
    let share = gpu.share("serve", ShareOptions::guaranteed(bytes).with_ceiling(bytes))?;
    let folder = arguments.model.clone().unwrap_or_else(places::model_folder);
    let model = Model::open_as(&share, &folder, arguments.weights)?;
    let limits = Limits {
        batch_texts: arguments.batch,
        waiting_texts: arguments.waiting,
        request_texts: Limits::default().request_texts.min(arguments.waiting),
        write: Duration::from_secs(arguments.write_timeout),
        lose_every: arguments.lose_every,
        ..Limits::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(serve::Error::Thread)?;
    let served = runtime.block_on(async {
        let server = Server::start(model, tenants, arguments.address, limits).await?;
        println!(
            "serve: {}, listening on {}",
            gpu.caps().name,
            server.address()
        );
        stopped().await;
        println!("serve: stopping");
        server.stop().await
    })?;
    let memory = share.memory().share_use();
    let peak = memory.map_or(0, |share| share.bytes.peak);
    println!("serve: at most {} on the device", Bytes(peak));
    println!(
        "serve: batches={} texts={} losses={} splits={} peak_bytes={peak}",
        served.batches, served.texts, served.losses, served.splits
    );
    Ok(())
}

/// Ctrl-C, or the signal by which a system ends its services.
async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut ended) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = ended.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
