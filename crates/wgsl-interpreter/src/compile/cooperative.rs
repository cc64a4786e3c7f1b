//! Cooperative matrices, which belong to a whole subgroup.

use naga::{CooperativeData, Expression, Handle, TypeInner};

use super::compiler::Result;
use super::values::Values;
use crate::code::{Flow, Instr, Num};
use crate::together::{Cooperative, Operand};

/// Compiles a load or a product of matrices.
pub(super) fn compute(values: &mut Values<'_, '_>, expression: Handle<Expression>) -> Result<()> {
    let (rows, columns, num) = square(values, expression)?;
    let operation = match &values.function.expressions[expression] {
        Expression::CooperativeLoad { data, .. } => {
            let operand = operand(values, data, num)?;
            let to = values.result(expression)?;
            Cooperative::Load {
                matrix: to,
                rows,
                columns,
                operand,
            }
        }
        Expression::CooperativeMultiplyAdd { a, b, c } => {
            let (_, inner, factors) = square(values, *a)?;
            let (a, b, c) = (values.value(*a)?, values.value(*b)?, values.value(*c)?);
            let to = values.result(expression)?;
            Cooperative::MultiplyAdd {
                to,
                factors: [a, b],
                sum: c,
                shape: [rows, inner, columns],
                is_half: [factors == Num::F16, num == Num::F16],
            }
        }
        _ => return values.all.refuse("an expression that is not interpreted"),
    };
    together(values, operation)
}

/// Compiles a write of a matrix.
pub(super) fn store(
    values: &mut Values<'_, '_>,
    target: Handle<Expression>,
    data: &CooperativeData,
) -> Result<()> {
    let (rows, columns, num) = square(values, target)?;
    let operand = operand(values, data, num)?;
    let matrix = values.value(target)?;
    together(
        values,
        Cooperative::Store {
            matrix,
            rows,
            columns,
            operand,
        },
    )
}

fn together(values: &mut Values<'_, '_>, operation: Cooperative) -> Result<()> {
    values.all.code.cooperatives.push(operation);
    let index = values.all.code.cooperatives.len() as u32 - 1;
    values.all.emit(Instr::Flow(Flow::Cooperative(index)))?;
    Ok(())
}

/// The rows, the columns and the numbers of a matrix.
fn square(values: &Values<'_, '_>, expression: Handle<Expression>) -> Result<(u32, u32, Num)> {
    match values.ty(expression) {
        TypeInner::CooperativeMatrix {
            columns,
            rows,
            scalar,
            ..
        } => Ok((*rows as u32, *columns as u32, values.all.num(*scalar)?)),
        _ => values.all.refuse("a matrix that is not a subgroup's"),
    }
}

fn operand(values: &mut Values<'_, '_>, data: &CooperativeData, num: Num) -> Result<Operand> {
    let place = values.place(data.pointer)?;
    values.all.here.name = place.name;
    let unit = match values.pointee(data.pointer)? {
        TypeInner::Vector { size, .. } => size as u32,
        _ => 1,
    };
    Ok(Operand {
        unit,
        space: place.space,
        place: place.address(),
        stride: values.value(data.stride)?,
        row_major: data.row_major,
        is_half: num == Num::F16,
    })
}
