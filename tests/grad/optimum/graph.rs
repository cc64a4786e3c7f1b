//! A training step of a perceptron as a graph: what each part needs, gives and costs.

use lapidary::sim::Speed;

/// Rows of all activations.
pub(crate) const ROWS: usize = 4096;

/// The activations have these columns, from the input on. All are of f32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Graph {
    pub(crate) widths: &'static [usize],
}

/// Part of a layer backward: the mask of its activation, and two products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Mask,
    ByInput,
    ByWeight,
}

const PARTS: [Part; 3] = [Part::Mask, Part::ByInput, Part::ByWeight];

impl Graph {
    pub(crate) fn layers(&self) -> usize {
        self.widths.len() - 1
    }

    /// The layers forward, and the parts backward.
    pub(crate) fn steps(&self) -> usize {
        self.layers() * (1 + PARTS.len())
    }

    /// The layer and the part of it at this step, if the forward is done.
    pub(crate) fn part(&self, step: usize) -> Option<(usize, Part)> {
        let at = step.checked_sub(self.layers())?;
        let layer = self.layers().checked_sub(1 + at / PARTS.len())?;
        Some((layer, PARTS[at % PARTS.len()]))
    }

    pub(crate) fn activation_bytes(&self, index: usize) -> u64 {
        (ROWS * self.widths[index] * 4) as u64
    }

    pub(crate) fn weight_bytes(&self, layer: usize) -> u64 {
        (self.widths[layer] * self.widths[layer + 1] * 4) as u64
    }

    pub(crate) fn weights_bytes(&self) -> u64 {
        (0..self.layers())
            .map(|layer| self.weight_bytes(layer))
            .sum()
    }

    /// One of the products of a layer; all three have operands of the same sizes.
    pub(crate) fn product_ns(&self, layer: usize, speed: Speed) -> u64 {
        let [from, to] = [layer, layer + 1].map(|index| self.activation_bytes(index));
        let multiply_adds = (ROWS * self.widths[layer] * self.widths[layer + 1]) as u64;
        launch_ns(from + self.weight_bytes(layer) + to, multiply_adds, speed)
    }

    /// The step with all memory.
    pub(crate) fn all_ns(&self, speed: Speed) -> u64 {
        let last_bytes = self.activation_bytes(self.layers());
        let layers = (0..self.layers()).map(|layer| {
            let products = if layer == 0 { 1 } else { 2 };
            let mask_ns = launch_ns(3 * self.activation_bytes(layer + 1), 0, speed);
            self.forward_ns(layer, speed) + products * self.product_ns(layer, speed) + mask_ns
        });
        layers.sum::<u64>() - launch_ns(last_bytes, 0, speed)
    }

    /// A product and its activation.
    pub(crate) fn forward_ns(&self, layer: usize, speed: Speed) -> u64 {
        let activation_ns = launch_ns(2 * self.activation_bytes(layer + 1), 0, speed);
        self.product_ns(layer, speed) + activation_ns
    }
}

/// The time of a kernel with operands of `bytes` bytes.
pub(crate) fn launch_ns(bytes: u64, multiply_adds: u64, speed: Speed) -> u64 {
    let bytes = bytes as f64 / speed.memory_bytes_per_s as f64;
    let sums = multiply_adds as f64 / speed.multiply_adds_per_s as f64;
    (1e9 * bytes.max(sums)) as u64
}

/// The time of bytes on their way to the host, without that of their copies.
pub(crate) fn download_ns(bytes: u64, speed: Speed) -> u64 {
    (1e9 * bytes as f64 / speed.download_bytes_per_s as f64) as u64
}

/// The same to the device.
pub(crate) fn upload_ns(bytes: u64, speed: Speed) -> u64 {
    (1e9 * bytes as f64 / speed.upload_bytes_per_s as f64) as u64
}

/// The widths of graphs that are compared in half the memory.
pub(crate) const HALVED: [&[usize]; 7] = [
    &[256, 512, 128, 512, 256, 640, 192, 256],
    &[512, 384, 256, 128, 256, 384, 512],
    &[640, 128, 640, 128, 640, 128, 640],
    &[512, 256, 512, 256, 512, 256],
    &[256, 512, 128, 512, 256, 640, 192],
    &[256; 9],
    &[256; 7],
];

/// The devices for which both are compared.
pub(crate) fn devices() -> [(&'static str, Speed); 3] {
    let speed = |link: u64, memory: u64, multiply_adds: u64| Speed {
        upload_bytes_per_s: link * 1_000_000_000,
        download_bytes_per_s: link * 1_000_000_000,
        memory_bytes_per_s: memory * 1_000_000_000,
        multiply_adds_per_s: multiply_adds * 1_000_000_000,
        copy_ns: 0,
        submission_ns: 0,
    };
    [
        ("fast link", speed(400, 1000, 10_000)),
        ("PCIe 4 x16, 20 TFLOP/s", speed(24, 500, 10_000)),
        ("software adapter", speed(4, 8, 20)),
    ]
}
