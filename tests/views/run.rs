//! Runs calls with plain operands and with hostile ones, and compares the results.

use std::fmt::Debug;

use fastrand::Rng;
use lapidary::{DType, Gpu, Result, Tensor};

use crate::common::operands::{numbers, tensor};
use crate::common::operations::{self, Holds, Operation, element};
use crate::views::hostile::{Kind, Maker, View, together};

/// Rows and columns: rows of whole vec4s, and others.
const SIZES: [(usize, usize); 2] = [(3, 5), (4, 8)];

/// The device for plain operands, and the one for views.
pub(crate) struct Devices {
    pub(crate) plain: Gpu,
    pub(crate) hostile: Gpu,
    /// Bytes before each view, in storages of several windows.
    pub(crate) lead_bytes: usize,
}

/// The extent of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    /// Only operations that stand for their family, with some combinations.
    Families,
    /// All operations, with some combinations.
    Operations,
    /// All operations; those that stand for their family in all types and combinations.
    Everything,
}

/// Runs operations to this extent.
pub(crate) fn all(devices: &Devices, extent: Extent) {
    let seed = std::env::var("LAPIDARY_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let mut rng = Rng::with_seed(seed);
    let mut faults = Vec::new();
    for operation in operations::all() {
        if extent == Extent::Families && !operation.stands_for_family {
            continue;
        }
        let before = faults.len();
        let dtypes = match (extent, operation.stands_for_family) {
            (Extent::Everything, true) => operation.dtypes.len(),
            _ => operation.dtypes.len().min(2),
        };
        for (number, &dtype) in operation.dtypes[..dtypes].iter().enumerate() {
            for sizes in &SIZES[..if number == 0 { 2 } else { 1 }] {
                let mut note = |how: &dyn Debug, made: Result<(), String>| {
                    // A few of each kind are enough.
                    let made = made.err().filter(|fault| !is_beyond(devices, fault));
                    if let Some(fault) = made.filter(|_| faults.len() < before + 3) {
                        let name = operation.name;
                        faults.push(format!("{name} of {dtype} {sizes:?}, {how:?}: {fault}"));
                    }
                };
                for kinds in combinations(operation, extent, number == 0, &mut rng) {
                    note(&kinds, run(devices, operation, dtype, *sizes, &kinds));
                }
                let made = run_together(devices, operation, dtype, *sizes);
                note(&"in one storage", made);
            }
        }
    }
    assert!(faults.is_empty(), "seed {seed}:\n{}", faults.join("\n"));
}

/// Does the device have too few bindings for two of each operand, as DX12 with FXC?
fn is_beyond(devices: &Devices, fault: &str) -> bool {
    devices.hostile.caps().max_storage_bindings < 16 && fault.contains("a total binding size")
}

/// Some combinations, with a kind for each operand.
fn combinations(
    operation: &Operation,
    extent: Extent,
    is_first: bool,
    rng: &mut Rng,
) -> Vec<Vec<Kind>> {
    let operands = operation.operands.len();
    let mut kinds = vec![vec![Kind::Plain; operands]];
    for operand in 0..operands {
        for &kind in &Kind::ALL[1..] {
            let mut one = vec![Kind::Plain; operands];
            one[operand] = kind;
            kinds.push(one);
        }
    }
    if operands == 1 || !is_first {
        return kinds;
    }
    kinds.extend(Kind::ALL.map(|kind| vec![kind; operands]));
    // Two views may choose a kernel that neither chooses alone.
    if operation.stands_for_family && extent == Extent::Everything {
        for one in Kind::ALL {
            for other in Kind::ALL {
                let mut both = vec![other; operands];
                both[0] = one;
                kinds.push(both);
            }
        }
    }
    for _ in 0..8 {
        let any = (0..operands).map(|_| Kind::ALL[rng.usize(..Kind::ALL.len())]);
        kinds.push(any.collect());
    }
    kinds
}

/// A call with a kind of view for each operand.
fn run(
    devices: &Devices,
    operation: &Operation,
    dtype: DType,
    sizes: (usize, usize),
    kinds: &[Kind],
) -> Result<(), String> {
    let mut views = Vec::new();
    for (number, (operand, &kind)) in operation.operands.iter().zip(kinds).enumerate() {
        let is_written = number == 0 && operation.writes();
        let is_set = matches!(operand.holds, Holds::Places(_));
        if kind.repeats() && (is_written || is_set) {
            return Ok(());
        }
        let of = operand.dtype.unwrap_or(dtype);
        let from = Maker {
            gpu: &devices.hostile,
            dtype: of,
            lead: devices.lead_bytes / of.size_bytes() as usize,
        };
        let holds = operand.holds(of);
        let value = |at| element(holds, number, at, sizes);
        let shape = (operand.shape)(sizes.0, sizes.1);
        let Some(made) = from.view(kind, &shape, value, |at| poison(holds, at)) else {
            return Ok(());
        };
        views.push(made);
    }
    check(devices, operation, views)
}

/// A call in which all operands of one type share a storage.
fn run_together(
    devices: &Devices,
    operation: &Operation,
    dtype: DType,
    sizes: (usize, usize),
) -> Result<(), String> {
    let mut views: Vec<Option<View>> = vec![None; operation.operands.len()];
    for of in DType::ALL {
        let operands = operation.operands.iter().enumerate();
        let operands = operands.filter(|(_, operand)| operand.dtype.unwrap_or(dtype) == of);
        let mut numbers = Vec::new();
        let mut values = Vec::new();
        let mut holds = Holds::Numbers;
        for (number, operand) in operands {
            holds = operand.holds(of);
            let shape = (operand.shape)(sizes.0, sizes.1);
            let len = shape.iter().product();
            let elements = (0..len).map(|at| element(holds, number, at, sizes));
            values.push((shape, elements.collect()));
            numbers.push(number);
        }
        let made = together(&devices.hostile, of, &values, |at| poison(holds, at));
        for (number, view) in numbers.into_iter().zip(made) {
            views[number] = Some(view);
        }
    }
    check(devices, operation, views.into_iter().flatten().collect())
}

/// Compares the call on one device with the call on plain copies on the other.
fn check(devices: &Devices, operation: &Operation, views: Vec<View>) -> Result<(), String> {
    let plain = views.iter().map(|view| {
        let (dtype, shape) = (view.tensor.dtype(), view.tensor.shape());
        tensor(&devices.plain, dtype, &view.elements(), shape).map_err(text)
    });
    let plain = plain.collect::<Result<Vec<Tensor>, String>>()?;
    let expected = results(operation, &plain)?;
    let operands: Vec<Tensor> = views.iter().map(|view| view.tensor.clone()).collect();
    let got = results(operation, &operands)?;
    drop(operands);
    if expected.len() != got.len() {
        return Err(format!("{} results, not {}", got.len(), expected.len()));
    }
    for (expected, got) in expected.iter().zip(&got) {
        same(expected, got)?;
    }
    let written = views.first().filter(|_| operation.writes());
    for view in &views {
        let shared = written.filter(|written| written.base.shares_storage_with(&view.base));
        beside(view, shared)?;
    }
    Ok(())
}

/// Shape, type and elements of all results.
type Results = Vec<(Vec<usize>, DType, Vec<f64>)>;

fn results(operation: &Operation, operands: &[Tensor]) -> Result<Results, String> {
    let made = (operation.call)(operands).map_err(text)?;
    let read = made.iter().map(|made| {
        let numbers = numbers(made).map_err(text)?;
        Ok((made.shape().to_vec(), made.dtype(), numbers))
    });
    read.collect()
}

fn text(error: lapidary::Error) -> String {
    error.to_string()
}

fn same(
    (shape, dtype, expected): &(Vec<usize>, DType, Vec<f64>),
    (got_shape, got_dtype, got): &(Vec<usize>, DType, Vec<f64>),
) -> Result<(), String> {
    if (shape, dtype) != (got_shape, got_dtype) {
        return Err(format!(
            "{got_shape:?} of {got_dtype}, not {shape:?} of {dtype}"
        ));
    }
    // A wrong element differs by far more than rounding.
    let bound = match dtype {
        DType::F32 => 1e-4,
        DType::F16 | DType::Bf16 => 2e-2,
        _ => 0.0,
    };
    let is_near = |a: f64, b: f64| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= bound * a.abs().max(1.0)
    };
    match expected.iter().zip(got).position(|(&a, &b)| !is_near(a, b)) {
        Some(at) => Err(format!(
            "element {at} is {}, not {} ({got:?})",
            got[at], expected[at]
        )),
        None => Ok(()),
    }
}

/// Is the storage unchanged except for what the call wrote through a view of it?
fn beside(view: &View, written: Option<&View>) -> Result<(), String> {
    let now = numbers(&view.base).map_err(text)?;
    let is_kept = |at: &usize| written.is_none_or(|written| !written.at.contains(at));
    let mut kept = (0..now.len()).filter(is_kept);
    match kept.find(|&at| now[at] != view.held[at]) {
        Some(at) => Err(format!(
            "element {at} of the storage became {}, and was {}",
            now[at], view.held[at]
        )),
        None => Ok(()),
    }
}

/// The value of the other elements in an operand's storage.
fn poison(holds: Holds, at: usize) -> f64 {
    match holds {
        Holds::Numbers => (40 + at % 60) as f64,
        Holds::Shares => (40 + at % 60) as f64,
        Holds::Truths => f64::from(u8::from(at.is_multiple_of(2))),
        Holds::Places(_) => (1 + at % 2) as f64,
    }
}
