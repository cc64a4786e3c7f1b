//! Stable fluids (Stam, 1999) by our own kernels, and the frames that are kept on the way.
//!
//! ```text
//! velocity, dye ─ advect ─► velocity, dye ─ diverge ─► divergence ─ relax × 20 ─► pressure ─ project ─► velocity
//! ```
//!
//! Every step makes new tensors and drops the old ones. So keeping a frame means keeping its
//! handles: nothing is copied, and the memory manager decides where those frames are.

use std::collections::VecDeque;

use lapidary::{Advice, DType, Gpu, Kernel, Residency, Result, Tensor};

const WGSL: &str = include_str!("fluid.wgsl");

/// Invocations along each side of a workgroup, as in the kernels.
const GROUP: usize = 8;

/// Rounds of Jacobi's method a step, an even number. They start from the last step's pressure.
const ROUNDS: usize = 20;

/// The hand's effect on the fluid during a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stir {
    /// Its place, as fractions of width and height, from the upper left.
    pub at: [f32; 2],
    /// Its movement, in the same fractions.
    pub by: [f32; 2],
    /// Red, green and blue dye that it adds; of any strength, 0 for none.
    pub dye: [f32; 3],
}

/// The parameters of a step: the same layout as `struct Step` in the text.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Step {
    size: [u32; 2],
    number: u32,
    radius: f32,
    at: [f32; 2],
    push: [f32; 2],
    dye: [f32; 4],
}

/// The state from which the next step continues.
#[derive(Clone, Debug)]
struct State {
    /// Cells a step: `[height, width, 2]`.
    velocity: Tensor,
    /// Red, green, blue and heat: `[height, width, 4]`.
    dye: Tensor,
    /// `[height, width, 1]`.
    pressure: Tensor,
}

/// A kept moment.
#[derive(Clone, Debug)]
pub struct Frame {
    step: u64,
    state: State,
}

impl Frame {
    fn tensors(&self) -> [&Tensor; 3] {
        let State {
            velocity,
            dye,
            pressure,
        } = &self.state;
        [velocity, dye, pressure]
    }

    /// Would it survive a lost device completely?
    fn is_elsewhere(&self) -> bool {
        let elsewhere = [Residency::Host, Residency::Disk];
        (self.tensors().iter()).all(|tensor| elsewhere.contains(&tensor.residency()))
    }

    /// The number of steps before it.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Its colours, for [`Painter::paint`](crate::Painter::paint): `[height, width, 4]` of f32.
    pub fn dye(&self) -> &Tensor {
        &self.state.dye
    }

    /// Where its colours are: on the device, or evicted to the host's memory or to disk.
    pub fn residency(&self) -> Residency {
        self.state.dye.residency()
    }

    /// Bytes of its tensors, wherever they are.
    pub fn size_bytes(&self) -> u64 {
        self.tensors()
            .iter()
            .map(|tensor| tensor.size_bytes())
            .sum()
    }
}

/// A fluid in a box, with a past.
#[derive(Debug)]
pub struct Fluid {
    gpu: Gpu,
    size: [usize; 2],
    advect: Kernel,
    diverge: Kernel,
    relax: Kernel,
    project: Kernel,
    now: Frame,
    history: VecDeque<Frame>,
    kept: usize,
    every: u64,
}

impl Fluid {
    /// A calm fluid of `size` cells (across, down).
    ///
    /// # Errors
    /// Those of making kernels and tensors, such as a fluid too large for the device.
    pub fn new(gpu: &Gpu, size: [usize; 2]) -> Result<Fluid> {
        let kernel = |entry| Kernel::with_entry(gpu, WGSL, entry);
        Ok(Fluid {
            gpu: gpu.clone(),
            size,
            advect: kernel("advect")?,
            diverge: kernel("diverge")?,
            relax: kernel("relax")?,
            project: kernel("project")?,
            now: calm(gpu, size)?,
            history: VecDeque::new(),
            kept: 0,
            every: 1,
        })
    }

    /// Keeps every `every`-th step from now on, and of these the last `frames`.
    pub fn keep(&mut self, frames: usize, every: u64) {
        (self.kept, self.every) = (frames, every.max(1));
        let surplus = self.history.len().saturating_sub(frames);
        self.history.drain(..surplus);
    }

    /// Cells across and down.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// The present.
    pub fn now(&self) -> &Frame {
        &self.now
    }

    /// The kept frames, oldest first.
    pub fn history(&self) -> &VecDeque<Frame> {
        &self.history
    }

    /// The fewest bytes that a step needs on the device at once: those of its largest kernel.
    pub fn least_bytes(&self) -> u64 {
        let [width, height] = self.size;
        // `advect` reads and makes velocity and dye.
        (width * height * size_of::<f32>() * 2 * (2 + 4)) as u64
    }

    /// Records one step: nothing waits, and nothing is computed before the result is used.
    ///
    /// # Errors
    /// Errors of a call that cannot be recorded, for example a lost device. A shortage of memory is
    /// an error when the result is used, and nothing is lost by it.
    pub fn step(&mut self, stir: Stir) -> Result<()> {
        let next = self.stepped(&self.now, stir)?;
        let past = std::mem::replace(&mut self.now, next);
        if self.kept > 0 && past.step.is_multiple_of(self.every) {
            if self.history.len() == self.kept {
                self.history.pop_front();
            }
            // No command reads it before the user looks back.
            (past.tensors().iter()).for_each(|tensor| tensor.advise(Advice::Late));
            self.history.push_back(past);
        }
        Ok(())
    }

    /// Makes a kept frame the present and drops all later ones. `false` if there is no such frame.
    pub fn go_back(&mut self, index: usize) -> bool {
        if index >= self.history.len() {
            return false;
        }
        self.history.truncate(index + 1);
        match self.history.pop_back() {
            Some(frame) => self.now = frame,
            None => return false,
        }
        (self.now.tensors().iter()).for_each(|tensor| tensor.advise(Advice::Normal));
        true
    }

    /// After a lost device: continues from the last kept frame that still has all its bytes, or
    /// from a calm fluid. Returns the number of kept frames that remain.
    ///
    /// # Errors
    /// Those of making tensors.
    pub fn recover(&mut self) -> Result<usize> {
        self.history.retain(|frame| frame.is_elsewhere());
        if self.history.is_empty() {
            self.now = calm(&self.gpu, self.size)?;
        } else {
            self.go_back(self.history.len() - 1);
        }
        Ok(self.history.len())
    }

    fn stepped(&self, from: &Frame, stir: Stir) -> Result<Frame> {
        let [width, height] = self.size;
        let state = &from.state;
        let step = self.parameters(from.step, stir);
        let groups = [width, height].map(|cells| cells.div_ceil(GROUP) as u32);
        let groups = [groups[0], groups[1], 1];

        let moved = self.advect.call();
        let moved = moved
            .bind("velocity", &state.velocity)
            .bind("dye", &state.dye)
            .out("velocity_out", &[height, width, 2], DType::F32)
            .out("dye_out", &[height, width, 4], DType::F32);
        let outputs = moved.params(&step).groups(groups).run()?;
        let (moved, dye) = (&outputs[0], &outputs[1]);

        let divergence = self.diverge.call().bind("velocity", moved);
        let divergence = divergence.out("divergence_out", &[height, width, 1], DType::F32);
        let divergence = divergence.params(&step).groups(groups).run_one()?;

        let relax = |from: &Tensor| {
            let relaxed = self.relax.call().bind("pressure", from);
            let relaxed = relaxed.bind("divergence", &divergence);
            relaxed.params(&step).groups(groups)
        };
        // Two alternate, and the last round writes a new one: the first is part of a state that may
        // be kept.
        let scratch = [
            zeros(&self.gpu, self.size, 1)?,
            zeros(&self.gpu, self.size, 1)?,
        ];
        let mut pressure = &state.pressure;
        for round in 1..ROUNDS {
            let next = &scratch[round % 2];
            relax(pressure).bind("pressure_out", next).run()?;
            pressure = next;
        }
        let pressure = relax(pressure).out("pressure_out", &[height, width, 1], DType::F32);
        let pressure = pressure.run_one()?;

        let velocity = self.project.call();
        let velocity = velocity
            .bind("velocity", moved)
            .bind("pressure", &pressure)
            .out("velocity_out", &[height, width, 2], DType::F32);
        let velocity = velocity.params(&step).groups(groups).run_one()?;
        Ok(Frame {
            step: from.step + 1,
            state: State {
                velocity: velocity.named("velocity"),
                dye: dye.clone().named("dye"),
                pressure: pressure.named("pressure"),
            },
        })
    }

    fn parameters(&self, number: u64, stir: Stir) -> Step {
        let [width, height] = self.size.map(|cells| cells as f32);
        let [red, green, blue] = stir.dye;
        // A faster hand would exceed what one step can transport.
        let push = |by: f32, cells: f32| (0.3 * by * cells).clamp(-8.0, 8.0);
        Step {
            size: self.size.map(|cells| cells as u32),
            number: number as u32,
            radius: height / 30.0,
            at: [stir.at[0] * width, stir.at[1] * height],
            push: [push(stir.by[0], width), push(stir.by[1], height)],
            dye: [red, green, blue, 0.0],
        }
    }
}

/// A frame without movement.
fn calm(gpu: &Gpu, size: [usize; 2]) -> Result<Frame> {
    let state = State {
        velocity: zeros(gpu, size, 2)?.named("velocity"),
        dye: zeros(gpu, size, 4)?.named("dye"),
        pressure: zeros(gpu, size, 1)?.named("pressure"),
    };
    Ok(Frame { step: 0, state })
}

/// A tensor of zeros with `numbers` numbers a cell.
fn zeros(gpu: &Gpu, [width, height]: [usize; 2], numbers: usize) -> Result<Tensor> {
    gpu.zeros(&[height, width, numbers], DType::F32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapidary::{Budget, Options};

    const STIR: Stir = Stir {
        at: [0.4, 0.6],
        by: [0.02, -0.01],
        dye: [0.5, 0.1, 0.9],
    };

    fn fluid(gpu: &Gpu) -> Fluid {
        Fluid::new(gpu, [48, 40]).expect("a small fluid")
    }

    fn run(fluid: &mut Fluid, steps: u64) -> Vec<f32> {
        for _ in 0..steps {
            fluid.step(STIR).expect("a step is recorded");
        }
        fluid.now().dye().to_vec().expect("there is room for it")
    }

    #[test]
    fn the_past_leaves_a_small_budget_comes_back_and_goes_on_as_it_did() {
        let gpu = Gpu::open(Options::from_env().unwrap()).expect("an adapter");
        let expected = run(&mut fluid(&gpu), 40);
        assert!(expected.iter().all(|part| part.is_finite()));
        assert!(expected.iter().any(|&part| part > 0.1));

        let mut fluid = fluid(&gpu);
        fluid.keep(30, 1);
        gpu.memory()
            .set_budget(Budget::device(1 << 20))
            .expect("a budget");
        assert_eq!(run(&mut fluid, 40), expected);
        let is_evicted = |frame: &&Frame| frame.residency() != Residency::Device;
        assert!(fluid.history().iter().filter(is_evicted).count() > 5);
        assert!(gpu.memory().stats().device_bytes.now <= 1 << 20);

        assert_eq!(fluid.history()[3].step(), 13);
        assert!(fluid.go_back(3) && !fluid.go_back(3));
        assert_eq!(run(&mut fluid, 27), expected);
    }
}
