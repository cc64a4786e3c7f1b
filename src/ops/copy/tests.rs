//! Compares plans of scattering copies with a list of moved elements.

use std::collections::HashMap;

use super::plan::Scatter;
use crate::tensor::layout::Layout;

/// A random view whose indices name different elements.
fn view(random: &mut fastrand::Rng) -> Layout {
    let rank = random.usize(1..5);
    let shape: Vec<usize> = (0..rank).map(|_| random.usize(1..9)).collect();
    let mut view = Layout::contiguous(&shape);
    for axis in 0..rank as isize {
        let dim = view.shape[axis as usize] as isize;
        view = match random.u8(0..5) {
            0 => view.flip(&[axis]),
            1 => view.slice(axis, None, None, random.isize(1..4)),
            2 => view.slice(axis, Some(random.isize(0..dim.max(1))), None, 1),
            3 => view.transpose(axis, random.isize(0..rank as isize)),
            _ => Ok(view),
        }
        .expect("a view that can be");
    }
    view
}

/// The moves of the kernel, from each element of the destination to its source.
fn scattered(plan: &Scatter) -> HashMap<u32, u32> {
    let (rank, outer) = Scatter::ranks_of(plan.code);
    let map = &plan.words[Scatter::MAP..];
    let (dims, to, from) = (&map[..rank], &map[rank..2 * rank], &map[2 * rank..]);
    let mut vec4s = HashMap::new();
    let mut moves = HashMap::new();
    for thread in 0..plan.words[0] {
        let (mut row, mut start, mut source) =
            (thread / plan.words[2], plan.words[1], plan.words[4]);
        for d in (0..outer).rev() {
            start += row % dims[d] * to[d];
            source = source.wrapping_add((row % dims[d]).wrapping_mul(from[d]));
            row /= dims[d];
        }
        let first = (start & !3) + 4 * (thread % plan.words[2]);
        for element in first..first + 4 {
            let mut rest = element.wrapping_sub(start);
            let (mut at, mut mine) = (source, rest < plan.words[3]);
            for d in outer..rank {
                let index = rest.checked_div(to[d]).unwrap_or(rest);
                rest = rest.wrapping_sub(index.wrapping_mul(to[d]));
                mine &= index < dims[d];
                at = at.wrapping_add(index.wrapping_mul(from[d]));
            }
            if mine && rest == 0 {
                assert!(
                    moves.insert(element, at).is_none(),
                    "{element} is written twice"
                );
                let other = *vec4s.entry(element / 4).or_insert(thread);
                assert_eq!(other, thread, "two invocations write one vec4");
            }
        }
    }
    moves
}

#[test]
fn every_element_is_written_once_and_no_vec4_by_two() {
    for seed in 0..3000 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let to = view(random);
        if to.len() == 0 {
            continue;
        }
        let mut from = Layout::contiguous(&to.shape);
        from.offset = random.usize(0..5);
        if random.bool() {
            from = from.flip(&[0]).expect("an axis");
        }
        let plan = Scatter::new(&to, &from).expect("views name each element once");
        let wanted: HashMap<u32, u32> = to
            .elements()
            .zip(from.elements())
            .map(|(to, from)| (to as u32, from as u32))
            .collect();
        assert_eq!(
            scattered(&plan),
            wanted,
            "seed {seed}: {to:?} from {from:?}"
        );
    }
}

#[test]
fn rows_far_apart_cost_no_more_than_their_elements() {
    // One position in a cache of 8 heads × 512 positions × 64 elements.
    let cache = Layout::contiguous(&[8, 512, 64]);
    let slot = cache.narrow(1, 77, 1).expect("a position");
    let plan = Scatter::new(&slot, &Layout::contiguous(&slot.shape)).expect("no overlap");
    assert_eq!(plan.words[0], 8 * 64 / 4);
}

#[test]
fn tiles_of_a_transpose_have_as_many_invocations_as_there_may_be() {
    assert_eq!(super::plan::tile(512, 512, 256), [2, 6]);
    assert_eq!(super::plan::tile(512, 512, 128), [2, 4]);
    assert_eq!(super::plan::tile(15, 15, 256), [2, 4]);
    assert_eq!(super::plan::tile(16, 16, 256), [4, 4]);
    assert_eq!(super::plan::tile(1, 300, 256), [0, 8]);
}
