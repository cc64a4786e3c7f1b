//! How elements of an operand are read.

use crate::ops::matmul::form::Order;
use crate::ops::skeleton::Skeleton;

/// An operand in the text.
#[derive(Clone, Copy)]
pub(super) struct Side {
    /// `a` or `b`.
    pub(super) name: char,
    /// Contiguous along k; else along its edge.
    pub(super) along_k: bool,
    /// Its vec4s are aligned.
    pub(super) vec4s: bool,
    /// Contiguous along neither dimension; then it is read along k with a stride.
    pub(super) stepped: bool,
    /// The number of elements along k that share a scale, as a power of two; 0 without scales. With
    /// scales, the operand is contiguous along k.
    pub(super) group_log2: u8,
}

impl Side {
    pub(super) fn new(name: char, order: Order, vec4s: bool, group_log2: u8) -> Self {
        Side {
            name,
            along_k: order != Order::AlongEdge,
            vec4s,
            stepped: order == Order::Stepped,
            group_log2,
        }
    }

    /// The functions of skeletons:
    ///
    /// | function | what it gives |
    /// | --- | --- |
    /// | `along(steps)` | the offset of steps along the dimension that is contiguous, or strided |
    /// | `vec4(at)` | the four elements from `at` on, along that dimension |
    /// | `within(at, over)` | the same, if only `over` elements follow the first in the operand |
    /// | `scaled(elements, scales, k)` | elements of one group, times its scale |
    /// | `step(i)` | step `i` of the four lines of a block |
    ///
    /// Past the operand's end, its last element is repeated and not stored. `scales` names the
    /// start of a line's scales, which `scale_line` returns. `k` is the step of the elements.
    fn call(self, function: &str, texts: &[&str]) -> String {
        match (function, texts) {
            ("along", [steps]) => self.along(steps),
            ("vec4", [at]) => self.vec4(at, None),
            ("within", [at, over]) => self.vec4(at, Some(over)),
            ("scaled", [elements, scales, k]) => self.scaled(elements.to_string(), scales, k),
            ("step", [i]) => self.step(i),
            _ => unreachable!("skeletons of matmul call no `{function}` of {texts:?}"),
        }
    }

    fn vec4(self, at: &str, over: Option<&str>) -> String {
        let name = self.name;
        if self.vec4s {
            return format!("{name}_get4({at})");
        }
        let lanes = [0, 1, 2, 3].map(|i| {
            let step = over.map_or(format!("{i}u"), |over| format!("min({i}u, {over})"));
            format!("{name}_get({at} + {})", self.along(&step))
        });
        format!("vec4({})", lanes.join(", "))
    }

    fn scaled(self, elements: String, scales: &str, k: &str) -> String {
        match self.group_log2 {
            0 => elements,
            log2 => format!("{elements} * scales_get({scales} + (({k}) >> {log2}u))"),
        }
    }

    fn along(self, steps: &str) -> String {
        match (self.stepped, self.name) {
            (false, _) => steps.to_string(),
            (true, 'a') => format!("{steps} * p.strides.y"),
            (true, _) => format!("{steps} * p.strides.z"),
        }
    }

    fn step(self, i: &str) -> String {
        if !self.along_k {
            return self.vec4(&format!("(at_0 + {i} * line)"), Some("at_over"));
        }
        let (name, i) = (self.name, self.along(i));
        let lines = [0, 1, 2, 3].map(|j| self.of_line(format!("{name}_get(at_{j} + {i})"), j));
        format!("vec4({})", lines.join(", "))
    }

    fn of_line(self, elements: String, j: u32) -> String {
        self.scaled(elements, &format!("scale_line(edge + {j}u)"), "k")
    }

    /// A block of four lines and four steps of k, all within the operand.
    pub(super) fn whole_block(self) -> String {
        let over = (!self.along_k).then_some("at_over");
        let lines = [0, 1, 2, 3].map(|j| self.of_line(self.vec4(&format!("at_{j}"), over), j));
        let whole = format!("mat4x4<f32>(\n      {}\n    )", lines.join(",\n      "));
        match self.along_k {
            true => format!("transpose({whole})"),
            false => whole,
        }
    }

    /// The stride between the lines.
    pub(super) fn line(self) -> &'static str {
        match (self.name, self.along_k) {
            ('a', true) => "p.strides.x",
            ('a', false) => "p.strides.y",
            (_, true) => "p.strides.w",
            (_, false) => "p.strides.z",
        }
    }

    /// Fills a skeleton about this operand, which it calls its `side`.
    pub(super) fn fill(self, skeleton: Skeleton<'_>) -> String {
        let side = self.name.to_string();
        skeleton
            .with("side", side)
            .with("line", self.line())
            .with("along_k", self.along_k)
            .with("vec4s", self.vec4s)
            .function(&|function, texts| self.call(function.trim_start_matches("side."), texts))
            .fill()
    }
}

/// Both operands.
#[derive(Clone, Copy)]
pub(super) struct Sides {
    pub(super) a: Side,
    pub(super) b: Side,
}

impl Sides {
    pub(super) fn fill(self, skeleton: Skeleton<'_>) -> String {
        let Sides { a, b } = self;
        let a_k = if a.along_k {
            a.along("k")
        } else {
            "k * a_line".into()
        };
        skeleton
            .with("a_along_k", a.along_k)
            .with("a_vec4s", a.vec4s)
            .with("a_line", a.line())
            .with("a_step", if a.along_k { " * a_line" } else { "" })
            .with("a_k", a_k)
            .with("b_along_k", b.along_k)
            .with("b_vec4s", b.vec4s)
            .with("b_line", b.line())
            .with("is_grouped", b.group_log2 > 0)
            .function(&|function, texts| match function.split_once('.') {
                Some(("a", function)) => a.call(function, texts),
                Some((_, function)) => b.call(function, texts),
                None => unreachable!("`{function}` is a function of neither operand"),
            })
            .fill()
    }
}
