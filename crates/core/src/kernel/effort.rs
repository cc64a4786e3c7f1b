//! Bounds on the effort that a kernel asks of the driver's compiler.
//!
//! Drivers inline every function at every call. Thirty functions that each call the previous one
//! twice would expand to a thousand million statements. Private variables take memory once for each
//! invocation that runs. Such a text could hang or kill the process inside the driver, where no
//! error can be reported any more. So it is refused here.

use std::ops::Range;

use naga::{AddressSpace, Block, Expression, Function, Handle, Module, Statement, Type, TypeInner};

/// Most statements of an entry point with all calls inlined.
const MOST_STATEMENTS: u64 = 1 << 20;

/// Most bytes of private variables of one invocation, and of values that may become variables.
const MOST_PRIVATE_BYTES: u64 = 64 << 10;

/// Refuses a module that asks for too much. The error gives the reason, and the place if there is
/// one. Only the module's declarations need to be valid.
pub(super) fn check(module: &Module) -> Result<(), (Option<Range<usize>>, String)> {
    // naga lists a function after the functions that it calls.
    let mut costs: Vec<u64> = Vec::with_capacity(module.functions.len());
    for (handle, function) in module.functions.iter() {
        let cost = cost(&function.body, &costs);
        if cost > MOST_STATEMENTS {
            let place = module.functions.get_span(handle).to_range();
            return Err((place, too_many(cost)));
        }
        costs.push(cost);
    }
    let mut private: u64 = module
        .global_variables
        .iter()
        .filter(|(_, variable)| variable.space == AddressSpace::Private)
        .map(|(_, variable)| size_bytes(module, variable.ty))
        .fold(0, u64::saturating_add);
    let points = module.entry_points.iter();
    for point in points.clone() {
        let cost = cost(&point.function.body, &costs);
        if cost > MOST_STATEMENTS {
            return Err((None, too_many(cost)));
        }
    }
    let functions = module.functions.iter().map(|(_, function)| function);
    for function in functions.chain(points.map(|point| &point.function)) {
        private = private.saturating_add(locals(module, function));
    }
    if private > MOST_PRIVATE_BYTES {
        let reason = format!(
            "{private} bytes of variables for every invocation, at most {MOST_PRIVATE_BYTES}: \
             use a storage buffer"
        );
        return Err((None, reason));
    }
    Ok(())
}

fn too_many(cost: u64) -> String {
    format!("{cost} statements with all calls inlined, at most {MOST_STATEMENTS}")
}

fn locals(module: &Module, function: &Function) -> u64 {
    let locals = function.local_variables.iter();
    let locals = locals.map(|(_, variable)| variable.ty);
    let given = function.arguments.iter().map(|argument| argument.ty);
    let made = function.result.iter().map(|result| result.ty);
    // An array that is indexed by a number that is known late becomes a variable.
    let values = function.expressions.iter();
    let values = values.filter_map(|(_, value)| match value {
        Expression::Compose { ty, .. } | Expression::ZeroValue(ty) => Some(*ty),
        Expression::Constant(constant) => Some(module.constants[*constant].ty),
        _ => None,
    });
    let is_array = |ty: &Handle<Type>| {
        matches!(
            module.types[*ty].inner,
            TypeInner::Array { .. } | TypeInner::Struct { .. }
        )
    };
    let of_values = given.chain(made).chain(values).filter(is_array);
    let all = locals.chain(of_values);
    all.map(|ty| size_bytes(module, ty))
        .fold(0, u64::saturating_add)
}

fn size_bytes(module: &Module, ty: Handle<Type>) -> u64 {
    let size = module.types[ty].inner.try_size(module.to_ctx());
    size.map_or(u64::MAX, u64::from)
}

/// Statements of a block, with those of the functions that it calls. The caller bounded its depth
/// before parsing.
fn cost(block: &Block, costs: &[u64]) -> u64 {
    let statements = block.iter().map(|statement| match statement {
        Statement::Block(block) => cost(block, costs),
        Statement::If { accept, reject, .. } => {
            cost(accept, costs).saturating_add(cost(reject, costs))
        }
        Statement::Switch { cases, .. } => {
            let cases = cases.iter().map(|case| cost(&case.body, costs));
            cases.fold(0, u64::saturating_add)
        }
        Statement::Loop {
            body, continuing, ..
        } => cost(body, costs).saturating_add(cost(continuing, costs)),
        Statement::Call { function, .. } => costs.get(function.index()).copied().unwrap_or(0),
        _ => 0,
    });
    statements.fold(0, |sum, cost| sum.saturating_add(cost).saturating_add(1))
}
