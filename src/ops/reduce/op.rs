//! How a row is folded: the conversion of each element, the fold of two, and the conversion of the
//! result.

use crate::ops::text::{Text, bounds, nan_key};
use lapidary_core::DType;
use lapidary_core::internal::Variant;

/// The conversion of an element before the fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Lift {
    Plain,
    /// `exp(x − m)`.
    Exp,
    /// `(x − f − m)²`, where `f` is the first element of the row.
    Distance,
    /// Whether it is not 0.
    Truth,
    /// `|x|`.
    Size,
    /// `x²`.
    Square,
    /// `|x|` to the power of `number`.
    Power,
    /// `x − f`, where `f` is the first element of the row.
    FromFirst,
}

/// The fold of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Fold {
    Sum,
    Product,
    Max,
    Min,
}

impl Fold {
    /// The section of the WGSL with this fold.
    pub(in crate::ops) fn section(self) -> &'static str {
        match self {
            Fold::Sum => "sum",
            Fold::Product => "product",
            Fold::Max => "max",
            Fold::Min => "min",
        }
    }
}

/// The conversion of the folded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Lower {
    Plain,
    /// Divides by the number of elements less `number`.
    Divide,
    /// Divides so, and takes the square root.
    DivideRoot,
    /// The square root.
    Root,
    /// The root of degree `number`.
    PowerRoot,
}

/// A whole reduction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ops) struct Op {
    pub(in crate::ops) lift: Lift,
    pub(in crate::ops) fold: Fold,
    pub(in crate::ops) lower: Lower,
    /// The correction of a divisor, or an exponent. The text does not depend on it.
    pub(in crate::ops) number: f64,
}

impl Op {
    pub(in crate::ops) const SUM: Op = Op::new(Lift::Plain, Fold::Sum, Lower::Plain, 0.0);
    pub(in crate::ops) const MEAN: Op = Op::new(Lift::Plain, Fold::Sum, Lower::Divide, 0.0);
    /// The mean less the first element. The deviations of a row follow from both without the
    /// rounding of a mean that is far from 0.
    pub(in crate::ops) const MEAN_FROM_FIRST: Op =
        Op::new(Lift::FromFirst, Fold::Sum, Lower::Divide, 0.0);
    pub(in crate::ops) const PROD: Op = Op::new(Lift::Plain, Fold::Product, Lower::Plain, 0.0);
    pub(in crate::ops) const MAX: Op = Op::new(Lift::Plain, Fold::Max, Lower::Plain, 0.0);
    pub(in crate::ops) const MIN: Op = Op::new(Lift::Plain, Fold::Min, Lower::Plain, 0.0);
    pub(in crate::ops) const ANY: Op = Op::new(Lift::Truth, Fold::Max, Lower::Plain, 0.0);
    pub(in crate::ops) const ALL: Op = Op::new(Lift::Truth, Fold::Min, Lower::Plain, 0.0);
    pub(in crate::ops) const COUNT: Op = Op::new(Lift::Truth, Fold::Sum, Lower::Plain, 0.0);
    pub(in crate::ops) const SUM_EXP: Op = Op::new(Lift::Exp, Fold::Sum, Lower::Plain, 0.0);
    pub(in crate::ops) const SUM_DISTANCES: Op =
        Op::new(Lift::Distance, Fold::Sum, Lower::Plain, 0.0);
    pub(in crate::ops) const SUM_SQUARES: Op = Op::new(Lift::Square, Fold::Sum, Lower::Plain, 0.0);
    pub(in crate::ops) const SUM_SIZES: Op = Op::new(Lift::Size, Fold::Sum, Lower::Plain, 0.0);
    pub(in crate::ops) const MAX_SIZE: Op = Op::new(Lift::Size, Fold::Max, Lower::Plain, 0.0);
    pub(in crate::ops) const MIN_SIZE: Op = Op::new(Lift::Size, Fold::Min, Lower::Plain, 0.0);
    pub(in crate::ops) const EUCLIDEAN: Op = Op::new(Lift::Square, Fold::Sum, Lower::Root, 0.0);

    const fn new(lift: Lift, fold: Fold, lower: Lower, number: f64) -> Op {
        Op {
            lift,
            fold,
            lower,
            number,
        }
    }

    /// The variance (or its root) around `m`, which is a mean from the first element. `correction`
    /// is subtracted from the number of elements.
    pub(in crate::ops) const fn variance(correction: f64, lower: Lower) -> Op {
        Op::new(Lift::Distance, Fold::Sum, lower, correction)
    }

    /// The `p`-th root of the sum of the `p`-th powers.
    pub(in crate::ops) const fn p_norm(p: f32) -> Op {
        Op::new(Lift::Power, Fold::Sum, Lower::PowerRoot, p as f64)
    }

    const LIFTS: [Lift; 8] = [
        Lift::Plain,
        Lift::Exp,
        Lift::Distance,
        Lift::Truth,
        Lift::Size,
        Lift::Square,
        Lift::Power,
        Lift::FromFirst,
    ];
    const FOLDS: [Fold; 4] = [Fold::Sum, Fold::Product, Fold::Max, Fold::Min];
    const LOWERS: [Lower; 5] = [
        Lower::Plain,
        Lower::Divide,
        Lower::DivideRoot,
        Lower::Root,
        Lower::PowerRoot,
    ];

    /// Bits of a variant's code.
    pub(in crate::ops) fn code(self) -> u64 {
        (self.lift as u64) << 16 | (self.fold as u64) << 20 | (self.lower as u64) << 24
    }

    /// Decodes these bits, without the number.
    pub(in crate::ops) fn from_code(code: u64) -> Op {
        Op {
            lift: Op::LIFTS[(code >> 16 & 15) as usize],
            fold: Op::FOLDS[(code >> 20 & 15) as usize],
            lower: Op::LOWERS[(code >> 24 & 15) as usize],
            number: 0.0,
        }
    }

    /// The reduction of a row's parts, before a second launch.
    pub(super) fn of_part(self) -> Op {
        Op {
            lower: Lower::Plain,
            ..self
        }
    }

    /// The reduction of the results of [`of_part`](Op::of_part).
    pub(super) fn of_parts(self) -> Op {
        Op {
            lift: Lift::Plain,
            ..self
        }
    }

    pub(in crate::ops) fn needs_middle(self) -> bool {
        matches!(self.lift, Lift::Exp | Lift::Distance)
    }

    /// The type of the parts' results.
    pub(in crate::ops) fn partial(self, x: DType) -> DType {
        match x {
            _ if self.lift == Lift::Truth => DType::U32,
            DType::F32 | DType::F16 | DType::Bf16 => DType::F32,
            DType::I32 | DType::I8 => DType::I32,
            DType::U32 | DType::U8 | DType::Bool => DType::U32,
        }
    }

    /// The number that the kernel needs for rows of `length` elements.
    pub(in crate::ops) fn scalar(self, length: u32) -> f32 {
        match self.lower {
            Lower::Divide | Lower::DivideRoot => {
                // The mean and the variance of no elements are NaN. So is the variance of one
                // element, which is 0, divided by 0.
                match (f64::from(length) - self.number).max(0.0) {
                    divisor if length == 0 || length == 1 && divisor == 0.0 => f32::NAN,
                    divisor => divisor as f32,
                }
            }
            _ => self.number as f32,
        }
    }
}

/// The name of what a variant computes.
pub(in crate::ops) fn name_of(code: u64) -> &'static str {
    let op = Op::from_code(code);
    match (op.lift, op.fold, op.lower) {
        (Lift::Plain, Fold::Sum, Lower::Divide) | (Lift::FromFirst, ..) => "mean",
        (Lift::Plain, Fold::Sum, _) => "sum",
        (Lift::Plain, Fold::Product, _) => "prod",
        (Lift::Plain, Fold::Max, _) => "max",
        (Lift::Plain, Fold::Min, _) => "min",
        (Lift::Truth, Fold::Max, _) => "any",
        (Lift::Truth, Fold::Min, _) => "all",
        (Lift::Truth, ..) => "count_nonzero",
        (Lift::Exp, ..) => "sum_exp",
        (Lift::Distance, _, Lower::Divide) => "var",
        (Lift::Distance, _, Lower::DivideRoot) => "std",
        (Lift::Distance, ..) => "sum_distances",
        (Lift::Square, _, Lower::Plain) => "sum_squares",
        (Lift::Size, Fold::Sum, _) => "sum_sizes",
        (Lift::Size, Fold::Max, _) => "max_size",
        (Lift::Size, ..) => "min_size",
        (Lift::Square | Lift::Power, ..) => "norm",
    }
}

/// The aliases and constants of a variant, and the sections of its WGSL.
pub(super) fn sections(text: Text, variant: &Variant) -> (Text, Vec<&'static str>) {
    let op = Op::from_code(variant.code);
    let result = if op.needs_middle() { 2 } else { 1 };
    let (from, to) = (variant.dtypes[0], variant.dtypes[result]);
    let is_extreme = matches!(op.fold, Fold::Max | Fold::Min);
    let compares_keys = is_extreme && from.is_float() && op.lift != Lift::Truth;
    let accumulator = match op.lift {
        Lift::Truth => "u32",
        _ if compares_keys => "i32",
        _ => from.wgsl(),
    };
    let (lowest, highest) = bounds(accumulator);
    let mut text = text
        .line(format_args!(
            "alias T = {};\nalias A = {accumulator};",
            from.wgsl()
        ))
        .line(format_args!("alias R = {};", to.wgsl()));
    if is_extreme {
        // The minimum of no truth values is true.
        let highest = if op.lift == Lift::Truth {
            "1u"
        } else {
            highest
        };
        text = text.line(format_args!(
            "const LOWEST = {lowest};\nconst HIGHEST = {highest};"
        ));
    }
    if compares_keys {
        let nan_key = nan_key(op.fold == Fold::Max);
        let kept = match op.lift {
            Lift::Size => "0x7fffffffi",
            _ => "-1i",
        };
        text = text.line(format_args!(
            "const NAN_KEY: i32 = {nan_key};\nconst KEPT: i32 = {kept};"
        ));
    }
    let fold = op.fold.section();
    let middle = match op.lift {
        Lift::Exp => "middle",
        Lift::FromFirst => "first",
        Lift::Distance => "middle_from_first",
        _ => "no_middle",
    };
    if compares_keys {
        return (text, vec![fold, middle, "keys"]);
    }
    let lift = match op.lift {
        Lift::Plain => "lift",
        Lift::Exp => "lift_exp",
        Lift::Distance => "lift_distance",
        Lift::Truth if from.is_float() => "lift_truth_of_float",
        Lift::Truth => "lift_truth",
        Lift::Size => "lift_size",
        Lift::Square => "lift_square",
        Lift::Power => "lift_power",
        Lift::FromFirst => "lift_from_first",
    };
    let lower = match op.lower {
        Lower::Plain => "lower",
        Lower::Divide => "lower_divide",
        Lower::DivideRoot => "lower_divide_root",
        Lower::Root => "lower_root",
        Lower::PowerRoot => "lower_power_root",
    };
    (text, vec![fold, middle, lift, lower])
}
