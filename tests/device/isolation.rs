//! Memory that passes from one share to another, on a real device: kernels with wrong indices find
//! no byte of others.

use fastrand::Rng;
use lapidary::shares::ShareOptions;
use lapidary::{Budget, Buffer, DType, Error, Gpu, Kernel, Options, Residency, Result, Tensor};

use super::app::App;
use super::tenant::Tenant;
use crate::programs::number;

const MIB: u64 = 1 << 20;

/// Copies what it finds at any index: within the buffer, in its padding, and beyond.
const PRY: &str = "
    @group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> found: array<u32>;

    @compute @workgroup_size(64)
    fn pry(@builtin(global_invocation_id) id: vec3<u32>) {
        let i = id.x;
        if i < arrayLength(&found) {
            // Far behind the end, and before the beginning.
            let far = select(i, i * 977u + 12345u, i % 3u == 1u);
            found[i] = x[select(far, 0u - i, i % 3u == 2u)];
        }
    }
";

/// Writes to all indices, also to those beyond the end.
const SPILL: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<u32>;
    @group(0) @binding(1) var<uniform> word: u32;

    @compute @workgroup_size(64)
    fn spill(@builtin(global_invocation_id) id: vec3<u32>) {
        x[id.x] = word;
        x[id.x * 31u + 7u] = word;
    }
";

/// What a kernel with wrong indices found in a buffer, when it is looked at.
struct Found {
    words: Tensor,
    when: &'static str,
}

/// Kernels that serve all shares: one that reads anywhere, and one that writes anywhere.
struct Kernels {
    pry: Kernel,
    spill: Kernel,
}

impl Kernels {
    fn pry(&self, buffer: &Buffer, when: &'static str) -> Result<Found> {
        let seen = buffer.size_bytes() + 4096;
        let call = self.pry.call().bind("x", buffer);
        let call = call.out("found", &[seen as usize / 4], DType::U32);
        let call = call.groups([seen.div_ceil(256) as u32, 1, 1]);
        Ok(Found {
            words: call.run_one()?,
            when,
        })
    }

    /// Writes everywhere, also where it must not, and looks before and after.
    fn write(&self, tenant: &Tenant, buffer: &Buffer) -> Result<[Found; 2]> {
        let before = self.pry(buffer, "before it wrote")?;
        let call = self.spill.call().bind("x", buffer).params(&tenant.word());
        let groups = buffer.size_bytes().div_ceil(256) as u32;
        call.groups([groups, 1, 1]).run()?;
        Ok([before, self.pry(buffer, "after it wrote")?])
    }
}

/// Several shares on one device, each with a kernel's view of what it may reach.
struct Shared {
    gpu: Gpu,
    kernels: Kernels,
    tenants: Vec<Tenant>,
    /// Each tenant's part of one buffer of the app.
    imports: Vec<Buffer>,
}

/// The shares of [`Shared`]: the device, two with guarantees, and one that borrows all it has.
const SHARES: u64 = 4;

/// What a share is guaranteed that is guaranteed anything.
const GUARANTEED: u64 = MIB / 4;

/// The most buffers that a share holds between two steps.
const MOST_HELD: usize = 40;

impl Shared {
    fn new(app: &App) -> Result<Shared> {
        // What is evicted goes to the spill file before long.
        let options = Options {
            budget: Some(Budget {
                host_bytes: Some(32 << 10),
                ..Budget::device(MIB)
            }),
            ..Options::from_env().unwrap()
        };
        let gpu = Gpu::adopt_with(&app.adapter, &app.device, &app.queue, options)?;
        let kernels = Kernels {
            pry: Kernel::new(&gpu, PRY)?,
            spill: Kernel::new(&gpu, SPILL)?,
        };
        let share = |name, bytes: u64| {
            let share = gpu.share(name, ShareOptions::guaranteed(bytes))?;
            Ok::<_, Error>(share.gpu().clone())
        };
        let tenants = Tenant::of([
            gpu.clone(),
            share("a", GUARANTEED)?,
            share("b", GUARANTEED)?,
            share("borrower", 0)?,
        ]);
        let whole = app.buffer(SHARES * 4096);
        let imports = tenants.iter().zip(0..).map(|(tenant, part)| {
            let range = part * 4096..(part + 1) * 4096;
            let tensor = tenant.gpu.import(&whole, range, &[1024], DType::U32)?;
            let imported = tensor.buffer();
            Ok(imported.expect("it is the whole tensor"))
        });
        Ok(Shared {
            imports: imports.collect::<Result<_>>()?,
            gpu,
            kernels,
            tenants,
        })
    }

    /// Some buffers of one share come, and others go. Looks at all of the new ones.
    fn step(&mut self, random: &mut Rng) -> Result<()> {
        let at = random.usize(..self.tenants.len());
        let (tenant, kernels) = (&mut self.tenants[at], &self.kernels);
        // A share that claims all of its guarantee at once takes it back from who has borrowed.
        let (count, most_words) = match random.u32(0..12) {
            0 => (4, GUARANTEED / 4 / 5),
            1 => (1, 30_000),
            _ => (6, 4_000),
        };
        let mut found = Vec::new();
        for _ in 0..count {
            let buffer = tenant.gpu.buffer(4 * random.u64(1..=most_words))?;
            found.extend(kernels.write(tenant, &buffer)?);
            tenant.buffers.push(buffer);
        }
        match random.u32(0..12) {
            0 => drop(tenant.gpu.memory().compact(MIB)?),
            1 => random
                .choice(&tenant.buffers)
                .map_or(Ok(()), Buffer::evict)?,
            2 => random
                .choice(&tenant.buffers)
                .map_or(Ok(()), Buffer::prefetch)?,
            3 => found.extend(kernels.write(tenant, &self.imports[at])?),
            4 => {
                let buffer = tenant.gpu.buffer(4 * random.u64(1..2_000))?;
                check(&buffer.to_vec()?, tenant, "read by the host");
            }
            _ => {}
        }
        while tenant.buffers.len() > MOST_HELD {
            let gone = random.usize(..tenant.buffers.len());
            tenant.buffers.swap_remove(gone);
        }
        for one in found {
            check(&one.words.to_vec()?, tenant, one.when);
        }
        Ok(())
    }

    /// Each share finds what it wrote, and nothing else.
    fn look_at_all(&self) -> Result<()> {
        for (tenant, import) in self.tenants.iter().zip(&self.imports) {
            self.kernels.write(tenant, import)?;
            for buffer in tenant.buffers.iter().chain([import]) {
                let found = self.kernels.pry(buffer, "at the end")?;
                check(&found.words.to_vec()?, tenant, found.when);
                let words = buffer.to_vec::<u32>()?;
                assert!(words.iter().all(|word| *word == tenant.word()), "{buffer}");
            }
        }
        Ok(())
    }
}

/// Panics if a word is another share's.
fn check(words: &[u32], tenant: &Tenant, when: &str) {
    let foreign = words.iter().find(|word| tenant.is_foreign(**word));
    assert_eq!(foreign, None, "share {} found it {when}", tenant.number);
}

/// `LAPIDARY_HAND_OVERS` sets how often memory passes from one share to another, `LAPIDARY_SEED`
/// the seed.
#[test]
fn kernels_with_wrong_indices_find_no_bytes_of_other_shares() -> Result<()> {
    let seed = number("LAPIDARY_SEED").unwrap_or_else(|| fastrand::u64(..));
    let hand_overs = number("LAPIDARY_HAND_OVERS").unwrap_or(1200);
    for maps in [false, true] {
        eprintln!("LAPIDARY_SEED={seed} LAPIDARY_HAND_OVERS={hand_overs}, mapped: {maps}");
        let app = App::open_mapping(maps);
        let (mut shared, mut random) = (Shared::new(&app)?, Rng::with_seed(seed));
        if maps && !shared.gpu.caps().maps_slabs {
            eprintln!("this adapter's slabs cannot be mapped");
            continue;
        }
        let mut steps = 0;
        while shared.gpu.memory().stats().hand_overs < hand_overs / 2 {
            (0..20).try_for_each(|_| shared.step(&mut random))?;
            steps += 20;
            assert!(steps <= 10 * hand_overs, "memory stays where it is");
        }
        shared.look_at_all()?;
        let stats = shared.gpu.memory().stats();
        println!("{steps} steps, {} hand-overs", stats.hand_overs);
        assert!(stats.spilled_bytes.peak > 0, "nothing was spilled");
        assert!(
            stats.shares.iter().any(|one| one.evictions > 0),
            "nothing was claimed"
        );
    }
    Ok(())
}

#[test]
fn copies_go_to_other_shares_and_devices() {
    let open = || Gpu::open(Options::from_env().unwrap()).unwrap();
    let (gpu, other) = (open(), open());
    let share = gpu.share("share", ShareOptions::guaranteed(0)).unwrap();
    let words: Vec<u32> = (0..3_000_000).collect();
    let buffer = gpu.buffer_from(&words).unwrap();
    for there in [&share, &other] {
        let copy = buffer.to(there).unwrap();
        // What is written later does not show in the copy.
        buffer.slice(0..4).unwrap().write(&[7_u32]).unwrap();
        assert_eq!(copy.to_vec::<u32>().unwrap(), words);
        buffer.slice(0..4).unwrap().write(&[0_u32]).unwrap();
        // A slice that ends inside a word brings no byte of what follows.
        let part = buffer.slice(4..13).unwrap().to(there).unwrap();
        assert_eq!(part.to_vec::<u8>().unwrap(), [1, 0, 0, 0, 2, 0, 0, 0, 3]);
        let empty = buffer.slice(8..8).unwrap().to(there).unwrap();
        assert!(empty.is_empty());
        let t = gpu.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
        let t = t.t().unwrap().to(there).unwrap();
        assert_eq!(t.to_vec::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
        assert_eq!(
            (&t + &t).unwrap().to_vec::<f32>().unwrap(),
            [2.0, 6.0, 4.0, 8.0]
        );
    }
}

#[test]
fn a_kernel_reads_what_another_share_lends_and_does_not_write_it() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let share = gpu.share("share", ShareOptions::guaranteed(0)).unwrap();
    let words: Vec<u32> = (0..5000).map(|word| word * 3).collect();
    let lent = gpu.buffer_from(&words).unwrap().lend_to(&share).unwrap();
    let pry = Kernel::new(&gpu, PRY).unwrap();
    // A slice that begins where no binding can, so the kernel gets a copy of it in the share.
    for (from, part) in [(0, lent.clone()), (1, lent.slice(4..20_000).unwrap())] {
        let call = pry.call().bind("x", &part).groups([8, 1, 1]);
        let found = call.out("found", &[512], DType::U32).run_one().unwrap();
        assert_eq!(found.tag().share(), Some("share"));
        let first = found.to_vec::<u32>().unwrap()[3];
        assert_eq!(first, words[from + 3]);
    }
    let spill = Kernel::new(&gpu, SPILL).unwrap();
    let call = spill.call().bind("x", &lent).params(&7_u32);
    let error = call.groups([1, 1, 1]).run().unwrap_err();
    assert!(matches!(error, Error::Lent { .. }), "{error}");
    assert_eq!(lent.to_vec::<u32>().unwrap(), words);
}

#[test]
fn a_guarantee_comes_back_on_a_real_device() {
    let options = Options {
        budget: Some(Budget::device(50 * MIB)),
        ..Options::from_env().unwrap()
    };
    let gpu = Gpu::open(options).unwrap();
    let frame = gpu
        .share("frame", ShareOptions::guaranteed(32 * MIB))
        .unwrap();
    let job = gpu.share("job", ShareOptions::guaranteed(0)).unwrap();
    let fill = |gpu: &Gpu, count: usize, word: u32| -> Vec<Buffer> {
        let words = vec![word; MIB as usize / 4];
        let made = (0..count).map(|_| gpu.buffer_from(&words).unwrap());
        made.collect()
    };
    let lent = fill(&job, 45, 1);
    gpu.finish().unwrap();
    let wanted: Vec<_> = (0..32).map(|_| frame.buffer(MIB).unwrap()).collect();
    wanted.iter().for_each(|one| one.prefetch().unwrap());
    frame.finish().unwrap();
    let here = wanted
        .iter()
        .filter(|one| one.residency() == Residency::Device);
    eprintln!("{}", gpu.memory().stats());
    assert_eq!(here.count(), 32);
    for buffer in &lent {
        assert!(
            buffer
                .to_vec::<u32>()
                .unwrap()
                .iter()
                .all(|word| *word == 1)
        );
    }
}
