//! Operands of another device: every operation of several tensors refuses them, and leaves what there is.

use lapidary::{Conv, DType, Epilogue, Error, Pool, Reduction, Result, Tensor};

use crate::{ended, open, options};

/// Of one device: a matrix of 4 × 4, places in it, and a mask; lines and planes of it are `x` too.
struct Side {
    x: Tensor,
    places: Tensor,
    mask: Tensor,
    plane: Tensor,
    line: Tensor,
}

impl Side {
    fn new(gpu: &lapidary::Gpu) -> Result<Side> {
        let x = gpu.arange(0, 16, 1, DType::F32)?.reshape(&[4, 4])?;
        Ok(Side {
            places: gpu.tensor(&[0_u32, 3, 1, 2], &[4])?,
            mask: x.gt_scalar(7.0)?,
            plane: x.reshape(&[1, 1, 4, 4])?,
            line: x.reshape(&[4, 1, 4])?,
            x,
        })
    }

    fn row(&self) -> Result<Tensor> {
        self.x.select(0, 0)
    }

    fn all_places(&self) -> Result<Tensor> {
        self.places.broadcast_to(&[4, 4])?.copy()
    }
}

type Call = fn(&Side, &Side) -> Result<()>;

/// Operations by name, each with at least one operand that is not of the first one's device.
const CALLS: &[(&str, Call)] = &[
    ("add", |a, b| a.x.add(&b.x).map(drop)),
    ("rem", |a, b| a.x.rem(&b.x).map(drop)),
    ("pow", |a, b| a.x.pow(&b.x).map(drop)),
    ("maximum", |a, b| a.x.maximum(&b.x).map(drop)),
    ("eq", |a, b| a.x.eq(&b.x).map(drop)),
    ("logaddexp", |a, b| a.x.logaddexp(&b.x).map(drop)),
    ("gcd_", |a, b| a.places.gcd_(&b.places)),
    ("is_close", |a, b| {
        a.x.is_close(&b.x, 0.1, 0.1, true).map(drop)
    }),
    ("prelu", |a, b| a.x.prelu(&b.row()?).map(drop)),
    ("lerp, end", |a, b| a.x.lerp(&b.x, &a.x).map(drop)),
    ("lerp, weight", |a, b| a.x.lerp(&a.x, &b.x).map(drop)),
    ("lerp_", |a, b| a.x.lerp_(&b.x, &a.x)),
    ("lerp_scalar", |a, b| a.x.lerp_scalar(&b.x, 0.5).map(drop)),
    ("lerp_scalar_", |a, b| a.x.lerp_scalar_(&b.x, 0.5)),
    ("addcmul", |a, b| a.x.addcmul(&b.x, &a.x, 1.0).map(drop)),
    ("addcdiv_", |a, b| a.x.addcdiv_(&a.x, &b.x, 1.0)),
    ("addcmul_", |a, b| a.x.addcmul_(&a.x, &b.x, 1.0)),
    ("addcdiv", |a, b| a.x.addcdiv(&b.x, &a.x, 1.0).map(drop)),
    ("logical_and", |a, b| a.mask.logical_and(&b.mask).map(drop)),
    ("bitwise_xor", |a, b| {
        a.places.bitwise_xor(&b.places).map(drop)
    }),
    ("add_", |a, b| a.x.add_(&b.x)),
    ("copy_", |a, b| a.x.copy_(&b.x)),
    ("where_, first", |a, b| a.mask.where_(&b.x, &a.x).map(drop)),
    ("where_, second", |a, b| a.mask.where_(&a.x, &b.x).map(drop)),
    ("masked_fill", |a, b| {
        a.x.masked_fill(&b.mask, 1.0).map(drop)
    }),
    ("masked_fill_", |a, b| a.x.masked_fill_(&b.mask, 1.0)),
    ("concat", |a, b| Tensor::concat(&[&a.x, &b.x], 0).map(drop)),
    ("stack", |a, b| Tensor::stack(&[&a.x, &b.x], 0).map(drop)),
    ("einsum", |a, b| {
        Tensor::einsum("ij,jk->ik", &[&a.x, &b.x]).map(drop)
    }),
    ("gather", |a, b| a.x.gather(1, &b.all_places()?).map(drop)),
    ("take_along", |a, b| {
        a.x.take_along(1, &b.all_places()?).map(drop)
    }),
    ("index_select", |a, b| {
        a.x.index_select(0, &b.places).map(drop)
    }),
    ("embedding", |a, b| a.x.embedding(&b.places).map(drop)),
    ("scatter, indices", |a, b| {
        a.x.scatter(1, &b.all_places()?, &a.x).map(drop)
    }),
    ("scatter, source", |a, b| {
        a.x.scatter(1, &a.all_places()?, &b.x).map(drop)
    }),
    ("scatter_add", |a, b| {
        a.x.scatter_add(1, &a.all_places()?, &b.x).map(drop)
    }),
    ("index_add, indices", |a, b| {
        a.x.index_add(0, &b.places, &a.x).map(drop)
    }),
    ("index_add, source", |a, b| {
        a.x.index_add(0, &a.places, &b.x).map(drop)
    }),
    ("scatter_", |a, b| a.x.scatter_(1, &a.all_places()?, &b.x)),
    ("scatter_add_", |a, b| {
        a.x.scatter_add_(1, &b.all_places()?, &a.x)
    }),
    ("index_add_", |a, b| a.x.index_add_(0, &a.places, &b.x)),
    ("matmul", |a, b| a.x.matmul(&b.x).map(drop)),
    ("matmul_with, bias", |a, b| {
        let end = Epilogue::new().bias(&b.row()?);
        a.x.matmul_with(&a.x, &end).map(drop)
    }),
    ("matmul_with, residual", |a, b| {
        let end = Epilogue::new().residual(&b.x);
        a.x.matmul_with(&a.x, &end).map(drop)
    }),
    ("matmul_with, scales", |a, b| {
        let end = Epilogue::new().scale_columns(&b.row()?);
        a.x.matmul_with(&a.x, &end).map(drop)
    }),
    ("matmul_quantized", |a, b| {
        let weights = b.x.quantize(None)?;
        a.x.matmul_quantized(&weights).map(drop)
    }),
    ("linear", |a, b| a.x.linear(&a.x, Some(&b.row()?)).map(drop)),
    ("rotary", |a, b| {
        let halves = b.x.narrow(1, 0, 2)?;
        a.x.rotary(&halves, &halves, false).map(drop)
    }),
    ("layer_norm, weight", |a, b| {
        a.x.layer_norm(&[4], Some(&b.row()?), None, 1e-5).map(drop)
    }),
    ("layer_norm, bias", |a, b| {
        a.x.layer_norm(&[4], None, Some(&b.row()?), 1e-5).map(drop)
    }),
    ("rms_norm", |a, b| {
        a.x.rms_norm(&[4], Some(&b.row()?), 1e-5).map(drop)
    }),
    ("group_norm", |a, b| {
        a.x.group_norm(2, Some(&b.row()?), None, 1e-5).map(drop)
    }),
    ("attention, keys", |a, b| {
        a.plane
            .scaled_dot_product_attention(&b.plane, &a.plane, None, false, None)
            .map(drop)
    }),
    ("attention, values", |a, b| {
        a.plane
            .scaled_dot_product_attention(&a.plane, &b.plane, None, false, None)
            .map(drop)
    }),
    ("attention, mask", |a, b| {
        let x = &a.plane;
        x.scaled_dot_product_attention(x, x, Some(&b.x), false, None)
            .map(drop)
    }),
    ("avg_pool2d_backward", |a, b| {
        let pool = Pool::new([2, 2]);
        a.plane
            .avg_pool2d(&pool)?
            .avg_pool2d_backward(&b.plane, &pool)
            .map(drop)
    }),
    ("max_pool1d_backward", |a, b| {
        let pool = Pool::new([2]);
        a.line
            .max_pool1d(&pool)?
            .max_pool1d_backward(&b.line, &pool)
            .map(drop)
    }),
    ("conv1d_backward", |a, b| {
        let gradient = a.line.conv1d(&a.line, None, &Conv::default())?;
        gradient
            .conv1d_backward(&a.line, &b.line, &Conv::default())
            .map(drop)
    }),
    ("matmul_quantized_with", |a, b| {
        let end = Epilogue::new().bias(&b.row()?);
        a.x.matmul_quantized_with(&a.x.quantize(None)?, &end)
            .map(drop)
    }),
    ("conv1d", |a, b| {
        a.line.conv1d(&b.line, None, &Conv::default()).map(drop)
    }),
    ("conv2d, weight", |a, b| {
        a.plane.conv2d(&b.plane, None, &Conv::default()).map(drop)
    }),
    ("conv2d, bias", |a, b| {
        let bias = b.x.reshape(&[16])?.narrow(0, 0, 1)?;
        a.plane
            .conv2d(&a.plane, Some(&bias), &Conv::default())
            .map(drop)
    }),
    ("conv2d_backward", |a, b| {
        let gradient = a.plane.conv2d(&a.plane, None, &Conv::default())?;
        gradient
            .conv2d_backward(&a.plane, &b.plane, &Conv::default())
            .map(drop)
    }),
    ("max_pool2d_backward", |a, b| {
        let pool = Pool::new([2, 2]);
        a.plane
            .max_pool2d(&pool)?
            .max_pool2d_backward(&b.plane, &pool)
            .map(drop)
    }),
    ("softmax_backward", |a, b| {
        a.x.softmax_backward(&b.x, 1).map(drop)
    }),
    ("log_softmax_backward", |a, b| {
        a.x.log_softmax_backward(&b.x, 1).map(drop)
    }),
    ("gelu_backward", |a, b| a.x.gelu_backward(&b.x).map(drop)),
    ("layer_norm_backward, input", |a, b| {
        a.x.layer_norm_backward(&b.x, &[4], None, 1e-5).map(drop)
    }),
    ("layer_norm_backward, weight", |a, b| {
        a.x.layer_norm_backward(&a.x, &[4], Some(&b.row()?), 1e-5)
            .map(drop)
    }),
    ("cross_entropy", |a, b| {
        a.x.cross_entropy(&b.places, None, Reduction::Mean)
            .map(drop)
    }),
    ("nll_loss", |a, b| {
        a.x.nll_loss(&b.places, None, Reduction::Mean).map(drop)
    }),
    ("mse_loss", |a, b| {
        a.x.mse_loss(&b.x, Reduction::Mean).map(drop)
    }),
];

#[test]
fn every_operation_refuses_operands_of_another_device_and_leaves_what_there_is() {
    let [(home, of_home), (away, of_away)] = [(); 2].map(|()| open(options()));
    let (here, there) = (Side::new(&home).unwrap(), Side::new(&away).unwrap());
    let values: Vec<f32> = (0..16).map(|at| at as f32).collect();
    for (name, call) in CALLS {
        for (a, b) in [(&here, &there), (&there, &here)] {
            let refused = call(a, b);
            assert!(
                matches!(refused, Err(Error::Foreign { .. })),
                "{name}: {refused:?}"
            );
            assert_eq!(a.x.to_vec::<f32>().unwrap(), values, "{name}");
            assert_eq!(a.places.to_vec::<u32>().unwrap(), [0, 3, 1, 2], "{name}");
        }
        // It is the device that is refused, and nothing else about these operands.
        let [copy, other] = [(); 2].map(|()| Side::new(&home).unwrap());
        call(&copy, &other).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    drop((here, there));
    ended(home, &of_home);
    ended(away, &of_away);
}
