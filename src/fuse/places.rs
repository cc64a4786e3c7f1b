//! Moves kernels to the place of their last launch.
//!
//! A group is put together when it closes, behind commands that came after its last launch. None of
//! them conflicts with it, or the group would have closed before. So it may run before them.

use std::ops::Range;

use lapidary_core::internal::Cmd;

/// Where the commands that are ready belong.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// For each recorded command, how many commands were ready after it was visited.
    ready_after: Vec<usize>,
    moves: Vec<Move>,
}

/// These ready commands belong behind the recorded command `after`.
#[derive(Debug)]
struct Move {
    from: Range<usize>,
    /// Index of the ready command that they come before.
    to: usize,
    after: usize,
}

impl Places {
    /// Another recorded command was visited, and `ready` commands are ready.
    pub(super) fn visited(&mut self, ready: usize) {
        self.ready_after.push(ready);
    }

    /// These ready commands run right after a recorded command.
    pub(super) fn run_after(&mut self, after: usize, from: Range<usize>) {
        // The command that is being visited has put nothing in front of them.
        let Some(&to) = self.ready_after.get(after) else {
            return;
        };
        if to < from.start {
            self.moves.push(Move { from, to, after });
        }
    }

    /// Puts the commands in order.
    pub(super) fn arrange(mut self, ready: &mut Vec<Cmd>) {
        if self.moves.is_empty() {
            return;
        }
        // Stable, so the kernels of one group keep their order.
        self.moves.sort_by_key(|one| (one.to, one.after));
        let mut commands: Vec<Option<Cmd>> = ready.drain(..).map(Some).collect();
        let mut moved: Vec<(usize, Vec<Cmd>)> = Vec::with_capacity(self.moves.len());
        for one in self.moves {
            let taken = commands[one.from].iter_mut().filter_map(Option::take);
            moved.push((one.to, taken.collect()));
        }
        let mut moved = moved.into_iter().peekable();
        for (index, command) in commands.into_iter().enumerate() {
            while let Some((_, taken)) = moved.next_if(|(to, _)| *to == index) {
                ready.extend(taken);
            }
            ready.extend(command);
        }
    }
}
