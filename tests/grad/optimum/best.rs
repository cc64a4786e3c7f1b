//! The best that is possible: Dijkstra's algorithm over all states that the activations can be in.
//!
//! Checkmate (Jain et al., MLSys 2020) finds it by a linear program, without evictions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lapidary::sim::Speed;

use super::graph::{Graph, Part, download_ns, launch_ns, upload_ns};

/// The state of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Nowhere,
    Device,
    Host,
    Both,
}

impl At {
    fn is_here(self) -> bool {
        matches!(self, At::Device | At::Both)
    }
}

/// How many steps are done, and two bits for each activation; activation 0 is the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State(u32);

const STEP_BITS: u32 = 6;

impl State {
    fn first() -> Self {
        State(0).with(0, At::Device)
    }

    fn done(self) -> usize {
        (self.0 & ((1 << STEP_BITS) - 1)) as usize
    }

    fn at(self, index: usize) -> At {
        match self.0 >> (STEP_BITS + 2 * index as u32) & 3 {
            0 => At::Nowhere,
            1 => At::Device,
            2 => At::Host,
            _ => At::Both,
        }
    }

    fn with(self, index: usize, at: At) -> Self {
        let shift = STEP_BITS + 2 * index as u32;
        State(self.0 & !(3 << shift) | (at as u32) << shift)
    }

    fn after_step(self) -> Self {
        State(self.0 + 1)
    }
}

/// A search for the least time of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    pub(crate) graph: Graph,
    pub(crate) speed: Speed,
    /// Bytes for activations, and for the gradients of the layer under way.
    pub(crate) room_bytes: u64,
}

/// Part of the weights and of their gradients that leaves the device, in eighths.
const LEAVING: [u64; 3] = [0, 4, 8];

impl Search {
    /// The least time beyond that with all memory, in nanoseconds. `None` if the room is too small.
    pub(crate) fn more_ns(&self) -> Option<u64> {
        let ways = LEAVING.into_iter().filter_map(|eighths| {
            let left_bytes = self.graph.weights_bytes() * eighths / 8;
            let room_bytes = self.room_bytes + left_bytes;
            let beside = Search {
                room_bytes,
                ..*self
            };
            // Each leaves in a copy of its own.
            let copies = (self.graph.layers() as u64 * eighths).div_ceil(8);
            let copies_ns = copies * u64::from(self.speed.copy_ns);
            Some(beside.least_ns()? + download_ns(left_bytes, self.speed) + copies_ns)
        });
        Some(ways.min()?.saturating_sub(self.graph.all_ns(self.speed)))
    }

    /// The least time in nanoseconds, or `None` if the room is too small.
    fn least_ns(&self) -> Option<u64> {
        let activations = self.graph.widths.len() as u32;
        let mut least = vec![u64::MAX; 1 << (STEP_BITS + 2 * activations)];
        let mut queue = BinaryHeap::from([Reverse((0, State::first()))]);
        least[State::first().0 as usize] = 0;
        while let Some(Reverse((ns, state))) = queue.pop() {
            if state.done() == self.graph.steps() {
                return Some(ns);
            }
            if least[state.0 as usize] < ns {
                continue;
            }
            self.next(state, |next, more_ns| {
                let (ns, known) = (ns + more_ns, &mut least[next.0 as usize]);
                if ns < *known {
                    *known = ns;
                    queue.push(Reverse((ns, next)));
                }
            });
        }
        None
    }

    fn used_bytes(&self, state: State) -> u64 {
        let graph = &self.graph;
        let here = (0..graph.widths.len()).filter(|&index| state.at(index).is_here());
        let activations: u64 = here.map(|index| graph.activation_bytes(index)).sum();
        let after = |layer: usize| graph.activation_bytes(layer + 1);
        let gradients = match graph.part(state.done()) {
            // The first gradient is a view of a single number.
            Some((layer, Part::Mask)) if layer + 1 == graph.layers() => 0,
            Some((layer, Part::Mask | Part::ByInput)) => after(layer),
            Some((0, Part::ByWeight)) => after(0),
            Some((layer, Part::ByWeight)) => graph.activation_bytes(layer) + after(layer),
            None => 0,
        };
        // The program holds the gradients of weights.
        let part = graph.part(state.done());
        let first_done = part.map_or(graph.layers(), |(layer, _)| layer + 1);
        let held = (first_done..graph.layers()).map(|layer| graph.weight_bytes(layer));
        activations + gradients + held.sum::<u64>()
    }

    /// The states that follow, and what they cost.
    fn next(&self, state: State, mut take: impl FnMut(State, u64)) {
        let (graph, speed) = (&self.graph, self.speed);
        let used_bytes = self.used_bytes(state);
        let fits = |more_bytes: u64| used_bytes + more_bytes <= self.room_bytes;
        let copy_ns = u64::from(speed.copy_ns);
        for index in 0..graph.widths.len() {
            let (bytes, at) = (graph.activation_bytes(index), state.at(index));
            match at {
                At::Device => {
                    take(state.with(index, At::Nowhere), 0);
                    let ns = copy_ns + download_ns(bytes, speed);
                    take(state.with(index, At::Both), ns);
                }
                At::Both => take(state.with(index, At::Host), 0),
                At::Host if fits(bytes) => {
                    let ns = copy_ns + upload_ns(bytes, speed);
                    take(state.with(index, At::Both), ns);
                }
                At::Nowhere | At::Host => {}
            }
            let is_computable = index > 0 && index <= state.done() && at == At::Nowhere;
            if is_computable && state.at(index - 1).is_here() && fits(bytes) {
                take(
                    state.with(index, At::Device),
                    graph.forward_ns(index - 1, speed),
                );
            }
        }
        if let Some((next, ns)) = self.step(state, fits) {
            take(next, ns);
        }
    }

    /// The next step of the program, if all that it needs is here.
    fn step(&self, state: State, fits: impl Fn(u64) -> bool) -> Option<(State, u64)> {
        let (graph, speed, next) = (&self.graph, self.speed, state.after_step());
        let is_here = |index: usize| state.at(index).is_here();
        let Some((layer, part)) = graph.part(state.done()) else {
            let layer = state.done();
            let can_run = is_here(layer) && fits(graph.activation_bytes(layer + 1));
            let next = next.with(layer + 1, At::Device);
            return can_run.then(|| (next, graph.forward_ns(layer, speed)));
        };
        let bytes = graph.activation_bytes(layer + 1);
        let (is_possible, more_bytes, ns) = match part {
            Part::Mask if layer + 1 == graph.layers() => {
                (is_here(layer + 1), bytes, launch_ns(2 * bytes, 0, speed))
            }
            // The result takes the place of the gradient.
            Part::Mask => (is_here(layer + 1), 0, launch_ns(3 * bytes, 0, speed)),
            Part::ByInput if layer == 0 => (true, 0, 0),
            Part::ByInput => {
                let ns = graph.product_ns(layer, speed);
                (true, graph.activation_bytes(layer), ns)
            }
            Part::ByWeight => {
                let ns = graph.product_ns(layer, speed);
                (is_here(layer), graph.weight_bytes(layer), ns)
            }
        };
        (is_possible && fits(more_bytes)).then_some((next, ns))
    }
}
