//! Operands as views of larger storages in which all other elements are poison. A kernel with wrong
//! indices reads the poison.

use lapidary::{DType, Gpu, Result, Tensor};

use crate::common::operands::tensor;

/// The kind of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A separate storage.
    Plain,
    /// Without gaps, beginning inside a vec4.
    Shifted,
    /// Without gaps, beginning at a later vec4.
    Later,
    /// Rows with gaps between them that begin inside a vec4.
    Padded,
    /// Every second element of a row.
    Stepped,
    /// From the last element to the first.
    Flipped,
    /// With its axes in the opposite order.
    Permuted,
    /// The middle of a tensor that is larger along every axis.
    Middle,
    /// The first element of each row, repeated.
    OneColumn,
    /// The first row, repeated.
    OneRow,
    /// One element that is not the first of its storage.
    OneElement,
}

impl Kind {
    pub(crate) const ALL: [Kind; 11] = [
        Kind::Plain,
        Kind::Shifted,
        Kind::Later,
        Kind::Padded,
        Kind::Stepped,
        Kind::Flipped,
        Kind::Permuted,
        Kind::Middle,
        Kind::OneColumn,
        Kind::OneRow,
        Kind::OneElement,
    ];

    /// Do several indices refer to one element?
    pub(crate) fn repeats(self) -> bool {
        matches!(self, Kind::OneColumn | Kind::OneRow | Kind::OneElement)
    }
}

/// A tensor, its storage, and its elements in the storage.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) tensor: Tensor,
    /// The whole storage.
    pub(crate) base: Tensor,
    /// The initial contents of the storage.
    pub(crate) held: Vec<f64>,
    /// The elements of the storage, in the order of the view.
    pub(crate) at: Vec<usize>,
}

impl View {
    /// The initial elements of the view.
    pub(crate) fn elements(&self) -> Vec<f64> {
        self.at.iter().map(|&at| self.held[at]).collect()
    }
}

/// The layout of a view, kept beside the tensor.
struct Map {
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset: isize,
}

impl Map {
    fn new(shape: &[usize]) -> Map {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis] as isize;
        }
        Map {
            shape: shape.to_vec(),
            strides,
            offset: 0,
        }
    }

    fn at(&self) -> Vec<usize> {
        let len = self.shape.iter().product();
        let element = |mut flat: usize| {
            let mut at = self.offset;
            for axis in (0..self.shape.len()).rev() {
                at += (flat % self.shape[axis]) as isize * self.strides[axis];
                flat /= self.shape[axis];
            }
            at as usize
        };
        (0..len).map(element).collect()
    }
}

/// Creates views of one type.
pub(crate) struct Maker<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) dtype: DType,
    /// Number of elements of the storage before all views.
    pub(crate) lead: usize,
}

impl Maker<'_> {
    /// A tensor of this shape as a view of this kind. `value` gives the elements in order, and
    /// `poison` gives the other elements of the storage. `None` if the shape has no such view.
    pub(crate) fn view(
        &self,
        kind: Kind,
        shape: &[usize],
        value: impl Fn(usize) -> f64,
        poison: impl Fn(usize) -> f64,
    ) -> Option<View> {
        let (len, map) = place(kind, shape)?;
        let at: Vec<usize> = map.at().iter().map(|at| at + self.lead).collect();
        let mut held: Vec<f64> = (0..self.lead + len).map(poison).collect();
        // If several indices refer to one element, the first one decides its value.
        for (index, &at) in at.iter().enumerate().rev() {
            held[at] = value(index);
        }
        let base = tensor(self.gpu, self.dtype, &held, &[held.len()]).expect("room");
        let around = base.narrow(0, self.lead, len).expect("the rest of it");
        let tensor = shown(kind, &around, shape).expect("a view of this kind");
        assert_eq!(tensor.shape(), shape, "{kind:?}");
        Some(View {
            tensor,
            base,
            held,
            at,
        })
    }
}

/// Operands of one type in one storage, one after the other, with poison between them.
pub(crate) fn together(
    gpu: &Gpu,
    dtype: DType,
    operands: &[(Vec<usize>, Vec<f64>)],
    poison: impl Fn(usize) -> f64,
) -> Vec<View> {
    const GAP: usize = 3;
    let mut held: Vec<f64> = Vec::new();
    let mut starts = Vec::new();
    for (_, values) in operands {
        held.extend((0..GAP).map(&poison));
        starts.push(held.len());
        held.extend(values);
    }
    held.extend((0..GAP).map(&poison));
    let base = tensor(gpu, dtype, &held, &[held.len()]).expect("room");
    let view = |((shape, values), start): (&(Vec<usize>, Vec<f64>), usize)| {
        let part = base.narrow(0, start, values.len()).expect("a part");
        View {
            tensor: part.view_as(shape).expect("no gaps"),
            base: base.clone(),
            held: held.clone(),
            at: (start..start + values.len()).collect(),
        }
    };
    operands.iter().zip(starts).map(view).collect()
}

/// The length of the storage, and the layout of the view.
fn place(kind: Kind, shape: &[usize]) -> Option<(usize, Map)> {
    let len: usize = shape.iter().product();
    let last = shape.len().checked_sub(1);
    let mut map = Map::new(shape);
    let whole = match kind {
        Kind::Plain => return Some((len, map)),
        Kind::Shifted => Some((len + 7, 3)),
        Kind::Later => Some((len + 11, 8)),
        Kind::OneElement => {
            map.strides.fill(0);
            Some((11, 6))
        }
        Kind::Flipped => {
            map.strides.iter_mut().for_each(|stride| *stride = -*stride);
            Some((len + 5, 2 + len as isize - 1))
        }
        _ => None,
    };
    if let Some((len, offset)) = whole {
        map.offset = offset;
        return Some((len, map));
    }
    let last = last?;
    let (inner, strides) = match kind {
        Kind::Padded => {
            let mut base = shape.to_vec();
            base[last] += 3;
            map.offset = 1;
            (base.iter().product(), Map::new(&base).strides)
        }
        Kind::Stepped => {
            let mut base = shape.to_vec();
            base[last] = 2 * base[last] + 1;
            map.offset = 1;
            let mut strides = Map::new(&base).strides;
            strides[last] = 2;
            (base.iter().product(), strides)
        }
        Kind::Permuted => {
            let base: Vec<usize> = shape.iter().rev().copied().collect();
            map.offset = 5;
            let strides = Map::new(&base).strides;
            (len + 9, strides.into_iter().rev().collect())
        }
        Kind::Middle => {
            let base: Vec<usize> = shape.iter().map(|dim| dim + 2).collect();
            let strides = Map::new(&base).strides;
            map.offset = strides.iter().sum();
            (base.iter().product(), strides)
        }
        Kind::OneColumn | Kind::OneRow => {
            let axis = if kind == Kind::OneRow { 0 } else { last };
            let mut base = shape.to_vec();
            base[axis] = 1;
            map.offset = 3;
            let mut strides = Map::new(&base).strides;
            strides[axis] = 0;
            (base.iter().product::<usize>() + 7, strides)
        }
        _ => return None,
    };
    map.strides = strides;
    Some((inner, map))
}

/// The view, made with the methods that an app would call.
fn shown(kind: Kind, base: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let len: usize = shape.iter().product();
    let axes: Vec<isize> = (0..shape.len() as isize).collect();
    let last = *axes.last().unwrap_or(&0);
    let grown = |grow: &dyn Fn(usize, usize) -> usize| -> Vec<usize> {
        let dims = shape.iter().enumerate();
        dims.map(|(axis, &dim)| grow(axis, dim)).collect()
    };
    match kind {
        Kind::Plain => base.view_as(shape),
        Kind::Shifted => base.narrow(0, 3, len)?.view_as(shape),
        Kind::Later => base.narrow(0, 8, len)?.view_as(shape),
        Kind::Flipped => base.narrow(0, 2, len)?.view_as(shape)?.flip(&axes),
        Kind::OneElement => base.select(0, 6)?.broadcast_to(shape),
        Kind::Padded => {
            let wide = grown(&|axis, dim| dim + if axis as isize == last { 3 } else { 0 });
            base.view_as(&wide)?.narrow(last, 1, shape[last as usize])
        }
        Kind::Stepped => {
            let wide = grown(&|axis, dim| {
                if axis as isize == last {
                    2 * dim + 1
                } else {
                    dim
                }
            });
            base.view_as(&wide)?.slice(last, Some(1), None, 2)
        }
        Kind::Permuted => {
            let turned: Vec<usize> = shape.iter().rev().copied().collect();
            let back: Vec<isize> = axes.iter().rev().copied().collect();
            base.narrow(0, 5, len)?.view_as(&turned)?.permute(&back)
        }
        Kind::Middle => {
            let mut view = base.view_as(&grown(&|_, dim| dim + 2))?;
            for &axis in &axes {
                view = view.narrow(axis, 1, shape[axis as usize])?;
            }
            Ok(view)
        }
        Kind::OneColumn | Kind::OneRow => {
            let repeated = if kind == Kind::OneRow { 0 } else { last };
            let narrow = grown(&|axis, dim| if axis as isize == repeated { 1 } else { dim });
            base.narrow(0, 3, narrow.iter().product())?
                .view_as(&narrow)?
                .broadcast_to(shape)
        }
    }
}
