//! A decoder-only transformer over ASCII in Llama's form (Touvron et al., 2023), from ordinary
//! operations. Nothing here knows of a backward.

use lapidary::{DType, Gpu, Result, Tensor, optim::Parameters};

/// Classes: the bytes of ASCII.
pub(crate) const LETTERS: usize = 128;
/// Bytes that the model sees at once.
pub(crate) const CONTEXT: usize = 256;
pub(crate) const WIDTH: usize = 96;
pub(crate) const HEADS: usize = 3;
pub(crate) const HEAD: usize = WIDTH / HEADS;
pub(crate) const HIDDEN: usize = 3 * WIDTH;
pub(crate) const BLOCKS: usize = 3;
/// Is added to the mean square in norms.
pub(crate) const EPS: f32 = 1e-5;
/// The base of the angles' frequencies.
pub(crate) const THETA: f32 = 1e4;

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

/// `x + attention(norm(x))`, then `x + network(norm(x))`. Matrices are `[outputs, inputs]`.
#[derive(Clone)]
struct Block {
    attention_norm: Tensor,
    /// Those of queries, keys and values.
    qkv: [Tensor; 3],
    out: Tensor,
    network_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    /// Cosines and sines of the angles by which positions turn queries and keys.
    angles: [Tensor; 2],
}

impl Block {
    /// `x` and the result have a row for each byte of each sequence.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let sequences = x.shape()[0] / CONTEXT;
        let normal_x = normal(x, &self.attention_norm)?;
        let heads = |weight: &Tensor| {
            product(&normal_x, weight)?
                .reshape(&[sequences, CONTEXT, HEADS, HEAD])?
                .permute(&[0, 2, 1, 3])
        };
        let [q, k, v] = self.qkv.each_ref().map(heads);
        let [cos, sin] = &self.angles;
        let q = q?.rotary(cos, sin, false)?;
        let k = k?.rotary(cos, sin, false)?;
        let seen = q
            .scaled_dot_product_attention(&k, &v?, None, true, None)?
            .permute(&[0, 2, 1, 3])?
            .reshape(x.shape())?;
        let x = (x + product(&seen, &self.out)?)?;
        let normal_x = normal(&x, &self.network_norm)?;
        let gate = product(&normal_x, &self.gate)?.silu()?;
        let hidden = (gate * product(&normal_x, &self.up)?)?;
        &x + product(&hidden, &self.down)?
    }
}

/// Rows whose elements have the mean square 1, times the weight (Zhang and Sennrich, *Root Mean
/// Square Layer Normalization*, 2019).
fn normal(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.rms_norm(&[WIDTH], Some(&weight.cast(x.dtype())?), EPS)
}

/// `x` times the transposed weight, in the type of `x`.
fn product(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.linear(&weight.cast(x.dtype())?, None)
}

pub(crate) struct Model {
    pub(crate) gpu: Gpu,
    /// With the names that a Llama of Hugging Face's `transformers` has.
    pub(crate) parameters: Parameters,
    letters: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    to_letters: Tensor,
}

impl Model {
    /// A model that knows nothing.
    pub(crate) fn new(gpu: &Gpu, mut seed: u64) -> Result<Model> {
        Self::with(gpu, |_, shape, std| {
            seed += 1;
            match std {
                Some(std) => gpu.rand_normal(shape, 0.0, std, seed, DType::F32),
                None => gpu.ones(shape, DType::F32),
            }
        })
    }

    /// Makes each parameter by its name, its shape and the deviation of its first values: those of
    /// norms have none, and are 1.
    pub(crate) fn with(
        gpu: &Gpu,
        mut make: impl FnMut(&str, &[usize], Option<f32>) -> Result<Tensor>,
    ) -> Result<Model> {
        let mut parameters = Parameters::default();
        let mut parameter = |name: &str, shape: &[usize], std: Option<f32>| {
            let name = format!("{name}.weight");
            parameters.add(&name, make(&name, shape, std)?)
        };
        let angles = angles(gpu)?;
        let of_width = (WIDTH as f32).powf(-0.5);
        let letters = parameter("model.embed_tokens", &[LETTERS, WIDTH], Some(0.5))?;
        let mut block = |number: usize| -> Result<Block> {
            let mut weight = |part: &str, outputs: usize, inputs: usize, std: f32| {
                let name = format!("model.layers.{number}.{part}_proj");
                parameter(&name, &[outputs, inputs], Some(std))
            };
            // What is added to the sum of all blocks begins small.
            let [q, k, v] = ["self_attn.q", "self_attn.k", "self_attn.v"]
                .map(|part| weight(part, WIDTH, WIDTH, of_width));
            let out = weight("self_attn.o", WIDTH, WIDTH, 0.02)?;
            let gate = weight("mlp.gate", HIDDEN, WIDTH, of_width)?;
            let up = weight("mlp.up", HIDDEN, WIDTH, of_width)?;
            let down = weight("mlp.down", WIDTH, HIDDEN, 0.02)?;
            let mut norm =
                |part: &str| parameter(&format!("model.layers.{number}.{part}"), &[WIDTH], None);
            Ok(Block {
                attention_norm: norm("input_layernorm")?,
                qkv: [q?, k?, v?],
                out,
                network_norm: norm("post_attention_layernorm")?,
                gate,
                up,
                down,
                angles: angles.clone(),
            })
        };
        let blocks = (0..BLOCKS).map(&mut block).collect::<Result<_>>()?;
        Ok(Model {
            gpu: gpu.clone(),
            letters,
            blocks,
            norm: parameter("model.norm", &[WIDTH], None)?,
            to_letters: parameter("lm_head", &[LETTERS, WIDTH], Some(0.02))?,
            parameters,
        })
    }

    /// The mean cross entropy of the bytes that follow, `[sequences · CONTEXT]`, in nats.
    pub(crate) fn loss(&self, seen: &Tensor, next: &Tensor, pass: Pass) -> Result<Tensor> {
        self.logits(&self.states(seen, pass)?)?
            .cast(DType::F32)?
            .cross_entropy(next, None, Default::default())
    }

    /// The logits of the byte after each sequence, `[sequences, LETTERS]`.
    pub(crate) fn next(&self, seen: &Tensor) -> Result<Tensor> {
        let states = self.states(seen, Pass::PLAIN)?;
        let last = states
            .reshape(&[seen.shape()[0], CONTEXT, WIDTH])?
            .select(1, CONTEXT as isize - 1)?;
        self.logits(&last)
    }

    fn logits(&self, states: &Tensor) -> Result<Tensor> {
        product(&normal(states, &self.norm)?, &self.to_letters)
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
    let pairs = HEAD / 2;
    let angle = |at: usize| {
        let (position, pair) = (at / pairs, at % pairs);
        position as f32 * THETA.powf(-(pair as f32) / pairs as f32)
    };
    let angles: Vec<f32> = (0..CONTEXT * pairs).map(angle).collect();
    let angles = gpu.tensor(&angles, &[CONTEXT, pairs])?;
    Ok([angles.cos()?.named("angles"), angles.sin()?.named("angles")])
}
