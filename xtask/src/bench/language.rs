//! `bench language`: a language model by `lapidary-lm` beside candle on the CPU, with the same
//! files, in turns of one program.

use super::programs::{build_peer, into_docs, write};
use crate::driver::ensure_gpu;
use crate::process::{Result, Shell, cmd, target_dir};

pub(super) fn language(sh: &Shell, filter: &[String], with_docs: bool) -> Result<()> {
    ensure_gpu(sh)?;
    // candle chooses its kernels for blocks when it is built.
    let _native = sh.push_env("RUSTFLAGS", "-C target-cpu=native");
    let program = build_peer(sh, "language")?;
    let folder = target_dir().join("bench/language");
    let table = cmd!(sh, "{program} {folder} {filter...}").read()?;
    println!("{table}");
    write(sh, "language.md", &table)?;
    match with_docs {
        true => into_docs(sh, "models.md", "language", &table),
        false => Ok(()),
    }
}
