//! Decides which commands may run together, and where.
//!
//! Commands are visited in program order. A *group* holds elementwise launches that run together.
//! No command between the first of them and the end of the group may conflict with it. It must not
//! read what the group writes, nor write what the group reads or writes. It must also not write
//! what a rematerializer would compute the group's operands from.
//!
//! So the group may run at the position of its last launch, or of the command that closes it. It
//! takes the earlier one if waiting would keep more memory alive than its results take.
//!
//! A launch joins the groups whose results it reads, which merge into one. A reader joins the group
//! that computes its `x`. Any other command that touches a group closes it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::expr::MOST_LAUNCHES;
use super::member::Member;
use crate::ops::readers::Reader;
use lapidary_core::internal::{Cmd, Launch, Role, Storage};

/// Most groups that are open at a time.
const MOST_OPEN: usize = 4;

/// Most launches that wait for later ones.
const MOST_WAITING: usize = 64;

/// Most readers of one group.
const MOST_READERS: usize = 4;

/// Launches that may run together: first `earlier`, then `members`.
#[derive(Debug, Default)]
pub(super) struct FuseGroup {
    /// Pairs of launches, perhaps none, and the reader that reads their result.
    pub(super) earlier: Vec<(Vec<Member>, Reading)>,
    pub(super) members: Vec<Member>,
    /// Addresses of storages.
    reads: Vec<usize>,
    writes: Vec<usize>,
    /// The share that all results are in, if there are any. A share may be cancelled alone.
    share: Option<u64>,
}

/// The launch of a reader, and its kernel.
#[derive(Debug)]
pub(super) struct Reading {
    /// Its position among the recorded commands.
    pub(super) order: usize,
    pub(super) reader: &'static Reader,
    pub(super) launch: Launch,
}

/// The state of grouping.
#[derive(Debug, Default)]
pub(super) struct Grouping {
    open: Vec<FuseGroup>,
    /// Groups that run now, in this order.
    pub(super) closed: Vec<FuseGroup>,
    /// The command that runs after `closed`.
    pub(super) passed: Option<Cmd>,
    /// Empty groups, kept for reuse of their allocations.
    pub(super) spare: Vec<FuseGroup>,
}

fn address(storage: &Arc<Storage>) -> usize {
    Arc::as_ptr(storage) as usize
}

/// The share of the launch's result, which is its last operand.
fn share_of(launch: &Launch) -> Option<u64> {
    Some(launch.args.last()?.storage.share_number())
}

impl FuseGroup {
    /// Removes everything, but keeps the allocations.
    pub(super) fn clear(&mut self) {
        self.earlier.clear();
        self.members.clear();
        self.reads.clear();
        self.writes.clear();
        self.share = None;
    }

    /// Are its results in this share, as far as there are any?
    fn is_in(&self, share: Option<u64>) -> bool {
        self.share.is_none() || self.share == share
    }

    /// Ends the current members with a reader. The following members read its result.
    fn go_on_after(&mut self, reading: Reading) {
        if let Some((y, others)) = reading.launch.args.split_last() {
            self.writes.push(address(&y.storage));
            self.share = Some(y.storage.share_number());
            let others = others.iter().map(|arg| address(&arg.storage));
            self.reads.extend(others);
        }
        let members = std::mem::take(&mut self.members);
        self.earlier.push((members, reading));
    }

    fn take_in(&mut self, member: Member) {
        let args = &member.launch.args;
        let Some((out, inputs)) = args.split_last() else {
            return;
        };
        for arg in inputs {
            let read = address(&arg.storage);
            // Nearly always it was written by the group, and then the read adds nothing.
            let is_known = self.writes.iter().rev().any(|&written| written == read);
            if !is_known && !self.reads.contains(&read) {
                self.reads.push(read);
            }
        }
        let written = address(&out.storage);
        self.share = Some(out.storage.share_number());
        if self.writes.last() != Some(&written) {
            self.writes.push(written);
        }
        self.members.push(member);
    }

    /// Whether the group must run before a command that uses the storage in this role.
    fn concerns(&self, storage: usize, role: Role) -> bool {
        let writes = || self.writes.iter().rev().any(|&written| written == storage);
        writes() || role != Role::Read && self.reads.contains(&storage)
    }

    fn has_readers(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// The number of elements that the members compute, if there are members.
    fn len(&self) -> Option<u32> {
        self.members.last().map(|member| member.seen.len)
    }
}

impl Grouping {
    /// Takes a command that cannot be fused.
    pub(super) fn pass(&mut self, cmd: Cmd) {
        if !self.open.is_empty() {
            let mut concerned = 0_u32;
            cmd.each_operand(&mut |storage, role| {
                concerned |= self.concerned(address(storage), role) | self.ended_by(storage, role);
            });
            self.close(concerned);
        }
        self.passed = Some(cmd);
    }

    /// Takes a reader. A group may compute its operand `x`, and continue with its result.
    pub(super) fn read(&mut self, reading: Reading) {
        let x = address(&reading.launch.args[0].storage);
        let mut concerned = 0_u32;
        for (index, arg) in reading.launch.args.iter().enumerate() {
            let role = reading.launch.program.role(index);
            concerned |= self.concerned(address(&arg.storage), role);
            concerned |= self.ended_by(&arg.storage, role);
        }
        let share = share_of(&reading.launch);
        let makes_x = |group: &FuseGroup| {
            group.writes.contains(&x) && group.earlier.len() < MOST_READERS && group.is_in(share)
        };
        let joined = match self.open.iter().position(makes_x) {
            Some(group) => 1 << group,
            None => 0,
        };
        // The other groups do not depend on it.
        let group = self.merge(joined, concerned & !joined);
        let mut group = group.unwrap_or_else(|| self.empty());
        group.go_on_after(reading);
        self.open(group);
    }

    /// Takes a launch that can be fused.
    pub(super) fn join(&mut self, member: Member) {
        let (mut concerned, mut ended) = (0, 0);
        for (index, arg) in member.launch.args.iter().enumerate() {
            let role = member.launch.program.role(index);
            // No group knows a new storage yet.
            if role != Role::Write {
                concerned |= self.concerned(address(&arg.storage), role);
                ended |= self.ended_by(&arg.storage, role);
            }
        }
        let share = share_of(&member.launch);
        // The groups that it can join, as far as the limit allows.
        let (mut joined, mut launches, mut has_reader) = (0_u32, 1, false);
        for (index, group) in self.open.iter().enumerate() {
            // A launch of another length may still read a view of one group's result.
            let is_alike =
                group.len().is_none_or(|len| len == member.seen.len) || concerned.is_power_of_two();
            // At most one of the merged groups may have readers.
            let is_alike = is_alike && !(has_reader && group.has_readers()) && group.is_in(share);
            if concerned >> index & 1 == 1
                && is_alike
                && launches + group.members.len() <= MOST_LAUNCHES
            {
                joined |= 1 << index;
                has_reader |= group.has_readers();
                launches += group.members.len();
            }
        }
        match self.merge(joined, (concerned | ended) & !joined) {
            Some(mut group) => {
                group.take_in(member);
                self.open.push(group);
            }
            None => {
                let mut group = self.empty();
                group.take_in(member);
                self.open(group);
            }
        }
    }

    fn empty(&mut self) -> FuseGroup {
        self.spare.pop().unwrap_or_default()
    }

    fn open(&mut self, group: FuseGroup) {
        if self.open.len() >= MOST_OPEN {
            let oldest = self.open.remove(0);
            self.closed.push(oldest);
        }
        self.open.push(group);
    }

    /// The open groups that conflict with the command, as bits.
    fn concerned(&self, storage: usize, role: Role) -> u32 {
        let groups = self.open.iter().enumerate();
        groups
            .map(|(index, group)| u32::from(group.concerns(storage, role)) << index)
            .sum()
    }

    /// The open groups that must run before a command uses a storage in this role. A rematerializer
    /// may compute their operands from what the storage holds now. These are all open groups: only
    /// the memory layer knows the inputs of rematerializers, and such writes are rare.
    fn ended_by(&self, storage: &Storage, role: Role) -> u32 {
        match role != Role::Read && storage.feeds_rematerializers() {
            true => (1 << self.open.len()) - 1,
            false => 0,
        }
    }

    /// Closes the groups whose bits are set.
    fn close(&mut self, which: u32) {
        for index in (0..self.open.len()).rev() {
            if which >> index & 1 == 1 {
                let group = self.open.remove(index);
                self.closed.push(group);
            }
        }
    }

    /// Merges some of the open groups and takes them out; closes others.
    fn merge(&mut self, joined: u32, others: u32) -> Option<FuseGroup> {
        if joined == 0 {
            self.close(others);
            return None;
        }
        let mut whole: Option<FuseGroup> = None;
        for index in (0..self.open.len()).rev() {
            if others >> index & 1 == 1 {
                let group = self.open.remove(index);
                self.closed.push(group);
            } else if joined >> index & 1 == 1 {
                let mut group = self.open.remove(index);
                whole = Some(match whole {
                    None => group,
                    Some(mut whole) => {
                        whole.members.append(&mut group.members);
                        whole.members.sort_unstable_by_key(|member| member.order);
                        whole.reads.append(&mut group.reads);
                        whole.writes.append(&mut group.writes);
                        whole.earlier.append(&mut group.earlier);
                        group.share = None;
                        self.spare.push(group);
                        whole
                    }
                });
            }
        }
        whole
    }

    /// Closes all open groups, oldest first.
    pub(super) fn close_all(&mut self) {
        self.closed.append(&mut self.open);
    }

    /// Takes out the members that later commands may still join, in program order. Groups that keep
    /// more memory alive than their results take do not wait.
    pub(super) fn leave_waiting(&mut self) -> Vec<Member> {
        let mut left = 0;
        let mut waiting = Vec::new();
        for index in (0..self.open.len()).rev() {
            let group = &self.open[index];
            let is_read = |member: &Member| !member.seen.element.names.is_empty();
            let may_wait = group.members.iter().any(is_read)
                && !group.has_readers()
                && !group.keeps_more_than_it_makes();
            if may_wait && left + group.members.len() <= MOST_WAITING {
                left += group.members.len();
                let mut group = self.open.remove(index);
                waiting.append(&mut group.members);
                group.clear();
                self.spare.push(group);
            }
        }
        waiting.sort_unstable_by_key(|member| member.order);
        waiting
    }
}

/// A group that reads this many times the bytes of its results runs early, whoever else holds its
/// operands. Other holders may be done with them sooner. The sum of a product in four parts does
/// so.
const SHRINKS: u64 = 4;

impl FuseGroup {
    /// The position of its last launch among the recorded commands.
    pub(super) fn last(&self) -> usize {
        let last_reading = self.earlier.last().map(|(_, reading)| reading.order);
        let last_member = self.members.last().map(|member| member.order);
        last_member.max(last_reading).unwrap_or(0)
    }

    /// Whether it should run at the position of its last launch: to wait would keep more memory
    /// alive than its results take.
    pub(super) fn runs_early(&self) -> bool {
        let bytes = self.bytes();
        bytes.kept > bytes.made || bytes.read / SHRINKS >= bytes.made
    }

    fn keeps_more_than_it_makes(&self) -> bool {
        let bytes = self.bytes();
        bytes.kept > bytes.made
    }

    fn launches(&self) -> impl Iterator<Item = &Launch> {
        let earlier = self.earlier.iter().flat_map(|(members, reading)| {
            let members = members.iter().map(|member| &member.launch);
            members.chain([&reading.launch])
        });
        earlier.chain(self.members.iter().map(|member| &member.launch))
    }

    fn bytes(&self) -> GroupBytes {
        // How many references the group holds to each storage.
        let mut held: SmallVec<[(&Arc<Storage>, usize); 16]> = SmallVec::new();
        for arg in self.launches().flat_map(|launch| &launch.args) {
            let known = held
                .iter()
                .rposition(|(one, _)| Arc::ptr_eq(one, &arg.storage));
            match known {
                Some(known) => held[known].1 += 1,
                None => held.push((&arg.storage, 1)),
            }
        }
        let mut bytes = GroupBytes::default();
        for (storage, times) in held {
            let is_made = self.writes.contains(&address(storage));
            let is_held = Arc::strong_count(storage) > times;
            if is_made && is_held {
                bytes.made += storage.size_bytes();
            } else if !is_made {
                bytes.read += storage.size_bytes();
                bytes.kept += if is_held { 0 } else { storage.size_bytes() };
            }
        }
        bytes
    }
}

/// The bytes of a group's storages.
#[derive(Debug, Default)]
struct GroupBytes {
    read: u64,
    /// Read, and held by nobody else.
    kept: u64,
    /// The results that somebody holds.
    made: u64,
}
