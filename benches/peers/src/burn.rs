//! burn on wgpu, as its documentation shows: with its default fusion and autotuning.

use std::process::ExitCode;

use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use lapidary_harness::{
    About, BATCH, CLASSES, Event, HIDDEN, INPUTS, PLACES, RATE, Result, Subject, Timed, Way, Work,
    events,
};

fn main() -> ExitCode {
    lapidary_harness::main(|| {
        Ok(Box::new(Burn {
            device: Device::wgpu(Default::default()),
        }))
    })
}

struct Burn {
    device: Device,
}

/// `values` brings the result of a call to the host, for any rank.
struct Op<'a, F, T> {
    burn: &'a Burn,
    call: F,
    made: Option<T>,
    values: fn(T) -> Vec<TensorData>,
    /// Whether the read is part of the call.
    reads: bool,
}

impl<F: FnMut() -> T, T: Clone> Timed for Op<'_, F, T> {
    fn run(&mut self) -> Result {
        self.made = None;
        let made = self.made.insert((self.call)());
        match self.reads {
            true => drop((self.values)(made.clone())),
            false => self.burn.device.sync()?,
        }
        Ok(())
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        let made = self.made.clone().ok_or("nothing was run")?;
        let mut values = Vec::new();
        for data in (self.values)(made) {
            values.extend(
                data.try_to_vec::<f32>()
                    .map_err(|error| format!("{error:?}"))?,
            );
        }
        Ok(values)
    }
}

type Prepared<'a> = Result<Option<Box<dyn Timed + 'a>>>;

impl Burn {
    fn tensor<const D: usize>(&self, values: &[f32], shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values.to_vec(), shape), &self.device)
    }

    fn op<'a, const D: usize>(&'a self, call: impl FnMut() -> Tensor<D> + 'a) -> Prepared<'a> {
        Ok(Some(Box::new(Op {
            burn: self,
            call,
            made: None,
            values: |made: Tensor<D>| vec![made.into_data()],
            reads: false,
        })))
    }

    fn read<'a, const D: usize>(&'a self, call: impl FnMut() -> Tensor<D> + 'a) -> Prepared<'a> {
        Ok(Some(Box::new(Op {
            burn: self,
            call,
            made: None,
            values: |made: Tensor<D>| vec![made.into_data()],
            reads: true,
        })))
    }

    fn training<'a>(&'a self, steps: usize, inputs: &'a [Vec<f32>]) -> Prepared<'a> {
        let images = self.tensor(&inputs[0], [BATCH, INPUTS]);
        let classes = self.tensor(&inputs[1], [BATCH, CLASSES]);
        let mut network = Network {
            first: self.tensor(&inputs[2], [INPUTS, HIDDEN]),
            first_bias: self.tensor(&[0.0; HIDDEN], [1, HIDDEN]),
            second: self.tensor(&inputs[3], [HIDDEN, CLASSES]),
            second_bias: self.tensor(&[0.0; CLASSES], [1, CLASSES]),
        };
        Ok(Some(Box::new(Op {
            burn: self,
            call: move || {
                for _ in 0..steps {
                    network = network.step(&images, &classes);
                }
                network.clone()
            },
            made: None,
            values: |network: Network| {
                vec![
                    network.first.into_data(),
                    network.first_bias.into_data(),
                    network.second.into_data(),
                    network.second_bias.into_data(),
                ]
            },
            reads: false,
        })))
    }
}

#[derive(Clone)]
struct Network {
    first: Tensor<2>,
    first_bias: Tensor<2>,
    second: Tensor<2>,
    second_bias: Tensor<2>,
}

impl Network {
    fn step(&self, images: &Tensor<2>, classes: &Tensor<2>) -> Network {
        let hidden = images.clone().matmul(self.first.clone()) + self.first_bias.clone();
        let hidden = activation::relu(hidden);
        let outputs = hidden.clone().matmul(self.second.clone()) + self.second_bias.clone();
        let of_outputs = (activation::softmax(outputs, 1) - classes.clone()) / BATCH as f32;
        let flat = hidden.clone().lower_equal_elem(0.0);
        let of_hidden = of_outputs.clone().matmul(self.second.clone().transpose());
        let of_hidden = of_hidden.mask_fill(flat, 0.0);
        let of_first = images.clone().transpose().matmul(of_hidden.clone());
        let of_second = hidden.transpose().matmul(of_outputs.clone());
        Network {
            first: self.first.clone() - of_first * RATE,
            first_bias: self.first_bias.clone() - of_hidden.sum_dim(0) * RATE,
            second: self.second.clone() - of_second * RATE,
            second_bias: self.second_bias.clone() - of_outputs.sum_dim(0) * RATE,
        }
    }
}

impl Subject for Burn {
    fn about(&self) -> About {
        About {
            by: "burn",
            adapter: format!("{:?}", self.device),
            driver: "wgpu".into(),
        }
    }

    fn prepare<'a>(&'a self, work: &Work, inputs: &'a [Vec<f32>]) -> Prepared<'a> {
        match *work {
            Work::Matmul {
                batch,
                m,
                n,
                k,
                is_b_transposed,
            } => {
                let a = self.tensor(&inputs[0], [batch, m, k]);
                let b = match is_b_transposed {
                    true => self.tensor(&inputs[1], [batch, n, k]).transpose(),
                    false => self.tensor(&inputs[1], [batch, k, n]),
                };
                self.op(move || a.clone().matmul(b.clone()))
            }
            Work::Add { len } => {
                let [a, b] = [0, 1].map(|index| self.tensor(&inputs[index], [len]));
                self.op(move || a.clone() + b.clone())
            }
            Work::Chain { len } => {
                let of = [0, 1, 2, 3].map(|index| self.tensor(&inputs[index], [len]));
                self.op(move || {
                    let [a, b, c, d] = of.clone();
                    activation::relu(a * b + c) * d
                })
            }
            Work::Softmax { rows, columns } => {
                let x = self.tensor(&inputs[0], [rows, columns]);
                self.op(move || activation::softmax(x.clone(), 1))
            }
            Work::Sum { len } => {
                let x = self.tensor(&inputs[0], [len]);
                self.op(move || x.clone().sum())
            }
            Work::Transpose { rows, columns } => {
                let x = self.tensor(&inputs[0], [rows, columns]);
                // A view copies nothing, so 0 is added to write the transposed elements.
                self.op(move || x.clone().transpose() + 0.0)
            }
            Work::Gelu { len } => {
                let x = self.tensor(&inputs[0], [len]);
                self.op(move || activation::gelu(x.clone()))
            }
            Work::Increments { ops, len } => {
                let first = self.tensor(&inputs[0], [len]);
                self.read(move || (0..ops).fold(first.clone(), |x, _| x + 1.0))
            }
            Work::Rotations { ops, len } => {
                let first = self.tensor(&inputs[0], [len]);
                let next: Vec<i32> = (0..len).map(|i| ((i + 1) % len) as i32).collect();
                let next = Tensor::<1, Int>::from_data(TensorData::new(next, [len]), &self.device);
                self.read(move || (0..ops).fold(first.clone(), |x, _| x.select(0, next.clone())))
            }
            Work::Upload {
                len,
                way: Way::Staged,
            } => self.op(move || self.tensor(&inputs[0], [len])),
            Work::Blocks { events: count } => {
                let events = events(count);
                self.op(move || {
                    let mut places: [Option<Tensor<1>>; PLACES] = [const { None }; PLACES];
                    for event in &events {
                        match *event {
                            Event::Drop { place } => places[place] = None,
                            Event::Allocate { place, bytes } => {
                                let len = bytes as usize / 4;
                                places[place] = Some(Tensor::empty([len], &self.device));
                            }
                        }
                    }
                    Tensor::<1>::empty([1], &self.device)
                })
            }
            Work::Training { steps } => self.training(steps, inputs),
            // Its tensors are values, so it cannot write into one. And `into_data` returns after a
            // microsecond, before it can have read 64 MiB, so the real time is unknown.
            Work::Upload { .. } | Work::Write { .. } | Work::Download { .. } => Ok(None),
            Work::Tensors { .. } | Work::Start { .. } => Ok(None),
        }
    }
}
