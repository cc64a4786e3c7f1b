//! What it costs to have lapidary in a program: crates, the time of a build, the program's size.

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use super::row::Row;
use crate::process::{Result, capture, cargo, root, run_quietly, target_dir};

/// The most crates in the tree of the core.
const MOST_CRATES: usize = 62;

/// The most bytes of the core's first program, stripped, with LTO.
const MOST_BYTES: u64 = 6_500_000;

/// The profile of users who care for the size.
const LTO: &str = "lto = true\n";

/// The crates of the default tree on this system, without lapidary itself.
pub(crate) fn crates() -> Result<Row> {
    Ok(Row::counted(
        "crates in the default tree",
        crates_of("lapidary")? as f64,
        "crates",
    ))
}

fn crates_of(package: &str) -> Result<usize> {
    let package = format!("--package={package}");
    let listing = capture(cargo().args(["tree", &package, "--edges=normal", "--prefix=none"]))?;
    Ok(count(&listing))
}

/// Builds the core's first program from scratch. Fails if it, or its tree of crates, is too large.
pub(crate) fn check() -> Result<String> {
    let crates = crates_of("lapidary-core")?;
    let (_, bytes) = of_core("lapidary-core-lto", LTO)?.build()?;
    let found = format!("{crates} crates, and a program of {bytes} bytes");
    match crates <= MOST_CRATES && bytes <= MOST_BYTES {
        true => Ok(found),
        false => Err(format!(
            "{found}: at most {MOST_CRATES} and {MOST_BYTES} may be. `nm --size-sort` on a program \
             that is not stripped says what is large."
        )),
    }
}

/// A listing names a crate once for each that wants it.
fn count(listing: &str) -> usize {
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let names: BTreeSet<_> = listing.lines().filter_map(name).collect();
    names
        .iter()
        .filter(|(name, _)| !name.starts_with("lapidary"))
        .count()
}

/// A package with one program, built in release and from scratch.
struct Program {
    name: &'static str,
    /// Its lines in the list of dependencies.
    dependencies: String,
    main: String,
    /// Lines of its profile.
    profile: &'static str,
}

/// Doubles a thousand numbers on the GPU with wgpu alone, as the other programs do with lapidary.
const BY_WGPU: &str = r#"
use wgpu::util::DeviceExt;

const DOUBLE: &str = "
@group(0) @binding(0) var<storage, read_write> numbers: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x < arrayLength(&numbers) { numbers[id.x] *= 2.0; }
}";

fn main() {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&Default::default())).unwrap();
    let (device, queue) = pollster::block_on(adapter.request_device(&Default::default())).unwrap();
    let bytes: Vec<u8> = (0..1000).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    let numbers = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: None,
        contents: &bytes,
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
    });
    let readback = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: numbers.size(),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(DOUBLE.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    });
    let entry = wgpu::BindGroupEntry { binding: 0, resource: numbers.as_entire_binding() };
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[entry],
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(16, 1, 1);
    drop(pass);
    encoder.copy_buffer_to_buffer(&numbers, 0, &readback, 0, numbers.size());
    queue.submit([encoder.finish()]);
    readback.slice(..).map_async(wgpu::MapMode::Read, |mapped| mapped.unwrap());
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    println!("{:?}", &readback.slice(..).get_mapped_range().unwrap()[..16]);
}
"#;

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}."))
}

/// A path as a dependency.
fn path(folder: &str) -> String {
    format!("{{ path = {:?} }}", root().join(folder))
}

/// The program of the core's README.
fn of_core(name: &'static str, profile: &'static str) -> Result<Program> {
    let page = read("crates/core/README.md")?;
    let main = first_program(&page).ok_or("the README of lapidary-core has no program.")?;
    Ok(Program {
        name,
        dependencies: format!("lapidary-core = {}", path("crates/core")),
        main: main.into(),
        profile,
    })
}

/// Builds programs from scratch, each with its own dependencies: wgpu alone, the memory manager
/// without and with LTO, and the library with all operations. Each computes something on the GPU.
pub(crate) fn build() -> Result<Vec<Row>> {
    let programs = [
        Program {
            name: "wgpu",
            // As `lapidary-core` has it.
            dependencies: "wgpu = { version = \"30\", default-features = false, features = \
                         [\"std\", \"wgsl\", \"vulkan\", \"dx12\", \"metal\"] }\npollster = \"0.4\""
                .into(),
            main: BY_WGPU.into(),
            profile: "",
        },
        of_core("lapidary-core", "")?,
        of_core("lapidary-core-lto", LTO)?,
        Program {
            name: "lapidary",
            dependencies: format!("lapidary = {}", path("")),
            main: read("examples/hello.rs")?,
            profile: "",
        },
    ];
    let mut rows = Vec::new();
    for program in programs {
        let (seconds, bytes) = program.build()?;
        let name = |what: &str| format!("{what}, {}", program.name);
        rows.push(Row::counted(&name("clean release build"), seconds, "s"));
        rows.push(Row::counted(
            &name("program, stripped"),
            bytes as f64 / 1e6,
            "MB",
        ));
    }
    Ok(rows)
}

impl Program {
    /// The seconds of the build, and the program's bytes.
    fn build(&self) -> Result<(f64, u64)> {
        let folder = target_dir().join("bench/weight").join(self.name);
        let explain = |error: std::io::Error| format!("{}: {error}.", folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(explain)?;
        }
        fs::create_dir_all(folder.join("src")).map_err(explain)?;
        let manifest = format!(
            "[package]\nname = \"hello\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\n{}\n\n[profile.release]\nstrip = true\n{}",
            self.dependencies, self.profile
        );
        fs::write(folder.join("Cargo.toml"), manifest).map_err(explain)?;
        fs::write(folder.join("src/main.rs"), &self.main).map_err(explain)?;
        fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(explain)?;
        // Downloads do not count as build time.
        run_quietly(cargo().current_dir(&folder).arg("fetch"))?;
        let start = Instant::now();
        run_quietly(
            cargo()
                .current_dir(&folder)
                .args(["build", "--release"])
                .env("CARGO_TARGET_DIR", "target"),
        )?;
        let seconds = start.elapsed().as_secs_f64();
        let program = folder.join("target/release");
        let program = program.join(format!("hello{}", std::env::consts::EXE_SUFFIX));
        Ok((seconds, fs::metadata(&program).map_err(explain)?.len()))
    }
}

/// The first block of Rust on a page.
fn first_program(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once("```rust")?;
    let (_, rest) = rest.split_once('\n')?;
    rest.split("```").next()
}

#[cfg(test)]
mod tests {
    use super::{count, first_program};

    #[test]
    fn a_crate_counts_once_whoever_wants_it() {
        let listing = "lapidary v0.1.0 (/x)\nhalf v2.7.1\ncfg-if v1.0.4\nbytemuck v1.24.0\n\
                       bytemuck_derive v1.10.2 (proc-macro)\ncfg-if v1.0.4 (*)\n\n";
        assert_eq!(count(listing), 4);
    }

    #[test]
    fn the_first_program_of_a_page_is_found() {
        let page = "# A\n\n```text\nb\n```\n\n```rust,no_run\nfn main() {}\n```\n";
        assert_eq!(first_program(page), Some("fn main() {}\n"));
        assert_eq!(first_program("# A\n"), None);
    }
}
