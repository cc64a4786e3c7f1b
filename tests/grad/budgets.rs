//! Training within less memory than it wants: the same losses to the bit, whatever is evicted or
//! computed again.

use lapidary::operations::Epilogue;
use lapidary::stats::MemoryStats as Stats;
use lapidary::{Budget, DType, Gpu, Result, Tensor};

const WORDS: usize = 32;
const HEADS: usize = 2;
const BLOCKS: usize = 5;
const BATCH: usize = 4;
const STEPS: usize = 3;

/// The width of a transformer, and the words of a sentence.
#[derive(Clone, Copy)]
struct Sizes {
    width: usize,
    length: usize,
}

const SMALL: Sizes = Sizes {
    width: 16,
    length: 16,
};

/// Its values have 128 KiB and more: masks are kept as bits, and what is cheap is computed again.
const LARGE: Sizes = Sizes {
    width: 64,
    length: 128,
};

/// A transformer that predicts the next word.
struct Model {
    sizes: Sizes,
    words: Tensor,
    blocks: Vec<[Tensor; 6]>,
    to_words: Tensor,
}

impl Model {
    fn new(gpu: &Gpu, sizes: Sizes) -> Result<Self> {
        let width = sizes.width;
        let seed = std::cell::Cell::new(0);
        let normal = |rows: usize, columns: usize| -> Result<Tensor> {
            seed.set(seed.get() + 1);
            let std = (rows as f32).powf(-0.5);
            let made = gpu.rand_normal(&[rows, columns], 0.0, std, seed.get(), DType::F32)?;
            made.requires_grad()
        };
        let ones = || gpu.ones(&[width], DType::F32)?.requires_grad();
        let block = |_| -> Result<[Tensor; 6]> {
            Ok([
                ones()?,
                normal(width, 3 * width)?,
                normal(width, width)?,
                ones()?,
                normal(width, 4 * width)?,
                normal(4 * width, width)?,
            ])
        };
        Ok(Model {
            sizes,
            words: normal(WORDS, width)?,
            blocks: (0..BLOCKS).map(block).collect::<Result<_>>()?,
            to_words: normal(width, WORDS)?,
        })
    }

    fn parameters(&self) -> impl Iterator<Item = &Tensor> {
        let blocks = self.blocks.iter().flatten();
        blocks.chain([&self.words, &self.to_words])
    }

    fn loss(&self, words: &Tensor, next: &Tensor) -> Result<Tensor> {
        let Sizes { width, length } = self.sizes;
        let mut x = self.words.embedding(words)?;
        for [norm, qkv, out, norm_2, up, down] in &self.blocks {
            let heads = x.rms_norm(&[width], Some(norm), 1e-5)?.matmul(qkv)?;
            let heads = heads.reshape(&[BATCH, length, 3, HEADS, width / HEADS])?;
            let heads = heads.permute(&[2, 0, 3, 1, 4])?;
            let [q, k, v] = [0, 1, 2].map(|at| heads.select(0, at));
            let seen = q?.scaled_dot_product_attention(&k?, &v?, None, true, None)?;
            let seen = seen
                .permute(&[0, 2, 1, 3])?
                .reshape(&[BATCH * length, width])?;
            x = (x + seen.matmul(out)?)?;
            let h = x.rms_norm(&[width], Some(norm_2), 1e-5)?.matmul(up)?;
            // The product before the activation is kept by nobody.
            let h = (h + 0.01)?.gelu()?.clamp(-1.0, 3.0)?;
            x = (x + h.matmul_with(down, &Epilogue::new())?)?;
        }
        let logits = x.matmul(&self.to_words)?;
        logits.cross_entropy(next, None, Default::default())
    }
}

/// The losses of some steps, as bits.
fn train(gpu: &Gpu, model: &Model) -> Result<Vec<u32>> {
    let count = (BATCH * model.sizes.length) as u32;
    let words: Vec<u32> = (0..=count).map(|at| at * at % WORDS as u32).collect();
    let at = |start: usize| gpu.tensor(&words[start..start + count as usize], &[count as usize]);
    let (words, next) = (at(0)?, at(1)?);
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let loss = model.loss(&words, &next)?;
        let gradients = loss.backward()?;
        let _no_grad = gpu.no_grad();
        for parameter in model.parameters() {
            let gradient = gradients.get(parameter).expect("it depends on each");
            parameter.sub_(&(gradient * 0.01)?)?;
        }
        losses.push(loss.detach());
    }
    let losses = losses.iter().map(|loss| loss.item::<f32>());
    losses.map(|loss| loss.map(f32::to_bits)).collect()
}

/// Trains with all memory, and then within these percentages of what the first run took beyond its
/// parameters. Returns what each run did.
fn compare(open: impl Fn() -> Gpu, sizes: Sizes, percentages: &[u64]) -> Vec<Stats> {
    let gpu = open();
    let model = Model::new(&gpu, sizes).unwrap();
    gpu.finish().unwrap();
    let parameter_bytes = gpu.memory().stats().live_bytes.now;
    let expected = train(&gpu, &model).unwrap();
    let first = f32::from_bits(expected[0]);
    let last = f32::from_bits(expected[STEPS - 1]);
    assert!(last < first, "{first} {last}: it learns nothing");
    let peak_bytes = gpu.memory().stats().live_bytes.peak - parameter_bytes;
    drop((model, gpu));
    let run = |percentage: &u64| {
        let gpu = open();
        let model = Model::new(&gpu, sizes).unwrap();
        gpu.finish().unwrap();
        let staging_bytes = 256 << 10;
        let budget_bytes = parameter_bytes + peak_bytes * percentage / 100 + staging_bytes;
        let budget = Budget {
            staging_bytes: Some(staging_bytes),
            ..Budget::device(budget_bytes)
        };
        gpu.memory().set_budget(budget).unwrap();
        let losses = train(&gpu, &model).unwrap();
        let stats = gpu.memory().stats();
        assert_eq!(losses, expected, "{percentage} %\n{stats}");
        stats
    };
    percentages.iter().map(run).collect()
}

#[test]
fn the_losses_are_the_same_in_any_budget() {
    for sizes in [SMALL, LARGE] {
        let all = compare(super::check::gpu, sizes, &[100, 60, 40, 25]);
        let tightest = &all[3];
        let moved_bytes = tightest.evicted_bytes + tightest.recomputed_bytes;
        assert!(moved_bytes > 0, "{tightest}");
    }
}

mod simulated {
    use lapidary::shares::ShareOptions;
    use lapidary::sim::{SimOptions, Speed};
    use lapidary::{Error, Residency};

    use super::*;

    /// To compute a value costs less than to bring it back.
    const FAST_KERNELS: Speed = Speed {
        upload_bytes_per_s: 1 << 20,
        download_bytes_per_s: 1 << 20,
        memory_bytes_per_s: 1 << 40,
        multiply_adds_per_s: 1 << 44,
        copy_ns: 0,
        submission_ns: 0,
    };

    fn simulated(speed: Speed) -> Gpu {
        let options = SimOptions {
            speed: Some(speed),
            ..SimOptions::default()
        };
        Gpu::simulated(options).unwrap().0
    }

    fn within(speed: Speed) -> Vec<Stats> {
        compare(|| simulated(speed), SMALL, &[60, 40, 25])
    }

    fn budget(kib: u64) -> Budget {
        Budget {
            staging_bytes: Some(256 << 10),
            ..Budget::device((kib + 256) << 10)
        }
    }

    fn matrix(gpu: &Gpu, seed: u64) -> Tensor {
        let drawn = gpu.rand_normal(&[256, 256], 0.0, 0.1, seed, DType::F32);
        drawn.unwrap()
    }

    /// A product that was dropped, the weight in it, and a loss. Its three matrices take 768 KiB,
    /// which is the budget.
    fn dropped_product(gpu: &Gpu) -> (Tensor, Tensor, Tensor, Vec<f32>) {
        assert_eq!(gpu.memory().set_budget(budget(768)).unwrap(), 0);
        let w = matrix(gpu, 2).requires_grad().unwrap();
        let h = matrix(gpu, 1).matmul(&w).unwrap();
        let loss = h.sin().unwrap().sum_all().unwrap();
        let expected = h.to_vec::<f32>().unwrap();
        // Another product takes the place of all of them.
        drop(matrix(gpu, 3).matmul(&matrix(gpu, 4)).unwrap());
        gpu.finish().unwrap();
        assert_eq!(h.residency(), Residency::Backed);
        (h, w, loss, expected)
    }

    #[test]
    fn a_dropped_value_is_computed_before_the_budget_falls_below_its_launch() {
        let gpu = simulated(FAST_KERNELS);
        let (h, w, loss, expected) = dropped_product(&gpu);
        let before = gpu.memory().stats();
        assert_eq!(gpu.memory().set_budget(budget(512)).unwrap(), 0);
        assert_eq!(h.to_vec::<f32>().unwrap(), expected);
        let after = gpu.memory().stats();
        assert!(
            after.recomputed_bytes >= before.recomputed_bytes + (256 << 10),
            "{after}"
        );
        // The value leaves the device, and is not dropped again.
        drop((matrix(&gpu, 5).exp().unwrap()).to_vec::<f32>().unwrap());
        assert_eq!(h.residency(), Residency::Host);
        assert_eq!(h.to_vec::<f32>().unwrap(), expected);
        let last = gpu.memory().stats();
        assert_eq!(last.recomputed_bytes, after.recomputed_bytes, "{last}");
        // The gradient of the product takes 768 KiB, and waits for them.
        let gradients = loss.backprop().keep_history().run().unwrap();
        let by_w = gradients.get(&w).unwrap();
        let error = by_w.to_vec::<f32>().unwrap_err();
        assert!(matches!(error, Error::NeverFits { .. }), "{error}");
        assert_eq!(gpu.memory().set_budget(budget(768)).unwrap(), 0);
        let found = by_w.to_vec::<f32>().unwrap();
        let again = loss.backward().unwrap().get(&w).unwrap();
        assert_eq!(again.to_vec::<f32>().unwrap(), found);
    }

    #[test]
    fn a_dropped_value_is_computed_before_the_ceiling_of_its_share_falls_below_its_launch() {
        let whole = simulated(FAST_KERNELS);
        let ceiling = |kib: u64| ShareOptions::guaranteed(0).with_ceiling(kib << 10);
        let gpu = whole.share("training", ceiling(768)).unwrap();
        let w = matrix(&gpu, 2).requires_grad().unwrap();
        let h = matrix(&gpu, 1).matmul(&w).unwrap();
        let _loss = h.sin().unwrap().sum_all().unwrap();
        let expected = h.to_vec::<f32>().unwrap();
        drop(matrix(&gpu, 3).matmul(&matrix(&gpu, 4)).unwrap());
        gpu.finish().unwrap();
        assert_eq!(h.residency(), Residency::Backed);
        assert_eq!(gpu.resize(ceiling(512)).unwrap(), 0);
        assert_eq!(h.to_vec::<f32>().unwrap(), expected);
    }

    #[test]
    fn a_dropped_value_that_finds_no_room_before_comes_back_once_the_budget_rises() {
        let gpu = simulated(FAST_KERNELS);
        let (h, w, loss, expected) = dropped_product(&gpu);
        let other = matrix(&gpu, 6);
        let pinned = other.pin().unwrap();
        assert_eq!(gpu.memory().set_budget(budget(512)).unwrap(), 0);
        drop(pinned);
        let error = h.to_vec::<f32>().unwrap_err().to_string();
        let parts = ["768 KiB", "512 KiB", "Raise the budget"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        let gradients = loss.backprop().keep_history().run().unwrap();
        let by_w = gradients.get(&w).unwrap();
        let error = by_w.to_vec::<f32>().unwrap_err();
        assert!(matches!(error, Error::NeverFits { .. }), "{error}");
        assert_eq!(w.to_vec::<f32>().unwrap().len(), 1 << 16);
        // The commands of the backward have waited.
        assert_eq!(gpu.memory().set_budget(budget(768)).unwrap(), 0);
        let found = by_w.to_vec::<f32>().unwrap();
        assert_eq!(h.to_vec::<f32>().unwrap(), expected);
        let again = loss.backward().unwrap().get(&w).unwrap();
        assert_eq!(again.to_vec::<f32>().unwrap(), found);
    }

    /// Products of one matrix, in memory for three to seven matrices. Then the app pins the matrix,
    /// and might write to it unseen, or a command overwrites it. Some of the products were dropped.
    #[test]
    fn what_was_computed_from_a_matrix_outlives_it_or_finds_no_room() {
        type Change = fn(&Tensor) -> Result<()>;
        let changes: [Change; 3] = [
            |x| x.pin().map(drop),
            |x| x.fill_(7.0),
            |x| x.copy_(&x.matmul(x)?),
        ];
        let small = |gpu: &Gpu, seed| gpu.rand_normal(&[32, 32], 0.0, 0.1, seed, DType::F32);
        let made = |gpu: &Gpu| -> Result<(Tensor, Vec<[Tensor; 2]>)> {
            let x = small(gpu, 1)?;
            let products = (2..6).map(|seed| {
                let product = x.matmul(&small(gpu, seed)?.requires_grad()?)?;
                Ok([product.sin()?.sum_all()?, product])
            });
            let products = products.collect::<Result<_>>()?;
            Ok((x, products))
        };
        let (_, expected) = made(&simulated(FAST_KERNELS)).unwrap();
        let (mut right, mut without_room, mut recomputed_bytes) = (0, 0, 0);
        for number in 0..60 {
            let gpu = simulated(FAST_KERNELS);
            let (kib, host_kib) = (12 + number / 4 % 5 * 4, [0, 4, 8, 64][number as usize % 4]);
            let budget = Budget {
                staging_bytes: Some(16 << 10),
                host_bytes: Some(host_kib << 10),
                disk_bytes: Some(0),
                ..Budget::device((kib + 16) << 10)
            };
            gpu.memory().set_budget(budget).unwrap();
            let (x, products) = made(&gpu).unwrap();
            // Commands that found no room stay in the queue.
            let _ = gpu.finish();
            let _ = gpu.ones(&[2 << 10], DType::F32).and_then(|it| it.force());
            let changed = changes[number as usize % 3](&x).and_then(|()| x.force());
            let values = products.iter().map(|[_, product]| product.to_vec::<f32>());
            for (value, [_, expected]) in values.zip(&expected) {
                match value {
                    Ok(value) => {
                        assert_eq!(value, expected.to_vec::<f32>().unwrap(), "{number}");
                        right += 1;
                    }
                    Err(Error::OutOfMemory(_) | Error::NeverFits { .. }) => without_room += 1,
                    Err(error) => panic!("{number}: {error}"),
                }
            }
            if let Err(error) = changed {
                assert!(matches!(error, Error::OutOfMemory(_)), "{number}: {error}");
            }
            recomputed_bytes += gpu.memory().stats().recomputed_bytes;
        }
        assert!(right > 100 && without_room > 10 && recomputed_bytes > 1 << 20);
    }

    #[test]
    fn a_device_that_computes_fast_recomputes_and_one_with_a_fast_link_evicts() {
        let fast_link = within(Speed {
            upload_bytes_per_s: 1 << 40,
            download_bytes_per_s: 1 << 40,
            memory_bytes_per_s: 1 << 20,
            multiply_adds_per_s: 1 << 20,
            copy_ns: 0,
            submission_ns: 0,
        });
        let fast_kernels = within(FAST_KERNELS);
        let told = |stats: &Stats| (stats.evicted_bytes, stats.recomputed_bytes);
        println!("(evicted, recomputed) bytes, by the speed of the link, of the kernels");
        for (link, kernels) in fast_link.iter().zip(&fast_kernels) {
            println!("{:?} {:?}", told(link), told(kernels));
        }
        for (link, kernels) in fast_link.iter().zip(&fast_kernels) {
            assert!(link.evicted_bytes > 8 * link.recomputed_bytes, "{link}");
            // Some storages have no lineage, or are needed while others are computed.
            let evicted_bytes = kernels.evicted_bytes;
            assert!(kernels.recomputed_bytes > 3 * evicted_bytes, "{kernels}");
        }
    }
}
