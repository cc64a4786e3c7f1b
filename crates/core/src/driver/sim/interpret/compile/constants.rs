//! Values that are known before the kernel runs.

use naga::{Arena, Expression, Handle, Literal, TypeInner};

use super::{Compiler, Result};

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

    /// The start of a member or an element in a value, in words.
    pub(super) fn element_words(&self, inner: &TypeInner, index: u32) -> Result<u32> {
        Ok(match inner {
            TypeInner::Struct { members, .. } => self.member_words(members, index as usize)?,
            _ => self.stride_words(inner)? * index,
        })
    }

    /// The number of words of an element of a vector, a matrix or an array.
    pub(super) fn stride_words(&self, inner: &TypeInner) -> Result<u32> {
        Ok(match inner {
            TypeInner::Vector { scalar, .. } => self.num(*scalar)?.words(),
            TypeInner::Matrix { rows, scalar, .. } => self.num(*scalar)?.words() * *rows as u32,
            TypeInner::Array { base, .. } => self.words(self.inner(*base))?,
            _ => return self.refuse("an index into a type that has no elements"),
        })
    }
}
