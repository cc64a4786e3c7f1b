//! Scopes: names for what a thread is doing. The tag of a tensor has the scopes that it was made
//! in.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// No scope. Every thread begins with it.
pub(crate) const NO_SCOPE: u32 = 0;

/// Most scopes. Further scopes get the name of the scope around them. An app that puts a number
/// into every name must not cost a path each.
const MOST_SCOPES: usize = 1 << 16;

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(NO_SCOPE) };
}

static SCOPES: Mutex<Option<Scopes>> = Mutex::new(None);

/// All scopes of all threads so far.
#[derive(Default)]
struct Scopes {
    /// The number of a scope, by the scope around it and its name.
    known: FxHashMap<(u32, Arc<str>), u32>,
    /// The paths of all scopes but `NO_SCOPE`.
    paths: Vec<Arc<str>>,
}

/// While it lives, storages that this thread makes are tagged with its name. Dropping it ends the
/// scope. Scopes that the same thread began later must end first.
#[derive(Debug)]
#[must_use = "a scope ends when it is dropped"]
pub struct Scope {
    around: u32,
    /// A scope belongs to the thread that began it.
    not_send: PhantomData<*const ()>,
}

/// Begins a scope of this thread.
pub fn enter_scope(name: &str) -> Scope {
    Scope::enter(name)
}

impl Scope {
    pub(crate) fn enter(name: &str) -> Scope {
        let around = current();
        let mut guard = SCOPES.lock();
        let scopes = guard.get_or_insert_default();
        let key = (around, Arc::from(name));
        let number = match scopes.known.get(&key) {
            Some(&number) => number,
            None if scopes.paths.len() >= MOST_SCOPES => around,
            None => {
                let path = match around {
                    NO_SCOPE => key.1.clone(),
                    around => format!("{}/{name}", scopes.paths[around as usize - 1]).into(),
                };
                scopes.paths.push(path);
                let number = scopes.paths.len() as u32;
                scopes.known.insert(key, number);
                number
            }
        };
        CURRENT.set(number);
        Scope {
            around,
            not_send: PhantomData,
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // While a thread ends, its thread-local values may be gone already.
        let _ = CURRENT.try_with(|current| current.set(self.around));
    }
}

/// The scope of this thread.
pub(crate) fn current() -> u32 {
    CURRENT.try_with(Cell::get).unwrap_or(NO_SCOPE)
}

/// The names of a scope and those around it, from the outermost on, with `/` between them.
pub(crate) fn path(scope: u32) -> Option<Arc<str>> {
    let index = (scope as usize).checked_sub(1)?;
    SCOPES.lock().as_ref()?.paths.get(index).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_are_known_again() {
        let inside = |name| {
            let outer = Scope::enter("step");
            let inner = Scope::enter(name);
            let found = (current(), path(current()));
            drop(inner);
            assert_eq!(path(current()).as_deref(), Some("step"));
            drop(outer);
            assert_eq!(path(current()), None);
            found
        };
        let (forward, path) = inside("forward");
        assert_eq!(path.as_deref(), Some("step/forward"));
        assert_eq!(inside("forward").0, forward);
        assert_ne!(inside("backward").0, forward);
        std::thread::spawn(|| assert_eq!(current(), NO_SCOPE))
            .join()
            .unwrap();
    }
}
