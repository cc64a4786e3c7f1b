//! A guarantee that is lent, and how long it takes to come back.

use std::time::{Duration, Instant};

use lapidary::shares::ShareOptions;
use lapidary::{Budget, Buffer, Gpu, Residency, Result};

use crate::{MIB, ROUNDS, filled, median, on_device, ratio};

/// The guarantee that is claimed, in buffers of 1 MiB.
const CLAIMED: usize = 64;

/// The same in bytes.
pub(crate) const BYTES: u64 = CLAIMED as u64 * MIB;

/// The time until a guarantee is there, beside that of evicting the same bytes because the budget
/// was lowered.
///
/// `open` opens a device with a budget. Returns the first of the two times.
pub(crate) fn compare(open: impl Fn(u64) -> Result<Gpu>) -> Result<Duration> {
    let budget_bytes = 100 * MIB;
    let (mut claims, mut moves) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let gpu = open(budget_bytes)?;
        let frame = gpu.share("frame", ShareOptions::guaranteed(BYTES))?;
        let job = gpu.share("job", ShareOptions::guaranteed(0))?;
        let lent = filled(&job, 90)?;
        let begun = Instant::now();
        let wanted: Vec<_> = (0..CLAIMED)
            .map(|_| frame.buffer(MIB))
            .collect::<Result<_>>()?;
        wanted.iter().try_for_each(Buffer::prefetch)?;
        frame.finish()?;
        claims.push(begun.elapsed());
        assert!(
            wanted
                .iter()
                .all(|one| one.residency() == Residency::Device)
        );
        drop((lent, wanted));

        let gpu = open(budget_bytes)?;
        let held = filled(&gpu, 90)?;
        let before = on_device(&held);
        let begun = Instant::now();
        gpu.memory()
            .set_budget(Budget::device(budget_bytes - BYTES))?;
        let moved = before - on_device(&held);
        moves.push(begun.elapsed().mul_f64(CLAIMED as f64 / moved as f64));
    }
    let (claims, moves) = (median(claims), median(moves));
    println!("\na guarantee of {CLAIMED} MiB, all of it lent");
    println!(
        "  until it is there          {:>7.1} ms",
        claims.as_secs_f64() * 1e3
    );
    println!(
        "  evicting the same bytes    {:>7.1} ms",
        moves.as_secs_f64() * 1e3
    );
    println!("  ratio                      {:>7.2}", ratio(claims, moves));
    Ok(claims)
}
