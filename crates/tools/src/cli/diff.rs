//! `lapidary diff`: the differences between two snapshots.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;

use lapidary_core::stats::{Snapshot, TagUse};
use lapidary_core::units::Bytes;
use lapidary_tools::page;
use serde_json::json;

use crate::cli::failure::Result;
use crate::cli::files::read_snapshot;
use crate::cli::style::{Style, clean, clean_path};
use crate::cli::view::write_file;

/// Compare two snapshots: what grew, what shrank, what is new
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The earlier snapshot
    before: PathBuf,
    /// The later one
    after: PathBuf,
    /// Show at most N makers of each kind
    #[arg(long, value_name = "N", default_value_t = 20)]
    most: usize,
    /// Write a page for browsers that shows both
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One maker, or one sum, in both snapshots.
struct Change {
    name: String,
    before_bytes: u64,
    after_bytes: u64,
    before_storages: u64,
    after_storages: u64,
}

impl Change {
    fn bytes(&self) -> i128 {
        i128::from(self.after_bytes) - i128::from(self.before_bytes)
    }
}

pub(crate) fn diff(args: &Args, style: Style, out: &mut dyn Write) -> Result {
    let before = read_snapshot(&args.before)?;
    let after = read_snapshot(&args.after)?;
    if let Some(path) = &args.html {
        write_file(path, |to| page::write_comparison(&before, &after, to))?;
    }
    let totals = totals(&before, &after);
    let tags = tags(&before, &after);
    if args.json {
        let row = |change: &Change| {
            json!({
                "name": change.name,
                "before_bytes": change.before_bytes,
                "after_bytes": change.after_bytes,
                "before_storages": change.before_storages,
                "after_storages": change.after_storages,
            })
        };
        let totals: Vec<_> = totals.iter().map(row).collect();
        let tags: Vec<_> = tags.iter().map(row).collect();
        writeln!(out, "{}", json!({ "totals": totals, "tags": tags }))?;
        return Ok(());
    }
    let seconds = after.taken_unix_ms.saturating_sub(before.taken_unix_ms) as f64 / 1e3;
    writeln!(
        out,
        "{} -> {}, {seconds:.1} s later",
        clean_path(&args.before),
        clean_path(&args.after),
    )?;
    if (&before.stats.adapter, &before.stats.backend)
        != (&after.stats.adapter, &after.stats.backend)
    {
        writeln!(
            out,
            "on different devices: {} and {}",
            clean(&before.stats.adapter),
            clean(&after.stats.adapter)
        )?;
    }
    for change in &totals {
        print_change(out, style, change)?;
    }
    let is_new = |change: &&Change| change.before_storages == 0 && change.before_bytes == 0;
    let is_gone = |change: &&Change| change.after_storages == 0 && change.after_bytes == 0;
    let of = |kind: &dyn Fn(&&Change) -> bool| tags.iter().filter(kind).collect::<Vec<_>>();
    print_list(out, style, "new", &of(&is_new), args.most)?;
    print_list(
        out,
        style,
        "grew",
        &of(&|c| !is_new(c) && c.bytes() > 0),
        args.most,
    )?;
    print_list(
        out,
        style,
        "shrank",
        &of(&|c| !is_gone(c) && c.bytes() < 0),
        args.most,
    )?;
    print_list(out, style, "gone", &of(&is_gone), args.most)?;
    if tags.is_empty() {
        writeln!(out, "every maker holds as many bytes as before")?;
    }
    Ok(())
}

/// The sums by place.
fn totals(before: &Snapshot, after: &Snapshot) -> Vec<Change> {
    let (b, a) = (&before.stats, &after.stats);
    let staging = |s: &lapidary_core::stats::MemoryStats| {
        (s.upload_bytes.now)
            .saturating_add(s.restore_staging_bytes.now)
            .saturating_add(s.readback_bytes.now)
    };
    let sums = [
        ("requested", b.requested_bytes.now, a.requested_bytes.now),
        ("pending", b.pending_bytes.now, a.pending_bytes.now),
        ("live", b.live_bytes.now, a.live_bytes.now),
        ("cached", b.cached_bytes.now, a.cached_bytes.now),
        ("reserved", b.reserved_bytes.now, a.reserved_bytes.now),
        ("staging", staging(b), staging(a)),
        ("retiring", b.retiring_bytes.now, a.retiring_bytes.now),
        ("imported", b.imported_bytes.now, a.imported_bytes.now),
        ("host", b.host_bytes.now, a.host_bytes.now),
        ("stores", b.store_bytes(), a.store_bytes()),
        ("disk", b.spilled_bytes.now, a.spilled_bytes.now),
    ];
    let changes = sums
        .into_iter()
        .map(|(name, before_bytes, after_bytes)| Change {
            name: name.into(),
            before_bytes,
            after_bytes,
            before_storages: 0,
            after_storages: 0,
        });
    // Places that are empty in both snapshots are left out.
    changes
        .filter(|change| change.before_bytes > 0 || change.after_bytes > 0)
        .collect()
}

/// The makers whose bytes differ, the greatest change first.
fn tags(before: &Snapshot, after: &Snapshot) -> Vec<Change> {
    let mut changes: HashMap<String, Change> = HashMap::new();
    let mut enter = |tag: &TagUse, is_after: bool| {
        let name = tag
            .tag
            .as_ref()
            .map_or("others".to_owned(), ToString::to_string);
        let change = changes.entry(name.clone()).or_insert(Change {
            name,
            before_bytes: 0,
            after_bytes: 0,
            before_storages: 0,
            after_storages: 0,
        });
        let (bytes, storages) = match is_after {
            true => (&mut change.after_bytes, &mut change.after_storages),
            false => (&mut change.before_bytes, &mut change.before_storages),
        };
        *bytes = bytes.saturating_add(tag.bytes.now);
        *storages = storages.saturating_add(tag.storages.now);
    };
    before.stats.tags.iter().for_each(|tag| enter(tag, false));
    after.stats.tags.iter().for_each(|tag| enter(tag, true));
    let mut changes: Vec<Change> = changes.into_values().collect();
    changes.retain(|change| change.bytes() != 0 || change.before_storages != change.after_storages);
    changes.sort_by(|a, b| {
        let size = |change: &Change| change.bytes().unsigned_abs();
        size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
    });
    changes
}

fn print_list(
    out: &mut dyn Write,
    style: Style,
    title: &str,
    changes: &[&Change],
    most: usize,
) -> io::Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", style.bold(title))?;
    for change in changes.iter().take(most) {
        print_change(out, style, change)?;
    }
    if changes.len() > most {
        let rest = &changes[most..];
        let bytes: i128 = rest.iter().map(|change| change.bytes()).sum();
        writeln!(out, "  and {} more: {}", rest.len(), signed(bytes))?;
    }
    Ok(())
}

fn print_change(out: &mut dyn Write, style: Style, change: &Change) -> io::Result<()> {
    let bytes = change.bytes();
    let figure = format!("{:>12}", signed(bytes));
    let figure = match bytes {
        0 => style.dim(&figure),
        more if more > 0 => style.bad(&figure),
        _ => style.good(&figure),
    };
    let (before, after) = (Bytes(change.before_bytes), Bytes(change.after_bytes));
    let storages = match (change.before_storages, change.after_storages) {
        (before, after) if before == after => String::new(),
        (before, after) => format!("  x{before} -> x{after}"),
    };
    let levels = format!("{:>10} -> {:<10}", before.to_string(), after.to_string());
    writeln!(
        out,
        "{figure}  {}  {}{storages}",
        style.dim(&levels),
        clean(&change.name)
    )
}

/// `+4.00 MiB`, `-317 B`.
fn signed(bytes: i128) -> String {
    let size = Bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
    match bytes {
        0 => "same".into(),
        more if more > 0 => format!("+{size}"),
        _ => format!("-{size}"),
    }
}
