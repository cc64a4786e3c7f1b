//! Valid kernels that are too large or never end give an error and do not abort.

use super::{FindingKind, Holds, Test, compiled};
use crate::Binding;
use crate::group::Group;
use crate::memory::Memory;

fn body(text: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        {text}"
    )
}

#[test]
fn what_is_too_large_is_refused() {
    for text in [
        "@compute @workgroup_size(1) fn main() { var a: array<u32, 100000000>; a[y[0]] = 1u; y[1] = a[2]; }",
        "var<workgroup> a: array<u32, 100000000>;
         @compute @workgroup_size(1) fn main() { a[y[0]] = 1u; }",
        "@compute @workgroup_size(256) fn main() { var a: array<u32, 60000>; a[y[0]] = 1u; var b = a; var c = b; y[1] = c[2]; }
        ",
        "const a = array<u32, 1000>();
         const b = array(a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a);
         const c = array(b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b);
         const d = array(c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c);
         const e = array(d, d, d, d, d, d, d, d, d, d, d, d, d, d, d, d);
         @compute @workgroup_size(1) fn main() { y[0] = e[y[1]][y[2]][0][0][0]; }",
    ] {
        let text = body(text);
        let message = compiled(&text).expect_err("it is too large");
        assert!(message.contains("interpreted"), "{message}");
    }
}

#[test]
fn an_empty_buffer_and_no_elements() {
    let text = body(
        "@compute @workgroup_size(3) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            y[id.x] = arrayLength(&y);
        }",
    );
    let (reports, words) = Test::new(&text, vec![Holds::Words(&[])]).run();
    assert!(!reports.is_empty());
    assert_eq!(words[0], [0; 0]);
}

#[test]
fn calls_and_loops_nest() {
    let text = body(
        "fn c(x: u32) -> u32 { var s = 0u; for (var i = 0u; i < x; i++) { if (i == 3u) { continue; } s += i; } return s; }
        fn b(x: u32) -> u32 { if (x > 2u) { return c(x) + c(x - 1u); } return x; }
        @compute @workgroup_size(1) fn main() {
            for (var i = 0u; i < 6u; i++) { y[i] = b(b(i)); }
        }",
    );
    let c = |x: u32| -> u32 { (0..x).filter(|i| *i != 3).sum() };
    let b = |x: u32| if x > 2 { c(x) + c(x - 1) } else { x };
    let expected: Vec<u32> = (0..6).map(|i| b(b(i))).collect();
    let (reports, words) = Test::new(&text, vec![Holds::Fresh(6)]).run();
    assert!(reports.is_empty(), "{reports:?}");
    assert_eq!(words[0], expected);
}

#[test]
fn one_endless_invocation_ends_the_dispatch() {
    let text = body(
        "@compute @workgroup_size(64)
        fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>,
        ) {
            if (i == 0u) { y[group.x] = 1u; }
            loop { if (y[5] == 4u) { break; } }
        }",
    );
    let mut test = Test::new(&text, vec![Holds::Words(&[0; 6])]);
    test.groups = 4;
    let (reports, words) = test.run();
    let endless: Vec<_> = reports.iter().map(|report| report.kind).collect();
    assert_eq!(endless, [FindingKind::Endless], "{reports:?}");
    // No further workgroup began after it.
    assert_eq!(words[0].iter().sum::<u32>(), 1, "{words:?}");
}

#[test]
fn an_endless_workgroup_is_found_long_before_all_have_done_their_steps() {
    let text =
        body("@compute @workgroup_size(256) fn main() { loop { if (y[0] == 4u) { break; } } }");
    let kernel = compiled(&text).unwrap();
    let dispatch = kernel.dispatch([1, 1, 1]).lanes(8).seed(1);
    let bindings = [Binding::new(0, 0, vec![0; 4])];
    let mut memory = Memory::new(&kernel.code, &bindings, &[], true).unwrap();
    // Each invocation may take 2²⁴ steps.
    assert!(Group::new(&dispatch, 4 << 24).execute(0, &mut memory));
    assert!(memory.reports.is_over());
    // The steps of all are looked at before one has done all of its own.
    let mut memory = Memory::new(&kernel.code, &bindings, &[], true).unwrap();
    assert!(!Group::new(&dispatch, 1 << 20).execute(0, &mut memory));
    assert!(!memory.reports.is_over());
}

#[test]
fn the_last_fault_that_is_kept_ends_the_dispatch() {
    let reads: String = (0..40).map(|n| format!("s += y[i + {n}u];\n")).collect();
    let text = body(&format!(
        "@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {{
            var s = 0u;
            {reads}
            workgroupBarrier();
            y[i] = s;
        }}"
    ));
    let (reports, _) = Test::new(&text, vec![Holds::Words(&[0])]).run();
    assert_eq!(reports.len(), 16);
}
