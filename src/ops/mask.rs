//! Operations that keep an element or make it 0, depending on its position: triangles and dropout.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::elementwise::{self, Code, Input};
use super::operation::{kernels, operations};
use super::random;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::sections::section_for;
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};
use lapidary_core::{Error, Result};

const WGSL: &str = include_str!("../../shaders/mask.wgsl");

operations! {
    /// Which elements are kept.
    MaskOp {
        Tril tril All Same,
        Triu triu All Same,
        Dropout dropout Floats Same,
    }
}

kernels! {
    mask:
    /// `y = op(number of the element, x)`.
    MASK "mask" [Operand::read("x"), Operand::write("y")];
}

/// It has no form in place or in parts, because elements have other numbers there.
static ELEMENT: Element = Element {
    fresh: &MASK,
    into: &MASK,
    names: &["x"],
    main: 0,
    file: WGSL,
    section: |variant| MaskOp::from_code(Code(variant.code)).name(),
};

fn text(variant: &Variant) -> Cow<'static, str> {
    let op = MaskOp::from_code(Code(variant.code));
    let text = elementwise::text(variant, &ELEMENT);
    let more = match op {
        MaskOp::Dropout => random::philox(),
        MaskOp::Tril | MaskOp::Triu => section_for(WGSL, "diagonal", ""),
    };
    Cow::Owned(format!("{text}{more}"))
}

impl Tensor {
    #[track_caller]
    fn masked(&self, op: MaskOp, scalars: [u32; 4]) -> Result<Tensor> {
        if self.is_tracked() {
            return self.masked_recorded(op, scalars);
        }
        op.takes().check(op.name(), self.dtype)?;
        let inputs = [Input::Tensor(self)];
        let call = ELEMENT.call(op as u8, &inputs, &scalars);
        call.output(
            &self.engine,
            &self.layout.shape,
            op.gives().dtype(self.dtype),
        )
    }

    #[track_caller]
    fn triangle(&self, op: MaskOp, diagonal: isize) -> Result<Tensor> {
        let [.., rows, columns] = self.layout.shape[..] else {
            return Err(Error::Shape {
                operation: op.name(),
                reason: format!("{:?} has fewer than two dimensions", self.layout.shape),
            })
            .located();
        };
        // Diagonals further out change nothing, and kernels count in i32.
        let most = i32::MAX as usize;
        if rows > most || columns > most {
            return Err(Error::Shape {
                operation: op.name(),
                reason: format!("matrices of {rows} by {columns} have too many diagonals"),
            })
            .located();
        }
        let diagonal = diagonal.clamp(-(most as isize), most as isize) as i32;
        self.masked(op, [columns as u32, rows as u32, diagonal as u32, 0])
    }

    /// The lower triangles of the matrices in the last two dimensions, for every type: the elements
    /// on `diagonal` and below. All others are 0. Diagonal 0 is the main one, and 1 is the one
    /// above it.
    ///
    /// ```
    /// # fn demo(ones: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let causal = ones.tril(0)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for fewer than two dimensions, or one of 2³¹ and more;
    /// [`Error::NeverFits`] if the operands are too large.
    #[track_caller]
    pub fn tril(&self, diagonal: isize) -> Result<Tensor> {
        let _method = MadeFor::method("tril");
        self.triangle(MaskOp::Tril, diagonal)
    }

    /// The upper triangles of the matrices in the last two dimensions, for every type: the elements
    /// on `diagonal` and above. All others are 0.
    ///
    /// # Errors
    ///
    /// Those of [`tril`](Tensor::tril).
    #[track_caller]
    pub fn triu(&self, diagonal: isize) -> Result<Tensor> {
        let _method = MadeFor::method("triu");
        self.triangle(MaskOp::Triu, diagonal)
    }

    /// Sets every element to 0 with a probability of `p`, even NaN, and divides the others by
    /// `1 - p`, for floats.
    ///
    /// The same seed drops the same elements on every adapter, by their position in row-major
    /// order. Use a new seed for every step. The gradient is `dropout` of the gradient with the
    /// seed of the step, so a recorded call keeps nothing but the seed.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor, gradient: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let y = x.dropout(0.1, 42)?;
    /// let of_x = gradient.dropout(0.1, 42)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Option`] unless `p` is between 0 and 1, [`Error::DType`] for other types,
    /// [`Error::NeverFits`] if the operands are too large.
    #[track_caller]
    pub fn dropout(&self, p: f32, seed: u64) -> Result<Tensor> {
        let _method = MadeFor::method("dropout");
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::Option {
                option: "p",
                reason: format!("{p:?} is not a probability"),
            });
        }
        let kept = 1.0 - f64::from(p);
        let scale = if kept > 0.0 { (1.0 / kept) as f32 } else { 0.0 };
        let threshold = (f64::from(p) * f64::from(1 << 24)).round() as u32;
        let seed = [seed as u32, (seed >> 32) as u32];
        self.masked(
            MaskOp::Dropout,
            [seed[0], seed[1], threshold, scale.to_bits()],
        )
    }
}
