//! The kernels, family by family, sampled by criterion: throughput in bytes (or flops) a second.
//!
//! ```text
//! cargo bench --bench ops [-- FILTER]
//! ```
//!
//! Each sample waits for the device, so small sizes show the price of a round trip.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lapidary::{DType, Gpu, Options, Result, Tensor};

const ROWS: usize = 4096;
const COLUMNS: usize = 1024;

type Work = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// A name, bytes moved for each byte of a matrix at the least, and the call.
const FAMILIES: [(&str, u64, Work); 9] = [
    ("add", 3, |a, b| a + b),
    ("add a row", 2, |a, b| a + b.narrow(0, 0, 1)?),
    ("gelu", 2, |a, _| a.gelu()),
    ("cast to f16", 2, |a, _| a.cast(DType::F16)),
    ("transposed copy", 2, |a, _| a.t()?.contiguous()),
    ("sum of rows", 1, |a, _| a.sum(&[1])),
    ("sum of columns", 1, |a, _| a.sum(&[0])),
    ("softmax", 2, |a, _| a.softmax(1)),
    ("layer norm", 2, |a, _| {
        a.layer_norm(&[COLUMNS], None, None, 1e-5)
    }),
];

fn families(criterion: &mut Criterion) {
    let gpu = Gpu::open(Options::default()).expect("an adapter to measure on");
    let matrix = |seed| gpu.rand_normal(&[ROWS, COLUMNS], 0.0, 1.0, seed, DType::F32);
    let (a, b) = (matrix(1).expect("room"), matrix(2).expect("room"));
    let bytes = (ROWS * COLUMNS * 4) as u64;
    let mut group = criterion.benchmark_group(gpu.caps().name.clone());
    group.sample_size(10);
    for (name, moved, work) in FAMILIES {
        group.throughput(Throughput::Bytes(moved * bytes));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let made = work(&a, &b).expect("shapes that fit");
                gpu.finish().expect("a device that is there");
                made
            });
        });
    }
    let square = |seed| gpu.rand_normal(&[512, 512], 0.0, 1.0, seed, DType::F32);
    let (a, b) = (square(3).expect("room"), square(4).expect("room"));
    group.throughput(Throughput::Elements(2 * 512 * 512 * 512));
    group.bench_function("matmul 512 (elements are flops)", |bencher| {
        bencher.iter(|| {
            let made = a.matmul(&b).expect("shapes that fit");
            gpu.finish().expect("a device that is there");
            made
        });
    });
    group.finish();
}

criterion_group!(benches, families);
criterion_main!(benches);
