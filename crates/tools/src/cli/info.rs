//! `lapidary info`: the adapters of this machine, their limits, and what these mean for a program.

use std::io::{self, Write};

use lapidary_core::units::Bytes;
use lapidary_core::{
    Caps, Gpu, Options,
    adapter::{AdapterKind, AdapterSummary, ShaderCompiler, adapters},
};
use serde_json::{Value, json};

use crate::cli::failure::{Failure, Result};
use crate::cli::style::{Style, clean};

/// Show the adapters of this machine: limits, budgets, and what each of them means for you
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this adapter: an index, or part of a name, a backend or a kind, as in LAPIDARY_ADAPTER
    #[arg(long, value_name = "WHICH")]
    adapter: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An opened adapter, or the error.
struct Found {
    /// The index for `Options::adapter`; none if the adapter was chosen by name.
    index: Option<usize>,
    name: String,
    is_chosen: bool,
    opened: lapidary_core::Result<Opened>,
}

struct Opened {
    caps: Caps,
    budget_bytes: Option<u64>,
}

pub(crate) fn info(args: &Args, style: Style, out: &mut dyn Write) -> Result {
    let found = match &args.adapter {
        Some(wanted) => {
            let opened = open(Some(wanted.clone())).map_err(Failure::from)?;
            vec![Found {
                index: index_of(&opened.caps, &adapters()),
                name: opened.caps.name.clone(),
                is_chosen: true,
                opened: Ok(opened),
            }]
        }
        None => all()?,
    };
    if args.json {
        let adapters: Vec<Value> = found.iter().map(to_json).collect();
        writeln!(out, "{}", json!({ "adapters": adapters }))?;
        return Ok(());
    }
    for (number, found) in found.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        print(out, style, found)?;
    }
    if args.adapter.is_none() {
        print_environment(out, style)?;
    }
    Ok(())
}

/// All adapters. The first is the one that `Gpu::open` chooses by default.
fn all() -> Result<Vec<Found>> {
    let chosen = open(None)?;
    let listed = adapters();
    let first = index_of(&chosen.caps, &listed);
    let mut found = vec![Found {
        index: first,
        name: chosen.caps.name.clone(),
        is_chosen: true,
        opened: Ok(chosen),
    }];
    for (index, adapter) in listed.iter().enumerate() {
        if Some(index) != first {
            found.push(Found {
                index: Some(index),
                name: adapter.name.clone(),
                is_chosen: false,
                opened: open(Some(index.to_string())),
            });
        }
    }
    Ok(found)
}

fn open(adapter: Option<String>) -> lapidary_core::Result<Opened> {
    let gpu = Gpu::open(Options {
        adapter,
        ..Options::from_env()?
    })?;
    Ok(Opened {
        caps: gpu.caps().clone(),
        budget_bytes: gpu.memory().stats().budget_bytes,
    })
}

fn index_of(caps: &Caps, adapters: &[AdapterSummary]) -> Option<usize> {
    adapters.iter().position(|adapter| {
        adapter.name == caps.name
            && adapter.backend == caps.backend
            && adapter.driver == caps.driver
            && adapter.kind == caps.kind
    })
}

fn print(out: &mut dyn Write, style: Style, found: &Found) -> io::Result<()> {
    let index = found
        .index
        .map_or(String::new(), |index| format!("{index}: "));
    let title = style.bold(&format!("{index}{}", clean(&found.name)));
    let opened = match &found.opened {
        Ok(opened) => opened,
        Err(error) => {
            writeln!(out, "{title}")?;
            return writeln!(
                out,
                "  {}",
                style.bad(&format!("cannot be opened: {error}"))
            );
        }
    };
    let caps = &opened.caps;
    let chosen = match found.is_chosen {
        true => style.good("  <- what `Gpu::open` takes here"),
        false => String::new(),
    };
    writeln!(out, "{title}{chosen}")?;
    writeln!(
        out,
        "  {} by {}; {}",
        kind(caps.kind),
        caps.backend,
        clean(&caps.driver)
    )?;
    for (name, figure, meaning) in rows(opened) {
        let figure = style.bold(&format!("{figure:>12}"));
        let mut lines = wrapped(&meaning, 66).into_iter();
        writeln!(
            out,
            "  {name:<16}{figure}  {}",
            lines.next().unwrap_or_default()
        )?;
        for line in lines {
            writeln!(out, "{:32}{line}", "")?;
        }
    }
    Ok(())
}

/// A limit: its name, its value, and its meaning.
type Row = (&'static str, String, String);

fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

fn rows(opened: &Opened) -> Vec<Row> {
    let caps = &opened.caps;
    let mut rows = vec![budget(opened.budget_bytes)];
    rows.extend(buffers(caps));
    rows.extend(kernels(caps));
    rows
}

fn budget(budget_bytes: Option<u64>) -> Row {
    let (figure, meaning) = match budget_bytes {
        Some(bytes) => (
            size(bytes),
            "the most memory that a program may take here. Set less by Options::budget or \
             GpuMemory::set_budget. lapidary then evicts tensors without room to the host's \
             memory or the disk, and restores them when they are used",
        ),
        None => (
            "unknown".into(),
            "the system does not say how much there is. lapidary learns the limit when the driver \
             refuses memory. Set a budget by Options::budget or GpuMemory::set_budget",
        ),
    };
    ("budget", figure, meaning.into())
}

fn buffers(caps: &Caps) -> [Row; 4] {
    let windows = u64::from(caps.max_storage_bindings.saturating_sub(1));
    let reach_bytes = caps.max_binding_bytes.saturating_mul(windows);
    let reach = size(reach_bytes.min(caps.max_buffer_bytes));
    let (transfers, how) = match caps.maps_slabs {
        true => (
            "direct",
            "host and device share memory: the CPU copies uploads and reads, without staging",
        ),
        false => (
            "staged",
            "the device has its own memory: bytes go through staging, at most 64 MiB each way",
        ),
    };
    [
        (
            "largest buffer",
            size(caps.max_buffer_bytes),
            "a tensor is in one buffer, so no tensor is larger".into(),
        ),
        (
            "largest binding",
            size(caps.max_binding_bytes),
            format!(
                "what one binding of a kernel covers. Larger tensors are bound as up to {windows} windows: \
                 products, reductions and sorting reach {reach} with all operands together; elementwise \
                 operations have no such limit"
            ),
        ),
        (
            "granule",
            size(caps.offset_alignment_bytes),
            "tensors begin at multiples of it, and smaller ones take as much".into(),
        ),
        ("transfers", transfers.into(), how.into()),
    ]
}

fn kernels(caps: &Caps) -> [Row; 5] {
    let (compiler, choice) = match caps.compiler {
        ShaderCompiler::Fxc => (
            "FXC",
            "Windows' own compiler is slow and makes slower kernels: ship dxcompiler.dll with the program",
        ),
        ShaderCompiler::Dxc => ("DXC", "Microsoft's newer compiler for DX12"),
        _ => ("driver", "the driver compiles kernels"),
    };
    let lanes = "lanes that exchange values directly: sums, softmax and products of a row use them";
    let (subgroups, how) = match caps.subgroup_lanes {
        Some((least, most)) if least == most => (least.to_string(), lanes),
        Some((least, most)) => (format!("{least} to {most}"), lanes),
        None => (
            "none".into(),
            "sums and softmax use workgroup memory instead, which is slower",
        ),
    };
    let (squares, multiply) = match caps.cooperative_size {
        Some(size) => (
            format!("{size} x {size}"),
            "squares of f16 that a subgroup multiplies at once: products of f16 use them",
        ),
        None => (
            "none".into(),
            "no cooperative matrices that lapidary can use: f16 is multiplied like f32",
        ),
    };
    let (parameters, travel) = match caps.max_immediate_bytes {
        0 => (
            "uniform".into(),
            "kernels get their parameters from a ring of uniform buffers",
        ),
        bytes => (
            size(u64::from(bytes)),
            "kernels get their parameters within the commands",
        ),
    };
    let shared = size(u64::from(caps.max_workgroup_bytes));
    [
        (
            "workgroup",
            caps.max_invocations.to_string(),
            format!(
                "most invocations of a workgroup in your own kernels, with at most {shared} of shared memory"
            ),
        ),
        ("compiler", compiler.into(), choice.into()),
        ("subgroups", subgroups, how.into()),
        ("squares", squares, multiply.into()),
        ("parameters", parameters, travel.into()),
    ]
}

fn kind(kind: AdapterKind) -> &'static str {
    match kind {
        AdapterKind::Discrete => "a GPU with its own memory,",
        AdapterKind::Integrated => "a GPU that shares the CPU's memory,",
        AdapterKind::Virtual => "a GPU of a virtual machine's host,",
        AdapterKind::Cpu => "a software rasterizer that runs everything on the CPU,",
        _ => "a device of unknown kind,",
    }
}

/// The variables of the environment that are set.
fn print_environment(out: &mut dyn Write, style: Style) -> io::Result<()> {
    const NAMES: [&str; 9] = [
        "LAPIDARY_ADAPTER",
        "LAPIDARY_BUDGET",
        "LAPIDARY_SPILL_FOLDER",
        "LAPIDARY_CACHE_FOLDER",
        "LAPIDARY_HOST_HEAP",
        "LAPIDARY_FUSE",
        "LAPIDARY_DIAGNOSTICS",
        "WGPU_BACKEND",
        "WGPU_DX12_COMPILER",
    ];
    let set = NAMES
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    for (number, (name, value)) in set.enumerate() {
        if number == 0 {
            writeln!(out, "\n{}", style.bold("set in the environment"))?;
        }
        writeln!(out, "  {name}={}", clean(&value.to_string_lossy()))?;
    }
    Ok(())
}

fn to_json(found: &Found) -> Value {
    let opened = match &found.opened {
        Ok(opened) => opened,
        Err(error) => {
            return json!({ "index": found.index, "name": found.name, "error": error.to_string() });
        }
    };
    let caps = &opened.caps;
    json!({
        "index": found.index,
        "name": caps.name,
        "backend": caps.backend,
        "driver": caps.driver,
        "kind": format!("{:?}", caps.kind).to_lowercase(),
        "compiler": format!("{:?}", caps.compiler).to_lowercase(),
        "chosen": found.is_chosen,
        "budget_bytes": opened.budget_bytes,
        "max_buffer_bytes": caps.max_buffer_bytes,
        "max_binding_bytes": caps.max_binding_bytes,
        "max_storage_bindings": caps.max_storage_bindings,
        "offset_alignment_bytes": caps.offset_alignment_bytes,
        "max_immediate_bytes": caps.max_immediate_bytes,
        "max_invocations": caps.max_invocations,
        "max_workgroup_bytes": caps.max_workgroup_bytes,
        "subgroup_lanes": caps.subgroup_lanes,
        "cooperative_size": caps.cooperative_size,
        "maps_slabs": caps.maps_slabs,
    })
}

/// The text in lines of at most this many characters, broken between words.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().filter(|line| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= columns
        });
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
