//! WGSL's builtin functions.

use naga::{Expression, Handle, MathFunction as Math, TypeInner};

use super::compiler::Result;
use super::values::Values;
use crate::code::{Binary, Geometry, Instr, NONE, Num, Pack, Pair, Reg, Ternary, Unary};

impl Values<'_, '_> {
    /// Compiles a call of a builtin function.
    pub(super) fn math(
        &mut self,
        expression: Handle<Expression>,
        fun: Math,
        arg: Handle<Expression>,
        others: [Option<Handle<Expression>>; 3],
    ) -> Result<()> {
        if let Some(op) = pack(fun) {
            let (a, b) = (self.value(arg)?, self.other(others[0])?);
            let to = self.result(expression)?;
            self.all.emit(Instr::Pack { op, to, a, b })?;
        } else if let Some(op) = unary(fun) {
            let ((num, count), a) = (self.lanes(arg)?, self.value(arg)?);
            let to = self.result(expression)?;
            self.all.emit(Instr::Unary {
                num,
                op,
                to,
                a,
                count,
            })?;
        } else if let Some(op) = binary(fun) {
            let ((num, count), a) = (self.lanes(arg)?, self.value(arg)?);
            let b = self.other(others[0])?;
            let to = self.result(expression)?;
            let pair = Pair {
                to,
                a,
                b,
                count,
                a_is_one: false,
                b_is_one: false,
            };
            self.all.emit(Instr::Binary { num, op, pair })?;
        } else if let Some(op) = ternary(fun) {
            self.three(expression, op, arg, others)?;
        } else if let Some(op) = geometry(fun) {
            self.geometry(expression, op, arg, others)?;
        } else {
            let message = format!("the function {fun:?} is not interpreted");
            return self.all.refuse(message);
        }
        Ok(())
    }

    fn other(&mut self, other: Option<Handle<Expression>>) -> Result<Reg> {
        match other {
            Some(other) => self.value(other),
            None => Ok(NONE),
        }
    }

    fn three(
        &mut self,
        expression: Handle<Expression>,
        op: Ternary,
        arg: Handle<Expression>,
        others: [Option<Handle<Expression>>; 3],
    ) -> Result<()> {
        let ((num, count), a) = (self.lanes(arg)?, self.value(arg)?);
        let b = self.other(others[0])?;
        let mut c = self.other(others[1])?;
        match (op, others) {
            (Ternary::InsertBits, [_, _, Some(bits)]) => {
                let both = self.all.registers(2)?;
                let bits = self.value(bits)?;
                self.copy(both, c, 1)?;
                self.copy(both + 1, bits, 1)?;
                c = both;
            }
            (Ternary::Mix, [_, Some(by), _]) if self.lanes(by)?.1 < count => {
                let all = self.all.registers(count.into())?;
                self.splat(all, c, 1, count)?;
                c = all;
            }
            _ => {}
        }
        let to = self.result(expression)?;
        self.all.emit(Instr::Ternary {
            num,
            op,
            to,
            a,
            b,
            c,
            count,
        })?;
        Ok(())
    }

    fn geometry(
        &mut self,
        expression: Handle<Expression>,
        op: Geometry,
        arg: Handle<Expression>,
        others: [Option<Handle<Expression>>; 3],
    ) -> Result<()> {
        let ((num, count), a) = (self.lanes(arg)?, self.value(arg)?);
        let (b, c) = (self.other(others[0])?, self.other(others[1])?);
        if op == Geometry::Dot && !matches!(num, Num::F32 | Num::F16) {
            return self.whole_dot(expression, num, count, (a, b));
        }
        let others = others[0].map_or(Ok((num, 1)), |other| self.lanes(other))?.1;
        let shape = match self.ty(arg) {
            TypeInner::Matrix { columns, rows, .. } => [*columns as u8, *rows as u8, 0],
            _ => [count, others, 0],
        };
        let to = self.result(expression)?;
        self.all.emit(Instr::Geometry {
            op,
            is_half: num == Num::F16,
            to,
            a,
            b,
            c,
            shape,
        })?;
        Ok(())
    }

    /// Compiles the sum of the products of integers.
    fn whole_dot(
        &mut self,
        expression: Handle<Expression>,
        num: Num,
        count: u8,
        (a, b): (Reg, Reg),
    ) -> Result<()> {
        let words = num.words();
        let products = self.all.registers(u32::from(count) * words)?;
        let one = |op, to, a, b, count| Instr::Binary {
            num,
            op,
            pair: Pair {
                to,
                a,
                b,
                count,
                a_is_one: false,
                b_is_one: false,
            },
        };
        self.all
            .emit(one(Binary::Multiply, products, a, b, count))?;
        let to = self.result(expression)?;
        self.copy(to, products, words)?;
        for lane in 1..u32::from(count) {
            let product = products + lane * words;
            self.all.emit(one(Binary::Add, to, to, product, 1))?;
        }
        Ok(())
    }
}

fn unary(fun: Math) -> Option<Unary> {
    Some(match fun {
        Math::Abs => Unary::Abs,
        Math::Sign => Unary::Sign,
        Math::Saturate => Unary::Saturate,
        Math::Cos => Unary::Cos,
        Math::Cosh => Unary::Cosh,
        Math::Sin => Unary::Sin,
        Math::Sinh => Unary::Sinh,
        Math::Tan => Unary::Tan,
        Math::Tanh => Unary::Tanh,
        Math::Acos => Unary::Acos,
        Math::Asin => Unary::Asin,
        Math::Atan => Unary::Atan,
        Math::Asinh => Unary::Asinh,
        Math::Acosh => Unary::Acosh,
        Math::Atanh => Unary::Atanh,
        Math::Radians => Unary::Radians,
        Math::Degrees => Unary::Degrees,
        Math::Ceil => Unary::Ceil,
        Math::Floor => Unary::Floor,
        Math::Round => Unary::Round,
        Math::Fract => Unary::Fract,
        Math::Trunc => Unary::Trunc,
        Math::Exp => Unary::Exp,
        Math::Exp2 => Unary::Exp2,
        Math::Log => Unary::Log,
        Math::Log2 => Unary::Log2,
        Math::Sqrt => Unary::Sqrt,
        Math::InverseSqrt => Unary::InverseSqrt,
        Math::QuantizeToF16 => Unary::QuantizeToF16,
        Math::CountTrailingZeros => Unary::CountTrailingZeros,
        Math::CountLeadingZeros => Unary::CountLeadingZeros,
        Math::CountOneBits => Unary::CountOneBits,
        Math::ReverseBits => Unary::ReverseBits,
        Math::FirstTrailingBit => Unary::FirstTrailingBit,
        Math::FirstLeadingBit => Unary::FirstLeadingBit,
        _ => return None,
    })
}

fn binary(fun: Math) -> Option<Binary> {
    Some(match fun {
        Math::Min => Binary::Min,
        Math::Max => Binary::Max,
        Math::Pow => Binary::Pow,
        Math::Atan2 => Binary::Atan2,
        Math::Step => Binary::Step,
        Math::Ldexp => Binary::Ldexp,
        _ => return None,
    })
}

fn ternary(fun: Math) -> Option<Ternary> {
    Some(match fun {
        Math::Clamp => Ternary::Clamp,
        Math::Fma => Ternary::Fma,
        Math::Mix => Ternary::Mix,
        Math::SmoothStep => Ternary::SmoothStep,
        Math::ExtractBits => Ternary::ExtractBits,
        Math::InsertBits => Ternary::InsertBits,
        _ => return None,
    })
}

fn geometry(fun: Math) -> Option<Geometry> {
    Some(match fun {
        Math::Dot => Geometry::Dot,
        Math::Cross => Geometry::Cross,
        Math::Length => Geometry::Length,
        Math::Distance => Geometry::Distance,
        Math::Normalize => Geometry::Normalize,
        Math::FaceForward => Geometry::FaceForward,
        Math::Reflect => Geometry::Reflect,
        Math::Refract => Geometry::Refract,
        Math::Outer => Geometry::Outer,
        Math::Transpose => Geometry::Transpose,
        Math::Determinant => Geometry::Determinant,
        Math::Modf => Geometry::Modf,
        Math::Frexp => Geometry::Frexp,
        _ => return None,
    })
}

fn pack(fun: Math) -> Option<Pack> {
    Some(match fun {
        Math::Pack4x8snorm => Pack::Snorm4x8,
        Math::Pack4x8unorm => Pack::Unorm4x8,
        Math::Pack2x16snorm => Pack::Snorm2x16,
        Math::Pack2x16unorm => Pack::Unorm2x16,
        Math::Pack2x16float => Pack::Float2x16,
        Math::Pack4xI8 => Pack::I8x4,
        Math::Pack4xU8 => Pack::U8x4,
        Math::Pack4xI8Clamp => Pack::I8x4Clamp,
        Math::Pack4xU8Clamp => Pack::U8x4Clamp,
        Math::Dot4I8Packed => Pack::DotI8x4,
        Math::Dot4U8Packed => Pack::DotU8x4,
        Math::Unpack4x8snorm => Pack::FromSnorm4x8,
        Math::Unpack4x8unorm => Pack::FromUnorm4x8,
        Math::Unpack2x16snorm => Pack::FromSnorm2x16,
        Math::Unpack2x16unorm => Pack::FromUnorm2x16,
        Math::Unpack2x16float => Pack::FromFloat2x16,
        Math::Unpack4xI8 => Pack::FromI8x4,
        Math::Unpack4xU8 => Pack::FromU8x4,
        _ => return None,
    })
}
