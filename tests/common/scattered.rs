//! Places of new tensors: a separate storage, or some elements of a larger one.

use fastrand::Rng;
use lapidary::{Result, Tensor};

/// A view with this shape in a storage of one dimension.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    shape: Vec<usize>,
    /// Elements of the storage in front of the view.
    lead: usize,
    /// The axes in the order in which the storage has them.
    axes: Vec<usize>,
    /// For each axis: elements before the first one, the step between two, and whether it is
    /// reversed.
    cuts: Vec<(usize, usize, bool)>,
}

/// Most elements of a scattered tensor.
const MOST_SCATTERED: usize = 5_000;

impl Place {
    /// Either a separate storage or a view of a larger one, with equal probability.
    pub(crate) fn new(rng: &mut Rng, shape: &[usize]) -> Place {
        let len: usize = shape.iter().product();
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        let mut cuts = vec![(0, 1, false); shape.len()];
        let mut lead = 0;
        if len > 0 && rng.bool() {
            lead = rng.usize(0..9);
            // In a third of these no element's neighbour is beside it.
            if len <= MOST_SCATTERED && rng.u32(..3) > 0 {
                rng.shuffle(&mut axes);
                let far = rng.usize(..2 * shape.len().max(1));
                let cut = |axis: usize| {
                    let step = if axis == far { 2 } else { 1 };
                    (rng.usize(0..2), step, rng.u32(..4) == 0)
                };
                cuts = (0..shape.len()).map(cut).collect();
            }
        }
        Place {
            shape: shape.to_vec(),
            lead,
            axes,
            cuts,
        }
    }

    /// Size of an axis in the storage.
    fn grown(&self, axis: usize) -> usize {
        let (before, step, _) = self.cuts[axis];
        before + self.shape[axis] * step
    }

    /// Number of elements of the storage. If the view is not alone, one is behind it.
    pub(crate) fn storage_len(&self) -> usize {
        self.block_len() + if self.lead > 0 { self.lead + 1 } else { 0 }
    }

    fn block_len(&self) -> usize {
        self.axes.iter().map(|&axis| self.grown(axis)).product()
    }

    /// The view in a storage of this length.
    pub(crate) fn view(&self, storage: &Tensor) -> Result<Tensor> {
        let grown: Vec<usize> = self.axes.iter().map(|&axis| self.grown(axis)).collect();
        let mut back = vec![0; self.axes.len()];
        for (at, &axis) in self.axes.iter().enumerate() {
            back[axis] = at as isize;
        }
        let block = storage.narrow(0, self.lead, self.block_len())?;
        let mut view = block.view_as(&grown)?.permute(&back)?;
        for (axis, &(before, step, is_turned)) in self.cuts.iter().enumerate() {
            let along = axis as isize;
            view = view.slice(along, Some(before as isize), None, step as isize)?;
            if is_turned {
                view = view.flip(&[along])?;
            }
        }
        Ok(view)
    }

    /// The element of the storage that an index of the view refers to.
    pub(crate) fn at(&self, index: &[usize]) -> usize {
        let inside = self.axes.iter().fold(0, |at, &axis| {
            let (before, step, is_turned) = self.cuts[axis];
            let along = match is_turned {
                true => self.shape[axis] - 1 - index[axis],
                false => index[axis],
            };
            at * self.grown(axis) + before + step * along
        });
        self.lead + inside
    }
}

#[test]
fn a_place_tells_which_element_an_index_names() {
    let (gpu, _) = lapidary::Gpu::simulated(Default::default()).unwrap();
    for seed in 0..50 {
        let place = Place::new(&mut Rng::with_seed(seed), &[3, 4]);
        let len = place.storage_len();
        let storage = gpu.arange(0, len as i32, 1, lapidary::DType::I32).unwrap();
        let view = place.view(&storage).unwrap().to_vec::<i32>().unwrap();
        let told = (0..12).map(|index| place.at(&[index / 4, index % 4]) as i32);
        assert_eq!(told.collect::<Vec<_>>(), view, "seed {seed}: {place:?}");
    }
}
