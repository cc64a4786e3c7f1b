//! An expression read through a view of its result: `(a + b).t() * c`.
//!
//! If nothing else needs the result, every leaf is read where the view's elements come from. The
//! rest of the expression uses the view's dimensions, and the result itself is never stored.

use std::sync::Arc;

use smallvec::SmallVec;

use super::expr::{Expr, is_cheap, is_one, storage_of};
use super::maps::is_row_major;
use super::member::Member;
use super::structure::{Dims, ExprNode};
use crate::ops::elementwise::element::Map;

impl Expr {
    /// Adds the launch at `index`, which reads the expression's result through a view. Returns
    /// `false` if that is impossible; then nothing has changed.
    pub(super) fn add_through_view(&mut self, index: usize, members: &[Member]) -> bool {
        let through = || {
            let mut whole = self.clone();
            whole.see_through(index, members)?;
            whole.add(index, &members[index]).then_some(whole)
        };
        match through() {
            Some(mut whole) => {
                whole.viewed = None;
                *self = whole;
                true
            }
            None => false,
        }
    }

    /// Changes the expression to the elements and dimensions of the launch's view.
    fn see_through(&mut self, index: usize, members: &[Member]) -> Option<()> {
        let Member { launch, seen, .. } = &members[index];
        let (_, inputs) = launch.args.split_last()?;
        let mut view: Option<(usize, Map)> = None;
        let mut held = 0;
        for (operand, arg) in inputs.iter().enumerate() {
            let storage = Arc::as_ptr(&arg.storage);
            let Some(place) = self.written.iter().position(|one| one.storage == storage) else {
                continue;
            };
            let (map, node) = (seen.map(launch, operand), self.written[place].node);
            let is_same = match &view {
                None => true,
                Some((known, its)) => {
                    *known == place && its.offset == map.offset && its.strides == map.strides
                }
            };
            if !is_same || self.nodes[usize::from(node)].dtype != arg.dtype {
                return None;
            }
            held += 1;
            view = Some((place, map));
        }
        let (place, map) = view?;
        // No other tensor or command uses this expression's outputs.
        let is_for_this = self.written.iter().enumerate().all(|(other, one)| {
            let known = one.held + if other == place { held } else { 0 };
            one.start.is_none() && Arc::strong_count(storage_of(members, one.at)) == known
        });
        let is_repeated = seen.len > self.len && !self.nodes.iter().all(is_cheap);
        // Elements have other numbers under the view.
        let counts = self.nodes.iter().any(ExprNode::counts);
        if !is_for_this || is_repeated || counts {
            return None;
        }
        let (dims, strides) = align(&self.dims, &seen.dims(launch), &map.strides)?;
        let map = Map {
            offset: map.offset,
            strides,
        };
        for at in 0..self.leaves.len() {
            let leaf = &self.leaves[at];
            let (offset, strides) = match &leaf.strides {
                None => (map.offset, map.strides.clone()),
                Some(strides) if is_one(strides) => (leaf.offset, zeros(&dims)),
                Some(strides) => {
                    let (offset, inner) = compose(&self.dims, strides, &map, &dims)?;
                    (leaf.offset.wrapping_add(offset), inner)
                }
            };
            let in_order = offset == 0 && is_row_major(&dims, &strides);
            let leaf = &mut self.leaves[at];
            leaf.offset = offset;
            leaf.strides = (!in_order).then_some(strides);
        }
        let made = self.written.swap_remove(place);
        self.written.clear();
        self.viewed = Some((made.storage, made.node));
        (self.len, self.dims) = (seen.len, dims);
        Some(())
    }
}

fn zeros(dims: &[u32]) -> Dims {
    SmallVec::from_elem(0, dims.len())
}

/// The row-major strides of these dimensions.
fn steps(dims: &[u32]) -> SmallVec<[i64; 8]> {
    let mut steps: SmallVec<[i64; 8]> = SmallVec::from_elem(1, dims.len());
    for d in (1..dims.len()).rev() {
        steps[d - 1] = steps[d] * i64::from(dims[d]);
    }
    steps
}

/// The dimensions and strides of a view. Its dimensions are split where one covers several
/// dimensions of `inner`.
fn align(inner: &[u32], outer: &[u32], strides: &[u32]) -> Option<(Dims, Dims)> {
    let steps = steps(inner);
    let (mut dims, mut split) = (Dims::new(), Dims::new());
    for (&dim, &stride) in outer.iter().zip(strides).rev() {
        let (mut dim, mut stride) = (dim, i64::from(stride as i32));
        while let Some(d) = steps.iter().position(|&step| step == stride.abs()) {
            if d == 0 || dim <= inner[d] || !dim.is_multiple_of(inner[d]) || inner[d] == 1 {
                break;
            }
            dims.push(inner[d]);
            split.push(stride as u32);
            dim /= inner[d];
            stride *= i64::from(inner[d]);
        }
        dims.push(dim);
        split.push(stride as u32);
    }
    if dims.len() > dims.inline_size() {
        return None;
    }
    dims.reverse();
    split.reverse();
    Some((dims, split))
}

/// Composes a view's map with a map over `inner`. Returns the first element, and a stride for each
/// dimension of `outer`. `None` if a step of the view crosses several dimensions.
fn compose(inner: &[u32], strides: &[u32], view: &Map, outer: &[u32]) -> Option<(u32, Dims)> {
    let steps = steps(inner);
    let mut rest = i64::from(view.offset);
    let mut offset = 0_u32;
    // The lowest and the highest coordinate in each dimension.
    let mut reach: SmallVec<[(i64, i64); 8]> = SmallVec::new();
    for (d, &step) in steps.iter().enumerate() {
        let coordinate = rest / step;
        rest %= step;
        reach.push((coordinate, coordinate));
        offset = offset.wrapping_add((coordinate as u32).wrapping_mul(strides[d]));
    }
    let mut composed = zeros(outer);
    for (axis, (&dim, &stride)) in outer.iter().zip(&view.strides).enumerate() {
        let stride = i64::from(stride as i32);
        if stride == 0 || dim <= 1 {
            continue;
        }
        let d = steps.iter().position(|&step| stride % step == 0)?;
        let times = stride / steps[d];
        let last = times * (i64::from(dim) - 1);
        reach[d].0 += last.min(0);
        reach[d].1 += last.max(0);
        composed[axis] = (times as u32).wrapping_mul(strides[d]);
    }
    let is_inside = |(&(low, high), &dim): (&(i64, i64), &u32)| low >= 0 && high < i64::from(dim);
    let is_inside = reach.iter().zip(inner).all(is_inside);
    is_inside.then_some((offset, composed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_a_map_is_a_map_where_strides_can_say_it() {
        let check = |view: (u32, &[i32]), outer: &[u32], expected: Option<(u32, &[i32])>| {
            // Two rows of three: the elements of a row are 10 apart, the rows 100.
            let strides = view.1.iter().map(|&stride| stride as u32).collect();
            let map = Map {
                offset: view.0,
                strides,
            };
            let got = compose(&[2, 3], &[100, 10], &map, outer);
            let got = got.map(|(offset, strides)| {
                (
                    offset,
                    strides
                        .iter()
                        .map(|&stride| stride as i32)
                        .collect::<Vec<_>>(),
                )
            });
            assert_eq!(
                got,
                expected.map(|(offset, strides)| (offset, strides.to_vec()))
            );
        };
        check((0, &[3, 1]), &[2, 3], Some((0, &[100, 10])));
        check((0, &[1, 3]), &[3, 2], Some((0, &[10, 100])));
        check((5, &[-3, -1]), &[2, 3], Some((120, &[-100, -10])));
        check((1, &[0, 3]), &[4, 2], Some((10, &[0, 100])));
        check((0, &[2]), &[2], Some((0, &[20])));
        assert_eq!(
            align(&[2, 3], &[4, 6], &[0, 1]),
            Some((Dims::from_slice(&[4, 2, 3]), Dims::from_slice(&[0, 3, 1])))
        );
        // A step from the end of a row to the start of the next.
        check((0, &[1]), &[6], None);
        check((2, &[1]), &[2], None);
        check((0, &[2]), &[3], None);
    }
}
