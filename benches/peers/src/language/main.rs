//! A language model by `lapidary-lm` beside candle on the CPU, in turns of one process: a small
//! Llama of random weights, from the same files.
//!
//! `language FOLDER [FILTER]` writes the files into the folder, and prints a table in Markdown.

mod candle;
mod files;
mod ours;

use std::path::Path;
use std::time::Instant;

use lapidary::files::WeightForm;
use lapidary::operations::BlockFormat;
use lapidary::{DType, Gpu, Options};

use candle::Candle;
use files::Files;
use ours::Ours;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Rounds of a case: a turn of either side. The first one compiles, and does not count.
const ROUNDS: usize = 9;
/// Tokens that a turn generates.
const TOKENS: usize = 16;
/// Tokens of the longest prompt, and of the shorter one.
const PROMPT: usize = 512;
const SHORT: usize = 64;

/// What one side does in a turn. It returns its rate.
type Turn = Box<dyn FnMut() -> Result<f64>>;

fn turn(run: impl FnMut() -> Result<f64> + 'static) -> Turn {
    Box::new(run)
}

fn main() -> Result {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("language FOLDER [FILTER]")?;
    let filter = args.next().unwrap_or_default();
    let files = Files::write(Path::new(&folder))?;
    let gpu = Gpu::open(Options::from_env()?)?;
    let open = |path: &Path, form| Ours::open(&gpu, path, form);
    let floats = open(&files.floats, WeightForm::Float(DType::F32))?;
    let int8 = open(&files.floats, WeightForm::Int8 { group: None })?;
    let q4_0 = open(&files.floats, WeightForm::Blocks(BlockFormat::Q4_0))?;
    let q4_k = open(&files.q4_k, WeightForm::Stored)?;
    let q8_0 = open(&files.q8_0, WeightForm::Stored)?;
    let candle = Candle::floats(&files)?;
    let candle_q4_k = Candle::blocks(&files.q4_k)?;
    let candle_q8_0 = Candle::blocks(&files.q8_0)?;
    floats.check(&candle, 1e-3)?;
    q4_k.check(&candle_q4_k, 0.2)?;
    q8_0.check(&candle_q8_0, 0.1)?;

    let ours = |of: &Ours, context: usize, at_once: usize| -> Result<Turn> {
        let mut talk = of.talk(at_once)?;
        Ok(turn(move || talk.decode(context)))
    };
    let theirs = |of: &Candle, context: usize| {
        let mut of = of.clone();
        turn(move || of.decode(context))
    };
    let (mut read, mut asked) = (floats.talk(1)?, candle.clone());
    let mut bytes = floats.talk(1)?;
    let sum = gpu.ones(&[files.matrix_bytes / 4], DType::F32)?;
    let rate = files.matrix_bytes as f64 / 1e9;
    let tokens = "tokens a second";
    let cases = [
        (
            "decode at 64 tokens ÷ candle",
            tokens,
            ours(&floats, SHORT, 1)?,
            theirs(&candle, SHORT),
        ),
        (
            "decode at 512 tokens ÷ candle",
            tokens,
            ours(&floats, PROMPT, 1)?,
            theirs(&candle, PROMPT),
        ),
        (
            "a prompt of 512 tokens ÷ candle",
            tokens,
            turn(move || read.prefill()),
            turn(move || asked.prefill()),
        ),
        (
            "decode in int8 ÷ f32",
            tokens,
            ours(&int8, SHORT, 1)?,
            ours(&floats, SHORT, 1)?,
        ),
        (
            "decode in Q4_0 ÷ f32",
            tokens,
            ours(&q4_0, SHORT, 1)?,
            ours(&floats, SHORT, 1)?,
        ),
        (
            "decode of Q4_K ÷ candle",
            tokens,
            ours(&q4_k, SHORT, 1)?,
            theirs(&candle_q4_k, SHORT),
        ),
        (
            "decode of Q8_0 ÷ candle",
            tokens,
            ours(&q8_0, SHORT, 1)?,
            theirs(&candle_q8_0, SHORT),
        ),
        (
            "weights read by decode in f32 ÷ by `sum`",
            "GB a second",
            turn(move || Ok(bytes.decode(SHORT)? * rate)),
            turn(move || {
                let start = Instant::now();
                sum.sum_all()?.to_vec::<f32>()?;
                Ok(rate / start.elapsed().as_secs_f64())
            }),
        ),
        (
            "8 conversations ÷ one",
            tokens,
            ours(&floats, SHORT, 8)?,
            ours(&floats, SHORT, 1)?,
        ),
    ];
    println!("On {}:\n", gpu.caps().name);
    println!("| case | unit | one | other | ratio | of single pairs |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    let asked = cases.into_iter().filter(|case| case.0.contains(&filter));
    for (name, unit, mut one, mut other) in asked {
        let mut rounds = Vec::new();
        for round in 0..=ROUNDS {
            let rates = [one()?, other()?];
            if round > 0 {
                rounds.push(rates);
            }
        }
        let [ones, others] = [0, 1].map(|side| sorted(rounds.iter().map(|pair| pair[side])));
        let ratios = sorted(rounds.iter().map(|[one, other]| one / other));
        let [one, other, ratio] = [&ones, &others, &ratios].map(|all| all[ROUNDS / 2]);
        let (least, most) = (ratios[0], ratios[ROUNDS - 1]);
        println!("| {name} | {unit} | {one:.1} | {other:.1} | {ratio:.2} | {least:.2}–{most:.2} |");
    }
    Ok(())
}

fn sorted(rates: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    rates
}

/// The tokens of a prompt.
fn prompt() -> Vec<u32> {
    (0..PROMPT as u32).map(|at| at * 31 % 8000).collect()
}
