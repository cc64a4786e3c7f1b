//! `lapidary view`: a snapshot as text or in another format.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use lapidary_core::stats::Snapshot;
use lapidary_tools::{formats, page};

use crate::cli::failure::Result;
use crate::cli::files::{read_snapshot, said};
use crate::cli::style::{Style, clean_path, width};

/// Show a snapshot: where the memory is, who holds it, and what to change
///
/// Prints statistics, a map of the slabs, and advice. With --html, --perfetto, --pickle or --rmm it
/// writes that file instead. With --map it prints only the map.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The snapshot, a file that `gpu.memory().snapshot().write_json(…)` wrote
    snapshot: PathBuf,
    /// Write an HTML page: timeline, map, holders. It is one file and needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev and chrome://tracing
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Write a pickle for PyTorch's memory_viz
    #[arg(long, value_name = "FILE")]
    pickle: Option<PathBuf>,
    /// Write a log in RMM's format, which `lapidary replay` reads too
    #[arg(long, value_name = "FILE")]
    rmm: Option<PathBuf>,
    /// Print only the map
    #[arg(long)]
    map: bool,
    /// Print the statistics and the advice as JSON
    #[arg(long, conflicts_with = "map")]
    json: bool,
}

type Face = fn(&Snapshot, &mut dyn Write) -> io::Result<()>;

pub(crate) fn view(args: &Args, style: Style, out: &mut dyn Write) -> Result {
    let snapshot = read_snapshot(&args.snapshot)?;
    let files: [(&Option<PathBuf>, Face); 4] = [
        (&args.html, |snapshot, to| page::write(snapshot, to)),
        (&args.perfetto, |snapshot, to| {
            formats::write_trace(snapshot, to)
        }),
        (&args.pickle, |snapshot, to| {
            formats::write_pickle(snapshot, to)
        }),
        (&args.rmm, |snapshot, to| formats::write_rmm(snapshot, to)),
    ];
    let mut wrote = false;
    for (path, face) in files {
        if let Some(path) = path {
            write_file(path, |to| face(&snapshot, to))?;
            wrote = true;
        }
    }
    if args.json {
        let told = serde_json::json!({ "stats": snapshot.stats, "advice": snapshot.advice() });
        writeln!(out, "{told}")?;
    } else if args.map {
        print_map(&snapshot, style, out)?;
    } else if !wrote {
        print(&snapshot, style, out)?;
    }
    Ok(())
}

/// Writes a file with `face` and reports the path. The error names the file too.
pub(crate) fn write_file(
    path: &Path,
    face: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result {
    let file = File::create(path).map_err(|error| said(path, &error))?;
    let mut file = BufWriter::new(file);
    let written = face(&mut file).and_then(|()| file.flush());
    written.map_err(|error| said(path, &error))?;
    // The file is written, even if stderr is closed.
    let _ = writeln!(io::stderr(), "lapidary: wrote {}", clean_path(path));
    Ok(())
}

fn print(snapshot: &Snapshot, style: Style, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", snapshot.stats)?;
    print_map(snapshot, style, out)?;
    let advice = snapshot.advice();
    if !advice.is_empty() {
        writeln!(out, "{}", style.bold("advice"))?;
    }
    for suggestion in advice {
        writeln!(out, "  {suggestion}")?;
    }
    let history = match (snapshot.moments.len(), snapshot.dropped) {
        (0, _) => "no history was kept (gpu.memory().keep_history)".to_owned(),
        (events, 0) => format!("{events} events of history"),
        (events, dropped) => {
            format!("{events} events of history; {dropped} earlier ones were dropped")
        }
    };
    writeln!(out, "{}", style.dim(&history))
}

fn print_map(snapshot: &Snapshot, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let columns = usize::from(width());
    let map = snapshot.map().columns(columns).colored(style.has_colours());
    writeln!(out, "{map}")
}
