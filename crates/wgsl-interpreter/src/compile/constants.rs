//! Values that are known before the kernel runs, and the variables that begin with them.

use naga::{Arena, Expression, Handle, Literal, TypeInner};

use super::compiler::{Compiler, Result};
use super::place::Pointee;
use crate::code::{Instr, MemoryAccess, Move};

impl Compiler<'_> {
    /// The words of a constant expression.
    pub(super) fn words_of(
        &self,
        expressions: &Arena<Expression>,
        expression: Handle<Expression>,
    ) -> Result<Vec<u32>> {
        match &expressions[expression] {
            Expression::Literal(literal) => self.literal(*literal),
            Expression::Constant(constant) => {
                let init = self.module.constants[*constant].init;
                self.words_of(&self.module.global_expressions, init)
            }
            Expression::ZeroValue(ty) => {
                let words = self.words(self.inner(*ty))?;
                Ok(vec![0; words as usize])
            }
            Expression::Compose { ty, components } => {
                // Parts of an expression may be shared, so a short text can have a large value.
                let mut words = Vec::with_capacity(self.words(self.inner(*ty))? as usize);
                for component in components {
                    words.extend(self.words_of(expressions, *component)?);
                }
                Ok(words)
            }
            Expression::Splat { size, value } => {
                let one = self.words_of(expressions, *value)?;
                Ok(one.repeat(*size as usize))
            }
            Expression::Override(_) => self.refuse("override constants are not interpreted"),
            _ => self.refuse("a constant that is not interpreted"),
        }
    }

    fn literal(&self, literal: Literal) -> Result<Vec<u32>> {
        let wide = |bits: u64| vec![bits as u32, (bits >> 32) as u32];
        Ok(match literal {
            Literal::F32(value) => vec![value.to_bits()],
            Literal::F16(value) => vec![value.to_bits().into()],
            Literal::U32(value) => vec![value],
            Literal::I32(value) => vec![value as u32],
            Literal::Bool(value) => vec![value.into()],
            Literal::U64(value) => wide(value),
            Literal::I64(value) => wide(value as u64),
            _ => return self.refuse("f64 and integers of 16 bits are not interpreted"),
        })
    }

    /// Begins the life of a variable.
    pub(super) fn begin(
        &mut self,
        place: &Pointee,
        inner: &TypeInner,
        init: Option<Handle<Expression>>,
        expressions: Option<&Arena<Expression>>,
    ) -> Result<()> {
        let words = self.words(inner)?;
        if let Some(init) = init {
            let expressions = expressions.unwrap_or(&self.module.global_expressions);
            let init = self.words_of(expressions, init)?;
            let from = self.constant(init)?;
            let to = place.at;
            self.emit(Instr::Move(Move::Copy { to, from, words }))?;
        }
        self.emit(Instr::Memory(MemoryAccess::Begin {
            at: place.at,
            words,
            is_written: !place.is_tracked,
        }))?;
        Ok(())
    }
}
