//! The number of words of a value in registers and workgroup memory, which have no padding. And the
//! places of these words in a buffer, with WGSL's padding.

use naga::{ArraySize, StructMember, TypeInner};

use super::compiler::{Compiler, MOST, Result};

/// Elements that are adjacent both in a buffer and in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) bytes: u32,
    pub(super) word: u32,
    /// The number of words, or of f16 elements.
    pub(super) count: u32,
    pub(super) is_halves: bool,
}

impl Compiler<'_> {
    /// The number of words of a type's value. A pointer has one word, because the rest is known.
    pub(super) fn words(&self, inner: &TypeInner) -> Result<u32> {
        let words = match inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
                u64::from(self.num(*scalar)?.words())
            }
            TypeInner::Vector { size, scalar } => {
                u64::from(self.num(*scalar)?.words()) * *size as u64
            }
            TypeInner::Matrix {
                columns,
                rows,
                scalar,
            } => u64::from(self.num(*scalar)?.words()) * *columns as u64 * *rows as u64,
            TypeInner::CooperativeMatrix { columns, rows, .. } => *columns as u64 * *rows as u64,
            TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. } => 1,
            TypeInner::Array {
                base,
                size: ArraySize::Constant(count),
                ..
            } => u64::from(self.words(self.inner(*base))?) * u64::from(count.get()),
            TypeInner::Struct { members, .. } => {
                u64::from(self.member_words(members, members.len())?)
            }
            _ => return self.refuse("a type that is not interpreted"),
        };
        match u32::try_from(words) {
            Ok(words) if words as usize <= MOST => Ok(words),
            _ => self.refuse("a value that is too large to be interpreted"),
        }
    }

    /// The number of words of a struct's members before `index`.
    pub(super) fn member_words(&self, members: &[StructMember], index: usize) -> Result<u32> {
        let mut words = 0_u32;
        for member in &members[..index] {
            words = words.saturating_add(self.words(self.inner(member.ty))?);
        }
        Ok(words)
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

    /// Whether any part of the type is an `f16`.
    pub(super) fn has_halves(&self, inner: &TypeInner) -> bool {
        match inner {
            TypeInner::Scalar(scalar)
            | TypeInner::Vector { scalar, .. }
            | TypeInner::Matrix { scalar, .. } => scalar.width == 2,
            TypeInner::Array { base, .. } => self.has_halves(self.inner(*base)),
            TypeInner::Struct { members, .. } => members
                .iter()
                .any(|member| self.has_halves(self.inner(member.ty))),
            _ => false,
        }
    }

    /// The places in a buffer of the words of a value.
    pub(super) fn runs(&self, inner: &TypeInner) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        self.add_runs(inner, 0, &mut 0, &mut runs)?;
        Ok(runs)
    }

    fn add_runs(
        &self,
        inner: &TypeInner,
        bytes: u32,
        word: &mut u32,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        if runs.len() > MOST {
            return self.refuse("a value that is too large to be interpreted");
        }
        match inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
                self.add_run(*scalar, 1, bytes, word, runs)?;
            }
            TypeInner::Vector { size, scalar } => {
                self.add_run(*scalar, *size as u32, bytes, word, runs)?;
            }
            TypeInner::Matrix {
                columns,
                rows,
                scalar,
            } => {
                for column in 0..*columns as u32 {
                    let at = bytes + column * column_bytes(*rows, *scalar);
                    self.add_run(*scalar, *rows as u32, at, word, runs)?;
                }
            }
            TypeInner::Array {
                base,
                size: ArraySize::Constant(count),
                stride,
            } => {
                for index in 0..count.get() {
                    self.add_runs(self.inner(*base), bytes + index * stride, word, runs)?;
                }
            }
            TypeInner::Struct { members, .. } => {
                for member in members {
                    self.add_runs(self.inner(member.ty), bytes + member.offset, word, runs)?;
                }
            }
            _ => return self.refuse("a type that is not interpreted"),
        }
        Ok(())
    }

    fn add_run(
        &self,
        scalar: naga::Scalar,
        count: u32,
        bytes: u32,
        word: &mut u32,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let num = self.num(scalar)?;
        let is_halves = scalar.width == 2;
        let count = count * num.words();
        match runs.last_mut() {
            Some(last)
                if last.is_halves == is_halves
                    && last.bytes + last.count * (if is_halves { 2 } else { 4 }) == bytes
                    && last.word + last.count == *word =>
            {
                last.count += count;
            }
            _ => runs.push(Run {
                bytes,
                word: *word,
                count,
                is_halves,
            }),
        }
        *word += count;
        Ok(())
    }
}

/// The bytes of a column. Columns of three rows are padded to four.
pub(super) fn column_bytes(rows: naga::VectorSize, scalar: naga::Scalar) -> u32 {
    let rows = if rows == naga::VectorSize::Bi { 2 } else { 4 };
    rows * u32::from(scalar.width)
}
