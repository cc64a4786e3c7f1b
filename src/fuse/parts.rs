//! Splits a fused kernel into its parts: launches that do the same one by one.
//!
//! Every node writes its own tensor, whole and row-major. Results for parts of old storages are
//! copied there at the end, when the old values are no longer read.

use std::sync::Arc;

use smallvec::SmallVec;

use super::structure::{ExprNode, Fetch, Input, Params, Structure, TailShape};
use crate::ops::elementwise::Code;
use crate::ops::elementwise::element::{are_vec4s, into};
use crate::ops::families::copy_family;
use crate::ops::readers::{READER_WORDS, unseen_words};
use crate::tensor::layout::Layout;
use lapidary_core::internal::{Arg, BuiltInKernel, Launch, Methods, Program, Storage};
#[cfg(any(test, feature = "sim"))]
use lapidary_core::internal::{MAX_OPERANDS, ReferenceCall, Variant};
use lapidary_core::{Caps, DType};

/// The place that a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// An operand of the fused kernel.
    Operand(usize),
    /// The result of a node.
    Node(usize),
    /// The result of the reader before the expression.
    Made,
}

/// One launch, without its storages.
#[derive(Debug)]
struct Step {
    kernel: &'static BuiltInKernel,
    code: u64,
    words: SmallVec<[u32; 16]>,
    groups: [u32; 3],
    /// The inputs, then the output.
    args: SmallVec<[(Slot, DType); 4]>,
}

/// The steps, in order. `None` if one needs more parameters than there are.
fn steps(structure: &Structure, caps: &Caps, params: &[u32]) -> Option<Vec<Step>> {
    let dims = dims_of(structure, params);
    let leaves = layouts_of(structure, params, &dims);
    let mut steps = Vec::with_capacity(structure.nodes.len() + structure.outs.len());
    for (number, node) in structure.nodes.iter().enumerate() {
        let step = step_of(structure, caps, params, (&dims, &leaves), (number, node))?;
        steps.push(step);
    }
    if structure.tail.is_none() {
        let mut start = structure.places().starts;
        for (index, out) in structure.outs.iter().enumerate() {
            let node = usize::from(out.node);
            let given = out.is_into.then(|| params[start]);
            start += usize::from(out.is_into);
            let operand = structure.bound() + index;
            // The node writes its first whole output itself.
            if given.is_some() || out_of(structure, node) != Some(operand) {
                steps.push(copy_of(structure, caps, params[0], (node, operand), given)?);
            }
        }
    }
    Some(steps)
}

fn dims_of(structure: &Structure, params: &[u32]) -> SmallVec<[usize; 8]> {
    match structure.held_dims() {
        0 => SmallVec::from_slice(&[params[0] as usize]),
        held => (params[structure.places().dims..][..held].iter())
            .map(|&dim| dim as usize)
            .collect(),
    }
}

/// The layouts by which the leaves are read.
fn layouts_of(structure: &Structure, params: &[u32], dims: &[usize]) -> Vec<Layout> {
    let places = structure.places();
    let leaves = structure.leaves.iter().enumerate().map(|(index, leaf)| {
        let mut layout = Layout::contiguous(dims);
        if leaf.fetch != Fetch::InOrder {
            layout.offset = params[places.offsets[index]] as usize;
            for (axis, stride) in layout.strides.iter_mut().enumerate() {
                *stride = match leaf.fetch.is_mapped() {
                    true => params[places.strides[index] + axis] as i32 as isize,
                    false => 0,
                };
            }
        }
        layout
    });
    leaves.collect()
}

/// The launch that computes a node.
fn step_of(
    structure: &Structure,
    caps: &Caps,
    params: &[u32],
    (dims, leaves): (&[usize], &[Layout]),
    (number, node): (usize, &ExprNode),
) -> Option<Step> {
    let first = structure.places().scalars;
    let scalar = |slot: u8| params[first + usize::from(slot)];
    let in_order = Layout::contiguous(dims);
    let (mut layouts, mut is_scalar) = (SmallVec::<[&Layout; 3]>::new(), Vec::new());
    let mut scalars = node.scalars.map(|slot| slot.map_or(0, scalar));
    let mut args = SmallVec::new();
    for input in &node.inputs {
        is_scalar.push(matches!(input, Input::Scalar(_)));
        match *input {
            Input::Leaf(leaf) => {
                let leaf = usize::from(leaf);
                layouts.push(&leaves[leaf]);
                let slot = match leaf < structure.bound() {
                    true => Slot::Operand(leaf),
                    false => Slot::Made,
                };
                args.push((slot, structure.leaves[leaf].dtype));
            }
            Input::Node(node) => {
                let node = usize::from(node);
                layouts.push(&in_order);
                args.push((Slot::Node(node), structure.nodes[node].dtype));
            }
            Input::Scalar(slot) => scalars[0] = scalar(slot),
        }
    }
    args.push((Slot::Node(number), node.dtype));
    let plan = (node.element).plan(caps, node.op, dims, &layouts, &is_scalar, scalars)?;
    let (code, words, groups) = plan;
    let dtypes = args.iter().map(|&(_, dtype)| dtype);
    let code = Code(code).in_pairs(caps, &words, dtypes).0;
    Some(Step {
        kernel: node.element.fresh,
        code,
        words,
        groups,
        args,
    })
}

/// The launch that copies `len` elements of a node to an operand, or to a part of it that begins at
/// `start`.
fn copy_of(
    structure: &Structure,
    caps: &Caps,
    len: u32,
    (node, operand): (usize, usize),
    start: Option<u32>,
) -> Option<Step> {
    let (family, dtype) = (copy_family(), structure.nodes[node].dtype);
    let layout = Layout::contiguous(&[len as usize]);
    let (mut code, mut words, groups) =
        family.plan(caps, 0, &[len as usize], &[&layout], &[false], [0, 0])?;
    let mut kernel = family.fresh;
    if let Some(start) = start {
        (kernel, code, words[1]) = (family.into, into(code), start);
    }
    let from = (Slot::Node(node), dtype);
    Some(Step {
        kernel,
        code,
        words,
        groups,
        args: [from, (Slot::Operand(operand), dtype)]
            .into_iter()
            .collect(),
    })
}

/// The output that a node writes itself.
fn out_of(structure: &Structure, node: usize) -> Option<usize> {
    if structure.tail.is_some() {
        return None;
    }
    let mut outs = structure.outs.iter();
    let out = outs.position(|out| !out.is_into && usize::from(out.node) == node)?;
    Some(structure.bound() + out)
}

/// The parameters of the expression, or of both expressions around a reader.
fn words_of(structure: &Structure, params: &[u8]) -> Vec<u32> {
    let slots = structure.slots();
    let own = slots[..structure.count()].iter().map(|slot| {
        let bytes = &params[4 * slot..];
        u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    });
    own.collect()
}

/// The parameters of the reader alone.
fn params_of(shape: &TailShape, params: &[u8]) -> Params {
    let mut own = Params::from_slice(&params[..4 * READER_WORDS]);
    for word in unseen_words(shape.variant.code) {
        own[4 * word..][..4].fill(0);
    }
    own
}

/// The launches that replace a fused one.
pub(super) fn launches(structure: &Structure, caps: &Caps, launch: &Launch) -> Option<Vec<Launch>> {
    let params = words_of(structure, &launch.params);
    let steps = steps(structure, caps, &params)?;
    let last = &launch.args.last()?.storage;
    let fresh = |dtype: DType| {
        let bytes = u64::from(params[0]) * dtype.size_bytes();
        last.another(bytes)
    };
    let made =
        structure
            .nodes
            .iter()
            .enumerate()
            .map(|(number, node)| match out_of(structure, number) {
                Some(operand) => launch.args[operand].storage.clone(),
                None => fresh(node.dtype),
            });
    let made: Vec<Arc<Storage>> = made.collect();
    let y = structure
        .head
        .map(|_| fresh(structure.leaves[structure.bound()].dtype));
    let launches = steps.into_iter().map(|step| {
        let is_vec4_aligned = are_vec4s(step.code, step.args.len());
        let args = step
            .args
            .iter()
            .zip(is_vec4_aligned)
            .map(|(&(slot, dtype), vec4s)| Arg {
                storage: match slot {
                    Slot::Operand(operand) => launch.args[operand].storage.clone(),
                    Slot::Node(node) => made[node].clone(),
                    Slot::Made => y.as_ref().unwrap_or(last).clone(),
                },
                dtype,
                vec4s,
            });
        let written = match step.args.last() {
            Some(&(Slot::Operand(operand), _)) => Some(operand),
            Some(&(Slot::Node(node), _)) => out_of(structure, node),
            Some((Slot::Made, _)) | None => None,
        };
        // The app sees an intermediate result only through the last one.
        let result = written.map_or(usize::MAX, |operand| operand - structure.bound());
        Launch {
            program: Program::Builtin(step.kernel),
            code: step.code,
            args: args.collect(),
            params: SmallVec::from_slice(bytemuck::cast_slice(&step.words)),
            groups: step.groups,
            may_reuse: 0,
            ranges: SmallVec::new(),
            work: 0,
            methods: Methods::from_buf([launch.method(result)]),
            pages: None,
        }
    });
    let mut launches: Vec<Launch> = launches.collect();
    if let (Some(head), Some(y)) = (&structure.head, &y) {
        let others = &launch.args[structure.bound() + structure.outs.len()..];
        let args = others.iter().map(|arg| &arg.storage).chain([y]);
        let made = match &structure.before {
            None => vec![reader_launch(head, launch, args)],
            Some(before) => {
                let whole = launch_before(structure, before, launch, args);
                self::launches(before, caps, &whole)?
            }
        };
        launches.splice(0..0, made);
    }
    if let Some(tail) = &structure.tail {
        let x = &made[usize::from(structure.outs[0].node)];
        let others = launch.args[structure.bound()..].iter();
        let args = [x].into_iter().chain(others.map(|arg| &arg.storage));
        launches.push(reader_launch(tail, launch, args));
    }
    Some(launches)
}

/// The parameters of the reader with the expression before it.
fn params_before(structure: &Structure, before: &Structure, params: &[u8]) -> Params {
    let words = words_of(structure, params);
    let its = (0..before.count()).map(|index| words[structure.word_before(index)]);
    let its: Vec<u32> = its.collect();
    before.params(&params[..4 * READER_WORDS], &its)
}

/// The launch of the reader with the expression before it, with these operands.
fn launch_before<'a>(
    structure: &Structure,
    before: &Structure,
    whole: &Launch,
    storages: impl Iterator<Item = &'a Arc<Storage>>,
) -> Launch {
    let args = storages.map(|storage| Arg {
        storage: storage.clone(),
        // Unused: the parts know their own types.
        dtype: DType::F32,
        vec4s: true,
    });
    Launch {
        args: args.collect(),
        params: params_before(structure, before, &whole.params),
        ..whole.clone()
    }
}

/// The launch of the reader alone, with these operands.
fn reader_launch<'a>(
    shape: &TailShape,
    whole: &Launch,
    storages: impl Iterator<Item = &'a Arc<Storage>>,
) -> Launch {
    let args = storages.enumerate().map(|(index, storage)| Arg {
        storage: storage.clone(),
        dtype: shape.variant.dtypes[index],
        vec4s: shape.variant.vec4s >> index & 1 == 1,
    });
    Launch {
        program: Program::Builtin(shape.reader.kernel),
        code: shape.variant.code,
        args: args.collect(),
        params: params_of(shape, &whole.params),
        groups: whole.groups,
        may_reuse: 0,
        ranges: SmallVec::new(),
        work: whole.work,
        methods: whole.methods.clone(),
        pages: None,
    }
}

/// Runs a kernel's reference kernel.
#[cfg(any(test, feature = "sim"))]
fn run_one(kernel: &BuiltInKernel, call: &mut ReferenceCall) {
    let run = kernel
        .reference
        .expect("reference kernels are compiled in with the simulated device");
    run(call);
}

/// Runs a fused kernel by the reference kernels of its parts.
#[cfg(any(test, feature = "sim"))]
pub(super) fn run(structure: &Structure, caps: &Caps, call: &mut ReferenceCall) {
    let params = words_of(structure, &call.params);
    let steps = steps(structure, caps, &params).expect("its parts were launches");
    let bytes = |dtype: DType| (u64::from(params[0]) * dtype.size_bytes()).next_multiple_of(16);
    let nodes = structure.nodes.iter();
    let mut made: Vec<Vec<u8>> = nodes
        .map(|node| vec![0; bytes(node.dtype) as usize])
        .collect();
    let mut y = Vec::new();
    if let Some(head) = &structure.head {
        let others = &call.operands[structure.bound() + structure.outs.len()..];
        let made = bytes(structure.leaves[structure.bound()].dtype) as usize;
        let mut part = ReferenceCall {
            operands: [others, &[vec![0; made]]].concat(),
            variant: head.variant,
            params: match &structure.before {
                None => params_of(head, &call.params).to_vec(),
                Some(before) => params_before(structure, before, &call.params).to_vec(),
            },
            windows: Vec::new(),
        };
        match &structure.before {
            None => run_one(head.reader.kernel, &mut part),
            Some(before) => run(before, caps, &mut part),
        }
        y = part.operands.pop().unwrap_or_default();
    }
    for step in steps {
        let mut variant = Variant {
            code: step.code,
            dtypes: [DType::F32; MAX_OPERANDS],
            vec4s: 0,
        };
        for (index, &(_, dtype)) in step.args.iter().enumerate() {
            variant.dtypes[index] = dtype;
        }
        let operands = step.args.iter().map(|&(slot, _)| match slot {
            Slot::Operand(operand) => call.operands[operand].clone(),
            Slot::Node(node) => made[node].clone(),
            Slot::Made => y.clone(),
        });
        let mut part = ReferenceCall {
            operands: operands.collect(),
            variant,
            params: bytemuck::cast_slice(&step.words).to_vec(),
            windows: Vec::new(),
        };
        run_one(step.kernel, &mut part);
        let written = part.operands.pop().unwrap_or_default();
        match step.args.last() {
            Some(&(Slot::Operand(operand), _)) => call.operands[operand] = written,
            Some(&(Slot::Node(node), _)) => made[node] = written,
            Some((Slot::Made, _)) | None => {}
        }
    }
    if let Some(tail) = &structure.tail {
        let others = &mut call.operands[structure.bound()..];
        let mut operands = vec![made.swap_remove(usize::from(structure.outs[0].node))];
        operands.extend(others.iter_mut().map(std::mem::take));
        let mut part = ReferenceCall {
            operands,
            variant: tail.variant,
            params: params_of(tail, &call.params).to_vec(),
            windows: Vec::new(),
        };
        run_one(tail.reader.kernel, &mut part);
        for (other, bytes) in others.iter_mut().zip(part.operands.into_iter().skip(1)) {
            *other = bytes;
        }
        return;
    }
    for (node, bytes) in made.into_iter().enumerate() {
        if let Some(operand) = out_of(structure, node) {
            let whole = &mut call.operands[operand];
            let len = bytes.len().min(whole.len());
            whole[..len].copy_from_slice(&bytes[..len]);
        }
    }
}
