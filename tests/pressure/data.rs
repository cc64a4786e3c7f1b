//! The oracle: what a storage holds as a plain vector, and who depends on it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use lapidary::{Pin, Tensor};

/// What a storage should hold.
pub(crate) struct Data {
    pub(crate) values: RefCell<Vec<u32>>,
    /// A fault, a loss or a rematerializer whose inputs have changed may have taken its value. A
    /// read gives an error then, or what it should.
    pub(crate) is_unsure: Cell<bool>,
    /// A rematerializer stands in for it.
    pub(crate) has_rematerializer: Cell<bool>,
    /// What was computed from it.
    children: RefCell<Vec<Weak<Data>>>,
    /// What a rematerializer would compute from it again, had it been given up.
    rematerializers: RefCell<Vec<Weak<Data>>>,
    /// What a rematerializer computes it from, which lives for as long as the rematerializer,
    /// whoever has dropped it.
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

    /// It was computed from these, so it has no more of a value than they have.
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

    /// It may be computed from these again.
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

    /// It is written to: what would have been computed from it again may be gone.
    pub(crate) fn written(&self) {
        let rematerializers = std::mem::take(&mut *self.rematerializers.borrow_mut());
        for rematerializer in rematerializers.iter().filter_map(Weak::upgrade) {
            rematerializer.doubt();
        }
    }

    /// It may be without a value, and with it all that was computed from it.
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

/// A tensor that a program holds: some of the elements of a storage, in a row.
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

    /// The program has written these elements.
    pub(crate) fn set(&self, values: &[u32]) {
        self.data.values.borrow_mut()[self.start..self.start + self.len()].copy_from_slice(values);
        if self.is_whole() && self.len() > 0 {
            self.data.is_unsure.set(false);
        }
        self.data.written();
    }
}
