//! Choices by indices, masks and positions; copies that join, repeat, shift and pad.

use lapidary::operations::{PadMode, ScatterReduce};
use lapidary::{DType, Gpu, Result, Tensor};

use super::check::{check, gpu, parameter, spread};

type Unary<'a> = (&'a str, &'a dyn Fn(&Tensor) -> Result<Tensor>);
type Binary<'a> = (&'a str, &'a dyn Fn(&Tensor, &Tensor) -> Result<Tensor>);

fn check_unary(gpu: &Gpu, shape: &[usize], cases: &[Unary<'_>]) {
    let x = spread(shape.iter().product(), -1.5, 1.5);
    for (name, f) in cases {
        check(gpu, name, &[(&x, shape)], |x| f(&x[0]));
        let name = &format!("{name}, in a longer computation");
        check(gpu, name, &[(&x, shape)], |x| {
            f(&x[0].square()?)?.mul(1.5)?.square()
        });
    }
}

fn check_binary(gpu: &Gpu, shapes: [&[usize]; 2], cases: &[Binary<'_>]) {
    let elements = shapes.map(|shape| spread(shape.iter().product(), -1.5, 1.5));
    // The second operand has other elements than the first.
    let second: Vec<f32> = elements[1].iter().map(|x| 0.7 - 0.9 * x).collect();
    for (name, f) in cases {
        let operands = [(&elements[0][..], shapes[0]), (&second[..], shapes[1])];
        check(gpu, name, &operands, |x| f(&x[0], &x[1]));
        let name = &format!("{name}, in a longer computation");
        check(gpu, name, &operands, |x| {
            f(&x[0].square()?, &x[1].square()?)?.square()
        });
    }
}

#[test]
fn joined_repeated_and_shifted_elements_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let ones = gpu.ones(&[2, 3], DType::F32).unwrap();
    let unary: &[Unary<'_>] = &[
        ("concat with a constant", &|x| {
            Tensor::concat(&[&ones, x, &ones], 0)
        }),
        ("concat with itself", &|x| {
            Tensor::concat(&[x, &x.flip(&[1])?, x], 1)
        }),
        ("split", &|x| {
            let parts = x.split(2, 1)?;
            parts[0].sum_all()? * &parts[1]
        }),
        ("split_sizes", &|x| {
            let parts = x.split_sizes(&[1, 2], -1)?;
            &parts[0] * &parts[1]
        }),
        ("chunk", &|x| {
            let parts = x.chunk(2, 0)?;
            &parts[0] / (parts[1].square()? + 1.0)?
        }),
        ("repeat", &|x| x.repeat(&[2, 1, 2])),
        ("repeat once", &|x| x.repeat(&[1, 1])),
        ("repeat_interleave", &|x| x.repeat_interleave(3, 1)),
        ("repeat_interleave of columns", &|x| {
            x.t()?.repeat_interleave(2, 1)
        }),
        ("roll", &|x| x.roll(&[1, -2], &[0, 1])),
        ("roll by 0", &|x| x.roll(&[0], &[0])),
        ("roll twice along one axis", &|x| {
            x.roll(&[1, -3, 7], &[1, 1, 0])
        }),
        ("pad", &|x| x.pad(&[(1, 0), (0, 2)], 0.5)),
        ("pad with reflection", &|x| {
            x.pad_with(&[(1, 1), (2, 1)], PadMode::Reflect)
        }),
        ("pad with replication", &|x| {
            x.pad_with(&[(0, 2), (1, 3)], PadMode::Replicate)
        }),
        ("pad in a circle", &|x| {
            x.pad_with(&[(2, 0), (1, 2)], PadMode::Circular)
        }),
    ];
    check_unary(&gpu, &[2, 3], unary);
    let binary: &[Binary<'_>] = &[
        ("concat of rows", &|x, y| Tensor::concat(&[x, y], 0)),
        ("concat of columns", &|x, y| {
            Tensor::concat(&[&x.t()?, &y.t()?, &x.t()?], 1)
        }),
    ];
    check_binary(&gpu, [&[2, 3], &[1, 3]], binary);
    let binary: &[Binary<'_>] = &[
        ("stack", &|x, y| Tensor::stack(&[x, y], 1)),
        ("stack behind", &|x, y| Tensor::stack(&[y, x], -1)),
    ];
    check_binary(&gpu, [&[3, 2], &[3, 2]], binary);
}

#[test]
fn a_concatenation_of_many_tensors_gives_each_its_part() {
    let gpu = gpu();
    let x = spread(3, -1.0, 1.0);
    check(&gpu, "concat of 80", &[(&x, &[3])], |x| {
        let constant = gpu.ones(&[40], DType::F32)?;
        let mut parts: Vec<Tensor> = vec![constant.narrow(0, 0, 1)?; 40];
        parts.extend((0..40).map(|index| x[0].narrow(0, index % 3, 1).unwrap()));
        Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0)?.square()
    });
}

#[test]
fn views_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let cases: &[Unary<'_>] = &[
        ("movedim", &|x| x.movedim(0, 1)?.mul(x)),
        ("diagonal", &|x| x.diagonal(0, 0, 1)),
        ("diagonal above", &|x| x.diagonal(1, 0, 1)?.exp()),
        ("unfold", &|x| x.unfold(0, 2, 1)?.exp()),
        ("unflatten", &|x| x.flatten()?.unflatten(0, &[9, 1])),
        ("unbind", &|x| {
            let rows = x.unbind(1)?;
            &rows[0] * &rows[2]
        }),
        ("reshape of columns", &|x| x.t()?.reshape(&[9])),
        ("flatten_axes", &|x| x.t()?.flatten_axes(0, 1)),
        ("reshape_infer", &|x| x.reshape_infer(&[-1, 1])),
    ];
    check_unary(&gpu, &[3, 3], cases);
}

#[test]
fn picked_elements_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let line = &gpu.tensor(&[2_u32, 0, 2, 7], &[4]).unwrap();
    let grid = &gpu.tensor(&[1_i32, 0, 1, -1], &[2, 2]).unwrap();
    let wide = &gpu.tensor(&[2_u32, 0, 1, 1, 2, 2, 9, 0], &[2, 4]).unwrap();
    let column = &gpu.tensor(&[2_u32, 1], &[2, 1]).unwrap();
    let mask = &gpu
        .tensor(&[true, false, true, false, false, true], &[2, 3])
        .unwrap();
    let cases: &[Unary<'_>] = &[
        ("gather along rows", &|x| x.gather(1, wide)),
        ("gather along columns", &|x| x.gather(0, grid)),
        ("gather of one each", &|x| x.gather(-1, column)),
        ("take_along", &|x| {
            x.unsqueeze(0)?.take_along(2, &wide.unsqueeze(1)?)
        }),
        ("index_select of rows", &|x| x.t()?.index_select(0, line)),
        ("index_select of columns", &|x| x.index_select(1, line)),
        ("embedding", &|x| x.embedding(grid)),
        ("index of elements", &|x| {
            x.index(&[Some(column), Some(grid)])
        }),
        ("index of columns", &|x| x.index(&[None, Some(wide)])),
        ("index of axes apart", &|x| {
            let x = x.unsqueeze(1)?;
            x.index(&[Some(grid), None, Some(column)])
        }),
        ("masked_select_first", &|x| x.masked_select_first(mask, 5)),
        #[cfg(not(target_arch = "wasm32"))]
        ("masked_select", &|x| x.masked_select(mask)),
    ];
    check_unary(&gpu, &[2, 3], cases);
    let number = &gpu.tensor(&[0_u32], &[]).unwrap();
    let cases: &[Unary<'_>] = &[
        ("gather of a number", &|x| x.gather(0, number)),
        ("index_select of a number", &|x| x.index_select(0, number)),
    ];
    check_unary(&gpu, &[], cases);
}

#[test]
fn writes_and_sums_at_indices_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    // With places named twice, and one out of range.
    let full = &gpu.tensor(&[2_u32, 0, 2, 1, 1, 5], &[2, 3]).unwrap();
    let part = &gpu.tensor(&[0_i32, 1, 0, -1], &[2, 2]).unwrap();
    let line = &gpu.tensor(&[2_u32, 0, 2], &[3]).unwrap();
    let row = &gpu.tensor(&[1_u32, 0, 1], &[3]).unwrap();
    let column = &gpu.tensor(&[1_u32, 0], &[2, 1]).unwrap();
    let cases: &[Binary<'_>] = &[
        ("scatter", &|x, y| x.scatter(1, full, y)),
        ("scatter along columns", &|x, y| x.scatter(0, part, y)),
        ("scatter of a column", &|x, y| x.scatter(1, column, y)),
        ("scatter_add", &|x, y| x.scatter_add(1, full, y)),
        ("scatter_add of a part", &|x, y| x.scatter_add(0, part, y)),
        ("index_add", &|x, y| x.index_add(1, line, y)),
        ("index_put", &|x, y| {
            x.index_put(&[None, Some(line)], y, false)
        }),
        ("index_put of rows", &|x, y| {
            x.index_put(&[Some(row)], &y.narrow(0, 0, 1)?, false)
        }),
        ("index_put of elements", &|x, y| {
            x.index_put(&[Some(row), Some(line)], &y.select(0, 1)?, false)
        }),
        ("index_put with sums", &|x, y| {
            x.index_put(&[Some(row), Some(line)], &y.select(0, 1)?, true)
        }),
        ("index_put of axes apart", &|x, y| {
            let x = x.unsqueeze(1)?;
            x.index_put(
                &[Some(row), None, Some(line)],
                &y.select(0, 0)?.unsqueeze(-1)?,
                false,
            )
        }),
        ("scatter_", &|x, y| {
            let made = x.sin()?;
            made.scatter_(1, full, y)?;
            made.square()
        }),
        ("scatter_ into a part of zeros", &|x, y| {
            let zeros = gpu.zeros(&[3, 3], DType::F32)?;
            zeros.narrow(0, 1, 2)?.scatter_(0, part, y)?;
            zeros.narrow(0, 0, 2)?.mul(x)
        }),
        ("scatter_add_", &|x, y| {
            let made = x.sin()?;
            made.scatter_add_(1, full, y)?;
            made.square()
        }),
        ("index_add_", &|x, y| {
            let made = x.sin()?;
            made.index_add_(1, line, y)?;
            made.square()
        }),
        ("index_put_", &|x, y| {
            let made = x.sin()?;
            made.index_put_(&[Some(row), Some(line)], &y.select(0, 1)?, false)?;
            made.index_put_(&[Some(row)], &y.select(0, 0)?, true)?;
            made.square()
        }),
    ];
    check_binary(&gpu, [&[2, 3], &[2, 3]], cases);
    let number = &gpu.tensor(&[0_u32], &[]).unwrap();
    let cases: &[Binary<'_>] = &[
        ("scatter of a number", &|x, y| x.scatter(0, number, y)),
        ("scatter_add of a number", &|x, y| {
            x.scatter_add(0, number, y)
        }),
        ("index_add of a number", &|x, y| x.index_add(0, number, y)),
    ];
    check_binary(&gpu, [&[], &[]], cases);
}

#[test]
fn folds_at_indices_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let full = &gpu.tensor(&[2_u32, 0, 2, 1, 1, 5], &[2, 3]).unwrap();
    let part = &gpu.tensor(&[0_i32, 1, 0, -1], &[2, 2]).unwrap();
    let [x, y] = [spread(6, -1.5, 1.5), spread(6, 1.6, -1.4)];
    let zeros = [0.0, 1.0, 0.0, 0.0, 0.5, -1.0];
    let reduces = [
        ScatterReduce::Sum,
        ScatterReduce::Prod,
        ScatterReduce::Mean,
        ScatterReduce::Max,
        ScatterReduce::Min,
    ];
    for reduce in reduces {
        for include_self in [false, true] {
            for (axis, indices) in [(1, full), (0, part)] {
                let name = format!("{reduce:?}, axis {axis}, {include_self}");
                let operands: [(&[f32], &[usize]); 2] = [(&x, &[2, 3]), (&y, &[2, 3])];
                let f = |x: &Tensor, y: &Tensor| {
                    x.scatter_reduce(axis, indices, y, reduce, include_self)
                };
                check(&gpu, &name, &operands, |x| f(&x[0], &x[1])?.square());
                check(&gpu, &format!("{name}, in place"), &operands, |x| {
                    let made = x[0].sin()?;
                    made.scatter_reduce_(axis, indices, &x[1], reduce, include_self)?;
                    made.square()
                });
                if reduce == ScatterReduce::Prod {
                    let operands: [(&[f32], &[usize]); 2] = [(&zeros, &[2, 3]), (&zeros, &[2, 3])];
                    check(&gpu, &format!("{name}, zeros"), &operands, |x| {
                        f(&x[0], &x[1])
                    });
                }
            }
        }
    }
}

#[test]
fn equal_extremes_at_one_place_share_the_gradient() {
    let gpu = gpu();
    let x = parameter(&gpu, &[2.0, 1.0, 3.0], &[3]);
    let y = parameter(&gpu, &[2.0, 2.0, 2.0, 1.0], &[4]);
    let indices = gpu.tensor(&[0_u32, 0, 1, 1], &[4]).unwrap();
    for (include_self, of_x, of_y) in [
        (
            true,
            [1.0 / 3.0, 0.0, 1.0],
            [1.0 / 3.0, 1.0 / 3.0, 1.0, 0.0],
        ),
        (false, [0.0, 0.0, 1.0], [0.5, 0.5, 1.0, 0.0]),
    ] {
        let made = x.scatter_reduce(0, &indices, &y, ScatterReduce::Max, include_self);
        let gradients = made.unwrap().sum_all().unwrap().backward().unwrap();
        let elements = |of: &Tensor| gradients.get(of).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(elements(&x), of_x);
        assert_eq!(elements(&y), of_y);
    }
}

#[test]
fn choices_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let mask = &gpu
        .tensor(&[true, false, true, false, false, true], &[2, 3])
        .unwrap();
    let row = &gpu.tensor(&[false, true, true], &[3]).unwrap();
    let binary: &[Binary<'_>] = &[
        ("where", &|x, y| mask.where_(x, y)),
        ("where of a row", &|x, y| row.where_(y, x)),
        ("where of more", &|x, y| mask.unsqueeze(1)?.where_(x, y)),
    ];
    check_binary(&gpu, [&[2, 3], &[1, 3]], binary);
    let constant = &gpu.full(&[2, 3], 0.5, DType::F32).unwrap();
    let unary: &[Unary<'_>] = &[
        ("where or a constant", &|x| mask.where_(x, constant)),
        ("where or a number", &|x| mask.where_(x, 0.5)),
        ("where, number first", &|x| mask.where_(0.5, x)),
        ("masked_fill", &|x| x.masked_fill(mask, 0.5)),
        ("masked_fill of columns", &|x| x.masked_fill(row, 0.5)),
        ("masked_fill of a broadcast row", &|x| {
            x.narrow(0, 1, 1)?.masked_fill(mask, 0.5)
        }),
        ("masked_fill_", &|x| {
            let made = x.sin()?;
            made.masked_fill_(row, 0.5)?;
            made.narrow(1, 0, 2)?
                .masked_fill_(&mask.narrow(1, 1, 2)?, -1.0)?;
            made.square()
        }),
        ("fill_", &|x| {
            let made = x.sin()?;
            made.narrow(1, 1, 2)?.select(0, 1)?.fill_(0.5)?;
            made.exp()
        }),
        ("fill_ of a row", &|x| {
            let made = x.repeat(&[2, 4])?;
            made.narrow(0, 0, 2)?.fill_(0.5)?;
            made.exp()
        }),
        ("nan_to_num", &|x| x.nan_to_num(0.5, None, None)),
        ("nan_to_num_", &|x| {
            let made = x.sin()?.masked_fill(mask, f32::NAN)?;
            made.select(0, 0)?.fill_(f32::NEG_INFINITY)?;
            made.nan_to_num_(0.5, None, Some(-1.0))?;
            made.square()
        }),
        ("threshold", &|x| x.threshold(0.1, -0.5)),
        ("tril", &|x| x.tril(0)),
        ("tril further", &|x| x.tril(-1)),
        ("triu", &|x| x.unsqueeze(0)?.triu(1)),
        ("dropout", &|x| x.dropout(0.4, 5)),
        ("dropout of all", &|x| x.dropout(1.0, 5)),
    ];
    check_unary(&gpu, &[2, 3], unary);
}

#[test]
fn a_fill_of_everything_leaves_no_gradient() {
    let gpu = gpu();
    let x = parameter(&gpu, &[1.0, 2.0], &[2]);
    let made = x.sin().unwrap();
    made.fill_(3.0).unwrap();
    let gradients = made.sum_all().unwrap().backward().unwrap();
    assert!(gradients.get(&x).is_none());
    assert!(x.fill_(0.0).is_err());
    assert!(x.masked_fill_(&x.gt(0.0).unwrap(), 0.0).is_err());
}

#[test]
fn ternary_operations_have_the_gradients_that_differences_show() {
    type Ternary = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;
    const CASES: &[(&str, Ternary)] = &[
        ("lerp", |a, b, c| a.lerp(b, c)),
        ("lerp, a number", |a, b, _| a.lerp(b, 0.3)),
        ("addcmul", |a, b, c| a.addcmul(b, c, 0.7)),
        ("addcdiv", |a, b, c| a.addcdiv(b, c, -0.7)),
        ("lerp_", |a, b, c| {
            let made = a.sin()?;
            made.lerp_(b, c)?;
            made.square()
        }),
        ("lerp_, a number", |a, b, c| {
            let made = (a * c)?;
            made.lerp_(b, 0.3)?;
            made.square()
        }),
        ("addcmul_", |a, b, c| {
            let made = a.sin()?;
            made.addcmul_(b, c, 0.7)?;
            made.square()
        }),
        ("addcdiv_", |a, b, c| {
            let made = a.sin()?;
            made.addcdiv_(b, c, 0.7)?;
            made.square()
        }),
    ];
    let gpu = gpu();
    let [a, b] = [spread(6, -1.0, 1.0), spread(6, 0.6, -1.0)];
    let [row, column] = [spread(3, 0.5, 2.0), spread(2, 0.6, 1.9)];
    for &(name, f) in CASES {
        let operands: [(&[f32], &[usize]); 3] = [(&a, &[2, 3]), (&b, &[2, 3]), (&row, &[3])];
        check(&gpu, name, &operands, |x| f(&x[0], &x[1], &x[2]));
        let operands: [(&[f32], &[usize]); 3] = [(&a, &[2, 3]), (&b, &[2, 3]), (&column, &[2, 1])];
        check(&gpu, name, &operands, |x| f(&x[0], &x[1], &x[2]));
    }
    // With some operands tracked only, less is kept.
    let constant = gpu.full(&[2, 3], 0.4, DType::F32).unwrap();
    for &(name, f) in CASES {
        let operands: [(&[f32], &[usize]); 2] = [(&a, &[2, 3]), (&b, &[2, 3])];
        check(&gpu, name, &operands, |x| f(&x[0], &x[1], &constant));
        let operands: [(&[f32], &[usize]); 1] = [(&row, &[3])];
        check(&gpu, name, &[(&a, &[2, 3])], |x| {
            f(&x[0], &constant, &constant)
        });
        if !name.ends_with("a number") {
            check(&gpu, name, &operands, |x| f(&constant, &constant, &x[0]));
        }
        check(&gpu, name, &operands, |x| f(&constant, &x[0], &constant));
    }
    let operands: [(&[f32], &[usize]); 3] = [(&column, &[2, 1]), (&row, &[3]), (&row, &[1, 3])];
    for &(name, f) in &CASES[..4] {
        check(&gpu, name, &operands, |x| f(&x[0], &x[1], &x[2]));
    }
}

#[test]
fn gradients_of_gradients_have_the_gradients_that_differences_show() {
    let gpu = gpu();
    let full = &gpu.tensor(&[2_u32, 0, 2, 1, 1, 5], &[2, 3]).unwrap();
    let line = &gpu.tensor(&[2_u32, 0, 2], &[3]).unwrap();
    let mask = &gpu
        .tensor(&[true, false, true, false, false, true], &[2, 3])
        .unwrap();
    let reduce = |x: &Tensor, y: &Tensor, reduce, include_self| {
        x.scatter_reduce(1, full, y, reduce, include_self)
    };
    let cases: &[Binary<'_>] = &[
        ("concat", &|x, y| Tensor::concat(&[x, y, x], 0)),
        ("roll", &|x, y| x.roll(&[1], &[1])?.mul(y)),
        ("repeat", &|x, y| {
            x.repeat(&[2, 2])?.mul(&y.repeat(&[2, 2])?)
        }),
        ("pad", &|x, y| {
            let y = y.pad_with(&[(0, 0), (1, 1)], PadMode::Reflect)?;
            x.pad(&[(0, 0), (1, 1)], 0.5)?.mul(&y)
        }),
        ("gather", &|x, y| x.gather(1, full)?.mul(y)),
        ("index_select", &|x, y| x.index_select(1, line)?.mul(y)),
        ("index", &|x, y| {
            x.index(&[None, Some(line)])?
                .mul(&y.index(&[None, Some(line)])?)
        }),
        ("scatter", &|x, y| x.scatter(1, full, y)),
        ("scatter_add", &|x, y| x.scatter_add(1, full, y)),
        ("index_put", &|x, y| {
            x.index_put(&[None, Some(line)], y, false)
        }),
        ("product", &|x, y| reduce(x, y, ScatterReduce::Prod, true)),
        ("product of sources", &|x, y| {
            reduce(x, y, ScatterReduce::Prod, false)
        }),
        ("mean", &|x, y| reduce(x, y, ScatterReduce::Mean, true)),
        ("max", &|x, y| reduce(x, y, ScatterReduce::Max, true)),
        ("min of sources", &|x, y| {
            reduce(x, y, ScatterReduce::Min, false)
        }),
        ("scatter_add_", &|x, y| {
            let made = x.square()?;
            made.scatter_add_(1, full, y)?;
            Ok(made)
        }),
        ("where", &|x, y| mask.where_(x, y)),
        ("masked_fill", &|x, y| x.masked_fill(mask, 0.5)?.mul(y)),
        ("fill_", &|x, y| {
            let made = (x * y)?;
            made.select(0, 1)?.fill_(0.5)?;
            Ok(made)
        }),
        ("tril and dropout", &|x, y| {
            x.tril(1)?.dropout(0.2, 3)?.mul(y)
        }),
        ("lerp", &|x, y| x.lerp(y, &(x * y)?)),
        ("lerp, a number", &|x, y| x.lerp(y, 0.3)),
        ("addcmul", &|x, y| x.addcmul(y, x, 0.7)),
        ("addcdiv", &|x, y| x.addcdiv(x, y, 0.7)),
    ];
    let [x, y] = [spread(6, -1.5, 1.5), spread(6, 0.5, 2.1)];
    let operands: [(&[f32], &[usize]); 2] = [(&x, &[2, 3]), (&y, &[2, 3])];
    for (name, f) in cases {
        check(&gpu, name, &operands, |x| {
            let inner: Vec<Tensor> = x
                .iter()
                .map(|x| x.clone().requires_grad())
                .collect::<Result<_>>()?;
            let y = f(&inner[0], &inner[1])?;
            let loss = (&y * y.square()?)?.sum_all()?;
            let gradients = loss.backprop().record().run()?;
            let of = |x: &Tensor| gradients.get(x).expect("it depends on it");
            of(&inner[0]) + of(&inner[1])
        });
    }
}

#[test]
fn half_floats_keep_their_type() {
    let gpu = gpu();
    let indices = gpu.tensor(&[2_u32, 0, 2, 1, 1, 5], &[2, 3]).unwrap();
    for dtype in [DType::F16, DType::Bf16] {
        let x = gpu.tensor(&spread(6, 0.5, 1.5), &[2, 3]).unwrap();
        let x = x.cast(dtype).unwrap().requires_grad().unwrap();
        let reduces = [
            ScatterReduce::Sum,
            ScatterReduce::Prod,
            ScatterReduce::Mean,
            ScatterReduce::Max,
        ];
        let mut sum = x.gather(1, &indices).unwrap();
        for reduce in reduces {
            let made = x.scatter_reduce(1, &indices, &x, reduce, true).unwrap();
            sum = (sum + made).unwrap();
        }
        let lerped = x.lerp(&x, &x).unwrap().addcdiv(&x, &x, 0.5).unwrap();
        let sum = (sum + lerped.dropout(0.5, 3).unwrap()).unwrap();
        let line = gpu.tensor(&[2_u32, 0, 2], &[3]).unwrap();
        let sum = (sum + x.index_select(1, &line).unwrap()).unwrap();
        let gradients = sum.cast(DType::F32).unwrap().sum_all().unwrap().backward();
        assert_eq!(gradients.unwrap().get(&x).unwrap().dtype(), dtype);
    }
}

#[test]
fn nothing_has_a_gradient_of_nothing() {
    let gpu = gpu();
    let x = parameter(&gpu, &[], &[0, 3]);
    let rows = gpu.empty(&[0], DType::U32).unwrap();
    let none = gpu.empty(&[0, 3], DType::U32).unwrap();
    let mask = x.gt(0.0).unwrap();
    let made: Vec<Tensor> = [
        Tensor::concat(&[&x, &x], 1),
        x.gather(0, &none),
        x.index_select(0, &rows),
        x.scatter_add(0, &none, &x),
        x.index_add(0, &rows, &x),
        x.masked_fill(&mask, 1.0),
        mask.where_(&x, &x),
        x.addcmul(&x, &x, 1.0),
        x.tril(0),
        x.pad(&[(0, 0), (0, 0)], 1.0),
        x.roll(&[1], &[0]),
    ]
    .into_iter()
    .collect::<Result<_>>()
    .unwrap();
    for made in made {
        let gradients = made.sum_all().unwrap().backward().unwrap();
        assert_eq!(gradients.get(&x).unwrap().shape(), [0, 3]);
    }
    let y = parameter(&gpu, &[1.0, 2.0, 3.0], &[1, 3]);
    let kept = y.index_add(0, &rows, &x).unwrap();
    let kept = (kept + y.scatter(0, &none, &x).unwrap()).unwrap();
    let gradient = kept.sum_all().unwrap().backward().unwrap().get(&y).unwrap();
    assert_eq!(gradient.to_vec::<f32>().unwrap(), [2.0; 3]);
}
