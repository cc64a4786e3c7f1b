//! Programs of random steps, for any subject: values, memory, stores, fusion, dry runs.
//!
//! A program is a value: a seed, and the numbers of its steps. Seed and number give a step dice of
//! its own, by which it chooses an operation, operands and arguments. So a program without some of
//! its steps is a program too. A tensor has the number of the step that made it as its name. A
//! later step takes by [`pick`] the one of all fitting tensors whose name its dice like best. It
//! still takes the same one if other steps are left out.
//!
//! That makes failed programs small: [`check`] leaves out steps, many at first, as long as the rest
//! fails at the same line. `proptest` knows no names, so a step would mean something else as soon
//! as an earlier one is gone. It also leaves out one step at a time.
//!
//! A subject brings a world, which the seed alone makes, and runs one step after the other. It
//! tells by [`Program::say`] what each step does. Faults begin with a step, and end at the number
//! of another one. Threads share the steps by their numbers.
//!
//! A failed program is printed as below. The last line runs just these steps again, so it stops in
//! a debugger, too. Here the spill file's checksums were not compared: it reads 256 numbers, the
//! disk flips a bit when they are evicted, and the end finds that.
//!
//! ```text
//! i32[256]: element 128 is -21, not -5, and 0 more
//! at tests/random/world.rs:476, 3 steps:
//!    306 trouble, to step 324: Fault { site: AnyCall, nth: 3, repeat: EverySecond, kind: Flip }
//!    306 full => t306.0 i32[256]
//!    316 to_vec t306.0
//!    321 evict t306.0
//!        at the end: <= here
//! run it again: LAPIDARY_SEED=1:306,316,321 cargo xtask test pressure::programs::a_disk_that_li…
//! ```
//!
//! `LAPIDARY_PROGRAMS` sets the number of programs of each kind, and `LAPIDARY_STEPS` the steps of
//! each. `LAPIDARY_SEED` runs one program, or as many as `LAPIDARY_PROGRAMS` says from there on.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

pub(crate) use fastrand::Rng as Dice;

/// No failed program is run again for longer.
const PATIENCE: Duration = Duration::from_secs(100);

/// The number of the step that made something, and how many others it made before.
pub(crate) type Name = (u32, u32);

/// A program, and what it has said so far.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    pub(crate) steps: Vec<u32>,
    said: Arc<Mutex<String>>,
}

impl Program {
    fn new(seed: u64, steps: Vec<u32>) -> Program {
        let said = Arc::default();
        Program { seed, steps, said }
    }

    /// All choices of a step; those of step 0 are the world's.
    pub(crate) fn dice(&self, step: u32) -> Dice {
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Dice::with_seed(seed ^ u64::from(step) << 20)
    }

    pub(crate) fn say(&self, words: fmt::Arguments<'_>) {
        let mut said = self.said.lock().unwrap_or_else(|said| said.into_inner());
        fmt::write(&mut *said, words).expect("a string takes everything");
    }
}

/// As `LAPIDARY_SEED` takes it: `7` or `7:3,21`.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.steps.iter().map(u32::to_string).collect();
        write!(f, "{}:{}", self.seed, steps.join(","))
    }
}

/// The one of these that the dice like best.
pub(crate) fn pick<T>(dice: &mut Dice, named: impl Iterator<Item = (Name, T)>) -> Option<T> {
    let key = dice.u64(..);
    let liking = |name: Name| {
        let name = u64::from(name.0) << 8 | u64::from(name.1);
        Dice::with_seed(key ^ name.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
    };
    named
        .max_by_key(|(name, _)| liking(*name))
        .map(|(_, one)| one)
}

/// The number in an environment variable, if it has one.
pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The words of a panic that a test wants. Nobody prints it.
pub(crate) const WANTED: &str = "as the test wants";

/// A panic: its place, and its words.
pub(crate) struct Failure {
    at: String,
    words: String,
}

impl Failure {
    /// Panics again, in another thread.
    pub(crate) fn go_on(self) -> ! {
        LAST.set(Some(self));
        std::panic::resume_unwind(Box::new("again"));
    }
}

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// From now on nobody prints a wanted panic, nor one of [`attempt`].
pub(crate) fn hide_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().expect("every panic has one");
            let failure = Failure {
                at: format!("{}:{}", place.file(), place.line()),
                words: words(info.payload()).to_owned(),
            };
            LAST.set(Some(failure));
            if !IS_QUIET.get() && words(info.payload()) != WANTED {
                loud(info);
            }
        }));
    });
}

fn words(payload: &dyn std::any::Any) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("without words")
}

/// Runs it, and gives the panic with which it ends.
pub(crate) fn attempt(run: impl FnOnce()) -> Result<(), Failure> {
    hide_panics();
    let was_quiet = IS_QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    IS_QUIET.set(was_quiet);
    result.map_err(|_| LAST.take().expect("the hook has seen it"))
}

/// Runs programs with so many steps, and makes the first that fails small.
///
/// The environment may set other numbers. Then one that has a single program given runs as it is,
/// with all that a panic prints.
pub(crate) fn check(programs: u64, steps: u64, run: impl Fn(&Program)) {
    check_from(0, programs, steps, run);
}

/// The same from this seed on.
pub(crate) fn check_from(first: u64, programs: u64, steps: u64, run: impl Fn(&Program)) {
    let given = std::env::var("LAPIDARY_SEED").unwrap_or_default();
    if let Some((seed, steps)) = given.split_once(':') {
        // A program that fails before its first step is left with none.
        let steps = steps.split(',').filter(|step| !step.is_empty());
        let steps = steps.map(|step| step.parse().expect("a step"));
        let program = Program::new(seed.parse().expect("a seed"), steps.collect());
        run(&program);
        return;
    }
    let given = number("LAPIDARY_SEED");
    let programs =
        number("LAPIDARY_PROGRAMS").unwrap_or(if given.is_some() { 1 } else { programs });
    let steps = number("LAPIDARY_STEPS").unwrap_or(steps) as u32;
    for seed in (0..programs).map(|at| given.unwrap_or(first).wrapping_add(at)) {
        let program = Program::new(seed, (1..=steps).collect());
        if let Err(failure) = attempt(|| run(&program)) {
            eprintln!("seed {seed}: {} at {}", failure.words, failure.at);
            let (program, failure) = shrink(program, failure, run);
            let (Failure { at, words }, steps) = (failure, program.steps.len());
            let said = program.said.lock().expect("nobody panics with it");
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            let end = if said.ends_with('\n') {
                ""
            } else {
                " <= here\n"
            };
            panic!(
                "{words}\nat {at}, {steps} steps:\n{said}{end}run it again: LAPIDARY_SEED={program} \
                 cargo xtask test {test}"
            );
        }
    }
}

/// Leaves out steps, many at first, as long as what is left fails at the same place.
fn shrink(
    mut program: Program,
    mut failure: Failure,
    run: impl Fn(&Program),
) -> (Program, Failure) {
    let begin = Instant::now();
    let mut count = program.steps.len().div_ceil(2);
    while count > 0 {
        let mut at = program.steps.len();
        let mut is_smaller = false;
        while at > 0 && begin.elapsed() < PATIENCE {
            let end = at;
            at = at.saturating_sub(count);
            let steps = [&program.steps[..at], &program.steps[end..]].concat();
            let fewer = Program::new(program.seed, steps);
            match attempt(|| run(&fewer)) {
                Err(again) if again.at == failure.at => {
                    (program, failure, is_smaller) = (fewer, again, true);
                }
                _ => {}
            }
        }
        let is_done = !is_smaller || begin.elapsed() >= PATIENCE;
        count = if count == 1 && !is_done { 1 } else { count / 2 };
    }
    (program, failure)
}

#[test]
fn a_program_that_fails_becomes_as_small_as_it_can() {
    // Two steps in a certain order are needed, of which the second depends on the seed.
    let run = |program: &Program| {
        let has = |step| program.steps.iter().position(|&one| one == step);
        program.say(format_args!("{program}\n"));
        let is_wrong = has(17).is_some_and(|at| has(90 + program.seed as u32) > Some(at));
        assert!(!is_wrong, "wrong");
    };
    let failed = attempt(|| check_from(3, 9, 100, run)).expect_err("it fails");
    let expected = "\nat tests/programs.rs:";
    assert!(failed.words.starts_with("wrong") && failed.words.contains(expected));
    assert!(
        failed
            .words
            .contains(" 2 steps:\n3:17,93\nrun it again: LAPIDARY_SEED=3:17,93")
    );
}

#[test]
fn a_failure_of_a_thread_goes_on_in_another() {
    let fail = || attempt(|| panic!("on purpose"));
    let thread = std::thread::spawn(fail);
    let failed = thread
        .join()
        .expect("its panic was caught")
        .expect_err("it fails");
    let failed = attempt(|| failed.go_on()).expect_err("it goes on");
    assert_eq!(failed.words, "on purpose");
}

#[test]
fn a_pick_stays_while_others_are_left_out() {
    let name = |at| ((at, 0), at);
    let picked = |from: &[u32], seed| {
        pick(&mut Dice::with_seed(seed), from.iter().map(|&at| name(at))).expect("some")
    };
    let all: Vec<u32> = (0..20).collect();
    let picks: Vec<u32> = (0..200).map(|seed| picked(&all, seed)).collect();
    assert!(all.iter().all(|one| picks.contains(one)), "{picks:?}");
    for (seed, one) in (0..).zip(picks) {
        let others = [one, one / 2, 19];
        assert_eq!(picked(&others, seed), one);
    }
}
