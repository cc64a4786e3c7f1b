//! The kernels by family, sampled by criterion: throughput in bytes or flops per second.
//!
//! ```text
//! cargo bench --bench ops [-- FILTER]
//! ```
//!
//! Each sample waits for the device, so small sizes show the cost of a round trip.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use lapidary::{
    DType, Gpu, Options, Result, Tensor,
    operations::{Activation, Conv, ConvTranspose, Epilogue, Pool, Reduction},
};

const ROWS: usize = 4096;
const COLUMNS: usize = 1024;
const SHAPE: [usize; 2] = [ROWS, COLUMNS];

/// The operands of all families, in order. First two matrices, a mask of the same shape, integers,
/// an order of the rows, and a class for each row. Then a row, the row as a matrix, and the index
/// of row 7, once and for every column.
struct Operands {
    gpu: Gpu,
    a: Tensor,
    b: Tensor,
    mask: Tensor,
    numbers: Tensor,
    order: Tensor,
    classes: Tensor,
    row: Tensor,
    line: Tensor,
    seven: Tensor,
    sevens: Tensor,
}

type Work = fn(&Operands) -> Result<Tensor>;

/// A name, least bytes moved for each byte of a matrix, and the call.
type Family = (&'static str, f64, Work);

const MADE: &[Family] = &[
    ("fill", 1.0, |of| of.gpu.full(&SHAPE, 2.5, DType::F32)),
    ("random normal", 1.0, |of| {
        of.gpu.rand_normal(&SHAPE, 0.0, 1.0, 7, DType::F32)
    }),
    ("dropout", 2.0, |of| of.a.dropout(0.1, 7)),
];

const ELEMENTWISE: &[Family] = &[
    ("add", 3.0, |of| &of.a + &of.b),
    ("add a row", 2.0, |of| &of.a + of.b.narrow(0, 0, 1)?),
    ("add a number", 2.0, |of| &of.a + 1.0),
    ("add in place", 3.0, |of| {
        of.b.add_(&of.a)?;
        Ok(of.b.clone())
    }),
    ("power", 3.0, |of| of.a.pow(&of.b)),
    ("greater", 2.25, |of| of.a.gt(&of.b)),
    ("exclusive or", 3.0, |of| {
        of.numbers.bitwise_xor(&of.numbers)
    }),
    ("where", 3.25, |of| of.mask.where_(&of.a, &of.b)),
    ("clamp", 2.0, |of| of.a.clamp(-1.0, 1.0)),
    ("exp", 2.0, |of| of.a.exp()),
    ("gelu", 2.0, |of| of.a.gelu()),
    ("gelu backward", 3.0, |of| of.a.gelu_backward(&of.b)),
    ("cast to f16", 1.5, |of| of.a.cast(DType::F16)),
    ("rotary embedding", 2.0, |of| {
        let heads = of.a.reshape(&[ROWS, COLUMNS / 64, 64])?;
        let angles = of.b.flatten()?.narrow(0, 0, ROWS * 32)?;
        let angles = angles.reshape(&[ROWS, 1, 32])?;
        heads.rotary(&angles, &angles, false)
    }),
];

const MOVED: &[Family] = &[
    ("transposed copy", 2.0, |of| of.a.t()?.contiguous()),
    ("concat", 4.0, |of| Tensor::concat(&[&of.a, &of.b], 0)),
    ("stack", 4.0, |of| Tensor::stack(&[&of.a, &of.b], -1)),
    ("pad", 2.0, |of| of.a.pad(&[(1, 1), (2, 2)], 0.0)),
    ("roll", 2.0, |of| of.a.roll(&[3], &[1])),
    ("lower triangle", 2.0, |of| of.a.tril(0)),
    ("index select of rows", 2.0, |of| {
        of.a.index_select(0, &of.order)
    }),
    ("gather along rows", 3.0, |of| of.a.gather(1, &of.numbers)),
    ("index add of rows", 3.0, |of| {
        of.a.index_add(0, &of.order, &of.b)
    }),
    ("scatter add along rows", 4.0, |of| {
        of.a.scatter_add(1, &of.numbers, &of.b)
    }),
    ("masked scatter", 3.25, |of| {
        of.a.masked_scatter(&of.mask, &of.b)
    }),
    ("scatter add, each element once", 5.0, |of| {
        let each = of.gpu.arange(0, (ROWS * COLUMNS) as u32, 1, DType::U32)?;
        (of.a.flatten()?).scatter_add(0, &each, &of.b.flatten()?)
    }),
    ("one hot", 1.0, |of| of.classes.one_hot(COLUMNS, DType::F32)),
];

/// Writes one row of a matrix in place. The bytes are twice those of the row.
const ROW: &[(&str, Work)] = &[
    ("copy of a row into place", |of| {
        of.a.narrow(0, 7, 1)?.copy_(&of.line)?;
        Ok(of.a.clone())
    }),
    ("scatter of a row into place", |of| {
        of.a.scatter_(0, &of.sevens, &of.line)?;
        Ok(of.a.clone())
    }),
    ("index add of a row into place", |of| {
        of.a.index_add_(0, &of.seven, &of.line)?;
        Ok(of.a.clone())
    }),
];

const FOLDED: &[Family] = &[
    ("sum of rows", 1.0, |of| of.a.sum(&[1])),
    ("sum of columns", 1.0, |of| of.a.sum(&[0])),
    ("max of all", 1.0, |of| of.a.max_all()),
    ("variance of rows", 1.0, |of| of.a.var(&[1], 1)),
    ("logsumexp of rows", 1.0, |of| of.a.logsumexp(&[1])),
    ("argmax of rows", 1.0, |of| of.a.argmax(1)),
    ("running sum of rows", 2.0, |of| of.a.cumsum(1)),
    ("running sum of columns", 2.0, |of| of.a.cumsum(0)),
    ("running logsumexp of rows", 2.0, |of| of.a.logcumsumexp(1)),
    ("sort of rows", 3.0, |of| Ok(of.a.sort(1, false)?.0)),
    ("top 8 of rows", 1.0, |of| Ok(of.a.top_k(8, 1, true)?.0)),
];

const NORMALIZED: &[Family] = &[
    ("softmax", 2.0, |of| of.a.softmax(1)),
    ("softmax backward", 3.0, |of| {
        of.a.softmax_backward(&of.b, 1)
    }),
    ("layer norm", 2.0, |of| {
        of.a.layer_norm(&[COLUMNS], None, None, 1e-5)
    }),
    ("layer norm backward", 3.0, |of| {
        let [by_x, _, _] = (of.a).layer_norm_backward(&of.b, &[COLUMNS], Some(&of.row), 1e-5)?;
        Ok(by_x)
    }),
    ("RMS norm", 2.0, |of| {
        of.a.rms_norm(&[COLUMNS], Some(&of.row), 1e-5)
    }),
    ("group norm", 2.0, |of| {
        of.a.group_norm(8, Some(&of.row), None, 1e-5)
    }),
    ("cross entropy", 1.0, |of| {
        of.a.cross_entropy(&of.classes, None, Reduction::Mean)
    }),
];

/// m, n, k of the products.
const PRODUCTS: [[usize; 3]; 3] = [[512, 512, 512], [1, 2048, 2048], [2048, 64, 2048]];

/// A batch of images, and the kernels of convolutions.
const PICTURES: [usize; 4] = [8, 64, 56, 56];
const KERNELS: [usize; 4] = [64, 64, 3, 3];

fn operands() -> Result<Operands> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let matrix = |seed| gpu.rand_normal(&SHAPE, 0.0, 1.0, seed, DType::F32);
    let (a, b) = (matrix(1)?, matrix(2)?);
    let mask = a.gt(0.0)?;
    let reversed: Vec<u32> = (0..ROWS as u32).rev().collect();
    let order = gpu.tensor(&reversed, &[ROWS])?;
    // Spread over the columns; some values occur several times in a row.
    let spread = |of: usize| (of.wrapping_mul(2_654_435_761) >> 7) as u32 % COLUMNS as u32;
    let numbers: Vec<u32> = (0..ROWS * COLUMNS).map(spread).collect();
    let classes: Vec<u32> = (0..ROWS).map(spread).collect();
    let row = gpu.rand_normal(&[COLUMNS], 0.0, 1.0, 3, DType::F32)?;
    let seven = gpu.tensor(&[7_u32], &[1])?;
    Ok(Operands {
        numbers: gpu.tensor(&numbers, &SHAPE)?,
        classes: gpu.tensor(&classes, &[ROWS])?,
        line: row.unsqueeze(0)?,
        sevens: seven.broadcast_to(&[1, COLUMNS])?.contiguous()?,
        seven,
        row,
        gpu,
        a,
        b,
        mask,
        order,
    })
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    gpu: &Gpu,
    name: &str,
    work: impl Fn() -> Result<Tensor>,
) {
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let made = work().expect("shapes that fit");
            gpu.finish().expect("a device that is there");
            made
        });
    });
}

fn families(criterion: &mut Criterion) {
    let of = operands().expect("an adapter to measure on");
    let bytes = (ROWS * COLUMNS * 4) as f64;
    let mut group = criterion.benchmark_group(of.gpu.caps().name.clone());
    group.sample_size(10);
    let families = [MADE, ELEMENTWISE, MOVED, FOLDED, NORMALIZED];
    for (name, moved, work) in families.into_iter().flatten() {
        group.throughput(Throughput::Bytes((moved * bytes) as u64));
        measure(&mut group, &of.gpu, name, || work(&of));
    }
    group.throughput(Throughput::Bytes((2 * COLUMNS * 4) as u64));
    for (name, work) in ROW {
        measure(&mut group, &of.gpu, name, || work(&of));
    }
    group.finish();
}

/// Operations measured in multiplications and additions: products, convolutions, pooling, einsum.
fn flops(criterion: &mut Criterion) {
    let gpu = Gpu::open(Options::from_env().unwrap()).expect("an adapter to measure on");
    let normal = |seed, shape: &[usize]| {
        let made = gpu.rand_normal(shape, 0.0, 1.0, seed, DType::F32);
        made.expect("room")
    };
    let mut group = criterion.benchmark_group(format!("{} (elements are flops)", gpu.caps().name));
    group.sample_size(10);
    for [m, n, k] in PRODUCTS {
        let (a, b) = (normal(3, &[m, k]), normal(4, &[k, n]));
        let end = Epilogue::new()
            .bias(&normal(5, &[n]))
            .activation(Activation::Relu);
        let name = format!("matmul {m}x{n}x{k}");
        group.throughput(Throughput::Elements((2 * m * n * k) as u64));
        measure(&mut group, &gpu, &name, || a.matmul(&b));
        let name = format!("{name}, bias and relu");
        measure(&mut group, &gpu, &name, || a.matmul_with(&b, &end));
    }
    let (x, weight) = (normal(6, &PICTURES), normal(7, &KERNELS));
    let options = Conv {
        padding: [1, 1],
        ..Conv::default()
    };
    let elements: usize = PICTURES.iter().product();
    let [_, channels, height, width] = KERNELS;
    let flops = (2 * elements * channels * height * width) as u64;
    group.throughput(Throughput::Elements(flops));
    measure(&mut group, &gpu, "conv2d 3x3", || {
        x.conv2d(&weight, None, &options)
    });
    let transposed = ConvTranspose {
        padding: [1, 1],
        ..ConvTranspose::default()
    };
    measure(&mut group, &gpu, "transposed conv2d 3x3", || {
        x.conv_transpose2d(&weight, None, &transposed)
    });
    group.throughput(Throughput::Elements(2 * flops));
    measure(&mut group, &gpu, "conv2d 3x3 backward", || {
        let [by_x, _, _] = x.conv2d_backward(&x, &weight, &options)?;
        Ok(by_x)
    });
    group.throughput(Throughput::Elements(elements as u64));
    let pool = Pool::new([2, 2]);
    measure(&mut group, &gpu, "max pool 2x2", || x.max_pool2d(&pool));
    let (a, b) = (normal(8, &[16, 64, 128]), normal(9, &[16, 128, 64]));
    group.throughput(Throughput::Elements(2 * 16 * 64 * 64 * 128));
    measure(&mut group, &gpu, "einsum bij,bjk->bik", || {
        Tensor::einsum("bij,bjk->bik", &[&a, &b])
    });
    group.finish();
}

criterion_group!(benches, families, flops);
criterion_main!(benches);
