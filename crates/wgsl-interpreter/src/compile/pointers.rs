//! Pointers. The compiler knows the memory of each pointer, so a register holds only an offset.

use naga::{AddressSpace, ArraySize, Expression, Handle, TypeInner};

use super::compiler::Result;
use super::layout::column_bytes;
use super::place::Pointee;
use super::values::Values;
use crate::code::{
    Address, Binary, Count, IndexBound, Instr, MemoryAccess, Move, NONE, Num, Pair, Reg, Space,
};

impl Values<'_, '_> {
    /// The target of a computed pointer or of a variable.
    pub(super) fn place(&mut self, pointer: Handle<Expression>) -> Result<Pointee> {
        if let Some(place) = &self.places[pointer.index()] {
            return Ok(place.clone());
        }
        match &self.function.expressions[pointer] {
            Expression::GlobalVariable(variable) => match &self.all.globals[variable.index()] {
                Some(place) => Ok(place.clone()),
                None => self.all.refuse("a variable that was not found"),
            },
            Expression::LocalVariable(variable) => Ok(self.locals[variable.index()].clone()),
            Expression::FunctionArgument(index) => {
                let name = self.function.arguments[*index as usize].name.as_deref();
                let space = match self.ty(pointer) {
                    TypeInner::Pointer { space, .. } | TypeInner::ValuePointer { space, .. } => {
                        *space
                    }
                    _ => return self.all.refuse("a value where a pointer was expected"),
                };
                Ok(Pointee {
                    space: match space {
                        AddressSpace::Function | AddressSpace::Private => Space::Private,
                        AddressSpace::WorkGroup => Space::Shared,
                        _ => return self.all.refuse("a pointer to a buffer as an argument"),
                    },
                    at: 0,
                    dynamic: self.frame.arguments[*index as usize],
                    name: self.all.name(name),
                    is_tracked: true,
                })
            }
            _ => self.all.refuse("a pointer that is not interpreted"),
        }
    }

    /// The type of a pointer's target.
    pub(super) fn pointee(&self, pointer: Handle<Expression>) -> Result<TypeInner> {
        Ok(match self.ty(pointer) {
            TypeInner::Pointer { base, .. } => self.all.inner(*base).clone(),
            TypeInner::ValuePointer {
                size: Some(size),
                scalar,
                ..
            } => TypeInner::Vector {
                size: *size,
                scalar: *scalar,
            },
            TypeInner::ValuePointer {
                size: None, scalar, ..
            } => TypeInner::Scalar(*scalar),
            _ => return self.all.refuse("a value where a pointer was expected"),
        })
    }

    pub(super) fn is_pointer(&self, expression: Handle<Expression>) -> bool {
        matches!(
            self.ty(expression),
            TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. }
        )
    }

    /// The pointer to a member, or to an element whose index is known.
    pub(super) fn member(&mut self, base: Handle<Expression>, index: u32) -> Result<Pointee> {
        let mut place = self.place(base)?;
        let inner = self.pointee(base)?;
        let offset = match place.is_buffer() {
            true => match &inner {
                TypeInner::Struct { members, .. } => members[index as usize].offset,
                TypeInner::Array {
                    size: ArraySize::Dynamic,
                    ..
                } => {
                    let index = self.all.constant(vec![index])?;
                    return self.element_at(base, index, false);
                }
                inner => self.stride_bytes(inner)? * index,
            },
            false => self.all.element_words(&inner, index)?,
        };
        place.at = place.at.saturating_add(offset);
        Ok(place)
    }

    /// The pointer to an element.
    pub(super) fn element(
        &mut self,
        base: Handle<Expression>,
        index: Handle<Expression>,
    ) -> Result<Pointee> {
        let signed = self.is_signed(index);
        let index = self.value(index)?;
        self.element_at(base, index, signed)
    }

    fn element_at(
        &mut self,
        base: Handle<Expression>,
        index: Reg,
        signed: bool,
    ) -> Result<Pointee> {
        let mut place = self.place(base)?;
        let inner = self.pointee(base)?;
        let stride = match place.is_buffer() {
            true => self.stride_bytes(&inner)?,
            false => self.all.stride_words(&inner)?,
        };
        let bound = self.bound(&inner, &place, stride, signed)?;
        let to = self.all.registers(1)?;
        self.all.here.name = place.name;
        self.all.emit(Instr::Memory(MemoryAccess::Index {
            to,
            previous: place.dynamic,
            index,
            bound,
        }))?;
        place.dynamic = to;
        Ok(place)
    }

    pub(super) fn is_signed(&self, index: Handle<Expression>) -> bool {
        self.ty(index).scalar_kind() == Some(naga::ScalarKind::Sint)
    }

    /// The limit of an index into a type, and the distance of its elements.
    pub(super) fn bound(
        &mut self,
        inner: &TypeInner,
        place: &Pointee,
        stride: u32,
        signed: bool,
    ) -> Result<u32> {
        let count = match (inner, place.space) {
            (TypeInner::Vector { size, .. }, _) => Count::Fixed(*size as u32),
            (TypeInner::Matrix { columns, .. }, _) => Count::Fixed(*columns as u32),
            (
                TypeInner::Array {
                    size: ArraySize::Constant(count),
                    ..
                },
                _,
            ) => Count::Fixed(count.get()),
            (
                TypeInner::Array {
                    size: ArraySize::Dynamic,
                    ..
                },
                Space::Buffer(buffer),
            ) => Count::Runtime {
                buffer,
                first_bytes: place.at,
            },
            _ => return self.all.refuse("an index into a type that has no elements"),
        };
        self.all.code.bounds.push(IndexBound {
            count,
            stride,
            signed,
        });
        Ok(self.all.code.bounds.len() as u32 - 1)
    }

    fn stride_bytes(&self, inner: &TypeInner) -> Result<u32> {
        Ok(match inner {
            TypeInner::Vector { scalar, .. } => scalar.width.into(),
            TypeInner::Matrix { rows, scalar, .. } => column_bytes(*rows, *scalar),
            TypeInner::Array { stride, .. } => *stride,
            _ => return self.all.refuse("an index into a type that has no elements"),
        })
    }

    /// The register that holds a pointer's offset, for a call.
    pub(super) fn offset(&mut self, place: &Pointee) -> Result<Reg> {
        let at = self.all.constant(vec![place.at])?;
        if place.dynamic == NONE {
            return Ok(at);
        }
        let to = self.all.registers(1)?;
        self.all.emit(Instr::Binary {
            num: Num::U32,
            op: Binary::Add,
            pair: Pair {
                to,
                a: at,
                b: place.dynamic,
                count: 1,
                a_is_one: false,
                b_is_one: false,
            },
        })?;
        Ok(to)
    }

    /// Compiles a read of a pointer's whole target.
    pub(super) fn load(&mut self, pointer: Handle<Expression>, to: Reg) -> Result<()> {
        self.transfer(pointer, to, false)
    }

    /// Compiles a write of a pointer's whole target.
    pub(super) fn store(&mut self, pointer: Handle<Expression>, from: Reg) -> Result<()> {
        self.transfer(pointer, from, true)
    }

    /// Moves a pointer's whole target to or from registers, of which `register` is the first.
    fn transfer(&mut self, pointer: Handle<Expression>, register: Reg, writes: bool) -> Result<()> {
        let place = self.place(pointer)?;
        let inner = self.pointee(pointer)?;
        self.all.here.name = place.name;
        let words = self.all.words(&inner)?;
        let (space, address) = (place.space, place.address());
        if matches!(inner, TypeInner::Atomic(_)) {
            let words = words as u8;
            let moved = self.all.emit(Instr::Memory(match writes {
                false => MemoryAccess::AtomicLoad {
                    to: register,
                    space,
                    from: address,
                    words,
                },
                true => MemoryAccess::AtomicStore {
                    from: register,
                    space,
                    to: address,
                    words,
                },
            }));
            return moved.map(drop);
        }
        let Space::Buffer(buffer) = space else {
            let is_plain = space == Space::Private && !place.is_tracked && place.dynamic == NONE;
            let moved = self.all.emit(match is_plain {
                true => {
                    let (to, from) = match writes {
                        false => (register, place.at),
                        true => (place.at, register),
                    };
                    Instr::Move(Move::Copy { to, from, words })
                }
                false => words_of(space, address, register, words, writes),
            });
            return moved.map(drop);
        };
        for run in self.all.runs(&inner)? {
            let (register, count) = (register + run.word, run.count);
            let address = Address {
                at: address.at.saturating_add(run.bytes),
                ..address
            };
            self.all.emit(match run.is_halves {
                true => halves_of(buffer, address, register, count, writes),
                false => words_of(space, address, register, count, writes),
            })?;
        }
        Ok(())
    }
}

/// Moves words between memory and registers.
fn words_of(space: Space, address: Address, register: Reg, words: u32, writes: bool) -> Instr {
    Instr::Memory(match writes {
        false => MemoryAccess::Load {
            to: register,
            space,
            from: address,
            words,
        },
        true => MemoryAccess::Store {
            from: register,
            space,
            to: address,
            words,
        },
    })
}

/// Moves f16 elements between a buffer and registers.
fn halves_of(buffer: u32, address: Address, register: Reg, count: u32, writes: bool) -> Instr {
    Instr::Memory(match writes {
        false => MemoryAccess::LoadHalves {
            to: register,
            buffer,
            from: address,
            count,
        },
        true => MemoryAccess::StoreHalves {
            from: register,
            buffer,
            to: address,
            count,
        },
    })
}
