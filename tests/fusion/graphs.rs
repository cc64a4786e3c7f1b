//! Random expressions with and without fusion, on the simulation and on a real adapter: all bits
//! are the same.

use half::{bf16, f16};
use lapidary::adapter::AdapterKind;
use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu, Result, Tensor, diagnostics::FusedKernel};

use crate::common::scattered::Place;
use crate::fusion::{interpreted, options, simulated};
use crate::programs::{self, Dice, Name, Program};

/// Most tensors that a program holds.
const HELD: usize = 9;

const ODD: [f32; 10] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    3.25,
    1e-20,
    65504.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

macro_rules! unary {
    ({ $($name:ident)* } { $($in_place:ident)* } { $($by_hand:ident($($given:expr),*);)* }) => {
        &[
            $((stringify!($name), Tensor::$name),)*
            $((stringify!($by_hand), |x| x.$by_hand($($given),*)),)*
        ]
    };
}

type Unary = fn(&Tensor) -> Result<Tensor>;

/// The operations that are rows.
const UNARY: &[(&str, Unary)] = lapidary::unary_methods!(unary);

/// The operations of a program.
#[derive(Clone, Copy, PartialEq)]
enum Mix {
    All,
    /// Many reductions and norms, with expressions before and after.
    Around,
}

/// The same program on several devices.
struct World<'a> {
    program: &'a Program,
    /// The dice of this step.
    rng: Dice,
    gpus: &'a [Gpu],
    /// One tensor for each device.
    held: Vec<(Name, Vec<Tensor>)>,
    /// Most elements along an axis.
    most: usize,
    mix: Mix,
}

impl World<'_> {
    fn shape(&mut self) -> Vec<usize> {
        let dims = [1, 2, 3, 4, 8, self.most];
        let dim = |rng: &mut Dice| dims[rng.usize(..dims.len())];
        (0..self.rng.usize(0..4))
            .map(|_| dim(&mut self.rng))
            .collect()
    }

    /// A new tensor on all devices, as the same view on each.
    fn tensor(&mut self) -> Result<Vec<Tensor>> {
        let shape = self.shape();
        let rng = &mut self.rng;
        let place = Place::new(rng, &shape);
        let len = place.storage_len();
        let floats: Vec<f32> = (0..len)
            .map(|_| match rng.u32(0..8) {
                0 => ODD[rng.usize(..ODD.len())],
                _ => rng.i32(-64..64) as f32 / 8.0,
            })
            .collect();
        let ints: Vec<i32> = (0..len).map(|_| rng.i32(-300..300)).collect();
        let kind = rng.u32(0..10);
        let make = |gpu: &Gpu| match kind {
            0 => gpu.tensor(&ints, &[len]),
            1 => gpu.tensor(&ints.iter().map(|&i| i as u32).collect::<Vec<_>>(), &[len]),
            2 => gpu.tensor(&ints.iter().map(|&i| i as u8).collect::<Vec<_>>(), &[len]),
            3 => gpu.tensor(&ints.iter().map(|&i| i > 0).collect::<Vec<_>>(), &[len]),
            4 => gpu.tensor(&ints.iter().map(|&i| i as i8).collect::<Vec<_>>(), &[len]),
            5 => gpu.tensor(
                &(floats.iter().map(|&x| bf16::from_f32(x))).collect::<Vec<_>>(),
                &[len],
            ),
            6 => gpu.tensor(
                &floats.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>(),
                &[len],
            ),
            _ => gpu.tensor(&floats, &[len]),
        };
        (self.gpus.iter())
            .map(|gpu| place.view(&make(gpu)?))
            .collect()
    }

    /// A newly created tensor, mostly with the shape of another one.
    fn filled(&mut self, x: &[Tensor]) -> Option<Vec<Tensor>> {
        let shape = match self.rng.bool() {
            true => x[0].shape().to_vec(),
            false => self.shape(),
        };
        let len: usize = shape.iter().product();
        let dtype = [x[0].dtype(), DType::F32, DType::I32][self.rng.usize(..3)];
        let (kind, value) = (self.rng.u32(0..4), self.rng.i32(1..4));
        let make = |gpu: &Gpu| match kind {
            0 => gpu.ones(&shape, dtype),
            1 => gpu.full(&shape, value, dtype),
            2 => gpu
                .arange(0, value * len as i32, value, dtype)?
                .reshape(&shape),
            _ => gpu.eye(shape.first().copied().unwrap_or(1), dtype),
        };
        agreed(self.gpus.iter().map(make))
    }

    fn pick(&mut self) -> Vec<Tensor> {
        let at = self.pick_at();
        let ((step, number), tensors) = &self.held[at];
        self.program.say(format_args!(" t{step}.{number}"));
        tensors.clone()
    }

    fn pick_at(&mut self) -> usize {
        let named = (0..).zip(&self.held).map(|(at, (name, _))| (*name, at));
        programs::pick(&mut self.rng, named).expect("it holds three at least")
    }

    /// One call, and its result on all devices. An impossible call gives none.
    fn call(&mut self) -> Option<Vec<Tensor>> {
        let kind = match self.mix == Mix::Around && self.rng.bool() {
            true => 95,
            false => self.rng.u32(0..100),
        };
        let x = self.pick();
        match kind {
            0..3 => self.tensor().ok(),
            3..6 => self.filled(&x),
            6..30 => self.unary(&x),
            30..50 => {
                let y = self.partner(&x);
                let op = self.rng.u32(0..25);
                both(&x, &y, |x, y| binary(op, x, y))
            }
            50..62 => {
                let (op, value, first) = (self.rng.u32(0..13), self.rng.i32(1..5), self.rng.bool());
                each(&x, |x| scalar(op, value, first, x))
            }
            62..68 => {
                let (c, y) = (self.condition(&x)?, self.partner(&x));
                let (which, z) = (self.rng.u32(0..5), self.partner(&x));
                let made = (0..x.len()).map(|of| match which {
                    0 => x[of].masked_fill(&c[of], 3),
                    1 => x[of].lerp(&y[of], &z[of]),
                    2 => x[of].addcmul(&y[of], &z[of], 2),
                    3 => x[of].addcdiv(&y[of], &z[of], -1),
                    _ => c[of].where_(&x[of], &y[of]),
                });
                agreed(made)
            }
            68..74 => {
                let dtype = DType::ALL[self.rng.usize(..DType::ALL.len())];
                each(&x, |x| x.cast(dtype))
            }
            74..86 => self.view(&x),
            86..91 => {
                let y = self.partner(&x);
                let op = self.rng.u32(0..7);
                self.program.say(format_args!(", in place by {op}"));
                both(&x, &y, |x, y| in_place(op, x, y).map(|()| x.clone()));
                None
            }
            91..93 => self.read(&x),
            93..97 => self.around(&x),
            97 => each(&x, |x| x.copy()),
            98 => {
                self.gpus
                    .iter()
                    .for_each(|gpu| gpu.flush().expect("a device"));
                None
            }
            _ => {
                self.compare(&x);
                None
            }
        }
    }

    /// A reduction or a norm.
    fn read(&mut self, x: &[Tensor]) -> Option<Vec<Tensor>> {
        let axis = self.rng.usize(..x[0].rank().max(1)) as isize;
        let kind = self.rng.u32(0..8);
        each(x, |x| match kind {
            0 => x.max(&[axis]),
            1 => x.sum(&[axis]),
            2 => x.mean(&[]),
            3 => x.softmax(axis),
            4 => x.layer_norm(x.shape().get(1..).unwrap_or(&[]), None, None, 1e-3),
            5 => x.argmax(axis),
            6 => x.layer_norm(&x.shape()[x.rank().saturating_sub(1)..], None, None, 1e-3),
            _ => x.log_softmax(-1),
        })
    }

    /// A reduction or a norm with expressions before and after it, whose intermediates have no
    /// holder.
    fn around(&mut self, x: &[Tensor]) -> Option<Vec<Tensor>> {
        let mut made = x.to_vec();
        for step in 0..self.rng.u32(2..4) {
            if step > 0 {
                made = self.read(&made)?;
            }
            for _ in 0..self.rng.u32(1..4) {
                let next = match self.rng.u32(0..4) {
                    0 => self.unary(&made),
                    1 => {
                        let (op, value) = (self.rng.u32(0..13), self.rng.i32(1..5));
                        each(&made, |x| scalar(op, value, false, x))
                    }
                    _ => {
                        let (op, y) = (self.rng.u32(0..7), self.partner(&made));
                        both(&made, &y, |x, y| binary(op, x, y))
                    }
                };
                let is_small = |x: &Vec<Tensor>| x[0].len() <= 16 * self.most * self.most;
                made = next.filter(is_small).unwrap_or(made);
            }
        }
        Some(made)
    }

    fn unary(&mut self, x: &[Tensor]) -> Option<Vec<Tensor>> {
        match self.rng.usize(..UNARY.len() + 1) {
            0 => each(x, signed),
            op => {
                let (name, call) = &UNARY[op - 1];
                self.program.say(format_args!(".{name}"));
                match *name {
                    "signbit" => each(&each(x, signed)?, call),
                    _ => each(x, call),
                }
            }
        }
    }

    /// A tensor of the same type, which mostly broadcasts with `x`.
    fn partner(&mut self, x: &[Tensor]) -> Vec<Tensor> {
        for _ in 0..4 {
            let y = self.pick();
            if y[0].dtype() == x[0].dtype() {
                return y;
            }
        }
        let y = self.pick();
        each(&y, |y| y.cast(x[0].dtype())).unwrap_or(y)
    }

    fn condition(&mut self, x: &[Tensor]) -> Option<Vec<Tensor>> {
        let y = self.pick();
        match y[0].dtype() {
            DType::Bool => Some(y),
            _ => each(x, |x| x.logical_not()),
        }
    }

    fn view(&mut self, x: &[Tensor]) -> Option<Vec<Tensor>> {
        let kind = self.rng.u32(0..6);
        let rank = x[0].rank() as isize;
        let axis = self.rng.usize(0..3) as isize;
        let dim = *x[0].shape().get(axis as usize)?;
        let start = self.rng.usize(0..dim.max(1));
        let wide = self.rng.usize(1..5);
        each(x, |x| match kind {
            0 => x.t(),
            1 => x.narrow(axis, start, dim - start),
            2 => x.flip(&[axis]),
            3 => x.reshape(&[x.len()]),
            4 => x.slice(axis, None, None, 2),
            _ if rank < 3 => {
                let shape = [&[wide][..], x.shape()].concat();
                x.broadcast_to(&shape)
            }
            _ => x.select(axis, 0),
        })
    }

    /// Compares the tensor on all devices.
    fn compare(&self, x: &[Tensor]) {
        let (first, others) = x.split_first().expect("a device");
        let expected = Elements::of(first);
        for other in others {
            assert_eq!(other.shape(), first.shape());
            expected.check(&Elements::of(other));
        }
    }

    fn hold(&mut self, name: Name, made: Vec<Tensor>) {
        let (step, number) = name;
        self.program
            .say(format_args!(" => t{step}.{number} {}", made[0]));
        match self.held.len() < 3 || self.held.len() < HELD && self.rng.u32(0..3) > 0 {
            true => self.held.push((name, made)),
            false => {
                let place = self.pick_at();
                self.held[place] = (name, made);
            }
        }
    }

    fn run(&mut self) {
        for number in 0..3 {
            let made = self.tensor().expect("room");
            self.hold((0, number), made);
        }
        for &step in &self.program.steps {
            self.rng = self.program.dice(step);
            self.program.say(format_args!("\n{step:6}"));
            let most = 16 * self.most * self.most;
            if let Some(made) = self.call().filter(|made| made[0].len() <= most) {
                self.hold((step, 0), made);
            }
        }
        self.program.say(format_args!("\n"));
        for (_, x) in &self.held {
            self.compare(x);
        }
    }
}

fn each(x: &[Tensor], call: impl Fn(&Tensor) -> Result<Tensor>) -> Option<Vec<Tensor>> {
    agreed(x.iter().map(call))
}

fn both(
    x: &[Tensor],
    y: &[Tensor],
    call: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Option<Vec<Tensor>> {
    agreed(x.iter().zip(y).map(|(x, y)| call(x, y)))
}

/// The results of a call on all devices. Either all refuse it, or none.
fn agreed(made: impl Iterator<Item = Result<Tensor>>) -> Option<Vec<Tensor>> {
    let (made, refused): (Vec<_>, Vec<_>) = made.partition(|made| made.is_ok());
    assert!(
        made.is_empty() || refused.is_empty(),
        "{made:?}, {refused:?}"
    );
    let made = made.into_iter().flatten().collect::<Vec<_>>();
    (!made.is_empty()).then_some(made)
}

fn binary(op: u32, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    match op {
        0 | 1 => x + y,
        2 => x - y,
        3 | 4 => x * y,
        5 => x.maximum(y),
        6 => x.minimum(y),
        7 => x.gt(y),
        8 => x.le(y),
        9 => x.eq(y),
        10 => x.logical_and(y),
        11 => x.logical_xor(y),
        12 => x.bitwise_and(y),
        13 => x ^ y,
        14 => x.left_shift(y),
        15 => x.right_shift(y),
        16 => x.copysign(&signed(y)?),
        17 => x.heaviside(y),
        18 => x.xlogy(y),
        19 => x.logaddexp(y),
        20 => x.logaddexp2(y),
        21 => x.gcd(y),
        22 => x.lerp(y, 0.75),
        23 => x.is_close(y, 0.5, 1.0, true),
        _ => x.ne(y),
    }
}

/// The same with 1 for each NaN. The sign of a NaN is not defined on an adapter.
fn signed(x: &Tensor) -> Result<Tensor> {
    x.nan_to_num(1.0, None, None)
}

fn scalar(op: u32, value: i32, first: bool, x: &Tensor) -> Result<Tensor> {
    match op {
        0 | 1 if first => value + x,
        2 if first => value - x,
        3 if first => value * x,
        0 | 1 => x + value,
        2 => x - value,
        3 => x * value,
        4 => x.maximum(value),
        5 => x.minimum(value),
        6 => x.gt(value),
        7 => x.lt(value),
        8 => x.eq(value),
        9 => x.div(1 << (value % 4)),
        _ => x.clamp(0, value),
    }
}

fn in_place(op: u32, x: &Tensor, y: &Tensor) -> Result<()> {
    match op {
        0 => x.add_(y),
        1 => x.sub_(y),
        2 => x.mul_(y),
        3 => x.copy_(y),
        4 => x.relu_(),
        // Treated as words, for every type.
        5 => x.fill_(2),
        _ => x.clamp_(-4, 4),
    }
}

/// The elements of a tensor.
#[derive(Debug)]
enum Elements {
    Floats(Vec<f32>),
    Others(Vec<i64>),
}

impl Elements {
    fn of(tensor: &Tensor) -> Elements {
        let whole = |all: Vec<u32>| Elements::Others(all.into_iter().map(i64::from).collect());
        let read =
            match tensor.dtype() {
                DType::F32 => tensor.to_vec().map(Elements::Floats),
                DType::F16 => (tensor.to_vec::<f16>())
                    .map(|all| Elements::Floats(all.into_iter().map(f16::to_f32).collect())),
                DType::Bf16 => (tensor.to_vec::<bf16>())
                    .map(|all| Elements::Floats(all.into_iter().map(bf16::to_f32).collect())),
                DType::I8 => (tensor.to_vec::<i8>())
                    .map(|all| Elements::Others(all.into_iter().map(i64::from).collect())),
                DType::I32 => (tensor.to_vec::<i32>())
                    .map(|all| Elements::Others(all.into_iter().map(i64::from).collect())),
                DType::U32 => tensor.to_vec().map(whole),
                DType::U8 => (tensor.to_vec::<u8>())
                    .map(|all| whole(all.into_iter().map(u32::from).collect())),
                _ => (tensor.to_vec::<bool>())
                    .map(|all| whole(all.into_iter().map(u32::from).collect())),
            };
        read.expect("a tensor with a value")
    }

    fn check(&self, other: &Elements) {
        match (self, other) {
            (Elements::Floats(a), Elements::Floats(b)) => {
                for (at, (a, b)) in a.iter().zip(b).enumerate() {
                    let is_same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                    assert!(is_same, "element {at}: {a:?}, fused {b:?}");
                }
            }
            (Elements::Others(a), Elements::Others(b)) => assert_eq!(a, b),
            _ => panic!("two types"),
        }
    }
}

/// Runs `programs` programs with `calls` calls each on these devices.
fn check(gpus: &[Gpu], programs: u64, calls: u64, most: usize, mix: Mix) {
    programs::check(programs, calls, |program| {
        let mut world = World {
            program,
            rng: program.dice(0),
            gpus,
            held: Vec::new(),
            most,
            mix,
        };
        world.run();
    });
}

/// A device without fusion, and one with fusion.
fn pair(device: SimOptions) -> Vec<Gpu> {
    [false, true]
        .map(|fuse| simulated(fuse, device.clone()).0)
        .to_vec()
}

#[test]
fn thousands_of_random_expressions_are_the_same_to_the_bit() {
    check(&pair(SimOptions::default()), 300, 60, 5, Mix::All);
}

#[test]
fn expressions_before_and_after_reductions_and_norms_are_the_same_too() {
    let check = |gpus: &[Gpu], programs: u64, most: usize| {
        check(gpus, programs, 40, most, Mix::Around);
        let kernels = gpus[1].fused_kernels();
        let is_around = |kernel: &&FusedKernel| {
            let has = |comment| kernel.wgsl.contains(comment);
            has("// How `x` is computed.") && has("// What is computed from `y`.")
        };
        let around = kernels.iter().filter(is_around).count();
        let is_common = 10 * around > kernels.len() || std::env::var("LAPIDARY_SEED").is_ok();
        assert!(is_common, "{around} of {}", kernels.len());
    };
    check(&pair(SimOptions::default()), 50, 5);
    let narrow = SimOptions {
        max_binding_bytes: 256,
        ..SimOptions::default()
    };
    check(&pair(narrow), 20, 8);
    let gpus = [false, true].map(|fuse| Gpu::open(options(fuse)).expect("an adapter"));
    check(&gpus, 4, 16);
}

#[test]
fn interpreted_kernels_are_the_same_too_and_have_no_fault() {
    for kind in [AdapterKind::Discrete, AdapterKind::Cpu] {
        check(&interpreted::pair(kind), 8, 40, 5, Mix::All);
        check(&interpreted::pair(kind), 4, 20, 5, Mix::Around);
    }
}

#[test]
fn long_expressions_are_the_same_too() {
    check(&pair(SimOptions::default()), 6, 1500, 7, Mix::All);
}

#[test]
fn operands_of_several_windows_and_few_bindings_change_nothing() {
    let device = SimOptions {
        max_binding_bytes: 256,
        ..SimOptions::default()
    };
    check(&pair(device), 80, 60, 12, Mix::All);
}

#[test]
fn little_memory_changes_nothing() {
    let device = SimOptions {
        memory_bytes: 3 << 20,
        ..SimOptions::default()
    };
    check(&pair(device), 20, 100, 40, Mix::All);
}

#[test]
fn on_an_adapter_everything_is_the_same_to_the_bit() {
    let gpus = [false, true].map(|fuse| Gpu::open(options(fuse)).expect("an adapter"));
    check(&gpus, 12, 60, 24, Mix::All);
}

#[test]
fn what_compilers_know_beforehand_is_rounded_like_the_rest() {
    let gpus = [false, true].map(|fuse| Gpu::open(options(fuse)).expect("an adapter"));
    let results = gpus.map(|gpu| {
        let x = gpu.tensor(&[1_u32, 2, 3, 4, 5], &[5]).unwrap();
        let made = [DType::F16, DType::Bf16, DType::U8, DType::I8].map(|dtype| {
            let ones = x.le(&x).unwrap().cast(dtype).unwrap();
            let halves = ones.cast(DType::F32).unwrap().tanh().unwrap();
            let again = halves.cast(dtype).unwrap().exp().unwrap();
            again.cast(DType::F32).unwrap().to_vec::<f32>().unwrap()
        });
        made.map(Elements::Floats)
    });
    let [apart, fused] = &results;
    for (apart, fused) in apart.iter().zip(fused) {
        apart.check(fused);
    }
}

#[test]
fn what_compilers_would_simplify_is_computed_as_it_is_written() {
    let [apart, fused] = [false, true].map(|fuse| Gpu::open(options(fuse)).expect("an adapter"));
    let values = [1e8, 1.0 + 1.0 / 4096.0, -3.7, f32::INFINITY, 1e-30];
    let results = |gpu: &Gpu| -> Result<Vec<Vec<f32>>> {
        let x = gpu.tensor(&values, &[5])?;
        let made = [
            ((&x + 1.0)? - &x)?,
            (x.copy()? - &x)?,
            (x.abs()? - x.abs()?)?,
            ((&x * &x)? - &x.square()?)?,
            ((&x * &x)? + (&x * 0.1)?)?,
            ((&x * 0.3)? / 0.3)?,
        ];
        made.iter().map(Tensor::to_vec).collect()
    };
    let results = [&apart, &fused].map(|gpu| results(gpu).expect("a device"));
    let expected = |of: fn(f32) -> f32| values.map(of).to_vec();
    let expected = [
        expected(|x| (x + 1.0) - x),
        expected(|x| x - x),
        expected(|x| x - x),
        expected(|x| x * x - x * x),
        expected(|x| x * x + x * 0.1),
    ];
    for (number, expected) in expected.into_iter().enumerate() {
        let expected = Elements::Floats(expected);
        for results in &results {
            expected.check(&Elements::Floats(results[number].clone()));
        }
    }
    let [of_apart, of_fused] = results.map(|mut results| Elements::Floats(results.remove(5)));
    of_apart.check(&of_fused);
    assert!(apart.fused_kernels().is_empty());
    assert!(
        fused.fused_kernels().len() >= 3,
        "{:?}",
        fused.fused_kernels()
    );
}
