//! Scaled dot-product attention.

use lapidary::{DType, Error, Gpu, Options, Tensor, operations::Causal};

use crate::ops_reduce::model::*;

/// Shapes of queries, keys, values and the mask (of bools by default).
struct Case {
    q: &'static [usize],
    k: &'static [usize],
    v: &'static [usize],
    mask: Option<(&'static [usize], DType)>,
    causal: Causal,
    dtype: DType,
}

const fn case(q: &'static [usize], k: &'static [usize], v: &'static [usize]) -> Case {
    Case {
        q,
        k,
        v,
        mask: None,
        causal: Causal::No,
        dtype: DType::F32,
    }
}

const CASES: &[Case] = &[
    case(&[5, 4], &[7, 4], &[7, 4]),
    Case {
        causal: Causal::FirstKey,
        ..case(&[2, 3, 40, 8], &[2, 3, 40, 8], &[2, 3, 40, 8])
    },
    // One query, sizes that are not multiples of 4, more columns than elements.
    case(&[3, 1, 5], &[3, 9, 5], &[3, 9, 7]),
    // Groups of heads, and a padding mask that is read as vec4s.
    Case {
        mask: Some((&[2, 1, 1, 36], DType::Bool)),
        ..case(&[2, 4, 33, 8], &[2, 2, 36, 8], &[2, 2, 36, 8])
    },
    // Outer dimensions that broadcast, and one head of keys for all.
    Case {
        mask: Some((&[9, 11], DType::F32)),
        causal: Causal::FirstKey,
        ..case(&[3, 1, 2, 9, 4], &[1, 2, 1, 11, 4], &[2, 1, 11, 4])
    },
    // The last queries of a cache; more queries than keys; one query, with the heads of a group as
    // rows.
    Case {
        causal: Causal::LastKey,
        mask: Some((&[1, 4, 1, 70], DType::Bool)),
        ..case(&[2, 4, 37, 8], &[2, 2, 70, 8], &[2, 2, 70, 12])
    },
    Case {
        causal: Causal::LastKey,
        mask: Some((&[9, 5], DType::F32)),
        ..case(&[2, 9, 4], &[2, 5, 4], &[2, 5, 4])
    },
    Case {
        causal: Causal::LastKey,
        ..case(&[2, 3, 4], &[2, 0, 4], &[2, 0, 4])
    },
    Case {
        causal: Causal::LastKey,
        ..case(&[2, 8, 1, 8], &[2, 4, 65, 8], &[2, 4, 65, 8])
    },
    Case {
        causal: Causal::FirstKey,
        ..case(&[2, 8, 1, 8], &[1, 4, 65, 8], &[2, 4, 65, 8])
    },
    Case {
        dtype: DType::F16,
        mask: Some((&[8, 1, 65], DType::F16)),
        ..case(&[2, 8, 1, 6], &[2, 4, 65, 6], &[2, 4, 65, 7])
    },
    Case {
        mask: Some((&[65], DType::F32)),
        ..case(&[8, 1, 8], &[65, 8], &[65, 8])
    },
    Case {
        causal: Causal::FirstKey,
        mask: Some((&[2, 8, 1, 1], DType::Bool)),
        ..case(&[2, 8, 1, 8], &[2, 2, 33, 8], &[2, 2, 33, 8])
    },
    // A batch with too many dimensions for the kernel.
    case(
        &[2, 1, 2, 1, 2, 1, 3, 4],
        &[1, 2, 1, 2, 1, 2, 5, 4],
        &[1, 2, 1, 2, 1, 2, 5, 4],
    ),
    Case {
        dtype: DType::F16,
        mask: Some((&[1, 20, 1], DType::Bool)),
        ..case(&[2, 20, 8], &[2, 21, 8], &[2, 21, 8])
    },
    Case {
        dtype: DType::Bf16,
        mask: Some((&[9, 11], DType::Bf16)),
        ..case(&[3, 2, 9, 4], &[3, 1, 11, 4], &[3, 1, 11, 4])
    },
    // No keys, no queries, empty values, empty queries and keys.
    case(&[2, 3, 4], &[2, 0, 4], &[2, 0, 4]),
    case(&[2, 0, 4], &[2, 3, 4], &[2, 3, 4]),
    case(&[2, 3, 4], &[2, 3, 4], &[2, 3, 0]),
    case(&[2, 3, 0], &[2, 3, 0], &[2, 3, 4]),
];

/// The row of an operand of any rank; `outer` is an index of the result's outer dimensions.
fn row<'a>(x: &'a Array, outer: &[usize], head: usize, row: usize) -> &'a [f64] {
    let rank = x.shape.len();
    let mut full: Vec<usize> = outer.to_vec();
    full.extend([head, row]);
    let own = &full[full.len() - (rank - 1)..];
    let flat = (own.iter().zip(&x.shape)).fold(0, |flat, (&at, &dim)| {
        flat * dim + if dim == 1 { 0 } else { at }
    });
    &x.values[flat * x.shape[rank - 1]..(flat + 1) * x.shape[rank - 1]]
}

fn model(
    result: &[usize],
    [q, k, v]: [&Array; 3],
    mask: Option<&(Array, DType)>,
    causal: Causal,
    scale: f64,
) -> Array {
    let rank = result.len();
    let (queries, keys) = (result[rank - 2], k.shape[k.shape.len() - 2]);
    let dim = |shape: &[usize], at: usize| {
        if shape.len() < at {
            1
        } else {
            shape[shape.len() - at]
        }
    };
    let heads = if rank < 3 { 1 } else { result[rank - 3] };
    let of_keys = dim(&k.shape, 3).max(dim(&v.shape, 3)).max(1);
    let outer_shape = &result[..rank.saturating_sub(3)];
    let outer = Array::new(outer_shape, |_| 0.0);
    let mut values = vec![];
    for flat in 0..outer.values.len() {
        let outer = outer.index(flat);
        for (head, i) in (0..heads).flat_map(|head| (0..queries).map(move |i| (head, i))) {
            let own = head / (heads / of_keys).max(1);
            let query = row(q, &outer, head, i);
            let scores: Vec<f64> = (0..keys)
                .map(|j| {
                    let key = row(k, &outer, own, j);
                    let score = query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() * scale;
                    let masked = mask.map(|(mask, dtype)| {
                        // The mask's last dimension is that of the keys.
                        let mut shape = mask.shape.clone();
                        shape.push(1);
                        let mask = Array {
                            shape,
                            ..mask.clone()
                        };
                        let mut at = outer.clone();
                        at.push(head);
                        (row(&mask, &at, i, j)[0], *dtype)
                    });
                    let is_out = match causal {
                        Causal::No => false,
                        Causal::FirstKey => j > i,
                        Causal::LastKey => j + queries > i + keys,
                    };
                    match masked {
                        _ if is_out => f64::NEG_INFINITY,
                        None => score,
                        Some((0.0, DType::Bool)) => f64::NEG_INFINITY,
                        Some((_, DType::Bool)) => score,
                        Some((added, _)) => score + added,
                    }
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let terms: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = terms.iter().sum();
            for column in 0..result[rank - 1] {
                let weighted = terms.iter().enumerate();
                let total: f64 = weighted
                    .map(|(j, term)| term * row(v, &outer, own, j)[column])
                    .sum();
                let is_blind = max == f64::NEG_INFINITY && !scores.iter().any(|s| s.is_nan());
                values.push(if is_blind { 0.0 } else { total / sum });
            }
        }
    }
    Array {
        shape: result.to_vec(),
        values,
    }
}

fn check(name: &str, gpu: &Gpu, case: &Case) {
    let mut noise = noise(case.dtype);
    let mut made = |shape: &[usize]| Array::new(shape, &mut noise).rounded(case.dtype);
    let (q, k, v) = (made(case.q), made(case.k), made(case.v));
    let mask = case.mask.map(|(shape, dtype)| {
        // In masks of bools, some rows are all false.
        let value = |at: usize| match dtype {
            DType::Bool => f64::from(u8::from(
                !at.is_multiple_of(3) && at / shape[shape.len() - 1] != 2,
            )),
            _ => (at % 7) as f64 / 4.0 - 1.0,
        };
        (Array::new(shape, value), dtype)
    });
    let [on_q, on_k, on_v] = [&q, &k, &v].map(|array| array.upload(gpu, case.dtype));
    let on_mask = mask
        .as_ref()
        .map(|(array, dtype)| array.upload(gpu, *dtype));
    let attend = |q: &Tensor, k: &Tensor, v: &Tensor| {
        let made = q.scaled_dot_product_attention(k, v, on_mask.as_ref(), case.causal, Some(0.5));
        made.expect("shapes that go together")
    };
    let whole = attend(&on_q, &on_k, &on_v);
    assert_eq!(whole.dtype(), case.dtype);
    let expected = model(whole.shape(), [&q, &k, &v], mask.as_ref(), case.causal, 0.5);
    let what = format!("{name} {:?} {:?} {:?}", case.q, case.k, case.v);
    let tolerance = 4.0 * tolerance(case.dtype);
    assert_close(&download(&whole), &expected, tolerance, &what);
    // The layout after a projection: heads beside rows, and not at a vec4.
    let turned = |x: &Tensor| {
        let turned = x.transpose(-2, 0).unwrap().contiguous().unwrap();
        turned.transpose(-2, 0).unwrap()
    };
    let shifted = |x: &Tensor| {
        let mut wide = x.shape().to_vec();
        *wide.last_mut().unwrap() += 1;
        let room = gpu.zeros(&wide, case.dtype).unwrap();
        let part = room.slice(-1, Some(1), None, 1).unwrap();
        part.copy_(x).unwrap();
        part
    };
    let viewed = attend(&turned(&on_q), &turned(&on_k), &shifted(&on_v));
    assert_close(
        &download(&viewed),
        &expected,
        tolerance,
        &format!("{what}, views"),
    );
}

#[test]
fn attention_agrees_with_the_model() {
    for (name, gpu) in gpus() {
        for case in CASES {
            check(name, &gpu, case);
        }
    }
}

#[test]
fn attention_of_what_is_not_finite_is_not_a_number_in_its_row_only() {
    for (name, gpu) in gpus() {
        let mut q = Array::new(&[40, 4], |at| (at % 5) as f64);
        q.values[4 * 7] = f64::NAN;
        q.values[4 * 9] = f64::INFINITY;
        let k = Array::new(&[40, 4], |at| (at % 3) as f64 - 1.0);
        let [q, k] = [&q, &k].map(|array| array.upload(&gpu, DType::F32));
        let y = q
            .scaled_dot_product_attention(&k, &k, None, true, None)
            .unwrap();
        let y = download(&y);
        for (row, values) in y.values.chunks(4).enumerate() {
            let are_nan = values.iter().all(|v| v.is_nan());
            assert_eq!(
                are_nan,
                matches!(row, 7 | 9),
                "{name}: row {row} is {values:?}"
            );
        }
    }
}

/// The heads of a group are rows: one launch for any number of heads that share keys.
#[test]
fn one_query_of_grouped_heads_is_one_launch() {
    for (name, gpu) in gpus() {
        let q = gpu.ones(&[1, 8, 1, 64], DType::F32).unwrap();
        let k = gpu.ones(&[1, 4, 64, 64], DType::F32).unwrap();
        gpu.finish().unwrap();
        let before = gpu.memory().stats().commands;
        let y = q
            .scaled_dot_product_attention(&k, &k, None, Causal::LastKey, None)
            .unwrap();
        gpu.finish().unwrap();
        assert_eq!(gpu.memory().stats().commands - before, 1, "{name}");
        assert_eq!(y.shape(), [1, 8, 1, 64]);
    }
}

/// A cache grows by one key for each token. Only every fourth length has rows of whole vec4s.
#[test]
fn one_query_takes_as_many_launches_whatever_the_number_of_keys() {
    for (name, gpu) in gpus() {
        let launches = [64, 65, 66, 67].map(|keys| {
            let q = gpu.ones(&[8, 1, 64], DType::F32).unwrap();
            let k = gpu.ones(&[8, keys, 64], DType::F32).unwrap();
            gpu.finish().unwrap();
            let before = gpu.memory().stats().commands;
            let y = q.scaled_dot_product_attention(&k, &k, None, false, None);
            gpu.finish().unwrap();
            assert!(
                download(&y.unwrap())
                    .values
                    .iter()
                    .all(|&y| (y - 1.0).abs() < 1e-6)
            );
            gpu.memory().stats().commands - before
        });
        assert_eq!(launches, [launches[0]; 4], "{name}");
    }
}

/// A decoder reads its cache for each token. A cast would take more memory and time than the rest.
#[test]
fn one_query_reads_a_cache_of_halves_as_it_is() {
    for (name, gpu) in gpus() {
        for dtype in [DType::F16, DType::Bf16] {
            let q = gpu.ones(&[8, 1, 64], dtype).unwrap();
            let k = gpu.ones(&[8, 256, 64], dtype).unwrap();
            gpu.finish().unwrap();
            gpu.memory().reset_peaks();
            let before = gpu.memory().stats().live_bytes.now;
            let y = q
                .scaled_dot_product_attention(&k, &k, None, false, None)
                .unwrap();
            gpu.finish().unwrap();
            let grown = gpu.memory().stats().live_bytes.peak - before;
            assert!(grown < k.size_bytes(), "{grown} bytes of {dtype}, {name}");
            assert!(download(&y).values.iter().all(|&value| value == 1.0));
        }
    }
}

#[test]
fn attention_needs_no_memory_for_scores() {
    let gpus = [
        (Gpu::open(Options::from_env().unwrap()).unwrap(), 6000),
        (
            Gpu::simulated(lapidary::sim::SimOptions::default())
                .unwrap()
                .0,
            400,
        ),
    ];
    for (gpu, rows) in gpus {
        let x = gpu
            .rand_normal(&[rows, 4], 0.0, 1.0, 1, DType::F32)
            .unwrap();
        gpu.finish().unwrap();
        gpu.memory().reset_peaks();
        let before = gpu.memory().stats().live_bytes.now;
        let y = x
            .scaled_dot_product_attention(&x, &x, None, false, None)
            .unwrap();
        gpu.finish().unwrap();
        let grown = gpu.memory().stats().live_bytes.peak - before;
        assert!(
            grown <= y.size_bytes() + 4096,
            "{grown} bytes for {rows} rows"
        );
    }
}

#[test]
fn attention_over_more_keys_than_an_invocation_may_loop_is_whole() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let keys = 250_000;
    let k = gpu.zeros(&[keys, 4], DType::F32).unwrap();
    let v = gpu.arange(0.0, keys as f64, 1.0, DType::F32).unwrap();
    let v = (v.unsqueeze(1).unwrap() * (1.0 / keys as f32)).unwrap();
    let q = gpu.ones(&[3, 4], DType::F32).unwrap();
    let y = q
        .scaled_dot_product_attention(&k, &v, None, false, None)
        .unwrap();
    for mean in y.to_vec::<f32>().unwrap() {
        assert!((mean - 0.5).abs() < 1e-3, "{mean}");
    }
}

#[test]
fn attention_refuses_what_does_not_go_together() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let x = |shape: &[usize], dtype| gpu.zeros(shape, dtype).unwrap();
    let f = |shape: &[usize]| x(shape, DType::F32);
    let q = f(&[2, 4, 5, 8]);
    let attend = |k: &Tensor, v: &Tensor, mask: Option<&Tensor>| {
        q.scaled_dot_product_attention(k, v, mask, false, None)
            .unwrap_err()
    };
    let k = f(&[2, 4, 6, 8]);
    for (k, v, mask) in [
        (f(&[2, 4, 6, 7]), k.clone(), None),
        (k.clone(), f(&[2, 4, 5, 8]), None),
        (f(&[2, 3, 6, 8]), f(&[2, 3, 6, 8]), None),
        (f(&[3, 4, 6, 8]), f(&[3, 4, 6, 8]), None),
        (f(&[8]), k.clone(), None),
        (k.clone(), k.clone(), Some(f(&[5, 5]))),
        (k.clone(), k.clone(), Some(f(&[1, 2, 4, 5, 6]))),
    ] {
        let refused = attend(&k, &v, mask.as_ref());
        assert!(matches!(refused, Error::Shape { .. }), "{refused}");
    }
    let ints = x(&[5, 6], DType::I32);
    assert!(matches!(attend(&k, &k, Some(&ints)), Error::DType { .. }));
    let halves = x(&[2, 4, 6, 8], DType::F16);
    assert!(matches!(
        attend(&halves, &halves, None),
        Error::DType { .. }
    ));
    let elsewhere = Gpu::open(Options::from_env().unwrap())
        .unwrap()
        .zeros(&[2, 4, 6, 8], DType::F32)
        .unwrap();
    assert!(matches!(
        attend(&elsewhere, &k, None),
        Error::Foreign { .. }
    ));
}
