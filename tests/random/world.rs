//! A device, the tensors of a program, and their expected values.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use fastrand::Rng;
use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{
    DType, Element, Error, Gpu, Options, Result, Tensor,
    diagnostics::{Diagnostics, Finding},
};

use super::model::{self, Model, Read};
use crate::common::scattered::Place;

/// Most tensors that a program holds.
const HELD: usize = 24;

/// Most elements of a tensor: with 4 bytes each they take three windows.
const ELEMENTS: usize = 40_000;

pub(crate) enum Outcome {
    Done,
    /// The program has no suitable tensors for the call.
    Skipped,
    Refused(Error),
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) gpu: Gpu,
    pub(crate) sim: SimHandle,
    pub(crate) other: Gpu,
    pub(crate) held: Vec<(Tensor, Model)>,
    /// Reads under way, and their expected results.
    pub(crate) reads: Vec<(Read, Model, Vec<f64>)>,
    /// Numbers of correct reads and of refused reads.
    pub(crate) checked: (u32, u32),
}

thread_local! {
    static CALM: Cell<bool> = const { Cell::new(false) };
}

/// Makes a call that must not panic.
pub(crate) fn calm<R>(name: &str, call: impl FnOnce() -> R) -> R {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !CALM.get()
                || !info
                    .location()
                    .is_some_and(|at| at.file().starts_with("src"))
            {
                loud(info);
            }
        }));
    });
    CALM.set(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    CALM.set(false);
    result.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        panic!("{name} panicked: {}", words.unwrap_or("without words"));
    })
}

impl World {
    pub(crate) fn new(seed: u64, diagnostics: Option<Diagnostics>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let buffer_bytes = (192 << 10) << rng.u32(0..4);
        let options = SimOptions {
            memory_bytes: buffer_bytes * rng.u64(2..6),
            max_buffer_bytes: buffer_bytes,
            max_binding_bytes: 64 << 10,
            offset_alignment_bytes: *rng.choice(&[32, 256]).expect("two"),
            max_immediate_bytes: *rng.choice(&[0, 128]).expect("two"),
            maps_slabs: rng.bool(),
            host_heap: seed % 2 == 1,
            lag_submissions: rng.u32(0..5),
            jitter: rng.bool(),
            pauses: rng.u32(0..3),
            dirty: true,
            seed,
            ..SimOptions::default()
        };
        let with = Options {
            diagnostics,
            ..Options::from_env().unwrap()
        };
        let (gpu, sim) = Gpu::simulated_with(options, with).expect("a device");
        let (other, _) = Gpu::simulated(SimOptions::default()).expect("a device");
        World {
            rng,
            gpu,
            sim,
            other,
            held: Vec::new(),
            reads: Vec::new(),
            checked: (0, 0),
        }
    }

    pub(crate) fn dtype(&mut self) -> DType {
        DType::ALL[self.rng.usize(..DType::ALL.len())]
    }

    /// Mostly small, sometimes empty or of several windows.
    pub(crate) fn shape(&mut self) -> Vec<usize> {
        if self.rng.u32(..6) == 0 {
            return vec![self.rng.usize(10_000..ELEMENTS)];
        }
        let rank = self.rng.usize(0..5);
        let most = *self.rng.choice(&[2, 5, 9, 33, 300]).expect("some");
        let mut shape: Vec<usize> = (0..rank).map(|_| self.rng.usize(1..=most)).collect();
        while shape.iter().product::<usize>() > ELEMENTS {
            let largest = shape.iter_mut().max().expect("a product above 1");
            *largest = largest.div_ceil(2);
        }
        if !shape.is_empty() && self.rng.u32(..20) == 0 {
            let axis = self.rng.usize(..shape.len());
            shape[axis] = 0;
        }
        shape
    }

    pub(crate) fn values(&mut self, dtype: DType, len: usize) -> Vec<f64> {
        let lowest = match dtype {
            DType::U32 | DType::U8 | DType::Bool => 0,
            _ => -8,
        };
        let values = (0..len).map(|_| f64::from(self.rng.i32(lowest..16)));
        values.map(|v| model::rounded(dtype, v)).collect()
    }

    /// A tensor of the program.
    pub(crate) fn pick(&mut self) -> Option<(Tensor, Model)> {
        self.pick_where(|_| true)
    }

    pub(crate) fn pick_where(&mut self, fits: impl Fn(&Model) -> bool) -> Option<(Tensor, Model)> {
        let fitting: Vec<_> = self.held.iter().filter(|(_, m)| fits(m)).collect();
        let (tensor, model) = self.rng.choice(fitting)?;
        Some((tensor.clone(), model.clone()))
    }

    /// Creates a tensor for the program, often as a view.
    pub(crate) fn fresh(&mut self, dtype: DType, shape: &[usize]) -> Result<(Tensor, Model)> {
        let place = Place::new(&mut self.rng, shape);
        let values = self.values(dtype, place.storage_len());
        let storage = model::upload(&self.gpu, dtype, &[values.len()], &values)?;
        let tensor = place.view(&storage)?;
        let whole = Model::new(dtype, &[values.len()], values);
        let model = whole.view(shape, |index| vec![place.at(index)]);
        self.hold(tensor.clone(), model.clone());
        Ok((tensor, model))
    }

    /// Indices, often as a view.
    pub(crate) fn places<T: Element>(&mut self, values: &[T], shape: &[usize]) -> Result<Tensor> {
        let place = Place::new(&mut self.rng, shape);
        let mut storage = vec![values.first().copied(); place.storage_len()];
        for (index, &value) in model::indices(shape).zip(values) {
            storage[place.at(&index)] = Some(value);
        }
        let storage: Vec<T> = storage.into_iter().flatten().collect();
        place.view(&self.gpu.tensor(&storage, &[storage.len()])?)
    }

    /// Adds a tensor; if there are many, another one is dropped for it.
    pub(crate) fn hold(&mut self, tensor: Tensor, model: Model) {
        assert_eq!(tensor.shape(), model.shape, "{tensor}");
        assert_eq!(tensor.dtype(), model.dtype, "{tensor}");
        if self.held.len() == HELD {
            let index = self.rng.usize(..HELD);
            self.held.swap_remove(index);
        }
        self.held.push((tensor, model));
    }

    /// The outcome of a call that creates a tensor.
    pub(crate) fn made(&mut self, made: Result<Tensor>, model: Model) -> Outcome {
        match made {
            Ok(tensor) => {
                self.hold(tensor, model);
                Outcome::Done
            }
            Err(error) => Outcome::Refused(error),
        }
    }

    /// Compares the result of a read. If memory was short, drops something and reads again.
    pub(crate) fn check(
        &mut self,
        read: Result<Vec<f64>>,
        model: &Model,
        expected: &[f64],
    ) -> bool {
        let got = match read {
            Ok(got) => got,
            Err(error) => {
                assert!(is_shortage(&error), "{error}");
                self.checked.1 += 1;
                return false;
            }
        };
        assert_eq!(got.len(), expected.len());
        for (index, (&got, &expected)) in got.iter().zip(expected).enumerate() {
            let same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
            let (dtype, shape) = (model.dtype, &model.shape);
            assert!(
                same,
                "{dtype}{shape:?}: element {index} is {got}, not {expected}"
            );
        }
        self.checked.0 += 1;
        true
    }

    /// Awaits one of the reads under way.
    pub(crate) fn await_one(&mut self) -> bool {
        if self.reads.is_empty() {
            return false;
        }
        let index = self.rng.usize(..self.reads.len());
        let (read, model, expected) = self.reads.swap_remove(index);
        let read = pollster::block_on(read);
        self.check(read, &model, &expected);
        true
    }

    /// Checks all tensors and that nothing stays alive.
    pub(crate) fn end(mut self) {
        while self.await_one() {}
        let found = self.gpu.diagnostics().findings().take();
        let is_a_bug = |finding: &&Finding| !matches!(finding, Finding::NonFinite { .. });
        if let Some(bug) = found.iter().find(is_a_bug) {
            panic!("{bug}");
        }
        while let Some((tensor, model)) = self.held.pop() {
            let read = calm("the last read", || pollster::block_on(model::read(&tensor)));
            let right = self.check(read, &model, &model.values());
            if !right && !self.held.is_empty() {
                // Dropping another tensor frees memory for this one.
                drop(self.held.swap_remove(0));
                self.held.insert(0, (tensor, model));
            }
        }
        let (right, short) = self.checked;
        eprintln!("{right} reads right, {short} without room");
        assert_eq!(self.sim.complaints(), [""; 0]);
        assert_eq!(self.gpu.finish().map_err(|error| error.to_string()), Ok(()));
        let memory = self.gpu.memory().stats();
        assert_eq!(
            (memory.live_bytes.now, memory.live_storages.now),
            (0, 0),
            "{memory}"
        );
        assert_eq!(
            (memory.queued, memory.retiring_bytes.now),
            (0, 0),
            "{memory}"
        );
        drop(self.gpu);
        let left = self.sim.counters();
        assert_eq!((left.buffers_live, left.submissions_pending), (0, 0));
        assert_eq!((left.pipelines_live, left.bind_groups_live), (0, 0));
        assert_eq!(self.sim.complaints(), [""; 0]);
    }
}

/// Memory was short, and the program goes on.
pub(crate) fn is_shortage(error: &Error) -> bool {
    match error {
        Error::OutOfMemory(_) => true,
        Error::Driver { message, .. } => message == "out of memory",
        Error::Poisoned { cause, .. } => is_shortage(cause),
        _ => false,
    }
}
