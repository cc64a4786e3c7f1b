//! The code of a kernel while it is compiled: instructions, registers, constants and names.

use naga::valid::ModuleInfo;
use naga::{Handle, Module, Span, Type, TypeInner};
use rustc_hash::FxHashMap;

use super::place::Pointee;
use crate::code::{Code, Instr, Num, Origin, Reg};
use crate::error::Error;

/// The most instructions of one kernel.
const MOST_INSTRS: usize = 1 << 20;

/// The most registers of one invocation, and the most words of workgroup memory.
pub(super) const MOST: usize = 1 << 16;

pub(super) type Result<T> = std::result::Result<T, Error>;

/// The registers of a function's values. They are fixed, because no call of a function is nested in
/// another.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) target: u32,
    /// The word that holds the place of the call.
    pub(super) control: u32,
    pub(super) arguments: Vec<Reg>,
    pub(super) result: Reg,
}

/// The module and the code so far.
pub(super) struct Compiler<'m> {
    pub(super) module: &'m Module,
    pub(super) info: &'m ModuleInfo,
    pub(super) code: Code,
    /// The origin of the next instructions.
    pub(super) here: Origin,
    /// The registers of constants.
    pub(super) known: FxHashMap<Vec<u32>, Reg>,
    pub(super) globals: Vec<Option<Pointee>>,
    pub(super) frames: Vec<Option<Frame>>,
}

impl<'m> Compiler<'m> {
    pub(super) fn refuse<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::Unsupported {
            place: self.here.place.start as usize..self.here.place.end as usize,
            message: message.into(),
        })
    }

    /// Sets the origin of the next instructions.
    pub(super) fn at(&mut self, span: Span) {
        if let Some(range) = span.to_range() {
            self.here.place = range.start as u32..range.end as u32;
        }
    }

    pub(super) fn emit(&mut self, instr: Instr) -> Result<usize> {
        if self.code.instrs.len() >= MOST_INSTRS {
            return self.refuse("the kernel is too large to be interpreted");
        }
        self.code.instrs.push(instr);
        self.code.origins.push(self.here.clone());
        Ok(self.code.instrs.len() - 1)
    }

    pub(super) fn position(&self) -> u32 {
        self.code.instrs.len() as u32
    }

    /// Reserves registers.
    pub(super) fn registers(&mut self, words: u32) -> Result<Reg> {
        let first = self.code.registers;
        match first.checked_add(words).filter(|end| *end as usize <= MOST) {
            Some(end) => self.code.registers = end,
            None => return self.refuse("its values are too large to be interpreted"),
        }
        Ok(first)
    }

    pub(super) fn control(&mut self) -> u32 {
        self.code.control += 1;
        self.code.control - 1
    }

    /// The registers of a constant with these words.
    pub(super) fn constant(&mut self, words: Vec<u32>) -> Result<Reg> {
        if let Some(known) = self.known.get(&words) {
            return Ok(*known);
        }
        let first = self.registers(words.len() as u32)?;
        let registers = (first..).zip(words.iter().copied());
        self.code.constants.extend(registers);
        self.known.insert(words, first);
        Ok(first)
    }

    pub(super) fn name(&mut self, name: Option<&str>) -> u32 {
        self.code.names.push(name.unwrap_or("_").to_owned());
        self.code.names.len() as u32 - 1
    }

    pub(super) fn inner(&self, ty: Handle<Type>) -> &'m TypeInner {
        &self.module.types[ty].inner
    }

    pub(super) fn num(&self, scalar: naga::Scalar) -> Result<Num> {
        use naga::ScalarKind::{Bool, Float, Sint, Uint};
        match (scalar.kind, scalar.width) {
            (Bool, _) => Ok(Num::Bool),
            (Sint, 4) => Ok(Num::I32),
            (Uint, 4) => Ok(Num::U32),
            (Float, 4) => Ok(Num::F32),
            (Float, 2) => Ok(Num::F16),
            (Sint, 8) => Ok(Num::I64),
            (Uint, 8) => Ok(Num::U64),
            _ => self.refuse("f64 and integers of 16 bits are not interpreted"),
        }
    }
}
