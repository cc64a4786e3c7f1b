//! The measured work: its inputs and its amount.

/// Transfers of this many elements or more are shown as a rate.
pub(crate) const LARGE: usize = 1 << 20;

/// The network, its batch, and its learning rate.
pub const INPUTS: usize = 784;
pub const HIDDEN: usize = 512;
pub const CLASSES: usize = 10;
pub const BATCH: usize = 64;
pub const RATE: f32 = 0.05;

/// One kind of work. Matrices are stored in row-major order; every element is an `f32`.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// `batch` products of m × k and k × n. B may be stored as n × k and is then read transposed.
    Matmul {
        batch: usize,
        m: usize,
        n: usize,
        k: usize,
        is_b_transposed: bool,
    },
    Add {
        len: usize,
    },
    /// `relu(a * b + c) * d`
    Chain {
        len: usize,
    },
    /// Over each row.
    Softmax {
        rows: usize,
        columns: usize,
    },
    Sum {
        len: usize,
    },
    /// A transposed copy.
    Transpose {
        rows: usize,
        columns: usize,
    },
    /// With the error function.
    Gelu {
        len: usize,
    },
    /// `x = x + 1`, `times` times, then a read.
    Increments {
        ops: usize,
        len: usize,
    },
    /// `x[i] = x[(i + 1) % len]` with an index, `times` times, then a read. Elementwise fusion
    /// cannot make one kernel of it.
    Rotations {
        ops: usize,
        len: usize,
    },
    /// Creates a tensor from a slice.
    Upload {
        len: usize,
        way: Way,
    },
    /// Writes into an existing tensor.
    Write {
        len: usize,
        way: Way,
    },
    /// Reads into a vector with enough capacity.
    Download {
        len: usize,
        way: Way,
    },
    /// Random blocks of device memory, allocated and dropped, without values.
    Blocks {
        events: usize,
    },
    /// The same with tensors through the whole library, on a simulated device.
    Tensors {
        events: usize,
    },
    /// Steps of gradient descent: forward, softmax and cross entropy, backward, update.
    Training {
        steps: usize,
    },
    /// From the start of a process to its first product of two 256 × 256 matrices, read on the
    /// host.
    Start {
        is_cold: bool,
    },
}

/// How bytes get between host and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The host writes into the device's memory.
    Direct,
    /// Through a staging buffer, from which the device copies.
    Staged,
}

const fn square(size: usize) -> Work {
    product(1, size, size, size)
}

const fn product(batch: usize, m: usize, n: usize, k: usize) -> Work {
    Work::Matmul {
        batch,
        m,
        n,
        k,
        is_b_transposed: false,
    }
}

const M: usize = 1 << 20;

/// All measured work, by name.
pub const CASES: [(&str, Work); 41] = [
    ("matmul 128", square(128)),
    ("matmul 256", square(256)),
    ("matmul 512", square(512)),
    ("matmul 1024", square(1024)),
    ("matmul 2048", square(2048)),
    ("matmul 16 x 128", product(16, 128, 128, 128)),
    ("matmul 1000x1001x999", product(1, 1000, 1001, 999)),
    ("matmul thin 1024x32x1024", product(1, 1024, 32, 1024)),
    ("matmul tall 8192x128x128", product(1, 8192, 128, 128)),
    (
        "matmul heads 12 x 256x256x64 by B^T",
        Work::Matmul {
            batch: 12,
            m: 256,
            n: 256,
            k: 64,
            is_b_transposed: true,
        },
    ),
    ("matmul heads 12 x 256x64x256", product(12, 256, 64, 256)),
    ("matmul small 32x32x16384", product(1, 32, 32, 16_384)),
    ("matmul 1x1024x1024", product(1, 1, 1024, 1024)),
    // Larger than the caches.
    ("matmul 1x4096x4096", product(1, 1, 4096, 4096)),
    ("matmul 8x1024x1024", product(1, 8, 1024, 1024)),
    ("add 16M", Work::Add { len: 16 * M }),
    ("relu(a*b+c)*d 4M", Work::Chain { len: 4 * M }),
    (
        "softmax 4096x1024",
        Work::Softmax {
            rows: 4096,
            columns: 1024,
        },
    ),
    ("sum 16M", Work::Sum { len: 16 * M }),
    (
        "transpose 2048x2048",
        Work::Transpose {
            rows: 2048,
            columns: 2048,
        },
    ),
    (
        "transpose 1000x3001",
        Work::Transpose {
            rows: 1000,
            columns: 3001,
        },
    ),
    (
        "transpose 3001x1000",
        Work::Transpose {
            rows: 3001,
            columns: 1000,
        },
    ),
    ("gelu 4M", Work::Gelu { len: 4 * M }),
    (
        "tiny op, of 1000 fusable",
        Work::Increments {
            ops: 1000,
            len: 256,
        },
    ),
    (
        "tiny op, of 1000 not fusable",
        Work::Rotations {
            ops: 1000,
            len: 256,
        },
    ),
    (
        "200 medium ops, not fusable",
        Work::Rotations {
            ops: 200,
            len: 16 << 10,
        },
    ),
    ("upload 64 MiB direct", up(16 * M, Way::Direct)),
    ("upload 64 MiB staged", up(16 * M, Way::Staged)),
    ("download 64 MiB direct", down(16 * M, Way::Direct)),
    ("download 64 MiB staged", down(16 * M, Way::Staged)),
    ("upload 4 KiB direct", write(1024, Way::Direct)),
    ("upload 4 KiB staged", write(1024, Way::Staged)),
    ("create 4 KiB direct", up(1024, Way::Direct)),
    ("create 4 KiB staged", up(1024, Way::Staged)),
    ("download 4 KiB direct", down(1024, Way::Direct)),
    ("download 4 KiB staged", down(1024, Way::Staged)),
    ("churn 20000, blocks", Work::Blocks { events: 20_000 }),
    ("churn 20000, tensors", Work::Tensors { events: 20_000 }),
    ("training 784-512-10", Work::Training { steps: 10 }),
    ("start, empty caches", Work::Start { is_cold: true }),
    ("start, warm caches", Work::Start { is_cold: false }),
];

const fn up(len: usize, way: Way) -> Work {
    Work::Upload { len, way }
}

const fn write(len: usize, way: Way) -> Work {
    Work::Write { len, way }
}

const fn down(len: usize, way: Way) -> Work {
    Work::Download { len, way }
}

/// The amount of work in one call, with the unit of its figure.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    /// Billions of floating-point operations per second.
    Gflops(f64),
    /// Billions of bytes per second, counting the least necessary traffic.
    Gigabytes(f64),
    /// Microseconds for each operation.
    Microseconds(f64),
    /// Nanoseconds for each event.
    Nanoseconds(f64),
    /// Steps per second.
    Steps(f64),
    /// Seconds.
    Seconds,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Gflops(_) => "GFLOP/s",
            Unit::Gigabytes(_) => "GB/s",
            Unit::Microseconds(_) => "us",
            Unit::Nanoseconds(_) => "ns",
            Unit::Steps(_) => "steps/s",
            Unit::Seconds => "s",
        }
    }

    /// The figure of a call that takes this many seconds.
    pub(crate) fn figure(self, seconds: f64) -> f64 {
        match self {
            Unit::Gflops(amount) | Unit::Gigabytes(amount) => amount / seconds / 1e9,
            Unit::Microseconds(amount) => seconds / amount * 1e6,
            Unit::Nanoseconds(amount) => seconds / amount * 1e9,
            Unit::Steps(amount) => amount / seconds,
            Unit::Seconds => seconds,
        }
    }
}

impl Work {
    pub(crate) fn unit(&self) -> Unit {
        let bytes = |elements: usize| Unit::Gigabytes(4.0 * elements as f64);
        match *self {
            Work::Matmul { batch, m, n, k, .. } => Unit::Gflops(2.0 * (batch * m * n * k) as f64),
            Work::Add { len } => bytes(3 * len),
            Work::Chain { len } => bytes(5 * len),
            Work::Softmax { rows, columns } | Work::Transpose { rows, columns } => {
                bytes(2 * rows * columns)
            }
            Work::Sum { len } => bytes(len),
            Work::Gelu { len } => bytes(2 * len),
            Work::Increments { ops, .. } | Work::Rotations { ops, .. } => {
                Unit::Microseconds(ops as f64)
            }
            Work::Upload { len, .. } | Work::Write { len, .. } | Work::Download { len, .. } => {
                match len < LARGE {
                    true => Unit::Microseconds(1.0),
                    false => bytes(len),
                }
            }
            Work::Blocks { events } | Work::Tensors { events } => Unit::Nanoseconds(events as f64),
            Work::Training { steps } => Unit::Steps(steps as f64),
            Work::Start { .. } => Unit::Seconds,
        }
    }

    /// The inputs, always the same numbers.
    pub fn inputs(&self) -> Vec<Vec<f32>> {
        let around_zero = |seed, len| random(seed, len, -1.0, 1.0);
        match *self {
            Work::Matmul { batch, m, n, k, .. } => {
                vec![around_zero(1, batch * m * k), around_zero(2, batch * k * n)]
            }
            Work::Add { len } => vec![around_zero(1, len), around_zero(2, len)],
            Work::Chain { len } => (1..=4).map(|seed| around_zero(seed, len)).collect(),
            Work::Softmax { rows, columns } => vec![random(1, rows * columns, -4.0, 4.0)],
            Work::Transpose { rows, columns } => vec![around_zero(1, rows * columns)],
            Work::Sum { len } => vec![random(1, len, 0.0, 1.0)],
            Work::Gelu { len } => vec![random(1, len, -4.0, 4.0)],
            Work::Increments { len, .. } | Work::Rotations { len, .. } => {
                vec![(0..len).map(|index| index as f32).collect()]
            }
            Work::Upload { len, .. } | Work::Write { len, .. } | Work::Download { len, .. } => {
                vec![around_zero(1, len)]
            }
            Work::Training { .. } => network_inputs(),
            Work::Blocks { .. } | Work::Tensors { .. } | Work::Start { .. } => Vec::new(),
        }
    }
}

/// The images, the classes as one-hot rows, and the weights of both layers. Biases begin at 0.
fn network_inputs() -> Vec<Vec<f32>> {
    let mut classes = vec![0.0; BATCH * CLASSES];
    for (image, class) in classes.chunks_exact_mut(CLASSES).enumerate() {
        class[image * 7 % CLASSES] = 1.0;
    }
    let layer = |seed, from: usize, to| {
        let most = (6.0 / from as f32).sqrt();
        random(seed, from * to, -most, most)
    };
    vec![
        random(1, BATCH * INPUTS, 0.0, 1.0),
        classes,
        layer(2, INPUTS, HIDDEN),
        layer(3, HIDDEN, CLASSES),
    ]
}

fn random(seed: u64, len: usize, least: f32, most: f32) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len)
        .map(|_| least + (most - least) * random.f32())
        .collect()
}

/// An allocation into a place, or the drop of the place's block.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Allocate { place: usize, bytes: u64 },
    Drop { place: usize },
}

/// Most live blocks.
pub const PLACES: usize = 128;

/// Random drops and allocations of 256 B to 16 MiB, with all powers of two equally likely. At the
/// end all blocks are dropped.
pub fn events(count: usize) -> Vec<Event> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut is_live = [false; PLACES];
    let mut live = 0;
    let mut events = Vec::with_capacity(count);
    while events.len() < count {
        let place = random.usize(0..PLACES);
        let must_drop = live >= count - events.len();
        if must_drop && !is_live[place] {
            continue;
        }
        events.push(match is_live[place] {
            true => Event::Drop { place },
            false => Event::Allocate {
                place,
                bytes: (256.0 * 65_536_f64.powf(random.f64())) as u64,
            },
        });
        is_live[place] = !is_live[place];
        live = if is_live[place] { live + 1 } else { live - 1 };
    }
    events
}
