//! Memory that passes from one share to another, on a real device: kernels with wrong indices find
//! no byte of others.

use fastrand::Rng;
use lapidary::shares::Share;
use lapidary::{Budget, Buffer, DType, Error, Gpu, Kernel, Options, Residency};

use super::app::App;
use super::tenant::Tenant;

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

impl Tenant {
    fn look(&self, pry: &Kernel, buffer: &Buffer, when: &str) {
        let seen = buffer.size_bytes() + 4096;
        let found = pry
            .call()
            .bind("x", buffer)
            .out("found", &[seen as usize / 4], DType::U32);
        let found = found.groups([seen.div_ceil(256) as u32, 1, 1]).run_one();
        let words = found.unwrap().to_vec::<u32>().unwrap();
        let foreign = words.into_iter().find(|word| self.is_foreign(*word));
        assert_eq!(
            foreign, None,
            "share {} found it {when} in {buffer}",
            self.number
        );
    }

    /// Writes everywhere, also where it must not, and looks before and after.
    fn write(&self, (pry, spill): (&Kernel, &Kernel), buffer: &Buffer) {
        self.look(pry, buffer, "before it wrote");
        let call = spill.call().bind("x", buffer).params(&self.word());
        let groups = buffer.size_bytes().div_ceil(256) as u32;
        call.groups([groups, 1, 1]).run().unwrap();
        self.look(pry, buffer, "after it wrote");
    }
}

#[test]
fn kernels_with_wrong_indices_find_no_bytes_of_other_shares() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    // What is evicted goes to the spill file before long.
    let budget = Budget {
        host_bytes: Some(32 << 10),
        ..Budget::device(3 * MIB)
    };
    let options = Options {
        budget: Some(budget),
        ..Options::default()
    };
    let app = App::open();
    let gpu = Gpu::adopt_with(&app.adapter, &app.device, &app.queue, options).unwrap();
    // One kernel serves all shares.
    let (pry, spill) = (
        Kernel::new(&gpu, PRY).unwrap(),
        Kernel::new(&gpu, SPILL).unwrap(),
    );
    let share = |name| gpu.share(name, Share::guaranteed(MIB / 2)).unwrap();
    let gpus = [gpu.clone(), share("a"), share("b")];
    let mut tenants = Tenant::of(gpus);
    // Each imports its own part of one buffer of the app.
    let whole = app.buffer(3 * 4096);
    let imports = tenants.iter().zip([0, 4096, 8192]).map(|(tenant, start)| {
        let part = start..start + 4096;
        let tensor = tenant.gpu.import(&whole, part, &[1024], DType::U32);
        tensor.unwrap().buffer().unwrap()
    });
    let imports: Vec<Buffer> = imports.collect();
    for _ in 0..600 {
        let at = random.usize(0..tenants.len());
        let tenant = &mut tenants[at];
        let buffer = tenant.gpu.buffer(4 * random.u64(1..30_000)).unwrap();
        tenant.write((&pry, &spill), &buffer);
        tenant.buffers.push(buffer);
        if tenant.buffers.len() > 12 {
            tenant.buffers.swap_remove(random.usize(0..12));
        }
        match random.u32(0..12) {
            0 => tenant.gpu.memory().compact(MIB).map(drop).unwrap(),
            1 => tenant.buffers[0].evict().unwrap(),
            2 => tenant.write((&pry, &spill), &imports[at]),
            _ => {}
        }
    }
    for (tenant, import) in tenants.iter().zip(&imports) {
        tenant.write((&pry, &spill), import);
        for buffer in tenant.buffers.iter().chain([import]) {
            tenant.look(&pry, buffer, "at the end");
            let words = buffer.to_vec::<u32>().unwrap();
            assert!(words.iter().all(|word| *word == tenant.word()), "{buffer}");
        }
    }
    let stats = gpu.memory().stats();
    assert!(stats.hand_overs > 100, "{}", stats.hand_overs);
    assert!(stats.spilled_bytes.peak > 0);
}

#[test]
fn copies_go_to_other_shares_and_devices() {
    let open = || Gpu::open(Options::default()).unwrap();
    let (gpu, other) = (open(), open());
    let share = gpu.share("share", Share::guaranteed(0)).unwrap();
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
    let gpu = Gpu::open(Options::default()).unwrap();
    let share = gpu.share("share", Share::guaranteed(0)).unwrap();
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
        ..Options::default()
    };
    let gpu = Gpu::open(options).unwrap();
    let frame = gpu.share("frame", Share::guaranteed(32 * MIB)).unwrap();
    let job = gpu.share("job", Share::guaranteed(0)).unwrap();
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
