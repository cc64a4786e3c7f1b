//! Checks every element of a result with arithmetic in `f64` that shares nothing with the timed
//! code.

use crate::network::Network;
use crate::{Result, Work};

/// Fails with the first wrong element.
pub(crate) fn check(work: &Work, inputs: &[Vec<f32>], got: &[f32]) -> Result {
    let near = |absolute: f64, relative: f64| {
        move |want: f64, got: f64| (got - want).abs() <= absolute + relative * want.abs()
    };
    let exactly = |want: f64, got: f64| got == want;
    let f = |x: &f32| f64::from(*x);
    match (*work, inputs) {
        (
            Work::Matmul {
                batch,
                m,
                n,
                k,
                is_b_transposed,
            },
            [a, b],
        ) => {
            if got.len() != batch * m * n {
                return Err(format!("wrong: {} elements of {}", got.len(), batch * m * n).into());
            }
            let operands = a.chunks_exact(m * k).zip(b.chunks_exact(k * n));
            let mut products = operands.zip(got.chunks_exact(m * n));
            products.try_for_each(|((a, b), c)| product([m, n, k], a, b, is_b_transposed, c))
        }
        (Work::Add { .. }, [a, b]) => {
            let sums = a.iter().zip(b).map(|(a, b)| f(&(a + b)));
            compare(sums, got, exactly)
        }
        (Work::Chain { .. }, [a, b, c, d]) => {
            let chain = a.iter().zip(b).zip(c).zip(d);
            let values = chain.map(|(((a, b), c), d)| (f(a) * f(b) + f(c)).max(0.0) * f(d));
            compare(values, got, near(1e-6, 1e-5))
        }
        (Work::Softmax { columns, .. }, [x]) => {
            let rows = x.chunks_exact(columns).flat_map(|row| {
                let largest = row.iter().fold(f64::NEG_INFINITY, |most, x| most.max(f(x)));
                let sum: f64 = row.iter().map(|x| (f(x) - largest).exp()).sum();
                row.iter().map(move |x| (f(x) - largest).exp() / sum)
            });
            compare(rows, got, near(1e-9, 1e-4))
        }
        (Work::Sum { .. }, [x]) => compare([x.iter().map(f).sum()], got, near(0.0, 1e-5)),
        (Work::Transpose { rows, columns }, [x]) => {
            let column = |column: usize| (0..rows).map(move |row| f(&x[row * columns + column]));
            compare((0..columns).flat_map(column), got, exactly)
        }
        (Work::Gelu { .. }, [x]) => {
            let gelu = |x: f64| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
            compare(x.iter().map(|x| gelu(f(x))), got, near(4e-6, 1e-5))
        }
        (Work::Increments { ops, .. }, [x]) => {
            compare(x.iter().map(|x| f(x) + ops as f64), got, exactly)
        }
        (Work::Rotations { ops, len }, [x]) => compare(
            (0..len).map(|index| f(&x[(index + ops) % len])),
            got,
            exactly,
        ),
        (Work::Upload { .. } | Work::Write { .. } | Work::Download { .. }, [x]) => {
            compare(x.iter().map(f), got, exactly)
        }
        (Work::Training { steps }, _) => {
            let mut network = Network::new(None, inputs);
            (0..steps).for_each(|_| network.step());
            compare(network.parameters().iter().map(f), got, near(2e-5, 1e-4))
        }
        // These have no result, or check it where it is computed.
        (Work::Blocks { .. } | Work::Tensors { .. } | Work::Start { .. }, _) => Ok(()),
        _ => Err("a case with other inputs than its work has".into()),
    }
}

fn compare(
    want: impl IntoIterator<Item = f64>,
    got: &[f32],
    is_right: impl Fn(f64, f64) -> bool,
) -> Result {
    let mut count = 0;
    for want in want {
        let Some(&got) = got.get(count) else {
            return Err(format!("wrong: only {count} elements").into());
        };
        if !is_right(want, got.into()) {
            return Err(format!("wrong: element {count} is {got} and not {want}").into());
        }
        count += 1;
    }
    match got.len() == count {
        true => Ok(()),
        false => Err(format!("wrong: {} elements and not {count}", got.len()).into()),
    }
}

/// Freivalds' test: C · r equals A · (B · r) for random signs r. An element with an error beyond
/// rounding shows in its row.
fn product(
    [m, n, k]: [usize; 3],
    a: &[f32],
    b: &[f32],
    is_b_transposed: bool,
    c: &[f32],
) -> Result {
    let mut random = fastrand::Rng::with_seed(5);
    let signs: Vec<f64> = (0..n)
        .map(|_| if random.bool() { 1.0 } else { -1.0 })
        .collect();
    let dot = |x: &[f32], y: &[f64]| x.iter().zip(y).map(|(&x, y)| f64::from(x) * y).sum::<f64>();
    let mut of_b = vec![0.0; k];
    match is_b_transposed {
        true => {
            for (row, sign) in b.chunks_exact(k).zip(&signs) {
                for (sum, &x) in of_b.iter_mut().zip(row) {
                    *sum += f64::from(x) * sign;
                }
            }
        }
        false => {
            for (sum, row) in of_b.iter_mut().zip(b.chunks_exact(n)) {
                *sum = dot(row, &signs);
            }
        }
    }
    // Ten times the sum of the rounding errors, for elements between -1 and 1 as in the cases.
    let most = 3e-7 * k as f64 * (n as f64).sqrt() + 1e-5;
    for row in 0..m {
        let want = dot(&a[row * k..][..k], &of_b);
        let got = dot(&c[row * n..][..n], &signs);
        let is_near = (got - want).abs() <= most;
        if !is_near {
            return Err(format!("wrong: row {row} adds up to {got} and not {want}").into());
        }
    }
    Ok(())
}

/// The error function's series, which is accurate enough up to 3.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}
