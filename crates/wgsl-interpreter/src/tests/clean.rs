//! Kernels without a fault: no fault is reported, and the results are right.

use super::{Finding, Holds, LANES, Test};

/// Runs with every subgroup size and several orders. Expects no fault and these words.
#[track_caller]
fn expect(
    wgsl: &str,
    bindings: fn() -> Vec<Holds<'static>>,
    groups: u32,
    at: usize,
    words: &[u32],
) {
    for lanes in LANES {
        for seed in 0..4 {
            let mut test = Test::new(wgsl, bindings());
            (test.lanes, test.seed, test.groups) = (lanes, seed, groups);
            let (reports, found) = test.run();
            let messages: Vec<&String> = reports
                .iter()
                .map(|Finding { message, .. }| message)
                .collect();
            assert!(messages.is_empty(), "{lanes} lanes, {seed}: {messages:#?}");
            assert_eq!(found[at], words, "{lanes} lanes, {seed}");
        }
    }
}

#[test]
fn a_sum_by_a_tree() {
    let wgsl = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        var<workgroup> tile: array<u32, 64>;
        fn total(i: u32) -> u32 {
            for (var step = 32u; step > 0u; step /= 2u) {
                if (i < step) { tile[i] += tile[i + step]; }
                workgroupBarrier();
            }
            return tile[0];
        }
        @compute @workgroup_size(8, 8)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>) {
            tile[i] = i + group.x;
            workgroupBarrier();
            let sum = total(i);
            if (i == 0u) { y[group.x] = sum; }
        }";
    expect(wgsl, || vec![Holds::Fresh(3)], 3, 0, &[2016, 2080, 2144]);
}

#[test]
fn a_sum_by_subgroups_of_any_size() {
    let wgsl = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        var<workgroup> parts: array<u32, 64>;
        @compute @workgroup_size(64)
        fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>,
            @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_size) size: u32,
            @builtin(subgroup_invocation_id) lane: u32, @builtin(num_subgroups) count: u32,
        ) {
            let sum = subgroupAdd(i);
            let before = subgroupExclusiveAdd(1u);
            let first = subgroupBroadcastFirst(i);
            if (lane == 0u) { parts[subgroup] = sum + before; }
            workgroupBarrier();
            if (i == 0u) {
                var total = 0u;
                for (var part = 0u; part < count; part++) { total += parts[part]; }
                y[group.x] = total;
            }
            if (before != lane || first != subgroup * size || i != first + lane) { y[0] = 1u; }
        }";
    expect(wgsl, || vec![Holds::Fresh(2)], 2, 0, &[2016, 2016]);
}

#[test]
fn atomics_count_whatever_the_order() {
    let wgsl = "
        @group(0) @binding(0) var<storage, read_write> y: array<atomic<u32>>;
        var<workgroup> most: atomic<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(global_invocation_id) id: vec3<u32>) {
            if (i == 0u) { atomicStore(&most, 0u); }
            workgroupBarrier();
            atomicMax(&most, i);
            atomicAdd(&y[0], 1u);
            loop {
                let old = atomicLoad(&y[1]);
                if (atomicCompareExchangeWeak(&y[1], old, old + 2u).exchanged) { break; }
            }
            workgroupBarrier();
            if (i == 0u) { atomicAdd(&y[2], atomicLoad(&most)); }
        }";
    expect(wgsl, || vec![Holds::Words(&[0; 3])], 3, 0, &[192, 384, 189]);
}

#[test]
fn a_uniform_load_orders_what_is_around_it() {
    let wgsl = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        var<workgroup> limit: u32;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) {
            var sum = 0u;
            for (var round = 0u; round < 3u; round++) {
                if (i == round) { limit = i + 10u; }
                let shared_limit = workgroupUniformLoad(&limit);
                if (shared_limit > 10u) { workgroupBarrier(); }
                sum += shared_limit;
            }
            y[i] = sum;
        }";
    expect(wgsl, || vec![Holds::Fresh(64)], 1, 0, &[33; 64]);
}

#[test]
fn halves_beside_each_other_belong_to_different_invocations() {
    let wgsl = "
        enable f16;
        @group(0) @binding(0) var<storage, read_write> y: array<f16>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) {
            y[i] = f16(i) * 0.5h;
        }";
    let words: Vec<u32> = (0..32_u16)
        .map(|pair| {
            let bits = |i: u16| u32::from(half::f16::from_f32(f32::from(i) * 0.5).to_bits());
            bits(2 * pair) | bits(2 * pair + 1) << 16
        })
        .collect();
    expect(wgsl, || vec![Holds::Fresh(32)], 1, 0, &words);
}

#[test]
fn a_subgroups_matrices_multiply() {
    // Four invocations fit into one subgroup of every size.
    let wgsl = "
        enable f16;
        enable wgpu_cooperative_matrix;
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        var<workgroup> a: array<vec4<f16>, 16>;
        @compute @workgroup_size(4)
        fn main(@builtin(local_invocation_index) first: u32) {
            for (var i = first; i < 16u; i += 4u) {
                let line = vec4<u32>(i / 2u);
                let column = vec4<u32>(0u, 1u, 2u, 3u) + vec4<u32>(i % 2u * 4u);
                a[i] = select(vec4<f16>(0.0h), vec4<f16>(column), line <= column);
            }
            workgroupBarrier();
            let left = coopLoadT<coop_mat8x8<f16, A>>(&a[0], 2u);
            let right = coopLoad<coop_mat8x8<f16, B>>(&a[0], 2u);
            let sum = coopMultiplyAdd(left, right, coop_mat8x8<f32, C>());
            coopStoreT(sum, &y[0], 8u);
        }";
    // The product of `a` and its transpose, where row i of `a` has the numbers from i on.
    let element =
        |row: u32, column: u32| -> f32 { (row.max(column)..8).map(|k| (k * k) as f32).sum() };
    let words: Vec<u32> = (0..64)
        .map(|index| element(index / 8, index % 8).to_bits())
        .collect();
    expect(wgsl, || vec![Holds::Fresh(64)], 1, 0, &words);
}

#[test]
fn structs_matrices_and_pointers_lie_where_wgsl_says() {
    let wgsl = "
        struct Inner { a: f32, b: vec3<f32>, c: array<vec3<u32>, 2> }
        struct Outer { head: u32, inner: array<Inner, 2>, m: mat3x3<f32> }
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @group(0) @binding(1) var<storage, read> x: Outer;
        fn twice(p: ptr<function, vec3<f32>>, by: f32) { (*p) = (*p) * by; (*p).y += 1.0; }
        @compute @workgroup_size(1)
        fn main() {
            let inner = x.inner;
            var v = inner[1].b;
            twice(&v, 2.0);
            y[0] = u32(v.x); y[1] = u32(v.y); y[2] = u32(v.z);
            y[3] = inner[0].c[1].z;
            y[4] = u32((x.m * vec3<f32>(1.0, 2.0, 3.0)).y);
            y[5] = u32(x.m[2].x);
            y[6] = x.head;
            switch x.head { case 0u: { y[7] = 5u; } case 3u, 4u: { y[7] = 6u; } default: { y[7] = 7u; } }
        }";
    let mut words = vec![0_u32; 48];
    // `head` at 0, `inner` at 16 with 64 bytes each, `m` at 144 with columns of 16 bytes.
    words[0] = 3;
    for (at, value) in [
        (16 + 64 + 16, 1.0_f32),
        (16 + 64 + 20, 2.0),
        (16 + 64 + 24, 3.0),
    ] {
        words[at / 4] = value.to_bits();
    }
    words[(16 + 32 + 16 + 8) / 4] = 42;
    for (column, value) in [(0, 1.0_f32), (1, 2.0), (2, 3.0)] {
        words[(144 + 16 * column + 4) / 4] = value.to_bits();
    }
    words[(144 + 32) / 4] = 9.0_f32.to_bits();
    let mut test = Test::new(wgsl, vec![Holds::Fresh(8), Holds::Words(&words)]);
    test.lanes = 4;
    let (reports, found) = test.run();
    assert!(reports.is_empty(), "{reports:?}");
    assert_eq!(found[0], [2, 5, 6, 42, 14, 9, 3, 6]);
}

#[test]
fn integers_wrap_and_divide_as_wgsl_says() {
    let wgsl = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @group(0) @binding(1) var<storage, read_write> x: array<u32>;
        @compute @workgroup_size(1)
        fn main() {
            let zero = x[0]; let most = x[1];
            y[0] = most + 2u;
            y[1] = most / zero;
            y[2] = most % zero;
            y[3] = u32(i32(x[2]) / -1);
            y[4] = 1u << (x[3] + 33u);
            y[5] = countOneBits(most) + firstLeadingBit(x[2]);
            y[6] = u32(f32(most) * 2.0);
            y[7] = insertBits(0u, most, 4u, 8u) + extractBits(most, 8u, 4u);
            let wide = u64(most) * 2lu;
            y[8] = u32(wide >> 32u);
            y[9] = dot(vec3<u32>(1u, 2u, 3u), vec3<u32>(x[4]));
        }";
    let input = [0, u32::MAX, 0x8000_0000, 0, 5];
    let bindings = vec![Holds::Fresh(10), Holds::Words(&input)];
    let (reports, found) = Test::new(wgsl, bindings).run();
    assert!(reports.is_empty(), "{reports:?}");
    let expected = [
        1,
        u32::MAX,
        0,
        0x8000_0000,
        2,
        63,
        // The largest number that both types have.
        4_294_967_040,
        0xff0 + 15,
        1,
        30,
    ];
    assert_eq!(found[0], expected);
}

#[test]
fn floats_become_integers_that_both_types_have() {
    let wgsl = "
        enable f16;
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(1)
        fn main() {
            y[0] = bitcast<u32>(i32(x[0]));
            y[1] = bitcast<u32>(i32(-x[0]));
            y[2] = u32(x[0] * 2.0);
            y[3] = u32(-x[0]);
            y[4] = u32(f16(x[0]));
            y[5] = u32(x[1]);
            y[6] = u32(u64(x[0] * x[0] * x[0]) >> 32u);
        }";
    let expected = [
        2_147_483_520,
        1 << 31,
        4_294_967_040,
        0,
        65504,
        7,
        4_294_967_040,
    ];
    let bindings = || vec![Holds::Words(&[0x4f32_d05e, 0x40ff_ffff]), Holds::Fresh(7)];
    expect(wgsl, bindings, 1, 1, &expected);
}

#[test]
fn bits_of_numbers_of_64_bits() {
    let wgsl = "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(1)
        fn main() {
            let n = u64(x[0]) << 30u;
            y[0] = u32(countOneBits(n));
            y[1] = u32(countLeadingZeros(n));
            y[2] = u32(firstLeadingBit(n));
            y[3] = u32(countTrailingZeros(n));
            y[4] = u32(reverseBits(n) >> 24u);
            y[5] = u32(extractBits(n, 30u, 4u));
            let pair = extractBits(vec2(n, n >> 4u), 30u, 3u);
            y[6] = u32(pair.y);
            y[7] = u32(insertBits(n, 1lu, 40u, 24u) >> 30u);
            y[8] = u32(firstLeadingBit(-i64(x[0])));
        }";
    let expected = [8, 26, 37, 30, 0x3fc, 15, 7, 0x4ff, 7];
    expect(
        wgsl,
        || vec![Holds::Words(&[255]), Holds::Fresh(9)],
        1,
        1,
        &expected,
    );
}

#[test]
fn the_length_of_one_number_is_its_size() {
    let wgsl = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1)
        fn main() {
            y[0] = length(x[0]);
            y[1] = distance(x[0], 0.0);
        }";
    let large = 1e30_f32.to_bits();
    let words: &'static [u32] = &[0xf149_f2ca];
    assert_eq!(words, [(-1e30_f32).to_bits()]);
    expect(
        wgsl,
        || vec![Holds::Words(&[0xf149_f2ca]), Holds::Fresh(2)],
        1,
        1,
        &[large; 2],
    );
}
