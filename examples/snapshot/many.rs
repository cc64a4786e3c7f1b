//! A simulated device with a hundred thousand blocks and a million events, under names that could
//! break pages.

use lapidary::sim::{SimMode, SimOptions};
use lapidary::units::GIB;
use lapidary::{DType, Gpu, Result, Tensor, stats::Snapshot};

const BLOCKS: usize = 100_000;
const EVENTS: usize = 1_000_000;

/// Short-lived tensors that are alive at once.
const PASSING: usize = 64;

pub(crate) fn run() -> Result<Snapshot> {
    let (gpu, _device) = Gpu::simulated(SimOptions {
        mode: SimMode::SizesOnly,
        memory_bytes: 64 * GIB,
        max_buffer_bytes: GIB,
        checks_shaders: false,
        ..SimOptions::default()
    })?;
    gpu.memory().keep_history(EVENTS);
    let mut noise = fastrand::Rng::with_seed(1);
    let mut make = |scope: &str, name: &str, most_kib: usize| {
        let _scope = gpu.scope(scope);
        // Small ones are frequent, as in real programs.
        let len = (1 << noise.u32(6..8 + most_kib.ilog2())) + noise.usize(0..64);
        Ok::<_, lapidary::Error>(gpu.zeros(&[len], DType::F32)?.named(name))
    };
    let long = "long ".repeat(2 << 20);
    let hostile = [
        "</script><script>document.title = 'owned'</script>",
        "<img src=x onerror=\"document.title = 'owned'\">",
        "\u{1b}[31mred\u{202e}desrever\u{0}\n\t\u{200b}",
        "<!-- ]]> {{data}} & &lt; \\u003c",
        &long,
    ];
    let mut kept: Vec<Tensor> = Vec::with_capacity(BLOCKS);
    for name in hostile {
        kept.push(make("hostile <b>scope</b>", name, 1024)?);
    }
    while kept.len() < BLOCKS - PASSING {
        let layer = kept.len() * 48 / BLOCKS;
        kept.push(make("parameters", &format!("layer {layer}"), 16)?);
        if kept.len().is_multiple_of(128) {
            gpu.flush()?;
        }
    }
    let mut passing = Vec::with_capacity(PASSING);
    let names = ["query", "key", "value", "scores", "hidden", "gradient"];
    // Each iteration is two events: an allocation and a free.
    for step in 0..EVENTS.saturating_sub(BLOCKS) / 2 {
        passing.push(make("step", names[step % names.len()], 4096)?);
        if passing.len() == PASSING {
            gpu.flush()?;
            passing.clear();
        }
    }
    gpu.finish()?;
    Ok(gpu.memory().snapshot())
}
