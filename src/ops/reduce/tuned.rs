//! The plans that tuning tries for a fold, beside the rule's.

use std::fmt;

use super::{Form, Op, Plan, fold_as, least_parts, name_of};
use crate::ops::rows::Rows;
use crate::ops::trial::{Call, bucket};
use crate::tensor::Tensor;
use lapidary_core::{DType, Result};

/// Least elements for which a better variant saves more than a launch costs.
const LEAST_ELEMENTS: u64 = 64 << 10;

/// Most elements that one invocation folds in a trial, unless the rule has more.
const MOST_IN_ONE: u32 = 32 << 10;

/// Least elements of a part that are worth an invocation.
const LEAST_CHUNK: u32 = 64;

/// The number of parts of a row, relative to the rule's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pieces {
    AsTheRule,
    One,
    QuarterAsMany,
    FourTimesAsMany,
}

/// A plan without the rows' exact sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    form: Form,
    pieces: Pieces,
}

/// What decides which way is fastest.
#[derive(Hash)]
struct Key {
    operation: &'static str,
    dtypes: [DType; 2],
    rows: u64,
    length: u64,
    forms: Vec<Form>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key {
            operation,
            dtypes: [from, to],
            rows,
            length,
            forms,
        } = self;
        write!(f, "{operation} {from} to {to}, {rows} rows of {length}")?;
        let (last, others) = forms.split_last().ok_or(fmt::Error)?;
        write!(f, ", {}", if others.is_empty() { "only" } else { "by" })?;
        others.iter().try_for_each(|form| write!(f, " {form:?}"))?;
        write!(f, " {last:?}")
    }
}

/// The plan for a fold. `rule` is the rule's plan.
pub(super) fn tuned(
    x: &Tensor,
    middle: Option<&Tensor>,
    op: Op,
    rows: &Rows,
    rule: Plan,
    out: DType,
) -> Plan {
    let caps = x.engine.caps();
    let elements = u64::from(rows.rows) * u64::from(rows.length);
    if x.engine.here().tuning().is_none() || elements < LEAST_ELEMENTS {
        return rule;
    }
    let mut forms = Form::ALL.to_vec();
    forms.retain(|form| form.fits(rows) && (*form != Form::Across || *form == rule.form));
    let plan_of = |way: Way| match way.form == rule.form {
        true => cut(rows, rule, way.pieces),
        false => cut(rows, Plan::of_form(caps, rows, way.form), way.pieces),
    };
    let is_sane = |way: &Way| {
        let plan = plan_of(*way);
        let is_new = way.pieces == Pieces::AsTheRule
            || plan_of(Way {
                pieces: Pieces::AsTheRule,
                ..*way
            }) != plan;
        let folds = if way.form == Form::Tree { 64 } else { 1 };
        let most = MOST_IN_ONE.max(rule.chunk) * folds;
        let is_long = plan.parts == 1 || plan.chunk >= LEAST_CHUNK * folds;
        let least = least_parts(caps, rows, way.form.longest_chunk(rows));
        is_new && is_long && plan.chunk <= most && u64::from(plan.parts) >= least
    };
    let mut ways = vec![Way {
        form: rule.form,
        pieces: Pieces::AsTheRule,
    }];
    let pieces = [
        Pieces::AsTheRule,
        Pieces::One,
        Pieces::QuarterAsMany,
        Pieces::FourTimesAsMany,
    ];
    let all = forms
        .iter()
        .flat_map(|&form| pieces.map(|pieces| Way { form, pieces }));
    let others: Vec<Way> = all.filter(|way| *way != ways[0]).filter(is_sane).collect();
    ways.extend(others);
    let most_parts = ways.iter().map(|&way| u64::from(plan_of(way).parts)).max();
    let results = u64::from(rows.rows).next_multiple_of(4) * (most_parts.unwrap_or(1) + 1);
    let operands: Vec<&Tensor> = [Some(x), middle].into_iter().flatten().collect();
    let call = Call {
        family: "reduce",
        problem: Key {
            operation: name_of(op.code()),
            dtypes: [x.dtype, out],
            rows: bucket(rows.rows.into()),
            length: bucket(rows.length.into()),
            forms,
        },
        operands: &operands,
        scratch_bytes: results * 4,
    };
    let run = |way| -> Result<Tensor> { fold_as(x, middle, op, rows, plan_of(way), out) };
    plan_of(call.choose(&ways, run))
}

fn cut(rows: &Rows, plan: Plan, pieces: Pieces) -> Plan {
    let parts = match pieces {
        Pieces::AsTheRule => return plan,
        Pieces::One => 1,
        Pieces::QuarterAsMany => u64::from(plan.parts / 4),
        Pieces::FourTimesAsMany => u64::from(plan.parts) * 4,
    };
    Plan::cut(plan.form, rows, parts)
}
