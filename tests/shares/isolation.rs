//! A search for bytes of one share in what another one can read: blocks that nobody wrote, parts of
//! blocks, padding, what moved, what was evicted to the host's memory or the disk and came back.
//!
//! `LAPIDARY_STEPS` sets the number of steps, `LAPIDARY_SEED` the seed.

use fastrand::Rng;
use lapidary::shares::Share;
use lapidary::sim::{Fault, FaultKind, SimOptions, Site};
use lapidary::{Budget, Buffer, Gpu, Options};

use super::MIB;
use super::tenant::Tenant;
use crate::pressure::number;

impl Tenant {
    /// Panics if any word is another share's.
    fn look(&self, buffer: &Buffer, when: &str) {
        let Ok(bytes) = buffer.to_vec::<u8>() else {
            return;
        };
        let words = bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        for (at, word) in words.enumerate() {
            // The simulated device fills new buffers with anything.
            let is_foreign = self.is_foreign(word) && word >> 16 < 8;
            assert!(
                !is_foreign,
                "share {} {when}: {word:#x} in word {at} of {buffer}",
                self.number
            );
        }
    }

    /// Makes a buffer: written, written in part, or not at all.
    fn make(&mut self, random: &mut Rng) -> Option<()> {
        let size_bytes = random.u64(1..40_000);
        let buffer = self.gpu.buffer(size_bytes).ok()?;
        let pattern = self
            .word()
            .to_le_bytes()
            .repeat(size_bytes.div_ceil(4) as usize);
        match random.u32(0..3) {
            0 => buffer.write(&pattern[..size_bytes as usize]).ok()?,
            1 => {
                let end = random.u64(0..=size_bytes / 4) * 4;
                let part = buffer.slice(end / 8 * 4..end).ok()?;
                part.write(&pattern[..part.size_bytes() as usize]).ok()?;
            }
            _ => {}
        }
        self.buffers.push(buffer);
        Some(())
    }

    fn step(&mut self, random: &mut Rng) -> Option<()> {
        if self.buffers.is_empty() || random.u32(0..5) == 0 {
            return self.make(random);
        }
        let index = random.usize(0..self.buffers.len());
        match random.u32(0..8) {
            0 | 1 => drop(self.buffers.swap_remove(index)),
            2 => self.buffers[index].evict().ok()?,
            3 => self.buffers[index].prefetch().ok()?,
            4 => {
                let copy = self.buffers[index].copy().ok()?;
                self.look(&copy, "copied");
            }
            5 => drop(self.gpu.memory().compact(random.u64(0..MIB)).ok()?),
            6 if self.buffers.len() > 40 => self.buffers.truncate(20),
            _ => self.look(&self.buffers[index], "read"),
        }
        Some(())
    }
}

/// Random steps of several shares on one device. Returns the hand-overs.
fn program(seed: u64, steps: u64, maps_slabs: bool, has_faults: bool) -> u64 {
    let mut random = Rng::with_seed(seed);
    let device = SimOptions {
        maps_slabs,
        dirty: true,
        ..SimOptions::default()
    };
    // What is evicted goes to the spill file before long.
    let budget = Budget {
        host_bytes: Some(100 << 10),
        ..Budget::device(MIB)
    };
    let options = Options {
        budget: Some(budget),
        ..Options::default()
    };
    let (gpu, sim) = Gpu::simulated_with(device, options).unwrap();
    let nested = gpu.share("outer", Share::guaranteed(200 << 10)).unwrap();
    let gpus = [
        gpu.clone(),
        gpu.share("a", Share::guaranteed(0)).unwrap(),
        nested.share("b", Share::guaranteed(100 << 10)).unwrap(),
        nested,
    ];
    let mut tenants = Tenant::of(gpus);
    for _ in 0..steps {
        if has_faults && random.u32(0..50) == 0 {
            let site = [Site::Submit, Site::CreateBuffer][random.usize(0..2)];
            sim.arm(Fault::once(site, random.u64(1..4), FaultKind::OutOfMemory));
        }
        let at = random.usize(0..tenants.len());
        tenants[at].step(&mut random);
    }
    for tenant in &tenants {
        tenant
            .buffers
            .iter()
            .for_each(|one| tenant.look(one, "at the end"));
    }
    let stats = gpu.memory().stats();
    assert!(stats.spilled_bytes.peak > 0, "nothing was spilled");
    stats.hand_overs
}

#[test]
fn no_share_reads_bytes_of_another() {
    let seed = number("LAPIDARY_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = number("LAPIDARY_STEPS").unwrap_or(3000);
    let mut hand_overs = 0;
    for (maps_slabs, has_faults) in [(false, false), (true, false), (false, true), (true, true)] {
        eprintln!("LAPIDARY_SEED={seed} LAPIDARY_STEPS={steps}, {maps_slabs}, {has_faults}");
        hand_overs += program(seed, steps, maps_slabs, has_faults);
    }
    println!("{hand_overs} hand-overs");
    assert!(hand_overs >= steps / 2, "{hand_overs}");
}
