//! Blocks, loops, calls, barriers, and operations of a subgroup.

use naga::{
    AtomicFunction, Block, Expression, Function, Handle, Statement, SwitchValue, TypeInner,
};

use super::{Body, Result};
use crate::driver::sim::interpret::code::{Atomic, Flow, Instr, Memory, NONE, Reg, Switch};
use crate::driver::sim::interpret::together::{Collective, Gather, Kind};

/// A loop or a switch around a statement, and its jumps that need a target.
#[derive(Debug, Default)]
pub(super) struct Around {
    breaks: Vec<usize>,
    /// `None` for a switch.
    continues: Option<Vec<usize>>,
}

/// Calls `found` for every function that a block calls.
pub(super) fn each_call(block: &Block, found: &mut impl FnMut(Handle<Function>)) {
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

impl<'m> Body<'_, 'm> {
    /// Compiles the whole function.
    pub(super) fn compile(mut self) -> Result<()> {
        self.variables()?;
        self.block(&self.function.body)?;
        for jump in std::mem::take(&mut self.returns) {
            self.land(jump);
        }
        for control in std::mem::take(&mut self.loops) {
            self.flow(Flow::Over { control })?;
        }
        self.flow(match self.is_entry {
            true => Flow::End,
            false => Flow::Return {
                control: self.frame.control,
            },
        })?;
        Ok(())
    }

    fn flow(&mut self, flow: Flow) -> Result<usize> {
        self.all.emit(Instr::Flow(flow))
    }

    /// Sets the target of a jump to the next instruction.
    fn land(&mut self, jump: usize) {
        let here = self.all.position();
        match &mut self.all.code.instrs[jump] {
            Instr::Flow(
                Flow::Jump(target) | Flow::JumpIf { target, .. } | Flow::JumpUnless { target, .. },
            ) => *target = here,
            other => debug_assert!(false, "{other:?} is not a jump"),
        }
    }

    /// Reserves registers for the function's variables. naga turns a declaration in a loop into a
    /// store at that place, so each round begins with a new value.
    fn variables(&mut self) -> Result<()> {
        let mut declared = vec![false; self.function.local_variables.len()];
        self.declarations(&self.function.body, &mut declared);
        for (handle, variable) in self.function.local_variables.iter() {
            self.all.at(self.function.local_variables.get_span(handle));
            let inner = self.all.inner(variable.ty);
            let words = self.all.words(inner)?;
            let place = super::Place {
                space: super::Space::Private,
                at: self.all.registers(words)?,
                dynamic: NONE,
                name: self.all.name(variable.name.as_deref()),
                is_tracked: variable.init.is_none() && !declared[handle.index()],
            };
            let expressions = Some(&self.function.expressions);
            self.all.begin(&place, inner, variable.init, expressions)?;
            self.locals.push(place);
        }
        Ok(())
    }

    fn declarations(&self, block: &Block, declared: &mut [bool]) {
        for (statement, span) in block.span_iter() {
            match statement {
                Statement::Store { pointer, .. } => {
                    if let Expression::LocalVariable(variable) = self.function.expressions[*pointer]
                    {
                        let declaration = self.function.local_variables.get_span(variable);
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
            self.all.at(*span);
            self.statement(statement)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &'m Statement) -> Result<()> {
        match statement {
            Statement::Emit(range) => {
                for expression in range.clone() {
                    self.compute(expression)?;
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
                let from = self.value(*value)?;
                self.store(*pointer, from)?;
            }
            Statement::ControlBarrier(barrier) => {
                self.flow(Flow::Barrier(*barrier))?;
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let barrier = Flow::Barrier(naga::Barrier::WORK_GROUP);
                self.flow(barrier)?;
                let to = self.result(*result)?;
                self.load(*pointer, to)?;
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
                self.cooperative_store(*target, data)?;
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
        let condition = self.value(condition)?;
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
        let value = self.value(selector)?;
        let table = self.all.code.switches.len();
        self.all.code.switches.push(Switch::default());
        self.flow(Flow::Switch {
            value,
            table: table as u32,
        })?;
        self.around.push(Around::default());
        for case in cases {
            let here = self.all.position();
            let switch = &mut self.all.code.switches[table];
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
        let control = self.all.control();
        self.loops.push(control);
        let top = self.all.position();
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
            let condition = self.value(condition)?;
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
            let (from, words) = (self.value(value)?, self.words(value)?);
            self.copy(self.frame.result, from, words)?;
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
        let Some(callee) = self.all.frames[function.index()].clone() else {
            return self.all.refuse("a function that was not found");
        };
        for (argument, to) in arguments.iter().zip(&callee.arguments) {
            let (from, words) = match self.is_pointer(*argument) {
                true => {
                    let place = self.place(*argument)?;
                    (self.offset(&place)?, 1)
                }
                false => (self.value(*argument)?, self.words(*argument)?),
            };
            self.copy(*to, from, words)?;
        }
        self.flow(Flow::Call {
            target: callee.target,
            control: callee.control,
        })?;
        if let Some(result) = result {
            let words = self.words(result)?;
            let to = self.result(result)?;
            self.copy(to, callee.result, words)?;
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
        let place = self.place(pointer)?;
        let TypeInner::Atomic(scalar) = self.pointee(pointer)? else {
            return self
                .all
                .refuse("an atomic operation on a variable that is not atomic");
        };
        let num = self.all.num(scalar)?;
        let value = self.value(value)?;
        let old = match result {
            Some(result) => self.result(result)?,
            None => NONE,
        };
        self.all.here.name = place.name;
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
                let compare = self.value(compare)?;
                self.all.emit(Instr::Memory(Memory::CompareExchange {
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
        self.all.emit(Instr::Memory(Memory::Atomic {
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
                    Some(predicate) => self.value(*predicate)?,
                    None => self.all.constant(vec![1])?,
                };
                (*result, from, Kind::Ballot)
            }
            Statement::SubgroupCollectiveOperation {
                op,
                collective_op,
                argument,
                result,
            } => {
                let (num, _) = self.lanes(*argument)?;
                let kind = Kind::Reduce(*op, *collective_op, num);
                (*result, self.value(*argument)?, kind)
            }
            Statement::SubgroupGather {
                mode,
                argument,
                result,
            } => {
                let (gather, lane) = self.gather(*mode)?;
                (*result, self.value(*argument)?, Kind::Gather(gather, lane))
            }
            _ => return self.all.refuse("a statement that is not interpreted"),
        };
        let words = match kind {
            Kind::Reduce(_, _, num) => self.words(result)? / num.words(),
            _ => self.words(result)?,
        };
        let to = self.result(result)?;
        let count = words as u8;
        let collective = Collective {
            to,
            from,
            count,
            kind,
        };
        self.all.code.collectives.push(collective);
        let index = self.all.code.collectives.len() as u32 - 1;
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
                return Ok((Gather::Xor, self.all.constant(vec![mask])?));
            }
        };
        Ok((gather, self.value(lane)?))
    }
}
