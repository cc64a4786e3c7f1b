//! Steps of optimizers: one launch updates several parameters and their state in place.
//!
//! A step is two kinds of launches. The first counts the step for each parameter, unless gradients
//! were found that are not finite. The others update parameters by what the first one left. So a
//! step is skipped on the device, and nothing waits.
//!
//! ```text
//!  counts:  done? factor 0 0   updates, corrections (2), 0 of parameter 0, …   u32
//!  state of a group:
//!           first moments of 0, of 1, …   second moments of 0, of 1, …         f32 or bf16
//! ```

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::elementwise::{arg, groups};
use super::skeleton::Skeleton;
use super::text::Text;
use super::together;
use crate::tensor::Tensor;
use lapidary_core::Result;
use lapidary_core::internal::sections::section_for;
use lapidary_core::internal::{Arg, BuiltInKernel, Launch, MAX_OPERANDS, Operand, Ranges, Variant};

const WGSL: &str = include_str!("../../shaders/optim.wgsl");

/// Most parameters of a launch. Each is two operands, beside the counts and the state.
pub(crate) const MOST: usize = (MAX_OPERANDS - 2) / 2;

/// The state of a parameter begins at a multiple of this many elements, so that every type of
/// state begins at 16 bytes.
pub(crate) const UNIT: usize = 8;

/// The word with the count of the first parameter, and the distance to the next.
pub(crate) const FIRST_COUNT: usize = 4;
pub(crate) const COUNT_STEP: usize = 4;

/// Most parameters that one launch counts.
const MOST_COUNTED: usize = 32 * MASKS;
const MASKS: usize = 24;

const WITHOUT_STATE: [Operand; 1 + 2 * MOST] = [
    Operand::read("k"),
    Operand::update("x0"),
    Operand::read("g0"),
    Operand::update("x1"),
    Operand::read("g1"),
    Operand::update("x2"),
    Operand::read("g2"),
];

const WITH_STATE: [Operand; 2 + 2 * MOST] = [
    Operand::read("k"),
    Operand::update("s"),
    Operand::update("x0"),
    Operand::read("g0"),
    Operand::update("x1"),
    Operand::read("g1"),
    Operand::update("x2"),
    Operand::read("g2"),
];

/// Two tensors of state, for a parameter of any size.
const WITH_STATES: [Operand; 5] = [
    Operand::read("k"),
    Operand::update("s"),
    Operand::update("t"),
    Operand::update("x0"),
    Operand::read("g0"),
];

const COUNTED: [Operand; 3] = [Operand::update("k"), Operand::read("f"), Operand::read("c")];

/// A kernel of the first operands.
const fn kernel(name: &'static str, all: &'static [Operand], operands: usize) -> BuiltInKernel {
    BuiltInKernel {
        name,
        operands: all.split_at(operands).0,
        text,
        reference: reference!(reference::run),
    }
}

static SGD: [BuiltInKernel; MOST] = [
    kernel("sgd", &WITHOUT_STATE, 3),
    kernel("sgd", &WITHOUT_STATE, 5),
    kernel("sgd", &WITHOUT_STATE, 7),
];
static SGD_MOMENTUM: [BuiltInKernel; MOST] = [
    kernel("sgd", &WITH_STATE, 4),
    kernel("sgd", &WITH_STATE, 6),
    kernel("sgd", &WITH_STATE, 8),
];
static ADAMW: [BuiltInKernel; MOST] = [
    kernel("adamw", &WITH_STATE, 4),
    kernel("adamw", &WITH_STATE, 6),
    kernel("adamw", &WITH_STATE, 8),
];
static ADAMW_ALONE: BuiltInKernel = kernel("adamw", &WITH_STATES, 5);

/// The first is of a step that is always done.
static COUNT: [BuiltInKernel; 3] = [
    counting(1, text_of_count),
    counting(2, text_of_count),
    counting(3, text_of_count),
];

const fn counting(operands: usize, text: fn(&Variant) -> Cow<'static, str>) -> BuiltInKernel {
    BuiltInKernel {
        name: "count_steps",
        operands: COUNTED.split_at(operands).0,
        text,
        reference: reference!(reference::count),
    }
}

/// `struct Params` of the section `update` of `shaders/optim.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Params {
    pub(super) lens: [u32; 7],
    pub(super) plane: u32,
    pub(super) starts: [u32; 8],
    pub(super) numbers: [u32; 8],
    pub(super) factors: [f32; 8],
}

/// `struct Params` of the section `count`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct CountParams {
    pub(super) masks: [u32; MASKS],
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) logs: [f32; 2],
}

/// The formula by which parameters change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateFormula {
    Sgd,
    SgdMomentum,
    SgdNesterov,
    AdamW,
}

impl UpdateFormula {
    const ALL: [UpdateFormula; 4] = [
        UpdateFormula::Sgd,
        UpdateFormula::SgdMomentum,
        UpdateFormula::SgdNesterov,
        UpdateFormula::AdamW,
    ];

    /// The elements of state for each element of a parameter.
    pub(crate) fn planes(self) -> usize {
        match self {
            UpdateFormula::Sgd => 0,
            UpdateFormula::SgdMomentum | UpdateFormula::SgdNesterov => 1,
            UpdateFormula::AdamW => 2,
        }
    }

    pub(super) fn from_code(code: u64) -> UpdateFormula {
        UpdateFormula::ALL[(code & 3) as usize]
    }

    fn code(self, members: usize, has_states: bool) -> u64 {
        self as u64 | (members as u64) << 2 | if has_states { STATES } else { 0 }
    }

    fn kernels(self) -> &'static [BuiltInKernel; MOST] {
        match self {
            UpdateFormula::Sgd => &SGD,
            UpdateFormula::SgdMomentum | UpdateFormula::SgdNesterov => &SGD_MOMENTUM,
            UpdateFormula::AdamW => &ADAMW,
        }
    }
}

/// Bit of a variant's code: the second moments have a tensor of their own.
const STATES: u64 = 1 << 5;

/// The number of parameters of a launch.
pub(super) fn members_of(code: u64) -> usize {
    (code >> 2 & 7) as usize
}

/// The number of operands in front of the parameters.
pub(super) fn heads_of(code: u64) -> usize {
    match UpdateFormula::from_code(code).planes() {
        0 => 1,
        _ if code & STATES != 0 => 3,
        _ => 2,
    }
}

/// When a step is done, and what its gradients are divided by. The tensors have the shape `[]`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition<'a> {
    Always,
    /// If this is 0.
    Unless(&'a Tensor),
    /// If the first is 0; the second is the scale of the gradients.
    UnlessScaled(&'a Tensor, &'a Tensor),
}

/// Counts a step for each parameter whose gradient is there, if the condition holds. `logs` are the
/// logarithms of both betas.
#[track_caller]
pub(crate) fn count(
    counts: &Tensor,
    are_there: &[bool],
    logs: [f32; 2],
    condition: Condition<'_>,
) -> Result<()> {
    let engine = &counts.engine;
    let (mut operands, code) = (vec![counts], condition.code());
    match condition {
        Condition::Always => {}
        Condition::Unless(found) => operands.push(found),
        Condition::UnlessScaled(found, scale) => operands.extend([found, scale]),
    }
    for (number, some) in are_there.chunks(MOST_COUNTED).enumerate() {
        let mut params = CountParams {
            first: (number * MOST_COUNTED) as u32,
            count: some.len() as u32,
            logs,
            ..CountParams::default()
        };
        for (index, _) in some.iter().enumerate().filter(|(_, is_there)| **is_there) {
            params.masks[index / 32] |= 1 << (index % 32);
        }
        let args = operands.iter().map(|operand| arg(operand, false));
        let groups = groups(engine.caps(), some.len() as u64 + 1);
        let kernel = &COUNT[code as usize];
        engine.launch(Launch::new(kernel, code, args, &params, groups))?;
    }
    Ok(())
}

impl Condition<'_> {
    fn code(self) -> u64 {
        match self {
            Condition::Always => 0,
            Condition::Unless(_) => 1,
            Condition::UnlessScaled(..) => 2,
        }
    }
}

/// A parameter in an update. Both tensors are whole storages of one type.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) value: Tensor,
    pub(crate) gradient: Tensor,
    /// The first element of its state.
    pub(crate) start: usize,
    /// Its number among all parameters.
    pub(crate) number: usize,
}

/// An update of parameters that share a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update<'a> {
    pub(crate) formula: UpdateFormula,
    pub(crate) factors: [f32; 8],
    pub(crate) counts: &'a Tensor,
    /// A tensor with the state of all, or one for each plane of a single parameter.
    pub(crate) state: &'a [Tensor],
    /// Elements of a plane, if a tensor has the state of all.
    pub(crate) plane: usize,
}

impl Update<'_> {
    /// Appends the launch. A parameter that is alone, with a state of its own, may take several.
    #[track_caller]
    pub(crate) fn launch(&self, members: &[Member]) -> Result<()> {
        let engine = &self.counts.engine;
        let lens: Vec<usize> = members.iter().map(|member| member.value.len()).collect();
        let parts: Vec<_> = together::parts(engine.caps(), lens[0]).collect();
        if members.len() > 1 || parts.len() == 1 {
            return engine.launch(self.part(members, &lens, Ranges::new()));
        }
        for part in parts {
            let of_counts = (0, self.counts.storage.size_bytes());
            let tensors = self
                .state
                .iter()
                .chain([&members[0].value, &members[0].gradient]);
            let others = tensors.map(|tensor| together::range(tensor, part));
            let ranges = [of_counts].into_iter().chain(others).collect();
            engine.launch(self.part(members, &[part.1], ranges))?;
        }
        Ok(())
    }

    fn part(&self, members: &[Member], lens: &[usize], ranges: Ranges) -> Launch {
        let mut params = Params {
            plane: self.plane as u32,
            factors: self.factors,
            ..Params::default()
        };
        let mut args: Vec<Arg> = vec![arg(self.counts, false)];
        args.extend(self.state.iter().map(|state| arg(state, true)));
        let mut vec4s = 0;
        for (place, member) in members.iter().enumerate() {
            params.lens[place] = lens[place] as u32;
            params.starts[place] = member.start as u32;
            params.numbers[place] = member.number as u32;
            args.extend([arg(&member.value, true), arg(&member.gradient, true)]);
            vec4s += lens[place].div_ceil(4) as u64;
        }
        let has_states = self.state.len() > 1;
        let kernel = match has_states {
            true => &ADAMW_ALONE,
            false => &self.formula.kernels()[members.len() - 1],
        };
        let code = self.formula.code(members.len(), has_states);
        let groups = groups(self.counts.engine.caps(), vec4s);
        let launch = Launch::new(kernel, code, args, &params, groups);
        Launch { ranges, ..launch }
    }
}

/// The WGSL of an update.
fn text(variant: &Variant) -> Cow<'static, str> {
    let (formula, code) = (UpdateFormula::from_code(variant.code), variant.code);
    let word = |name: &str, texts: &[&str]| {
        let index: usize = texts[0].parse().expect("a skeleton numbers its parameters");
        let more = if index < 4 { "" } else { "more_" };
        format!("p.{more}{name}.{}", ["x", "y", "z", "w"][index % 4])
    };
    let (second, second_at) = match heads_of(code) {
        3 => ("t", "at"),
        _ => ("s", "at + p.more_lens.w"),
    };
    let filled = |section: &str| {
        let skeleton = Skeleton::new(section_for(WGSL, section, ""))
            .numbers([("members", members_of(code) as u32)])
            .with("has_momentum", formula.planes() == 1)
            .with("is_nesterov", formula == UpdateFormula::SgdNesterov)
            .with("second", second)
            .with("second_at", second_at);
        skeleton.function(&word).fill()
    };
    let rule = match formula {
        UpdateFormula::AdamW => "adamw",
        _ => "sgd",
    };
    Text::from(filled("update") + &filled(rule)).done()
}

/// The WGSL of a count.
fn text_of_count(variant: &Variant) -> Cow<'static, str> {
    let condition = ["plain", "checked", "scaled"][variant.code as usize % 3];
    Text::new().sections(WGSL, &["count", condition]).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;
    use lapidary_core::DType;

    #[test]
    fn every_number_of_parameters_gives_a_valid_shader() {
        let types = [DType::F32, DType::F16, DType::Bf16];
        for (value, state) in types
            .into_iter()
            .flat_map(|x| [(x, DType::F32), (x, DType::Bf16)])
        {
            for formula in UpdateFormula::ALL {
                for members in 1..=MOST {
                    let head = [DType::U32, state];
                    let head = &head[..1 + formula.planes().min(1)];
                    let dtypes = [head, &[value; 2 * MOST][..2 * members]].concat();
                    let vec4s = ((1_u32 << dtypes.len()) - 2) as u8;
                    let kernel = &formula.kernels()[members - 1];
                    valid(kernel, formula.code(members, false), &dtypes, vec4s);
                }
            }
            let dtypes = [DType::U32, state, state, value, value];
            valid(
                &ADAMW_ALONE,
                UpdateFormula::AdamW.code(1, true),
                &dtypes,
                0b11110,
            );
        }
    }

    #[test]
    fn every_condition_gives_a_valid_shader() {
        let dtypes = [DType::U32, DType::F32, DType::F32];
        for (code, kernel) in COUNT.iter().enumerate() {
            valid(kernel, code as u64, &dtypes[..=code], 0);
        }
    }
}
