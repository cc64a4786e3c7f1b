//! The memory on a page: trains a small network in too little memory, and writes the history to
//! files that a browser opens.
//!
//! ```text
//! cargo run --release --features sim,snapshot --example snapshot -- [FOLDER]
//! ```
//!
//! `memory.html` shows the run, `compare.html` the difference between its end and its first step;
//! `memory.json` is for programs. They are written to FOLDER (the current folder by default).
//! `--many` uses a simulated device instead, with so many requests that the page has a million
//! events, and with names that no page should trust. The last line is for programs.

mod many;
mod train;

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use lapidary::stats::Snapshot;
use lapidary::units::Bytes;
use lapidary_tools::page;

fn main() -> ExitCode {
    let (options, folders): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|arg| arg == "--many");
    let folder = Path::new(folders.first().map_or(".", |folder| folder));
    let done = match options.is_empty() {
        true => write_small(folder),
        false => write_many(folder),
    };
    done.map_or_else(
        |error| {
            eprintln!("snapshot: failed: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn write_small(folder: &Path) -> Result<(), Box<dyn Error>> {
    let run = train::run()?;
    write(folder, "memory.json", |file| run.last.write_json(file))?;
    write(folder, "memory.html", |file| page::write(&run.last, file))?;
    write(folder, "compare.html", |file| {
        page::write_comparison(&run.first, &run.last, file)
    })?;
    let stats = &run.last.stats;
    println!(
        "snapshot: loss {:.4} -> {:.4}, {} evictions, {} events",
        run.losses.0,
        run.losses.1,
        stats.evictions,
        run.last.moments.len()
    );
    Ok(())
}

fn write_many(folder: &Path) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let snapshot: Snapshot = many::run()?;
    println!("simulated in {:.1} s", start.elapsed().as_secs_f64());
    let json = write(folder, "many.json", |file| snapshot.write_json(file))?;
    let page = write(folder, "many.html", |file| page::write(&snapshot, file))?;
    let blocks: usize = snapshot.slabs.iter().map(|slab| slab.blocks.len()).sum();
    println!(
        "snapshot: {blocks} blocks, {} events, {json} bytes of JSON, {page} bytes of HTML",
        snapshot.moments.len()
    );
    Ok(())
}

/// Writes a file, and prints its size and the time.
fn write(
    folder: &Path,
    name: &str,
    into: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> Result<u64, Box<dyn Error>> {
    let path = folder.join(name);
    let start = Instant::now();
    let mut file = File::create(&path)?;
    into(&mut file)?;
    let ms = 1e3 * start.elapsed().as_secs_f64();
    let bytes = file.metadata()?.len();
    println!("{}: {}, {ms:.0} ms", path.display(), Bytes(bytes));
    Ok(bytes)
}
