//! Functions of whole vectors and matrices of floats.

use super::code::{Geometry, Reg};
use super::float::frexp;
use super::value::{Half, Number};

/// The registers of the operands, and their sizes.
pub(super) struct Operands {
    pub(super) to: Reg,
    pub(super) a: Reg,
    pub(super) b: Reg,
    pub(super) c: Reg,
    pub(super) shape: [u8; 3],
}

/// Computes with f32, and rounds to f16 if the operands are f16.
pub(super) fn run(registers: &mut [u32], op: Geometry, is_half: bool, at: &Operands) {
    match is_half {
        true => typed::<Half>(registers, op, at, |x| x.0, Half),
        false => typed::<f32>(registers, op, at, |x| x, |x| x),
    }
}

fn typed<T: Number>(
    registers: &mut [u32],
    op: Geometry,
    at: &Operands,
    value: impl Fn(T) -> f32,
    number: impl Fn(f32) -> T,
) {
    let shape = at.shape.map(usize::from);
    let read = |from: Reg, count: usize| -> Vec<f32> {
        (0..count)
            .map(|lane| value(T::get(registers, from as usize + lane)))
            .collect()
    };
    let [n, m, _] = shape;
    let result = match op {
        Geometry::Product => product(&read(at.a, n * m), &read(at.b, m * shape[2]), shape),
        Geometry::Outer => {
            let (a, b) = (read(at.a, n), read(at.b, m));
            b.iter()
                .flat_map(|b| a.iter().map(move |a| a * b))
                .collect()
        }
        // A matrix of `n` columns of `m` rows is stored column by column.
        Geometry::Transpose => {
            let a = read(at.a, n * m);
            (0..n * m)
                .map(|index| a[index % n * m + index / n])
                .collect()
        }
        Geometry::Determinant => vec![determinant(&read(at.a, n * n), n)],
        Geometry::Modf | Geometry::Frexp => {
            return apart(registers, op, at, &read(at.a, n), number);
        }
        _ => {
            let eta = match op {
                Geometry::Refract => read(at.c, 1),
                Geometry::FaceForward => read(at.c, n),
                _ => vec![],
            };
            let b = match op {
                Geometry::Length | Geometry::Normalize => vec![],
                _ => read(at.b, n),
            };
            vectors(op, &read(at.a, n), &b, &eta)
        }
    };
    for (lane, x) in result.into_iter().enumerate() {
        number(x).put(registers, at.to as usize + lane);
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn length(a: &[f32]) -> f32 {
    match a {
        [x] => x.abs(),
        _ => dot(a, a).sqrt(),
    }
}

fn vectors(op: Geometry, a: &[f32], b: &[f32], c: &[f32]) -> Vec<f32> {
    let scaled = |by: f32| a.iter().map(|a| a * by).collect();
    match op {
        Geometry::Dot => vec![dot(a, b)],
        Geometry::Length => vec![length(a)],
        Geometry::Distance => {
            let between: Vec<f32> = a.iter().zip(b).map(|(a, b)| a - b).collect();
            vec![length(&between)]
        }
        Geometry::Normalize => scaled(dot(a, a).sqrt().recip()),
        Geometry::Cross => (0..3)
            .map(|lane| {
                let (y, z) = ((lane + 1) % 3, (lane + 2) % 3);
                a[y] * b[z] - a[z] * b[y]
            })
            .collect(),
        Geometry::FaceForward => scaled(if dot(b, c) < 0.0 { 1.0 } else { -1.0 }),
        Geometry::Reflect => {
            let twice = 2.0 * dot(b, a);
            a.iter().zip(b).map(|(a, b)| a - twice * b).collect()
        }
        Geometry::Refract => {
            let (eta, cosine) = (c[0], dot(b, a));
            let k = 1.0 - eta * eta * (1.0 - cosine * cosine);
            let bent = eta * cosine + k.max(0.0).sqrt();
            let both = a.iter().zip(b);
            both.map(|(a, b)| if k < 0.0 { 0.0 } else { eta * a - bent * b })
                .collect()
        }
        // The other functions do not take vectors.
        _ => vec![],
    }
}

/// A product of matrices, which are stored column by column.
fn product(a: &[f32], b: &[f32], [rows, inner, columns]: [usize; 3]) -> Vec<f32> {
    let element = |row: usize, column: usize| {
        let steps = (0..inner).map(|k| a[k * rows + row] * b[column * inner + k]);
        steps.sum()
    };
    (0..rows * columns)
        .map(|index| element(index % rows, index / rows))
        .collect()
}

fn determinant(a: &[f32], n: usize) -> f32 {
    if n == 1 {
        return a[0];
    }
    let minor = |column: usize| -> Vec<f32> {
        let rest = (0..n * n).filter(|index| index / n != column && index % n != 0);
        rest.map(|index| a[index]).collect()
    };
    let terms = (0..n).map(|column| {
        let sign = if column % 2 == 0 { 1.0 } else { -1.0 };
        sign * a[column * n] * determinant(&minor(column), n - 1)
    });
    terms.sum()
}

/// Splits a float into two parts, each in the registers of a struct's member.
fn apart<T: Number>(
    registers: &mut [u32],
    op: Geometry,
    at: &Operands,
    a: &[f32],
    number: impl Fn(f32) -> T,
) {
    let to = at.to as usize;
    for (lane, &x) in a.iter().enumerate() {
        if op == Geometry::Modf {
            number(x - x.trunc()).put(registers, to + lane);
            number(x.trunc()).put(registers, to + a.len() + lane);
        } else {
            let (fraction, exponent) = frexp(x);
            number(fraction).put(registers, to + lane);
            exponent.put(registers, to + a.len() + lane);
        }
    }
}
