//! Errors about sizes and options name the method that the app called, and the app's line.

use lapidary::operations::{
    Causal, Conv, ConvTranspose, Epilogue, PadMode, Pool, Reduction, ScatterReduce,
};
use lapidary::{DType, Error, Gpu, Result, Source, Tensor};

use super::simulated;

/// Calls with sizes and options that are refused, with the names of the methods and the line.
macro_rules! calls {
    ($($of:ident.$method:ident$(::<$type:ty>)?($($argument:expr),*);)*) => {
        vec![$((
            stringify!($method),
            line!(),
            $of.$method$(::<$type>)?($($argument),*).map(drop),
        )),*]
    };
}

/// `x` is `[2, 4, 6, 6]`, `m` `[4, 6]`, and `i` has 4 indices.
fn with_wrong_options(gpu: &Gpu, [x, m, i]: [&Tensor; 3]) -> Vec<(&'static str, u32, Result<()>)> {
    let conv = |stride, dilation, groups| Conv {
        stride: [stride; 2],
        dilation: [dilation; 2],
        groups,
        ..Conv::<2>::default()
    };
    let line = |stride, groups| Conv {
        stride: [stride],
        groups,
        ..Conv::<1>::default()
    };
    let across = |stride, groups| ConvTranspose {
        stride: [stride; 2],
        groups,
        ..ConvTranspose::<2>::default()
    };
    let pool = |stride, padding| Pool {
        stride: [stride; 2],
        padding: [padding; 2],
        ..Pool::new([2; 2])
    };
    let divided = Pool {
        divisor_override: Some(0),
        ..Pool::new([2; 2])
    };
    let lines = &x.select(0, 0).unwrap();
    let taps = &x.narrow(0, 0, 1).unwrap().squeeze_axis(0).unwrap();
    let weight = &x.narrow(2, 0, 3).unwrap().narrow(3, 0, 3).unwrap();
    let none = &x.narrow(2, 0, 0).unwrap();
    let nothing = &m.narrow(0, 0, 0).unwrap().flatten().unwrap();
    let end = &Epilogue::new().bias(m);
    let cut = &m.narrow(1, 0, 3).unwrap();
    let row = &m.select(0, 0).unwrap();
    let one = m.narrow(0, 0, 1).unwrap().narrow(1, 0, 1).unwrap();
    let tall = &one.broadcast_to(&[1 << 17, 1]).unwrap();
    let wide = &tall.t().unwrap();
    let long = &tall.squeeze_axis(1).unwrap();
    let short = Source::bytes(vec![0; 3].into());
    let same = Conv::<2> {
        padding: Conv::SAME,
        ..conv(2, 1, 1)
    };
    calls! {
        x.conv2d(weight, None, &conv(0, 1, 1));
        x.conv2d(weight, None, &conv(1, 0, 1));
        x.conv2d(weight, None, &conv(1, 9, 1));
        x.conv2d(weight, None, &conv(usize::MAX, 1, 1));
        x.conv2d(weight, None, &conv(1, 1, 3));
        x.conv2d(weight, None, &conv(1, 1, 0));
        x.conv2d(weight, Some(m), &conv(1, 1, 1));
        lines.conv1d(taps, None, &line(0, 1));
        lines.conv1d(taps, None, &line(1, 3));
        x.conv2d_backward(x, weight, &conv(0, 1, 1));
        x.conv2d_backward(x, weight, &conv(1, 1, 3));
        x.conv2d_backward(x, weight, &conv(1, 1, 1));
        lines.conv1d_backward(lines, taps, &line(0, 1));
        x.conv_transpose2d(weight, None, &across(0, 1));
        x.conv_transpose2d(weight, None, &across(1, 3));
        x.max_pool2d(&pool(0, 0));
        x.max_pool2d(&pool(1, 5));
        x.avg_pool2d(&pool(0, 0));
        x.avg_pool2d(&divided);
        x.avg_pool2d(&Pool::new([9; 2]));
        x.max_pool2d(&Pool { divisor_override: Some(3), ..Pool::new([2; 2]) });
        x.max_pool2d_backward(x, &pool(0, 0));
        x.avg_pool2d_backward(x, &pool(1, 5));
        x.max_pool2d_with_indices(&pool(0, 0));
        lines.max_pool1d(&Pool { stride: [0], ..Pool::new([2]) });
        lines.avg_pool1d(&Pool::new([9]));
        none.max_pool2d(&pool(1, 0));
        none.adaptive_avg_pool2d([2, 2]);
        x.adaptive_max_pool2d([1 << 30, 2]);
        none.adaptive_max_pool2d([2, 2]);
        m.split(0, 0);
        m.split(1, 2);
        m.split_sizes(&[1, 2], 0);
        m.split_sizes(&[4], 2);
        m.chunk(0, 0);
        m.chunk(2, 3);
        m.tensor_split(0, 0);
        m.tensor_split(2, 5);
        m.tensor_split_at(&[1], 5);
        m.repeat(&[2]);
        m.repeat(&[1 << 20, 1 << 20]);
        m.repeat_interleave(2, 4);
        m.roll(&[1], &[0, 1]);
        m.roll(&[1], &[7]);
        m.diagonal(0, 0, 0);
        m.diagonal(0, 0, 5);
        x.diag(0);
        m.narrow(0, 3, 2);
        m.narrow(2, 0, 1);
        m.select(0, 4);
        m.select(4, 0);
        m.slice(0, 0, 2, 0);
        m.slice(3, 0, 2, 1);
        m.permute(&[0]);
        m.permute(&[0, 0]);
        m.transpose(0, 2);
        x.t();
        m.movedim(0, 2);
        m.unfold(0, 5, 1);
        m.unfold(0, 2, 0);
        m.unfold(3, 2, 1);
        m.unflatten(0, &[3, 2]);
        m.unflatten_infer(0, &[-1, -1]);
        m.unflatten_infer(0, &[3, -1]);
        m.flatten_axes(1, 0);
        m.flatten_axes(0, 5);
        m.reshape(&[5, 5]);
        m.reshape_infer(&[-1, 5]);
        m.reshape_infer(&[-1, -1]);
        m.view_as(&[5, 5]);
        m.broadcast_to(&[6]);
        m.broadcast_to(&[5, 6]);
        m.squeeze_axis(0);
        m.squeeze_axis(3);
        m.unsqueeze(4);
        m.flip(&[0, 0]);
        m.flip(&[3]);
        m.unbind(2);
        m.sum(&[2]);
        m.sum_keepdim(&[0, 0]);
        m.mean(&[2]);
        m.max(&[-3]);
        m.min_keepdim(&[2]);
        m.prod(&[2]);
        m.logsumexp(&[2]);
        m.var(&[2], 1);
        m.std(&[0, 0], 1);
        m.norm(&[2], 2.0);
        m.argmax(2);
        m.argmin_keepdim(2);
        m.argmax_keepdim(2);
        nothing.argmax_all();
        nothing.argmin_all();
        m.max_with_indices(2);
        nothing.min_with_indices(0);
        m.max_with_indices_keepdim(2);
        m.min_with_indices_keepdim(2);
        nothing.min_with_indices_keepdim(0);
        nothing.max_with_indices_all();
        nothing.min_with_indices_all();
        m.cumsum(2);
        m.cumprod(2);
        m.cummax(2);
        m.logcumsumexp(2);
        m.softmax(2);
        m.log_softmax(2);
        m.softmax_backward(m, 2);
        m.log_softmax_backward(m, 2);
        m.normalize(2, 2, 1e-6);
        m.glu(2);
        cut.glu(1);
        m.sort(2, false);
        m.argsort(2, false);
        m.top_k(7, 1, true);
        m.top_k(1, 2, true);
        m.layer_norm(&[5], None, None, 1e-5);
        m.layer_norm(&[], None, None, 1e-5);
        m.rms_norm(&[5], None, 1e-5);
        m.layer_norm_backward(m, &[5], None, 1e-5);
        x.group_norm(3, None, None, 1e-5);
        x.group_norm(0, None, None, 1e-5);
        m.pad(&[(1, 1)], 0.0);
        m.pad(&[(1 << 40, 0), (0, 0)], 0.0);
        m.pad_with(&[(4, 0), (0, 0)], PadMode::Reflect);
        m.pad_with(&[(0, 0)], PadMode::Circular);
        row.tril(0);
        m.index_select(2, i);
        m.gather(2, i);
        m.take_along(2, i);
        m.scatter(2, i, m);
        m.scatter_add(2, i, m);
        m.index_add(2, i, m);
        m.scatter_reduce(2, i, m, ScatterReduce::Max, true);
        m.repeat_interleave_by(i, 2);
        m.embedding_with(i, 9);
        m.index(&[None, None, Some(i)]);
        m.index(&[]);
        m.index_put(&[None], m, false);
        m.index_put(&[None, None, Some(i)], row, false);
        m.search_sorted(x, false);
        m.one_hot(3, DType::F32);
        m.multinomial(7, false, 1);
        x.multinomial(1, true, 1);
        m.matmul(m);
        m.matmul_with(&m.t().unwrap(), end);
        m.linear(lines, None);
        m.linear(m, Some(m));
        m.quantize(Some(3));
        x.quantize(None);
        m.outer(m);
        m.nll_loss(m, None, Reduction::Mean);
        m.mse_loss(x, Reduction::Mean);
        m.l1_loss(cut, Reduction::Mean);
        m.smooth_l1_loss(cut, 1.0, Reduction::Mean);
        m.rotary(m, m, false);
        x.scaled_dot_product_attention(lines, m, None, Causal::No, None);
        x.prelu(&m.flatten().unwrap());
        m.copy_(x);
        x.conv2d(weight, None, &same);
        x.conv2d_backward(x, weight, &same);
        tall.add(wide);
        tall.lt(wide);
        tall.lerp(wide, wide);
        tall.matmul(wide);
        tall.take_along(0, &wide.cast(DType::I32).unwrap());
        tall.pad(&[(0, 0), (1 << 16, 1 << 16)], 0.0);
        long.outer(long);
        long.diag(0);
        long.repeat(&[1 << 17]);
        wide.repeat_interleave(1 << 17, 0);
        i.one_hot(i32::MAX as usize, DType::F32);
        i.one_hot(usize::MAX, DType::F32);
        m.rotary(m, row, false);
        gpu.zeros(&[1; 9], DType::F32);
        gpu.full(&[1; 9], 1.0, DType::F32);
        gpu.zeros(&[1 << 40], DType::F32);
        gpu.empty(&[1 << 40], DType::F32);
        gpu.full(&[1 << 40], 2.0, DType::F32);
        gpu.ones(&[1 << 40], DType::F32);
        gpu.arange(0.0, f32::INFINITY, 1.0, DType::F32);
        gpu.eye(1 << 20, DType::F32);
        gpu.eye_with(1 << 20, 1 << 20, DType::F32);
        gpu.rand_uniform(&[1 << 40], 0.0, 1.0, 1, DType::F32);
        gpu.rand_uniform(&[1; 9], 0.0, 1.0, 1, DType::F32);
        gpu.rand_normal(&[4], 0.0, 1.0, 1, DType::I32);
        gpu.tensor(&[1.0_f32; 9], &[1; 9]);
        gpu.tensor(&[1.0_f32; 5], &[2, 3]);
        gpu.upload_with(&[2, 3], |out| out.push(1.0_f32));
        gpu.upload_with::<f32>(&[1; 9], |_| ());
        gpu.backed(short.clone(), &[2, 3], DType::F32);
        i.backed_by(short);
        i.write(&[1_i32; 5]);
    }
}

#[test]
fn wrong_sizes_and_options_are_refused_with_the_method_and_the_line() -> Result<()> {
    let gpu = simulated();
    let mut wrong = Vec::new();
    for tracked in [false, true] {
        let made = |shape: &[usize]| match gpu.ones(shape, DType::F32)? {
            made if tracked => made.requires_grad(),
            made => Ok(made),
        };
        let [x, m] = [made(&[2, 4, 6, 6])?, made(&[4, 6])?];
        let i = gpu.tensor(&[0_i32, 1, 2, 3], &[4])?;
        for (method, line, result) in with_wrong_options(&gpu, [&x, &m, &i]) {
            let Err(error) = result else {
                wrong.push(format!("{method}: no error"));
                continue;
            };
            let text = error.to_string();
            let is_named =
                [": ", " (called"].map(|next| text.starts_with(&format!("{method}{next}")));
            let has_line = text.contains(&format!(" (called at tests/views/options.rs:{line})"));
            let is_of_call = matches!(
                error,
                Error::Shape { .. }
                    | Error::DType { .. }
                    | Error::Axis { .. }
                    | Error::Length { .. }
                    | Error::NeverFits { .. }
            );
            if is_of_call && !(is_named.contains(&true) && has_line) {
                wrong.push(format!("{method}, tracked {tracked}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
