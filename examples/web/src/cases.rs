//! The computations by which the page tests the library in its browser. They are also compiled for
//! the machine that builds the page: `expected` computes them there, and the page compares.

use std::pin::Pin;

use lapidary::{Budget, DType, Gpu, Kernel, Result, Tensor};

/// A case's result. In a browser a GPU belongs to one thread, so nothing here need be `Send`.
type Computed<'a> = Pin<Box<dyn Future<Output = Result<Vec<f32>>> + 'a>>;

/// A computation, and how far two devices may differ.
#[derive(Debug)]
pub struct Case {
    /// The name of the case.
    pub name: &'static str,
    /// The largest difference from the expected value, as a share of the largest expected value.
    pub tolerance: f32,
    /// Computes it.
    pub run: fn(&Gpu) -> Computed<'_>,
}

macro_rules! cases {
    ($($name:literal, $tolerance:literal, $run:expr;)*) => {
        /// All cases.
        pub const CASES: &[Case] = &[$(Case {
            name: $name,
            tolerance: $tolerance,
            run: |gpu| Box::pin($run(gpu)),
        }),*];
    };
}

cases! {
    "up and down, every type", 0.0, round_trip;
    "fused elementwise", 1e-5, elementwise;
    "elementwise, f16", 1e-3, halves;
    "views and broadcasts", 0.0, views;
    "matmul 1x1x1", 1e-6, |gpu| product(gpu, [1, 1, 1]);
    "matmul 33x65x17", 1e-5, |gpu| product(gpu, [33, 65, 17]);
    "matmul 128x256x192", 1e-5, |gpu| product(gpu, [128, 256, 192]);
    "matmul 1x512x300", 1e-5, |gpu| product(gpu, [1, 512, 300]);
    "matmul 300x300x300", 1e-5, |gpu| product(gpu, [300, 300, 300]);
    "sums and extremes", 1e-5, reductions;
    "softmax", 1e-5, softmax;
    "layer norm, then gelu", 1e-4, norm;
    "attention", 1e-4, attention;
    "causal attention, grouped heads", 1e-4, causal;
    "convolution", 1e-4, convolution;
    "sort, argsort and the largest", 0.0, sorted;
    "scatter and gather", 1e-5, scattered;
    "cumulative sum", 1e-4, scan;
    "a kernel of one's own", 0.0, kernel;
    "a budget of a quarter of the tensors", 1e-5, over_budget;
    "moved together", 0.0, moved;
    "a fluid after ten steps", 1e-3, flow;
}

/// A tensor with the same numbers on every device.
fn numbers(gpu: &Gpu, shape: &[usize], seed: u32) -> Result<Tensor> {
    let len = shape.iter().product::<usize>() as u32;
    let number = |i: u32| {
        let mixed = (i.wrapping_add(seed).wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995) >> 8;
        (mixed % 20_011) as f32 / 10_005.5 - 1.0
    };
    gpu.tensor(&(0..len).map(number).collect::<Vec<_>>(), shape)
}

async fn floats(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.cast(DType::F32)?.to_vec_async::<f32>().await
}

async fn all_of(tensors: &[Tensor]) -> Result<Vec<f32>> {
    let mut all = Vec::new();
    for tensor in tensors {
        all.extend(floats(tensor).await?);
    }
    Ok(all)
}

async fn round_trip(gpu: &Gpu) -> Result<Vec<f32>> {
    let mut all = Vec::new();
    all.extend(
        gpu.tensor(&[1.5_f32, -2.0, 3.25], &[3])?
            .to_vec_async::<f32>()
            .await?,
    );
    let ints = gpu
        .tensor(&[i32::MIN, -1, 7], &[3])?
        .to_vec_async::<i32>()
        .await?;
    all.extend(ints.iter().map(|&int| int as f32));
    let bytes = gpu
        .tensor(&[1_u8, 2, 255, 4, 5], &[5])?
        .to_vec_async::<u8>()
        .await?;
    all.extend(bytes.iter().map(|&byte| f32::from(byte)));
    let bools = gpu
        .tensor(&[true, false, true], &[3])?
        .to_vec_async::<bool>()
        .await?;
    all.extend(bools.iter().map(|&bool| f32::from(u8::from(bool))));
    // An upload and a read through several chunks of staging memory.
    let many: Vec<u32> = (0..5 << 20).collect();
    let back = gpu.tensor(&many, &[5 << 20])?.to_vec_async::<u32>().await?;
    all.push(f32::from(u8::from(back == many)));
    Ok(all)
}

async fn elementwise(gpu: &Gpu) -> Result<Vec<f32>> {
    let (a, b) = (numbers(gpu, &[97, 33], 1)?, numbers(gpu, &[33], 2)?);
    let y = (&(&a * &b)? + 0.5)?.tanh()?;
    let z = (y.exp()? - a.abs()?.sqrt()?)?.clamp(-1.0, 1.5)?;
    all_of(&[y, z]).await
}

async fn halves(gpu: &Gpu) -> Result<Vec<f32>> {
    let a = numbers(gpu, &[61, 7], 3)?.cast(DType::F16)?;
    floats(&(&(&a * 2.0)? + &a)?.relu()?).await
}

async fn views(gpu: &Gpu) -> Result<Vec<f32>> {
    let a = numbers(gpu, &[6, 10, 4], 4)?;
    let view = a.permute(&[2, 0, 1])?.slice(2, 1, 9, 3)?;
    all_of(&[
        view.contiguous()?,
        view.flip(&[0])?,
        (a.select(1, 2)? + a.select(1, 3)?)?,
    ])
    .await
}

async fn product(gpu: &Gpu, [m, k, n]: [usize; 3]) -> Result<Vec<f32>> {
    let (a, b) = (numbers(gpu, &[m, k], 5)?, numbers(gpu, &[k, n], 6)?);
    floats(&a.matmul(&b)?).await
}

async fn reductions(gpu: &Gpu) -> Result<Vec<f32>> {
    let a = numbers(gpu, &[40, 50, 30], 7)?;
    let folded = [
        a.sum(&[0])?,
        a.mean(&[1, 2])?,
        a.max(&[2])?,
        a.argmin(1)?,
        a.sum(&[0, 1, 2])?,
    ];
    all_of(&folded).await
}

async fn softmax(gpu: &Gpu) -> Result<Vec<f32>> {
    let a = (numbers(gpu, &[64, 130], 8)? * 8.0)?;
    all_of(&[a.softmax(1)?, a.log_softmax(0)?]).await
}

async fn norm(gpu: &Gpu) -> Result<Vec<f32>> {
    let a = numbers(gpu, &[20, 384], 9)?;
    let (weight, bias) = (numbers(gpu, &[384], 10)?, numbers(gpu, &[384], 11)?);
    floats(
        &a.layer_norm(&[384], Some(&weight), Some(&bias), 1e-5)?
            .gelu()?,
    )
    .await
}

async fn attention(gpu: &Gpu) -> Result<Vec<f32>> {
    let [q, k, v] = [12, 13, 14].map(|seed| numbers(gpu, &[2, 4, 70, 32], seed));
    floats(&q?.scaled_dot_product_attention(&k?, &v?, None, false, None)?).await
}

async fn causal(gpu: &Gpu) -> Result<Vec<f32>> {
    let q = numbers(gpu, &[1, 4, 33, 16], 15)?;
    let [k, v] = [16, 17].map(|seed| numbers(gpu, &[1, 2, 33, 16], seed));
    floats(&q.scaled_dot_product_attention(&k?, &v?, None, true, None)?).await
}

async fn convolution(gpu: &Gpu) -> Result<Vec<f32>> {
    let (x, weight) = (
        numbers(gpu, &[2, 3, 20, 20], 18)?,
        numbers(gpu, &[8, 3, 3, 3], 19)?,
    );
    let conv = lapidary::operations::Conv::default();
    floats(&x.conv2d(&weight, None, &conv)?).await
}

async fn sorted(gpu: &Gpu) -> Result<Vec<f32>> {
    let a = numbers(gpu, &[3, 5000], 20)?;
    let (values, order) = a.sort(1, false)?;
    let (largest, places) = a.top_k(10, 1, true)?;
    all_of(&[values, order, largest, places]).await
}

async fn scattered(gpu: &Gpu) -> Result<Vec<f32>> {
    let indices: Vec<u32> = (0..600).map(|i| i * 7 % 50).collect();
    let indices = gpu.tensor(&indices, &[600])?;
    let sums =
        gpu.zeros(&[50, 8], DType::F32)?
            .index_add(0, &indices, &numbers(gpu, &[600, 8], 21)?)?;
    all_of(&[sums.index_select(0, &indices)?, sums]).await
}

async fn scan(gpu: &Gpu) -> Result<Vec<f32>> {
    floats(&numbers(gpu, &[4, 3000], 22)?.cumsum(1)?).await
}

/// Steps of the Collatz sequence: only integers, so the results are the same everywhere.
const COLLATZ: &str = "
@group(0) @binding(0) var<storage, read> numbers: array<u32>;
@group(0) @binding(1) var<storage, read_write> steps: array<u32>;

@compute @workgroup_size(64)
fn collatz(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&steps) { return; }
    var n = numbers[id.x];
    var count = 0u;
    while n > 1u && count < 1000u {
        n = select(n / 2u, 3u * n + 1u, n % 2u == 1u);
        count++;
    }
    steps[id.x] = count;
}";

async fn kernel(gpu: &Gpu) -> Result<Vec<f32>> {
    let numbers: Vec<u32> = (1..=1000).collect();
    let call = Kernel::new(gpu, COLLATZ)?.call();
    let call = call.bind("numbers", &gpu.tensor(&numbers, &[1000])?);
    let steps = call.out("steps", &[1000], DType::U32).groups([16, 1, 1]);
    floats(&steps.run_one()?).await
}

/// 32 tensors of 1 MiB on a device with a budget of 8 MiB. The engine evicts the others to the
/// host's memory, or to disk where host and device share memory.
async fn over_budget(gpu: &Gpu) -> Result<Vec<f32>> {
    gpu.finish_async().await?;
    gpu.memory().trim_async(0).await?;
    let before = gpu.memory().budget();
    let budget = Budget {
        host_bytes: Some(256 << 20),
        ..Budget::device(8 << 20)
    };
    gpu.memory().set_budget_async(budget).await?;
    let many = keep_many(gpu).await;
    gpu.memory().set_budget_async(before).await?;
    many
}

async fn keep_many(gpu: &Gpu) -> Result<Vec<f32>> {
    let evicted = gpu.memory().stats().evicted_bytes;
    let mut kept = Vec::new();
    for seed in 0..32 {
        let tensor = gpu.full(&[256, 1024], seed as f32, DType::F32)?;
        // With so small a budget, the staging memory is sometimes all in use.
        let row: Vec<f32> = (0..1024).map(|i| (i * seed) as f32 / 1024.0).collect();
        kept.push((&tensor + &gpu.tensor_async(&row, &[1024]).await?)?);
        gpu.flush_async().await?;
    }
    let mut sums = Vec::new();
    for tensor in &kept {
        sums.extend(tensor.mean(&[0, 1])?.to_vec_async::<f32>().await?);
    }
    let memory = gpu.memory().stats();
    // Most of the 32 MiB were evicted, and the limit held.
    sums.push(f32::from(u8::from(
        memory.evicted_bytes - evicted >= 20 << 20,
    )));
    sums.push(f32::from(u8::from(memory.device_bytes.now <= 8 << 20)));
    Ok(sums)
}

/// Drops two of three tensors; the others are moved together and must not change.
async fn moved(gpu: &Gpu) -> Result<Vec<f32>> {
    let mut tensors = Vec::new();
    for seed in 0..48 {
        tensors.push((numbers(gpu, &[1024, 64], seed)? * 2.0)?);
    }
    gpu.finish_async().await?;
    let mut at = 0;
    tensors.retain(|_| {
        at += 1;
        at % 3 == 0
    });
    gpu.finish_async().await?;
    let compacted = gpu.memory().compact_async(u64::MAX).await?;
    let mut all = all_of(&tensors).await?;
    all.push(f32::from(u8::from(compacted.moved_bytes > 0)));
    Ok(all)
}

/// The simulation of the page, in a small size.
async fn flow(gpu: &Gpu) -> Result<Vec<f32>> {
    let mut fluid = fluid::Fluid::new(gpu, [64, 48])?;
    for _ in 0..10 {
        fluid.step(fluid::Stir {
            at: [0.4, 0.6],
            by: [0.02, -0.01],
            dye: [0.5, 0.1, 0.9],
        })?;
    }
    floats(fluid.now().dye()).await
}
