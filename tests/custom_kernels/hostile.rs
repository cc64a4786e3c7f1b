//! Hostile texts and indices: a kernel reaches only its bindings, and nothing overflows.

use lapidary::{DType, Kernel, adapter::ShaderCompiler};

use crate::custom_kernels::{framed, gpu, shown};

#[test]
fn indices_beyond_a_binding_reach_no_other_tensor() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n\
         @group(0) @binding(1) var<storage, read_write> seen: array<u32>;\n\
         @group(0) @binding(2) var<uniform> start: u32;",
        "let i = start + id.x;\n\
         let found = x[i];\n\
         if found == 0xc0ffeeu && i >= arrayLength(&x) { seen[0] = 1u; }\n\
         x[i] = 0xbadu;",
    )
    .unwrap();
    // Small tensors in one slab, some of them right before and after the victim.
    let secret = vec![0x00c0_ffee_u32; 64];
    // The victim's own elements are no secret: adapters may clamp an index to the last one.
    let own = vec![7_u32; 64];
    let neighbours: Vec<_> = (0..20)
        .map(|index| gpu.tensor(if index == 10 { &own } else { &secret }, &[64]))
        .map(|tensor| tensor.unwrap())
        .collect();
    gpu.flush().unwrap();
    let x = &neighbours[10];
    for start in [0, 64, 1 << 20, u32::MAX - 4000] {
        let seen = kernel
            .call()
            .bind("x", x)
            .out("seen", &[1], DType::U32)
            .params(&start)
            .groups([64, 1, 1])
            .run_one()
            .unwrap();
        assert_eq!(seen.item::<u32>().unwrap(), 0, "read beyond {start}");
        for (index, neighbour) in neighbours.iter().enumerate() {
            if index != 10 {
                assert_eq!(neighbour.to_vec::<u32>().unwrap(), secret, "{index}");
            }
        }
    }
    assert!(gpu.memory().stats().to_string().contains("slab"));
}

#[test]
fn one_element_of_a_view_is_all_that_its_kernel_reaches() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;",
        "x[id.x] = 7u;",
    )
    .unwrap();
    let whole = gpu.zeros(&[256], DType::U32).unwrap();
    let part = whole.narrow(0, 64, 64).unwrap();
    kernel
        .call()
        .bind("x", &part)
        .groups([8, 1, 1])
        .run()
        .unwrap();
    let expected: Vec<u32> = (0..256).map(|i| if i / 64 == 1 { 7 } else { 0 }).collect();
    assert_eq!(whole.to_vec::<u32>().unwrap(), expected);
}

/// Checks the refusal on a thread with Rust's default stack size.
fn refused(what: &str, text: String) {
    let gpu = gpu();
    let name = what.to_owned();
    let thread = std::thread::Builder::new().stack_size(2 << 20).name(name);
    let done = thread.spawn(move || shown(Kernel::new(&gpu, &text)));
    let (message, excerpt) = done.unwrap().join().unwrap();
    assert!(!message.is_empty(), "{what}");
    assert!(message.len() + excerpt.len() < 4000, "{what}: {message}");
}

#[test]
fn texts_that_would_overflow_the_stack_are_refused() {
    const MANY: usize = 100_000;
    let with = |body: String| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> o: array<u32>;\n\
             @compute @workgroup_size(1) fn main() {{ {body} }}"
        )
    };
    let many = |what: &str| what.repeat(MANY);
    let few = |what: &str| what.repeat(5000);
    refused(
        "parentheses",
        with(format!("o[0] = {}1u{};", many("("), many(")"))),
    );
    refused("open parentheses", with(many("(")));
    refused("blocks", with(format!("{}{}", many("{"), many("}"))));
    refused(
        "brackets",
        with(format!("o[0] = {}0{};", many("o["), many("]"))),
    );
    refused(
        "calls",
        with(format!("o[0] = {}1u{};", many("abs("), many(")"))),
    );
    refused("operators", with(format!("o[0] = {}1u;", many("~"))));
    refused("sums", with(format!("o[0] = 1u{};", many("+1u"))));
    refused("members", with(format!("o[0] = o{};", many(".x"))));
    refused(
        "alternatives",
        with(format!("if true {{}} {}", few("else if true {}"))),
    );
    refused("ifs", with(format!("{}{}", many("if true {"), many("}"))));
    refused(
        "types",
        format!("alias t = {}u32{};", many("vec2<"), many(">")),
    );
    refused(
        "types with lengths",
        format!("alias t = {}", many("array<array<u32, 1>, ")),
    );
    refused("closing", many(")}]>"));
    refused("comments", many("/*"));
    refused("attributes", many("@a "));
    refused("directives", many("enable f16;"));
    refused("numbers", many("1"));
    refused("a name", many("é"));
    refused("control characters", many("\0\u{202e}"));
    refused("too long", "/".repeat((1 << 20) + 1));
    refused("as long as may be", "/".repeat(1 << 20));
    let chain = |line: fn(usize) -> String| (0..10_000).map(line).collect::<String>();
    refused(
        "constants",
        chain(|i| format!("const a{i} = a{};\n", i + 1)),
    );
    refused(
        "structs",
        chain(|i| format!("struct a{i} {{ x: a{} }}\n", i + 1)),
    );
    refused(
        "functions",
        chain(|i| format!("fn a{i}() {{ a{}(); }}\n", i + 1)),
    );
    refused("a circle", with("main();".into()));
}

#[test]
fn texts_that_would_exhaust_the_compiler_are_refused() {
    let calls: String = (1..60)
        .map(|i| format!("fn f{i}() {{ f{0}(); f{0}(); }}\n", i - 1))
        .collect();
    let x = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;";
    let (message, excerpt) = shown(framed(
        &gpu(),
        &format!("{x}\nfn f0() {{ x[0] += 1u; }}\n{calls}"),
        "f59();",
    ));
    assert!(
        message.contains("statements with all calls inlined"),
        "{message}"
    );
    assert!(excerpt.contains("fn f"), "{excerpt}");
    let large = format!("{x}\nconst c = array<u32, 1000000>();");
    for (declared, body) in [
        (
            x,
            "var a: array<u32, 1000000>; a[id.x] = 1u; x[0] = a[x[1]];",
        ),
        (x, "let a = array<u32, 1000000>(); x[0] = a[x[1]];"),
        (&*large, "x[0] = c[x[1]];"),
    ] {
        let (message, _) = shown(framed(&gpu(), declared, body));
        assert!(
            message.contains("bytes of variables for every invocation"),
            "{body}: {message}"
        );
    }
    let shapes: String = (1..40)
        .map(|i| format!("struct S{i} {{ a: S{0}, b: S{0} }}\n", i - 1))
        .collect();
    let declared = format!(
        "struct S0 {{ a: u32 }}\n{shapes}\n\
         @group(0) @binding(0) var<storage, read_write> x: S39;"
    );
    shown(framed(&gpu(), &declared, "_ = &x;"));
}

/// Hides panics of the parser, which are expected here.
pub(crate) fn quiet_parser() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_parser = |at: &std::panic::Location<'_>| at.file().contains("naga-");
        if !info.location().is_some_and(is_parser) {
            loud(info);
        }
    }));
}

#[test]
fn texts_at_which_the_parser_fails_are_refused() {
    quiet_parser();
    let gpu = gpu();
    let x = "@group(0) @binding(0) var<storage, read_write> x: array<i32>;";
    for constant in [
        "i32(f16(70000))",
        "i32(inverseSqrt(0h))",
        "i32(fma(60000h, 2h, 1h))",
        "bitcast<i32>(u32(f16(1e30f)))",
        "i32(-60000h * 2h)",
        "i32(1e38f * 10.0f)",
        "i32(sqrt(-1.0))",
        "1 / 0",
        "1 % 0",
        "-2147483647 - 2",
        "1 << 40u",
        "array<i32, 2>(1, 2)[7]",
        "vec2<i32>(1, 2)[-1]",
    ] {
        for body in [
            format!("x[0] = {constant};"),
            format!("const c = {constant}; x[0] = c;"),
            format!("if x[1] == 1 {{ x[0] = {constant}; }}"),
        ] {
            for enable in ["", "enable f16;\n"] {
                // A text without a fault may be accepted, but no text may cause a panic.
                let made = framed(&gpu, &format!("{enable}{x}"), &body);
                let is_half = constant.contains("f16") || constant.contains("h)");
                assert!(made.is_err() || !is_half, "{body}");
                let Ok(kernel) = made else { continue };
                let call = kernel.call().out("x", &[4], DType::I32).groups([1, 1, 1]);
                drop(call.run_one().and_then(|x| x.to_vec::<i32>()));
            }
        }
    }
    // The device still works.
    let kernel = framed(&gpu, x, "x[id.x] = 7;").unwrap();
    let made = kernel.call().out("x", &[4], DType::I32).groups([1, 1, 1]);
    assert_eq!(made.run_one().unwrap().to_vec::<i32>().unwrap(), [7; 4]);
}

#[test]
fn the_deepest_text_that_is_taken_compiles_on_a_small_stack() {
    let deep = [
        format!("o[0] = {}1u{};", "(".repeat(140), ")".repeat(140)),
        format!("o[0] = o[1]{};", "+ 3u * o[2]".repeat(140)),
        format!("o[0] = {}1u{};", "min(2u, ".repeat(140), ")".repeat(140)),
        format!("{}o[0] = 1u;{}", "{".repeat(100), "}".repeat(100)),
        format!(
            "{}o[0] = 1u;{}",
            "if o[1] == 0u {".repeat(50),
            "}".repeat(50)
        ),
        format!(
            "{}o[0] = 1u;{}",
            "for (;;) { if o[1] == 0u { break; }".repeat(50),
            "}".repeat(50)
        ),
        format!(
            "if o[1] == 1u {{}} {}else {{ o[0] = 1u; }}",
            "else if o[1] == 1u {}".repeat(30)
        ),
    ];
    let gpu = gpu();
    for body in deep {
        let declared = "@group(0) @binding(0) var<storage, read_write> o: array<u32>;";
        // Only one invocation writes, because FXC refuses what it considers a race.
        let body = format!("if id.x > 0u {{ return; }} {body}");
        let kernel = framed(&gpu, declared, &body);
        let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        let run = thread.spawn(move || {
            let call = kernel.call().out("o", &[4], DType::U32).groups([1, 1, 1]);
            call.run_one()?.to_vec::<u32>()
        });
        match run.unwrap().join().unwrap() {
            Ok(_) => (),
            // FXC unrolls and flattens nested loops, and its error says where it gave up.
            Err(error) if gpu.caps().compiler == ShaderCompiler::Fxc => {
                assert!(error.to_string().contains("X3705"), "{error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_long_loop_ends_in_its_own_time() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;",
        "var i = 0u;\nwhile i < 60000u { i += 1u; }\nx[id.x] = i;",
    )
    .unwrap();
    let x = kernel.call().out("x", &[64], DType::U32).groups([1, 1, 1]);
    assert_eq!(x.run_one().unwrap().to_vec::<u32>().unwrap(), [60_000; 64]);
}
