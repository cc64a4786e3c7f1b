//! Small kernels: their results, and the faults planted in them.

mod clean;
mod faults;
mod front;
mod hostile;

use crate::{Binding, Error, Finding, FindingKind, Kernel};

/// All subgroup sizes of devices.
pub(super) const LANES: [u32; 5] = [4, 8, 16, 32, 64];

/// The contents of a binding.
pub(super) enum Holds<'a> {
    Words(&'a [u32]),
    /// This many words, which the kernel has to write.
    Fresh(usize),
}

/// A dispatch of a kernel in a test.
pub(super) struct Test<'a> {
    pub(super) wgsl: &'a str,
    pub(super) bindings: Vec<Holds<'a>>,
    pub(super) groups: u32,
    pub(super) lanes: u32,
    pub(super) seed: u64,
    /// Whether WGSL's zeros count as written.
    pub(super) is_lenient: bool,
}

impl<'a> Test<'a> {
    pub(super) fn new(wgsl: &'a str, bindings: Vec<Holds<'a>>) -> Self {
        Test {
            wgsl,
            bindings,
            groups: 1,
            lanes: 8,
            seed: 1,
            is_lenient: false,
        }
    }

    /// The faults, and the contents of the bindings afterwards.
    #[track_caller]
    pub(super) fn run(&self) -> (Vec<Finding>, Vec<Vec<u32>>) {
        let kernel = compiled(self.wgsl).expect("it can be interpreted");
        let bindings = (0..).zip(&self.bindings).map(|(index, holds)| match holds {
            Holds::Words(words) => {
                let bytes = words.iter().flat_map(|word| word.to_le_bytes());
                Binding::new(0, index, bytes.collect())
            }
            Holds::Fresh(words) => Binding::fresh(0, index, words * 4),
        });
        let mut bindings: Vec<Binding> = bindings.collect();
        let findings = kernel
            .dispatch([self.groups, 1, 1])
            .lanes(self.lanes)
            .seed(self.seed)
            .zeroes_workgroup(self.is_lenient)
            .zeroes_private(self.is_lenient)
            .run(&mut bindings)
            .expect("it is small");
        let words = bindings.iter().map(|binding| {
            let words = binding.bytes.chunks_exact(4);
            words
                .map(|word| u32::from_le_bytes(word.try_into().expect("4")))
                .collect()
        });
        (findings, words.collect())
    }
}

/// Compiles the entry point `main` of a valid text.
#[track_caller]
pub(super) fn compiled(wgsl: &str) -> Result<Kernel, String> {
    match Kernel::from_wgsl(wgsl, "main") {
        Ok(kernel) => Ok(kernel),
        Err(Error::Unsupported { message, .. }) => Err(message),
        Err(error) => panic!("{error}"),
    }
}

/// The line of the text with the mark.
#[track_caller]
pub(super) fn marked(wgsl: &str) -> usize {
    let mut lines = wgsl.lines();
    lines
        .position(|line| line.contains("// here"))
        .expect("a mark")
        + 1
}

/// Expects one kind of fault at the marked line, for all subgroup sizes and orders.
#[track_caller]
pub(super) fn expect(
    kind: FindingKind,
    wgsl: &str,
    bindings: fn() -> Vec<Holds<'static>>,
    says: &[&str],
) {
    for lanes in LANES {
        for seed in 0..3 {
            let mut test = Test::new(wgsl, bindings());
            (test.lanes, test.seed, test.groups) = (lanes, seed, 2);
            let (reports, _) = test.run();
            let found = reports.iter().find(|report| report.kind == kind);
            let found = found.unwrap_or_else(|| panic!("{lanes} lanes, {seed}: {reports:?}"));
            // A race has two places, and the second one is random.
            let other = format!("in line {},", marked(wgsl));
            let is_there = found.line == marked(wgsl) || found.message.contains(&other);
            assert!(is_there, "{lanes} lanes: {found:?}");
            for word in says {
                assert!(found.message.contains(word), "{word}: {}", found.message);
            }
        }
    }
}
