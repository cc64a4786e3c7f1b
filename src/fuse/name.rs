//! The name of a fused kernel: the formula that it computes.

use super::codegen::LEAVES;
use super::structure::{ExprNode, Input, Structure};

/// Longer formulas are cut.
const LONGEST: usize = 120;

/// The precedence of a formula's outermost operator. Arguments of a call need no parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bond {
    Compared,
    Added,
    Multiplied,
    Whole,
}

/// The formulas of all outputs: `relu(a * b + c)`.
pub(super) fn formulas(structure: &Structure) -> String {
    let mut formulas: Vec<(String, Bond)> = Vec::with_capacity(structure.nodes.len());
    let known = Known::before(structure);
    for (number, node) in structure.nodes.iter().enumerate() {
        let (text, bond) = formula(node, &formulas, &known);
        formulas.push(match text.len() > LONGEST {
            // Formulas that contain it would be even longer.
            true => (format!("t{number}"), Bond::Whole),
            false => (text, bond),
        });
    }
    let outs = structure.outs.iter();
    let mut name = outs
        .map(|out| formulas[usize::from(out.node)].0.as_str())
        .collect::<Vec<_>>()
        .join("; ");
    if let Some(tail) = &structure.tail {
        name = format!("{}({name})", (tail.reader.name)(tail.variant.code));
    }
    if name.len() > LONGEST {
        name.truncate(LONGEST);
        name.push('…');
    }
    name
}

/// Names that an expression inherits from the reader before it.
struct Known {
    /// The formula of the last leaf.
    made: String,
    /// The number of leaves that are operands.
    bound: usize,
    /// Leaves and scalars that the formula before already names.
    leaves: usize,
    scalars: usize,
}

impl Known {
    fn before(structure: &Structure) -> Known {
        let (head, before) = (structure.head.as_ref(), structure.before.as_ref());
        let made = match before {
            Some(before) => Some(formulas(before)),
            None => head.map(|head| format!("{}(x)", (head.reader.name)(head.variant.code))),
        };
        Known {
            made: made.unwrap_or_default(),
            bound: structure.bound(),
            leaves: before.map_or(0, |before| before.leaves.len()),
            scalars: before.map_or(0, |before| before.scalars),
        }
    }
}

fn formula(node: &ExprNode, formulas: &[(String, Bond)], known: &Known) -> (String, Bond) {
    let scalar = |slot: u8| format!("s{}", known.scalars + usize::from(slot));
    let input = |input: &Input, least: Bond| match *input {
        Input::Leaf(leaf) if usize::from(leaf) == known.bound => known.made.clone(),
        Input::Leaf(leaf) => LEAVES[known.leaves + usize::from(leaf)].to_string(),
        Input::Scalar(slot) => scalar(slot),
        Input::Node(node) => match &formulas[usize::from(node)] {
            (text, bond) if *bond >= least => text.clone(),
            (text, _) => format!("({text})"),
        },
    };
    if let ("full", [Some(value), _]) = (node.section, node.scalars) {
        return (scalar(value), Bond::Whole);
    }
    let symbol = match node.section {
        "add" => Some(("+", Bond::Added)),
        "sub" => Some(("-", Bond::Added)),
        "mul" => Some(("*", Bond::Multiplied)),
        "div" => Some(("/", Bond::Multiplied)),
        "rem" => Some(("%", Bond::Multiplied)),
        "eq" => Some(("==", Bond::Compared)),
        "ne" => Some(("!=", Bond::Compared)),
        "lt" => Some(("<", Bond::Compared)),
        "le" => Some(("<=", Bond::Compared)),
        "gt" => Some((">", Bond::Compared)),
        "ge" => Some((">=", Bond::Compared)),
        _ => None,
    };
    if let (Some((symbol, bond)), [left, right]) = (symbol, &node.inputs[..]) {
        // The right operand needs parentheses: a - (b - c).
        let tighter = match bond {
            Bond::Compared => Bond::Added,
            Bond::Added => Bond::Multiplied,
            _ => Bond::Whole,
        };
        let left = input(
            left,
            if bond == Bond::Compared {
                tighter
            } else {
                bond
            },
        );
        return (format!("{left} {symbol} {}", input(right, tighter)), bond);
    }
    let is_copy = node.element.names.len() == 1 && node.op == 0 && node.main != node.dtype;
    let called = match node.section {
        "same" if node.main == node.dtype => "copy",
        "same" | "convert" => node.dtype.name(),
        "to_bool" | "to_i32" | "to_u32" | "to_u8" | "to_i8" if is_copy => node.dtype.name(),
        section => section,
    };
    let inputs = node.inputs.iter().map(|one| input(one, Bond::Compared));
    let mut inputs: Vec<String> = inputs.collect();
    inputs.extend(node.scalars.iter().flatten().map(|&slot| scalar(slot)));
    (format!("{called}({})", inputs.join(", ")), Bond::Whole)
}
