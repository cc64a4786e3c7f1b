//! Training of a transformer with recorded gradients. The bench compares its memory with PyTorch's.
//! It measures its time within less memory, and where the time goes. The bench `gradients` compares
//! recorded gradients with a backward by hand.
//!
//! ```text
//! cargo bench --bench training [-- kernels]    # only where the time goes
//! cargo bench --bench training -- card    # the budgets on a simulated card
//! PATH=/folder/of/a/venv/bin:$PATH cargo bench --bench training     # with PyTorch 2.5.1 in it
//! ```
//!
//! The model is a decoder in the form of GPT-2 with AdamW (`model`). All steps that are compared
//! run in turns, so that noise hits each; the best of each counts.

mod budgets;
mod card;
mod kernels;
mod model;
#[path = "../simulated/card.rs"]
mod simulated_card;

use lapidary::adapter::AdapterKind;
use lapidary::{Gpu, Options, Result};

use card::tell as tell_of_card;
use model::Sizes;

const SIZES: Sizes = Sizes {
    layers: 12,
    width: 128,
    heads: 4,
    length: 128,
    batch: 8,
    words: 256,
};

fn main() -> Result<()> {
    let has_word = |word: &str| std::env::args().any(|arg| arg == word);
    if has_word("card") {
        return tell_of_card();
    }
    let gpu = Gpu::open(Options::from_env()?)?;
    println!("{} ({}), {SIZES:?}", gpu.caps().name, gpu.caps().backend);
    if has_word("kernels") {
        return kernels::tell(&gpu);
    }
    kernels::tell(&gpu)?;
    let is_software = gpu.caps().kind == AdapterKind::Cpu;
    drop(gpu);
    let peak_bytes = budgets::compare(|| Gpu::open(Options::from_env().unwrap()))?;
    beside_pytorch(peak_bytes, if is_software { "cpu" } else { "cuda" });
    Ok(())
}

/// The same step in PyTorch on the CPU or a card, if there is one.
fn beside_pytorch(peak_bytes: u64, device: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/training.py");
    let Sizes {
        layers,
        width,
        heads,
        length,
        batch,
        words,
    } = SIZES;
    let sizes = [layers, width, heads, length, batch, words].map(|size| size.to_string());
    let output = std::process::Command::new("python3")
        .arg(script)
        .args(sizes)
        .arg(device)
        .output();
    let told = output.ok().filter(|output| output.status.success());
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let number = |told: &str, name: &str| -> Option<f64> {
        let mut words = told.split_whitespace();
        words.find(|word| *word == name)?;
        words.next()?.parse().ok()
    };
    let found = told.as_ref().and_then(|told| {
        let peak = number(told, "peak_bytes")?;
        Some((peak, number(told, "seconds_per_step")?))
    });
    match found {
        Some((theirs, seconds)) => println!(
            "peak of a step: {:.1} MB, {:.2} of PyTorch's {:.1} MB ({seconds:.3} s a step)",
            peak_bytes as f64 / 1e6,
            peak_bytes as f64 / theirs,
            theirs / 1e6
        ),
        None => println!("no PyTorch: `python3 {script}` gave no figures"),
    }
}
