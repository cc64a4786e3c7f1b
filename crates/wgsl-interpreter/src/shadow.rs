//! The history of each word of memory: which invocations wrote and read it, and when.
//!
//! Two accesses to one word are a *race* if one of them writes and nothing orders them. Within a
//! workgroup a barrier orders accesses; it ends an *epoch* of the memory to which it applies.
//! Within a subgroup `subgroupBarrier` does. Nothing orders the workgroups of one dispatch; the
//! interpreter runs them one after the other. A word keeps its last write, and as many of its reads
//! as are needed to find the next write's partner:
//!
//! ```text
//!   write   the last one
//!   reads   two that nothing orders, in the workgroup that read last: of two subgroups, or else
//!           of two invocations since the last barrier of their subgroup
//!   other   one of another workgroup that read before
//! ```
//!
//! Two reads are enough. A writer of neither subgroup races with both reads. A writer of one of the
//! subgroups races with the other's read. A read that is ordered before a later read needs no
//! place. An access that races with the earlier read races with the later one too.
//!
//! Atomic operations are not recorded. They are ordered among themselves, and WGSL's types forbid
//! all other accesses to atomics.

/// An access: the invocation, counted from 1 over the whole dispatch, the epochs, and the
/// instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// 0 for none.
    pub(super) who: u32,
    pub(super) instr: u32,
    epoch: u32,
    subgroup_epoch: u32,
}

/// The identity of the present access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) who: u32,
    pub(super) instr: u32,
    /// The barriers of this memory that the workgroup has passed.
    pub(super) epoch: u32,
    /// The barriers that the subgroup has passed.
    pub(super) subgroup_epoch: u32,
    /// The invocations of a workgroup, and of a subgroup.
    pub(super) group_size: u32,
    pub(super) lanes: u32,
}

impl Now {
    fn stamp(&self) -> Stamp {
        Stamp {
            who: self.who,
            instr: self.instr,
            epoch: self.epoch,
            subgroup_epoch: self.subgroup_epoch,
        }
    }

    fn same_group(&self, who: u32) -> bool {
        (who - 1) / self.group_size == (self.who - 1) / self.group_size
    }

    /// Whether two invocations of one workgroup are in one subgroup.
    fn together(&self, one: u32, other: u32) -> bool {
        let subgroup = |who: u32| (who - 1) % self.group_size / self.lanes;
        subgroup(one) == subgroup(other)
    }

    /// Whether the access happened before now in every interleaving.
    fn is_after(&self, access: &Stamp) -> bool {
        if access.who == 0 || access.who == self.who {
            return true;
        }
        self.same_group(access.who)
            && (access.epoch != self.epoch
                || access.subgroup_epoch != self.subgroup_epoch
                    && self.together(access.who, self.who))
    }
}

/// The history of a word.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    write: Stamp,
    reads: [Stamp; 2],
    other: Stamp,
    is_written: bool,
}

/// An access that a new access races with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rival {
    pub(super) who: u32,
    pub(super) instr: u32,
    pub(super) wrote: bool,
}

impl Rival {
    fn of(stamp: &Stamp, wrote: bool) -> Self {
        Rival {
            who: stamp.who,
            instr: stamp.instr,
            wrote,
        }
    }
}

impl Cell {
    /// Whether the word was ever written.
    pub(super) fn is_written(&self) -> bool {
        self.is_written
    }

    /// Marks the word as written.
    pub(super) fn set_written(&mut self) {
        self.is_written = true;
    }

    /// Records a read. Returns the access that it races with.
    pub(super) fn read(&mut self, now: &Now) -> Option<Rival> {
        self.keep_read(now);
        let is_ordered = now.is_after(&self.write);
        (!is_ordered).then(|| Rival::of(&self.write, true))
    }

    fn keep_read(&mut self, now: &Now) {
        let here = now.stamp();
        let [one, another] = self.reads;
        if one.who != 0 && !now.same_group(one.who) {
            self.other = one;
            self.reads = [here, Stamp::default()];
            return;
        }
        self.reads = match (now.is_after(&one), now.is_after(&another)) {
            (true, true) => [here, Stamp::default()],
            (true, false) => [here, another],
            (false, true) => [one, here],
            (false, false) => {
                let is_apart = !now.together(one.who, now.who);
                match now.together(one.who, another.who) && is_apart {
                    true => [one, here],
                    false => [one, another],
                }
            }
        };
    }

    /// Records a write. Returns the access that it races with.
    pub(super) fn write(&mut self, now: &Now) -> Option<Rival> {
        let write = self.write;
        self.write = now.stamp();
        self.is_written = true;
        if !now.is_after(&write) {
            return Some(Rival::of(&write, true));
        }
        let [one, another] = self.reads;
        let mut reads = [one, another, self.other].into_iter();
        let read = reads.find(|read| !now.is_after(read));
        read.map(|read| Rival::of(&read, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(who: u32, epoch: u32) -> Now {
        Now {
            who,
            instr: who,
            epoch,
            subgroup_epoch: 0,
            group_size: 4,
            lanes: 2,
        }
    }

    fn rival(access: Option<Rival>) -> Option<u32> {
        access.map(|rival| rival.who)
    }

    #[test]
    fn one_epoch_orders_nobody_and_a_barrier_orders_a_workgroup() {
        let mut cell = Cell::default();
        assert_eq!(cell.write(&at(1, 0)), None);
        assert_eq!(cell.read(&at(1, 0)), None);
        assert_eq!(rival(cell.read(&at(2, 0))), Some(1));
        assert_eq!(cell.read(&at(3, 1)), None);
        assert_eq!(rival(cell.write(&at(2, 1))), Some(3));
        assert_eq!(cell.write(&at(4, 2)), None);
        // Nothing orders the next workgroup.
        assert_eq!(rival(cell.read(&at(5, 7))), Some(4));
    }

    #[test]
    fn of_many_readers_one_is_always_left_to_find() {
        for writer in 1..=4 {
            for readers in [&[1, 2][..], &[2, 1], &[1, 2, 3, 4], &[4, 4, 3]] {
                let mut cell = Cell::default();
                readers
                    .iter()
                    .for_each(|who| assert_eq!(cell.read(&at(*who, 0)), None));
                let others = readers.iter().any(|who| *who != writer);
                assert_eq!(cell.write(&at(writer, 0)).is_some(), others);
            }
        }
        // Of two workgroups, at least one is not the writer's.
        let mut cell = Cell::default();
        assert_eq!(cell.read(&at(1, 0)), None);
        assert_eq!(cell.read(&at(5, 0)), None);
        assert_eq!(rival(cell.write(&at(6, 3))), Some(1));
    }

    #[test]
    fn a_subgroups_barrier_orders_its_lanes_only() {
        let later = |who| Now {
            subgroup_epoch: 1,
            ..at(who, 0)
        };
        let mut cell = Cell::default();
        assert_eq!(cell.write(&at(1, 0)), None);
        assert_eq!(cell.read(&later(2)), None);
        assert_eq!(rival(cell.read(&later(3))), Some(1));
    }

    /// Finds a race among all accesses of a dispatch to one word, of which the cell keeps four.
    fn race_among(accesses: &[(Stamp, bool)], now: &Now, writes: bool) -> bool {
        let conflicts = |wrote: bool| wrote || writes;
        let mut accesses = accesses.iter();
        accesses.any(|(access, wrote)| conflicts(*wrote) && !now.is_after(access))
    }

    #[test]
    fn a_race_is_found_exactly_if_there_is_one_among_all_accesses() {
        const GROUP: u32 = 8;
        let mut races = [0; 2];
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let lanes = [2, 4][random.usize(..2)];
            let (mut cell, mut accesses) = (Cell::default(), Vec::new());
            let (mut epoch, mut subgroup_epochs) = (0, [0; 4]);
            let mut group = 0;
            for _ in 0..random.u32(2..24) {
                let lane = random.u32(..GROUP);
                let subgroup = (lane / lanes) as usize;
                match random.u32(..16) {
                    0 => (group, epoch, subgroup_epochs) = (group + 1, 0, [0; 4]),
                    1 => epoch += 1,
                    2..=5 => subgroup_epochs[subgroup] += 1,
                    chance => {
                        let now = Now {
                            who: group * GROUP + lane + 1,
                            instr: 0,
                            epoch,
                            subgroup_epoch: subgroup_epochs[subgroup],
                            group_size: GROUP,
                            lanes,
                        };
                        let writes = chance > 13;
                        let found = match writes {
                            true => cell.write(&now),
                            false => cell.read(&now),
                        };
                        let is_race = race_among(&accesses, &now, writes);
                        assert_eq!(
                            found.is_some(),
                            is_race,
                            "seed {seed}: {accesses:?} {now:?}"
                        );
                        races[usize::from(is_race)] += 1;
                        if is_race {
                            break;
                        }
                        accesses.push((now.stamp(), writes));
                    }
                }
            }
        }
        assert!(races.iter().all(|count| *count > 1000), "{races:?}");
    }
}
