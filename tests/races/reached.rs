//! Records which kernels the tests interpreted. `cargo xtask nightly --only races` compares them
//! with all that the library can choose.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use lapidary::sim::SimHandle;

/// Writes the texts of the kernels that a device interpreted to the folder in
/// `LAPIDARY_RACES_DUMP`, one file each, like the dump of shaders.
pub(crate) fn note(sim: &SimHandle) {
    let Some(folder) = std::env::var_os("LAPIDARY_RACES_DUMP") else {
        return;
    };
    for (name, text) in sim.interpreted() {
        let name: String = (name.chars())
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(100)
            .collect();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let file = format!("{name}-{:016x}.wgsl", hasher.finish());
        let file = Path::new(&folder).join(file);
        if !file.exists() {
            fs::write(&file, text).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        }
    }
}
