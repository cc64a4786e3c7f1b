//! Pages as ordinary blocks: evicted, restored, spilled, moved, and counted.

use fastrand::Rng;
use lapidary::kv::{Attend, KvCache};
use lapidary::sim::{SimMode, SimOptions};
use lapidary::{Budget, DType, Gpu, Options, Result};

use super::model::{SMALL, Shape, World};
use crate::ops_reduce::model::each;

const HOW: Attend = Attend {
    scale: None,
    window: None,
    softcap: None,
};

const LAYERED: Shape = Shape {
    layers: 3,
    heads: 4,
    kv_heads: 4,
    size: 32,
    dtype: DType::F16,
    page_tokens: 16,
};

/// Conversations that take turns. Returns the bits of all results.
fn turns(gpu: &Gpu) -> Result<Vec<u32>> {
    let mut world = World::new(gpu, LAYERED);
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut talks: Vec<_> = names.iter().map(|name| world.talk(name)).collect();
    for round in 0..3 {
        for (index, talk) in talks.iter_mut().enumerate() {
            world.step(&mut [(talk, [41, 1, 18][round] + index)], HOW)?;
        }
    }
    let (first, second) = talks.split_at_mut(1);
    world.step(&mut [(&mut first[0], 1), (&mut second[0], 1)], HOW)?;
    Ok(world.bits)
}

/// The same bits, whatever left the device in between, and wherever the pages lie.
#[test]
fn pages_leave_and_return_with_the_same_bits() -> Result<()> {
    let open = |device: SimOptions, budget| {
        let options = Options {
            budget: Some(budget),
            spill_folder: Some(std::env::temp_dir()),
            ..Options::from_env()?
        };
        Gpu::simulated_with(device, options).map(|(gpu, _)| gpu)
    };
    let roomy = open(SimOptions::default(), Budget::device(256 << 20))?;
    let expected = turns(&roomy)?;
    assert_eq!(roomy.memory().stats().evicted_bytes, 0);
    for host_heap in [false, true] {
        for host_bytes in [64 << 20, 64 << 10] {
            let device = SimOptions {
                host_heap,
                max_buffer_bytes: 64 << 10,
                // Four windows for pages, which lie in more slabs: several rounds.
                max_storage_bindings: 8,
                ..SimOptions::default()
            };
            let budget = Budget {
                host_bytes: Some(host_bytes),
                ..Budget::device(768 << 10)
            };
            let tight = open(device, budget)?;
            let got = turns(&tight)?;
            assert!(tight.memory().stats().evicted_bytes > 0);
            assert!(
                got == expected,
                "heap {host_heap}, {host_bytes} bytes of the host"
            );
        }
    }
    Ok(())
}

/// The launches of a step share their pages, which count as one holder of them.
#[test]
fn pages_are_listed_while_launches_that_share_them_wait() -> Result<()> {
    for gpu in each() {
        let mut world = World::new(&gpu, LAYERED);
        let mut talk = world.talk("the chat of Ann");
        let rows = world.rows(20, LAYERED.heads);
        let rows = world.upload(&rows, LAYERED.heads);
        let listed_bytes = || {
            let leaks = gpu.diagnostics().leaks().into_iter();
            let pages = leaks.filter(|leak| leak.made_at.to_string().contains("the chat of Ann"));
            pages.map(|leak| leak.bytes).sum::<u64>()
        };
        let step = world.cache.step(vec![(&mut talk.sequence, 20)])?;
        for layer in 0..LAYERED.layers {
            step.attend(layer, &rows, &rows, &rows, HOW)?;
        }
        step.finish();
        assert_eq!(listed_bytes(), talk.sequence.bytes());
        gpu.finish()?;
        assert_eq!(listed_bytes(), talk.sequence.bytes());
        drop(talk);
        assert_eq!(listed_bytes(), 0);
    }
    Ok(())
}

/// New pages come out of slabs that exist, and so do tables and results.
#[test]
fn a_token_creates_no_buffer_in_the_steady_state() -> Result<()> {
    for gpu in each() {
        let mut world = World::new(&gpu, SMALL);
        let [mut a, mut b] = ["a", "b"].map(|name| world.talk(name));
        for _ in 0..20 {
            world.step(&mut [(&mut a, 1), (&mut b, 1)], HOW)?;
        }
        let created = || gpu.memory().stats().buffers_created;
        let before = created();
        for _ in 0..40 {
            world.step(&mut [(&mut a, 1), (&mut b, 1)], HOW)?;
        }
        assert_eq!(created(), before);
    }
    Ok(())
}

/// 32 conversations of all lengths, with 10,000 tokens together, take little more than their pages.
#[test]
fn reserved_bytes_stay_close_to_those_of_pages() -> Result<()> {
    let device = SimOptions {
        mode: SimMode::SizesOnly,
        memory_bytes: 2 << 30,
        ..SimOptions::default()
    };
    let (gpu, _) = Gpu::simulated_with(device, Options::default())?;
    let shape = Shape {
        layers: 22,
        heads: 32,
        kv_heads: 4,
        size: 64,
        dtype: DType::F16,
        page_tokens: 16,
    };
    let cache = KvCache::new(&gpu, shape.options())?;
    let mut rng = Rng::with_seed(11);
    // Lengths of 19 to 608 tokens.
    let mut left: Vec<usize> = (1..=32).map(|index| index * 19).collect();
    rng.shuffle(&mut left);
    let all: usize = left.iter().sum();
    assert_eq!(all, 10_032);
    let mut sequences: Vec<_> = (0..32)
        .map(|index| cache.sequence(&format!("{index}")))
        .collect();
    while left.iter().any(|&left| left > 0) {
        // A prompt, or a token of some conversations.
        let mut work = Vec::new();
        for (sequence, left) in sequences.iter_mut().zip(&mut left) {
            let most = if sequence.is_empty() {
                *left / 3 + 1
            } else {
                1
            };
            let wanted = if rng.u8(..3) == 0 { 0 } else { most.min(*left) };
            if wanted > 0 {
                work.push((sequence, wanted));
                *left -= wanted;
            }
        }
        if work.is_empty() {
            continue;
        }
        let step = cache.step(work)?;
        let zeros = |heads| gpu.zeros(&[step.tokens(), heads, 64], DType::F32);
        let (q, k) = (zeros(32)?, zeros(4)?);
        step.attend(rng.usize(..22), &q, &k, &k, HOW)?;
        step.finish();
    }
    gpu.finish()?;
    let stats = gpu.memory().stats();
    let pages: u64 = sequences.iter().map(|sequence| sequence.bytes()).sum();
    let tokens = (all * 22 * 4 * 2 * 64 * 2) as u64;
    // Sequences leave half a page empty on average.
    assert!(pages as f64 / tokens as f64 <= 1.03, "{pages} of {tokens}");
    assert_eq!(stats.live_bytes.now, pages);
    let (reserved, live) = (stats.reserved_bytes.peak, stats.live_bytes.peak);
    let ratio = reserved as f64 / live as f64;
    assert!(ratio <= 1.05, "{reserved} of {live}: {ratio:.3}");
    Ok(())
}
