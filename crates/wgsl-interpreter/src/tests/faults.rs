//! One fault of each kind. Each is found with its line, its variable and its invocations.

use super::{Finding, FindingKind, Holds, Test, expect};

const SHARED: &str = "
    @group(0) @binding(0) var<storage, read_write> y: array<u32>;
    var<workgroup> tile: array<u32, 64>;
    @compute @workgroup_size(64)
";

fn of(body: &str) -> String {
    format!(
        "{SHARED}    fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>,
            @builtin(global_invocation_id) id: vec3<u32>,
        ) {{\n{body}\n}}"
    )
}

fn words() -> Vec<Holds<'static>> {
    vec![Holds::Words(&[7; 256])]
}

fn fresh() -> Vec<Holds<'static>> {
    vec![Holds::Fresh(128)]
}

#[test]
fn a_missing_barrier_is_a_race() {
    let wgsl = of("
        tile[i] = i;
        y[id.x] = tile[63u - i]; // here");
    expect(
        FindingKind::Race,
        &wgsl,
        words,
        &["`tile`", "a race", "invocation ["],
    );
}

#[test]
fn every_line_break_of_wgsl_counts() {
    let wgsl = of("
        tile[i] = i;
        y[id.x] = tile[63u - i];");
    let lines = ["tile[i] =", "tile[63u"].map(|place| {
        let before = &wgsl[..wgsl.find(place).unwrap()];
        format!("in line {},", before.matches('\n').count() + 1)
    });
    for ends in [
        "\n", "\r\n", "\r", "\u{b}", "\u{85}", "\u{2028}", "\u{2029}",
    ] {
        let wgsl = wgsl.replace('\n', ends);
        let (reports, _) = Test::new(&wgsl, words()).run();
        let race = reports
            .iter()
            .find(|report| report.kind == FindingKind::Race);
        let message = &race.expect("there is no barrier").message;
        let names = lines.iter().any(|line| message.contains(line));
        assert!(names, "{ends:?}: {message}");
    }
}

#[test]
fn a_storage_barrier_does_not_order_workgroup_memory() {
    let wgsl = of("
        tile[i] = i;
        storageBarrier();
        y[id.x] = tile[63u - i]; // here");
    expect(FindingKind::Race, &wgsl, words, &["`tile`"]);
}

#[test]
fn two_writers_of_one_word_race() {
    let wgsl = of("
        if (i < 2u) { y[group.x] = i; } // here");
    expect(
        FindingKind::Race,
        &wgsl,
        words,
        &["writes byte", "`y`", "wrote in line"],
    );
}

#[test]
fn workgroups_race_with_each_other() {
    let wgsl = of("
        if (i == 0u) { y[0] = group.x; } // here");
    expect(
        FindingKind::Race,
        &wgsl,
        words,
        &["of workgroup [0, 0, 0]", "of workgroup [1, 0, 0]"],
    );
}

#[test]
fn a_read_before_another_writes_is_a_race() {
    let wgsl = of("
        tile[i] = i;
        workgroupBarrier();
        let next = tile[(i + 1u) % 64u];
        tile[i] = next; y[id.x] = next;");
    for seed in 0..5 {
        let mut test = Test::new(&wgsl, words());
        test.seed = seed;
        let (reports, _) = test.run();
        assert!(
            reports
                .iter()
                .any(|report| report.kind == FindingKind::Race),
            "{seed}: {reports:?}"
        );
    }
}

/// Expects a race in many orders, with subgroups smaller than the workgroup.
#[track_caller]
fn races_in_every_order(wgsl: &str) {
    for lanes in [4, 8, 16, 32] {
        for seed in 0..16 {
            let mut test = Test::new(wgsl, words());
            (test.lanes, test.seed) = (lanes, seed);
            let (reports, _) = test.run();
            let is_race = |report: &Finding| report.kind == FindingKind::Race;
            assert!(reports.iter().any(is_race), "{lanes}, {seed}: {reports:?}");
        }
    }
}

#[test]
fn a_read_after_a_subgroups_barrier_is_a_race_with_what_follows() {
    let wgsl = of("
        if (i == 0u) { tile[0] = 1u; }
        workgroupBarrier();
        var sum = 0u;
        if (i == 1u) { sum += tile[0]; }
        subgroupBarrier();
        if (i == 1u) { sum += tile[0]; }
        if (i == 0u) { tile[0] = 2u; }
        y[id.x] = sum;");
    races_in_every_order(&wgsl);
}

#[test]
fn subgroups_that_read_at_different_times_race_with_what_follows() {
    let wgsl = of("
        if (i == 0u) { tile[0] = 1u; }
        workgroupBarrier();
        var sum = 0u;
        if (i == 1u) { sum += tile[0]; }
        if (i == 63u) { sum += tile[0]; }
        subgroupBarrier();
        if (i == 0u) { sum += tile[0]; tile[0] = 2u; }
        y[id.x] = sum;");
    races_in_every_order(&wgsl);
}

#[test]
fn a_tree_that_relies_on_lockstep_is_a_race() {
    let wgsl = of("
        tile[i] = i;
        workgroupBarrier();
        for (var step = 32u; step > 0u; step /= 2u) {
            if (i < step) { tile[i] += tile[i + step]; }
        }
        if (i == 0u) { y[group.x] = tile[0]; }");
    let (reports, _) = Test::new(&wgsl, words()).run();
    assert!(
        reports
            .iter()
            .any(|report| report.kind == FindingKind::Race),
        "{reports:?}"
    );
}

#[test]
fn a_barrier_in_a_branch_that_some_take() {
    let wgsl = of("
        if (i < 10u) {
            workgroupBarrier(); // here
        }
        y[id.x] = i;");
    expect(
        FindingKind::Barrier,
        &wgsl,
        words,
        &["has ended", "not uniform"],
    );
}

#[test]
fn a_barrier_after_some_have_returned() {
    let wgsl = of("
        if (i > 40u) { return; }
        tile[i] = i;
        workgroupBarrier(); // here
        y[id.x] = tile[0];");
    expect(FindingKind::Barrier, &wgsl, words, &["has ended"]);
}

#[test]
fn a_barrier_in_different_rounds_of_a_loop() {
    let wgsl = of("
        for (var round = i % 2u; round < 2u; round++) {
            workgroupBarrier(); // here
        }
        y[id.x] = i;");
    expect(FindingKind::Barrier, &wgsl, words, &[]);
}

#[test]
fn a_subgroup_operation_that_some_lanes_do_not_reach() {
    let wgsl = of("
        if (i % 4u == 1u) {
            y[id.x] = subgroupAdd(i); // here
        }");
    expect(
        FindingKind::Subgroup,
        &wgsl,
        words,
        &["subgroup operation", "waits at it"],
    );
}

#[test]
fn workgroup_memory_that_nothing_wrote() {
    let wgsl = of("
        if (i < 32u) { tile[i] = i; }
        workgroupBarrier();
        y[id.x] = tile[i]; // here");
    expect(
        FindingKind::Unwritten,
        &wgsl,
        words,
        &["`tile`", "nothing wrote"],
    );
    let mut lenient = Test::new(&wgsl, words());
    lenient.is_lenient = true;
    assert!(lenient.run().0.is_empty(), "WGSL says that it is zeros");
}

#[test]
fn private_memory_that_nothing_wrote() {
    let wgsl = of("
        var sums: array<u32, 4>;
        sums[0] = i;
        y[id.x] = sums[i % 4u]; // here");
    expect(FindingKind::Unwritten, &wgsl, words, &["`sums`"]);
}

#[test]
fn storage_that_nothing_wrote() {
    let wgsl = of("
        y[id.x] += 1u; // here");
    expect(FindingKind::Unwritten, &wgsl, fresh, &["`y`"]);
}

#[test]
fn an_index_that_only_the_bounds_check_stops() {
    let wgsl = of("
        y[id.x] = 1u;
        y[id.x + 200u] = 2u; // here");
    expect(
        FindingKind::Index,
        &wgsl,
        words,
        &["index 2", "outside of the 256 elements of `y`"],
    );
    let wgsl = of("
        let at = i32(i) - 1;
        tile[at] = 1u; // here
        y[id.x] = 1u;");
    expect(
        FindingKind::Index,
        &wgsl,
        words,
        &["index -1", "64 elements of `tile`"],
    );
    let wgsl = of("
        let table = vec4<u32>(1u, 2u, 3u, 4u);
        y[id.x] = table[i]; // here");
    expect(FindingKind::Index, &wgsl, words, &["the 4 elements"]);
}

#[test]
fn a_loop_that_never_ends() {
    let wgsl = of("
        if (i == 63u && group.x == 0u) {
            var x = 1u;
            loop { x += 2u; if (x == 0u) { break; } }
            y[0] = x;
        }");
    let (reports, _) = Test::new(&wgsl, words()).run();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(reports[0].kind, FindingKind::Endless);
    assert!(
        reports[0].message.contains("invocation [63, 0, 0]"),
        "{reports:?}"
    );
    assert!((9..=12).contains(&reports[0].line), "{reports:?}");
}

#[test]
fn a_subgroup_that_is_smaller_than_the_kernel_believes() {
    // This kernel is right only for 32 lanes and more.
    let wgsl = of("
        let sum = subgroupAdd(i);
        if (i % 32u == 0u) { tile[i / 32u] = sum; }
        workgroupBarrier();
        if (i == 0u) { y[group.x] = tile[0] + tile[1]; }");
    for (lanes, is_right) in [(4, false), (16, false), (32, true)] {
        let mut test = Test::new(&wgsl, words());
        test.lanes = lanes;
        let (reports, words) = test.run();
        assert!(reports.is_empty(), "{reports:?}");
        assert_eq!(words[0][0] == 63 * 32, is_right, "{lanes} lanes");
    }
}

#[test]
fn lanes_that_rely_on_their_own_element_of_a_matrix() {
    let wgsl = "
        enable f16;
        enable wgpu_cooperative_matrix;
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        var<workgroup> square: array<f32, 64>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) {
            square[i] = f32(i);
            let c = coopLoadT<coop_mat8x8<f32, C>>(&square[0], 8u); // here
            workgroupBarrier();
            coopStoreT(c, &y[0], 8u);
        }";
    let bindings = vec![Holds::Words(&[0; 64])];
    let mut test = Test::new(wgsl, bindings);
    test.lanes = 64;
    let (reports, _) = test.run();
    let race = reports
        .iter()
        .find(|report| report.kind == FindingKind::Race)
        .expect("a race");
    assert_eq!(race.line, super::marked(wgsl));
}
