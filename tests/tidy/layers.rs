//! The order of modules in each crate; between crates Cargo enforces it. Also the few places that
//! may call wgpu, reflect shaders, or be unsafe.

use crate::source::{Source, past_closing, words};

/// A crate whose modules have an order.
struct Layers {
    /// The folder of its files.
    folder: &'static str,
    /// The modules in order. A module may know itself and those before it.
    modules: &'static [&'static str],
    /// Modules outside the order that all others may know, each with the modules that it may know.
    leaves: &'static [(&'static str, &'static [&'static str])],
    /// Files outside the order that connect the modules.
    front: &'static [&'static str],
    /// The modules that may name the handle, `gpu::Gpu`, but nothing else of the front.
    name_the_handle: &'static [&'static str],
}

const CRATES: [Layers; 4] = [
    Layers {
        folder: "crates/core/src/",
        modules: &[
            "driver", "transfer", "memory", "engine", "observe", "buffer", "kernel",
        ],
        leaves: &[
            ("units", &[]),
            ("debug", &[]),
            ("finally", &[]),
            ("number_map", &[]),
            ("printable", &[]),
            ("excerpt", &["printable"]),
            ("telemetry", &[]),
            ("parallel", &["units"]),
            ("waits", &["units"]),
            ("worker", &[]),
            ("dtype", &["parallel"]),
            ("shortage", &["units"]),
            ("error", &["units", "dtype", "shortage"]),
            ("alloc", &[]),
        ],
        front: &["lib.rs", "internal.rs", "gpu.rs", "gpu/", "jobs/"],
        name_the_handle: &["buffer", "kernel"],
    },
    Layers {
        folder: "src/",
        modules: &[
            "file_formats",
            "tensor",
            "ops",
            "fuse",
            "grad",
            "optim",
            "devices",
        ],
        leaves: &[],
        front: &[
            "lib.rs",
            "files/",
            "gpu.rs",
            "gpu/",
            "jobs.rs",
            "kernel.rs",
            "kernel/",
            "kv/",
            "loader/",
            "operations.rs",
        ],
        name_the_handle: &["tensor", "ops", "fuse", "grad", "optim", "devices"],
    },
    Layers {
        folder: "crates/lm/src/",
        modules: &[
            "names",
            "weights",
            "rope",
            "layer",
            "model",
            "sampler",
            "scheduler",
        ],
        leaves: &[("error", &[]), ("config", &["error"])],
        front: &["lib.rs"],
        name_the_handle: &[],
    },
    Layers {
        folder: "crates/tools/src/",
        modules: &["formats", "page", "monitor", "socket", "replay"],
        leaves: &[("error", &[])],
        front: &["lib.rs", "main.rs", "cli/"],
        name_the_handle: &[],
    },
];

/// The files of the tools that show a snapshot or a sample and have no device.
const SHOWING_FILES: &[&str] = &[
    "crates/tools/src/formats/",
    "crates/tools/src/monitor/",
    "crates/tools/src/page.rs",
];

/// Names that a crate's root re-exports and that are too common for full paths.
const ROOT_NAMES: &[&str] = &["Error", "Result"];

/// Files that call wgpu, and the seam and the front, whose signatures name the app's objects of it.
const WGPU_FILES: &[&str] = &[
    "crates/core/src/driver/interface.rs",
    "crates/core/src/driver/wgpu",
    "crates/core/src/driver/os_budget.rs",
    "crates/core/src/gpu.rs",
    "crates/core/src/gpu/",
    "src/gpu.rs",
    "src/gpu/",
];

/// Files that reflect users' kernels, and those with which the simulated device reads shaders.
const NAGA_FILES: &[&str] = &[
    "crates/core/src/kernel/",
    "crates/core/src/driver/sim/shader.rs",
    "crates/wgsl-interpreter/src/",
];

/// Unsafe code is needed for a driver's budget, read through raw handles; for compiled pipelines as
/// bytes; and for a feature that wgpu calls experimental. Also for wgpu-hal, which alone says why
/// DX12 does not start, and for kernels without counters of loops. And for calls of MPI that own
/// their memory.
const UNSAFE_FILES: &[&str] = &[
    "crates/core/src/driver/os_budget.rs",
    "crates/core/src/driver/wgpu/cooperative.rs",
    "crates/core/src/driver/wgpu/dx12.rs",
    "crates/core/src/driver/wgpu/ending.rs",
    "crates/core/src/driver/wgpu/pipeline_cache.rs",
    "crates/mpi/src/flight.rs",
];

/// Every `crate::…` names a module that this file may know, and no chain of `super` avoids that.
pub(crate) fn check_order(files: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
        let Some(layers) = CRATES.iter().find(|one| file.path.starts_with(one.folder)) else {
            continue;
        };
        if is_under(&file.path[layers.folder.len()..], layers.front) {
            continue;
        }
        let Some(home) = Home::of(layers, &file.path) else {
            offences.push(file.offence(0, "this file is in none of its crate's layers"));
            continue;
        };
        for (offset, path) in crate_paths(&file.shipped) {
            if let Some(fault) = home.fault_in(&path) {
                offences.push(file.offence(offset, &fault));
            }
        }
        for offset in words(&file.shipped, "super") {
            let climbed = supers(&file.shipped[offset..]);
            if climbed >= home.depth {
                offences.push(
                    file.offence(offset, "`super` climbs out of the module: write `crate::…`"),
                );
            }
        }
    }
    offences
}

/// The files that show memory do not name a device's handle, so they cannot change what they show.
pub(crate) fn check_showing(files: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files
        .iter()
        .filter(|file| is_under(&file.path, SHOWING_FILES))
    {
        for offset in words(&file.shipped, "Gpu") {
            offences.push(file.offence(offset, "it shows snapshots and samples, and has no `Gpu`"));
        }
    }
    offences
}

/// Only the listed files name wgpu and naga.
pub(crate) fn check_foreign(files: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    for (name, allowed) in [("wgpu", WGPU_FILES), ("naga", NAGA_FILES)] {
        for file in files.iter().filter(|file| !is_under(&file.path, allowed)) {
            for offset in
                words(&file.shipped, name).filter(|offset| is_crate_name(&file.shipped, *offset))
            {
                // Users need the same wgpu that the signatures use.
                let is_export =
                    file.path.ends_with("src/lib.rs") && file.code[..offset].ends_with("pub use ");
                if !is_export {
                    let places = allowed.join(", ");
                    offences.push(file.offence(offset, &format!("`{name}` belongs into {places}")));
                }
            }
        }
    }
    offences
}

/// Only the listed files have `unsafe`, and the allocator forbids it.
pub(crate) fn check_unsafe(files: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
        if file.path == "crates/alloc/src/lib.rs" && !file.code.contains("#![forbid(unsafe_code)]")
        {
            offences.push(file.offence(0, "the allocator must say `#![forbid(unsafe_code)]`"));
        }
        if is_under(&file.path, UNSAFE_FILES) {
            continue;
        }
        for offset in words(&file.code, "unsafe") {
            offences.push(file.offence(offset, "`unsafe` does not belong here"));
        }
    }
    offences
}

/// The layer of a file.
struct Home {
    layers: &'static Layers,
    /// Its module or leaf.
    name: String,
    /// Number of `super` from it to the crate's root.
    depth: usize,
}

impl Home {
    fn of(layers: &'static Layers, path: &str) -> Option<Self> {
        let inner = path.strip_prefix(layers.folder)?.strip_suffix(".rs")?;
        let inner = inner.strip_suffix("/mod").unwrap_or(inner);
        let name = inner.split('/').next()?;
        let is_known = layers.modules.contains(&name) || layers.leaf(name).is_some();
        is_known.then(|| Self {
            layers,
            name: name.into(),
            depth: inner.split('/').count(),
        })
    }

    /// The fault if this file names `path`, the one or two words after `crate::`.
    fn fault_in(&self, path: &[String]) -> Option<String> {
        let named = path[0].as_str();
        let (layers, own) = (self.layers, self.name.as_str());
        if named == own {
            return None;
        }
        if let Some(known) = layers.leaf(own) {
            let is_allowed = known.contains(&named);
            return (!is_allowed)
                .then(|| format!("`{own}` stands outside the layers and may not know `{named}`"));
        }
        if layers.leaf(named).is_some() || ROOT_NAMES.contains(&named) {
            return None;
        }
        if named == "gpu" {
            let is_handle = path.get(1).is_some_and(|name| name == "Gpu");
            let is_allowed = is_handle && layers.name_the_handle.contains(&own);
            return (!is_allowed).then(|| format!("`{own}` may not know the front's {path:?}"));
        }
        let place = |name: &str| layers.modules.iter().position(|module| *module == name);
        match (place(named), place(own)) {
            (Some(there), Some(here)) if there < here => None,
            (Some(_), _) => Some(format!("`{own}` may not know `{named}`, a layer below it")),
            (None, _) => Some(format!("`crate::{named}` hides which module it comes from")),
        }
    }
}

impl Layers {
    fn leaf(&self, name: &str) -> Option<&'static [&'static str]> {
        let found = self.leaves.iter().find(|(leaf, _)| *leaf == name);
        found.map(|(_, known)| *known)
    }
}

/// Whether a path is in `allowed`, which has files and beginnings of names.
fn is_under(path: &str, allowed: &[&str]) -> bool {
    allowed.iter().any(|allowed| path.starts_with(allowed))
}

/// Each path after `crate::`, with groups in braces resolved, cut to two words.
fn crate_paths(code: &str) -> Vec<(usize, Vec<String>)> {
    let mut paths = Vec::new();
    for offset in words(code, "crate") {
        if let Some(rest) = code[offset + "crate".len()..]
            .trim_start()
            .strip_prefix("::")
        {
            let before = code.len() - rest.len();
            paths.extend(
                leading_paths(&code[before..], 2)
                    .into_iter()
                    .map(|path| (offset, path)),
            );
        }
    }
    paths
}

/// The paths at the beginning of `code`, at most `depth` words of each.
fn leading_paths(code: &str, depth: usize) -> Vec<Vec<String>> {
    let code = code.trim_start();
    if depth == 0 {
        return vec![Vec::new()];
    }
    if code.starts_with('{') {
        let group = &code[1..past_closing(code, 0) - 1];
        return split_group(group)
            .into_iter()
            .flat_map(|part| leading_paths(part, depth))
            .collect();
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let end = code.find(|c| !is_part(c)).unwrap_or(code.len());
    if end == 0 {
        // A glob, or nothing.
        return vec![vec!["*".into()]];
    }
    let (word, rest) = code.split_at(end);
    let tails = match rest.trim_start().strip_prefix("::") {
        Some(rest) => leading_paths(rest, depth - 1),
        None => vec![Vec::new()],
    };
    tails
        .into_iter()
        .map(|tail| [vec![word.to_owned()], tail].concat())
        .collect()
}

/// The parts of a group, split at its own commas.
fn split_group(group: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (offset, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&group[start..offset]);
                start = offset + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Number of consecutive `super` here.
fn supers(code: &str) -> usize {
    let mut rest = code;
    let mut count = 0;
    while let Some(after) = rest.trim_start().strip_prefix("super") {
        count += 1;
        match after.trim_start().strip_prefix("::") {
            Some(after) => rest = after,
            None => break,
        }
    }
    count
}

/// Whether the word at `offset` is the name of a crate, and not of a module, field or variable.
fn is_crate_name(code: &str, offset: usize) -> bool {
    let before = code[..offset].trim_end();
    let word_end = code[offset..]
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(code.len(), |end| offset + end);
    let after = code[word_end..].trim_start();
    if let Some(outer) = before.strip_suffix("::") {
        // `driver::wgpu` is our own module, `::wgpu` is the crate.
        let is_segment = outer.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '>');
        return !is_segment;
    }
    after.starts_with("::") || before.ends_with("use") || before.ends_with("extern crate")
}

#[cfg(test)]
fn order_of(path: &str, text: &str) -> usize {
    check_order(&[Source::new(path, text)]).len()
}

#[test]
fn a_module_that_imports_one_below_it_is_found() {
    assert_eq!(
        order_of("crates/core/src/memory/slab.rs", "use crate::alloc::Bins;"),
        0
    );
    assert_eq!(
        order_of(
            "crates/core/src/memory/slab.rs",
            "use crate::{alloc::Bins, error::Error, units};"
        ),
        0
    );
    assert_eq!(
        order_of("crates/core/src/memory/slab.rs", "use crate::engine::Cmd;"),
        1
    );
    assert_eq!(
        order_of(
            "crates/core/src/memory/slab.rs",
            "use crate::{alloc::{A, B}, engine::{C, D}};"
        ),
        2
    );
    assert_eq!(
        order_of(
            "crates/core/src/memory/slab.rs",
            "use crate :: {\n alloc::A,\n tensor,\n};"
        ),
        1
    );
    assert_eq!(
        order_of("crates/core/src/units.rs", "use crate::driver::Driver;"),
        1
    );
    assert_eq!(
        order_of(
            "crates/core/src/observe.rs",
            "use crate::{alloc, driver, engine, observe};"
        ),
        0
    );
}

#[test]
fn paths_in_expressions_and_macros_count_and_comments_do_not() {
    assert_eq!(
        order_of(
            "crates/core/src/memory/mod.rs",
            "fn f() { let t = crate::tensor::f(); }"
        ),
        1
    );
    assert_eq!(
        order_of(
            "crates/core/src/memory/mod.rs",
            "macro_rules! m { () => { $crate::tensor::f() } }"
        ),
        1
    );
    assert_eq!(
        order_of(
            "crates/core/src/memory/mod.rs",
            "// crate::tensor\n/// [`crate::ops`]\nconst A: &str = \"crate::fuse\";"
        ),
        0
    );
    assert_eq!(
        order_of(
            "crates/core/src/memory/mod.rs",
            "#[cfg(test)] mod tests { use crate::tensor::f; }"
        ),
        0
    );
}

#[test]
fn roundabout_ways_are_found() {
    assert_eq!(
        order_of(
            "crates/core/src/memory/slab.rs",
            "use super::budget::Budget;"
        ),
        0
    );
    assert_eq!(
        order_of(
            "crates/core/src/memory/slab.rs",
            "use super::super::tensor::Tensor;"
        ),
        1
    );
    assert_eq!(
        order_of(
            "crates/core/src/memory/mod.rs",
            "use super::tensor::Tensor;"
        ),
        1
    );
    assert_eq!(
        order_of("crates/core/src/memory.rs", "use super::tensor::Tensor;"),
        1
    );
    assert_eq!(
        order_of(
            "src/ops/matmul/reference.rs",
            "use super::super::matmul::Layout;"
        ),
        0
    );
    assert_eq!(
        order_of("crates/core/src/memory/mod.rs", "use crate::Tensor;"),
        1
    );
    assert_eq!(
        order_of("crates/core/src/memory/mod.rs", "use crate::*;"),
        1
    );
    assert_eq!(
        order_of(
            "crates/core/src/memory/mod.rs",
            "use crate::{Error, Result};"
        ),
        0
    );
    assert_eq!(order_of("src/helpers.rs", ""), 1);
}

#[test]
fn the_handle_is_known_to_few_and_leaves_to_all() {
    assert_eq!(order_of("src/tensor/mod.rs", "use crate::gpu::Gpu;"), 0);
    assert_eq!(
        order_of("src/tensor/mod.rs", "use crate::gpu::{Gpu, Desk};"),
        1
    );
    assert_eq!(order_of("src/tensor/mod.rs", "use crate::gpu;"), 1);
    assert_eq!(
        order_of("crates/core/src/engine/mod.rs", "use crate::gpu::Gpu;"),
        1
    );
    assert_eq!(
        order_of("src/gpu.rs", "use crate::{alloc, observe, tensor};"),
        0
    );
    assert_eq!(
        order_of("crates/core/src/units.rs", "use crate::memory::Slab;"),
        1
    );
    assert_eq!(
        order_of("crates/core/src/error.rs", "use crate::units::Bytes;"),
        0
    );
}

#[test]
fn a_device_in_the_hands_of_what_shows_is_found() {
    let found = |path: &str, text: &str| check_showing(&[Source::new(path, text)]).len();
    let naming = "use lapidary_core::Gpu;";
    assert_eq!(found("crates/tools/src/page.rs", naming), 1);
    assert_eq!(found("crates/tools/src/formats/rmm.rs", naming), 1);
    assert_eq!(found("crates/tools/src/socket/server.rs", naming), 0);
    assert_eq!(found("crates/tools/src/page.rs", "/// A `Gpu`'s."), 0);
}

#[test]
fn wgpu_outside_the_driver_is_found() {
    let found = |path: &str, text: &str| check_foreign(&[Source::new(path, text)]).len();
    assert_eq!(
        found("crates/core/src/driver/wgpu.rs", "use wgpu::Device;"),
        0
    );
    assert_eq!(
        found("crates/core/src/driver/wgpu/encode.rs", "use wgpu::Device;"),
        0
    );
    assert_eq!(found("src/gpu.rs", "fn adopt(device: &wgpu::Device) {}"), 0);
    assert_eq!(found("src/ops/mod.rs", "fn f(device: &wgpu::Device) {}"), 1);
    assert_eq!(found("src/ops/mod.rs", "use wgpu as gfx;"), 1);
    assert_eq!(
        found("src/ops/mod.rs", "let a = ::wgpu::Limits::default();"),
        1
    );
    assert_eq!(
        found(
            "crates/core/src/driver/mod.rs",
            "mod wgpu;\npub use self::wgpu::WgpuDriver; // wgpu::Buffer"
        ),
        0
    );
    assert_eq!(found("src/lib.rs", "pub use wgpu;"), 0);
    assert_eq!(found("src/lib.rs", "use wgpu::Device;"), 1);
    assert_eq!(
        found("crates/core/src/kernel/reflect.rs", "use naga::Module;"),
        0
    );
    assert_eq!(found("src/ops/matmul.rs", "use naga::Module;"), 1);
}

#[test]
fn unsafe_code_outside_its_place_is_found() {
    let found = |path: &str, text: &str| check_unsafe(&[Source::new(path, text)]).len();
    assert_eq!(
        found("crates/core/src/driver/os_budget.rs", "unsafe { f() }"),
        0
    );
    assert_eq!(
        found(
            "crates/core/src/driver/wgpu.rs",
            "fn f() { unsafe { g() } }"
        ),
        1
    );
    assert_eq!(
        found(
            "crates/core/src/driver/wgpu.rs",
            "// unsafe\n#![deny(unsafe_code)]"
        ),
        0
    );
    assert_eq!(
        found("crates/alloc/src/lib.rs", "//! No forbidding here."),
        1
    );
    assert_eq!(
        found("crates/alloc/src/lib.rs", "#![forbid(unsafe_code)]"),
        0
    );
}
