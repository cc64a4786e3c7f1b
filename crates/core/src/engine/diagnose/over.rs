//! Looks at all canaries and all freed ranges.

use super::{ANSWER_BYTES, About, Asked, Diagnose, Look, steps};
use crate::driver::Binding;
use crate::engine::state::State;
use crate::memory::Zone;

/// Larger freed ranges get a look with many invocations. All other zones get one invocation each.
const TABLED_BYTES: u64 = 4 << 10;

/// A zone, and the subject of its answer.
type Tabled = (Zone, fn(Zone) -> About);

/// Zones of one slab that fit in one binding.
pub(crate) struct ZoneGroup {
    seen: Binding,
    zones: Vec<Tabled>,
}

impl ZoneGroup {
    /// The number of answers of the group.
    pub(crate) fn len(&self) -> usize {
        self.zones.len()
    }

    /// The ranges of the zones in the binding, four words a zone.
    pub(crate) fn table(&self) -> Vec<u8> {
        let words = self.zones.iter().map(|(zone, _)| {
            let start = (zone.place.offset_bytes - self.seen.offset_bytes) / 4;
            [start as u32, (zone.size_bytes / 4) as u32, 0, 0]
        });
        let bytes = words.flat_map(|words| bytemuck::bytes_of(&words).to_vec());
        bytes.collect()
    }
}

/// Begins a check of everything. Returns the large freed ranges, which are checked one by one, and
/// all other zones in groups.
pub(crate) fn begin_look_over(state: &mut State) -> Option<(Vec<Zone>, Vec<ZoneGroup>)> {
    state.diagnose.as_mut()?.is_all_seen = true;
    super::handle_changes(state);
    let memory = &state.memory;
    let (canaries, freed) = memory.canaries.zones(&memory.slots, &memory.slabs);
    let is_large = |zone: &Zone| zone.size_bytes > TABLED_BYTES;
    let (large, small): (Vec<_>, Vec<_>) = freed.into_iter().partition(is_large);
    let tabled = |about: fn(Zone) -> About| move |zone| (zone, about);
    let canaries = canaries.into_iter().map(tabled(About::Canary));
    let freed = small.into_iter().map(tabled(About::Freed));
    let mut zones: Vec<Tabled> = canaries.chain(freed).collect();
    zones.sort_by_key(|(zone, _)| zone.order());
    Some((large, by_window(state, zones)))
}

/// Looks at a freed range.
pub(crate) fn look_at_freed(state: &mut State, zone: Zone) {
    super::with(state, |diagnose, state| {
        diagnose.look_at_zone(state, zone, About::Freed);
    });
}

/// Records one dispatch for each group. Its table of zones lies in the buffer of the answers, from
/// the answer `first` on.
pub(crate) fn look_at_groups(state: &mut State, groups: Vec<ZoneGroup>, first: u32) {
    super::with(state, |diagnose, state| {
        let mut answer = first;
        for group in groups {
            let (first, count) = (answer, group.zones.len() as u32);
            for (zone, about) in group.zones {
                state.memory.slabs.touch(zone.place);
                diagnose.asked.push(Asked {
                    about: about(zone),
                    first: answer,
                    count: 1,
                    from: 0,
                });
                answer += 1;
            }
            let params = [[0, count, first, 0], [0; 4]];
            let groups = count.div_ceil(64);
            diagnose.dispatch(state, Look::Table, group.seen, params, groups);
        }
        // A refusal meanwhile may have taken back earlier looks.
        diagnose.used = diagnose.used.max(answer);
    });
}

/// Groups zones, sorted by slab and offset, by binding. Limits the size of a group so that its
/// answers fit.
fn by_window(state: &State, zones: Vec<Tabled>) -> Vec<ZoneGroup> {
    let (alignment, window_bytes) = steps(state.driver.caps());
    let gear = state.diagnose.as_ref().and_then(|one| one.gear.as_ref());
    let most = gear.map_or(0, |gear| gear.answers as usize / 4);
    let mut groups: Vec<ZoneGroup> = Vec::new();
    for (zone, about) in zones {
        let place = zone.place;
        let end = place.offset_bytes + zone.size_bytes;
        match groups.last_mut() {
            Some(ZoneGroup { seen, zones })
                if seen.buffer == place.buffer
                    && end - seen.offset_bytes <= window_bytes
                    && zones.len() < most =>
            {
                seen.size_bytes = end - seen.offset_bytes;
                zones.push((zone, about));
            }
            _ => {
                let base = place.offset_bytes & !(alignment - 1);
                groups.push(ZoneGroup {
                    seen: Binding {
                        buffer: place.buffer,
                        offset_bytes: base,
                        size_bytes: end - base,
                    },
                    zones: vec![(zone, about)],
                });
            }
        }
    }
    groups
}

impl Diagnose {
    /// The number of free answers.
    pub(crate) fn free_answers(&self) -> usize {
        let free = self.gear.as_ref().map(|gear| gear.answers - self.used);
        free.unwrap_or(0) as usize
    }

    /// Reserves answers for a table of `count` zones. Returns the first, and its offset in the
    /// buffer.
    pub(crate) fn take_table(&mut self, count: u32) -> (u32, u64) {
        let first = self.used;
        self.used += count;
        let offset_bytes = super::PATTERN_BYTES + u64::from(first) * ANSWER_BYTES;
        (first, offset_bytes)
    }
}
