//! The result of a trace under one policy.

/// Points of a curve over a trace. Each is the maximum since the previous one.
pub const POINTS: usize = 240;

/// The highest levels between two points of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    pub live_bytes: u64,
    pub reserved_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub peak_live_bytes: u64,
    pub peak_reserved_bytes: u64,
    pub buffers_created: u64,
    pub buffers_created_last_third: u64,
    /// Requests that found no memory; in traces with operators, such operators.
    pub refused: u64,
    pub ns_per_event: f64,
    /// Bytes of all blocks that the trace allocated.
    pub allocated_bytes: u64,
    pub moved_bytes: u64,
    pub compactions_last_third: u64,
    pub out_bytes: u64,
    pub in_bytes: u64,
    /// Bytes moved in both directions by Belady's algorithm, if the trace says what operators read.
    pub reference_bytes: Option<u64>,
    pub curve: Vec<Point>,
}

impl Outcome {
    /// Peak reserved over peak live.
    pub fn ratio(&self) -> f64 {
        self.peak_reserved_bytes as f64 / self.peak_live_bytes.max(1) as f64
    }

    /// Share of the reserved bytes that is not live, over the whole trace.
    pub fn waste(&self) -> f64 {
        let sum = |bytes: fn(&Point) -> u64| {
            self.curve
                .iter()
                .map(|point| bytes(point) as f64)
                .sum::<f64>()
        };
        let reserved = sum(|point| point.reserved_bytes);
        let live = sum(|point| point.live_bytes);
        match reserved > 0.0 {
            true => (1.0 - live / reserved).max(0.0),
            false => 0.0,
        }
    }
}

/// Splits a number of events into one range for each point. Two thirds of a trace end at a range's
/// end.
pub fn stretches(events: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = move |point: usize| (events as u128 * point as u128 / POINTS as u128) as usize;
    (0..POINTS).map(move |point| (end(point), end(point + 1)))
}

/// The first point of the last third.
pub const LAST_THIRD: usize = POINTS * 2 / 3;
