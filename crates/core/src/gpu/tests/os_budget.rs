//! Without a limit of the app, the budget follows the operating system's budget for the process.

use crate::units::MIB;
use crate::{Budget, Buffer, Gpu, Options, Result, adapter::AdapterKind};

/// The engine asks the system at every eighth poll, and a rise must last for four answers.
const POLLS: u32 = 8 * 6;

/// How often it is tried.
const ROUNDS: usize = 4;

/// Size of each tensor of the other device.
const PIECE_BYTES: u64 = 64 * MIB;

fn limit_bytes(gpu: &Gpu) -> Result<Option<u64>> {
    (0..POLLS).try_for_each(|_| gpu.poll())?;
    let limit_bytes = gpu.engine.here().driver().ledger().levels().limit_bytes;
    Ok((limit_bytes != u64::MAX).then_some(limit_bytes))
}

/// Takes memory on another device, as another part of the app would.
fn take(bytes: u64) -> Result<Vec<Buffer>> {
    let other = Gpu::open(Options {
        budget: Some(Budget::device(bytes + PIECE_BYTES)),
        ..Options::from_env().unwrap()
    })?;
    let pieces = (0..bytes / PIECE_BYTES).map(|_| other.buffer_zeroed(PIECE_BYTES));
    let pieces = pieces.collect::<Result<Vec<_>>>()?;
    pieces.iter().try_for_each(Buffer::force)?;
    other.finish()?;
    Ok(pieces)
}

#[test]
fn the_limit_follows_what_others_take_and_give_back() -> Result<()> {
    let gpu = Gpu::open(Options {
        budget: Some(Budget::default()),
        ..Options::from_env().unwrap()
    })?;
    let mut stories = Vec::new();
    // A software rasterizer reports the machine's memory, and other programs take and free some.
    while stories.len() < ROUNDS {
        let Some(before_bytes) = limit_bytes(&gpu)? else {
            // Only a software rasterizer may not report its memory.
            assert_eq!(gpu.caps().kind, AdapterKind::Cpu);
            return Ok(());
        };
        // The engine ignores a rise of less than 1/20 of the limit.
        let bytes = before_bytes / 8 / PIECE_BYTES * PIECE_BYTES;
        let taken = take(bytes)?;
        let during_bytes = limit_bytes(&gpu)?.expect("it told before");
        drop(taken);
        let after_bytes = limit_bytes(&gpu)?.expect("it told before");
        let fell_bytes = before_bytes.saturating_sub(during_bytes);
        let rose_bytes = after_bytes.saturating_sub(during_bytes);
        if fell_bytes.min(rose_bytes) >= bytes / 2 {
            return Ok(());
        }
        stories.push(format!(
            "{before_bytes}, {during_bytes} while others had {bytes}, {after_bytes}"
        ));
    }
    panic!("the limit did not follow: {stories:?}");
}
