//! Random chains of views against a model that stores the element number of every index.

use crate::tensor::layout::{Layout, collapse};

/// A tensor as a shape and the element number of every index, in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    shape: Vec<usize>,
    elements: Vec<usize>,
}

impl Model {
    fn row_major(shape: &[usize]) -> Model {
        Model {
            shape: shape.to_vec(),
            elements: (0..shape.iter().product()).collect(),
        }
    }

    fn at(&self, index: &[usize]) -> usize {
        let flat = (self.shape.iter().zip(index)).fold(0, |flat, (dim, at)| flat * dim + at);
        self.elements[flat]
    }

    /// The tensor of `shape` whose index `i` names the same element as index `source(i)` here.
    fn remap(&self, shape: Vec<usize>, source: impl Fn(&[usize]) -> Vec<usize>) -> Model {
        let elements = indices(&shape)
            .iter()
            .map(|i| self.at(&source(i)))
            .collect();
        Model { shape, elements }
    }
}

/// All indices of a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &dim in shape {
        all = (all.iter())
            .flat_map(|front| (0..dim).map(move |last| [&front[..], &[last]].concat()))
            .collect();
    }
    all
}

/// The element of an index, computed directly from the definition.
fn named(layout: &Layout, index: &[usize]) -> usize {
    let sum: isize = (index.iter().zip(&layout.strides))
        .map(|(&at, stride)| at as isize * stride)
        .sum();
    layout
        .offset
        .checked_add_signed(sum)
        .expect("inside the storage")
}

/// Compares all properties of a layout with the model.
fn check(layout: &Layout, model: &Model) {
    assert_eq!(layout.shape[..], model.shape[..]);
    let elements: Vec<usize> = indices(&model.shape)
        .iter()
        .map(|index| named(layout, index))
        .collect();
    assert_eq!(elements, model.elements, "{layout:?}");
    assert_eq!(
        layout.elements().collect::<Vec<_>>(),
        elements,
        "{layout:?}"
    );
    assert_eq!(layout.len(), elements.len());
    let span = elements
        .iter()
        .min()
        .copied()
        .zip(elements.iter().max().copied());
    assert_eq!(layout.span(), span, "{layout:?}");
    assert_eq!(
        layout.is_contiguous(),
        elements.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{layout:?}"
    );
    let mut distinct = elements.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(
        layout.has_overlap(),
        distinct.len() < elements.len(),
        "{layout:?}"
    );
}

/// A random view of both. `None` if the random choice is not possible.
fn random_view(rng: &mut fastrand::Rng, layout: &Layout, model: &Model) -> Option<(Layout, Model)> {
    match (rng.u8(..9), layout.rank()) {
        (choice @ 0..4, 1..) => random_view_along(rng, choice, layout, model),
        (4, _) => Some(random_permutation(rng, layout, model)),
        (5, 0..5) => {
            let axis = rng.usize(..=layout.rank());
            let mut target = model.clone();
            target.shape.insert(axis, 1);
            Some((layout.unsqueeze(axis as isize).unwrap(), target))
        }
        (6, _) => {
            let mut target = model.clone();
            target.shape.retain(|&dim| dim != 1);
            Some((layout.squeeze(), target))
        }
        (7, 0..5) if model.elements.len() < 200 => Some(random_broadcast(rng, layout, model)),
        (8, _) => random_reshape(rng, layout, model),
        _ => None,
    }
}

/// A random view that picks some positions along one axis.
fn random_view_along(
    rng: &mut fastrand::Rng,
    choice: u8,
    layout: &Layout,
    model: &Model,
) -> Option<(Layout, Model)> {
    let rank = layout.rank();
    let axis = rng.usize(..rank);
    let along = axis as isize - if rng.bool() { rank as isize } else { 0 };
    let dim = model.shape[axis];
    let (view, picked) = match choice {
        0 => {
            let bound = |rng: &mut fastrand::Rng| rng.bool().then(|| rng.isize(-7..=7));
            let (start, end) = (bound(rng), bound(rng));
            let step = [-3, -2, -1, 1, 2, 3][rng.usize(..6)];
            let picked = python_slice(dim, start, end, step);
            (layout.slice(along, start, end, step), picked)
        }
        1 => (layout.flip(&[along]), (0..dim).rev().collect()),
        2 => {
            let start = rng.usize(..=dim);
            let len = rng.usize(..=dim - start);
            let picked = (start..start + len).collect();
            // The same start, counted from the end.
            let given = match rng.bool() && start < dim {
                true => start as isize - dim as isize,
                false => start as isize,
            };
            (layout.narrow(along, given, len), picked)
        }
        _ if dim == 0 => return None,
        _ => {
            let at = rng.usize(..dim);
            (layout.select(along, at as isize), vec![at])
        }
    };
    let mut target = model.shape.clone();
    target[axis] = picked.len();
    let mut model = model.remap(target, |index| {
        let mut index = index.to_vec();
        index[axis] = picked[index[axis]];
        index
    });
    if choice == 3 {
        model.shape.remove(axis);
    }
    Some((view.unwrap(), model))
}

fn random_permutation(rng: &mut fastrand::Rng, layout: &Layout, model: &Model) -> (Layout, Model) {
    let rank = layout.rank();
    let mut order: Vec<usize> = (0..rank).collect();
    rng.shuffle(&mut order);
    let axes: Vec<isize> = (order.iter())
        .map(|&axis| axis as isize - if rng.bool() { rank as isize } else { 0 })
        .collect();
    let target = order.iter().map(|&axis| model.shape[axis]).collect();
    let model = model.remap(target, |index| {
        let mut source = vec![0; rank];
        for (&axis, &at) in order.iter().zip(index) {
            source[axis] = at;
        }
        source
    });
    (layout.permute(&axes).unwrap(), model)
}

fn random_broadcast(rng: &mut fastrand::Rng, layout: &Layout, model: &Model) -> (Layout, Model) {
    let added = rng.usize(..2);
    let mut target = vec![2; added];
    target.extend((model.shape.iter()).map(|&dim| if dim == 1 { rng.usize(..4) } else { dim }));
    let view = layout.broadcast_to(&target).unwrap();
    let model = model.remap(target, |index| {
        (index[added..].iter().zip(&model.shape))
            .map(|(&at, &dim)| at.min(dim - 1))
            .collect()
    });
    (view, model)
}

/// A random shape of the same length. If the layout makes no view, then none exists.
fn random_reshape(
    rng: &mut fastrand::Rng,
    layout: &Layout,
    model: &Model,
) -> Option<(Layout, Model)> {
    let mut target = vec![];
    let mut left = model.elements.len();
    while left > 1 {
        let divisors: Vec<usize> = (1..=left).filter(|d| left.is_multiple_of(*d)).collect();
        let dim = divisors[rng.usize(..divisors.len())];
        target.push(dim);
        left /= dim;
    }
    if left == 0 {
        target = vec![3, 0];
    }
    if target.len() > 5 {
        return None;
    }
    let model = Model {
        shape: target,
        elements: model.elements.clone(),
    };
    match layout.reshape(&model.shape).unwrap() {
        Some(view) => Some((view, model)),
        None => {
            assert!(
                !is_affine(&model),
                "{layout:?} has a view of shape {:?}",
                model.shape
            );
            None
        }
    }
}

/// Is every element an offset plus strides times the index?
fn is_affine(model: &Model) -> bool {
    let origin = vec![0; model.shape.len()];
    let first = model.at(&origin) as isize;
    let strides: Vec<isize> = (0..model.shape.len())
        .map(|axis| {
            let mut unit = origin.clone();
            unit[axis] = 1.min(model.shape[axis] - 1);
            model.at(&unit) as isize - first
        })
        .collect();
    indices(&model.shape).iter().all(|index| {
        let sum: isize = index
            .iter()
            .zip(&strides)
            .map(|(&at, s)| at as isize * s)
            .sum();
        model.at(index) as isize == first + sum
    })
}

/// `range(dim)[start:end:step]`, from the definition in Python's reference: negative bounds count
/// from the end, then bounds are clamped.
fn python_slice(dim: usize, start: Option<isize>, end: Option<isize>, step: isize) -> Vec<usize> {
    let dim = dim as isize;
    let (low, high) = if step > 0 { (0, dim) } else { (-1, dim - 1) };
    let fix = |bound: isize| (if bound < 0 { bound + dim } else { bound }).clamp(low, high);
    let mut at = start.map_or(if step > 0 { low } else { high }, fix);
    let end = end.map_or(if step > 0 { high } else { low }, fix);
    let mut picked = vec![];
    while if step > 0 { at < end } else { at > end } {
        picked.push(at as usize);
        at += step;
    }
    picked
}

#[test]
fn chains_of_views_name_the_elements_that_the_model_names() {
    for seed in 0..4000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let shape: Vec<usize> = (0..rng.usize(..=4))
            .map(|_| rng.usize(..=5).max(rng.usize(..=1)))
            .collect();
        let (mut layout, mut model) = (Layout::contiguous(&shape), Model::row_major(&shape));
        let outcome = std::panic::catch_unwind(move || {
            check(&layout, &model);
            for _ in 0..rng.usize(1..=6) {
                if let Some(view) = random_view(&mut rng, &layout, &model) {
                    (layout, model) = view;
                    check(&layout, &model);
                }
            }
        });
        assert!(outcome.is_ok(), "seed {seed}, shape {shape:?}");
    }
}

#[test]
fn collapsed_operands_name_the_same_elements_with_as_few_dimensions_as_possible() {
    for seed in 0..2000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let shape: Vec<usize> = (0..rng.usize(..=5)).map(|_| rng.usize(..=4)).collect();
        let operands: Vec<Layout> = (0..rng.usize(1..=3))
            .map(|_| random_operand(&mut rng, &shape))
            .collect();
        let operands: Vec<&Layout> = operands.iter().collect();
        let collapsed = collapse(&shape, &operands);
        let dims: Vec<usize> = collapsed.dims.iter().map(|&dim| dim as usize).collect();
        for (operand, layout) in operands.iter().enumerate() {
            let elements: Vec<usize> = indices(&dims)
                .iter()
                .map(|index| {
                    let start = collapsed.offsets[operand];
                    (index.iter().zip(collapsed.strides[operand]))
                        .fold(start, |sum, (&at, stride)| {
                            sum.wrapping_add((at as u32).wrapping_mul(stride))
                        }) as usize
                })
                .collect();
            let expected: Vec<usize> = indices(&shape)
                .iter()
                .map(|index| named(layout, index))
                .collect();
            assert_eq!(
                elements, expected,
                "seed {seed}, {layout:?} → {collapsed:?}"
            );
        }
        let mergeable = |axis: usize| {
            let outer_of = |operand: usize| collapsed.strides[operand][axis - 1];
            let inner_of = |operand: usize| collapsed.strides[operand][axis];
            (0..operands.len()).all(|operand| {
                outer_of(operand) == inner_of(operand).wrapping_mul(collapsed.dims[axis])
            })
        };
        assert!(
            !(1..dims.len()).any(mergeable),
            "seed {seed}: {collapsed:?}"
        );
        assert!(
            dims.len() == 1 || !dims.contains(&1),
            "seed {seed}: {collapsed:?}"
        );
    }
}

/// An operand of a shape: contiguous, broadcast, flipped or permuted.
fn random_operand(rng: &mut fastrand::Rng, shape: &[usize]) -> Layout {
    let own: Vec<usize> = shape
        .iter()
        .map(|&dim| if rng.u8(..4) == 0 { 1 } else { dim })
        .collect();
    let mut order: Vec<isize> = (0..own.len() as isize).collect();
    if rng.u8(..3) == 0 {
        rng.shuffle(&mut order);
    }
    let stored: Vec<usize> = (0..own.len())
        .map(|axis| {
            own[order
                .iter()
                .position(|&from| from == axis as isize)
                .unwrap()]
        })
        .collect();
    let mut layout = Layout::contiguous(&stored).permute(&order).unwrap();
    if rng.bool() && !own.is_empty() {
        layout = layout.flip(&[rng.isize(0..own.len() as isize)]).unwrap();
    }
    layout.broadcast_to(shape).unwrap()
}
