//! Tests of the allocators: against a plain model of ranges, with every short sequence of calls on
//! a tiny heap, and with invalid handles. In the steady state they must not touch the host's heap.
//!
//! `LAPIDARY_OPS` sets the number of random operations in each case; `LAPIDARY_SEED` sets the seed.

mod heap_counter;
mod model;
mod plans;

use heap_counter::count_heap_calls;
use lapidary::alloc::{AllocError, BlockId, Carver, Planner, PoolConfig, Pools, Spot, Step};
use model::{LAWS, Law};

/// Runs every sequence of up to `length` calls on a heap of 8 granules. A call allocates 1, 2, 3 or
/// 5 granules or frees one of the live blocks. Returns the number of sequences.
fn every_sequence(carver: &Carver, live: &[(BlockId, u64)], length: u32) -> u64 {
    carver.check_invariants().unwrap();
    if length == 0 {
        return 1;
    }
    let mut sequences = 1;
    for granules in [1, 2, 3, 5] {
        let mut next = carver.clone();
        let mut blocks = live.to_vec();
        let free = 8 - live.iter().map(|(_, size)| size).sum::<u64>();
        match next.allocate(granules * 256) {
            Ok(block) => {
                let range = next.block(block).unwrap();
                assert!(range.offset_bytes + range.size_bytes <= 8 * 256);
                blocks.push((block, granules));
            }
            // With at most eight blocks, the search sees all holes of a bin.
            Err(error) => {
                assert_eq!(
                    error,
                    AllocError::NeedsSlab {
                        requested_bytes: granules * 256
                    }
                );
                let largest = next.stats().largest_hole_bytes / 256;
                assert!(
                    largest < granules,
                    "{granules} of {free} free, largest hole {largest}"
                );
            }
        }
        sequences += every_sequence(&next, &blocks, length - 1);
    }
    for victim in 0..live.len() {
        let mut next = carver.clone();
        let mut blocks = live.to_vec();
        let (block, _) = blocks.remove(victim);
        next.free(block).unwrap();
        assert_eq!(next.free(block), Err(AllocError::StaleBlock(block)));
        sequences += every_sequence(&next, &blocks, length - 1);
    }
    sequences
}

#[test]
fn every_short_sequence_on_a_tiny_heap_keeps_the_promises() {
    let mut carver = Carver::new(256).unwrap();
    carver.add_slab(8 * 256).unwrap();
    let sequences = every_sequence(&carver, &[], 8);
    assert!(sequences > 1_000_000, "{sequences}");
}

fn check_carver(law: &Law, unit_bytes: u64) {
    model::run(law, unit_bytes, model::Kind::Carver);
}

fn check_pools(law: &Law, unit_bytes: u64) {
    model::run(law, unit_bytes, model::Kind::Pools);
}

#[test]
fn a_carver_agrees_with_a_map_of_ranges_whatever_the_sizes() {
    for law in &LAWS {
        check_carver(law, 32);
        check_carver(law, 256);
    }
}

#[test]
fn pools_agree_with_a_map_of_ranges_whatever_the_sizes() {
    for law in &LAWS {
        check_pools(law, 32);
        check_pools(law, 256);
    }
}

#[test]
fn the_same_seed_leads_to_the_same_offsets() {
    let law = &LAWS[1];
    assert_eq!(model::places(law, 256, 7), model::places(law, 256, 7));
    assert_ne!(model::places(law, 256, 7), model::places(law, 256, 8));
}

#[test]
fn stale_and_foreign_handles_are_refused() {
    let mut carver = Carver::new(256).unwrap();
    let mut other = Carver::new(256).unwrap();
    let slab = carver.add_slab(1 << 20).unwrap();
    let foreign_slab = other.add_slab(1 << 20).unwrap();
    let block = carver.allocate(1000).unwrap();
    let foreign = other.allocate(1000).unwrap();
    assert_eq!(carver.free(foreign), Err(AllocError::StaleBlock(foreign)));
    assert_eq!(carver.block(foreign), Err(AllocError::StaleBlock(foreign)));
    assert_eq!(
        carver.remove_slab(foreign_slab),
        Err(AllocError::StaleSlab(foreign_slab))
    );
    assert_eq!(
        carver.slab(foreign_slab),
        Err(AllocError::StaleSlab(foreign_slab))
    );
    assert_eq!(
        carver.remove_slab(slab),
        Err(AllocError::SlabInUse { slab, blocks: 1 })
    );
    carver.free(block).unwrap();
    let reused = carver.allocate(1 << 20).unwrap();
    assert_eq!(
        reused.index(),
        block.index(),
        "the whole slab is one hole, in that entry"
    );
    assert_eq!(carver.free(block), Err(AllocError::StaleBlock(block)));
    carver.free(reused).unwrap();
    carver.remove_slab(slab).unwrap();
    assert_eq!(carver.remove_slab(slab), Err(AllocError::StaleSlab(slab)));
    let next = carver.add_slab(1 << 20).unwrap();
    assert_eq!(next.index(), slab.index());
    assert_eq!(carver.remove_slab(slab), Err(AllocError::StaleSlab(slab)));
    carver.check_invariants().unwrap();
}

#[test]
fn sizes_at_the_limits_are_served_or_refused_with_numbers() {
    for unit_bytes in [32, 256] {
        let mut carver = Carver::new(unit_bytes).unwrap();
        let limit_bytes = carver.max_slab_bytes();
        assert_eq!(limit_bytes, 1 << 48);
        for size_bytes in [0, unit_bytes - 1, limit_bytes + 1, u64::MAX] {
            let expected = AllocError::SlabSize {
                size_bytes,
                limit_bytes,
            };
            assert_eq!(carver.add_slab(size_bytes), Err(expected));
        }
        carver.add_slab(limit_bytes).unwrap();
        for requested_bytes in [limit_bytes + 1, u64::MAX] {
            let expected = AllocError::NeverFits {
                requested_bytes,
                limit_bytes,
            };
            assert_eq!(carver.allocate(requested_bytes), Err(expected));
        }
        let all = carver.allocate(limit_bytes).unwrap();
        carver.free(all).unwrap();
        let most = carver.allocate(limit_bytes - 1 - unit_bytes).unwrap();
        let nothing = carver.allocate(0).unwrap();
        let block = carver.block(nothing).unwrap();
        assert_eq!(block.offset_bytes, limit_bytes - unit_bytes);
        assert_eq!((block.size_bytes, block.requested_bytes), (unit_bytes, 0));
        assert!(matches!(
            carver.allocate(0),
            Err(AllocError::NeedsSlab { .. })
        ));
        carver.free(most).unwrap();
        carver.free(nothing).unwrap();
        carver.check_invariants().unwrap();
    }
    for unit_bytes in [0, 3, 48, 1 << 17, u64::MAX] {
        let error = Carver::new(unit_bytes).map(|_| ());
        assert_eq!(error, Err(AllocError::UnitSize { unit_bytes }));
    }
    let mut coarse = Carver::new(1 << 16).unwrap();
    coarse.add_slab(1 << 20).unwrap();
    let nothing = coarse.allocate(0).unwrap();
    assert_eq!(coarse.block(nothing).unwrap().requested_bytes, 0);
}

#[test]
fn reserved_bytes_never_overflow() {
    let mut carver = Carver::new(256).unwrap();
    let added = (0..1 << 17)
        .take_while(|_| carver.add_slab(1 << 48).is_ok())
        .count();
    assert_eq!(added, (1 << 16) - 1, "2^64 - 2^48 bytes");
    assert_eq!(carver.add_slab(1 << 48), Err(AllocError::TableFull));
    carver.check_invariants().unwrap();
}

#[test]
fn odd_configurations_never_panic_and_a_new_slab_always_serves_its_request() {
    let odd = [0, 1, 255, 300, 4 << 20, 1 << 40, u64::MAX - 5, u64::MAX];
    for max_slab_bytes in [256, 300, 1 << 20, 1 << 30, u64::MAX] {
        for field in 0..11 {
            for value in odd {
                let mut config = PoolConfig::new(256, max_slab_bytes);
                *[
                    &mut config.small_request_bytes,
                    &mut config.small_slab_bytes,
                    &mut config.middle_slab_bytes,
                    &mut config.own_request_bytes,
                    &mut config.own_step_bytes,
                    &mut config.slack_permille,
                    &mut config.spent_slack_permille,
                    &mut config.move_permille,
                    &mut config.alone_request_bytes,
                    &mut config.alone_excess_percent,
                    &mut config.release_allowance,
                ][field] = value;
                let mut pools = Pools::new(config).unwrap();
                let mut planner = Planner::default();
                for size_bytes in [0, 1, 256, 1 << 18, 1 << 20, 5 << 20, 1 << 33, u64::MAX] {
                    match model::allocate_with_growth(&mut pools, size_bytes) {
                        Ok(block) => assert!(pools.block(block).unwrap().size_bytes >= size_bytes),
                        Err(AllocError::NeverFits { .. }) => {
                            assert!(size_bytes > pools.config().max_slab_bytes);
                        }
                        Err(error) => panic!("{error} for {size_bytes} with {config:?}"),
                    }
                    match plans::allocate(&mut pools, &mut planner, size_bytes) {
                        Ok(_) | Err(AllocError::NeverFits { .. }) => {}
                        Err(error) => panic!("{error} for {size_bytes} with {config:?}"),
                    }
                }
                pools.check_invariants().unwrap();
            }
        }
    }
}

#[test]
fn growth_that_fails_leaves_all_as_it_was() {
    let mut pools = Pools::new(PoolConfig::new(256, 1 << 30)).unwrap();
    let block = model::allocate_with_growth(&mut pools, 3 << 20).unwrap();
    let before = pools.stats();
    for size_bytes in [0, 1000, 256 << 10, 14 << 20, 1 << 30] {
        if pools.allocate(size_bytes).is_ok() {
            panic!("{size_bytes} bytes need a slab");
        }
        let growth = pools.growth(size_bytes).unwrap();
        assert!(growth.slab_bytes >= growth.least_bytes);
        assert_eq!(pools.next_release(&growth), None, "the only slab is in use");
        assert_eq!(pools.stats(), before);
    }
    pools.check_invariants().unwrap();
    pools.free(block).unwrap();
}

#[test]
fn empty_slabs_are_released_before_the_mark_rises_longest_unused_first() {
    let mut pools = Pools::new(PoolConfig::new(256, 1 << 30)).unwrap();
    let blocks: Vec<BlockId> = (0..4)
        .map(|_| model::allocate_with_growth(&mut pools, 32 << 20).unwrap())
        .collect();
    let slabs: Vec<_> = blocks
        .iter()
        .map(|&block| pools.block(block).unwrap().slab)
        .collect();
    for i in [2, 0, 3] {
        pools.free(blocks[i]).unwrap();
    }
    let growth = pools.growth(60 << 20).unwrap();
    let mut released = Vec::new();
    while let Some(slab) = pools.next_release(&growth) {
        pools.remove_slab(slab).unwrap();
        released.push(slab);
    }
    assert_eq!(released, [slabs[2], slabs[0]]);
    assert_eq!(pools.empty_slabs().collect::<Vec<_>>(), [slabs[3]]);
    assert_eq!(pools.mark_bytes(), (128 << 20) * 102 / 100);
    pools.reset_mark();
    assert_eq!(pools.mark_bytes(), 64 << 20);
}

#[test]
fn slabs_for_one_size_hold_a_whole_number_of_blocks_and_little_else() {
    for page_bytes in [300 << 10, 352 << 10, 1408 << 10, 3000 << 10] {
        let mut pools = Pools::new(PoolConfig::new(256, 1 << 30)).unwrap();
        for _ in 0..(192 << 20) / page_bytes {
            model::allocate_with_growth(&mut pools, page_bytes).unwrap();
        }
        let (reserved, live) = (pools.reserved_bytes(), pools.granted_bytes());
        assert!(
            reserved as f64 / live as f64 <= 1.05,
            "{reserved} for {live} in pages of {page_bytes}"
        );
        let growth = pools.growth(page_bytes).unwrap();
        assert_eq!(growth.slab_bytes % page_bytes, 0, "{growth:?}");
        assert!(growth.slab_bytes <= 8 << 20, "{growth:?}");
        // Other sizes get what they always got.
        let growth = pools.growth(2 << 20).unwrap();
        assert_eq!(growth.slab_bytes, 16 << 20);
    }
}

#[test]
fn a_very_large_slab_is_shared_only_when_nothing_else_can_be_had() {
    let mut pools = Pools::new(PoolConfig::new(256, 1 << 30)).unwrap();
    let large = model::allocate_with_growth(&mut pools, 500 << 20).unwrap();
    pools.free(large).unwrap();
    for size_bytes in [5 << 20, 390 << 20] {
        let refused = pools.allocate(size_bytes);
        assert!(matches!(refused, Err(AllocError::NeedsSlab { .. })));
    }
    let most = pools.allocate(410 << 20).unwrap();
    pools.free(most).unwrap();
    let block = pools.allocate_anywhere(5 << 20).unwrap();
    let small = pools.allocate_anywhere(100).unwrap();
    assert_eq!(
        pools.block(small).unwrap().slab,
        pools.block(block).unwrap().slab
    );
    pools.check_invariants().unwrap();
}

#[test]
fn plans_agree_with_a_map_of_ranges_whatever_is_pinned_and_wherever_they_end() {
    let mut sum = plans::Tally::default();
    for law in &LAWS {
        let free = plans::run(law, 256, None);
        let [tight, wide] = [30, 70].map(|percent| {
            let limit_bytes = free.peak_live_bytes * percent / 100;
            plans::run(law, 32, Some(limit_bytes))
        });
        for tally in [free, tight, wide] {
            eprintln!("{}: {tally:?}", law.name);
            sum.add(&tally);
        }
    }
    assert!(sum.carried_out > 0 && sum.given_up > 0 && sum.refused > 0);
    assert!(sum.shrunk > sum.stuck, "{sum:?}");
    assert!(sum.moves > 0 && sum.moves_to_new > 0 && sum.skipped > 0);
}

#[test]
fn passes_come_to_an_end_and_only_ever_empty_slabs() {
    for law in &LAWS {
        plans::run_passes(law, 256);
    }
}

#[test]
fn a_block_moves_only_into_a_hole_of_another_slab() {
    let mut pools = Pools::new(PoolConfig::new(256, 1 << 30)).unwrap();
    let blocks: Vec<BlockId> = (0..4)
        .map(|_| model::allocate_with_growth(&mut pools, 1 << 20).unwrap())
        .collect();
    let growth = pools.growth(1 << 20).unwrap();
    let own = pools.block(blocks[0]).unwrap().slab;
    let other = pools.add_slab(&growth).unwrap();
    let refused = |pools: &mut Pools, to: Spot| {
        let error = AllocError::NoHoleThere {
            slab: to.slab(),
            offset_bytes: to.offset_bytes(),
            size_bytes: 1 << 20,
        };
        assert_eq!(pools.relocate(blocks[0], &to), Err(error));
        pools.check_invariants().unwrap();
    };
    refused(&mut pools, Spot::new(own, 8 << 20));
    refused(&mut pools, Spot::new(own, 0));
    for offset_bytes in [100, (15 << 20) + 256, 16 << 20, u64::MAX, u64::MAX - 255] {
        refused(&mut pools, Spot::new(other, offset_bytes));
    }
    let copy = pools
        .relocate(blocks[0], &Spot::new(other, 5 << 20))
        .unwrap();
    assert_eq!((copy.from.slab, copy.from.offset_bytes), (own, 0));
    assert_eq!((copy.to.slab, copy.to.offset_bytes), (other, 5 << 20));
    assert_eq!(pools.block(blocks[0]), Ok(copy.to), "the handle stays good");
    pools.check_invariants().unwrap();
    pools
        .relocate(blocks[1], &Spot::new(other, 4 << 20))
        .unwrap();
    pools.check_invariants().unwrap();
    let taken = pools.relocate(blocks[2], &Spot::new(other, (5 << 20) - 256));
    assert!(matches!(taken, Err(AllocError::NoHoleThere { .. })));
    pools.free(blocks[0]).unwrap();
    let stale = pools.relocate(blocks[0], &Spot::new(own, 0));
    assert_eq!(stale, Err(AllocError::StaleBlock(blocks[0])));
    assert_eq!(
        (pools.stats().moves, pools.stats().moved_bytes),
        (2, 2 << 20)
    );
    pools.check_invariants().unwrap();
}

#[test]
fn a_request_that_fits_in_the_limit_moves_what_is_in_its_way_unless_that_is_pinned() {
    let config = PoolConfig {
        middle_slab_bytes: 4 << 20,
        ..PoolConfig::new(256, 1 << 30)
    };
    let mut pools = Pools::new(config).unwrap();
    let mut planner = Planner::default();
    // Eight slabs of 4 MiB in which every second MiB is free.
    let blocks: Vec<BlockId> = (0..32)
        .map(|_| plans::allocate(&mut pools, &mut planner, 1 << 20).unwrap())
        .collect();
    for block in blocks.iter().step_by(2) {
        pools.free(*block).unwrap();
    }
    let limit_bytes = Some(32 << 20);
    let pinned = blocks[1];
    let none = pools.plan(&mut planner, 3 << 20, limit_bytes, &|_| false);
    assert_eq!(
        none,
        Err(AllocError::NeedsSlab {
            requested_bytes: 3 << 20
        })
    );
    let steps = pools
        .plan(&mut planner, 3 << 20, limit_bytes, &|block| block != pinned)
        .unwrap()
        .to_vec();
    assert_eq!(
        steps.len(),
        1,
        "one block lies between two holes: {steps:?}"
    );
    assert!(matches!(steps[0], Step::Move { block, .. } if block != pinned));
    plans::carry_out(&mut pools, steps[0], &mut None).unwrap();
    pools.allocate_anywhere(3 << 20).unwrap();
    assert_eq!(pools.reserved_bytes(), 32 << 20);
}

#[test]
fn without_a_limit_a_survivor_moves_out_of_the_way_of_a_new_shape() {
    let mut pools = Pools::new(PoolConfig::new(256, 1 << 30)).unwrap();
    let mut planner = Planner::default();
    let blocks: Vec<BlockId> = (0..8)
        .map(|_| plans::allocate(&mut pools, &mut planner, 100 << 20).unwrap())
        .collect();
    // In each slab except one only the last MiB stays allocated.
    for &block in &blocks[1..] {
        pools.free(block).unwrap();
        let most = pools.allocate(99 << 20).unwrap();
        pools.allocate(1 << 20).unwrap();
        pools.free(most).unwrap();
    }
    plans::allocate(&mut pools, &mut planner, 600 << 20).unwrap();
    let stats = pools.stats();
    assert!(stats.peak_reserved_bytes <= 824 << 20, "{stats:?}");
    assert!((1..=8 << 20).contains(&stats.moved_bytes), "{stats:?}");
}

#[test]
fn planning_takes_nothing_from_the_heap_once_its_tables_have_grown() {
    let mut pools = Pools::new(PoolConfig::new(256, 1 << 30)).unwrap();
    let mut planner = Planner::default();
    let mut random = fastrand::Rng::with_seed(1);
    let blocks: Vec<BlockId> = (0..5000)
        .map(|_| {
            let size_bytes = random.u64(1..=4 << 20);
            plans::allocate(&mut pools, &mut planner, size_bytes).unwrap()
        })
        .collect();
    for block in blocks.iter().step_by(3) {
        pools.free(*block).unwrap();
    }
    let limit_bytes = Some(pools.reserved_bytes());
    let mut plan_all = || {
        let mut moves = false;
        for size_bytes in [8 << 20, 16 << 20, 30 << 20, 200 << 20] {
            let plan = pools.plan(&mut planner, size_bytes, limit_bytes, &|_| true);
            let steps = plan.expect("a third of the slabs is free");
            moves |= steps.iter().any(|step| matches!(step, Step::Move { .. }));
        }
        assert!(moves);
        assert!(!pools.plan_pass(&mut planner, 8 << 20, &|_| true).is_empty());
    };
    plan_all();
    assert_eq!(count_heap_calls(plan_all), 0);
}

#[test]
fn a_steady_state_takes_nothing_from_the_heap() {
    let mut pools = Pools::new(PoolConfig::new(256, 1 << 30)).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut blocks: Vec<BlockId> = (0..2000)
        .map(|_| model::allocate_with_growth(&mut pools, random.u64(1..=8 << 20)).unwrap())
        .collect();
    let mut churn = |pools: &mut Pools, blocks: &mut Vec<BlockId>| {
        for _ in 0..20_000 {
            let victim = random.usize(0..blocks.len());
            pools.free(blocks[victim]).unwrap();
            blocks[victim] = model::allocate_with_growth(pools, random.u64(1..=8 << 20)).unwrap();
        }
    };
    churn(&mut pools, &mut blocks);
    // A first pass grows the tables to their high-water marks. Then only their reuse is counted.
    for block in blocks.drain(..) {
        pools.free(block).unwrap();
    }
    for _ in 0..2000 {
        blocks.push(model::allocate_with_growth(&mut pools, 256).unwrap());
    }
    let calls = count_heap_calls(|| churn(&mut pools, &mut blocks));
    assert_eq!(calls, 0);
}
