//! What is known of each word of memory: who wrote it, who read it, and since when.
//!
//! Two accesses to one word are a *race* if one of them writes and nothing orders them. Within a
//! workgroup a barrier does; it ends an *epoch* of the memory that it is for. Within a subgroup
//! `subgroupBarrier` does. Workgroups of one dispatch are ordered by nothing. A word keeps its
//! last write and, of the reads since, as many as are needed to find the next write's partner:
//!
//! ```text
//!   write   the last one
//!   read    the last one of this epoch, in the workgroup that read last
//!   also    another invocation that read in the same epoch of the same workgroup
//!   other   an invocation of another workgroup that read before
//! ```
//!
//! Atomic operations are not looked at: they are ordered among themselves, and WGSL's types keep
//! all others away.

/// An access: the invocation, counted from one over the whole dispatch, when, and where in the
/// code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// 0 for none.
    pub(super) who: u32,
    pub(super) instr: u32,
    epoch: u32,
    subgroup_epoch: u32,
}

/// Who accesses memory now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) who: u32,
    pub(super) instr: u32,
    /// Barriers of this memory that the workgroup has passed.
    pub(super) epoch: u32,
    /// Barriers that the subgroup has passed.
    pub(super) subgroup_epoch: u32,
    /// Invocations of a workgroup, and of a subgroup.
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

    fn same_subgroup(&self, who: u32) -> bool {
        let subgroup = |who: u32| (who - 1) % self.group_size / self.lanes;
        self.same_group(who) && subgroup(who) == subgroup(self.who)
    }

    /// Has the access happened before now, whatever the interleaving?
    fn is_after(&self, access: &Stamp) -> bool {
        if access.who == 0 || access.who == self.who {
            return true;
        }
        self.same_group(access.who)
            && (access.epoch != self.epoch
                || access.subgroup_epoch != self.subgroup_epoch && self.same_subgroup(access.who))
    }
}

/// What is known of a word.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    write: Stamp,
    read: Stamp,
    also: u32,
    other: u32,
    is_written: bool,
}

/// An access that a new one races with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rival {
    pub(super) who: u32,
    pub(super) instr: u32,
    pub(super) wrote: bool,
}

impl Rival {
    fn of(stamp: &Stamp, wrote: bool) -> Option<Self> {
        Some(Rival {
            who: stamp.who,
            instr: stamp.instr,
            wrote,
        })
    }
}

impl Cell {
    /// Was it ever written?
    pub(super) fn is_written(&self) -> bool {
        self.is_written
    }

    /// It holds something from now on.
    pub(super) fn set_written(&mut self) {
        self.is_written = true;
    }

    /// Somebody reads it.
    pub(super) fn read(&mut self, now: &Now) -> Option<Rival> {
        let last = self.read;
        if last.who != now.who || last.epoch != now.epoch {
            if now.is_after(&last) {
                self.read = now.stamp();
                self.also = 0;
            } else if now.same_group(last.who) {
                self.also = now.who;
            } else {
                self.other = last.who;
                self.read = now.stamp();
                self.also = 0;
            }
        }
        match now.is_after(&self.write) {
            true => None,
            false => Rival::of(&self.write, true),
        }
    }

    /// Somebody writes it.
    pub(super) fn write(&mut self, now: &Now) -> Option<Rival> {
        let (write, read) = (self.write, self.read);
        self.write = now.stamp();
        self.is_written = true;
        if !now.is_after(&write) {
            return Rival::of(&write, true);
        }
        if !now.is_after(&read) {
            return Rival::of(&read, false);
        }
        let also = Stamp {
            who: self.also,
            ..read
        };
        if !now.is_after(&also) {
            return Rival::of(&also, false);
        }
        let other = Stamp {
            who: self.other,
            ..read
        };
        match other.who == 0 || now.same_group(other.who) {
            true => None,
            false => Rival::of(&other, false),
        }
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
        // The next workgroup is ordered by nothing.
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
        // Of two workgroups, one is not the writer's.
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
}
