//! The cases with lapidary, written as its documentation shows, without tuning for a case.

use std::cell::OnceCell;

use lapidary::{DType, Gpu, Options, Tensor, wgpu};
use lapidary_harness::{
    About, BATCH, CLASSES, HIDDEN, INPUTS, RATE, Result, Subject, Timed, Way, Work,
};

use crate::churn::{Blocks, Tensors};

pub(crate) struct Ours {
    gpu: Gpu,
    /// A separate device whose buffers the host cannot map, like one that an app brings.
    app: OnceCell<App>,
}

struct App {
    gpu: Gpu,
    device: wgpu::Device,
}

impl Ours {
    pub(crate) fn open() -> Result<Ours> {
        Ok(Ours {
            gpu: Gpu::open(Options::from_env()?)?,
            app: OnceCell::new(),
        })
    }

    fn app(&self) -> Result<&App> {
        if self.app.get().is_none() {
            let app = pollster::block_on(adopted(&self.gpu.caps().name))?;
            // The cell was empty just before.
            let _ = self.app.set(app);
        }
        Ok(self.app.get().ok_or("there is no device to adopt")?)
    }

    /// The device for transfers of this kind, if there is one.
    pub(crate) fn by(&self, way: Way) -> Result<Option<&Gpu>> {
        match way {
            Way::Direct => Ok(Some(&self.gpu).filter(|gpu| gpu.caps().maps_slabs)),
            Way::Staged => Ok(Some(&self.app()?.gpu)),
        }
    }
}

/// A device on the adapter of this name that does not use shared memory.
async fn adopted(name: &str) -> Result<App> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapters = instance.enumerate_adapters(wgpu::Backends::all()).await;
    let adapter = adapters
        .into_iter()
        .find(|adapter| adapter.get_info().name == name)
        .ok_or("the adapter is not there a second time")?;
    let wanted = wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP;
    let descriptor = wgpu::DeviceDescriptor {
        required_limits: adapter.limits(),
        required_features: adapter.features() & wanted,
        ..Default::default()
    };
    let (device, queue) = adapter.request_device(&descriptor).await?;
    let gpu = Gpu::adopt(&adapter, &device, &queue)?;
    Ok(App { gpu, device })
}

/// Operations that return a tensor.
struct Op<'a, F> {
    gpu: &'a Gpu,
    call: F,
    made: Option<Tensor>,
}

impl<F: FnMut() -> lapidary::Result<Tensor>> Timed for Op<'_, F> {
    fn run(&mut self) -> Result {
        // The previous result is dropped first, as in any loop.
        self.made = None;
        self.made = Some((self.call)()?);
        Ok(self.gpu.finish()?)
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        Ok(self.made.as_ref().ok_or("nothing was run")?.to_vec()?)
    }
}

/// Operations that end on the host.
struct Read<F> {
    call: F,
    out: Vec<f32>,
}

impl<F: FnMut(&mut Vec<f32>) -> lapidary::Result<()>> Timed for Read<F> {
    fn run(&mut self) -> Result {
        Ok((self.call)(&mut self.out)?)
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        Ok(self.out.clone())
    }
}

type Prepared<'a> = Result<Option<Box<dyn Timed + 'a>>>;

fn op<'a>(gpu: &'a Gpu, call: impl FnMut() -> lapidary::Result<Tensor> + 'a) -> Prepared<'a> {
    Ok(Some(Box::new(Op {
        gpu,
        call,
        made: None,
    })))
}

fn read<'a>(
    len: usize,
    call: impl FnMut(&mut Vec<f32>) -> lapidary::Result<()> + 'a,
) -> Prepared<'a> {
    let out = vec![0.0; len];
    Ok(Some(Box::new(Read { call, out })))
}

impl Subject for Ours {
    fn about(&self) -> About {
        let caps = self.gpu.caps();
        About {
            by: "lapidary",
            adapter: caps.name.clone(),
            driver: format!("{}, {}", caps.backend, caps.driver),
        }
    }

    fn prepare<'a>(&'a self, work: &Work, inputs: &'a [Vec<f32>]) -> Prepared<'a> {
        let gpu = &self.gpu;
        let tensor = |index: usize, shape: &[usize]| gpu.tensor(&inputs[index], shape);
        match *work {
            Work::Matmul {
                batch,
                m,
                n,
                k,
                is_b_transposed,
            } => {
                // A single product has no batch axis, as users write it.
                let of = |index, rows, columns| match batch {
                    1 => tensor(index, &[rows, columns]),
                    _ => tensor(index, &[batch, rows, columns]),
                };
                let a = of(0, m, k)?;
                let b = match is_b_transposed {
                    true => of(1, n, k)?.transpose(-1, -2)?,
                    false => of(1, k, n)?,
                };
                op(gpu, move || a.matmul(&b))
            }
            Work::Add { len } => {
                let (a, b) = (tensor(0, &[len])?, tensor(1, &[len])?);
                op(gpu, move || &a + &b)
            }
            Work::Chain { len } => {
                let (a, b) = (tensor(0, &[len])?, tensor(1, &[len])?);
                let (c, d) = (tensor(2, &[len])?, tensor(3, &[len])?);
                op(gpu, move || ((&a * &b)? + &c)?.relu()? * &d)
            }
            Work::Softmax { rows, columns } => {
                let x = tensor(0, &[rows, columns])?;
                op(gpu, move || x.softmax(-1))
            }
            Work::Sum { len } => {
                let x = tensor(0, &[len])?;
                op(gpu, move || x.sum_all())
            }
            Work::Transpose { rows, columns } => {
                let x = tensor(0, &[rows, columns])?.t()?;
                op(gpu, move || x.contiguous())
            }
            Work::Gelu { len } => {
                let x = tensor(0, &[len])?;
                op(gpu, move || x.gelu())
            }
            Work::Increments { ops, len } => {
                let first = tensor(0, &[len])?;
                read(len, move |out| {
                    let mut x = (&first + 1.0)?;
                    for _ in 1..ops {
                        x = (x + 1.0)?;
                    }
                    x.read_into(out)
                })
            }
            Work::Rotations { ops, len } => {
                let first = tensor(0, &[len])?;
                let next: Vec<u32> = (0..len).map(|i| ((i + 1) % len) as u32).collect();
                let next = gpu.tensor(&next, &[len])?;
                read(len, move |out| {
                    let mut x = first.index_select(0, &next)?;
                    for _ in 1..ops {
                        x = x.index_select(0, &next)?;
                    }
                    x.read_into(out)
                })
            }
            Work::Upload { len, way } => match self.by(way)? {
                Some(gpu) => op(gpu, move || gpu.tensor(&inputs[0], &[len])),
                None => Ok(None),
            },
            Work::Write { len, way } => match self.by(way)? {
                Some(gpu) => {
                    let x = gpu.zeros(&[len], DType::F32)?;
                    op(gpu, move || x.write(&inputs[0]).map(|()| x.clone()))
                }
                None => Ok(None),
            },
            Work::Download { len, way } => match self.by(way)? {
                Some(gpu) => {
                    let x = gpu.tensor(&inputs[0], &[len])?;
                    read(len, move |out| x.read_into(out))
                }
                None => Ok(None),
            },
            Work::Blocks { events } => {
                let max_slab_bytes = gpu.caps().max_buffer_bytes;
                let blocks = Blocks::new(&self.app()?.device, max_slab_bytes, events);
                Ok(Some(Box::new(blocks)))
            }
            Work::Tensors { events } => Ok(Some(Box::new(Tensors::new(events)?))),
            Work::Training { steps } => {
                let network = Network::new(gpu, inputs)?;
                Ok(Some(Box::new(Training {
                    gpu,
                    network,
                    steps,
                })))
            }
            // Whole processes are timed by their parent.
            Work::Start { .. } => Ok(None),
        }
    }
}

struct Training<'a> {
    gpu: &'a Gpu,
    network: Network,
    steps: usize,
}

impl Timed for Training<'_> {
    fn run(&mut self) -> Result {
        for _ in 0..self.steps {
            self.network.step()?;
        }
        Ok(self.gpu.finish()?)
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        let mut parameters = Vec::new();
        for parameter in &self.network.parameters {
            parameters.extend(parameter.to_vec::<f32>()?);
        }
        Ok(parameters)
    }
}

struct Network {
    images: Tensor,
    classes: Tensor,
    /// Weights and biases, layer by layer.
    parameters: [Tensor; 4],
}

impl Network {
    fn new(gpu: &Gpu, inputs: &[Vec<f32>]) -> Result<Network> {
        let tensor = |index: usize, shape: &[usize]| gpu.tensor(&inputs[index], shape);
        Ok(Network {
            images: tensor(0, &[BATCH, INPUTS])?,
            classes: tensor(1, &[BATCH, CLASSES])?,
            parameters: [
                tensor(2, &[INPUTS, HIDDEN])?,
                gpu.zeros(&[HIDDEN], DType::F32)?,
                tensor(3, &[HIDDEN, CLASSES])?,
                gpu.zeros(&[CLASSES], DType::F32)?,
            ],
        })
    }

    fn step(&self) -> lapidary::Result<()> {
        let [first, first_bias, second, second_bias] = &self.parameters;
        let hidden = (self.images.matmul(first)? + first_bias)?.relu()?;
        let outputs = (hidden.matmul(second)? + second_bias)?;
        let of_outputs = ((outputs.softmax(-1)? - &self.classes)? * (1.0 / BATCH as f32))?;
        let mask = hidden.gt(0.0)?.cast(DType::F32)?;
        let of_hidden = (of_outputs.matmul(&second.t()?)? * mask)?;
        let gradients = [
            self.images.t()?.matmul(&of_hidden)?,
            of_hidden.sum(&[0])?,
            hidden.t()?.matmul(&of_outputs)?,
            of_outputs.sum(&[0])?,
        ];
        for (parameter, gradient) in self.parameters.iter().zip(gradients) {
            parameter.sub_(&(gradient * RATE)?)?;
        }
        Ok(())
    }
}
