//! The globals and the functions of a module, callees first.

use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AddressSpace, Block, Expression, Function, Handle, Module, Statement, StorageAccess, TypeInner,
};
use rustc_hash::FxHashMap;

use super::compiler::{Compiler, Frame, MOST, Result};
use super::place::Pointee;
use super::statements::Body;
use super::values::Values;
use crate::code::{Buffer, Code, NONE, Origin, Reg, Source, Space};

/// Compiles one entry point of a valid module.
pub(crate) fn compile(module: &Module, info: &ModuleInfo, entry: usize) -> Result<Code> {
    let point = &module.entry_points[entry];
    let mut compiler = Compiler {
        module,
        info,
        code: Code {
            workgroup_size: point.workgroup_size,
            names: vec![String::new()],
            ..Code::default()
        },
        here: Origin::default(),
        known: FxHashMap::default(),
        globals: vec![None; module.global_variables.len()],
        frames: vec![None; module.functions.len()],
    };
    if point.workgroup_size_overrides.is_some() {
        return compiler.refuse("a workgroup size that is an override");
    }
    compiler.globals(entry)?;
    let used = used_functions(module, &point.function);
    for (handle, function) in module.functions.iter() {
        if used[handle.index()] {
            let frame = compiler.function(function, &info[handle])?;
            compiler.frames[handle.index()] = Some(frame);
        }
    }
    compiler.code.entry = compiler.code.instrs.len() as u32;
    compiler.entry(&point.function, info.get_entry_point(entry))?;
    Ok(compiler.code)
}

/// Marks the functions that the entry point calls, directly or indirectly.
fn used_functions(module: &Module, entry: &Function) -> Vec<bool> {
    let mut used = vec![false; module.functions.len()];
    let mark = |function: &Function, used: &mut Vec<bool>| {
        for (_, expression) in function.expressions.iter() {
            if let Expression::CallResult(callee) = expression {
                used[callee.index()] = true;
            }
        }
        each_call(&function.body, &mut |callee| used[callee.index()] = true);
    };
    mark(entry, &mut used);
    // A function comes after the functions that it calls.
    let functions: Vec<_> = module.functions.iter().collect();
    for (handle, function) in functions.into_iter().rev() {
        if used[handle.index()] {
            mark(function, &mut used);
        }
    }
    used
}

/// Calls `found` for every function that a block calls.
fn each_call(block: &Block, found: &mut impl FnMut(Handle<Function>)) {
    for statement in block {
        match statement {
            Statement::Block(block) => each_call(block, found),
            Statement::If { accept, reject, .. } => {
                each_call(accept, found);
                each_call(reject, found);
            }
            Statement::Switch { cases, .. } => {
                cases.iter().for_each(|case| each_call(&case.body, found));
            }
            Statement::Loop {
                body, continuing, ..
            } => {
                each_call(body, found);
                each_call(continuing, found);
            }
            Statement::Call { function, .. } => found(*function),
            _ => {}
        }
    }
}

impl<'m> Compiler<'m> {
    /// Assigns a place to every variable that the entry point uses.
    fn globals(&mut self, entry: usize) -> Result<()> {
        let uses = self.info.get_entry_point(entry);
        for (handle, variable) in self.module.global_variables.iter() {
            if uses[handle].is_empty() {
                continue;
            }
            self.at(self.module.global_variables.get_span(handle));
            let name = self.name(variable.name.as_deref());
            let inner = self.inner(variable.ty);
            let (space, at) = match variable.space {
                AddressSpace::WorkGroup => {
                    let at = self.code.shared_words;
                    let words = self.words(inner)?;
                    match at.checked_add(words).filter(|end| *end as usize <= MOST) {
                        Some(end) => self.code.shared_words = end,
                        None => return self.refuse("too much workgroup memory to be interpreted"),
                    }
                    (Space::Shared, at)
                }
                AddressSpace::Private => {
                    let words = self.words(inner)?;
                    (Space::Private, self.registers(words)?)
                }
                AddressSpace::Storage { .. } | AddressSpace::Uniform | AddressSpace::Immediate => {
                    let source = match &variable.binding {
                        Some(binding) => Source::Binding {
                            group: binding.group,
                            index: binding.binding,
                        },
                        None => Source::Immediates,
                    };
                    let may_write = matches!(
                        variable.space,
                        AddressSpace::Storage { access } if access.contains(StorageAccess::STORE)
                    );
                    let has_halves = self.has_halves(inner);
                    self.code.buffers.push(Buffer {
                        source,
                        may_write,
                        has_halves,
                    });
                    (Space::Buffer(self.code.buffers.len() as u32 - 1), 0)
                }
                _ => return self.refuse("only buffers and memory are interpreted, no textures"),
            };
            self.globals[handle.index()] = Some(Pointee {
                space,
                at,
                dynamic: NONE,
                name,
                is_tracked: variable.init.is_none(),
            });
        }
        Ok(())
    }

    /// Compiles a function that others call.
    fn function(&mut self, function: &'m Function, info: &'m FunctionInfo) -> Result<Frame> {
        let mut arguments = Vec::new();
        for argument in &function.arguments {
            let words = self.words(self.inner(argument.ty))?;
            arguments.push(self.registers(words)?);
        }
        let result = match &function.result {
            Some(result) => {
                let words = self.words(self.inner(result.ty))?;
                self.registers(words)?
            }
            None => NONE,
        };
        let frame = Frame {
            target: self.position(),
            control: self.control(),
            arguments,
            result,
        };
        let values = Values::new(self, function, info, frame.clone());
        Body::new(values, false).compile()?;
        Ok(frame)
    }

    /// Compiles the entry point, whose arguments are builtins.
    fn entry(&mut self, function: &'m Function, info: &'m FunctionInfo) -> Result<()> {
        let mut arguments = Vec::new();
        for argument in &function.arguments {
            let inner = self.inner(argument.ty);
            let words = self.words(inner)?;
            let first = self.registers(words)?;
            arguments.push(first);
            match (&argument.binding, inner) {
                (Some(binding), _) => self.builtin(binding, first)?,
                (None, TypeInner::Struct { members, .. }) => {
                    for (index, member) in members.iter().enumerate() {
                        let at = first + self.member_words(members, index)?;
                        if let Some(binding) = &member.binding {
                            self.builtin(binding, at)?;
                        }
                    }
                }
                _ => return self.refuse("an argument that is not a builtin"),
            }
        }
        for (handle, variable) in self.module.global_variables.iter() {
            let Some(place) = self.globals[handle.index()].clone() else {
                continue;
            };
            if place.space == Space::Private {
                self.begin(&place, self.inner(variable.ty), variable.init, None)?;
            }
        }
        let frame = Frame {
            target: 0,
            control: 0,
            arguments,
            result: NONE,
        };
        Body::new(Values::new(self, function, info, frame), true).compile()
    }

    fn builtin(&mut self, binding: &naga::Binding, at: Reg) -> Result<()> {
        match binding {
            naga::Binding::BuiltIn(builtin) => self.code.builtins.push((*builtin, at)),
            naga::Binding::Location { .. } => return self.refuse("a location in a compute kernel"),
        }
        Ok(())
    }
}
