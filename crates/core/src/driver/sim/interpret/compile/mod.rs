//! Compiles naga's IR to [`Code`].
//!
//! ```text
//!   mod ── globals and functions, callees first
//!    ├─ statements   blocks, loops, calls, barriers, subgroup operations
//!    ├─ expressions  operators, casts, composites
//!    ├─ functions    WGSL's builtin functions
//!    ├─ places       pointers, loads and stores
//!    ├─ cooperative  matrices of a subgroup
//!    ├─ constants    values known before the kernel runs
//!    └─ layout       the words of types, and their places in memory
//! ```
//!
//! naga has validated the module. If this module does not support a valid construct, it refuses the
//! kernel and names the place.

mod constants;
mod cooperative;
mod expressions;
mod functions;
mod layout;
mod places;
mod statements;

use std::ops::Range;

use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{AddressSpace, Expression, Function, Handle, Module, Span, Type, TypeInner};
use rustc_hash::FxHashMap;

use super::code::{Buffer, Code, Instr, NONE, Num, Origin, Reg, Source, Space};
use places::Place;

/// The most instructions of one kernel.
const MOST_INSTRS: usize = 1 << 20;

/// The most registers of one invocation, and the most words of workgroup memory.
const MOST: usize = 1 << 16;

/// A construct that is not supported: its place and the reason.
#[derive(Debug)]
pub(in crate::driver::sim) struct Refused {
    pub(in crate::driver::sim) place: Range<usize>,
    pub(in crate::driver::sim) message: String,
}

type Result<T> = std::result::Result<T, Refused>;

/// Compiles one entry point of a valid module.
pub(super) fn compile(module: &Module, info: &ModuleInfo, entry: usize) -> Result<Code> {
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
        statements::each_call(&function.body, &mut |callee| used[callee.index()] = true);
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

/// The registers of a function's values. They are fixed, because no call of a function is nested in
/// another.
#[derive(Clone, Debug)]
struct Frame {
    target: u32,
    /// The word that holds the place of the call.
    control: u32,
    arguments: Vec<Reg>,
    result: Reg,
}

struct Compiler<'m> {
    module: &'m Module,
    info: &'m ModuleInfo,
    code: Code,
    /// The origin of the next instructions.
    here: Origin,
    /// The registers of constants.
    known: FxHashMap<Vec<u32>, Reg>,
    globals: Vec<Option<Place>>,
    frames: Vec<Option<Frame>>,
}

impl<'m> Compiler<'m> {
    fn refuse<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Refused {
            place: self.here.place.start as usize..self.here.place.end as usize,
            message: message.into(),
        })
    }

    /// Sets the origin of the next instructions.
    fn at(&mut self, span: Span) {
        if let Some(range) = span.to_range() {
            self.here.place = range.start as u32..range.end as u32;
        }
    }

    fn emit(&mut self, instr: Instr) -> Result<usize> {
        if self.code.instrs.len() >= MOST_INSTRS {
            return self.refuse("the kernel is too large to be interpreted");
        }
        self.code.instrs.push(instr);
        self.code.origins.push(self.here.clone());
        Ok(self.code.instrs.len() - 1)
    }

    fn position(&self) -> u32 {
        self.code.instrs.len() as u32
    }

    /// Reserves registers.
    fn registers(&mut self, words: u32) -> Result<Reg> {
        let first = self.code.registers;
        match first.checked_add(words).filter(|end| *end as usize <= MOST) {
            Some(end) => self.code.registers = end,
            None => return self.refuse("its values are too large to be interpreted"),
        }
        Ok(first)
    }

    fn control(&mut self) -> u32 {
        self.code.control += 1;
        self.code.control - 1
    }

    /// The registers of a constant with these words.
    fn constant(&mut self, words: Vec<u32>) -> Result<Reg> {
        if let Some(known) = self.known.get(&words) {
            return Ok(*known);
        }
        let first = self.registers(words.len() as u32)?;
        let registers = (first..).zip(words.iter().copied());
        self.code.constants.extend(registers);
        self.known.insert(words, first);
        Ok(first)
    }

    fn name(&mut self, name: Option<&str>) -> u32 {
        self.code.names.push(name.unwrap_or("_").to_owned());
        self.code.names.len() as u32 - 1
    }

    fn inner(&self, ty: Handle<Type>) -> &'m TypeInner {
        &self.module.types[ty].inner
    }

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
                    let source = match (variable.space, &variable.binding) {
                        (AddressSpace::Storage { .. }, Some(binding)) => {
                            Source::Binding(binding.binding)
                        }
                        _ => Source::Params,
                    };
                    let has_halves = self.has_halves(inner);
                    self.code.buffers.push(Buffer { source, has_halves });
                    (Space::Buffer(self.code.buffers.len() as u32 - 1), 0)
                }
                _ => return self.refuse("only buffers and memory are interpreted, no textures"),
            };
            self.globals[handle.index()] = Some(Place {
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
        Body::new(self, function, info, frame.clone(), false).compile()?;
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
        Body::new(self, function, info, frame, true).compile()
    }

    fn builtin(&mut self, binding: &naga::Binding, at: Reg) -> Result<()> {
        match binding {
            naga::Binding::BuiltIn(builtin) => self.code.builtins.push((*builtin, at)),
            naga::Binding::Location { .. } => return self.refuse("a location in a compute kernel"),
        }
        Ok(())
    }

    fn num(&self, scalar: naga::Scalar) -> Result<Num> {
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

/// The body of a function that is being compiled.
struct Body<'c, 'm> {
    all: &'c mut Compiler<'m>,
    function: &'m Function,
    info: &'m FunctionInfo,
    frame: Frame,
    is_entry: bool,
    /// The registers of the values computed so far.
    values: Vec<Option<Reg>>,
    /// The targets of the pointers computed so far.
    places: Vec<Option<Place>>,
    locals: Vec<Place>,
    /// The loops and switches around the statement.
    around: Vec<statements::Around>,
    /// The counters of all its loops.
    loops: Vec<u32>,
    /// The jumps to the function's end.
    returns: Vec<usize>,
}

impl<'c, 'm> Body<'c, 'm> {
    fn new(
        all: &'c mut Compiler<'m>,
        function: &'m Function,
        info: &'m FunctionInfo,
        frame: Frame,
        is_entry: bool,
    ) -> Self {
        Body {
            all,
            function,
            info,
            frame,
            is_entry,
            values: vec![None; function.expressions.len()],
            places: vec![None; function.expressions.len()],
            locals: Vec::new(),
            around: Vec::new(),
            loops: Vec::new(),
            returns: Vec::new(),
        }
    }

    /// The type of an expression.
    fn ty(&self, expression: Handle<Expression>) -> &'m TypeInner {
        self.info[expression].ty.inner_with(&self.all.module.types)
    }

    /// The number of words of an expression's value.
    fn words(&self, expression: Handle<Expression>) -> Result<u32> {
        self.all.words(self.ty(expression))
    }

    /// The registers of an expression's value.
    fn value(&mut self, expression: Handle<Expression>) -> Result<Reg> {
        if let Some(known) = self.values[expression.index()] {
            return Ok(known);
        }
        let register = match &self.function.expressions[expression] {
            Expression::FunctionArgument(index) => self.frame.arguments[*index as usize],
            _ => {
                let words = self.all.words_of(&self.function.expressions, expression)?;
                self.all.constant(words)?
            }
        };
        self.values[expression.index()] = Some(register);
        Ok(register)
    }

    /// Reserves registers for an expression's value.
    fn result(&mut self, expression: Handle<Expression>) -> Result<Reg> {
        let words = self.words(expression)?;
        let register = self.all.registers(words)?;
        self.values[expression.index()] = Some(register);
        Ok(register)
    }
}
