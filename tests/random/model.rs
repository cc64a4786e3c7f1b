//! The oracle: a tensor as a shared vector of numbers, and the place of each of its elements in the
//! vector. Numbers of every type are f64, which holds all of them exactly. A vector also knows what
//! it was computed from, as one without a value leaves those without it that come of it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use half::{bf16, f16};
use lapidary::{DType, Gpu, Result, Tensor};

/// The value of a number in a type. Integers wrap as on the device, and halves come by way of f32.
pub(crate) fn rounded(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => f16::from_f32(value as f32).to_f64(),
        DType::Bf16 => bf16::from_f32(value as f32).to_f64(),
        DType::I32 => f64::from(value as i64 as i32),
        DType::U32 => f64::from(value as i64 as u32),
        DType::U8 => f64::from(value as i64 as u8),
        DType::I8 => f64::from(value as i64 as i8),
        _ => f64::from(u8::from(value != 0.0)),
    }
}

/// Rust's `as` between two types.
pub(crate) fn cast(from: DType, to: DType, value: f64) -> f64 {
    match to {
        DType::I32 if from.is_float() => f64::from(value as i32),
        DType::U32 if from.is_float() => f64::from(value as u32),
        DType::U8 if from.is_float() => f64::from(value as u8),
        DType::I8 if from.is_float() => f64::from(value as i8),
        // Through f32.
        DType::F16 | DType::Bf16 => rounded(to, rounded(DType::F32, value)),
        _ => rounded(to, value),
    }
}

/// The expected contents of a storage.
#[derive(Default)]
pub(crate) struct Data {
    pub(crate) values: RefCell<Vec<f64>>,
    /// A fault, a loss, or a rematerializer with changed inputs may have destroyed its value. Then
    /// a read gives the expected value or an error.
    pub(crate) is_unsure: Cell<bool>,
    /// Its tensor may be a view of a larger one, as some results are.
    pub(crate) may_be_part: Cell<bool>,
    /// It has a rematerializer.
    pub(crate) has_rematerializer: Cell<bool>,
    /// The storages computed from it.
    children: RefCell<Vec<Weak<Data>>>,
    /// The storages that a rematerializer would compute from it after a drop.
    rematerializers: RefCell<Vec<Weak<Data>>>,
    /// The inputs of its rematerializer. They live as long as the rematerializer, even if the
    /// program dropped them.
    inputs: RefCell<Vec<Rc<Data>>>,
}

impl Data {
    /// It was computed from this, so it is in doubt if that is.
    pub(crate) fn comes_of(self: &Rc<Self>, parent: &Rc<Data>) {
        if Rc::ptr_eq(self, parent) {
            return;
        }
        let mut children = parent.children.borrow_mut();
        children.retain(|child| child.strong_count() > 0);
        children.push(Rc::downgrade(self));
        if parent.is_unsure.get() {
            self.doubt();
        }
    }

    /// It may be rematerialized from these.
    pub(crate) fn recomputed_from(self: &Rc<Self>, inputs: &[Rc<Data>]) {
        self.has_rematerializer.set(true);
        for input in inputs {
            self.inputs.borrow_mut().push(Rc::clone(input));
            input.rematerializers.borrow_mut().push(Rc::downgrade(self));
        }
    }

    pub(crate) fn feeds_rematerializers(&self) -> bool {
        let mut rematerializers = self.rematerializers.borrow_mut();
        rematerializers.retain(|rematerializer| rematerializer.strong_count() > 0);
        !rematerializers.is_empty()
    }

    /// It is written, so storages that would be rematerialized from it may be lost.
    pub(crate) fn written(&self) {
        let rematerializers = self.rematerializers.take();
        for rematerializer in rematerializers.iter().filter_map(Weak::upgrade) {
            rematerializer.doubt();
        }
    }

    /// It may have no value, and neither may the storages computed from it.
    pub(crate) fn doubt(&self) {
        if self.is_unsure.replace(true) {
            return;
        }
        let (children, rematerializers) = (self.children.borrow(), self.rematerializers.borrow());
        let all = children.iter().chain(rematerializers.iter());
        all.filter_map(Weak::upgrade).for_each(|one| one.doubt());
    }
}

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// The place of each element, in row-major order.
    pub(crate) at: Vec<usize>,
    pub(crate) data: Rc<Data>,
}

impl Model {
    pub(crate) fn new(dtype: DType, shape: &[usize], values: Vec<f64>) -> Self {
        assert_eq!(values.len(), shape.iter().product::<usize>());
        Model {
            dtype,
            shape: shape.to_vec(),
            at: (0..values.len()).collect(),
            data: Rc::new(Data {
                values: RefCell::new(values),
                ..Data::default()
            }),
        }
    }

    pub(crate) fn values(&self) -> Vec<f64> {
        let data = self.data.values.borrow();
        self.at.iter().map(|&at| data[at]).collect()
    }

    pub(crate) fn set(&self, values: &[f64]) {
        let mut data = self.data.values.borrow_mut();
        for (&at, &value) in self.at.iter().zip(values) {
            data[at] = value;
        }
    }

    /// Is it all of its storage, in order?
    pub(crate) fn is_whole(&self) -> bool {
        !self.data.may_be_part.get()
            && self.at.len() == self.data.values.borrow().len()
            && self.at.iter().enumerate().all(|(index, &at)| index == at)
    }

    /// Does an element occur twice?
    pub(crate) fn repeats(&self) -> bool {
        let mut at = self.at.clone();
        at.sort_unstable();
        at.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Another view of the same numbers. `from` maps each index of the new shape to one of the old
    /// shape.
    pub(crate) fn view(&self, shape: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Model {
        let at = indices(shape).map(|index| self.at[flat(&self.shape, &from(&index))]);
        Model {
            dtype: self.dtype,
            shape: shape.to_vec(),
            at: at.collect(),
            data: self.data.clone(),
        }
    }

    /// The elements, repeated to a larger shape.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Model {
        if shape == self.shape {
            return self.clone();
        }
        let lead = shape.len() - self.shape.len();
        let old = self.shape.clone();
        self.view(shape, |index| {
            let tail = index[lead..].iter().zip(&old);
            tail.map(|(&i, &dim)| if dim == 1 { 0 } else { i })
                .collect()
        })
    }
}

/// All indices of a shape, in row-major order.
pub(crate) fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = shape.to_vec();
    let len = shape.iter().product::<usize>();
    (0..len).map(move |mut flat| {
        let mut index = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            index[axis] = flat % shape[axis];
            flat /= shape[axis];
        }
        index
    })
}

pub(crate) fn flat(shape: &[usize], index: &[usize]) -> usize {
    (shape.iter().zip(index)).fold(0, |flat, (&dim, &i)| flat * dim + i)
}

/// The shape to which both broadcast.
pub(crate) fn common(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let dim = |shape: &[usize], axis: usize| {
        let lead = rank - shape.len();
        if axis < lead { 1 } else { shape[axis - lead] }
    };
    let dims = (0..rank).map(|axis| match (dim(a, axis), dim(b, axis)) {
        (x, y) if x == y || y == 1 => Some(x),
        (1, y) => Some(y),
        _ => None,
    });
    dims.collect()
}

/// Calls `$body` with `$T` as the type's Rust type and `$to`, which converts an f64 to it.
macro_rules! typed {
    ($dtype:expr, $T:ident, $to:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                let $to = |v: f64| v as f32;
                $body
            }
            DType::F16 => {
                type $T = f16;
                let $to = |v: f64| f16::from_f32(v as f32);
                $body
            }
            DType::Bf16 => {
                type $T = half::bf16;
                let $to = |v: f64| half::bf16::from_f32(v as f32);
                $body
            }
            DType::I8 => {
                type $T = i8;
                let $to = |v: f64| v as i8;
                $body
            }
            DType::I32 => {
                type $T = i32;
                let $to = |v: f64| v as i32;
                $body
            }
            DType::U32 => {
                type $T = u32;
                let $to = |v: f64| v as u32;
                $body
            }
            DType::U8 => {
                type $T = u8;
                let $to = |v: f64| v as u8;
                $body
            }
            _ => {
                type $T = bool;
                let $to = |v: f64| v != 0.0;
                $body
            }
        }
    };
}
pub(crate) use typed;

pub(crate) trait Number: lapidary::Element {
    fn to_f64(self) -> f64;
}

macro_rules! numbers {
    ($($type:ty: $x:ident => $f64:expr;)*) => {$(
        impl Number for $type {
            fn to_f64(self) -> f64 { let $x = self; $f64 }
        }
    )*};
}

numbers! {
    f32: x => x.into();
    f16: x => f16::to_f64(x);
    bf16: x => bf16::to_f64(x);
    i8: x => x.into();
    i32: x => x.into();
    u32: x => x.into();
    u8: x => x.into();
    bool: x => f64::from(u8::from(x));
}

pub(crate) fn upload(gpu: &Gpu, dtype: DType, shape: &[usize], values: &[f64]) -> Result<Tensor> {
    typed!(dtype, T, to => {
        let elements: Vec<T> = values.iter().map(|&v| to(v)).collect();
        gpu.tensor(&elements, shape)
    })
}

pub(crate) fn write(tensor: &Tensor, values: &[f64]) -> Result<()> {
    typed!(tensor.dtype(), T, to => {
        let elements: Vec<T> = values.iter().map(|&v| to(v)).collect();
        tensor.write(&elements)
    })
}

pub(crate) type Read = std::pin::Pin<Box<dyn Future<Output = Result<Vec<f64>>> + Send>>;

pub(crate) fn read(tensor: &Tensor) -> Read {
    fn as_numbers<T: Number>(tensor: &Tensor) -> Read {
        let read = tensor.to_vec_async::<T>();
        Box::pin(async move { Ok(read.await?.into_iter().map(T::to_f64).collect()) })
    }
    match tensor.dtype() {
        DType::F32 => as_numbers::<f32>(tensor),
        DType::F16 => as_numbers::<f16>(tensor),
        DType::Bf16 => as_numbers::<bf16>(tensor),
        DType::I8 => as_numbers::<i8>(tensor),
        DType::I32 => as_numbers::<i32>(tensor),
        DType::U32 => as_numbers::<u32>(tensor),
        DType::U8 => as_numbers::<u8>(tensor),
        _ => as_numbers::<bool>(tensor),
    }
}
