//! Cooperative matrices, which belong to a whole subgroup.

use naga::{CooperativeData, Expression, Handle, TypeInner};

use super::{Body, Result};
use crate::driver::sim::interpret::code::{Flow, Instr, Num};
use crate::driver::sim::interpret::together::{Cooperative, Operand};

impl Body<'_, '_> {
    /// Compiles a load or a product of matrices.
    pub(super) fn cooperative(&mut self, expression: Handle<Expression>) -> Result<()> {
        let (rows, columns, num) = self.square(expression)?;
        let operation = match &self.function.expressions[expression] {
            Expression::CooperativeLoad { data, .. } => {
                let operand = self.operand(data, num)?;
                let to = self.result(expression)?;
                Cooperative::Load {
                    matrix: to,
                    rows,
                    columns,
                    operand,
                }
            }
            Expression::CooperativeMultiplyAdd { a, b, c } => {
                let (_, inner, factors) = self.square(*a)?;
                let (a, b, c) = (self.value(*a)?, self.value(*b)?, self.value(*c)?);
                let to = self.result(expression)?;
                Cooperative::MultiplyAdd {
                    to,
                    factors: [a, b],
                    sum: c,
                    shape: [rows, inner, columns],
                    is_half: [factors == Num::F16, num == Num::F16],
                }
            }
            _ => return self.all.refuse("an expression that is not interpreted"),
        };
        self.together(operation)
    }

    pub(super) fn cooperative_store(
        &mut self,
        target: Handle<Expression>,
        data: &CooperativeData,
    ) -> Result<()> {
        let (rows, columns, num) = self.square(target)?;
        let operand = self.operand(data, num)?;
        let matrix = self.value(target)?;
        self.together(Cooperative::Store {
            matrix,
            rows,
            columns,
            operand,
        })
    }

    fn together(&mut self, operation: Cooperative) -> Result<()> {
        self.all.code.cooperatives.push(operation);
        let index = self.all.code.cooperatives.len() as u32 - 1;
        self.all.emit(Instr::Flow(Flow::Cooperative(index)))?;
        Ok(())
    }

    fn square(&self, expression: Handle<Expression>) -> Result<(u32, u32, Num)> {
        match self.ty(expression) {
            TypeInner::CooperativeMatrix {
                columns,
                rows,
                scalar,
                ..
            } => Ok((*rows as u32, *columns as u32, self.all.num(*scalar)?)),
            _ => self.all.refuse("a matrix that is not a subgroup's"),
        }
    }

    fn operand(&mut self, data: &CooperativeData, num: Num) -> Result<Operand> {
        let place = self.place(data.pointer)?;
        self.all.here.name = place.name;
        let unit = match self.pointee(data.pointer)? {
            TypeInner::Vector { size, .. } => size as u32,
            _ => 1,
        };
        Ok(Operand {
            unit,
            space: place.space,
            place: place.address(),
            stride: self.value(data.stride)?,
            row_major: data.row_major,
            is_half: num == Num::F16,
        })
    }
}
