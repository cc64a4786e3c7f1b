//! The limit of this machine's cores, to which shares refer.

use crate::cases::LARGE;
use crate::network::Network;
use crate::openblas::{OpenBlas, Sizes};
use crate::{About, Result, Subject, Timed, Work, loops};

pub(crate) struct Host {
    blas: Option<OpenBlas>,
}

impl Host {
    pub(crate) fn new() -> Host {
        let threads = i32::try_from(loops::threads()).unwrap_or(i32::MAX);
        let blas = OpenBlas::open(threads)
            .inspect_err(|error| eprintln!("no OpenBLAS: {error}"))
            .ok();
        Host { blas }
    }

    /// What computes this work here.
    pub(crate) fn name(&self, work: &Work) -> String {
        let threads = loops::threads();
        match work {
            Work::Matmul { .. } | Work::Training { .. } => format!("OpenBLAS, {threads} threads"),
            Work::Upload { .. } | Work::Write { .. } | Work::Download { .. } => "memcpy".into(),
            _ => format!("loops, {threads} threads"),
        }
    }

    /// Whether its threads still run after the work.
    pub(crate) fn lingers(&self, work: &Work) -> bool {
        matches!(work, Work::Matmul { .. } | Work::Training { .. })
    }
}

/// Work that leaves its result in a vector.
struct Loop<F> {
    out: Vec<f32>,
    call: F,
}

impl<F: FnMut(&mut [f32])> Timed for Loop<F> {
    fn run(&mut self) -> Result {
        (self.call)(std::hint::black_box(&mut self.out));
        Ok(())
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        Ok(self.out.clone())
    }
}

fn timed<'a>(len: usize, call: impl FnMut(&mut [f32]) + 'a) -> Result<Option<Box<dyn Timed + 'a>>> {
    let out = vec![0.0; len];
    Ok(Some(Box::new(Loop { out, call })))
}

struct Training<'a> {
    network: Network<'a>,
    steps: usize,
}

impl Timed for Training<'_> {
    fn run(&mut self) -> Result {
        for _ in 0..self.steps {
            self.network.step();
        }
        Ok(())
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        Ok(self.network.parameters())
    }
}

impl Subject for Host {
    fn about(&self) -> About {
        About {
            by: "host",
            adapter: format!("{} cores", loops::threads()),
            driver: String::new(),
        }
    }

    fn prepare<'a>(
        &'a self,
        work: &Work,
        inputs: &'a [Vec<f32>],
    ) -> Result<Option<Box<dyn Timed + 'a>>> {
        match (*work, inputs) {
            (
                Work::Matmul {
                    batch,
                    m,
                    n,
                    k,
                    is_b_transposed,
                },
                [a, b],
            ) => {
                let Some(blas) = &self.blas else {
                    return Ok(None);
                };
                let sizes = Sizes {
                    m,
                    n,
                    k,
                    transposed: is_b_transposed,
                };
                timed(batch * m * n, move |out| blas.products(sizes, a, b, out))
            }
            (Work::Training { steps }, _) => Ok(self.blas.as_ref().map(|blas| {
                let network = Network::new(Some(blas), inputs);
                Box::new(Training { network, steps }) as Box<dyn Timed + 'a>
            })),
            (Work::Add { len }, [a, b]) => timed(len, |out| loops::add(out, a, b)),
            (Work::Chain { len }, [a, b, c, d]) => {
                timed(len, |out| loops::chain(out, [a, b, c, d]))
            }
            (Work::Softmax { columns, .. }, [x]) => {
                timed(x.len(), move |out| loops::softmax(out, x, columns))
            }
            (Work::Sum { .. }, [x]) => timed(1, |out| out[0] = loops::sum(x)),
            (Work::Transpose { rows, columns }, [x]) => {
                timed(x.len(), move |out| loops::transpose(out, x, rows, columns))
            }
            (Work::Gelu { len }, [x]) => timed(len, |out| loops::gelu(out, x)),
            // Smaller transfers are dominated by round trips, and memcpy would stay in a cache.
            (Work::Upload { len, .. } | Work::Download { len, .. }, [x]) if len >= LARGE => {
                timed(len, |out| out.copy_from_slice(std::hint::black_box(x)))
            }
            // Function calls and a C library's allocator are no limit for a device.
            _ => Ok(None),
        }
    }
}
