//! The oracle: the contents of a storage as a plain vector, and the dependencies between storages.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use lapidary::Tensor;
use lapidary::interop::Pin;

/// The expected contents of a storage.
pub(crate) struct Data {
    pub(crate) values: RefCell<Vec<u32>>,
    /// A fault, a loss, or a rematerializer with changed inputs may have destroyed its value. Then
    /// a read gives the expected value or an error.
    pub(crate) is_unsure: Cell<bool>,
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
    pub(crate) fn new(values: Vec<u32>) -> Rc<Data> {
        Rc::new(Data {
            values: RefCell::new(values),
            is_unsure: Cell::new(false),
            has_rematerializer: Cell::new(false),
            children: RefCell::default(),
            rematerializers: RefCell::default(),
            inputs: RefCell::default(),
        })
    }

    /// It was computed from these, so it is in doubt if they are.
    pub(crate) fn comes_of(self: &Rc<Self>, parents: &[&Rc<Data>]) {
        for parent in parents {
            let mut children = parent.children.borrow_mut();
            children.retain(|child| child.strong_count() > 0);
            children.push(Rc::downgrade(self));
            if parent.is_unsure.get() {
                self.doubt();
            }
        }
    }

    /// It may be rematerialized from these.
    pub(crate) fn recomputed_from(self: &Rc<Self>, inputs: &[&Rc<Data>]) {
        self.has_rematerializer.set(true);
        for &input in inputs {
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
        let rematerializers = std::mem::take(&mut *self.rematerializers.borrow_mut());
        for rematerializer in rematerializers.iter().filter_map(Weak::upgrade) {
            rematerializer.doubt();
        }
    }

    /// It may have no value, and neither may the storages computed from it.
    pub(crate) fn doubt(&self) {
        if self.is_unsure.replace(true) {
            return;
        }
        for child in self.children.borrow().iter().filter_map(Weak::upgrade) {
            child.doubt();
        }
        for rematerializer in self
            .rematerializers
            .borrow()
            .iter()
            .filter_map(Weak::upgrade)
        {
            rematerializer.doubt();
        }
    }
}

/// A tensor of a program: consecutive elements of a storage.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) tensor: Tensor,
    pub(crate) data: Rc<Data>,
    pub(crate) start: usize,
    pub(crate) pin: Option<Rc<Pin>>,
}

impl Held {
    pub(crate) fn new(tensor: Tensor, values: Vec<u32>) -> Held {
        Held {
            tensor,
            data: Data::new(values),
            start: 0,
            pin: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tensor.len()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.len() == self.data.values.borrow().len()
    }

    pub(crate) fn values(&self) -> Vec<u32> {
        self.data.values.borrow()[self.start..self.start + self.len()].to_vec()
    }

    /// The program wrote these elements.
    pub(crate) fn set(&self, values: &[u32]) {
        self.data.values.borrow_mut()[self.start..self.start + self.len()].copy_from_slice(values);
        if self.is_whole() && self.len() > 0 {
            self.data.is_unsure.set(false);
        }
        self.data.written();
    }
}
