//! Many jobs with random peaks, priorities and deadlines on one device. Threads ask for admission,
//! allocate up to the peak, compute something that is checked, and end.
//!
//! `LAPIDARY_JOBS` sets the number of jobs, `LAPIDARY_SEED` the seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use lapidary::jobs::{Job, Running};
use lapidary::shares::{Share, ShareOptions};
use lapidary::{Budget, Gpu, Result, Tensor};

use super::{MIB, with_budget};
use crate::programs::number;

const THREADS: u64 = 16;

/// The most bytes of slabs and staging together.
const BUDGET_BYTES: u64 = 3 * MIB;

/// What the jobs share: the budget without its staging.
const JOBS_BYTES: u64 = 2 * MIB;

/// Peaks are multiples of this, so that no size is rounded up.
const UNIT_BYTES: u64 = 4 << 10;

/// Jobs that may pass an earlier one of their priority or a higher one.
const MOST_PASSES: usize = 32;

/// If no job ends for so long, none ever will.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Its results are right.
    Right,
    /// Its deadline passed while it waited.
    Late,
    /// It was cancelled while it ran.
    Cancelled,
}

/// An admitted job, in the order of admission.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    /// Counts the jobs in the order of their arrival.
    id: u64,
    priority: i8,
}

/// The threads' common state.
struct Office {
    gpu: Gpu,
    seed: u64,
    jobs: u64,
    next: AtomicU64,
    admitted: Mutex<Vec<Admitted>>,
}

/// What one job asks for, and does.
struct Plan {
    job: Job,
    priority: i8,
    peak_bytes: u64,
    /// It needs more memory than it said.
    is_liar: bool,
    is_cancelled: bool,
    /// Its work is in a share within its own.
    has_share: bool,
}

impl Plan {
    /// The share within the job. It fails if jobs of a higher priority leave too little for it.
    fn within(&self, running: &Running, random: &mut Rng) -> Option<Share> {
        let share = ShareOptions::guaranteed(random.u64(0..=self.peak_bytes));
        let within = self.has_share.then(|| running.share("within", share));
        within.and_then(Result::ok)
    }

    fn random(random: &mut Rng) -> Plan {
        // Most are small, and a few need nearly everything.
        let most = random.u64(1..=JOBS_BYTES / UNIT_BYTES);
        let peak_bytes = match random.u32(0..20) {
            0 => most * UNIT_BYTES,
            _ => most.div_ceil(8) * UNIT_BYTES,
        };
        let priority = random.i8(-2..=2);
        let job = Job::new("job", peak_bytes).with_priority(priority);
        let job = match random.u32(0..8) {
            0 => job.with_deadline(Duration::from_millis(random.u64(0..20))),
            1 => job.with_deadline(100 * PATIENCE),
            _ => job,
        };
        Plan {
            job,
            priority,
            peak_bytes,
            is_liar: random.u32(0..20) == 0,
            is_cancelled: random.u32(0..50) == 0,
            has_share: random.u32(0..3) == 0,
        }
    }
}

/// Panics if a tensor is not `factor` times the numbers from `first` on.
fn check(tensor: &Tensor, first: i32, factor: i32) -> Result<()> {
    let numbers = tensor.to_vec::<i32>()?;
    let expected = (first..).map(|number| number.wrapping_mul(factor));
    assert!(
        numbers.into_iter().zip(expected).all(|(a, b)| a == b),
        "{tensor}"
    );
    Ok(())
}

/// Fills the peak with sums, and looks at each. A job that said too little holds twice as much.
fn work(gpu: &Gpu, plan: &Plan, random: &mut Rng) -> Result<()> {
    let parts = 4;
    let len = plan.peak_bytes as usize / 4 / parts;
    let first = random.i32(0..1 << 20);
    let numbers: Vec<i32> = (first..).take(len).collect();
    let mut held = vec![(gpu.tensor(&numbers, &[len])?, 1)];
    let count = if plan.is_liar { 2 * parts } else { parts };
    while held.len() < count {
        let [(x, a), (y, b)] = [(); 2].map(|()| held[random.usize(..held.len())].clone());
        held.push((x.add(&y)?, a + b));
        if random.u32(0..4) == 0 {
            gpu.flush()?;
        }
    }
    random.shuffle(&mut held);
    held.iter()
        .try_for_each(|(x, factor)| check(x, first, *factor))
}

impl Office {
    /// Asks for the admission of a job, and does its work.
    fn run_job(&self, random: &mut Rng) -> Result<Ended> {
        let plan = Plan::random(random);
        let running = match self.gpu.jobs().admit(plan.job.clone()) {
            Err(error) if error.to_string().contains("deadline") => return Ok(Ended::Late),
            admitted => admitted?,
        };
        self.admitted.lock().unwrap().push(Admitted {
            id: running.id(),
            priority: plan.priority,
        });
        let within = plan.within(&running, random);
        let done = work(within.as_ref().map_or(&*running, Share::gpu), &plan, random);
        if plan.is_cancelled {
            return self.cancel(&running);
        }
        done?;
        let held = running.memory().share_use().unwrap();
        assert!(held.bytes.peak <= plan.peak_bytes, "{held:?}");
        Ok(Ended::Right)
    }

    fn cancel(&self, running: &Running) -> Result<Ended> {
        let tensor = running.tensor(&[1_i32], &[1])?;
        assert!(self.gpu.jobs().cancel(running.id()));
        assert!(tensor.to_vec::<i32>().is_err() && running.tensor(&[1_i32], &[1]).is_err());
        Ok(Ended::Cancelled)
    }

    fn run_jobs(&self, ended: &Sender<Result<Ended>>) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.jobs {
                return;
            }
            let mut random = Rng::with_seed(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let _ = ended.send(self.run_job(&mut random));
        }
    }

    /// How often a job was passed at most: by later jobs of its priority or a lower one.
    fn most_passes(&self) -> usize {
        let admitted = self.admitted.lock().unwrap();
        let passes = (0..admitted.len()).map(|at| {
            let job = admitted[at];
            let is_pass = |other: &&Admitted| other.id > job.id && other.priority <= job.priority;
            admitted[..at].iter().filter(is_pass).count()
        });
        passes.max().unwrap_or(0)
    }
}

#[test]
fn many_random_jobs_end_in_time_with_right_results_within_the_budget() {
    let seed = number("LAPIDARY_SEED").unwrap_or_else(|| fastrand::u64(..));
    let jobs = number("LAPIDARY_JOBS").unwrap_or(300);
    println!("LAPIDARY_SEED={seed} LAPIDARY_JOBS={jobs}");
    let gpu = with_budget(Budget {
        // What is evicted goes to the spill file before long.
        host_bytes: Some(256 << 10),
        staging_bytes: Some(BUDGET_BYTES - JOBS_BYTES),
        ..Budget::device(BUDGET_BYTES)
    });
    let office = Arc::new(Office {
        gpu: gpu.clone(),
        seed,
        jobs,
        next: AtomicU64::new(0),
        admitted: Mutex::default(),
    });
    let (sender, receiver) = channel();
    for _ in 0..THREADS {
        let (office, sender) = (office.clone(), sender.clone());
        // Not in a scope: that would wait for threads that hang.
        thread::spawn(move || office.run_jobs(&sender));
    }
    drop(sender);
    let mut ended = [0; 3];
    for number in 0..jobs {
        match receiver.recv_timeout(PATIENCE) {
            Ok(Ok(one)) => ended[one as usize] += 1,
            Ok(Err(error)) => panic!("LAPIDARY_SEED={seed}: {error}"),
            Err(RecvTimeoutError::Timeout) => panic!(
                "LAPIDARY_SEED={seed}: only {number} jobs have ended: {:#?}",
                gpu.jobs().list()
            ),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("LAPIDARY_SEED={seed}: jobs panicked")
            }
        }
    }
    assert_eq!(gpu.jobs().list(), [], "LAPIDARY_SEED={seed}");
    let stats = gpu.memory().stats();
    println!(
        "{ended:?} right, late and cancelled; {} evicted; passed {} times at most",
        stats.evicted_bytes,
        office.most_passes()
    );
    assert!(
        stats.device_bytes.peak <= BUDGET_BYTES,
        "LAPIDARY_SEED={seed}: {stats}"
    );
    assert!(ended[Ended::Right as usize] * 2 > jobs, "{ended:?}");
    assert!(stats.evicted_bytes > 0, "no job took memory from another");
    // The threads note their admissions a moment later, in another order.
    let most = MOST_PASSES + THREADS as usize;
    assert!(office.most_passes() <= most, "LAPIDARY_SEED={seed}");
}
