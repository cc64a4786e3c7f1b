//! A hundred thousand texts with random changes and all line breaks of WGSL. Each is a kernel or
//! gives a kernel's error, and none ends the process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lapidary::{DType, Error, Gpu, Kernel};

use crate::custom_kernels::hostile::quiet_parser;
use crate::custom_kernels::{SAXPY, gpu, shown};

/// All line breaks of WGSL.
const BREAKS: [&str; 8] = [
    "\n", "\r", "\r\n", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}",
];

/// Pieces to insert: they open, close, hide or repeat something.
const PIECES: &[&str] = &[
    "//",
    "/*",
    "*/",
    "///",
    "//!",
    "/**",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    ">>",
    ">=",
    "<<=",
    "@",
    ";",
    ":",
    ",",
    ".",
    "-",
    "--",
    "!",
    "~",
    "&",
    "&&",
    "|",
    "||",
    "+",
    "*",
    "/",
    "%",
    "=",
    "==",
    "->",
    "0",
    "1u",
    "1f",
    "1.5e-3",
    "0x1p-3",
    "1f.x",
    "4294967295u",
    "é",
    "\0",
    "\u{202e}",
    "\u{200e}",
    "\u{feff}",
    " ",
    "\t",
    "_",
    "x",
    "y[0]",
    "fn",
    "var",
    "let",
    "const",
    "struct",
    "if",
    "else",
    "loop",
    "switch",
    "return",
    "enable subgroups;",
    "arrayLength(&x)",
    "array<",
    "vec4<f32>",
    "@group(0)",
    "@binding(0)",
    "var<storage>",
    "var<uniform>",
    "u32",
    "bool",
];

/// Pieces that nest deeply when they are repeated.
const BOMBS: &[&str] = &[
    "(",
    "[",
    "{",
    "~",
    "-",
    "!",
    "*",
    "abs(",
    "x[",
    ".x",
    "1f.x",
    "+1",
    "array<",
    "vec2<",
    "else if x {}",
    "if x {",
    "&&a",
    "\u{2028}(",
    "-\u{85}",
];

const REDUCE: &str = "
enable subgroups; // sums
struct Row { at: u32, values: array<vec4<f32>, 3> }
alias Rows = array<Row>;
const MANY: u32 = 4u * (2u + 6u);
@group(0) @binding(3) var<storage, read_write> rows: Rows; /* not /* this */ one */
@group(0) // the input
@binding(1) var<storage, read> x: array<u32>;
var<workgroup> shared_: array<u32, MANY>;
fn at(i: u32) -> u32 { if i < arrayLength(&x) { return x[i]; } else if i == 7u { return 1u; } return 0u; }
@compute @workgroup_size(MANY, 1, 1)
fn main(@builtin(local_invocation_id) id: vec3<u32>) {
    var sum = 0u;
    for (var i = id.x; i < arrayLength(&rows); i += MANY) { sum += at(i) << 1u; }
    shared_[id.x] = sum;
    workgroupBarrier();
    switch id.x { case 0u, 1u: { rows[0].at = shared_[1]; } default: { } }
    rows[0].values[1].x = select(-1.5e-3, f32(sum), sum > 2u && sum <= 9u);
}";

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// A boundary between two characters.
    fn place(&mut self, text: &str) -> usize {
        let mut at = self.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}

fn mutated(random: &mut Random) -> String {
    let mut text = random.one(&[SAXPY, REDUCE]).to_owned();
    if random.below(3) == 0 {
        text = text.replace('\n', random.one(&BREAKS));
    }
    // Half of the texts get only one change, so more of them stay kernels.
    for _ in 0..1 + random.below(2) * random.below(6) {
        let at = random.place(&text);
        match random.below(8) {
            0..=2 => text.insert_str(at, random.one(PIECES)),
            3 => text.insert_str(at, random.one(&BREAKS)),
            // A comment that ends somewhere and hides code.
            4 => {
                let (end, many) = (random.one(&BREAKS), random.below(3000));
                let bomb = random.one(BOMBS).repeat(many);
                text.insert_str(at, &format!("//{end}{bomb}{end}"));
            }
            5 => {
                let bomb = random.one(BOMBS);
                text.insert_str(at, &bomb.repeat(random.below(200)));
            }
            6 => {
                let to = at + random.below(12);
                let to = (to..=text.len()).find(|&to| text.is_char_boundary(to));
                text.replace_range(at..to.unwrap_or(text.len()), "");
            }
            _ => {
                let from = random.place(&text);
                let piece: String = text[from..].chars().take(random.below(40)).collect();
                text.insert_str(at, &piece);
            }
        }
    }
    text
}

/// `LAPIDARY_TEXTS` sets the number.
#[test]
fn no_changed_text_ends_the_process() {
    let number = |name, or| std::env::var(name).map_or(or, |text| text.parse().unwrap());
    let seed = number("LAPIDARY_SEED", 18);
    let many = number("LAPIDARY_TEXTS", 5000);
    quiet_parser();
    let gpu = gpu();
    let (mut taken, mut placed) = (0, 0);
    for index in 0..many {
        let mut random = Random(seed ^ index << 20);
        let text = mutated(&mut random);
        let made = catch_unwind(AssertUnwindSafe(|| Kernel::new(&gpu, &text)));
        match made {
            Ok(Ok(_)) => taken += 1,
            Ok(Err(Error::Kernel(error))) => {
                placed += u64::from(error.excerpt.contains("--> wgsl:"));
                let shown = error.to_string();
                let is_clean = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
                assert!(shown.chars().all(is_clean), "text {index}: {shown:?}");
                assert!(
                    !error.message.contains("parser failed"),
                    "text {index}: {shown}\n{text:?}"
                );
            }
            other => panic!("text {index} of seed {seed}: {other:?}\n{text:?}"),
        }
    }
    println!("seed {seed}: {many} texts, {taken} kernels, {placed} errors with their line");
    // Most errors have a place, and some mutations are kernels.
    assert!(
        taken > many / 100 && placed > many / 2,
        "{taken} {placed} of {many}"
    );
}

#[test]
fn every_line_break_ends_a_line_and_a_comment() {
    let gpu: Gpu = gpu();
    let text = "// doubles\n\
        @group(0) @binding(0) // in\n\
        var<storage, read> x: array<u32>; // the input\n\
        @group(0) @binding(1) //\n\
        var<storage, read_write> y: array<u32>;\n\
        @compute @workgroup_size(4) // four\n\
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n\
        y[id.x] = 2u * x[id.x]; // done\n\
        }\n";
    let x = gpu.tensor(&[1_u32, 2, 3, 4], &[4]).unwrap();
    for end in BREAKS {
        let text = text.replace('\n', end);
        let kernel = Kernel::new(&gpu, &text).unwrap_or_else(|error| panic!("{end:?}: {error}"));
        let call = kernel.call().bind("x", &x).out("y", &[4], DType::U32);
        let y = call.groups([1, 1, 1]).run_one().unwrap();
        assert_eq!(y.to_vec::<u32>().unwrap(), [2, 4, 6, 8], "{end:?}");
        // An error shows only its own line.
        let (_, excerpt) = shown(Kernel::new(&gpu, &text.replace("2u * x", "2u * z")));
        assert!(excerpt.contains("--> wgsl:8:16\n"), "{end:?}:\n{excerpt}");
        assert!(!excerpt.contains("fn main"), "{end:?}:\n{excerpt}");
        // Nesting inside an apparent comment is counted.
        for bomb in ["(", "~", ".x", "["] {
            let bomb = format!("y[0] = 1u; //{end}y[1] = x{};", bomb.repeat(100_000));
            let text = text.replace("y[id.x] =", &format!("{bomb} y[id.x] ="));
            let (message, _) = shown(Kernel::new(&gpu, &text));
            assert!(message.contains("deep here"), "{end:?}: {message}");
        }
    }
}
