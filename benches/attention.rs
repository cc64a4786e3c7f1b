//! Fused attention beside the chain of operations that it replaces, in one run.
//!
//! ```text
//! cargo bench --bench attention [-- FILTER]
//! ```
//!
//! One query, and causal calls, are also measured over the pages of a cache.
//!
//! With one query, the heads of a group are also measured as rows of one head, which is the least
//! work.
//!
//! Elements are multiplications and additions of both products, including masked ones.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lapidary::kv::{Attend, KvCache, KvOptions, Sequence};
use lapidary::{DType, Gpu, Options, Result, Tensor};

/// A name; heads, heads of keys, queries, keys, head size; whether it is causal.
type Case = (&'static str, [usize; 5], bool);

const CASES: [Case; 14] = [
    ("8 x 512, 64", [8, 8, 512, 512, 64], false),
    ("8 x 512, 64, causal", [8, 8, 512, 512, 64], true),
    ("4 x 1024, 64", [4, 4, 1024, 1024, 64], false),
    ("2 x 2048, 64, causal", [2, 2, 2048, 2048, 64], true),
    ("4 x 512, 128", [4, 4, 512, 512, 128], false),
    ("16 x 128, 32", [16, 16, 128, 128, 32], false),
    ("8 (2) x 512, 64", [8, 2, 512, 512, 64], false),
    ("16 x 1 of 2048, 64", [16, 16, 1, 2048, 64], false),
    ("16 x 1 of 2047, 64", [16, 16, 1, 2047, 64], false),
    ("16 x 8 of 1024, 64", [16, 16, 8, 1024, 64], false),
    ("8 (4) x 1 of 4, 64", [8, 4, 1, 4, 64], false),
    ("8 (4) x 1 of 64, 64", [8, 4, 1, 64, 64], false),
    ("8 (4) x 1 of 1024, 64", [8, 4, 1, 1024, 64], false),
    ("8 (4) x 1 of 1023, 64", [8, 4, 1, 1023, 64], false),
];

/// The keys that a causal mask hides, and their replacement.
type Later = (Tensor, Tensor);

fn later(gpu: &Gpu, queries: usize, keys: usize) -> Result<Later> {
    let keys = gpu.arange(0.0, keys as f64, 1.0, DType::F32)?;
    let queries = gpu.arange(0.0, queries as f64, 1.0, DType::F32)?;
    let below = gpu.full(&[1], f64::from(f32::NEG_INFINITY), DType::F32)?;
    Ok((keys.gt(&queries.unsqueeze(1)?)?, below))
}

/// The same with matmul, where and softmax.
fn chain(q: &Tensor, k: &Tensor, v: &Tensor, later: Option<&Later>) -> Result<Tensor> {
    let [heads, queries, size] = [q.shape()[0], q.shape()[1], q.shape()[2]];
    let own = k.shape()[0];
    let grouped = q.reshape(&[own, heads / own, queries, size])?;
    let (k, v) = (k.unsqueeze(1)?, v.unsqueeze(1)?);
    let scores = (grouped.matmul(&k.transpose(-2, -1)?)? * (1.0 / (size as f32).sqrt()))?;
    let scores = match later {
        None => scores,
        Some((later, below)) => later.where_(below, &scores)?,
    };
    scores.softmax(-1)?.matmul(&v)?.reshape(q.shape())
}

/// A sequence in the pages of a cache, and the last rows of queries, keys and values.
struct Paged {
    cache: KvCache,
    sequence: Sequence,
    rows: [Tensor; 3],
}

impl Paged {
    /// All keys but those of the queries are in the pages.
    fn new(gpu: &Gpu, [q, k, v]: [&Tensor; 3], dtype: DType) -> Result<Paged> {
        let [heads, queries, head_size] = [q.shape()[0], q.shape()[1], q.shape()[2]];
        let [kv_heads, keys] = [k.shape()[0], k.shape()[1]];
        let options = KvOptions {
            layers: 1,
            kv_heads,
            head_size,
            dtype,
            page_tokens: 16,
        };
        let cache = KvCache::new(gpu, options)?;
        let mut sequence = cache.sequence("measured");
        let rows = |x: &Tensor| x.transpose(0, 1)?.contiguous();
        let (k, v) = (rows(k)?, rows(v)?);
        let before = keys - queries;
        if before > 0 {
            let step = cache.step(vec![(&mut sequence, before)])?;
            let none = gpu.zeros(&[before, heads, head_size], DType::F32)?;
            let [k, v] = [&k, &v].map(|x| x.narrow(0, 0, before));
            step.attend(0, &none, &k?, &v?, Attend::default())?;
            step.finish();
        }
        let [k, v] = [&k, &v].map(|x| x.narrow(0, before, queries).and_then(|x| x.copy()));
        let rows = [rows(q)?, k?, v?];
        Ok(Paged {
            cache,
            sequence,
            rows,
        })
    }

    /// A step that is taken back.
    fn attend(&mut self) -> Result<Tensor> {
        let [q, k, v] = &self.rows;
        let work = vec![(&mut self.sequence, q.shape()[0])];
        let step = self.cache.step(work)?;
        step.attend(0, q, k, v, Attend::default())
    }
}

fn attention(criterion: &mut Criterion) {
    let gpu = Gpu::open(Options::from_env().unwrap()).expect("an adapter to measure on");
    let mut group = criterion.benchmark_group(gpu.caps().name.clone());
    group.sample_size(10);
    for (name, [heads, own, queries, keys, size], is_causal) in CASES {
        let noise = |seed, heads, rows| {
            let made = gpu.rand_normal(&[heads, rows, size], 0.0, 1.0, seed, DType::F32);
            made.expect("room")
        };
        let (q, k, v) = (
            noise(1, heads, queries),
            noise(2, own, keys),
            noise(3, own, keys),
        );
        let later = later(&gpu, queries, keys).expect("room");
        group.throughput(Throughput::Elements(
            (4 * heads * queries * keys * size) as u64,
        ));
        let mut measure = |what: &str, work: &mut dyn FnMut() -> Result<Tensor>| {
            group.bench_function(format!("{name}: {what}"), |bencher| {
                bencher.iter(|| {
                    let made = work().expect("shapes that fit");
                    gpu.finish().expect("a device that is there");
                    made
                });
            });
        };
        measure("fused", &mut || {
            q.scaled_dot_product_attention(&k, &v, None, is_causal, None)
        });
        if queries == 1 {
            let halves = [&q, &k, &v].map(|x| x.cast(DType::F16).expect("room"));
            measure("fused, f16", &mut || {
                let [q, k, v] = &halves;
                q.scaled_dot_product_attention(k, v, None, is_causal, None)
            });
        }
        if queries == 1 || is_causal {
            for dtype in [DType::F32, DType::F16, DType::I8] {
                let mut paged = Paged::new(&gpu, [&q, &k, &v], dtype).expect("room");
                measure(&format!("pages, {dtype}"), &mut || paged.attend());
            }
        }
        if heads != own && queries == 1 {
            measure("heads of a group as rows", &mut || {
                let rows = q.reshape(&[own, heads / own * queries, size])?;
                let made = rows.scaled_dot_product_attention(&k, &v, None, false, None)?;
                made.reshape(&[heads, queries, size])
            });
        }
        measure("chain", &mut || {
            chain(&q, &k, &v, is_causal.then_some(&later))
        });
    }
    group.finish();
}

criterion_group!(benches, attention);
criterion_main!(benches);
