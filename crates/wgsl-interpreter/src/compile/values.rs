//! The values of a function's expressions while the function is compiled.

use naga::valid::FunctionInfo;
use naga::{Expression, Function, Handle, TypeInner};

use super::compiler::{Compiler, Frame, Result};
use super::place::Pointee;
use crate::code::Reg;

/// The values and the pointers of a function.
pub(super) struct Values<'c, 'm> {
    pub(super) all: &'c mut Compiler<'m>,
    pub(super) function: &'m Function,
    pub(super) frame: Frame,
    info: &'m FunctionInfo,
    /// The registers of the values computed so far.
    pub(super) known: Vec<Option<Reg>>,
    /// The targets of the pointers computed so far.
    pub(super) places: Vec<Option<Pointee>>,
    /// The places of the function's variables.
    pub(super) locals: Vec<Pointee>,
}

impl<'c, 'm> Values<'c, 'm> {
    pub(super) fn new(
        all: &'c mut Compiler<'m>,
        function: &'m Function,
        info: &'m FunctionInfo,
        frame: Frame,
    ) -> Self {
        Values {
            all,
            function,
            frame,
            info,
            known: vec![None; function.expressions.len()],
            places: vec![None; function.expressions.len()],
            locals: Vec::new(),
        }
    }

    /// The type of an expression.
    pub(super) fn ty(&self, expression: Handle<Expression>) -> &'m TypeInner {
        self.info[expression].ty.inner_with(&self.all.module.types)
    }

    /// The number of words of an expression's value.
    pub(super) fn words(&self, expression: Handle<Expression>) -> Result<u32> {
        self.all.words(self.ty(expression))
    }

    /// The registers of an expression's value.
    pub(super) fn value(&mut self, expression: Handle<Expression>) -> Result<Reg> {
        if let Some(known) = self.known[expression.index()] {
            return Ok(known);
        }
        let register = match &self.function.expressions[expression] {
            Expression::FunctionArgument(index) => self.frame.arguments[*index as usize],
            _ => {
                let words = self.all.words_of(&self.function.expressions, expression)?;
                self.all.constant(words)?
            }
        };
        self.known[expression.index()] = Some(register);
        Ok(register)
    }

    /// Reserves registers for an expression's value.
    pub(super) fn result(&mut self, expression: Handle<Expression>) -> Result<Reg> {
        let words = self.words(expression)?;
        let register = self.all.registers(words)?;
        self.known[expression.index()] = Some(register);
        Ok(register)
    }
}
