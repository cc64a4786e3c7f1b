//! Operators, casts and composites.

use naga::{BinaryOperator, Expression, Handle, RelationalFunction, ScalarKind, TypeInner};
use naga::{UnaryOperator, VectorSize};

use super::compiler::Result;
use super::cooperative;
use super::values::Values;
use crate::code::{
    Binary, Count, Geometry, Instr, MemoryAccess, Move, NONE, Num, Pack, Pair, Reg, Unary,
};

impl Values<'_, '_> {
    /// Compiles an expression at the place where naga evaluates it.
    pub(super) fn compute(&mut self, expression: Handle<Expression>) -> Result<()> {
        self.all.at(self.function.expressions.get_span(expression));
        match &self.function.expressions[expression] {
            Expression::Access { base, index } if self.is_pointer(*base) => {
                let place = self.element(*base, *index)?;
                self.places[expression.index()] = Some(place);
            }
            Expression::AccessIndex { base, index } if self.is_pointer(*base) => {
                let place = self.member(*base, *index)?;
                self.places[expression.index()] = Some(place);
            }
            // A part of a value lies in the registers of the value.
            Expression::AccessIndex { base, index } => {
                let offset = self.all.element_words(self.ty(*base), *index)?;
                self.known[expression.index()] = Some(self.value(*base)? + offset);
            }
            Expression::Access { base, index } => self.pick(expression, *base, *index)?,
            Expression::Compose { components, .. } => self.compose(expression, components)?,
            Expression::Splat { size, value } => {
                let (from, words) = (self.value(*value)?, self.words(*value)?);
                let to = self.result(expression)?;
                self.splat(to, from, words, *size as u8)?;
            }
            Expression::Swizzle {
                size,
                vector,
                pattern,
            } => self.swizzle(expression, *size, *vector, pattern)?,
            Expression::Load { pointer } => {
                let to = self.result(expression)?;
                self.load(*pointer, to)?;
            }
            Expression::Unary { op, expr } => self.unary(expression, *op, *expr)?,
            Expression::Binary { op, left, right } => {
                self.binary(expression, *op, *left, *right)?;
            }
            Expression::Select {
                condition,
                accept,
                reject,
            } => self.select(expression, *condition, *accept, *reject)?,
            Expression::Relational { fun, argument } => {
                self.relational(expression, *fun, *argument)?;
            }
            Expression::Math {
                fun,
                arg,
                arg1,
                arg2,
                arg3,
            } => self.math(expression, *fun, *arg, [*arg1, *arg2, *arg3])?,
            Expression::As {
                expr,
                kind,
                convert,
            } => self.cast(expression, *expr, *kind, *convert)?,
            Expression::ArrayLength(array) => self.length(expression, *array)?,
            Expression::CooperativeLoad { .. } | Expression::CooperativeMultiplyAdd { .. } => {
                cooperative::compute(self, expression)?;
            }
            Expression::Literal(_)
            | Expression::Constant(_)
            | Expression::ZeroValue(_)
            | Expression::GlobalVariable(_)
            | Expression::LocalVariable(_)
            | Expression::FunctionArgument(_) => {}
            _ => return self.all.refuse("an expression that is not interpreted"),
        }
        Ok(())
    }

    fn swizzle(
        &mut self,
        expression: Handle<Expression>,
        size: VectorSize,
        vector: Handle<Expression>,
        pattern: &[naga::SwizzleComponent; 4],
    ) -> Result<()> {
        let words = self.all.stride_words(self.ty(vector))? as u8;
        let from = self.value(vector)?;
        let to = self.result(expression)?;
        self.all.emit(Instr::Move(Move::Swizzle {
            to,
            from,
            words,
            count: size as u8,
            pattern: pattern.map(|component| component as u8),
        }))?;
        Ok(())
    }

    /// The type of the numbers in a scalar, a vector or a matrix, and their count.
    pub(super) fn lanes(&self, expression: Handle<Expression>) -> Result<(Num, u8)> {
        Ok(match self.ty(expression) {
            TypeInner::Scalar(scalar) => (self.all.num(*scalar)?, 1),
            TypeInner::Vector { size, scalar } => (self.all.num(*scalar)?, *size as u8),
            TypeInner::Matrix {
                columns,
                rows,
                scalar,
            } => (self.all.num(*scalar)?, *columns as u8 * *rows as u8),
            TypeInner::CooperativeMatrix {
                columns,
                rows,
                scalar,
                ..
            } if (*columns as u32) * (*rows as u32) < 256 => {
                (self.all.num(*scalar)?, *columns as u8 * *rows as u8)
            }
            _ => {
                return self
                    .all
                    .refuse("an operator of a type that is not interpreted");
            }
        })
    }

    pub(super) fn splat(&mut self, to: Reg, from: Reg, words: u32, count: u8) -> Result<()> {
        self.all.emit(Instr::Move(Move::Splat {
            to,
            from,
            words: words as u8,
            count,
        }))?;
        Ok(())
    }

    pub(super) fn copy(&mut self, to: Reg, from: Reg, words: u32) -> Result<()> {
        self.all.emit(Instr::Move(Move::Copy { to, from, words }))?;
        Ok(())
    }

    /// Compiles the access to an element of a value by a computed index.
    fn pick(
        &mut self,
        expression: Handle<Expression>,
        base: Handle<Expression>,
        index: Handle<Expression>,
    ) -> Result<()> {
        let signed = self.is_signed(index);
        let (from, index) = (self.value(base)?, self.value(index)?);
        let inner = self.ty(base);
        let count = match inner {
            TypeInner::Vector { size, .. } => *size as u32,
            TypeInner::Matrix { columns, .. } => *columns as u32,
            TypeInner::Array {
                size: naga::ArraySize::Constant(count),
                ..
            } => count.get(),
            _ => return self.all.refuse("an index into a type that has no elements"),
        };
        let stride = self.all.stride_words(inner)?;
        self.all.code.bounds.push(super::super::code::IndexBound {
            count: Count::Fixed(count),
            stride,
            signed,
        });
        let bound = self.all.code.bounds.len() as u32 - 1;
        let to = self.result(expression)?;
        self.all.here.name = 0;
        self.all.emit(Instr::Move(Move::Pick {
            to,
            from,
            index,
            bound,
        }))?;
        Ok(())
    }

    fn compose(
        &mut self,
        expression: Handle<Expression>,
        components: &[Handle<Expression>],
    ) -> Result<()> {
        let parts: Vec<(Reg, u32)> = components
            .iter()
            .map(|part| Ok((self.value(*part)?, self.words(*part)?)))
            .collect::<Result<_>>()?;
        let mut to = self.result(expression)?;
        // Parts in adjacent registers need one copy.
        let mut next = 0;
        while next < parts.len() {
            let (from, mut words) = parts[next];
            next += 1;
            while next < parts.len() && parts[next].0 == from + words {
                words += parts[next].1;
                next += 1;
            }
            self.copy(to, from, words)?;
            to += words;
        }
        Ok(())
    }

    fn unary(
        &mut self,
        expression: Handle<Expression>,
        op: UnaryOperator,
        of: Handle<Expression>,
    ) -> Result<()> {
        let (num, count) = self.lanes(of)?;
        let a = self.value(of)?;
        let to = self.result(expression)?;
        let op = match op {
            UnaryOperator::Negate => Unary::Negate,
            UnaryOperator::LogicalNot | UnaryOperator::BitwiseNot => Unary::Not,
        };
        self.all.emit(Instr::Unary {
            num,
            op,
            to,
            a,
            count,
        })?;
        Ok(())
    }

    fn binary(
        &mut self,
        expression: Handle<Expression>,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<()> {
        if op == BinaryOperator::Multiply {
            if let Some(shape) = self.product(left, right) {
                let (num, _) = self.lanes(left)?;
                let (a, b) = (self.value(left)?, self.value(right)?);
                let to = self.result(expression)?;
                self.all.emit(Instr::Geometry {
                    op: Geometry::Product,
                    is_half: num == Num::F16,
                    to,
                    a,
                    b,
                    c: NONE,
                    shape,
                })?;
                return Ok(());
            }
        }
        let ((num, a_count), (_, b_count)) = (self.lanes(left)?, self.lanes(right)?);
        let (a, b) = (self.value(left)?, self.value(right)?);
        let to = self.result(expression)?;
        let count = a_count.max(b_count);
        self.all.emit(Instr::Binary {
            num,
            op: operator(op),
            pair: Pair {
                to,
                a,
                b,
                count,
                a_is_one: a_count < count,
                b_is_one: b_count < count,
            },
        })?;
        Ok(())
    }

    /// Rows, inner size and columns of a product of matrices, or of a matrix and a vector.
    fn product(&self, left: Handle<Expression>, right: Handle<Expression>) -> Option<[u8; 3]> {
        let size = |size: &VectorSize| *size as u8;
        match (self.ty(left), self.ty(right)) {
            (
                TypeInner::Matrix { columns, rows, .. },
                TypeInner::Matrix {
                    columns: others, ..
                },
            ) => Some([size(rows), size(columns), size(others)]),
            (TypeInner::Matrix { columns, rows, .. }, TypeInner::Vector { .. }) => {
                Some([size(rows), size(columns), 1])
            }
            (TypeInner::Vector { .. }, TypeInner::Matrix { columns, rows, .. }) => {
                Some([1, size(rows), size(columns)])
            }
            _ => None,
        }
    }

    fn select(
        &mut self,
        expression: Handle<Expression>,
        condition: Handle<Expression>,
        accept: Handle<Expression>,
        reject: Handle<Expression>,
    ) -> Result<()> {
        let each = matches!(self.ty(condition), TypeInner::Vector { .. });
        let words = match each {
            true => self.lanes(accept)?.0.words(),
            false => self.words(accept)?,
        };
        // `words` are those of one lane if the condition is a vector, otherwise of the whole value.
        // `Move::Select` counts words.
        let all = self.words(accept)?;
        let (condition, accept) = (self.value(condition)?, self.value(accept)?);
        let reject = self.value(reject)?;
        let to = self.result(expression)?;
        let mut lane = 0;
        while lane * words < all {
            // Words of 64 bits are selected one by one, because they are rare.
            let (at, whole) = match each && words == 1 {
                true => (0, all),
                false => (lane * words, words),
            };
            self.all.emit(Instr::Move(Move::Select {
                to: to + at,
                condition: condition + if each { lane } else { 0 },
                accept: accept + at,
                reject: reject + at,
                words: whole,
                each: each && words == 1,
            }))?;
            lane += whole / words;
        }
        Ok(())
    }

    fn relational(
        &mut self,
        expression: Handle<Expression>,
        fun: RelationalFunction,
        of: Handle<Expression>,
    ) -> Result<()> {
        let (num, count) = self.lanes(of)?;
        let from = self.value(of)?;
        let to = self.result(expression)?;
        let (all, op) = match fun {
            RelationalFunction::All => (Some(true), Unary::Not),
            RelationalFunction::Any => (Some(false), Unary::Not),
            RelationalFunction::IsNan => (None, Unary::IsNan),
            RelationalFunction::IsInf => (None, Unary::IsInf),
        };
        self.all.emit(match all {
            Some(all) => Instr::Move(Move::Holds {
                to,
                from,
                count,
                all,
            }),
            None => Instr::Unary {
                num,
                op,
                to,
                a: from,
                count,
            },
        })?;
        Ok(())
    }

    fn cast(
        &mut self,
        expression: Handle<Expression>,
        of: Handle<Expression>,
        kind: ScalarKind,
        convert: Option<u8>,
    ) -> Result<()> {
        let ((from, count), a) = (self.lanes(of)?, self.value(of)?);
        let Some(width) = convert else {
            return self.bitcast(expression, kind, from, a);
        };
        let into = self.all.num(naga::Scalar { kind, width })?;
        if into == from {
            self.known[expression.index()] = Some(a);
            return Ok(());
        }
        let to = self.result(expression)?;
        self.all.emit(Instr::Cast {
            from,
            into,
            to,
            a,
            count,
        })?;
        Ok(())
    }

    /// A bitcast keeps the registers. Only f16 values, which have a register each, need a
    /// conversion.
    fn bitcast(
        &mut self,
        expression: Handle<Expression>,
        kind: ScalarKind,
        from: Num,
        a: Reg,
    ) -> Result<()> {
        let (into, _) = self.lanes(expression)?;
        let is_half = |num| num == Num::F16;
        if is_half(from) == is_half(into) || kind == ScalarKind::Bool {
            self.known[expression.index()] = Some(a);
            return Ok(());
        }
        let words = self.words(expression)?;
        let to = self.result(expression)?;
        let steps = if is_half(into) { words / 2 } else { words };
        for step in 0..steps {
            let (op, to, a) = match is_half(into) {
                true => (Pack::FromHalves, to + 2 * step, a + step),
                false => (Pack::Halves, to + step, a + 2 * step),
            };
            self.all.emit(Instr::Pack { op, to, a, b: NONE })?;
        }
        Ok(())
    }

    fn length(&mut self, expression: Handle<Expression>, array: Handle<Expression>) -> Result<()> {
        let place = self.place(array)?;
        let inner = self.pointee(array)?;
        let TypeInner::Array { stride, .. } = inner else {
            return self
                .all
                .refuse("the length of a value that is not an array");
        };
        let bound = self.bound(&inner, &place, stride, false)?;
        let to = self.result(expression)?;
        self.all
            .emit(Instr::Memory(MemoryAccess::Length { to, bound }))?;
        Ok(())
    }
}

fn operator(op: BinaryOperator) -> Binary {
    match op {
        BinaryOperator::Add => Binary::Add,
        BinaryOperator::Subtract => Binary::Subtract,
        BinaryOperator::Multiply => Binary::Multiply,
        BinaryOperator::Divide => Binary::Divide,
        BinaryOperator::Modulo => Binary::Modulo,
        BinaryOperator::Equal => Binary::Equal,
        BinaryOperator::NotEqual => Binary::NotEqual,
        BinaryOperator::Less => Binary::Less,
        BinaryOperator::LessEqual => Binary::LessEqual,
        BinaryOperator::Greater => Binary::Greater,
        BinaryOperator::GreaterEqual => Binary::GreaterEqual,
        BinaryOperator::And | BinaryOperator::LogicalAnd => Binary::And,
        BinaryOperator::ExclusiveOr => Binary::Xor,
        BinaryOperator::InclusiveOr | BinaryOperator::LogicalOr => Binary::Or,
        BinaryOperator::ShiftLeft => Binary::ShiftLeft,
        BinaryOperator::ShiftRight => Binary::ShiftRight,
    }
}
