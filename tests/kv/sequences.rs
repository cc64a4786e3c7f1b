//! Sequences: forks, shared pages, truncation, and steps that are taken back.

use lapidary::kv::Attend;
use lapidary::{DType, Result};

use super::model::{SMALL, Shape, World};
use crate::ops_reduce::model::each;

const HOW: Attend = Attend {
    scale: None,
    window: None,
    softcap: None,
};

#[test]
fn forks_go_on_apart_from_shared_pages() -> Result<()> {
    for gpu in each() {
        let dtype = DType::F16;
        let mut world = World::new(&gpu, Shape { dtype, ..SMALL });
        let mut first = world.talk("first");
        world.step(&mut [(&mut first, 37)], HOW)?;
        let live = |world: &World| {
            world.gpu.finish().expect("a device");
            world.gpu.memory().stats().live_bytes.now
        };
        let before = live(&world);
        let mut second = first.fork("second");
        let mut third = second.fork("third");
        assert_eq!(second.sequence.len(), 37);
        assert_eq!(live(&world), before);
        world.step(&mut [(&mut second, 1), (&mut first, 1)], HOW)?;
        world.step(
            &mut [(&mut first, 3), (&mut third, 30), (&mut second, 1)],
            HOW,
        )?;
        drop(first);
        world.step(&mut [(&mut third, 1), (&mut second, 1)], HOW)?;
    }
    Ok(())
}

#[test]
fn a_truncated_sequence_goes_on_from_there() -> Result<()> {
    for gpu in each() {
        let dtype = DType::I8;
        let mut world = World::new(&gpu, Shape { dtype, ..SMALL });
        let mut talk = world.talk("talk");
        world.step(&mut [(&mut talk, 50)], HOW)?;
        let whole = talk.fork("whole");
        for len in [35, 34, 32, 18, 0] {
            talk.truncate(len, SMALL)?;
            assert_eq!(talk.sequence.len(), len);
            assert_eq!(talk.sequence.is_empty(), len == 0);
            world.step(&mut [(&mut talk, 1)], HOW)?;
        }
        let mut whole = whole;
        world.step(&mut [(&mut whole, 2)], HOW)?;
    }
    Ok(())
}

#[test]
fn a_step_without_finish_leaves_its_sequences_as_they_were() -> Result<()> {
    for gpu in each() {
        let mut world = World::new(&gpu, SMALL);
        let mut talk = world.talk("talk");
        let mut other = world.talk("other");
        world.step(&mut [(&mut talk, 20)], HOW)?;
        let fork = talk.fork("fork");
        let bytes = talk.sequence.bytes();
        {
            let cache = world.cache.clone();
            let step = cache.step(vec![(&mut talk.sequence, 40), (&mut other.sequence, 1)])?;
            let rows = world.rows(41, 4);
            let q = world.upload(&rows, 4);
            let k = world.upload(&rows[..41 * 2 * 16], 2);
            step.attend(0, &q, &k, &k, HOW)?;
        }
        assert_eq!((talk.sequence.len(), talk.sequence.bytes()), (20, bytes));
        assert_eq!((other.sequence.len(), other.sequence.bytes()), (0, 0));
        world.step(&mut [(&mut talk, 5), (&mut other, 17)], HOW)?;
        let mut fork = fork;
        world.step(&mut [(&mut fork, 1)], HOW)?;
    }
    Ok(())
}

#[test]
fn pages_count_under_the_name_of_their_sequence() -> Result<()> {
    for gpu in each() {
        let mut world = World::new(&gpu, SMALL);
        let mut talk = world.talk("the chat of Ann");
        world.step(&mut [(&mut talk, 40)], HOW)?;
        gpu.finish()?;
        let snapshot = gpu.memory().snapshot();
        let blocks = snapshot.slabs.iter().flat_map(|slab| &slab.blocks);
        let own = blocks.filter(|block| snapshot.tag_name(block.tag).contains("the chat of Ann"));
        let bytes: u64 = own.map(|block| block.size_bytes).sum();
        assert_eq!(bytes, talk.sequence.bytes());
        assert_eq!(talk.sequence.name(), "the chat of Ann");
        assert_eq!(talk.sequence.bytes(), 3 * 16 * 2 * 2 * 2 * 16 * 4);
    }
    Ok(())
}
