//! `lapidary view`: a snapshot, as text and in whatever other form is asked for.

use std::io::Write;
use std::path::PathBuf;

use crate::failure::Result;
use crate::files::read_snapshot;
use crate::style::Style;

/// Show a snapshot: the memory page, and what was asked for
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The snapshot, as `gpu.snapshot().write_json(…)` writes it
    snapshot: PathBuf,
    /// As JSON: the statistics alone
    #[arg(long)]
    json: bool,
}

pub(crate) fn view(args: &Args, style: Style, out: &mut dyn Write) -> Result {
    let snapshot = read_snapshot(&args.snapshot)?;
    if args.json {
        let line = serde_json::to_string(&snapshot.stats).map_err(std::io::Error::from)?;
        writeln!(out, "{line}")?;
        return Ok(());
    }
    write!(out, "{}", snapshot.stats)?;
    let (events, dropped) = (snapshot.moments.len(), snapshot.dropped);
    let history = match events {
        0 => "no history was kept".to_owned(),
        _ => format!("{events} events of its history, {dropped} before them forgotten"),
    };
    writeln!(out, "{}", style.dim(&history))?;
    Ok(())
}
