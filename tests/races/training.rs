//! Gradients with kernels of their own, and steps of optimizers.

use lapidary::operations::{Pool, Reduction};
use lapidary::optim::{AdamW, AdamWOptions, LossScaler, LossScalerOptions, Sgd, SgdOptions};
use lapidary::{DType, Gpu, Result, Tensor, grad::Gradients};

use crate::races::Rota;
use crate::races::variants::of;

/// So many parameters that one launch has as many as it takes, and another one fewer.
const LENS: [usize; 8] = [70, 5, 3, 1, 9, 13, 2, 300];

/// Parameters with their gradients.
fn network(gpu: &Gpu, dtype: DType, lens: &[usize]) -> Result<(Vec<Tensor>, Gradients)> {
    let (mut parameters, mut gradients) = (Vec::new(), Gradients::default());
    for &len in lens {
        let parameter = of(gpu, dtype, &[len])?.requires_grad()?;
        let seed = of(gpu, dtype, &[len])?.mul(0.5)?;
        let same = parameter.copy()?;
        same.backprop().seed(&seed).add_to(&mut gradients)?;
        parameters.push(parameter);
    }
    Ok((parameters, gradients))
}

/// All values after two steps.
fn after(parameters: &[Tensor], state: Vec<(String, Tensor)>) -> Result<Vec<Tensor>> {
    let own = parameters.iter().map(Tensor::detach);
    Ok(own
        .chain(state.into_iter().map(|(_, tensor)| tensor))
        .collect())
}

const MOMENTUM: SgdOptions = SgdOptions {
    lr: 0.1,
    momentum: 0.5,
    dampening: 0.0,
    weight_decay: 0.1,
    nesterov: false,
    state_dtype: DType::F32,
};

#[test]
fn steps_of_optimizers() {
    let mut rota = Rota::new();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let formulas = [
            SgdOptions::default(),
            MOMENTUM,
            SgdOptions {
                nesterov: true,
                state_dtype: DType::Bf16,
                ..MOMENTUM
            },
        ];
        for (count, options) in [1, 2, 3, 8]
            .into_iter()
            .flat_map(|n| formulas.map(|of| (n, of)))
        {
            rota.check(&format!("{options:?} of {count}"), dtype, &|gpu| {
                let (parameters, gradients) = network(gpu, dtype, &LENS[..count])?;
                let list: Vec<&Tensor> = parameters.iter().collect();
                let mut sgd = Sgd::new(&list, options)?;
                sgd.step(&gradients)?;
                sgd.step(&gradients)?;
                after(&parameters, sgd.state("sgd"))
            });
        }
        for (count, state_dtype) in [(1, DType::F32), (8, DType::F32), (8, DType::Bf16)] {
            rota.check(&format!("AdamW of {count}"), dtype, &|gpu| {
                let (parameters, mut gradients) = network(gpu, dtype, &LENS[..count])?;
                let list: Vec<&Tensor> = parameters.iter().collect();
                let options = AdamWOptions {
                    state_dtype,
                    ..AdamWOptions::default()
                };
                let mut adam = AdamW::new(&list, options)?;
                let mut scaler = LossScaler::new(gpu, LossScalerOptions::default())?;
                adam.step_scaled(&gradients, &mut scaler)?;
                scaler.unscale(&mut gradients)?;
                let norm = gradients.clip_global_norm(0.5)?;
                adam.step_scaled(&gradients, &mut scaler)?;
                scaler.update()?;
                adam.step(&gradients)?;
                let mut values = after(&parameters, adam.state("adam"))?;
                values.extend([norm, scaler.current_scale()?]);
                Ok(values)
            });
        }
    }
    rota.end();
}

#[test]
fn a_member_of_a_group_without_its_gradient() {
    let mut rota = Rota::new();
    rota.check("AdamW of one in a group", DType::F32, &|gpu| {
        let (parameters, _) = network(gpu, DType::F32, &LENS[..2])?;
        let mut gradients = Gradients::default();
        let loss = parameters[1].sum_all()?;
        loss.backprop().add_to(&mut gradients)?;
        let list: Vec<&Tensor> = parameters.iter().collect();
        let mut adam = AdamW::new(&list, AdamWOptions::default())?;
        adam.step(&gradients)?;
        after(&parameters, adam.state("adam"))
    });
    rota.end();
}

/// The gradients of some tensors, which are marked first, of a loss by them.
fn gradients(
    parameters: &[&Tensor],
    loss: impl FnOnce(&[Tensor]) -> Result<Tensor>,
) -> Result<Vec<Tensor>> {
    let marked = parameters.iter().map(|&one| one.clone().requires_grad());
    let marked: Vec<Tensor> = marked.collect::<Result<_>>()?;
    let gradients = loss(&marked)?.backward()?;
    let own = marked.iter().filter_map(|one| gradients.get(one));
    Ok(own.collect())
}

#[test]
fn gradients_in_one_launch() {
    let mut rota = Rota::new();
    for shape in [[70, 64], [66, 4], [3, 1040], [2, 2000], [70, 33]] {
        rota.check(
            &format!("normalizations of {shape:?}"),
            DType::F32,
            &|gpu| {
                let x = of(gpu, DType::F32, &shape)?;
                let weight = of(gpu, DType::F32, &shape[1..])?;
                let g = x.flip(&[0])?.copy()?;
                let mut made = gradients(&[&x, &weight], |x| {
                    let y = x[0].layer_norm(&shape[1..], Some(&x[1]), None, 0.1)?;
                    y.mul(&g)?.sum_all()
                })?;
                made.extend(gradients(&[&x], |x| {
                    let y = x[0].rms_norm(&shape[1..], None, 0.1)?;
                    y.mul(&g)?.sum_all()
                })?);
                Ok(made)
            },
        );
    }
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for shape in [&[5, 8][..], &[5, 3], &[2, 3, 4], &[2, 4, 3]] {
            rota.check(&format!("cross_entropy {shape:?}"), dtype, &|gpu| {
                let count = shape.iter().product();
                let x = of(gpu, dtype, &[count + 4])?;
                let of_targets = [&shape[..1], &shape[2..]].concat();
                let rows: usize = of_targets.iter().product();
                let targets: Vec<i32> = (0..rows as i32).map(|row| row % 3 - 1).collect();
                let targets = gpu.tensor(&targets, &of_targets)?;
                let mut made = Vec::new();
                // They start at a vec4, or beside one.
                for (start, reduction) in [(0, Reduction::Mean), (1, Reduction::None)] {
                    made.extend(gradients(&[&x], |x| {
                        let logits = x[0].narrow(0, start, count)?.reshape(shape)?;
                        let loss = logits.cross_entropy(&targets, Some(-1), reduction)?;
                        loss.cast(DType::F32)?.square()?.sum_all()
                    })?);
                }
                Ok(made)
            });
        }
        rota.check("chosen positions", dtype, &|gpu| {
            let image = of(gpu, dtype, &[1, 2, 9, 11])?.requires_grad()?;
            let pooled = image.max_pool2d(&Pool::new([3, 3]))?;
            let seed = pooled.copy()?.detach().requires_grad()?;
            let gradients = pooled.backprop().seed(&seed).record().run()?;
            let by_image = gradients.get(&image).expect("it was marked");
            let again = by_image.square()?.sum_all()?.backward()?;
            Ok(vec![
                by_image.detach(),
                again.get(&seed).expect("it was marked"),
            ])
        });
    }
    rota.check("masks of bits", DType::F32, &|gpu| {
        let x = of(gpu, DType::F32, &[1 << 16])?;
        let mask = x.gt(0.6)?;
        gradients(&[&x], |x| x[0].masked_fill(&mask, 0.5)?.sum_all())
    });
    rota.end();
}
