//! A line of the file: a program, and the gradients of its operands.

use std::collections::BTreeMap;
use std::fmt;

use lapidary::operations::TensorOrNumber;
use lapidary::{DType, Gpu, Result, Tensor};
use serde_json::Value;

use crate::common::operands;

/// The call of an operation. Those that write in place give a handle of what they wrote to.
pub(super) type Call = fn(&[Tensor], &Given) -> Result<Tensor>;

/// Operands and seeds are stored in sixteenths.
const UNIT: f64 = 16.0;

/// A program as `tests/data/torch/gradients.py` describes it.
pub(super) struct Program {
    pub(super) group: String,
    operands: Vec<Operand>,
    steps: Vec<Step>,
    /// The number of the tensor whose gradient is given: operands count first, then steps.
    result: usize,
    shape: Vec<usize>,
    seed: Vec<f64>,
    /// `None` for operands that are no parameters.
    gradients: Vec<Option<Vec<f64>>>,
}

struct Operand {
    dtype: DType,
    shape: Vec<usize>,
    elements: Vec<f64>,
    view: Option<Step>,
    is_parameter: bool,
}

struct Step {
    name: String,
    /// The numbers of its tensors.
    tensors: Vec<usize>,
    options: Vec<Value>,
}

/// The options of a step.
pub(super) struct Given<'a>(&'a [Value]);

impl Given<'_> {
    pub(super) fn float(&self, at: usize) -> f32 {
        number(&self.0[at]) as f32
    }

    /// A float, unless the option is `null`.
    pub(super) fn optional(&self, at: usize) -> Option<f32> {
        (!self.0[at].is_null()).then(|| self.float(at))
    }

    /// The tensor at an index, or the first option in its place.
    pub(super) fn last<'a>(&self, tensors: &'a [Tensor], at: usize) -> TensorOrNumber<'a> {
        match tensors.get(at) {
            Some(tensor) => tensor.into(),
            None => self.float(0).into(),
        }
    }

    pub(super) fn axis(&self, at: usize) -> isize {
        whole(&self.0[at])
    }

    pub(super) fn size(&self, at: usize) -> usize {
        whole(&self.0[at]).unsigned_abs()
    }

    pub(super) fn is(&self, at: usize) -> bool {
        self.0[at].as_bool().expect("a bool")
    }

    /// A text, or nothing for `null`.
    pub(super) fn text(&self, at: usize) -> &str {
        self.0[at].as_str().unwrap_or_default()
    }

    pub(super) fn axes(&self, at: usize) -> Vec<isize> {
        list(&self.0[at]).iter().map(whole).collect()
    }

    pub(super) fn sizes(&self, at: usize) -> Vec<usize> {
        let axes = self.axes(at).into_iter();
        axes.map(isize::unsigned_abs).collect()
    }

    pub(super) fn sizes_of<const N: usize>(&self, at: usize) -> [usize; N] {
        self.sizes(at).try_into().expect("a size for each axis")
    }

    pub(super) fn pairs(&self, at: usize) -> Vec<(usize, usize)> {
        let pairs = list(&self.0[at]).iter().map(list);
        let size = |value| whole(value).unsigned_abs();
        pairs.map(|pair| (size(&pair[0]), size(&pair[1]))).collect()
    }

    pub(super) fn has(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|value| !value.is_null())
    }
}

impl Program {
    pub(super) fn parse(line: &str) -> Program {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let operands: Vec<_> = list(&line["operands"]).iter().map(Operand::of).collect();
        let steps: Vec<_> = list(&line["steps"]).iter().map(Step::of).collect();
        let last = operands.len() + steps.len() - 1;
        let gradient = |value: &Value| (!value.is_null()).then(|| numbers(value));
        Program {
            group: line["group"].as_str().expect("a name").into(),
            operands,
            steps,
            result: line["result"].as_u64().map_or(last, |at| at as usize),
            shape: sizes(&line["shape"]),
            seed: sixteenths(&line["seed"]),
            gradients: list(&line["gradients"]).iter().map(gradient).collect(),
        }
    }

    /// The names of all operations.
    pub(super) fn operations(&self) -> impl Iterator<Item = &str> {
        let views = self.operands.iter().filter_map(|one| one.view.as_ref());
        views.chain(&self.steps).map(|step| step.name.as_str())
    }

    /// Runs it forward and backward, and compares the gradients.
    pub(super) fn check(&self, gpu: &Gpu, calls: &BTreeMap<&str, Call>) -> Result<(), String> {
        let (parameters, result) = self.run(gpu, calls).map_err(text)?;
        if result.shape() != self.shape {
            return Err(format!("{:?}, not {:?}", result.shape(), self.shape));
        }
        let seed = operands::tensor(gpu, DType::F32, &self.seed, &self.shape).map_err(text)?;
        let gradients = result.backprop().seed(&seed).run().map_err(text)?;
        for (at, (parameter, expected)) in parameters.iter().zip(&self.gradients).enumerate() {
            let Some(expected) = expected else { continue };
            let got = match gradients.get(parameter) {
                Some(gradient) if gradient.shape() != parameter.shape() => {
                    return Err(format!("operand {at} got {:?}", gradient.shape()));
                }
                Some(gradient) => operands::numbers(&gradient).map_err(text)?,
                None => vec![0.0; parameter.len()],
            };
            let mut pairs = got.iter().zip(expected);
            if let Some(far) = pairs.position(|(&got, &expected)| !is_near(got, expected)) {
                let (got, expected) = (got[far], expected[far]);
                return Err(format!(
                    "operand {at}, element {far}: {got}, not {expected}"
                ));
            }
        }
        Ok(())
    }

    /// The parameters as they are stored, and the program's result.
    fn run(&self, gpu: &Gpu, calls: &BTreeMap<&str, Call>) -> Result<(Vec<Tensor>, Tensor)> {
        let call = |step: &Step, tensors: &[Tensor]| {
            let given = Given(&step.options);
            calls[step.name.as_str()](tensors, &given)
        };
        let made = self.operands.iter().map(|operand| operand.tensor(gpu));
        let parameters = made.collect::<Result<Vec<Tensor>>>()?;
        let mut tensors = Vec::new();
        for (operand, parameter) in self.operands.iter().zip(&parameters) {
            tensors.push(match &operand.view {
                Some(view) => call(view, std::slice::from_ref(parameter))?,
                None => parameter.clone(),
            });
        }
        for step in &self.steps {
            let named: Vec<Tensor> = step.tensors.iter().map(|&at| tensors[at].clone()).collect();
            tensors.push(call(step, &named)?);
        }
        Ok((parameters, tensors.swap_remove(self.result)))
    }
}

impl Operand {
    fn of(value: &Value) -> Operand {
        let (dtype, elements) = match value {
            _ if value["x"].is_array() => (DType::F32, sixteenths(&value["x"])),
            _ if value["i"].is_array() => (DType::I32, numbers(&value["i"])),
            _ => (DType::Bool, numbers(&value["b"])),
        };
        let view = value["view"].as_array().map(|view| Step {
            name: view[0].as_str().expect("a name").into(),
            tensors: vec![0],
            options: view[1..].to_vec(),
        });
        Operand {
            dtype,
            shape: sizes(&value["shape"]),
            elements,
            view,
            is_parameter: value["constant"].is_null(),
        }
    }

    fn tensor(&self, gpu: &Gpu) -> Result<Tensor> {
        let made = operands::tensor(gpu, self.dtype, &self.elements, &self.shape)?;
        match self.is_parameter {
            true => made.requires_grad(),
            false => Ok(made),
        }
    }
}

impl Step {
    fn of(value: &Value) -> Step {
        let parts = list(value);
        Step {
            name: parts[0].as_str().expect("a name").into(),
            tensors: sizes(&parts[1]),
            options: parts[2..].to_vec(),
        }
    }
}

/// The operations with their options and the views of the operands.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.group)?;
        for step in &self.steps {
            write!(f, " {}{:?}", step.name, step.tensors)?;
            for option in &step.options {
                write!(f, " {option}")?;
            }
            f.write_str(";")?;
        }
        for operand in &self.operands {
            let view = operand.view.as_ref();
            let view = view.map_or("whole", |view| view.name.as_str());
            write!(f, " {view} {:?},", operand.shape)?;
        }
        write!(f, " to {:?}", self.shape)
    }
}

/// What f32 gives for sums and functions of a few elements.
fn is_near(got: f64, expected: f64) -> bool {
    let is_same = got == expected || got.is_nan() && expected.is_nan();
    is_same || (got - expected).abs() <= 1e-5 + 2e-4 * expected.abs()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn whole(value: &Value) -> isize {
    value.as_i64().expect("a whole number") as isize
}

/// A number. JSON has no NaN and infinities, so these are strings.
fn number(value: &Value) -> f64 {
    match value.as_str() {
        Some(name) => name.parse().expect("inf or nan"),
        None => value.as_f64().expect("a number"),
    }
}

fn sizes(value: &Value) -> Vec<usize> {
    let sizes = list(value).iter().map(whole);
    sizes.map(isize::unsigned_abs).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    list(value).iter().map(number).collect()
}

fn sixteenths(value: &Value) -> Vec<f64> {
    list(value)
        .iter()
        .map(|value| number(value) / UNIT)
        .collect()
}

fn text(error: lapidary::Error) -> String {
    error.to_string()
}
