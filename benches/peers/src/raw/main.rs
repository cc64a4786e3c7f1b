//! Raw wgpu, as written by hand: a buffer for each tensor, `Queue::write_buffer`, a new buffer for
//! each read-back, textbook kernels, one submission for each call.

mod kernels;

use std::process::ExitCode;

use lapidary_harness::{
    About, BATCH, CLASSES, Event, HIDDEN, INPUTS, PLACES, Result, Subject, Timed, Way, Work, events,
};
use wgpu::util::{BufferInitDescriptor, DeviceExt};

fn main() -> ExitCode {
    lapidary_harness::main(|| Ok(Box::new(pollster::block_on(Raw::open())?)))
}

const USAGES: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

/// Larger products take half a minute a call on a software adapter.
const MOST_MULTIPLICATIONS: usize = 1 << 30;

struct Raw {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: wgpu::AdapterInfo,
}

/// A dispatch that is ready for recording.
#[derive(Clone)]
struct Step {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    groups: [u32; 3],
}

/// The dispatches of one submission.
struct Program<'a> {
    raw: &'a Raw,
    steps: Vec<Step>,
    times: usize,
    /// Whether the read is part of the call.
    reads: bool,
    outs: Vec<wgpu::Buffer>,
}

impl Timed for Program<'_> {
    fn run(&mut self) -> Result {
        let mut encoder = self.raw.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        for _ in 0..self.times {
            for step in &self.steps {
                pass.set_pipeline(&step.pipeline);
                pass.set_bind_group(0, &step.group, &[]);
                let [x, y, z] = step.groups;
                pass.dispatch_workgroups(x, y, z);
            }
        }
        drop(pass);
        self.raw.queue.submit([encoder.finish()]);
        match self.reads {
            true => self.raw.read(&self.outs[0], &mut Vec::new()),
            false => self.raw.wait(),
        }
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        for out in &self.outs {
            self.raw.read(out, &mut values)?;
        }
        Ok(values)
    }
}

impl Raw {
    async fn open() -> Result<Raw> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let options = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        let adapter = instance.request_adapter(&options).await?;
        let descriptor = wgpu::DeviceDescriptor {
            required_limits: adapter.limits(),
            ..Default::default()
        };
        let (device, queue) = adapter.request_device(&descriptor).await?;
        let info = adapter.get_info();
        Ok(Raw {
            device,
            queue,
            info,
        })
    }

    fn wait(&self) -> Result {
        self.device.poll(wgpu::PollType::wait_indefinitely())?;
        Ok(())
    }

    fn empty(&self, len: usize) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 4 * len as u64,
            usage: USAGES,
            mapped_at_creation: false,
        })
    }

    fn filled(&self, values: &[f32]) -> wgpu::Buffer {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
        self.device.create_buffer_init(&BufferInitDescriptor {
            label: None,
            contents: &bytes,
            usage: USAGES,
        })
    }

    /// Appends the contents of a buffer.
    fn read(&self, buffer: &wgpu::Buffer, values: &mut Vec<f32>) -> Result {
        let readback = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &readback, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        readback.map_async(wgpu::MapMode::Read, .., |_| {});
        self.wait()?;
        let view = readback.get_mapped_range(..)?;
        let words = view.chunks_exact(4);
        values.extend(words.map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]])));
        Ok(())
    }

    /// A kernel with the buffers for its bindings.
    fn step(&self, (wgsl, groups): kernels::Kernel, buffers: &[&wgpu::Buffer]) -> Step {
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: None,
                source: wgpu::ShaderSource::Wgsl(wgsl.into()),
            });
        let pipeline = self
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: None,
                compilation_options: Default::default(),
                cache: None,
            });
        let entries: Vec<_> = buffers
            .iter()
            .enumerate()
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding: binding as u32,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Step {
            pipeline,
            group,
            groups,
        }
    }

    fn program(&self, steps: Vec<Step>, outs: Vec<wgpu::Buffer>) -> Program<'_> {
        Program {
            raw: self,
            steps,
            times: 1,
            reads: false,
            outs,
        }
    }

    /// One kernel from several inputs to one output.
    fn single(&self, kernel: kernels::Kernel, len: usize, inputs: &[Vec<f32>]) -> Program<'_> {
        let out = self.empty(len);
        let inputs: Vec<_> = inputs.iter().map(|values| self.filled(values)).collect();
        let buffers: Vec<_> = std::iter::once(&out).chain(&inputs).collect();
        let step = self.step(kernel, &buffers);
        self.program(vec![step], vec![out])
    }

    fn sum(&self, len: usize, inputs: &[Vec<f32>]) -> Program<'_> {
        let parts = len.div_ceil(kernels::SUMMED);
        let (x, partial, out) = (self.filled(&inputs[0]), self.empty(parts), self.empty(1));
        let steps = vec![
            self.step(kernels::sum(len), &[&partial, &x]),
            self.step(kernels::sum(parts), &[&out, &partial]),
        ];
        self.program(steps, vec![out])
    }

    fn rotations(&self, ops: usize, inputs: &[Vec<f32>]) -> Program<'_> {
        let len = inputs[0].len();
        let next: Vec<u32> = (0..len).map(|index| ((index + 1) % len) as u32).collect();
        let next: Vec<f32> = next.iter().map(|&index| f32::from_bits(index)).collect();
        let index = self.filled(&next);
        let (x, even, odd) = (self.filled(&inputs[0]), self.empty(len), self.empty(len));
        let step = |to, from| self.step(kernels::gather(len), &[to, from, &index]);
        let mut steps = vec![step(&even, &x)];
        let turns = [step(&odd, &even), step(&even, &odd)];
        steps.extend((1..ops).map(|op| turns[(op + 1) % 2].clone()));
        let out = if ops % 2 == 0 { odd } else { even };
        Program {
            reads: true,
            ..self.program(steps, vec![out])
        }
    }

    fn training(&self, times: usize, inputs: &[Vec<f32>]) -> Program<'_> {
        let [images, classes, first, second] = [0, 1, 2, 3].map(|i| self.filled(&inputs[i]));
        let first_bias = self.filled(&[0.0; HIDDEN]);
        let second_bias = self.filled(&[0.0; CLASSES]);
        let (hidden, of_hidden) = (self.empty(BATCH * HIDDEN), self.empty(BATCH * HIDDEN));
        let outputs = self.empty(BATCH * CLASSES);
        let (of_first, of_second) = (self.empty(INPUTS * HIDDEN), self.empty(HIDDEN * CLASSES));
        let product = |sizes, is_transposed, buffers: [&wgpu::Buffer; 3]| {
            self.step(kernels::matmul(1, sizes, is_transposed), &buffers)
        };
        let (wide, narrow) = (BATCH * HIDDEN, INPUTS * HIDDEN);
        let steps = vec![
            product(
                [BATCH, HIDDEN, INPUTS],
                [false, false],
                [&hidden, &images, &first],
            ),
            self.step(
                kernels::elementwise(wide, 1, &format!("max(out[i] + a[i % {HIDDEN}u], 0.0)")),
                &[&hidden, &first_bias],
            ),
            product(
                [BATCH, CLASSES, HIDDEN],
                [false, false],
                [&outputs, &hidden, &second],
            ),
            self.step(
                kernels::loss_gradient(),
                &[&outputs, &second_bias, &classes],
            ),
            product(
                [BATCH, HIDDEN, CLASSES],
                [false, true],
                [&of_hidden, &outputs, &second],
            ),
            self.step(
                kernels::elementwise(wide, 1, "select(0.0, out[i], a[i] > 0.0)"),
                &[&of_hidden, &hidden],
            ),
            product(
                [HIDDEN, CLASSES, BATCH],
                [true, false],
                [&of_second, &hidden, &outputs],
            ),
            product(
                [INPUTS, HIDDEN, BATCH],
                [true, false],
                [&of_first, &images, &of_hidden],
            ),
            self.step(kernels::descend(narrow), &[&first, &of_first]),
            self.step(kernels::descend(HIDDEN * CLASSES), &[&second, &of_second]),
            self.step(kernels::descend_bias(HIDDEN), &[&first_bias, &of_hidden]),
            self.step(kernels::descend_bias(CLASSES), &[&second_bias, &outputs]),
        ];
        Program {
            times,
            ..self.program(steps, vec![first, first_bias, second, second_bias])
        }
    }
}

/// Calls without dispatches.
struct Calls<'a, F> {
    raw: &'a Raw,
    call: F,
    out: Option<wgpu::Buffer>,
    values: Vec<f32>,
}

impl<F: FnMut(&mut Vec<f32>) -> Result> Timed for Calls<'_, F> {
    fn run(&mut self) -> Result {
        self.values.clear();
        (self.call)(&mut self.values)
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        if let Some(out) = &self.out {
            self.raw.read(out, &mut self.values)?;
        }
        Ok(self.values.clone())
    }
}

impl Subject for Raw {
    fn about(&self) -> About {
        About {
            by: "raw wgpu",
            adapter: self.info.name.clone(),
            driver: format!("{} {}", self.info.driver, self.info.driver_info),
        }
    }

    fn prepare<'a>(
        &'a self,
        work: &Work,
        inputs: &'a [Vec<f32>],
    ) -> Result<Option<Box<dyn Timed + 'a>>> {
        let program = match *work {
            Work::Matmul { batch, m, n, k, .. } if batch * m * n * k > MOST_MULTIPLICATIONS => {
                return Ok(None);
            }
            Work::Matmul {
                batch,
                m,
                n,
                k,
                is_b_transposed,
            } => {
                let kernel = kernels::matmul(batch, [m, n, k], [false, is_b_transposed]);
                self.single(kernel, batch * m * n, inputs)
            }
            Work::Add { len } => {
                self.single(kernels::elementwise(len, 2, "a[i] + b[i]"), len, inputs)
            }
            Work::Chain { len } => {
                let chain = "max(a[i] * b[i] + c[i], 0.0) * d[i]";
                self.single(kernels::elementwise(len, 4, chain), len, inputs)
            }
            Work::Gelu { len } => self.single(kernels::gelu(len), len, inputs),
            Work::Softmax { rows, columns } => {
                self.single(kernels::softmax(rows, columns), rows * columns, inputs)
            }
            Work::Transpose { rows, columns } => {
                self.single(kernels::transpose(rows, columns), rows * columns, inputs)
            }
            Work::Sum { len } => self.sum(len, inputs),
            Work::Increments { ops, len } => {
                let (x, out) = (self.filled(&inputs[0]), self.empty(len));
                let first = self.step(kernels::elementwise(len, 1, "a[i] + 1.0"), &[&out, &x]);
                let again = self.step(kernels::elementwise(len, 0, "out[i] + 1.0"), &[&out]);
                let mut steps = vec![first];
                steps.resize(ops, again);
                Program {
                    reads: true,
                    ..self.program(steps, vec![out])
                }
            }
            Work::Rotations { ops, .. } => self.rotations(ops, inputs),
            Work::Training { steps } => self.training(steps, inputs),
            Work::Upload {
                len,
                way: Way::Staged,
            }
            | Work::Write {
                len,
                way: Way::Staged,
            } => {
                let bytes: Vec<u8> = inputs[0].iter().flat_map(|x| x.to_ne_bytes()).collect();
                let out = self.empty(len);
                let buffer = out.clone();
                let call = move |_: &mut Vec<f32>| {
                    self.queue.write_buffer(&buffer, 0, &bytes);
                    self.queue.submit([]);
                    self.wait()
                };
                return Ok(Some(Box::new(self.calls(call, Some(out)))));
            }
            Work::Download {
                way: Way::Staged, ..
            } => {
                let buffer = self.filled(&inputs[0]);
                let call = move |values: &mut Vec<f32>| self.read(&buffer, values);
                return Ok(Some(Box::new(self.calls(call, None))));
            }
            Work::Blocks { events: count } => {
                let events = events(count);
                let call = move |_: &mut Vec<f32>| {
                    let mut places: [Option<wgpu::Buffer>; PLACES] = [const { None }; PLACES];
                    for event in &events {
                        match *event {
                            Event::Drop { place } => places[place] = None,
                            Event::Allocate { place, bytes } => {
                                places[place] = Some(self.empty(bytes as usize / 4));
                            }
                        }
                    }
                    Ok(())
                };
                return Ok(Some(Box::new(self.calls(call, None))));
            }
            Work::Upload { .. } | Work::Write { .. } | Work::Download { .. } => return Ok(None),
            Work::Tensors { .. } | Work::Start { .. } => return Ok(None),
        };
        Ok(Some(Box::new(program)))
    }
}

impl Raw {
    fn calls<F>(&self, call: F, out: Option<wgpu::Buffer>) -> Calls<'_, F> {
        Calls {
            raw: self,
            call,
            out,
            values: Vec::new(),
        }
    }
}
