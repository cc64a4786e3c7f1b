//! The page's files in a folder of the build outputs: size-optimized wasm, the script that loads
//! it, and the page.
//!
//! The program `bindgen` of the examples' workspace writes that script. The lock file keeps it at
//! the version that the wasm was compiled with, which is necessary. It compiles a third of what
//! `cargo install wasm-bindgen-cli` compiles.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt;
use crate::process::{Result, capture, cargo, command, root, run, target_dir};
use crate::toolchain::{DEBIAN_TOOLCHAIN, debian_cargo, rustup_provides};

const TARGET: &str = "wasm32-unknown-unknown";

/// The page, ready to be served.
pub(crate) struct Page {
    pub(crate) folder: PathBuf,
    /// A sentence about the size of the program.
    pub(crate) size: String,
}

/// Builds it.
pub(crate) fn build() -> Result<Page> {
    let wasm = compile()?;
    let folder = target_dir().join("web-page");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let mut glue = in_examples(cargo());
    glue.args(["run", "--quiet", "--package", "bindgen", "--"]);
    run(glue
        .env("CARGO_TARGET_DIR", target_dir())
        .arg(&wasm)
        .arg(&folder))?;
    let page = root().join("examples/web/page");
    copy(&page, &folder).map_err(|error| format!("{}: {error}.", page.display()))?;
    let size = size_of(&folder.join("web_bg.wasm"))?;
    Ok(Page { folder, size })
}

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for file in fs::read_dir(from)? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

/// Compiles the program and returns its file. If rustup does not have the target, Debian's
/// toolchain compiles it together with the standard library.
fn compile() -> Result<PathBuf> {
    let (mut build, folder) = if rustup_provides(TARGET) {
        (cargo(), target_dir())
    } else if apt::is_here() {
        apt::install(DEBIAN_TOOLCHAIN)?;
        apt::install(&["lld-19"])?;
        let mut cargo = debian_cargo();
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld-19");
        cargo.args(["-Z", "build-std=std,panic_abort"]);
        (cargo, target_dir().join("targets"))
    } else {
        return Err(format!(
            "{TARGET} is not installed: `rustup target add {TARGET}` does that."
        ));
    };
    build.args([
        "build",
        "--profile",
        "web",
        "--package",
        "web",
        "--lib",
        "--target",
        TARGET,
    ]);
    run(in_examples(build).env("CARGO_TARGET_DIR", &folder))?;
    Ok(folder.join(TARGET).join("web/web.wasm"))
}

/// Runs a command in the workspace of the examples.
fn in_examples(mut command: Command) -> Command {
    command.current_dir(root().join("examples"));
    command
}

/// The size that a browser loads, and the compressed size.
fn size_of(wasm: &Path) -> Result<String> {
    let read = |error| format!("{}: {error}.", wasm.display());
    let bytes = fs::metadata(wasm).map_err(read)?.len();
    let packed = wasm.with_extension("gz");
    let mut gzip = command("sh");
    gzip.args(["-c", "gzip -9 < \"$0\" > \"$1\""])
        .arg(wasm)
        .arg(&packed);
    let told = match capture(&mut gzip) {
        Ok(_) => format!("{} KB", fs::metadata(&packed).map_err(read)?.len() / 1000),
        Err(_) => "unknown (there is no gzip)".into(),
    };
    let _ = fs::remove_file(&packed);
    Ok(format!(
        "the program is {} KB of wasm, {told} compressed",
        bytes / 1000
    ))
}
