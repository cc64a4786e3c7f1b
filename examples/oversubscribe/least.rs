//! How few bytes must travel: by arithmetic, for one who knows the future.
//!
//! The weights are read in a cycle, w0, w1, … wn-1, w0, …, and there is room for k of them.
//! Belady's rule, to evict what is used last, moves the least. In a cycle that is the one used just
//! now: all others come before it. So of each n − 1 uses k − 1 find their weight there, and a pass
//! brings about n (n − k) / (n − 1) weights in. To evict what was used longest ago, as most caches
//! do, would bring in all n, however large k is, until all have room.

/// How many weights must be brought in at least, for `passes` over `count` weights with room for
/// `room`. The first `present` of them are there to begin with.
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
        // In a cycle what was used just now is the last that is wanted again.
        there.push(wanted);
    }
    loads
}

/// How many must be written out at least, if nobody else has them: those without room.
pub(crate) fn stores(count: usize, room: usize) -> u64 {
    count.saturating_sub(room) as u64
}
