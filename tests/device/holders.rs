//! The holder of everything that an operation makes is its caller. No file of the crate is ever
//! among the holders.

use std::cell::RefCell;
use std::collections::BTreeMap;

use lapidary::{
    DType, Gpu, Kernel, Options, Result, Tensor,
    operations::{
        Activation, ClassLoss, Conv, ConvTranspose, Epilogue, PadMode, Pool, Reduction,
        ScatterReduce,
    },
};

/// Operands for the operations.
struct Given {
    gpu: Gpu,
    /// 6 by 8, of both signs.
    x: Tensor,
    /// The same as a transposed view, whose rows are not contiguous.
    across: Tensor,
    /// 48 numbers from 0 to 1, 6 by 8.
    shares: Tensor,
    halves: Tensor,
    numbers: Tensor,
    indices: Tensor,
    /// Samples, channels, height, width.
    pictures: Tensor,
    weights: Tensor,
    lines: Tensor,
    taps: Tensor,
    /// Samples, heads, rows, elements.
    heads: Tensor,
    /// Matrices of odd sizes.
    a: Tensor,
    b: Tensor,
    /// Holders that are no lines of this file, with the operation after which they first appeared.
    strangers: RefCell<BTreeMap<String, String>>,
}

impl Given {
    fn new(gpu: Gpu) -> Result<Self> {
        let ramp = |shape: &[usize]| {
            let len = shape.iter().product::<usize>();
            let values: Vec<f32> = (0..len).map(|i| (i % 13) as f32 / 4.0 - 1.5).collect();
            gpu.tensor(&values, shape)
        };
        let x = ramp(&[6, 8])?;
        Ok(Given {
            across: ramp(&[8, 6])?.t()?,
            shares: (&ramp(&[6, 8])? * 0.1)?.add(0.5)?,
            halves: x.cast(DType::F16)?,
            numbers: x.cast(DType::I32)?,
            indices: gpu.tensor(&[3_u32, 1, 0, 5, 2, 4], &[6])?,
            pictures: ramp(&[2, 4, 9, 7])?,
            weights: ramp(&[6, 2, 3, 3])?,
            lines: ramp(&[2, 4, 17])?,
            taps: ramp(&[6, 4, 3])?,
            heads: ramp(&[2, 3, 5, 6])?,
            a: ramp(&[130, 67])?,
            b: ramp(&[67, 131])?,
            strangers: RefCell::default(),
            x,
            gpu,
        })
    }
}

/// Runs an operation and records holders that are not lines of this file.
fn check(given: &Given, what: &str, run: impl FnOnce(&Given) -> Result<()>) {
    if let Err(error) = run(given).and_then(|()| given.gpu.finish()) {
        panic!("{what}: {error}");
    }
    for held in &given.gpu.memory().stats().tags {
        let tag = held.tag.as_ref().expect("they are few");
        if tag.file() != file!() {
            let mut strangers = given.strangers.borrow_mut();
            strangers.entry(tag.to_string()).or_insert(what.to_owned());
        }
    }
}

/// Fails with all such holders, each with the first operation after which it appeared.
fn end(given: Given) {
    let strangers = given.strangers.into_inner();
    let device = given.gpu.caps().name.clone();
    assert!(strangers.is_empty(), "on {device}: {strangers:#?}");
}

/// Checks each line separately: an expression over `given`, whose value is forced and dropped.
macro_rules! each {
    ($given:expr, |$of:ident| $($made:expr;)*) => {
        $(check($given, stringify!($made), |$of| {
            let made = $made;
            made.forced()
        });)*
    };
}

trait Forced {
    fn forced(self) -> Result<()>;
}

impl Forced for Result<Tensor> {
    fn forced(self) -> Result<()> {
        self?.force()
    }
}

impl Forced for Result<()> {
    fn forced(self) -> Result<()> {
        self
    }
}

impl Forced for Result<(Tensor, Tensor)> {
    fn forced(self) -> Result<()> {
        let (a, b) = self?;
        a.force()?;
        b.force()
    }
}

impl Forced for Result<Vec<Tensor>> {
    fn forced(self) -> Result<()> {
        self?.iter().try_for_each(Tensor::force)
    }
}

impl<const N: usize> Forced for Result<[Tensor; N]> {
    fn forced(self) -> Result<()> {
        self?.iter().try_for_each(Tensor::force)
    }
}

fn run_elementwise(given: &Given) {
    each!(given, |of|
        &of.x + &of.across;
        &of.x + 1.0;
        &of.x / &of.shares;
        -&of.x;
        of.x.maximum(&of.across);
        of.x.pow(2.0);
        of.x.gt(&of.across);
        of.numbers.remainder(&(&of.numbers + 5)?);
        of.x.clamp(-1.0, 1.0);
        of.across.gelu();
        of.across.exp();
        of.shares.log();
        of.x.leaky_relu(0.1);
        of.halves.sigmoid();
        of.x.gt(0.0)?.where_(&of.x, &of.across);
        of.x.masked_fill(&of.x.gt(0.0)?, 1.0);
        of.x.copy()?.masked_fill_(&of.x.gt(0.0)?, 1.0);
        of.x.copy()?.add_(&of.across);
        of.x.copy()?.t()?.mul_(2.0);
        of.x.copy()?.fill_(2.0);
        of.x.copy()?.copy_(&of.across);
        of.across.contiguous();
        of.across.reshape(&[48]);
        of.across.flatten();
        of.across.cast(DType::Bf16);
        of.x.dropout(0.5, 7);
        of.x.tril(0);
        of.across.triu(1);
        of.gpu.zeros(&[5], DType::F32);
        of.gpu.ones(&[5], DType::F16);
        of.gpu.full(&[5], 3, DType::I8);
        of.gpu.scalar(3.0_f32);
        of.gpu.arange(0, 9, 2, DType::I32);
        of.gpu.eye(5, DType::F32);
        of.gpu.eye_with(5, 3, DType::F16);
        of.gpu.rand_uniform(&[9], 0.0, 1.0, 1, DType::F32);
        of.gpu.rand_normal(&[9], 0.0, 1.0, 1, DType::F16);
        of.gpu.upload_with(&[3], |upload| upload.extend_from_slice(&[1.0_f32; 3]));
        of.gpu.tensor(&[1_u8; 9], &[9]);
        // More than the bindings of a dispatch cover on some devices, and transposed.
        of.gpu.ones(&[200, 200], DType::F32)? + of.gpu.eye(200, DType::F32)?.t()?;
        of.across.to_vec::<f32>().map(|_| ());
        of.across.copy()?.write(&[1.0_f32; 48]);
        of.across.copy()?.evict();
    );
}

fn run_reductions(given: &Given) {
    each!(given, |of|
        of.x.sum(&[0]);
        of.across.sum(&[1]);
        of.x.sum_all();
        of.halves.mean(&[0, 1]);
        of.across.max(&[0]);
        of.x.argmax(1);
        of.across.argmin(0);
        of.x.var(&[1], 1);
        of.x.std(&[0], 0);
        of.halves.norm(&[1], 2.0);
        of.x.logsumexp(&[0]);
        of.numbers.prod(&[0]);
        of.x.gt(0.0)?.any(&[0]);
        of.x.count_nonzero(&[1]);
        of.x.cumsum(0);
        of.halves.cumsum(1);
        of.halves.cummax(0);
        of.shares.cumprod(1);
        of.x.softmax(1);
        of.across.softmax(0);
        of.x.log_softmax(0);
        of.x.layer_norm(&[8], Some(&of.shares.select(0, 0)?), None, 1e-5);
        of.across.rms_norm(&[8], None, 1e-5);
        of.pictures.group_norm(2, None, None, 1e-5);
        of.pictures.batch_norm_train(None, None, 1e-5);
        of.pictures.batch_norm_backward(&of.pictures, None, 1e-5);
        of.x.softmax_backward(&of.x.softmax(0)?, 0);
        of.x.log_softmax_backward(&of.across.log_softmax(1)?, 1);
        of.x.gelu_backward(&of.across);
        of.x.layer_norm_backward(&of.across, &[8], Some(&of.shares.select(0, 0)?), 1e-5);
        of.x.cross_entropy(&of.indices, None, Reduction::Mean);
        of.across.nll_loss(&of.indices, Some(2), Reduction::None);
        of.x.cross_entropy_with(&of.indices, &weighted(&of.across.select(0, 0)?));
        of.x.cross_entropy_with(&of.across, &weighted(&of.across.select(0, 0)?));
        of.x.binary_cross_entropy_with_logits(&of.across, Some(&of.x), Reduction::Mean);
        of.x.mse_loss(&of.across, Reduction::Sum);
        of.x.smooth_l1_loss(&of.across, 0.5, Reduction::Mean);
        of.x.l1_loss(&of.across, Reduction::Mean);
        of.x.binary_cross_entropy_with_logits_weighted(
            &of.across, &of.across, None, Reduction::Mean);
        of.x.logcumsumexp(1);
        of.halves.normalize(3, 1, 1e-6);
        of.pictures.instance_norm(None, None, 1e-5);
        of.x.argmax_all();
        of.across.max_with_indices_keepdim(0);
    );
}

fn weighted(weights: &Tensor) -> ClassLoss<'_> {
    ClassLoss {
        weights: Some(weights),
        label_smoothing: 0.1,
        ..ClassLoss::default()
    }
}

fn run_arrangements(given: &Given) {
    each!(given, |of|
        Tensor::concat(&[&of.x, &of.across], 1);
        Tensor::concat(&[&of.halves, &of.halves.narrow(1, 1, 3)?], 1);
        Tensor::stack(&[&of.x, &of.across], 1);
        of.x.pad(&[(1, 2), (0, 3)], 0.0);
        of.x.pad_with(&[(1, 2), (0, 3)], PadMode::Reflect);
        of.across.repeat(&[2, 3]);
        of.x.repeat_interleave(3, 0);
        of.across.roll(&[2, -1], &[0, 1]);
        of.indices.one_hot(6, DType::F32);
        of.x.index_select(0, &of.indices);
        of.across.index_select(1, &of.indices);
        of.x.embedding(&of.indices);
        of.x.gather(0, &of.indices.reshape(&[6, 1])?);
        of.x.take_along(0, &of.indices.reshape(&[6, 1])?);
        of.x.scatter(0, &of.indices.reshape(&[6, 1])?, &of.across);
        of.across.scatter_add(0, &of.indices.reshape(&[6, 1])?, &of.x);
        of.across.scatter_reduce(0, &of.indices.reshape(&[6, 1])?, &of.x, ScatterReduce::Mean, false);
        of.halves.index_add(0, &of.indices, &of.halves);
        of.x.copy()?.scatter_(0, &of.indices.reshape(&[6, 1])?, &of.across);
        of.x.copy()?.index_add_(0, &of.indices, &of.across);
        of.across.index(&[Some(&of.indices), None]);
        of.gpu.empty(&[3], DType::F32)?.copy()?.full_like(2);
        of.x.rand_normal_like(0.0, 1.0, 3);
        of.x.gt(0)?.where_(&of.x, 0.5);
        of.x.gt(0)?.where_(1, 0);
        of.indices.exp();
        of.indices.atan2(&of.indices);
        of.x.sum_all()?.sort(0, true);
        of.x.sum_all()?.softmax(-1);
        of.x.t()?.flatten_axes(0, 1);
        of.x.t()?.reshape_infer(&[-1]);
        of.x.index_put(&[None, Some(&of.indices)], &of.x.narrow(1, 0, 1)?, true);
        of.x.copy()?.index_put_(&[None, Some(&of.indices)], &of.across.narrow(0, 0, 6)?.narrow(1, 0, 1)?, true);
        of.halves.copy()?.scatter_reduce_(
            0, &of.indices.reshape(&[6, 1])?, &of.numbers.cast(DType::F16)?, ScatterReduce::Max, true);
        of.x.masked_select(&of.x.gt(0)?);
        of.x.masked_scatter(&of.x.gt(0)?, &of.across);
        of.x.copy()?.masked_scatter_(&of.x.gt(0)?, &of.across);
        of.x.index(&[Some(&of.x.gt(0)?)]);
        of.x.nonzero();
        pollster::block_on(of.x.nonzero_async());
        pollster::block_on(of.x.masked_select_async(&of.x.gt(0)?));
        of.x.repeat_interleave_by(&of.indices, 0);
        pollster::block_on(of.x.repeat_interleave_by_async(&of.indices, 0));
        of.indices.one_hot(None, DType::F32);
        of.x.embedding_with(&of.indices, 1);
        Tensor::hstack(&[&of.x, &of.across]);
        Tensor::vstack(&[&of.x, &of.across]);
        of.x.select(0, 0)?.diag(1);
        of.x.select(0, 0)?.outer(&of.x.select(1, 0)?);
        of.x.multinomial(3, true, 7);
        of.across.abs()?.multinomial(2, false, 7);
        of.x.sort(1, false);
        of.across.argsort(0, true);
        of.x.top_k(3, 1, true);
        of.gpu.rand_uniform(&[3000], 0.0, 1.0, 1, DType::F32)?.sort(0, true);
        of.x.rotary(&of.shares.narrow(1, 0, 4)?, &of.shares.narrow(1, 4, 4)?, true);
    );
}

fn run_products(given: &Given) {
    let end = || Epilogue::new().scale(0.5).activation(Activation::Gelu);
    each!(given, |of|
        of.a.matmul(&of.b);
        of.a.cast(DType::F16)?.matmul(&of.b.cast(DType::F16)?);
        of.a.narrow(0, 0, 1)?.matmul(&of.b);
        of.b.t()?.matmul(&of.a.t()?);
        of.a.matmul_with(&of.b, &end().bias(&of.b.select(0, 0)?));
        of.a.matmul_with(&of.b, &end().bias(&of.a.select(1, 0)?.repeat(&[2])?.narrow(0, 3, 131)?));
        of.a.matmul_with(&of.b, &end().residual(&of.b.narrow(0, 0, 1)?).cast(DType::F16));
        of.a.linear(&of.b.t()?, None);
        of.a.matmul(&of.b.cast(DType::I8)?);
        of.heads.reshape(&[15, 12])?.narrow(1, 0, 8)?.quantize(Some(8))?.dequantize();
        of.x.matmul_quantized(&of.across.quantize(None)?);
        Tensor::einsum("ij,jk->ki", &[&of.a, &of.b]);
        Tensor::einsum("ij,ij->", &[&of.x, &of.across]);
        of.heads.scaled_dot_product_attention(&of.heads, &of.heads, None, true, None);
        of.heads.permute(&[0, 1, 3, 2])?.scaled_dot_product_attention(
            &of.heads.permute(&[0, 1, 3, 2])?, &of.heads.permute(&[0, 1, 3, 2])?, None, false, None);
        of.pictures.conv2d(&of.weights, Some(&of.shares.select(1, 0)?), &Conv { groups: 2, ..Conv::default() });
        of.pictures.cast(DType::F16)?.conv2d(
            &of.weights.cast(DType::F16)?, None, &Conv { groups: 2, padding: [1, 1], ..Conv::default() });
        of.lines.conv1d(&of.taps, None, &Conv::default());
        of.gpu.ones(&[2, 6, 7, 5], DType::F32)?.conv2d_backward(
            &of.pictures, &of.weights, &Conv { groups: 2, ..Conv::default() });
        of.gpu.ones(&[2, 6, 15], DType::F32)?.conv1d_backward(&of.lines, &of.taps, &Conv::default());
        of.pictures.conv2d(&of.weights, None, &Conv { groups: 2, padding: Conv::SAME, ..Conv::default() });
        of.pictures.conv_transpose2d(
            &of.weights.narrow(0, 0, 4)?, None, &ConvTranspose { stride: [2, 1], ..ConvTranspose::default() });
        of.lines.conv_transpose1d(&of.taps.narrow(0, 0, 4)?, None, &ConvTranspose::default());
        of.pictures.max_pool2d(&Pool::new([2, 2]));
        of.pictures.avg_pool2d(&Pool::new([3, 3]));
        of.pictures.avg_pool2d(&Pool { padding: [1, 1], count_include_pad: false, ..Pool::new([3, 3]) });
        of.pictures.adaptive_max_pool2d([3, 2]);
        of.lines.max_pool1d(&Pool::new([2]));
        of.gpu.ones(&[2, 4, 4, 3], DType::F32)?.max_pool2d_backward(&of.pictures, &Pool::new([2, 2]));
        of.gpu.ones(&[2, 4, 8], DType::F32)?.avg_pool1d_backward(&of.lines, &Pool::new([2]));
    );
}

const KERNEL: &str = "
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(1) fn main() { y[0] = x[0]; }";

fn run_kernels(given: &Given) {
    let kernel = Kernel::new(&given.gpu, KERNEL).expect("a kernel");
    each!(given, |of|
        kernel.call().bind("x", &of.across).out("y", &[3], DType::F32).groups([1; 3]).run();
        kernel.call().bind("x", &of.x.narrow(1, 1, 3)?).out("y", &[3], DType::F32).groups([1; 3]).run_one();
    );
}

fn run_all(gpu: Gpu) {
    let given = Given::new(gpu).expect("operands");
    check(&given, "the operands", |_| Ok(()));
    run_elementwise(&given);
    run_reductions(&given);
    run_arrangements(&given);
    run_products(&given);
    // The simulation runs no WGSL.
    if given.gpu.caps().backend != "sim" {
        run_kernels(&given);
    }
    end(given);
}

/// Intermediates have blocks only if each operation runs separately.
fn apart() -> Options {
    Options {
        fuse: Some(false),
        ..Options::from_env().unwrap()
    }
}

#[test]
fn what_an_operation_makes_is_held_by_its_caller() {
    run_all(Gpu::open(apart()).expect("these tests need an adapter"));
}

/// Software adapters pack large operands of products that are not contiguous, and they pad rows of
/// f16.
#[test]
fn packed_and_padded_products_are_held_by_their_callers() {
    let gpu = Gpu::open(apart()).expect("these tests need an adapter");
    let given = Given::new(gpu).expect("operands");
    let [m, n, k] = [259, 261, 257];
    each!(&given, |of|
        of.gpu.ones(&[m, k], DType::F32)?.matmul(&of.gpu.ones(&[k, n], DType::F32)?);
        of.gpu.ones(&[m, k], DType::F16)?.matmul(&of.gpu.ones(&[k, n], DType::F16)?);
        of.gpu.ones(&[m, k], DType::F16)?.matmul_with(
            &of.gpu.ones(&[k, n], DType::F16)?, &Epilogue::new().bias(&of.gpu.ones(&[n], DType::F16)?));
    );
    end(given);
}

#[cfg(feature = "sim")]
#[test]
fn what_an_operation_makes_on_other_devices_is_held_by_its_caller_too() {
    use lapidary::adapter::AdapterKind;
    use lapidary::sim::SimOptions;

    for kind in [AdapterKind::Discrete, AdapterKind::Cpu] {
        for max_binding_bytes in [128 << 20, 32 << 10] {
            let options = SimOptions {
                kind,
                max_binding_bytes,
                ..SimOptions::default()
            };
            let opened = Gpu::simulated_with(options, apart());
            run_all(opened.expect("these options can be").0);
        }
    }
}
