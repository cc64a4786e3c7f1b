//! Default places in a checkout of lapidary.

use std::env;
use std::path::PathBuf;

/// The folder where `cargo xtask fetch-model` leaves the model, or the one in `EMBED_MODEL`.
pub fn model_folder() -> PathBuf {
    match env::var_os("EMBED_MODEL").filter(|name| !name.is_empty()) {
        Some(folder) => folder.into(),
        None => target_folder().join("models").join("all-MiniLM-L6-v2"),
    }
}

/// The default file of the index.
pub fn index_file() -> PathBuf {
    target_folder().join("embed.index")
}

/// The versions of all packages that this program was built from.
pub fn lock_file() -> PathBuf {
    repository().join("examples").join("Cargo.lock")
}

/// The root of the checkout that this program was built in.
pub fn repository() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.join("..").join("..").canonicalize().unwrap_or(here)
}

fn target_folder() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => repository().join(folder),
        None => repository().join("target"),
    }
}
