//! Steps of optimizers, with gradients that are clipped and scaled.

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
        let seed = of(gpu, dtype, &[len])?.mul_scalar(0.5)?;
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
                after(&parameters, sgd.state())
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
                let mut values = after(&parameters, adam.state())?;
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
        after(&parameters, adam.state())
    });
    rota.end();
}
