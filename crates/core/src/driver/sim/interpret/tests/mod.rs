//! Small kernels: their results, and the faults planted in them.

mod clean;
mod faults;
mod hostile;

use naga::valid::{Capabilities, ValidationFlags, Validator};

use super::{Kind, Program, Report, View};

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
    pub(super) fn run(&self) -> (Vec<Report>, Vec<Vec<u32>>) {
        let program = compiled(self.wgsl).expect("it can be interpreted");
        let mut run = program.plan([self.groups, 1, 1], self.lanes, self.seed);
        run.zeroes_shared = self.is_lenient;
        run.poisons_private = !self.is_lenient;
        let view = |holds: &Holds| match holds {
            Holds::Words(words) => View {
                bytes: bytemuck::cast_slice(words).to_vec(),
                writes: true,
                is_fresh: false,
            },
            Holds::Fresh(words) => View {
                bytes: vec![0; words * 4],
                writes: true,
                is_fresh: true,
            },
        };
        let mut views: Vec<View> = self.bindings.iter().map(view).collect();
        let reports = program.run(&run, &mut views, &[]).expect("it is small");
        let words = views.iter().map(|view| {
            let words = view.bytes.chunks_exact(4);
            words
                .map(|word| u32::from_le_bytes(word.try_into().expect("4")))
                .collect()
        });
        (reports, words.collect())
    }
}

/// Compiles the only entry point of a text.
#[track_caller]
pub(super) fn compiled(wgsl: &str) -> Result<Program, String> {
    let module = match naga::front::wgsl::parse_str(wgsl) {
        Ok(module) => module,
        Err(error) => panic!("{}", error.emit_to_string(wgsl)),
    };
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    let info = match validator.validate(&module) {
        Ok(info) => info,
        Err(error) => panic!("{}", error.emit_to_string(wgsl)),
    };
    Program::new((&module, &info), 0, wgsl).map_err(|refused| refused.message)
}

/// The line of a report, counted from 1.
pub(super) fn line(wgsl: &str, report: &Report) -> usize {
    wgsl[..report.place.start].matches('\n').count() + 1
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
pub(super) fn expect(kind: Kind, wgsl: &str, bindings: fn() -> Vec<Holds<'static>>, says: &[&str]) {
    for lanes in LANES {
        for seed in 0..3 {
            let mut test = Test::new(wgsl, bindings());
            (test.lanes, test.seed, test.groups) = (lanes, seed, 2);
            let (reports, _) = test.run();
            let found = reports.iter().find(|report| report.kind == kind);
            let found = found.unwrap_or_else(|| panic!("{lanes} lanes, {seed}: {reports:?}"));
            // A race has two places, and the second one is random.
            let other = format!("in line {},", marked(wgsl));
            let is_there = line(wgsl, found) == marked(wgsl) || found.message.contains(&other);
            assert!(is_there, "{lanes} lanes: {found:?}");
            for word in says {
                assert!(found.message.contains(word), "{word}: {}", found.message);
            }
        }
    }
}
