//! Ranks that `mpirun` starts: collective operations, training, bad calls, and ranks that fail.
//!
//! This program starts itself by `mpirun`. As a rank it runs one of the programs in `programs`.
//! Else it runs the cases below, or those whose names contain one of its arguments.

mod job;
mod programs;
mod resumes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use job::{Ended, Job};

/// A name and what it checks.
type Case = (&'static str, fn());

const CASES: &[Case] = &[
    ("sums_have_the_order_of_the_ranks", || {
        for count in [2, 3] {
            Job::of(count, "sums").passes();
        }
    }),
    ("parts_and_copies_arrive", || {
        for count in [2, 3] {
            Job::of(count, "moves").passes();
        }
    }),
    ("training_is_that_of_several_devices_to_the_bit", || {
        for count in [2, 4] {
            Job::of(count, "trains").passes();
        }
    }),
    ("training_on_the_adapter_is_that_of_several_devices", || {
        Job::of(2, "trains_on_adapter").passes();
    }),
    ("different_calls_are_an_error_on_each_rank", || {
        Job::of(3, "differs").passes();
    }),
    ("a_backward_that_fails_on_one_rank_fails_on_all", || {
        Job::of(3, "backward_fails").passes();
    }),
    ("two_replicas_mixed_up_are_an_error_on_each_rank", || {
        Job::of(3, "mixed_replicas").passes();
    }),
    ("a_value_without_a_parameter_names_the_callers_line", || {
        Job::of(2, "constant").passes();
        Job::alone("constant").passes();
    }),
    ("a_rank_without_room_is_named_on_all_ranks", || {
        Job::of(3, "no_room").passes();
    }),
    ("a_lost_device_is_named_on_all_ranks", || {
        Job::of(2, "lost_device").passes();
    }),
    ("a_rank_that_returns_an_error_is_named", || {
        let ended = Job::of(3, "returns_error").fails();
        for rank in [0, 2] {
            ended.says(
                &format!("rank {rank} of 3"),
                &["rank 1 of 3", "the disk is full"],
            );
        }
    }),
    ("a_rank_that_panics_is_named", || {
        let ended = Job::of(3, "panics").fails();
        for rank in [0, 2] {
            ended.says(
                &format!("rank {rank} of 3"),
                &["rank 1 of 3", "out of ideas"],
            );
        }
    }),
    ("a_rank_that_ends_early_is_named", || {
        let ended = Job::of(3, "ends_early").fails();
        ended.says("rank 0 of 3", &["rank 1", "the end of the program"]);
        // Rank 2 may have found out and told it before rank 0 has come to the call.
        ended.says("rank 1 of 3", &["all_reduce", "the end of the program"]);
    }),
    ("a_rank_that_is_killed_ends_all", || {
        let ended = Job::of(3, "is_killed").fails();
        ended.tells_who_died(1);
        assert!(!ended.text.contains("went on"), "{}", ended.text);
    }),
    ("a_rank_that_is_killed_is_named_on_another_machine", || {
        // Open MPI's `mpirun` ends all, and names the rank itself.
        if job::is_open_mpi() {
            return;
        }
        for program in ["is_killed_alone", "is_killed_in_a_sum"] {
            let ended = Job::on_two_machines(3, program).fails();
            for rank in [0, 2] {
                let words = ["all_reduce", "No answer from rank 1 of 3 ("];
                let line = ended.says(&format!("rank {rank} of 3"), &words);
                assert!(!line.contains("failed"), "{line}");
            }
            assert!(!ended.text.contains("went on"), "{}", ended.text);
        }
    }),
    ("a_rank_that_is_stopped_is_named", || {
        let ended = Job::of(3, "is_stopped").fails();
        for rank in [0, 2] {
            ended.says(&format!("rank {rank} of 3"), &["rank 1 of 3", "all_reduce"]);
        }
    }),
    (
        "a_rank_that_is_stopped_in_the_middle_of_a_sum_is_named",
        || {
            let ended = Job::of(3, "is_stopped_in_a_sum").fails();
            assert!(
                ended.text.contains("No answer from rank 1 of 3"),
                "{}",
                ended.text
            );
        },
    ),
    ("a_rank_whose_backward_hangs_is_named", || {
        let ended = Job::of(3, "hangs_in_backward").fails();
        let guilty = "rank 1 of 3 (";
        let late = "has not come to it: it computes a backward of replica 1 for";
        let words = ["bucket 1 of 1", "s on rank 0. ", guilty, late];
        for (rank, innocent) in [(0, "rank 2 of 3"), (2, "rank 0 of 3")] {
            let line = ended.says(&format!("rank {rank} of 3"), &words);
            assert!(!line.contains(innocent), "{line}");
            assert!(!line.contains("failed"), "{line}");
        }
    }),
    ("a_rank_that_hangs_between_two_buckets_is_named", || {
        let ended = Job::of(3, "hangs_between_buckets").fails();
        for rank in [0, 2] {
            let words = ["bucket 2 of 2", "rank 1 of 3 (", "has not come to it"];
            let line = ended.says(&format!("rank {rank} of 3"), &words);
            assert!(!line.contains("failed"), "{line}");
        }
    }),
    ("ranks_with_different_programs_end_with_an_error", || {
        let ended = Job::of(2, "all_reduces").and(1, "broadcasts").fails();
        ended.says("rank 0 of 3", &["all_reduce", "rank 2", "broadcast"]);
        ended.says("rank 2 of 3", &["broadcast", "rank 0", "all_reduce"]);
    }),
    ("a_slow_rank_is_waited_for", || {
        Job::of(2, "is_slow").passes();
    }),
    ("a_training_goes_on_from_its_state_file", resumes::check),
    ("mpi_starts_once", || {
        Job::of(1, "starts_twice").passes();
    }),
    ("a_failed_call_of_the_app_ends_nothing", || {
        Job::of(2, "world_fails").passes();
    }),
    ("without_mpirun_there_is_one_rank", || {
        Job::alone("sums").passes();
    }),
];

fn main() -> ExitCode {
    if let Some(program) = job::program() {
        return programs::run(&program);
    }
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let mut failed = Vec::new();
    for (name, case) in CASES {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        let passed = catch_unwind(AssertUnwindSafe(case)).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if !passed {
            failed.push(name);
        }
    }
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => {
            println!("failed: {failed:?}");
            ExitCode::FAILURE
        }
    }
}

impl Ended {
    /// Open MPI's `mpirun` names the rank that died. MPICH's tells that one did, and names a
    /// process that ended, which may be another one. It kills all others on the machine.
    #[track_caller]
    fn tells_who_died(&self, rank: usize) {
        let told = match job::is_open_mpi() {
            true => format!("process rank {rank} with PID"),
            false => "(signal 9)".into(),
        };
        assert!(self.text.contains(&told), "{told}:\n{}", self.text);
    }

    /// A line of this rank has all of these words behind its name. Returns what is behind it.
    #[track_caller]
    fn says(&self, rank: &str, words: &[&str]) -> &str {
        let own = self.text.lines().filter_map(|line| line.strip_prefix(rank));
        let mut own = own.filter(|rest| words.iter().all(|word| rest.contains(word)));
        let found = own.next();
        found.unwrap_or_else(|| panic!("{rank} does not say {words:?}:\n{}", self.text))
    }
}
