//! A program on all ranks, from the start of MPI to its end.

use std::any::Any;
use std::fmt::Display;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::place::Doing;
use crate::ranks::{Ranks, RanksOptions};

/// How long a rank that failed waits for the others to say the same. Then it ends all.
const GRACE: Duration = Duration::from_secs(2);
/// How long a rank that fails because another one did lets that one end all.
const LONG_GRACE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Runs a program on this process and on all others that `mpirun` has started. MPI starts before it
/// and ends after it.
///
/// ```no_run
/// use lapidary::devices::Reduce;
/// use lapidary::{DType, Options};
/// use lapidary_mpi::{Ranks, Result};
///
/// fn program(ranks: &Ranks) -> Result<()> {
///     let gpu = ranks.open(Options::default())?;
///     let own = gpu.full(&[4], ranks.rank() as f32, DType::F32)?;
///     let sum = ranks.all_reduce(&own, Reduce::Sum)?;
///     println!("rank {}: {:?}", ranks.rank(), sum.to_vec::<f32>()?);
///     Ok(())
/// }
///
/// fn main() -> Result<()> {
///     lapidary_mpi::run(Default::default(), program)
/// }
/// ```
///
/// If the program returns an error or panics on one rank, that rank prints the error. The others
/// get it as [`Error::Failed`] from the call in which they wait, or from their next call. Then all
/// processes end, with the code 1: a rank that failed cannot meet the others again. So keep what
/// you need after an error in a file. A program that wants to survive an error of a call handles it
/// itself.
///
/// Without `mpirun` there is one rank.
///
/// MPI's functions return errors from then on, also those that the program calls itself on
/// `MPI_COMM_WORLD`. By MPI's default an error ends all processes.
///
/// # Errors
/// [`Error::Start`] if this process has started MPI before, or if MPI was built without threads.
/// [`Error::Mpi`] if MPI refuses to start.
pub fn run<T, E: Display>(
    options: RanksOptions,
    program: impl FnOnce(&Ranks) -> std::result::Result<T, E>,
) -> Result<T> {
    let mut ranks = Ranks::start(options)?;
    if let Err(error) = ranks.meet() {
        give_up(&ranks, &error.to_string());
    }
    let ended = catch_unwind(AssertUnwindSafe(|| program(&ranks)));
    let reason = match ended {
        Ok(Ok(value)) => match ranks.agree("the end of the program", 0) {
            Ok(_) => return Ok(value),
            Err(error) => error.to_string(),
        },
        Ok(Err(error)) => error.to_string(),
        Err(panic) => format!("the program panicked: {}", message(&*panic)),
    };
    give_up(&ranks, &reason)
}

/// Ends all processes because this one has failed.
fn give_up(ranks: &Ranks, reason: &str) -> ! {
    let line = format!("{}: {reason}\n", ranks.named(ranks.rank()));
    // At once, since `mpirun` mixes what the ranks write.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let grace = match ranks.check_notes(Doing::Ends) {
        Err(Error::Failed { .. } | Error::TimedOut { .. }) => LONG_GRACE,
        _ => GRACE,
    };
    // They may not hear it any more, and MPI ends them all the same.
    ranks.notes().send_failed(reason);
    let start = Instant::now();
    while start.elapsed() < grace && !ranks.notes().have_all_ended() {
        let _ = ranks.check_notes(Doing::Ends);
        thread::sleep(PAUSE);
    }
    ranks.abort()
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}
