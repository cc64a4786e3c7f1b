//! Many tensors at once: their norm, whether all of their elements are finite, and a product with
//! one number that is on the device.

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::elementwise::{arg, groups};
use super::fill;
use super::skeleton::Skeleton;
use super::text::Text;
use super::together;
use crate::tensor::Tensor;
use lapidary_core::adapter::AdapterKind;
use lapidary_core::internal::sections::section_for;
use lapidary_core::internal::{Arg, BuiltInKernel, Launch, MAX_OPERANDS, Operand, Ranges, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../shaders/clip.wgsl");

/// Most tensors of a launch. One operand is the number.
const MOST: usize = MAX_OPERANDS - 1;

/// Invocations that fold, each into its own element.
const FOLDERS: usize = 1 << 14;
const FOLDERS_ON_CPU: usize = 1 << 10;

const FOLDED: [Operand; MAX_OPERANDS] = [
    Operand::update("y"),
    Operand::read("x0"),
    Operand::read("x1"),
    Operand::read("x2"),
    Operand::read("x3"),
    Operand::read("x4"),
    Operand::read("x5"),
    Operand::read("x6"),
];

const SCALED: [Operand; MAX_OPERANDS] = [
    Operand::read("c"),
    Operand::update("x0"),
    Operand::update("x1"),
    Operand::update("x2"),
    Operand::update("x3"),
    Operand::update("x4"),
    Operand::update("x5"),
    Operand::update("x6"),
];

/// A kernel of the first operands.
const fn kernel(name: &'static str, all: &'static [Operand], tensors: usize) -> BuiltInKernel {
    BuiltInKernel {
        name,
        operands: all.split_at(1 + tensors).0,
        text,
        reference: reference!(reference::run),
    }
}

/// A kernel for each number of tensors.
macro_rules! kernels {
    ($name:literal, $all:ident) => {
        [
            kernel($name, &$all, 1),
            kernel($name, &$all, 2),
            kernel($name, &$all, 3),
            kernel($name, &$all, 4),
            kernel($name, &$all, 5),
            kernel($name, &$all, 6),
            kernel($name, &$all, 7),
        ]
    };
}

static FOLD: [BuiltInKernel; MOST] = kernels!("fold_all", FOLDED);
static SCALE: [BuiltInKernel; MOST] = kernels!("scale_all", SCALED);

/// `struct Params` of `shaders/clip.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Params {
    pub(super) lens: [u32; 8],
    pub(super) step: u32,
    pub(super) most: f32,
}

/// What a launch does, in the lowest bits of a variant's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Squares,
    NotFinite,
    Clip,
    Inverse,
}

impl Task {
    const ALL: [Task; 4] = [Task::Squares, Task::NotFinite, Task::Clip, Task::Inverse];

    pub(super) fn from_code(code: u64) -> Task {
        Task::ALL[(code & 3) as usize]
    }

    fn code(self, tensors: usize) -> u64 {
        self as u64 | (tensors as u64) << 2
    }

    fn name(self) -> &'static str {
        match self {
            Task::Squares => "squares",
            Task::NotFinite => "not_finite",
            Task::Clip => "clip",
            Task::Inverse => "inverse",
        }
    }

    pub(super) fn folds(self) -> bool {
        matches!(self, Task::Squares | Task::NotFinite)
    }
}

/// The number of tensors of a launch.
pub(super) fn tensors_of(code: u64) -> usize {
    (code >> 2) as usize
}

/// The Euclidean norm of all elements of these tensors, as an f32 of shape `[]`. The tensors are of
/// floats, of one device, and [whole storages](Tensor::is_whole_storage), here and below.
#[track_caller]
pub(crate) fn norm(tensors: &[&Tensor]) -> Result<Tensor> {
    fold(tensors, Task::Squares)?.sum_all()?.sqrt()
}

/// Whether an element is NaN or infinite, as an f32 of shape `[]`: 1 or 0.
#[track_caller]
pub(crate) fn not_finite(tensors: &[&Tensor]) -> Result<Tensor> {
    fold(tensors, Task::NotFinite)?.max_all()
}

/// Multiplies in place by `most / (norm + 1e-6)`, but by at most 1.
#[track_caller]
pub(crate) fn clip(tensors: &[&Tensor], norm: &Tensor, most: f32) -> Result<()> {
    let params = Params {
        most,
        ..Params::default()
    };
    launches(&SCALE, Task::Clip, norm, tensors, params)
}

/// Divides in place by a number.
#[track_caller]
pub(crate) fn divide(tensors: &[&Tensor], by: &Tensor) -> Result<()> {
    launches(&SCALE, Task::Inverse, by, tensors, Params::default())
}

/// The folded elements of each invocation.
#[track_caller]
fn fold(tensors: &[&Tensor], task: Task) -> Result<Tensor> {
    let engine = &tensors[0].engine;
    let most = match engine.caps().kind {
        AdapterKind::Cpu => FOLDERS_ON_CPU,
        _ => FOLDERS,
    };
    let longest = tensors.iter().map(|tensor| tensor.len().div_ceil(4)).max();
    let folders = longest.unwrap_or(0).clamp(1, most);
    let y = fill::full(engine, &[folders], 0.0.into(), DType::F32)?;
    let params = Params {
        step: 4 * folders as u32,
        ..Params::default()
    };
    launches(&FOLD, task, &y, tensors, params)?;
    Ok(y)
}

/// Appends the launches for all tensors. `first` is the operand that all share.
#[track_caller]
fn launches(
    kernels: &'static [BuiltInKernel; MOST],
    task: Task,
    first: &Tensor,
    tensors: &[&Tensor],
    params: Params,
) -> Result<()> {
    let engine = &first.engine;
    let caps = engine.caps();
    let most = MOST.min(engine.here().most_windows().saturating_sub(1) as usize);
    let bytes: Vec<u64> = tensors.iter().map(|tensor| tensor.size_bytes()).collect();
    for group in together::groups(caps, &bytes, most) {
        let of_group = || group.iter().map(|&index| tensors[index]);
        let args = || [arg(first, false)].into_iter().chain(of_group().map(whole));
        let launch = |lens: &[usize], ranges: Ranges| {
            let mut params = params;
            let mut vec4s = 0;
            for (place, &len) in params.lens.iter_mut().zip(lens) {
                *place = len as u32;
                vec4s += len.div_ceil(4) as u64;
            }
            let invocations = match task.folds() {
                true => u64::from(params.step / 4),
                false => vec4s,
            };
            let kernel = &kernels[lens.len() - 1];
            let code = task.code(lens.len());
            let groups = groups(caps, invocations);
            let launch = Launch::new(kernel, code, args(), &params, groups);
            Launch { ranges, ..launch }
        };
        let lens: Vec<usize> = of_group().map(Tensor::len).collect();
        let parts: Vec<_> = together::parts(caps, lens[0]).collect();
        if let ([tensor], true) = (&group[..], parts.len() > 1) {
            for part in parts {
                let of_first = (0, first.storage.size_bytes());
                let ranges = [of_first, together::range(tensors[*tensor], part)];
                engine.launch(launch(&[part.1], ranges.into_iter().collect()))?;
            }
        } else {
            engine.launch(launch(&lens, Ranges::new()))?;
        }
    }
    Ok(())
}

fn whole(tensor: &Tensor) -> Arg {
    arg(tensor, true)
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let task = Task::from_code(variant.code);
    let len = |_: &str, texts: &[&str]| {
        let index: usize = texts[0].parse().expect("a skeleton numbers its tensors");
        let field = if index < 4 { "lens" } else { "more_lens" };
        format!("p.{field}.{}", ["x", "y", "z", "w"][index % 4])
    };
    let main = match task.folds() {
        true => section_for(WGSL, "fold", ""),
        false => section_for(WGSL, "scale", ""),
    };
    let main = Skeleton::new(main)
        .numbers([("members", tensors_of(variant.code) as u32)])
        .function(&len);
    let text = Text::from(main.fill());
    text.sections(WGSL, &["params", task.name()]).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_number_of_tensors_gives_a_valid_shader() {
        for count in 1..=MOST {
            for x in [DType::F32, DType::F16, DType::Bf16] {
                let mut dtypes = vec![x; 1 + count];
                dtypes[0] = DType::F32;
                for task in Task::ALL {
                    let kernels = if task.folds() { &FOLD } else { &SCALE };
                    let vec4s = ((1_u32 << (1 + count)) - 2) as u8;
                    valid(&kernels[count - 1], task.code(count), &dtypes, vec4s);
                }
            }
        }
    }
}
