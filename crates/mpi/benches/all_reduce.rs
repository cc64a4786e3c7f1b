//! An all-reduce of tensors, beside MPI's own of a host buffer.
//!
//! ```text
//! cargo bench --manifest-path examples/Cargo.toml --package lapidary-mpi
//! ```
//!
//! It starts itself by `mpirun` with 2 ranks, then with 4. The tensors are on devices of the
//! default adapter. Rounds of both alternate, and each begins with a barrier. The time of a round
//! is that of the slowest rank, until the sum is on the device.

use std::env;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use lapidary::devices::Reduce;
use lapidary::{DType, Options};
use lapidary_mpi::{Ranks, Result};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::CommunicatorCollectives;

const SIZES_BYTES: [usize; 3] = [1 << 20, 16 << 20, 64 << 20];
const ROUNDS: usize = 16;
const COUNTS: [usize; 2] = [2, 4];
/// Set for the ranks that this program starts.
const IS_RANK: &str = "LAPIDARY_MPI_BENCH";

fn main() -> ExitCode {
    if env::var_os(IS_RANK).is_some() {
        return match lapidary_mpi::run(Default::default(), measure) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let program = env::current_exe().expect("a program knows its file");
    for count in COUNTS {
        let mut mpirun = Command::new("mpirun");
        mpirun.args(["--allow-run-as-root", "--oversubscribe", "-n"]);
        mpirun.arg(count.to_string()).arg(&program);
        match mpirun.env(IS_RANK, "1").status() {
            Ok(status) if status.success() => {}
            other => {
                eprintln!("mpirun: {other:?}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn measure(ranks: &Ranks) -> Result<()> {
    let gpu = ranks.open(Options::from_env()?)?;
    let world = SimpleCommunicator::world();
    let is_first = ranks.rank() == 0;
    if is_first {
        println!("{} ranks, {}", ranks.count(), gpu.caps().name);
    }
    for size_bytes in SIZES_BYTES {
        let (from, mut to) = (vec![1.0_f32; size_bytes / 4], vec![0.0_f32; size_bytes / 4]);
        let tensor = gpu.ones(&[size_bytes / 4], DType::F32)?;
        let mut times: [Vec<Duration>; 2] = Default::default();
        for round in 0..ROUNDS {
            let of_mpi = timed(&world, || {
                world.all_reduce_into(&from[..], &mut to[..], SystemOperation::sum());
                black_box(&mut to);
                Ok(())
            })?;
            let of_tensors = timed(&world, || {
                let sum = ranks.all_reduce(&tensor, Reduce::Sum)?;
                gpu.finish()?;
                black_box(sum);
                Ok(())
            })?;
            if round > 0 {
                times[0].push(of_mpi);
                times[1].push(of_tensors);
            }
        }
        for times in &mut times {
            times.sort();
        }
        if is_first {
            let [mpi, own] = &times;
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let middle = mpi.len() / 2;
            println!(
                "  {:>3} MiB: MPI {:>7.2} ms (best {:>7.2}), tensors {:>7.2} ms (best {:>7.2}), \
                 {:.2} of MPI's rate (best {:.2})",
                size_bytes >> 20,
                ms(mpi[middle]),
                ms(mpi[0]),
                ms(own[middle]),
                ms(own[0]),
                ms(mpi[middle]) / ms(own[middle]),
                ms(mpi[0]) / ms(own[0]),
            );
        }
    }
    Ok(())
}

/// The time of the slowest rank.
fn timed(world: &SimpleCommunicator, work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    world.barrier();
    let start = Instant::now();
    work()?;
    let own = start.elapsed().as_secs_f64();
    let mut slowest = 0.0_f64;
    world.all_reduce_into(&own, &mut slowest, SystemOperation::max());
    Ok(Duration::from_secs_f64(slowest))
}
