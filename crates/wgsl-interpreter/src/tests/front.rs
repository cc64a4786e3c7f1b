//! The calls that users make: what they refuse, and what they find in other bind groups.

use crate::{Binding, Error, FindingKind, Kernel};

const GROUPS: &str = "
    @group(0) @binding(3) var<uniform> scale: vec4<u32>;
    @group(1) @binding(0) var<storage, read> x: array<u32>;
    @group(1) @binding(1) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(4)
    fn scaled(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = scale.y * x[id.x]; }";

fn words(group: u32, index: u32, words: &[u32]) -> Binding {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    Binding::new(group, index, bytes.collect())
}

#[test]
fn bindings_of_several_groups_are_found_in_any_order() {
    let kernel = Kernel::from_wgsl(GROUPS, "scaled").unwrap();
    let mut bindings = [
        Binding::fresh(1, 1, 16),
        words(0, 3, &[0, 3, 0, 0]),
        words(1, 0, &[1, 2, 3, 4]),
        words(7, 7, &[9]),
    ];
    let findings = kernel.dispatch([1, 1, 1]).run(&mut bindings).unwrap();
    assert_eq!(findings, []);
    assert_eq!(bindings[0].bytes, words(1, 1, &[3, 6, 9, 12]).bytes);
    // What the kernel declares read-only or does not use keeps its bytes.
    assert_eq!(bindings[2], words(1, 0, &[1, 2, 3, 4]));
    assert_eq!(bindings[3], words(7, 7, &[9]));
}

#[test]
fn what_cannot_run_is_an_error() {
    let kernel = Kernel::from_wgsl(GROUPS, "scaled").unwrap();
    let missing = kernel.dispatch([1, 1, 1]).run(&mut [words(0, 3, &[0; 4])]);
    let (group, index) = (1, 0);
    assert_eq!(missing, Err(Error::MissingBinding { group, index }));
    let no_entry = Kernel::from_wgsl(GROUPS, "main").unwrap_err();
    assert!(no_entry.to_string().contains("`main`"), "{no_entry}");
    let invalid = Kernel::from_wgsl("fn main() { let x = y; }", "main").unwrap_err();
    assert!(matches!(&invalid, Error::Invalid { message } if message.contains("`y`")));
    let huge = kernel.dispatch([u32::MAX; 3]).run(&mut []);
    assert!(matches!(huge, Err(Error::TooLarge { .. })));
}

#[test]
fn a_finding_tells_its_line_and_no_workgroups_find_nothing() {
    let kernel = Kernel::from_wgsl(GROUPS, "scaled").unwrap();
    let mut bindings = [
        words(0, 3, &[0; 4]),
        words(1, 0, &[0; 4]),
        words(1, 1, &[0; 3]),
    ];
    assert_eq!(kernel.dispatch([0, 1, 1]).run(&mut bindings), Ok(vec![]));
    let findings = kernel.dispatch([1, 1, 1]).run(&mut bindings).unwrap();
    assert_eq!(
        (findings[0].kind, findings[0].line),
        (FindingKind::Index, 6)
    );
    let shown = findings[0].to_string();
    assert!(
        shown.starts_with("line 6: ") && shown.contains("`y`"),
        "{shown}"
    );
}

#[test]
fn what_a_kernel_only_reads_has_to_be_there() {
    let kernel = Kernel::from_wgsl(GROUPS, "scaled").unwrap();
    let mut bindings = [
        words(0, 3, &[1; 4]),
        Binding::fresh(1, 0, 16),
        words(1, 1, &[0; 4]),
    ];
    let findings = kernel.dispatch([1, 1, 1]).run(&mut bindings).unwrap();
    assert_eq!(findings[0].kind, FindingKind::Unwritten);
}

#[test]
fn a_last_half_word_is_written_back() {
    let wgsl = "
        enable f16;
        @group(0) @binding(0) var<storage, read_write> y: array<f16>;
        @compute @workgroup_size(3)
        fn main(@builtin(local_invocation_index) i: u32) { y[i] = 1.0h; }";
    let kernel = Kernel::from_wgsl(wgsl, "main").unwrap();
    let mut bindings = [Binding::new(0, 0, vec![0; 6])];
    assert_eq!(kernel.dispatch([1, 1, 1]).run(&mut bindings), Ok(vec![]));
    assert_eq!(bindings[0].bytes, [0x00, 0x3c].repeat(3));
}

#[test]
fn sizes_that_are_not_known_or_far_too_large_are_refused() {
    let of = |size: &str| {
        format!("override n: u32 = 64; @compute @workgroup_size({size}) fn main() {{}}")
    };
    for size in ["n", "16384, 16384", "16384, 16384, 16384"] {
        let refused = Kernel::from_wgsl(&of(size), "main").unwrap_err();
        assert!(
            matches!(refused, Error::Unsupported { .. }),
            "{size}: {refused}"
        );
    }
    let large = Kernel::from_wgsl(&of("256, 256, 256"), "main").unwrap();
    let too_many = large.dispatch([u32::MAX; 3]).run(&mut []);
    assert!(matches!(too_many, Err(Error::TooLarge { .. })));
    assert_eq!(large.dispatch([u32::MAX, 2, 0]).run(&mut []), Ok(vec![]));
}
