//! Faults of the driver during the step of an optimizer. Each tensor has its elements from before
//! or from after the step, or an error; and training goes on from what was saved.

use lapidary::grad::Gradients;
use lapidary::optim::{AdamW, AdamWOptions};
use lapidary::sim::{Fault, FaultKind, SimHandle};
use lapidary::{Budget, DType, Gpu, Result, Tensor};

use super::{FAST_LINK, Network, bits, end, executed, is_lost, open, open_tight};
use crate::pressure::faults::{Sample, calls, faults_since, forgets_kernels, sampled};

const OPTIONS: AdamWOptions = AdamWOptions {
    lr: 0.01,
    betas: (0.9, 0.99),
    eps: 1e-8,
    weight_decay: 0.1,
    state_dtype: DType::F32,
};

const SAMPLE: Sample = Sample {
    short: 97,
    longer: 11,
    longest: 1,
};

/// A training whose second step is to come.
struct Prepared {
    gpu: Gpu,
    sim: SimHandle,
    network: Network,
    adam: AdamW,
    gradients: Gradients,
}

impl Prepared {
    fn new((gpu, sim): (Gpu, SimHandle)) -> Self {
        let make = || {
            let network = Network::new(&gpu, executed())?;
            let parameters: Vec<&Tensor> = network.parameters.iter().collect();
            let mut adam = AdamW::new(&parameters, OPTIONS)?;
            adam.step(&network.loss()?.backward()?)?;
            let gradients = network.loss()?.backward()?;
            gpu.finish()?;
            Ok::<_, lapidary::Error>((network, adam, gradients))
        };
        let (network, adam, gradients) = make().expect("no fault yet");
        Prepared {
            gpu,
            sim,
            network,
            adam,
            gradients,
        }
    }

    /// The elements of all parameters, then of the optimizer's state.
    fn bits(&self) -> Vec<Result<Vec<u32>>> {
        let parameters = self.network.parameters.iter().map(bits);
        let state = self.adam.state("adam").into_iter();
        parameters
            .chain(state.map(|(_, tensor)| bits(&tensor)))
            .collect()
    }

    /// Goes back to these elements.
    fn restore(&mut self, saved: &[Vec<u32>]) -> Result<()> {
        let (parameters, state) = saved.split_at(self.network.parameters.len());
        let floats =
            |words: &[u32]| -> Vec<f32> { words.iter().copied().map(f32::from_bits).collect() };
        {
            let _no_grad = self.gpu.no_grad();
            for (parameter, saved) in self.network.parameters.iter().zip(parameters) {
                parameter.write(&floats(saved))?;
            }
        }
        let (mut state, names) = (state.iter(), self.adam.state("adam"));
        self.adam.load_state("adam", |name| {
            let saved = state.next().expect("one for each name");
            let (_, like) = (names.iter().find(|(one, _)| one == name)).expect("its own name");
            match like.dtype() {
                DType::U32 => self.gpu.tensor(saved, like.shape()),
                _ => self.gpu.tensor(&floats(saved), like.shape()),
            }
        })
    }
}

/// The elements before the second step and after it.
struct Expected {
    before: Vec<Vec<u32>>,
    after: Vec<Vec<u32>>,
}

fn expected() -> Expected {
    let mut prepared = Prepared::new(open(FAST_LINK, Budget::default()));
    let before = prepared.bits().into_iter().collect::<Result<_>>();
    let stepped = prepared.adam.step(&prepared.gradients);
    stepped.expect("no fault");
    let after = prepared.bits().into_iter().collect::<Result<_>>();
    Expected {
        before: before.expect("no fault"),
        after: after.expect("no fault"),
    }
}

fn check(fault: Fault, expected: &Expected) {
    let name = &format!("{fault:?}");
    let mut prepared = Prepared::new(open_tight(FAST_LINK));
    prepared.sim.arm(fault);
    let stepped = prepared.adam.step(&prepared.gradients);
    let _ = prepared.gpu.finish();
    prepared.sim.disarm();
    let both = expected.before.iter().zip(&expected.after);
    for (got, (before, after)) in prepared.bits().into_iter().zip(both) {
        let Ok(got) = got else { continue };
        let is_before = stepped.is_err() && got == *before;
        assert!(
            is_before || got == *after,
            "{name}: neither before nor after"
        );
    }
    if is_lost(&prepared.gpu) {
        assert_eq!(fault.kind, FaultKind::Lost, "{name}");
        prepared.gpu.reopen().expect("there is another device");
    }
    prepared.gradients = Gradients::default();
    let again = prepared.restore(&expected.before).and_then(|()| {
        let gradients = prepared.network.loss()?.backward()?;
        prepared.adam.step(&gradients)?;
        prepared.bits().into_iter().collect::<Result<Vec<_>>>()
    });
    match again {
        Ok(got) => assert!(got == expected.after, "{name}: another training"),
        Err(error) => assert!(forgets_kernels(fault), "{name}: {error}"),
    }
    prepared.network.check_saved(name);
    let Prepared {
        gpu,
        sim,
        network,
        adam,
        gradients,
    } = prepared;
    drop((network, adam, gradients));
    end(name, gpu, &sim);
}

#[test]
fn every_call_of_the_driver_failed_in_a_step() {
    let expected = expected();
    let mut prepared = Prepared::new(open_tight(FAST_LINK));
    let calls_before = calls(&prepared.sim);
    prepared.adam.step(&prepared.gradients).expect("no fault");
    prepared.gpu.finish().expect("no fault");
    let faults = faults_since(&prepared.sim, calls_before);
    // Where the host has a heap, evictions and restores call the driver for little.
    let least = match prepared.gpu.caps().host_heap {
        true => 50,
        false => 500,
    };
    assert!(faults.len() > least, "{} faults", faults.len());
    let faults = sampled(&faults, SAMPLE);
    for fault in faults {
        check(fault, &expected);
    }
}
