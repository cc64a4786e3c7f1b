//! Draws beside the probabilities that each way to sample is to have.

use lapidary::sim::SimOptions;

use super::*;

const LOGITS: [f32; 8] = [1.0, 3.0, -2.0, 2.5, 0.0, 2.9, -0.5, 1.5];
const ROWS: usize = 2000;

fn gpu() -> Gpu {
    Gpu::simulated(SimOptions::default()).expect("it can be").0
}

/// The probabilities with which the tokens of `LOGITS` are to be chosen.
fn wanted(sampling: &Sampling, seen: &[u32]) -> Vec<f64> {
    let mut logits = LOGITS.map(f64::from);
    for &token in seen {
        let logit = &mut logits[token as usize];
        let penalty = f64::from(sampling.repetition_penalty);
        *logit = if *logit > 0.0 {
            *logit / penalty
        } else {
            *logit * penalty
        };
    }
    let scaled = logits.map(|logit| logit / f64::from(sampling.temperature));
    let mut order: Vec<usize> = (0..8).collect();
    order.sort_by(|&a, &b| scaled[b].total_cmp(&scaled[a]));
    order.truncate(sampling.top_k.unwrap_or(8));
    let share = |of: &[usize], at: usize| {
        scaled[at].exp() / of.iter().map(|&other| scaled[other].exp()).sum::<f64>()
    };
    let (mut kept, mut sum) = (Vec::new(), 0.0);
    for &at in &order {
        let is_likely = share(&order, at) >= f64::from(sampling.min_p) * share(&order, order[0]);
        if sum < f64::from(sampling.top_p) && is_likely {
            kept.push(at);
        }
        sum += share(&order, at);
    }
    let chance = |at: usize| {
        if kept.contains(&at) {
            share(&kept, at)
        } else {
            0.0
        }
    };
    (0..8).map(chance).collect()
}

#[track_caller]
fn check(sampling: Sampling, seen_tokens: &[u32]) {
    let gpu = gpu();
    let row = gpu.tensor(&LOGITS, &[1, 8]).expect("a row");
    let logits = row
        .broadcast_to(&[ROWS, 8])
        .and_then(|rows| rows.contiguous())
        .expect("rows");
    let mut seen = [0.0_f32; 8];
    seen_tokens
        .iter()
        .for_each(|&token| seen[token as usize] = 1.0);
    let seen = gpu.tensor(&seen, &[8]).expect("a vector");
    let of = |tokens| Row {
        sampling: &sampling,
        tokens,
        seen: (!seen_tokens.is_empty()).then_some(&seen),
    };
    let rows: Vec<Row<'_>> = (0..ROWS).map(of).collect();
    let chosen = choose(&gpu, &logits, &rows).expect("a choice");
    let (tokens, logs): (Vec<u32>, Vec<f32>) = (
        chosen.tokens.to_vec().expect("tokens"),
        chosen.log_probabilities.to_vec().expect("logs"),
    );
    let sum: f64 = LOGITS.iter().map(|&logit| f64::from(logit).exp()).sum();
    for (&token, &log) in tokens.iter().zip(&logs) {
        let wanted = f64::from(LOGITS[token as usize]) - sum.ln();
        assert!(
            (f64::from(log) - wanted).abs() < 1e-5,
            "{log} instead of {wanted}"
        );
    }
    for (token, chance) in wanted(&sampling, seen_tokens).into_iter().enumerate() {
        let count = tokens
            .iter()
            .filter(|&&other| other as usize == token)
            .count();
        let mean = chance * ROWS as f64;
        // The seeds are fixed, so this holds always or never.
        let most = 4.0 * (mean * (1.0 - chance)).sqrt();
        let is_near = (count as f64 - mean).abs() <= most;
        assert!(
            is_near,
            "token {token}: {count} times, not {mean:.0}, with {sampling:?}"
        );
    }
}

#[test]
fn each_way_to_sample_has_its_probabilities() {
    let base = Sampling {
        temperature: 0.8,
        seed: 11,
        ..Sampling::default()
    };
    check(base, &[]);
    check(
        Sampling {
            temperature: 3.0,
            ..base
        },
        &[],
    );
    check(
        Sampling {
            top_k: Some(3),
            ..base
        },
        &[],
    );
    check(
        Sampling {
            top_k: Some(100),
            ..base
        },
        &[],
    );
    check(Sampling { top_p: 0.7, ..base }, &[]);
    check(
        Sampling {
            top_p: 1e-6,
            ..base
        },
        &[],
    );
    check(Sampling { min_p: 0.3, ..base }, &[]);
    check(
        Sampling {
            top_k: Some(5),
            top_p: 0.9,
            min_p: 0.2,
            ..base
        },
        &[],
    );
    check(
        Sampling {
            repetition_penalty: 1.5,
            ..base
        },
        &[1, 2, 4],
    );
    check(
        Sampling {
            top_k: Some(2),
            repetition_penalty: 4.0,
            ..base
        },
        &[1, 3],
    );
}

#[test]
fn rows_keep_their_own_way() {
    let gpu = gpu();
    let logits = gpu
        .tensor(&[LOGITS, LOGITS, LOGITS].concat(), &[3, 8])
        .expect("rows");
    let greedy = Sampling::greedy();
    let warm = Sampling {
        temperature: 5.0,
        ..greedy
    };
    let few = Sampling {
        top_k: Some(2),
        ..warm
    };
    for tokens in 0..50 {
        let rows = [&warm, &greedy, &few].map(|sampling| Row {
            sampling,
            tokens,
            seen: None,
        });
        let together = choose(&gpu, &logits, &rows).expect("a choice");
        let together: Vec<u32> = together.tokens.to_vec().expect("tokens");
        assert_eq!(together[1], 1, "the likeliest");
        assert!([1, 5].contains(&together[2]), "one of the two likeliest");
        for (at, row) in rows.into_iter().enumerate() {
            let one = logits.narrow(0, at, 1).expect("a row");
            let alone: Vec<u32> = choose(&gpu, &one, &[row])
                .and_then(|one| Ok(one.tokens.to_vec()?))
                .expect("one");
            assert_eq!(alone, [together[at]]);
        }
    }
}
