//! A decoder-only transformer over ASCII, from ordinary operations. Nothing here knows of a
//! backward.

use std::path::Path;

use lapidary::{DType, Gpu, Result, Tensor, files::ModelFile, optim::Parameters};

/// Classes: the bytes of ASCII.
pub(crate) const LETTERS: usize = 128;
/// Bytes that the model sees at once.
pub(crate) const CONTEXT: usize = 128;
const WIDTH: usize = 128;
const HEADS: usize = 4;
const HIDDEN: usize = 4 * WIDTH;
const BLOCKS: usize = 4;

/// What a forward pass does to save memory.
#[derive(Clone, Copy)]
pub(crate) struct Pass {
    /// A block keeps only its input; the backward calls it again.
    pub(crate) checkpoint: bool,
    /// The type of activations.
    pub(crate) dtype: DType,
}

impl Pass {
    pub(crate) const PLAIN: Pass = Pass {
        checkpoint: false,
        dtype: DType::F32,
    };
}

/// `x + attention(norm(x))`, then `x + network(norm(x))`.
#[derive(Clone)]
struct Block {
    qkv: Tensor,
    out: Tensor,
    up: Tensor,
    down: Tensor,
    /// Cosines and sines of the angles by which positions turn queries and keys.
    angles: [Tensor; 2],
}

impl Block {
    /// `x` and the result have a row for each byte of each sequence.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let sequences = x.shape()[0] / CONTEXT;
        let heads = product(&normal(x)?, &self.qkv)?
            .reshape(&[sequences, CONTEXT, 3, HEADS, WIDTH / HEADS])?
            .permute(&[2, 0, 3, 1, 4])?;
        let [cos, sin] = &self.angles;
        let q = heads.select(0, 0)?.rotary(cos, sin, false)?;
        let k = heads.select(0, 1)?.rotary(cos, sin, false)?;
        let v = heads.select(0, 2)?;
        let seen = q
            .scaled_dot_product_attention(&k, &v, None, true, None)?
            .permute(&[0, 2, 1, 3])?
            .reshape(x.shape())?;
        let x = (x + product(&seen, &self.out)?)?;
        let hidden = product(&normal(&x)?, &self.up)?.gelu()?;
        &x + product(&hidden, &self.down)?
    }
}

/// Rows whose elements have the mean square 1 (Zhang and Sennrich, *Root Mean Square Layer
/// Normalization*, 2019).
fn normal(x: &Tensor) -> Result<Tensor> {
    x.rms_norm(&[WIDTH], None, 1e-5)
}

/// `x · weight`, in the type of `x`.
fn product(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.matmul(&weight.cast(x.dtype())?)
}

pub(crate) struct Model {
    gpu: Gpu,
    pub(crate) parameters: Parameters,
    letters: Tensor,
    blocks: Vec<Block>,
    to_letters: Tensor,
}

impl Model {
    /// A model that knows nothing.
    pub(crate) fn new(gpu: &Gpu, mut seed: u64) -> Result<Model> {
        Self::with(gpu, |_, shape, std| {
            seed += 1;
            gpu.rand_normal(&shape, 0.0, std, seed, DType::F32)
        })
    }

    /// The model of a file that [`save`](Self::save) wrote.
    pub(crate) fn load(gpu: &Gpu, path: &Path) -> Result<Model> {
        let saved = gpu.files().load_model(&ModelFile::open(path)?, |_| ())?;
        Self::with(gpu, |name, shape, _| saved.expect(name, &shape))
    }

    /// Makes each parameter by its name, its shape and the deviation of its first values.
    fn with(
        gpu: &Gpu,
        mut make: impl FnMut(&str, [usize; 2], f32) -> Result<Tensor>,
    ) -> Result<Model> {
        let mut parameters = Parameters::default();
        let mut parameter =
            |name: &str, shape: [usize; 2], std: f32| parameters.add(name, make(name, shape, std)?);
        let angles = angles(gpu)?;
        let of_width = (WIDTH as f32).powf(-0.5);
        let mut block = |number: usize| -> Result<Block> {
            let mut weight = |part: &str, inputs: usize, outputs: usize, std: f32| {
                parameter(&format!("blocks.{number}.{part}"), [inputs, outputs], std)
            };
            // What is added to the sum of all blocks begins small.
            Ok(Block {
                qkv: weight("qkv", WIDTH, 3 * WIDTH, of_width)?,
                out: weight("out", WIDTH, WIDTH, 0.02)?,
                up: weight("up", WIDTH, HIDDEN, of_width)?,
                down: weight("down", HIDDEN, WIDTH, 0.02)?,
                angles: angles.clone(),
            })
        };
        let blocks = (0..BLOCKS).map(&mut block).collect::<Result<_>>()?;
        Ok(Model {
            gpu: gpu.clone(),
            blocks,
            letters: parameter("letters", [LETTERS, WIDTH], 0.5)?,
            to_letters: parameter("to_letters", [WIDTH, LETTERS], 0.02)?,
            parameters,
        })
    }

    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let named: Vec<_> = self.parameters.iter().collect();
        self.gpu
            .files()
            .save_model(path, &named, &[("format", "pt")])
    }

    /// The mean cross entropy of the bytes that follow, `[sequences · CONTEXT]`, in nats.
    pub(crate) fn loss(&self, seen: &Tensor, next: &Tensor, pass: Pass) -> Result<Tensor> {
        let logits = product(&normal(&self.states(seen, pass)?)?, &self.to_letters)?;
        logits
            .cast(DType::F32)?
            .cross_entropy(next, None, Default::default())
    }

    /// The logits of the byte after each sequence, `[sequences, LETTERS]`.
    pub(crate) fn next(&self, seen: &Tensor) -> Result<Tensor> {
        let states = self.states(seen, Pass::PLAIN)?;
        let last = states
            .reshape(&[seen.shape()[0], CONTEXT, WIDTH])?
            .select(1, CONTEXT as isize - 1)?;
        product(&normal(&last)?, &self.to_letters)
    }

    /// A row for each byte of `seen`, `[sequences, CONTEXT]`.
    fn states(&self, seen: &Tensor, pass: Pass) -> Result<Tensor> {
        let mut x = self.letters.cast(pass.dtype)?.embedding(&seen.flatten()?)?;
        for block in &self.blocks {
            x = match pass.checkpoint {
                true => {
                    let block = block.clone();
                    let forward = move |inputs: &[Tensor]| block.forward(&inputs[0]);
                    self.gpu.checkpoint(&[&x], forward)?
                }
                false => block.forward(&x)?,
            };
        }
        Ok(x)
    }
}

/// Cosines and sines for rotary embedding, both `[CONTEXT, pairs]` (Su et al., *RoFormer*, 2021).
fn angles(gpu: &Gpu) -> Result<[Tensor; 2]> {
    let pairs = WIDTH / HEADS / 2;
    let angle = |at: usize| {
        let (position, pair) = (at / pairs, at % pairs);
        position as f32 * 1e4_f32.powf(-(pair as f32) / pairs as f32)
    };
    let angles: Vec<f32> = (0..CONTEXT * pairs).map(angle).collect();
    let angles = gpu.tensor(&angles, &[CONTEXT, pairs])?;
    Ok([angles.cos()?.named("angles"), angles.sin()?.named("angles")])
}
