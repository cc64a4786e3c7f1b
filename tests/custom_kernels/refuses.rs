//! Refused kernels and calls: each message says what to do and shows the line.

use lapidary::{DType, Error, Kernel, KernelCall};

use crate::custom_kernels::{SAXPY, SaxpyParams, framed, gpu, points_at, shown};

/// `Kernel::new` refuses the text. The message contains these parts, and the excerpt shows the line
/// with carets under the fault.
#[track_caller]
fn text(text: &str, message: &[&str], place: Option<(usize, &str, &str)>) {
    let gpu = gpu();
    let (said, excerpt) = shown(Kernel::new(&gpu, text));
    for part in message {
        assert!(said.contains(part), "no `{part}` in: {said}\n{excerpt}");
    }
    match place {
        Some((line, source, part)) => points_at(&excerpt, line, source, part),
        None => assert_eq!(excerpt, ""),
    }
}

#[test]
fn texts_that_do_not_parse() {
    text(
        "fn main() {\n  let a = 1 +;\n}",
        &["expected expression, found \";\""],
        Some((2, "let a = 1 +;", ";")),
    );
    text(
        "// é\n@compute @workgroup_size(1)\nfn main() {\n\tlet x = nothing[0];\n}",
        &["no definition in scope for identifier: `nothing`"],
        Some((4, "let x = nothing[0];", "nothing")),
    );
    text("", &["no entry point", "@compute"], None);
    text("\u{feff}", &["expected"], Some((1, "", "\u{fffd}")));
    text(
        "fn main() {} /* and so on",
        &["comment"],
        Some((1, "and so on", "/* and so on")),
    );
    text(
        &format!("fn main() {{ {}let a = b; }}", "        ".repeat(1000)),
        &["`b`"],
        Some((1, "let a = b;", "b")),
    );
}

#[test]
fn texts_that_are_not_valid() {
    text(
        "@group(0) @binding(0) var<storage, read> x: array<f32>;\n\
         @compute @workgroup_size(1)\n\
         fn main() {\n  x[0] = 1.0;\n}",
        &["store"],
        Some((4, "x[0] = 1.0;", "x[0]")),
    );
    text(
        "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n\
         @group(0) @binding(0) var<storage, read_write> y: array<f32>;\n\
         @compute @workgroup_size(1) fn main() { x[0] = y[0]; }",
        &["Bindings for", "conflict"],
        Some((
            2,
            "y: array<f32>",
            "var<storage, read_write> y: array<f32>;",
        )),
    );
    text(
        "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n\
         enable f16;\n\
         @compute @workgroup_size(1) fn main() { x[0] = 1.0; }",
        &["global directive"],
        Some((2, "enable f16;", "enable")),
    );
}

#[test]
fn extensions_that_devices_are_not_opened_with() {
    for (declarations, said) in [
        ("enable f16;\nvar<private> a: f16;", "f16"),
        ("var<private> a: f64;", "f64"),
        ("var<private> a: i64;", "i64"),
        ("var<private> a: u64;", "u64"),
    ] {
        let body = "x[0] = u32(a);";
        let declared = format!(
            "{declarations}\n@group(0) @binding(0) var<storage, read_write> x: array<u32>;"
        );
        let (message, _) = shown(framed(&gpu(), &declared, body));
        let message = message.to_lowercase();
        let wide = message.contains("capability") || message.contains("extension");
        assert!(message.contains(said) || wide, "{said}: {message}");
    }
}

#[test]
fn entry_points() {
    let body = "{ x[0] = 1u; }";
    let both = format!(
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n\
         @compute @workgroup_size(1) fn a() {body}\n@compute @workgroup_size(1) fn b() {body}"
    );
    text(
        &both,
        &["several entry points, `a`, `b`", "with_entry"],
        None,
    );
    let (message, _) = shown(Kernel::with_entry(&gpu(), &both, "c"));
    assert_eq!(message, "no @compute entry point `c`: there are `a`, `b`");
    text(
        "@fragment fn f() -> @location(0) vec4<f32> { return vec4<f32>(); }",
        &["no entry point"],
        None,
    );
    let big = both.replace(
        "@workgroup_size(1) fn b",
        "@workgroup_size(1024, 1024) fn b",
    );
    let hostile =
        Kernel::with_entry(&gpu(), &both, "c`\u{1b}[2J\nerror\u{202e}\u{9b}").unwrap_err();
    let hostile = hostile.to_string();
    let acts = |c: char| c.is_control() || c == '\u{202e}';
    assert!(!hostile.contains(acts), "{hostile:?}");
    let (message, excerpt) = shown(Kernel::with_entry(&gpu(), &big, "b"));
    assert!(
        message.contains("[1024, 1024, 1] has 1048576 invocations"),
        "{message}"
    );
    points_at(&excerpt, 3, "fn b", "workgroup_size");
    text(
        &format!(
            "override N: u32 = 4;\n{}",
            both.replace("fn b() {", "fn b() { x[1] = N;")
        ),
        &["several"],
        None,
    );
    let overridden = "override N: u32 = 4;\n\
        @group(0) @binding(0) var<storage, read_write> x: array<u32>;\n\
        @compute @workgroup_size(1) fn a() { x[0] = N; }";
    text(
        overridden,
        &["override constants are not supported", "`N` a `const`"],
        Some((1, "override N", "override N: u32 = 4;")),
    );
    let gpu = gpu();
    let words = gpu.caps().max_workgroup_bytes / 4 + 4;
    let declared = format!(
        "var<workgroup> tile: array<u32, {words}>;\n\
         @group(0) @binding(0) var<storage, read_write> x: array<u32>;"
    );
    let (message, _) = shown(framed(&gpu, &declared, "tile[id.x] = 1u; x[0] = tile[1];"));
    assert!(
        message.contains("bytes of workgroup variables"),
        "{message}"
    );
}

#[test]
fn what_cannot_be_bound() {
    let x = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n";
    let main = "@compute @workgroup_size(1) fn main()";
    text(
        &format!(
            "{x}@group(0) @binding(1) var picture: texture_2d<f32>;\n\
             {main} {{ x[0] = textureDimensions(picture).x; }}"
        ),
        &["`picture` is neither a storage buffer nor a uniform"],
        Some((2, "texture_2d", "picture")),
    );
    text(
        &format!(
            "{x}@group(1) @binding(1) var<storage, read> y: array<u32>;\n\
             {main} {{ x[0] = y[0]; }}"
        ),
        &["`y` is in group 1", "group 0"],
        Some((2, "y: array<u32>", "y")),
    );
    text(
        &format!(
            "{x}@group(0) @binding(1) var<uniform> p: u32;\n\
             @group(0) @binding(2) var<uniform> q: u32;\n{main} {{ x[0] = p + q; }}"
        ),
        &["one uniform"],
        Some((3, "q: u32", "q")),
    );
    text(
        &format!(
            "{x}@group(0) @binding(1) var<uniform> p: array<vec4<u32>, 9>;\n\
             {main} {{ x[0] = p[1].x; }}"
        ),
        &["`p` takes 144 bytes", "128", "storage buffer"],
        Some((2, "p: array", "p")),
    );
    text(
        &format!("var<immediate> p: u32;\n{x}{main} {{ x[0] = p; }}"),
        &["immediate"],
        Some((1, "p: u32", "p")),
    );
    text(
        &format!("@group(0) @binding(0) var<storage, read> x: array<u32>;\n{main} {{ _ = x[0]; }}"),
        &["it writes nothing"],
        None,
    );
    let many: String = (0..9)
        .map(|i| format!("@group(0) @binding({i}) var<storage, read_write> x{i}: array<u32>;\n"))
        .collect();
    let uses: String = (0..9).map(|i| format!("x{i}[0] = 1u;")).collect();
    let (message, excerpt) = shown(Kernel::new(&gpu(), &format!("{many}{main} {{ {uses} }}")));
    assert!(message.contains("9 storage bindings"), "{message}");
    points_at(&excerpt, 9, "x8: array<u32>", "x8");
}

#[test]
fn inputs_that_must_not_be_declared_read_write() {
    let gpu = gpu();
    let declared = "@group(0) @binding(0) var<storage, read> x: array<u32>;\n\
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;";
    let pointer = "let q: ptr<storage, u32, read> = &x[0];\ny[id.x] = *q;";
    let (message, excerpt) = shown(framed(&gpu, declared, pointer));
    assert!(
        message.contains("no pointer type may name their access"),
        "{message}"
    );
    assert!(excerpt.contains("let q"), "{excerpt}");
    // Without the type it is accepted.
    framed(&gpu, declared, "let q = &x[0];\ny[id.x] = *q;").unwrap();
}

/// A valid call of saxpy, in which a test breaks one thing.
fn call(kernel: &Kernel, x: &lapidary::Tensor) -> KernelCall {
    kernel
        .call()
        .bind("x", x)
        .bind("y", x)
        .params(&SaxpyParams { a: 1.0, n: 4 })
        .groups([1, 1, 1])
}

#[test]
fn names() {
    let gpu = gpu();
    let kernel = Kernel::new(&gpu, SAXPY).unwrap();
    let x = gpu.tensor(&[1.0_f32; 4], &[4]).unwrap();
    let all = "the bindings are `x` (read), `y` (read), `z` (read_write)";

    let (message, excerpt) = shown(call(&kernel, &x).run());
    assert_eq!(message, format!("`z` is not bound; {all}"));
    points_at(&excerpt, 5, "var<storage, read_write> z", "z");
    assert!(excerpt.ends_with("^ not bound"), "{excerpt}");

    let good = call(&kernel, &x).out("z", &[4], DType::F32);
    let (message, _) = shown(good.clone().bind("w", &x).run());
    assert_eq!(
        message,
        format!("`saxpy` uses no storage binding `w`; {all}")
    );
    let (message, _) = shown(good.clone().bind("p", &x).run());
    assert!(
        message.contains("`p`; its value is given by `params`"),
        "{message}"
    );
    let (message, excerpt) = shown(good.clone().bind("x", &x).run());
    assert_eq!(message, "`x` is bound twice");
    points_at(&excerpt, 3, "var<storage, read> x", "x");

    let (message, excerpt) = shown(call(&kernel, &x).bind("z", &x).run());
    assert!(
        message.contains("`x` and `z` are bound to the same memory"),
        "{message}"
    );
    points_at(&excerpt, 5, "z: array<f32>", "z");

    let printed = call(&kernel, &x).run().unwrap_err().to_string();
    assert!(
        printed.starts_with("kernel `saxpy`: `z` is not bound"),
        "{printed}"
    );
    assert!(printed.contains("\n5 | @group(0)"), "{printed}");
    // After all these errors it still works.
    assert_eq!(good.run_one().unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);
}

#[test]
fn types_access_and_sizes() {
    let gpu = gpu();
    let kernel = Kernel::new(&gpu, SAXPY).unwrap();
    let x = gpu.tensor(&[1.0_f32; 4], &[4]).unwrap();
    let z = |call: KernelCall| call.out("z", &[4], DType::F32);

    let ints = gpu.tensor(&[1_i32; 4], &[4]).unwrap();
    let wrong = kernel.call().bind("x", &ints).bind("y", &x);
    let wrong = wrong
        .params(&SaxpyParams { a: 1.0, n: 4 })
        .groups([1, 1, 1]);
    let (message, excerpt) = shown(z(wrong).run());
    assert_eq!(
        message,
        "`x` is declared `array<f32>`, which takes f32, but the tensor is i32"
    );
    points_at(&excerpt, 3, "x: array<f32>", "x");
    assert!(excerpt.ends_with("^ not i32"), "{excerpt}");

    let (message, _) = shown(call(&kernel, &x).out("z", &[4], DType::F16).run());
    assert!(message.contains("but the output is f16"), "{message}");

    let wrong = kernel.call().out("x", &[4], DType::F32).bind("y", &x);
    let wrong = wrong
        .params(&SaxpyParams { a: 1.0, n: 4 })
        .groups([1, 1, 1]);
    let (message, excerpt) = shown(z(wrong).run());
    assert!(
        message.contains("`x` is declared `read`, so it cannot be an output"),
        "{message}"
    );
    points_at(&excerpt, 3, "x: array<f32>", "x");

    let empty = gpu.zeros(&[0], DType::F32).unwrap();
    let wrong = kernel.call().bind("x", &empty).bind("y", &x);
    let wrong = wrong
        .params(&SaxpyParams { a: 1.0, n: 4 })
        .groups([1, 1, 1]);
    let (message, _) = shown(z(wrong).run());
    assert_eq!(message, "`x` takes 4 bytes at least, but the tensor has 0");

    let header = framed(
        &gpu,
        "struct Sums { count: vec4<u32>, sums: array<u32> }\n\
         @group(0) @binding(0) var<storage, read_write> sums: Sums;",
        "sums.count.x = 1u;",
    )
    .unwrap();
    let short = header.call().out("sums", &[4], DType::U32);
    let (message, excerpt) = shown(short.groups([1, 1, 1]).run());
    assert!(
        message.contains("at least, but the output has 16"),
        "{message}"
    );
    points_at(&excerpt, 2, "sums: Sums", "sums");
}

#[test]
fn views_that_cannot_be_changed_in_place() {
    let gpu = gpu();
    let kernel = framed(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;",
        "x[id.x] = 1u;",
    )
    .unwrap();
    let x = gpu.zeros(&[8, 8], DType::U32).unwrap();
    let bytes = gpu.zeros(&[64], DType::U8).unwrap();
    for (view, said) in [
        (x.t().unwrap(), "do not lie one after the other"),
        (x.select(1, 0).unwrap(), "do not lie one after the other"),
        (x.flip(&[0]).unwrap(), "do not lie one after the other"),
        (
            x.select(0, 0).unwrap().narrow(0, 1, 3).unwrap(),
            "do not start at a multiple of",
        ),
        (bytes.narrow(0, 0, 5).unwrap(), "end inside a word"),
    ] {
        let (message, excerpt) = shown(kernel.call().bind("x", &view).groups([1, 1, 1]).run());
        assert!(message.contains(said), "{message}");
        points_at(&excerpt, 1, "x: array<u32>", "x");
    }
}

#[test]
fn parameters_and_groups() {
    let gpu = gpu();
    let kernel = Kernel::new(&gpu, SAXPY).unwrap();
    let x = gpu.tensor(&[1.0_f32; 4], &[4]).unwrap();
    let bare = kernel.call().bind("x", &x).bind("y", &x);
    let bare = bare.out("z", &[4], DType::F32);

    let (message, excerpt) = shown(bare.clone().groups([1, 1, 1]).run());
    assert_eq!(message, "`p` has no value: call `params` (8 bytes)");
    points_at(&excerpt, 6, "var<uniform> p: Params", "p");
    let (message, _) = shown(bare.clone().params(&1.0_f32).groups([1, 1, 1]).run());
    assert_eq!(message, "4 bytes of parameters, `p` takes 8");
    let (message, _) = shown(bare.clone().params_bytes(&[]).groups([1, 1, 1]).run());
    assert_eq!(message, "0 bytes of parameters, `p` takes 8");

    // Only padding may be left out, not members.
    let wide = "struct Wide { v: vec4<f32>, a: u32, b: u32 }
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<uniform> p: Wide;
@compute @workgroup_size(1) fn main() { x[0] = p.v.x + f32(p.b); }";
    let wide = Kernel::new(&gpu, wide).unwrap();
    let wide = wide.call().out("x", &[1], DType::F32).groups([1, 1, 1]);
    let (message, _) = shown(wide.clone().params(&[0_u32; 5]).run());
    assert_eq!(message, "20 bytes of parameters, `p` takes 32");
    wide.params(&[0_u32; 6]).run().unwrap();

    let call = bare.params(&SaxpyParams { a: 1.0, n: 4 });
    let (message, _) = shown(call.clone().run());
    assert!(message.contains("`groups([x, y, z])`"), "{message}");
    let (message, _) = shown(call.clone().groups([1, 0, 1]).run());
    assert!(message.contains("[1, 0, 1] workgroups"), "{message}");
    let (message, _) = shown(call.clone().groups([1, 1, 65_536]).run());
    assert!(
        message.contains("takes at most 65535 in each dimension"),
        "{message}"
    );

    let none = framed(
        &gpu,
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;",
        "x[id.x] = 1u;",
    )
    .unwrap();
    let call = none.call().out("x", &[4], DType::U32).groups([1, 1, 1]);
    let (message, _) = shown(call.clone().params(&1.0_f32).run());
    assert!(
        message.contains("the entry point uses no `var<uniform>`"),
        "{message}"
    );
    let (message, _) = shown(call.clone().out("x", &[1], DType::U32).run_one());
    assert!(message.contains("this call makes 2"), "{message}");
    let (message, _) = shown(none.call().bind("x", &x).groups([1, 1, 1]).run_one());
    assert!(message.contains("this call makes 0"), "{message}");
}

#[test]
fn tensors_of_another_device_and_of_no_possible_size() {
    let (here, there) = (gpu(), gpu());
    let kernel = Kernel::new(&here, SAXPY).unwrap();
    let x = there.tensor(&[1.0_f32; 4], &[4]).unwrap();
    let result = call(&kernel, &x).out("z", &[4], DType::F32).run();
    assert!(matches!(result, Err(Error::Foreign { .. })), "{result:?}");

    let x = here.tensor(&[1.0_f32; 4], &[4]).unwrap();
    let most = here.caps().max_binding_bytes as usize / 4;
    let result = call(&kernel, &x).out("z", &[most + 4], DType::F32).run();
    assert!(matches!(result, Err(Error::NeverFits { .. })), "{result:?}");
    let result = call(&kernel, &x)
        .out("z", &[usize::MAX, 2], DType::F32)
        .run();
    assert!(matches!(result, Err(Error::Overflow { .. })), "{result:?}");
}

#[test]
fn what_only_the_device_refuses_is_the_error_of_the_outputs_alone() {
    let gpu = gpu();
    // Few devices allow so many invocations in z; those that do compute the result.
    let text = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n\
        @compute @workgroup_size(1, 1, 1024) fn main() { x[0] = 1u; }";
    let Ok(kernel) = Kernel::new(&gpu, text) else {
        eprintln!("not run: the device refuses the kernel before");
        return;
    };
    let bystander = gpu.tensor(&[1.0_f32; 4], &[4]).unwrap();
    let made = kernel.call().out("x", &[4], DType::U32).groups([1, 1, 1]);
    let made = made.run_one().unwrap();
    let after = gpu.tensor(&[2.0_f32; 4], &[4]).unwrap();
    match made.to_vec::<u32>() {
        Ok(values) => assert_eq!(values, [1, 0, 0, 0]),
        Err(error) => {
            let said = error.to_string();
            assert!(matches!(error, Error::Poisoned { .. }), "{said}");
            assert!(
                said.contains("refuses.rs") && said.contains("main"),
                "{said}"
            );
        }
    }
    assert_eq!(bystander.to_vec::<f32>().unwrap(), [1.0; 4]);
    assert_eq!(after.to_vec::<f32>().unwrap(), [2.0; 4]);
}
