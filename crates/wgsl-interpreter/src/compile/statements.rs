//! Blocks, loops, calls, barriers, and operations of a subgroup.

use naga::{
    AtomicFunction, Block, Expression, Function, Handle, Statement, SwitchValue, TypeInner,
};

use super::compiler::Result;
use super::cooperative;
use super::place::Pointee;
use super::values::Values;
use crate::code::{Atomic, Flow, Instr, MemoryAccess, NONE, Reg, Space, Switch};
use crate::together::{Collective, Gather, Kind};

/// A loop or a switch around a statement, and its jumps that need a target.
#[derive(Debug, Default)]
struct Around {
    breaks: Vec<usize>,
    /// `None` for a switch.
    continues: Option<Vec<usize>>,
}

/// The body of a function that is being compiled.
pub(super) struct Body<'c, 'm> {
    values: Values<'c, 'm>,
    is_entry: bool,
    /// The loops and switches around the statement.
    around: Vec<Around>,
    /// The counters of all its loops.
    loops: Vec<u32>,
    /// The jumps to the function's end.
    returns: Vec<usize>,
}

impl<'c, 'm> Body<'c, 'm> {
    pub(super) fn new(values: Values<'c, 'm>, is_entry: bool) -> Self {
        Body {
            values,
            is_entry,
            around: Vec::new(),
            loops: Vec::new(),
            returns: Vec::new(),
        }
    }

    /// Compiles the whole function.
    pub(super) fn compile(mut self) -> Result<()> {
        self.variables()?;
        self.block(&self.values.function.body)?;
        for jump in std::mem::take(&mut self.returns) {
            self.land(jump);
        }
        for control in std::mem::take(&mut self.loops) {
            self.flow(Flow::Over { control })?;
        }
        self.flow(match self.is_entry {
            true => Flow::End,
            false => Flow::Return {
                control: self.values.frame.control,
            },
        })?;
        Ok(())
    }

    fn flow(&mut self, flow: Flow) -> Result<usize> {
        self.values.all.emit(Instr::Flow(flow))
    }

    /// Sets the target of a jump to the next instruction.
    fn land(&mut self, jump: usize) {
        let here = self.values.all.position();
        match &mut self.values.all.code.instrs[jump] {
            Instr::Flow(
                Flow::Jump(target) | Flow::JumpIf { target, .. } | Flow::JumpUnless { target, .. },
            ) => *target = here,
            other => debug_assert!(false, "{other:?} is not a jump"),
        }
    }

    /// Reserves registers for the function's variables. naga turns a declaration in a loop into a
    /// store at that place, so each round begins with a new value.
    fn variables(&mut self) -> Result<()> {
        let mut declared = vec![false; self.values.function.local_variables.len()];
        self.declarations(&self.values.function.body, &mut declared);
        for (handle, variable) in self.values.function.local_variables.iter() {
            self.values
                .all
                .at(self.values.function.local_variables.get_span(handle));
            let inner = self.values.all.inner(variable.ty);
            let words = self.values.all.words(inner)?;
            let place = Pointee {
                space: Space::Private,
                at: self.values.all.registers(words)?,
                dynamic: NONE,
                name: self.values.all.name(variable.name.as_deref()),
                is_tracked: variable.init.is_none() && !declared[handle.index()],
            };
            let expressions = Some(&self.values.function.expressions);
            self.values
                .all
                .begin(&place, inner, variable.init, expressions)?;
            self.values.locals.push(place);
        }
        Ok(())
    }

    fn declarations(&self, block: &Block, declared: &mut [bool]) {
        for (statement, span) in block.span_iter() {
            match statement {
                Statement::Store { pointer, .. } => {
                    if let Expression::LocalVariable(variable) =
                        self.values.function.expressions[*pointer]
                    {
                        let declaration = self.values.function.local_variables.get_span(variable);
                        declared[variable.index()] |= *span == declaration;
                    }
                }
                Statement::Block(block) => self.declarations(block, declared),
                Statement::If { accept, reject, .. } => {
                    self.declarations(accept, declared);
                    self.declarations(reject, declared);
                }
                Statement::Switch { cases, .. } => {
                    let bodies = cases.iter().map(|case| &case.body);
                    bodies.for_each(|body| self.declarations(body, declared));
                }
                Statement::Loop {
                    body, continuing, ..
                } => {
                    self.declarations(body, declared);
                    self.declarations(continuing, declared);
                }
                _ => {}
            }
        }
    }

    fn block(&mut self, block: &'m Block) -> Result<()> {
        for (statement, span) in block.span_iter() {
            self.values.all.at(*span);
            self.statement(statement)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &'m Statement) -> Result<()> {
        match statement {
            Statement::Emit(range) => {
                for expression in range.clone() {
                    self.values.compute(expression)?;
                }
            }
            Statement::Block(block) => self.block(block)?,
            Statement::If {
                condition,
                accept,
                reject,
            } => self.branch(*condition, accept, reject)?,
            Statement::Switch { selector, cases } => self.switch(*selector, cases)?,
            Statement::Loop {
                body,
                continuing,
                break_if,
            } => self.repeat(body, continuing, *break_if)?,
            Statement::Break => {
                let jump = self.flow(Flow::Jump(0))?;
                if let Some(around) = self.around.last_mut() {
                    around.breaks.push(jump);
                }
            }
            Statement::Continue => {
                let jump = self.flow(Flow::Jump(0))?;
                let mut loops = self.around.iter_mut().rev();
                if let Some(continues) = loops.find_map(|around| around.continues.as_mut()) {
                    continues.push(jump);
                }
            }
            Statement::Return { value } => self.give_back(*value)?,
            Statement::Store { pointer, value } => {
                let from = self.values.value(*value)?;
                self.values.store(*pointer, from)?;
            }
            Statement::ControlBarrier(barrier) => {
                self.flow(Flow::Barrier(*barrier))?;
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let barrier = Flow::Barrier(naga::Barrier::WORK_GROUP);
                self.flow(barrier)?;
                let to = self.values.result(*result)?;
                self.values.load(*pointer, to)?;
                self.flow(barrier)?;
            }
            Statement::Call {
                function,
                arguments,
                result,
            } => self.call(*function, arguments, *result)?,
            Statement::Atomic {
                pointer,
                fun,
                value,
                result,
            } => self.atomic(*pointer, *fun, *value, *result)?,
            Statement::CooperativeStore { target, data } => {
                cooperative::store(&mut self.values, *target, data)?;
            }
            statement => self.subgroup(statement)?,
        }
        Ok(())
    }

    fn branch(
        &mut self,
        condition: Handle<Expression>,
        accept: &'m Block,
        reject: &'m Block,
    ) -> Result<()> {
        let condition = self.values.value(condition)?;
        let target = 0;
        let otherwise = self.flow(Flow::JumpUnless { condition, target })?;
        self.block(accept)?;
        if reject.is_empty() {
            self.land(otherwise);
            return Ok(());
        }
        let end = self.flow(Flow::Jump(0))?;
        self.land(otherwise);
        self.block(reject)?;
        self.land(end);
        Ok(())
    }

    fn switch(
        &mut self,
        selector: Handle<Expression>,
        cases: &'m [naga::SwitchCase],
    ) -> Result<()> {
        let value = self.values.value(selector)?;
        let table = self.values.all.code.switches.len();
        self.values.all.code.switches.push(Switch::default());
        self.flow(Flow::Switch {
            value,
            table: table as u32,
        })?;
        self.around.push(Around::default());
        for case in cases {
            let here = self.values.all.position();
            let switch = &mut self.values.all.code.switches[table];
            match case.value {
                SwitchValue::I32(value) => switch.cases.push((value as u32, here)),
                SwitchValue::U32(value) => switch.cases.push((value, here)),
                SwitchValue::Default => switch.default = here,
            }
            self.block(&case.body)?;
            if !case.fall_through {
                self.statement(&Statement::Break)?;
            }
        }
        for jump in self.around.pop().unwrap_or_default().breaks {
            self.land(jump);
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        body: &'m Block,
        continuing: &'m Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<()> {
        let control = self.values.all.control();
        self.loops.push(control);
        let top = self.values.all.position();
        self.around.push(Around {
            breaks: Vec::new(),
            continues: Some(Vec::new()),
        });
        self.block(body)?;
        let continues = self
            .around
            .last_mut()
            .and_then(|around| around.continues.take());
        for jump in continues.unwrap_or_default() {
            self.land(jump);
        }
        self.block(continuing)?;
        if let Some(condition) = break_if {
            let condition = self.values.value(condition)?;
            let target = 0;
            let jump = self.flow(Flow::JumpIf { condition, target })?;
            if let Some(around) = self.around.last_mut() {
                around.breaks.push(jump);
            }
        }
        self.flow(Flow::Round { control })?;
        self.flow(Flow::Jump(top))?;
        for jump in self.around.pop().unwrap_or_default().breaks {
            self.land(jump);
        }
        self.flow(Flow::Over { control })?;
        Ok(())
    }

    fn give_back(&mut self, value: Option<Handle<Expression>>) -> Result<()> {
        if let Some(value) = value {
            let (from, words) = (self.values.value(value)?, self.values.words(value)?);
            self.values.copy(self.values.frame.result, from, words)?;
        }
        let jump = self.flow(Flow::Jump(0))?;
        self.returns.push(jump);
        Ok(())
    }

    fn call(
        &mut self,
        function: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
    ) -> Result<()> {
        let Some(callee) = self.values.all.frames[function.index()].clone() else {
            return self.values.all.refuse("a function that was not found");
        };
        for (argument, to) in arguments.iter().zip(&callee.arguments) {
            let (from, words) = match self.values.is_pointer(*argument) {
                true => {
                    let place = self.values.place(*argument)?;
                    (self.values.offset(&place)?, 1)
                }
                false => (self.values.value(*argument)?, self.values.words(*argument)?),
            };
            self.values.copy(*to, from, words)?;
        }
        self.flow(Flow::Call {
            target: callee.target,
            control: callee.control,
        })?;
        if let Some(result) = result {
            let words = self.values.words(result)?;
            let to = self.values.result(result)?;
            self.values.copy(to, callee.result, words)?;
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        pointer: Handle<Expression>,
        fun: AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> Result<()> {
        let place = self.values.place(pointer)?;
        let TypeInner::Atomic(scalar) = self.values.pointee(pointer)? else {
            return self
                .values
                .all
                .refuse("an atomic operation on a variable that is not atomic");
        };
        let num = self.values.all.num(scalar)?;
        let value = self.values.value(value)?;
        let old = match result {
            Some(result) => self.values.result(result)?,
            None => NONE,
        };
        self.values.all.here.name = place.name;
        let (space, place) = (place.space, place.address());
        let op = match fun {
            AtomicFunction::Add => Atomic::Add,
            AtomicFunction::Subtract => Atomic::Subtract,
            AtomicFunction::And => Atomic::And,
            AtomicFunction::ExclusiveOr => Atomic::Xor,
            AtomicFunction::InclusiveOr => Atomic::Or,
            AtomicFunction::Min => Atomic::Min,
            AtomicFunction::Max => Atomic::Max,
            AtomicFunction::Exchange { compare: None } => Atomic::Exchange,
            AtomicFunction::Exchange {
                compare: Some(compare),
            } => {
                let compare = self.values.value(compare)?;
                self.values
                    .all
                    .emit(Instr::Memory(MemoryAccess::CompareExchange {
                        old,
                        value,
                        compare,
                        words: num.words() as u8,
                        space,
                        place,
                    }))?;
                return Ok(());
            }
        };
        self.values.all.emit(Instr::Memory(MemoryAccess::Atomic {
            num,
            op,
            old,
            value,
            space,
            place,
        }))?;
        Ok(())
    }

    /// Compiles an operation of the lanes of a subgroup.
    fn subgroup(&mut self, statement: &Statement) -> Result<()> {
        let (result, from, kind) = match statement {
            Statement::SubgroupBallot { result, predicate } => {
                let from = match predicate {
                    Some(predicate) => self.values.value(*predicate)?,
                    None => self.values.all.constant(vec![1])?,
                };
                (*result, from, Kind::Ballot)
            }
            Statement::SubgroupCollectiveOperation {
                op,
                collective_op,
                argument,
                result,
            } => {
                let (num, _) = self.values.lanes(*argument)?;
                let kind = Kind::Reduce(*op, *collective_op, num);
                (*result, self.values.value(*argument)?, kind)
            }
            Statement::SubgroupGather {
                mode,
                argument,
                result,
            } => {
                let (gather, lane) = self.gather(*mode)?;
                (
                    *result,
                    self.values.value(*argument)?,
                    Kind::Gather(gather, lane),
                )
            }
            _ => {
                return self
                    .values
                    .all
                    .refuse("a statement that is not interpreted");
            }
        };
        let words = match kind {
            Kind::Reduce(_, _, num) => self.values.words(result)? / num.words(),
            _ => self.values.words(result)?,
        };
        let to = self.values.result(result)?;
        let count = words as u8;
        let collective = Collective {
            to,
            from,
            count,
            kind,
        };
        self.values.all.code.collectives.push(collective);
        let index = self.values.all.code.collectives.len() as u32 - 1;
        self.flow(Flow::Collective(index))?;
        Ok(())
    }

    fn gather(&mut self, mode: naga::GatherMode) -> Result<(Gather, Reg)> {
        use naga::GatherMode as Mode;
        let (gather, lane) = match mode {
            Mode::BroadcastFirst => return Ok((Gather::First, NONE)),
            Mode::Broadcast(lane) => (Gather::Lane, lane),
            Mode::Shuffle(lane) => (Gather::Lane, lane),
            Mode::ShuffleDown(by) => (Gather::Down, by),
            Mode::ShuffleUp(by) => (Gather::Up, by),
            Mode::ShuffleXor(mask) => (Gather::Xor, mask),
            Mode::QuadBroadcast(lane) => (Gather::Quad, lane),
            Mode::QuadSwap(direction) => {
                let mask = direction as u32 + 1;
                return Ok((Gather::Xor, self.values.all.constant(vec![mask])?));
            }
        };
        Ok((gather, self.values.value(lane)?))
    }
}
