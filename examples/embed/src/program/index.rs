//! `embed index`.

use std::io::Write;
use std::time::Instant;

use embed::{Embedded, Index, Result};
use indicatif::{ProgressBar, ProgressStyle};
use lapidary::units::Bytes;
use serde_json::json;

use super::output::Output;
use super::{Setup, Texts, corpus, once_more};

/// Number of kernels that are listed.
const KERNELS: usize = 12;

pub(super) fn run(
    texts: &Texts,
    setup: &Setup,
    with_kernels: bool,
    out: &mut Output<impl Write>,
) -> Result<()> {
    let path = setup.index_file();
    Index::prepare(&path)?;
    let (gpu, model) = setup.open()?;
    if with_kernels {
        gpu.kernels().time(true)?;
    }
    let entries = corpus::entries(texts)?;
    if !setup.json {
        out.line(format_args!(
            "{} sentences, on {} ({})",
            entries.len(),
            gpu.caps().name,
            gpu.caps().backend
        ))?;
    }
    let sentences: Vec<&str> = entries.iter().map(|entry| entry.text.as_str()).collect();
    let bar = ProgressBar::new(sentences.len() as u64);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {pos}/{len} sentences, {per_sec}, {eta} to go")
    {
        bar.set_style(style);
    }
    let start = Instant::now();
    let mut first = None;
    let embedded = pollster::block_on(model.embed(&sentences, |done| {
        first.get_or_insert_with(|| (done, start.elapsed().as_secs_f64()));
        bar.set_position(done as u64);
    }))?;
    let pace = Pace::new(sentences.len(), start.elapsed().as_secs_f64(), first);
    bar.finish_and_clear();
    if with_kernels {
        for time in gpu.kernels().times()?.iter().take(KERNELS) {
            out.line(time)?;
        }
    }
    let memory = gpu.memory().stats();
    let count = sentences.len();
    once_more(&gpu, || {
        let index = pollster::block_on(Index::new(&gpu, entries.clone(), &embedded))?;
        index.save(&gpu, &path)
    })?;

    let (peak_bytes, evicted_bytes) = (memory.device_bytes.peak, memory.evicted_bytes);
    let Pace {
        seconds,
        per_second,
        first_batch_seconds,
        rest_per_second,
    } = pace;
    let adapter = &gpu.caps().name;
    if setup.json {
        let found = json!({
            "by": "lapidary", "adapter": adapter, "sentences": count, "cut": embedded.cut, "seconds": seconds,
            "per_second": per_second, "first_batch_seconds": first_batch_seconds, "rest_per_second": rest_per_second,
            "likeness": likeness(&embedded), "peak_device_bytes": peak_bytes,
            "peak_live_bytes": memory.live_bytes.peak, "least_bytes": model.least_bytes(), "restored_bytes": memory.restored_bytes,
            "evicted_bytes": evicted_bytes, "weights": setup.weights.to_string(),
            "weights_bytes": model.encoder.weights_bytes(), "budget_bytes": memory.budget_bytes, "index": path,
        });
        return out.line(found);
    }
    if embedded.cut > 0 {
        out.line(format_args!(
            "{} of them are longer than the {} tokens that the model reads: only their beginning \
             can be found.",
            embedded.cut, model.config.longest
        ))?;
    }
    let rest = rest_per_second.map_or(String::new(), |rate| {
        format!(", then {rate:.1} sentences a second")
    });
    out.line(format_args!(
        "{seconds:.1} s: {first_batch_seconds:.1} s until the first batch was there, for which kernels are compiled \
         and weights read{rest}."
    ))?;
    out.line(format_args!(
        "{} on the device at most. Kept in {}: `embed search` looks into it.",
        Bytes(peak_bytes),
        path.display()
    ))?;
    let rest = rest_per_second.map_or(String::new(), |rate| format!(" rest_per_second={rate:.1}"));
    out.line(format_args!(
        "embed: sentences={count} per_second={per_second:.1} first_batch_seconds={first_batch_seconds:.1}{rest} \
         peak_device_bytes={peak_bytes} evicted_bytes={evicted_bytes} restored_bytes={} weights={} \
         weights_bytes={} adapter={adapter:?}",
        memory.restored_bytes,
        setup.weights,
        model.encoder.weights_bytes()
    ))
}

/// The speed. The first batch waits until kernels are compiled and weights are read.
#[derive(Debug, PartialEq)]
struct Pace {
    seconds: f64,
    /// Sentences a second, in all.
    per_second: f64,
    first_batch_seconds: f64,
    /// Sentences a second without the first batch and its time; `None` if there was only one batch.
    rest_per_second: Option<f64>,
}

impl Pace {
    /// Computes it from the number of sentences and their time, and the same of the first batch.
    fn new(count: usize, seconds: f64, first: Option<(usize, f64)>) -> Pace {
        let (first_count, first_batch_seconds) = first.unwrap_or((count, seconds));
        let rate = |count: usize, seconds: f64| count as f64 / seconds.max(1e-9);
        Pace {
            seconds,
            per_second: rate(count, seconds),
            first_batch_seconds,
            rest_per_second: (first_count < count)
                .then(|| rate(count - first_count, seconds - first_batch_seconds)),
        }
    }
}

/// The mean cosine of all vectors with the first: a checksum of correct results.
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

#[cfg(test)]
mod tests {
    use super::Pace;

    #[test]
    fn the_first_batch_counts_apart() {
        let pace = Pace::new(110, 15.0, Some((10, 5.0)));
        assert_eq!(
            (pace.first_batch_seconds, pace.rest_per_second),
            (5.0, Some(10.0))
        );
        assert!((pace.per_second - 110.0 / 15.0).abs() < 1e-9);
        assert_eq!(Pace::new(10, 5.0, Some((10, 5.0))).rest_per_second, None);
    }
}
