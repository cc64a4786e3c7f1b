//! Cases from files, compared with the calls of the same names.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use lapidary::{DType, Gpu, Options, Result, Tensor};
use serde_json::Value;

use crate::common::operands::{numbers, tensor};

/// The call for a case's name. Operands are in the order of the script.
pub(crate) type Call = fn(&Gpu, &[Tensor]) -> Result<Vec<Tensor>>;

/// The one result of a call.
pub(crate) fn one(made: Result<Tensor>) -> Result<Vec<Tensor>> {
    Ok(vec![made?])
}

/// Both results of a call.
pub(crate) fn both(made: Result<(Tensor, Tensor)>) -> Result<Vec<Tensor>> {
    let (first, second) = made?;
    Ok(vec![first, second])
}

/// Runs every case of a group on every device. Cases and calls correspond one to one.
pub(crate) fn check(group: &str, calls: &[(&str, Call)]) {
    let cases = read(group);
    let names = |names: Vec<&str>| names.into_iter().map(str::to_string).collect();
    let known: BTreeSet<String> = names(calls.iter().map(|(name, _)| *name).collect());
    let asked: BTreeSet<String> = names(cases.iter().map(Case::name).collect());
    assert_eq!(known, asked, "calls here, and cases of {group}.jsonl");
    assert_eq!(cases.len(), asked.len(), "{group}.jsonl names one twice");
    let mut faults = Vec::new();
    for (device, gpu) in gpus() {
        for case in &cases {
            let call = calls.iter().find(|(name, _)| *name == case.name());
            let call = call.expect("each case has a call").1;
            if let Err(fault) = case.check(&gpu, call) {
                faults.push(format!("{} on the {device}: {fault}", case.name()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

pub(crate) fn gpus() -> Vec<(&'static str, Gpu)> {
    let open = Gpu::open(Options::from_env().unwrap());
    let adapter = open.expect("the tests need an adapter");
    let options = lapidary::sim::SimOptions {
        dirty: true,
        ..Default::default()
    };
    let (simulation, _) = Gpu::simulated(options).expect("these options can be");
    vec![("adapter", adapter), ("simulation", simulation)]
}

/// A line of a group's file.
pub(crate) struct Case(Value);

/// A tensor in such a line.
pub(crate) struct Stored<'a> {
    dtype: &'a str,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

pub(crate) fn read(group: &str) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch");
    let plain = folder.join(format!("{group}.jsonl"));
    let text = match plain.exists() {
        true => std::fs::read_to_string(plain),
        false => unpacked(&folder.join(format!("{group}.jsonl.gz"))),
    };
    let text = text.expect("the script writes this file");
    let mut operands = Value::Null;
    let case = |line| {
        let mut case: Value = serde_json::from_str(line).expect("a line of JSON");
        if case["operands"].is_null() {
            // Those of the line before.
            case["operands"] = operands.clone();
        }
        operands = case["operands"].clone();
        Case(case)
    };
    text.lines().map(case).collect()
}

/// The text of a packed file.
pub(crate) fn unpacked(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}

impl Case {
    pub(crate) fn name(&self) -> &str {
        self.0["case"].as_str().expect("a name")
    }

    pub(crate) fn tensors(&self, of: &str) -> Vec<Stored<'_>> {
        let list = self.0[of].as_array().expect("a list of tensors");
        list.iter().map(Stored::of).collect()
    }

    pub(crate) fn operands(&self, gpu: &Gpu) -> Result<Vec<Tensor>> {
        let stored = self.tensors("operands");
        let of = |one: &Stored<'_>| tensor(gpu, one.held_as(), &one.values, &one.shape);
        stored.iter().map(of).collect()
    }

    pub(crate) fn check(
        &self,
        gpu: &Gpu,
        call: impl Fn(&Gpu, &[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<(), String> {
        let operands = self.operands(gpu).map_err(text)?;
        let made = call(gpu, &operands).map_err(text)?;
        let expected = self.tensors("results");
        if made.len() != expected.len() {
            return Err(format!("{} results, not {}", made.len(), expected.len()));
        }
        for (made, expected) in made.iter().zip(&expected) {
            expected.check(made)?;
        }
        Ok(())
    }
}

impl<'a> Stored<'a> {
    fn of(value: &'a Value) -> Stored<'a> {
        let list = |of: &str| value[of].as_array().expect("a list").iter();
        // JSON has no NaN and infinities, so these are strings.
        let number = |value: &Value| match value.as_str() {
            Some(name) => name.parse().expect("inf or nan"),
            None => value.as_f64().expect("a number"),
        };
        let size = |value: &Value| value.as_u64().expect("a size") as usize;
        Stored {
            dtype: value["dtype"].as_str().expect("a type"),
            shape: list("shape").map(size).collect(),
            values: list("values").map(number).collect(),
        }
    }

    /// The type of an operand. The library has no `i64`.
    pub(crate) fn held_as(&self) -> DType {
        let named = |dtype: &DType| dtype.to_string() == self.dtype;
        DType::ALL.into_iter().find(named).unwrap_or(DType::I32)
    }

    fn check(&self, made: &Tensor) -> Result<(), String> {
        let expected = self.held_as();
        let is_same = match self.dtype {
            // Indices are u32 here.
            "i64" => matches!(made.dtype(), DType::I32 | DType::U32),
            _ => made.dtype() == expected,
        };
        if !is_same || made.shape() != self.shape {
            return Err(format!(
                "{:?} of {}, not {:?} of {}",
                made.shape(),
                made.dtype(),
                self.shape,
                self.dtype
            ));
        }
        let bound = match expected {
            DType::F32 => 1e-5,
            DType::F16 => 2e-3,
            DType::Bf16 => 2e-2,
            _ => 0.0,
        };
        let is_near = |a: f64, b: f64| {
            a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= bound * a.abs().max(1.0)
        };
        let got = numbers(made).map_err(text)?;
        match (0..got.len()).find(|&at| !is_near(self.values[at], got[at])) {
            Some(at) => Err(format!(
                "element {at} is {}, not {} ({got:?})",
                got[at], self.values[at]
            )),
            None => Ok(()),
        }
    }
}

fn text(error: lapidary::Error) -> String {
    error.to_string()
}
