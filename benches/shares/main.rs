//! Shares of a device's memory: their cost, their fairness, the time until a guarantee comes back,
//! and the wait of work with a high priority.
//!
//! ```text
//! cargo bench --bench shares
//! LAPIDARY_CONTENDED_S=5 cargo bench --bench shares   # instead of the 60 s in which shares compete
//! cargo bench --bench shares -- card    # a guarantee on a simulated card
//! ```
//!
//! Rows that are compared run in turns, so that noise hits all of them.

mod claim;
#[path = "../simulated/card.rs"]
mod simulated_card;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lapidary::shares::{Share, ShareOptions};
use lapidary::{Budget, Buffer, DType, Gpu, Options, Residency, Result, Tensor};

const MIB: u64 = 1 << 20;
const ROUNDS: usize = 15;
/// Buffers made and dropped in a round.
const BUFFERS: usize = 2000;
/// The buffers of each share that competes, of 1 MiB each.
const COMPETING: usize = 48;
/// How long they compete, unless `LAPIDARY_CONTENDED_S` says otherwise.
const CONTENDED_S: u64 = 60;
/// A job that lacks memory: all memory, the buffers of 1 MiB that it holds, and a large one that
/// does not fit beside them.
const SMALL_BUDGET_BYTES: u64 = 192 * MIB;
const HELD: usize = 150;
const LARGE_BYTES: u64 = 96 * MIB;
/// A buffer of which that memory has room for one.
const MOVED_BYTES: u64 = 128 * MIB;
/// The multiplications that compute a matrix again.
const AGAIN: usize = 16;
/// Frames whose time counts, and the pause after each.
const FRAMES: usize = 200;
const PAUSE: Duration = Duration::from_millis(4);

fn main() -> Result<()> {
    if std::env::args().any(|word| word == "card") {
        return tell_of_card();
    }
    let gpu = open(None)?;
    println!("{} ({})\n", gpu.caps().name, gpu.caps().backend);
    drop(gpu);
    cost()?;
    claim::compare(|budget_bytes| open(Some(budget_bytes)))?;
    fairness()?;
    latency()
}

fn open(budget_bytes: Option<u64>) -> Result<Gpu> {
    Gpu::open(Options {
        budget: budget_bytes.map(Budget::device),
        ..Options::from_env().unwrap()
    })
}

/// A guarantee that comes back on a simulated card behind PCIe.
fn tell_of_card() -> Result<()> {
    use lapidary::sim::Speed;

    let speed = Speed::default();
    let taken = claim::compare(|budget_bytes| {
        let options = Options {
            budget: Some(Budget::device(budget_bytes)),
            ..Options::from_env().unwrap()
        };
        Ok(simulated_card::open(speed, options)?.0)
    })?;
    let copies_s = claim::BYTES as f64 / speed.download_bytes_per_s as f64;
    println!("  over the link              {:>7.1} ms", copies_s * 1e3);
    println!(
        "  ratio                      {:>7.2}",
        taken.as_secs_f64() / copies_s
    );
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Makes buffers and drops them, one after the other, placed by a command each.
fn make_and_drop(gpu: &Gpu) -> Result<Duration> {
    let begun = Instant::now();
    for _ in 0..BUFFERS {
        gpu.buffer_zeroed(4096)?;
    }
    gpu.finish()?;
    Ok(begun.elapsed())
}

fn cost() -> Result<()> {
    let (alone, among) = (open(None)?, open(None)?);
    let share = among.share("share", ShareOptions::guaranteed(MIB))?;
    let inner = share.share("inner", ShareOptions::guaranteed(0).with_ceiling(1 << 40))?;
    let rows = [
        ("no share", &alone),
        ("beside shares", &among),
        ("in a share", &share),
        ("in a share in a share", &inner),
    ];
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (times, (_, gpu)) in times.iter_mut().zip(rows) {
            times.push(make_and_drop(gpu)?);
        }
    }
    println!("a buffer of 4 KiB made, zeroed and dropped");
    let base = median(times[0].clone());
    for ((name, _), times) in rows.iter().zip(times) {
        let time = median(times);
        let ns = time.as_nanos() / BUFFERS as u128;
        println!("  {name:<22} {ns:>5} ns   {:.2}", ratio(time, base));
    }
    Ok(())
}

fn ratio(time: Duration, of: Duration) -> f64 {
    time.as_secs_f64() / of.as_secs_f64()
}

fn filled(gpu: &Gpu, count: usize) -> Result<Vec<Buffer>> {
    let words = vec![7_u32; (MIB / 4) as usize];
    let made = (0..count).map(|_| gpu.buffer_from(&words));
    let made = made.collect::<Result<Vec<_>>>()?;
    gpu.finish()?;
    Ok(made)
}

fn on_device(buffers: &[Buffer]) -> usize {
    let here = buffers
        .iter()
        .filter(|one| one.residency() == Residency::Device);
    here.count()
}

/// What two shares of equal demand hold on average, while both go round over more than fits
/// together: whether each has half of it. It is counted after every buffer of both.
fn fairness() -> Result<()> {
    let gpu = open(Some(64 * MIB))?;
    let shares = [
        gpu.share("a", ShareOptions::guaranteed(0))?,
        gpu.share("b", ShareOptions::guaranteed(0))?,
    ];
    let buffers = [
        filled(&shares[0], COMPETING)?,
        filled(&shares[1], COMPETING)?,
    ];
    let (mut held, mut looks) = ([0, 0], 0);
    let said = std::env::var("LAPIDARY_CONTENDED_S");
    let seconds = said.ok().and_then(|said| said.parse().ok());
    let seconds = seconds.unwrap_or(CONTENDED_S);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        for at in 0..COMPETING {
            for (share, buffers) in shares.iter().zip(&buffers) {
                buffers[at].prefetch()?;
                share.flush()?;
            }
            for (held, buffers) in held.iter_mut().zip(&buffers) {
                *held += on_device(buffers);
            }
            looks += 1;
        }
    }
    let mean = held.map(|held| held as f64 / f64::from(looks));
    println!("\ntwo shares that each want {COMPETING} MiB, within 64 MiB, for {seconds} s");
    println!(
        "  {:.1} MiB and {:.1} MiB, ratio {:.3}",
        mean[0],
        mean[1],
        mean[0] / mean[1]
    );
    Ok(())
}

/// What a job does until it should stop. Returns how often it did that.
type Work = fn(Share, &AtomicBool) -> Result<usize>;

/// The time of a frame (one small kernel and its read-back) beside a job that never pauses.
fn latency() -> Result<()> {
    println!("\na frame of one small kernel and its read-back, {FRAMES} times");
    println!("(the job begins 0.5 s before, and compiles its kernels then)");
    frames("alone", None, None)?;
    frames("beside a job of its priority", None, Some((0, multiply)))?;
    frames("beside a job of a lower one", None, Some((-1, multiply)))?;
    let budget_bytes = Some(SMALL_BUDGET_BYTES);
    let job = |work: Work| Some((-1, work));
    let name = "beside one that lacks memory";
    frames(name, budget_bytes, job(evict_and_restore))?;
    frames(
        "beside one that moves 128 MiB",
        budget_bytes,
        job(move_large),
    )?;
    frames("beside one that computes again", None, job(compute_again))
}

fn frames(name: &str, budget_bytes: Option<u64>, job: Option<(i8, Work)>) -> Result<()> {
    let gpu = open(budget_bytes)?;
    let frame = gpu.share("frame", ShareOptions::guaranteed(MIB))?;
    let stops = AtomicBool::new(false);
    let (mut times, steps) = thread::scope(|scope| {
        let job = job.map(|(priority, work)| {
            let job = gpu.share("job", ShareOptions::guaranteed(0).with_priority(priority))?;
            let stops = &stops;
            Ok(scope.spawn(move || work(job, stops)))
        });
        let job = job.transpose()?;
        // The job compiles its kernels first.
        thread::sleep(Duration::from_millis(500));
        let times = frame_times(&frame);
        stops.store(true, Ordering::Relaxed);
        let ended = job.map(thread::ScopedJoinHandle::join);
        let steps = match ended.transpose() {
            Ok(steps) => steps.unwrap_or(Ok(0))?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok::<_, lapidary::Error>((times?, steps))
    })?;
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "  {name:<30} median {:>6.2} ms, 95 % {:>6.2} ms, most {:>6.2} ms",
        ms(times[FRAMES / 2]),
        ms(times[FRAMES * 95 / 100]),
        ms(times[FRAMES - 1]),
    );
    if steps > 0 {
        let stats = gpu.memory().stats();
        println!(
            "{:33}the job: {steps} steps; longest submission {:.2} ms, hold {:.2} ms",
            "",
            stats.longest_submission_ns as f64 / 1e6,
            stats.longest_hold_ns as f64 / 1e6
        );
    }
    Ok(())
}

fn frame_times(frame: &Gpu) -> Result<Vec<Duration>> {
    let x = frame.ones(&[1024], DType::F32)?;
    (&x + 1.0)?.to_vec::<f32>()?;
    let time = |_| {
        let begun = Instant::now();
        (&x + 1.0)?.to_vec::<f32>()?;
        let time = begun.elapsed();
        thread::sleep(PAUSE);
        Ok(time)
    };
    (0..FRAMES).map(time).collect()
}

/// Multiplies matrices, 16 a round.
fn multiply(job: Share, stops: &AtomicBool) -> Result<usize> {
    let w = job.rand_normal(&[512, 512], 0.0, 0.04, 1, DType::F32)?;
    let (mut x, mut done) = (w.copy()?, 0);
    while !stops.load(Ordering::Relaxed) {
        for _ in 0..16 {
            x = x.matmul(&w)?;
        }
        job.flush()?;
        done += 16;
    }
    Ok(done)
}

/// Makes one large buffer, and restores the many small ones that were evicted for it.
fn evict_and_restore(job: Share, stops: &AtomicBool) -> Result<usize> {
    let small = filled(&job, HELD)?;
    let mut done = 0;
    while !stops.load(Ordering::Relaxed) {
        drop(job.buffer_zeroed(LARGE_BYTES)?);
        job.flush()?;
        small.iter().try_for_each(Buffer::prefetch)?;
        job.flush()?;
        done += 1;
    }
    Ok(done)
}

/// Has room for one of two buffers, and needs both in turn.
fn move_large(job: Share, stops: &AtomicBool) -> Result<usize> {
    let words = vec![7_u32; (MOVED_BYTES / 4) as usize];
    let buffers = [job.buffer_from(&words)?, job.buffer_from(&words)?];
    let mut done = 0;
    while !stops.load(Ordering::Relaxed) {
        buffers[done % 2].prefetch()?;
        job.flush()?;
        done += 1;
    }
    Ok(done)
}

/// Drops a matrix and computes it again.
fn compute_again(job: Share, stops: &AtomicBool) -> Result<usize> {
    let w = job.rand_normal(&[512, 512], 0.0, 0.04, 1, DType::F32)?;
    let product = |w: &Tensor| (1..AGAIN).try_fold(w.matmul(w)?, |x, _| x.matmul(w));
    let made = product(&w)?;
    made.recompute_with(&[&w], move |inputs| product(&inputs[0]))?;
    let mut done = 0;
    while !stops.load(Ordering::Relaxed) {
        made.evict()?;
        made.prefetch()?;
        job.flush()?;
        done += 1;
    }
    Ok(done)
}
