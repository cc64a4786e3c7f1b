//! A search for bytes of one share in what another one can read. It looks at blocks that nobody
//! wrote, and at parts of blocks. It also looks at blocks that moved, and at those that came back
//! from the host's memory or the disk. `device::isolation` looks at padding, by kernels.
//!
//! `LAPIDARY_HAND_OVERS` sets how often memory passes from one share to another meanwhile,
//! `LAPIDARY_SEED` the seed.

use fastrand::Rng;
use lapidary::shares::{Share, ShareOptions};
use lapidary::sim::{Fault, FaultKind, SimHandle, SimOptions, Site};
use lapidary::{Budget, Buffer, DType, Gpu, Kernel, Options, Result};

use super::tenant::Tenant;
use super::{MIB, assert_filled, filled, with_handle};
use crate::programs::number;

impl Tenant {
    /// Panics if any word is another share's. A loan is looked at as by its lender, whose words
    /// the borrower may read.
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

    /// Makes a buffer: zeroed, written, written in part, or not at all.
    fn make(&mut self, random: &mut Rng) -> Option<()> {
        let size_bytes = random.u64(1..40_000);
        let what = random.u32(0..4);
        let buffer = match what {
            3 => self.gpu.buffer_zeroed(size_bytes).ok()?,
            _ => self.gpu.buffer(size_bytes).ok()?,
        };
        let pattern = self
            .word()
            .to_le_bytes()
            .repeat(size_bytes.div_ceil(4) as usize);
        match what {
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

/// A buffer that one share lends to another one. It may be the last holder.
struct Loan {
    lender: usize,
    buffer: Buffer,
}

/// Lends a buffer, or lets the borrower use or drop a loan. Nothing is copied: a copy would be the
/// borrower's own, with the lender's words.
fn lend(random: &mut Rng, tenants: &[Tenant], loans: &mut Vec<Loan>) -> Option<()> {
    let (lender, borrower) = (
        random.usize(0..tenants.len()),
        random.usize(0..tenants.len()),
    );
    if lender != borrower && loans.len() < 20 {
        let buffer = random.choice(&tenants[lender].buffers)?;
        let buffer = buffer.lend_to(&tenants[borrower].gpu).ok()?;
        loans.push(Loan { lender, buffer });
    }
    let index = random.usize(0..loans.len().max(1));
    let loan = loans.get(index)?;
    match random.u32(0..4) {
        0 => drop(loans.swap_remove(index)),
        1 => loan.buffer.evict().ok()?,
        2 => loan.buffer.prefetch().ok()?,
        _ => tenants[loan.lender].look(&loan.buffer, "in a loan"),
    }
    Some(())
}

/// A device of 1 MiB. What is evicted goes to the spill file before long, as the host's memory has
/// room for little.
fn open(maps_slabs: bool, dirty: bool, host_bytes: u64) -> (Gpu, SimHandle) {
    let device = SimOptions {
        maps_slabs,
        host_heap: true,
        dirty,
        ..SimOptions::default()
    };
    let budget = Budget {
        host_bytes: Some(host_bytes),
        ..Budget::device(MIB)
    };
    let options = Options {
        budget: Some(budget),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).unwrap()
}

/// Random steps of several shares on one device, until memory has passed from one share to another
/// so often. Returns the steps.
fn program(seed: u64, hand_overs: u64, maps_slabs: bool, has_faults: bool) -> u64 {
    let mut random = Rng::with_seed(seed);
    let (gpu, sim) = open(maps_slabs, true, 100 << 10);
    let nested = gpu
        .share("outer", ShareOptions::guaranteed(200 << 10))
        .unwrap();
    let a = gpu.share("a", ShareOptions::guaranteed(0)).unwrap();
    let b = nested.share("b", ShareOptions::guaranteed(100 << 10));
    let gpus = [&gpu, a.gpu(), b.unwrap().gpu(), nested.gpu()].map(Gpu::clone);
    drop((a, nested));
    let (mut tenants, mut loans, mut steps) = (Tenant::of(gpus), Vec::new(), 0);
    while steps % 100 != 0 || gpu.memory().stats().hand_overs < hand_overs {
        steps += 1;
        assert!(steps <= 100 * hand_overs, "memory stays where it is");
        if has_faults && random.u32(0..50) == 0 {
            let site = [Site::Submit, Site::CreateBuffer][random.usize(0..2)];
            sim.arm(Fault::once(site, random.u64(1..4), FaultKind::OutOfMemory));
        }
        let at = random.usize(0..=tenants.len());
        match tenants.get_mut(at) {
            Some(tenant) => tenant.step(&mut random),
            None => lend(&mut random, &tenants, &mut loans),
        };
    }
    for tenant in &tenants {
        tenant
            .buffers
            .iter()
            .for_each(|one| tenant.look(one, "at the end"));
    }
    for loan in &loans {
        tenants[loan.lender].look(&loan.buffer, "in a loan at the end");
    }
    let spilled_bytes = gpu.memory().stats().spilled_bytes;
    assert!(spilled_bytes.peak > 0, "nothing was spilled");
    steps
}

#[test]
fn no_share_reads_bytes_of_another() {
    let seed = number("LAPIDARY_SEED").unwrap_or_else(|| fastrand::u64(..));
    let hand_overs = number("LAPIDARY_HAND_OVERS").unwrap_or(3000);
    for (maps_slabs, has_faults) in [(false, false), (true, false), (false, true), (true, true)] {
        eprintln!("LAPIDARY_SEED={seed} LAPIDARY_HAND_OVERS={hand_overs}");
        let steps = program(seed, hand_overs / 4, maps_slabs, has_faults);
        println!("maps_slabs {maps_slabs}, has_faults {has_faults}: {steps} steps");
    }
}

#[test]
fn a_buffer_zeroed_in_memory_of_another_share_is_cleared_once() {
    let (gpu, sim) = Gpu::simulated(SimOptions {
        dirty: true,
        ..SimOptions::default()
    })
    .unwrap();
    let share = gpu.share("share", ShareOptions::guaranteed(0)).unwrap();
    let words = vec![7_u32; 1000];
    let buffer = gpu.buffer_from(&words).unwrap();
    gpu.finish().unwrap();
    drop(buffer);
    let clears = sim.counters().clears;
    let zeroed = share.buffer_zeroed(4000).unwrap();
    assert_eq!(zeroed.to_vec::<u32>().unwrap(), [0; 1000]);
    assert_eq!(gpu.memory().stats().hand_overs, 1);
    assert_eq!(sim.counters().clears - clears, 1);
}

#[test]
fn a_buffer_is_zeroed_as_a_whole_where_a_shorter_one_was_handed_over() {
    let (gpu, _sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let share = gpu.share("share", ShareOptions::guaranteed(0)).unwrap();
    let words = vec![7_u32; 1024];
    let foreign = gpu.buffer_from(&words).unwrap();
    let own = share.buffer_from(&words).unwrap();
    gpu.finish().unwrap();
    drop((foreign, own));
    // It gets the foreign block, and leaves it before any op has cleared that.
    let shorter = share.buffer(4096).unwrap();
    shorter.prefetch().unwrap();
    drop(shorter);
    let zeroed = share.buffer_zeroed(8192).unwrap();
    assert_eq!(zeroed.to_vec::<u32>().unwrap(), [0; 2048]);
}

#[test]
fn the_host_clears_what_is_claimed_where_it_maps_slabs() {
    let device = SimOptions {
        maps_slabs: true,
        ..SimOptions::default()
    };
    let options = Options {
        budget: Some(Budget::device(MIB)),
        ..Options::from_env().unwrap()
    };
    let (gpu, sim) = Gpu::simulated_with(device, options).unwrap();
    let owner = gpu
        .share("owner", ShareOptions::guaranteed(300 << 10))
        .unwrap();
    let borrower = gpu.share("borrower", ShareOptions::guaranteed(0)).unwrap();
    let words = vec![7_u32; 25_000];
    let lent: Vec<Buffer> = (0..12)
        .map(|_| borrower.buffer_from(&words).unwrap())
        .collect();
    gpu.finish().unwrap();
    let clears = sim.counters().clears;
    let claimed = [(); 2].map(|()| owner.buffer(100_000).unwrap());
    for buffer in &claimed {
        assert_eq!(buffer.to_vec::<u32>().unwrap(), [0; 25_000]);
    }
    assert!(gpu.memory().stats().hand_overs >= 1);
    assert_eq!(sim.counters().clears, clears);
    for buffer in &lent {
        assert_eq!(buffer.to_vec::<u32>().unwrap(), words);
    }
}

/// Copies what a binding has, also behind the end of the buffer.
const PRY: &str = "
    @group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> found: array<u32>;

    @compute @workgroup_size(64)
    fn pry(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < min(arrayLength(&found), arrayLength(&x)) {
            found[id.x] = x[id.x];
        }
    }
";

/// A share that writes one byte everywhere, so that a single byte of it can be found.
struct Marker {
    share: Share,
    mark: u8,
    buffers: Vec<Buffer>,
}

impl Marker {
    /// Makes a buffer of any number of bytes, written as a whole or from any word on.
    fn make(&mut self, random: &mut Rng) -> Result<()> {
        let size_bytes = random.u64(1..300);
        let bytes = vec![self.mark; size_bytes as usize];
        let buffer = match random.bool() {
            true => self.share.buffer_from(&bytes)?,
            false => {
                let buffer = self.share.buffer(size_bytes)?;
                let from = random.u64(0..size_bytes.div_ceil(4)) * 4;
                let part = buffer.slice(from..size_bytes)?;
                part.write(&bytes[..part.size_bytes() as usize])?;
                buffer
            }
        };
        self.buffers.push(buffer);
        Ok(())
    }

    /// Panics if a kernel or the host finds any byte that is not its own.
    fn look(&self, pry: &Kernel, buffer: &Buffer) -> Result<()> {
        // As much as a binding may have behind the end.
        let words = buffer.size_bytes() as usize / 4 + 64;
        let call = pry
            .call()
            .bind("x", buffer)
            .out("found", &[words], DType::U32);
        let found = call.groups([words.div_ceil(64) as u32, 1, 1]).run_one()?;
        let found = found
            .to_vec::<u32>()?
            .into_iter()
            .flat_map(u32::to_le_bytes);
        for (at, byte) in found.chain(buffer.to_vec::<u8>()?).enumerate() {
            let mark = self.mark;
            assert!(
                byte == mark || byte == 0,
                "{mark:#x} found {byte:#x} at {at} of {buffer}"
            );
        }
        Ok(())
    }

    fn step(&mut self, random: &mut Rng, pry: &Kernel) -> Result<()> {
        if self.buffers.len() < 8 {
            return self.make(random);
        }
        let index = random.usize(0..self.buffers.len());
        match random.u32(0..6) {
            0 | 1 => drop(self.buffers.swap_remove(index)),
            2 => self.buffers[index].evict()?,
            3 => self.buffers.push(self.buffers[index].copy()?),
            4 => drop(self.share.memory().compact(MIB)?),
            _ => self.look(pry, &self.buffers[index])?,
        }
        Ok(())
    }
}

/// Whole words hide a few bytes of another share in the padding behind an odd number of bytes.
#[test]
fn no_share_finds_a_single_byte_of_another_in_padding() -> Result<()> {
    for maps_slabs in [false, true] {
        let seed = number("LAPIDARY_SEED").unwrap_or_else(|| fastrand::u64(..));
        eprintln!("LAPIDARY_SEED={seed}, maps_slabs {maps_slabs}");
        let mut random = Rng::with_seed(seed);
        // New memory has zeros, so that every other byte was written by a share.
        let (gpu, _sim) = open(maps_slabs, false, 2 << 10);
        let pry = Kernel::new(&gpu, PRY)?;
        let mut markers = Vec::new();
        for mark in [0xa1, 0xb2, 0xc3, 0xd4] {
            markers.push(Marker {
                share: gpu.share(&format!("{mark:x}"), ShareOptions::guaranteed(0))?,
                mark,
                buffers: Vec::new(),
            });
        }
        for _ in 0..3000 {
            let at = random.usize(0..markers.len());
            markers[at].step(&mut random, &pry)?;
        }
        for marker in &markers {
            let mut buffers = marker.buffers.iter();
            buffers.try_for_each(|buffer| marker.look(&pry, buffer))?;
        }
        let stats = gpu.memory().stats();
        assert!(stats.hand_overs > 100, "{} hand-overs", stats.hand_overs);
        let evictions = stats.shares.iter().map(|one| one.evictions);
        assert!(evictions.sum::<u64>() > 100, "nothing was evicted");
    }
    Ok(())
}

/// Compaction moves the buffers of one share over what another share left, which is cleared first.
/// If the driver refuses both, they come again in that order.
#[test]
fn a_refused_move_over_what_another_share_left_comes_after_its_clear() {
    for (maps_slabs, faults) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let (gpu, sim) = with_handle(8 * MIB, maps_slabs);
        let shares =
            ["one", "other"].map(|name| gpu.share(name, ShareOptions::guaranteed(0)).unwrap());
        let pairs = (0..24).map(|_| [0, 1].map(|at| filled(&shares[at], 64 << 10, 7)));
        let (left, kept): (Vec<Buffer>, Vec<Buffer>) =
            pairs.map(|[left, kept]| (left, kept)).unzip();
        gpu.finish().unwrap();
        drop(left);
        for _ in 0..faults {
            sim.arm(Fault::once(Site::Submit, 1, FaultKind::OutOfMemory));
            let compacted = gpu.memory().compact(8 * MIB).unwrap();
            gpu.flush().unwrap();
            assert!(faults > 1 || compacted.moved_bytes > 0, "{compacted:?}");
        }
        assert!(sim.counters().faults > 0);
        sim.disarm();
        assert_filled(&kept, 7);
        assert!(gpu.memory().stats().cleared_bytes > 0);
        drop(kept);
    }
}
