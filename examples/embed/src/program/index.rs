//! `embed index`.

use std::time::Instant;

use embed::{Embedded, Index, Result};
use indicatif::{ProgressBar, ProgressStyle};
use lapidary::units::Bytes;
use serde_json::json;

use super::{Setup, Texts, corpus};

pub(super) fn run(texts: &Texts, setup: &Setup) -> Result<()> {
    let (gpu, model) = setup.open()?;
    let entries = corpus::entries(texts)?;
    if !setup.json {
        println!(
            "{} sentences, on {} ({})",
            entries.len(),
            gpu.caps().name,
            gpu.caps().backend
        );
    }
    let sentences: Vec<&str> = entries.iter().map(|entry| entry.text.as_str()).collect();
    let bar = ProgressBar::new(sentences.len() as u64);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {pos}/{len} sentences, {per_sec}, {eta} to go")
    {
        bar.set_style(style);
    }
    let start = Instant::now();
    let embedded =
        pollster::block_on(model.embed(&sentences, |done| bar.set_position(done as u64)))?;
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let memory = gpu.memory();
    let count = sentences.len();
    let index = Index::new(&gpu, entries, &embedded)?;
    let path = setup.index_file();
    index.save(&gpu, &path)?;

    let (peak_bytes, put_out_bytes) = (memory.device_bytes.peak, memory.put_out_bytes);
    let per_second = count as f64 / seconds.max(1e-9);
    let adapter = &gpu.caps().name;
    if setup.json {
        let found = json!({
            "by": "lapidary", "adapter": adapter, "sentences": count, "cut": embedded.cut, "seconds": seconds,
            "per_second": per_second, "likeness": likeness(&embedded), "peak_device_bytes": peak_bytes,
            "peak_live_bytes": memory.live_bytes.peak, "least_bytes": model.least_bytes(), "brought_in_bytes": memory.brought_in_bytes,
            "put_out_bytes": put_out_bytes, "weights": setup.weights.to_string(),
            "weights_bytes": model.encoder.weights_bytes(), "budget_bytes": memory.budget_bytes, "index": path,
        });
        println!("{found}");
        return Ok(());
    }
    if embedded.cut > 0 {
        println!(
            "{} of them are longer than the {} tokens that the model reads: of those only the beginning is found.",
            embedded.cut, model.config.longest
        );
    }
    println!(
        "{seconds:.1} s, and {} on the device at most. Kept in {}: `embed search` looks into it.",
        Bytes(peak_bytes),
        path.display()
    );
    println!(
        "embed: sentences={count} per_second={per_second:.1} peak_device_bytes={peak_bytes} \
         put_out_bytes={put_out_bytes} brought_in_bytes={} weights={} weights_bytes={} adapter={adapter:?}",
        memory.brought_in_bytes,
        setup.weights,
        model.encoder.weights_bytes()
    );
    Ok(())
}

/// The mean cosine of all vectors with the first: the same for whoever computes the same.
fn likeness(embedded: &Embedded) -> f64 {
    let vectors = embedded.vectors.chunks_exact(embedded.width);
    let first = &embedded.vectors[..embedded.width];
    let cosine = |other: &[f32]| -> f64 {
        first
            .iter()
            .zip(other)
            .map(|(&a, &b)| f64::from(a) * f64::from(b))
            .sum()
    };
    let count = vectors.len() as f64;
    vectors.map(cosine).sum::<f64>() / count
}
