//! Where things are in a checkout of lapidary, if nobody says otherwise.

use std::env;
use std::path::PathBuf;

/// Where `cargo xtask fetch-model` leaves the model, or what `EMBED_MODEL` names.
pub fn model_folder() -> PathBuf {
    match env::var_os("EMBED_MODEL").filter(|name| !name.is_empty()) {
        Some(folder) => folder.into(),
        None => target_folder().join("models").join("all-MiniLM-L6-v2"),
    }
}

/// Where the index is kept.
pub fn index_file() -> PathBuf {
    target_folder().join("embed.index")
}

/// The versions of everything that this was built from.
pub fn lock_file() -> PathBuf {
    repository().join("examples").join("Cargo.lock")
}

/// Where cargo unpacks the sources of packages: a folder for each registry.
pub fn cargo_registry() -> Option<PathBuf> {
    let of_cargo = match env::var_os("CARGO_HOME").filter(|name| !name.is_empty()) {
        Some(folder) => folder.into(),
        None => env::home_dir()?.join(".cargo"),
    };
    Some(of_cargo.join("registry").join("src"))
}

/// The root of the checkout that this was built in.
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
