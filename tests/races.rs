//! Every kernel, interpreted invocation by invocation. There must be no race, no barrier that only
//! some invocations reach, no read of unwritten memory, and no index out of bounds. The values must
//! be those of the reference.
//!
//! The devices are simulated. They have the features of discrete, integrated and software adapters,
//! with subgroups of 4, 8, 16, 32 and 64 lanes. In the suite each call runs on one device, and the
//! next call on the next one. With `LAPIDARY_RACES=all` every call runs on every device.

mod devices;
mod pages;
mod reached;
mod rest;
mod training;
mod variants;

use crate::common::operands::numbers;
use crate::common::operations::{self, Operation, plain};
use devices::{Device, devices};
use lapidary::{DType, Error, Gpu, Result, Tensor};

/// The devices of a test, and the faults found so far.
struct Rota {
    reference: Gpu,
    devices: Vec<Device>,
    next: usize,
    faults: Vec<String>,
}

impl Rota {
    /// Without fusion: each call has its own kernel.
    fn new() -> Self {
        Self::on(devices(false))
    }

    /// With fusion.
    fn fused() -> Self {
        Self::on(devices(true))
    }

    /// With bindings of few bytes.
    fn of_windows() -> Self {
        Self::on(devices::with_windows())
    }

    fn on(devices: Vec<Device>) -> Self {
        Rota {
            reference: devices::reference(),
            devices,
            next: 0,
            faults: Vec::new(),
        }
    }

    /// The devices of the next call.
    fn turn(&mut self) -> Vec<usize> {
        if std::env::var("LAPIDARY_RACES").is_ok_and(|all| all == "all") {
            return (0..self.devices.len()).collect();
        }
        // A prime that does not divide the number of devices, so each family runs on all of them.
        const STEP: usize = 11;
        assert!(!self.devices.len().is_multiple_of(STEP));
        self.next = (self.next + STEP) % self.devices.len();
        vec![self.next]
    }

    /// Runs a call on the reference and on its devices, and compares the results.
    fn check(&mut self, name: &str, dtype: DType, call: &dyn Fn(&Gpu) -> Result<Vec<Tensor>>) {
        let read = |gpu: &Gpu| -> Result<Vec<Vec<f64>>> {
            let made = call(gpu)?;
            made.iter().map(numbers).collect()
        };
        let wanted = match read(&self.reference) {
            Ok(wanted) => wanted,
            Err(error) => return self.faults.push(format!("{name} {dtype}: {error}")),
        };
        for index in self.turn() {
            let device = &self.devices[index];
            let what = format!("{name} {dtype} on {}", device.name);
            let fault = match read(&device.gpu) {
                Err(Error::Poisoned { cause, .. }) => Some(cause.to_string()),
                Err(error) => Some(error.to_string()),
                Ok(got) => differs(&got, &wanted, dtype),
            };
            self.faults
                .extend(fault.map(|fault| format!("{what}: {fault}")));
            reached::note(&device.sim);
        }
    }

    /// Fails with all faults that were found.
    #[track_caller]
    fn end(mut self) {
        for device in &self.devices {
            let complaints = device.sim.complaints();
            let complaints = complaints
                .iter()
                .map(|why| format!("{}: {why}", device.name));
            self.faults.extend(complaints);
        }
        let count = self.faults.len();
        assert!(count == 0, "{count} faults:\n{}", self.faults.join("\n\n"));
    }
}

/// The first element that differs from the reference.
fn differs(got: &[Vec<f64>], wanted: &[Vec<f64>], dtype: DType) -> Option<String> {
    let tolerance = match dtype {
        DType::F16 => 4e-3,
        DType::Bf16 => 3e-2,
        _ => 2e-5,
    };
    let close = |a: f64, b: f64| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * (1.0 + b.abs())
    };
    let sizes = |of: &[Vec<f64>]| of.iter().map(Vec::len).collect::<Vec<_>>();
    if sizes(got) != sizes(wanted) {
        let (got, wanted) = (sizes(got), sizes(wanted));
        return Some(format!("results of {got:?} elements, not {wanted:?}"));
    }
    for (number, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let pairs = got.iter().zip(wanted).enumerate();
        for (at, (&a, &b)) in pairs {
            if !close(a, b) {
                return Some(format!("result {number}, element {at}: {a}, not {b}"));
            }
        }
    }
    None
}

/// Calls an operation with plain operands of a matrix of this size.
fn call(
    gpu: &Gpu,
    operation: &Operation,
    dtype: DType,
    sizes: (usize, usize),
) -> Result<Vec<Tensor>> {
    let operands = (0..operation.operands.len())
        .map(|number| Ok(plain(gpu, operation, dtype, number, sizes)?.0))
        .collect::<Result<Vec<_>>>()?;
    (operation.call)(&operands)
}

/// All selected operations, with plain operands of a matrix of this size.
fn operations_at(sizes: (usize, usize), is_wanted: impl Fn(&Operation) -> bool) {
    let mut rota = Rota::new();
    for operation in operations::all().filter(|operation| is_wanted(operation)) {
        for &dtype in operation.dtypes {
            rota.check(operation.name, dtype, &|gpu| {
                call(gpu, operation, dtype, sizes)
            });
        }
    }
    rota.end();
}

#[test]
fn every_operation_at_a_small_size() {
    operations_at((5, 6), |_| true);
}

#[test]
fn every_family_with_whole_vec4s() {
    operations_at((8, 12), |operation| operation.stands_for_family);
}
