//! A decoder with less memory than its weights need: the cost of a token in the steady state.

use lapidary::sim::{SimHandle, SimMode, SimOptions};
use lapidary::{Budget, DType, Gpu, Result, Tensor};

use crate::engine::{ended, open_alone};

const WIDTH: usize = 256;
const WORDS: usize = 8192;
const LAYERS: usize = 8;
const LONGEST: usize = 64;

struct Layer {
    norm: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    up: Tensor,
    down: Tensor,
    keys: Tensor,
    values: Tensor,
}

struct Decoder {
    table: Tensor,
    layers: Vec<Layer>,
    head: Tensor,
}

impl Decoder {
    fn new(gpu: &Gpu) -> Result<Decoder> {
        let weight = |rows: usize, columns: usize| gpu.zeros(&[rows, columns], DType::F32);
        let layer = |_| -> Result<Layer> {
            Ok(Layer {
                norm: gpu.ones(&[WIDTH], DType::F32)?,
                query: weight(WIDTH, WIDTH)?,
                key: weight(WIDTH, WIDTH)?,
                value: weight(WIDTH, WIDTH)?,
                out: weight(WIDTH, WIDTH)?,
                up: weight(4 * WIDTH, WIDTH)?,
                down: weight(WIDTH, 4 * WIDTH)?,
                keys: weight(LONGEST, WIDTH)?,
                values: weight(LONGEST, WIDTH)?,
            })
        };
        Ok(Decoder {
            table: weight(WORDS, WIDTH)?,
            layers: (0..LAYERS).map(layer).collect::<Result<_>>()?,
            head: weight(WORDS, WIDTH)?,
        })
    }

    fn size_bytes(&self) -> u64 {
        let layers = self.layers.iter().flat_map(|one| {
            [
                &one.query, &one.key, &one.value, &one.out, &one.up, &one.down,
            ]
        });
        let all = layers.chain([&self.table, &self.head]);
        all.map(Tensor::size_bytes).sum()
    }

    fn token(&self, word: &Tensor, at: usize) -> Result<Tensor> {
        let mut x = self.table.embedding(word)?;
        for layer in &self.layers {
            let y = x.rms_norm(&[WIDTH], Some(&layer.norm), 1e-5)?;
            let query = y.linear(&layer.query, None)?;
            layer
                .keys
                .narrow(0, at, 1)?
                .copy_(&y.linear(&layer.key, None)?)?;
            layer
                .values
                .narrow(0, at, 1)?
                .copy_(&y.linear(&layer.value, None)?)?;
            let heads = |x: &Tensor, rows: usize| x.view_as(&[rows, 4, WIDTH / 4])?.transpose(0, 1);
            let keys = heads(&layer.keys.narrow(0, 0, at + 1)?, at + 1)?;
            let values = heads(&layer.values.narrow(0, 0, at + 1)?, at + 1)?;
            let made = heads(&query, 1)?
                .scaled_dot_product_attention(&keys, &values, None, false, None)?;
            let made = made.transpose(0, 1)?.reshape(&[1, WIDTH])?;
            x = x.add(&made.linear(&layer.out, None)?)?;
            let up = x.rms_norm(&[WIDTH], Some(&layer.norm), 1e-5)?;
            let up = up.linear(&layer.up, None)?.silu()?;
            x = x.add(&up.linear(&layer.down, None)?)?;
        }
        x.linear(&self.head, None)?.argmax(-1)
    }
}

/// Buffers created for each token. The budget is the weights' bytes divided by `parts`.
fn created(parts: u64) -> Vec<u64> {
    let (gpu, sim): (Gpu, SimHandle) = open_alone(SimOptions {
        mode: SimMode::SizesOnly,
        ..SimOptions::default()
    });
    let decoder = Decoder::new(&gpu).unwrap();
    gpu.finish().unwrap();
    gpu.memory()
        .set_budget(Budget::device(decoder.size_bytes() / parts))
        .unwrap();
    let mut word = gpu.zeros(&[1], DType::U32).unwrap();
    let mut created = Vec::new();
    for at in 0..LONGEST {
        let before = sim.counters().buffers_created;
        word = decoder.token(&word, at).unwrap();
        word.to_vec::<u32>().unwrap();
        created.push(sim.counters().buffers_created - before);
    }
    drop((decoder, word));
    ended(gpu, &sim);
    created
}

#[test]
fn a_steady_decoder_creates_no_buffer_however_little_room_it_has() {
    for parts in [1, 2, 4] {
        let created = created(parts);
        // The first tokens determine the victims.
        let steady: u64 = created[LONGEST / 4..].iter().sum();
        assert_eq!(steady, 0, "1/{parts}: {created:?}");
    }
}
