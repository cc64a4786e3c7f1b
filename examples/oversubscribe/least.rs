//! The fewest bytes that must travel, by arithmetic with a known future.
//!
//! The weights are read in a cycle, w0, w1, … wn-1, w0, …, and there is room for k of them.
//! Belady's rule moves the least: evict the weight whose next use is furthest away. In a cycle that
//! is the weight just used, because all others come before it. So of each n − 1 uses k − 1 find
//! their weight resident, and a pass restores about n (n − k) / (n − 1) weights. Most caches evict
//! the least recently used weight. That would restore all n in each pass, however large k is, until
//! all have room.

/// The fewest weights that must be loaded, for `passes` over `count` weights with room for `room`.
/// The first `present` of them are resident at the start.
pub(crate) fn loads(count: usize, room: usize, present: usize, passes: usize) -> u64 {
    // In the order of their next use, the last one at the end.
    let mut there: Vec<usize> = (0..present.min(room)).collect();
    let mut loads = 0;
    for wanted in (0..passes).flat_map(|_| 0..count) {
        match there.iter().position(|&index| index == wanted) {
            Some(at) => {
                there.remove(at);
            }
            None => {
                loads += 1;
                if there.len() >= room {
                    there.pop();
                }
            }
        }
        // In a cycle the weight just used is needed last.
        there.push(wanted);
    }
    loads
}

/// The fewest weights that must be written out if there is no other copy: those without room.
pub(crate) fn stores(count: usize, room: usize) -> u64 {
    count.saturating_sub(room) as u64
}
