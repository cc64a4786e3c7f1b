//! `lapidary replay` with traces, logs in RMM's format, and other files.

use crate::cli::{check_fails, file, run};

const TRACE: &str =
    "# name: tiny\na 0 3000000 P.weights\na 1 100 F.x\nf 1\na 2 1048576 F.y\nf 2\nf 0\n";
const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
                   1,10:00:00.000001,allocate,0x7f0000,3000000,0\n\
                   1,10:00:00.000002,allocate,0x800000,100,0\n\
                   1,10:00:00.000003,free,0x800000,100,0\n\
                   1,10:00:00.000004,allocate,0x800000,1048576,0x0\n";

fn lines(out: &str) -> Vec<serde_json::Value> {
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_trace_and_a_log_are_replayed_beside_other_allocators_rules() {
    let (trace, log) = (
        file("tiny.trace", TRACE.as_bytes()),
        file("tiny.csv", LOG.as_bytes()),
    );
    for (path, events) in [(&trace, 6), (&log, 4)] {
        let ran = run(&["replay", "--json", path]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        let lines = lines(&ran.out);
        let policies: Vec<&str> = lines
            .iter()
            .map(|line| line["policy"].as_str().unwrap())
            .collect();
        assert_eq!(
            policies,
            ["lapidary", "pytorch", "buckets", "heap", "apart"]
        );
        for line in &lines {
            assert_eq!(
                (line["events"].as_u64(), line["peak_live"].as_u64()),
                (Some(events), Some(4048576))
            );
            assert!(line["peak_reserved"].as_u64() >= Some(4048576), "{line}");
        }
        // 20 MiB for the large one, 2 MiB for the small ones.
        assert_eq!(lines[1]["peak_reserved"], 22 << 20);
        assert_eq!(lines[2]["peak_reserved"], (4 << 20) + 256 + (1 << 20));
        assert_eq!(lines[4]["buffers_created"], 3);
    }
}

#[test]
fn the_table_names_every_policy_and_the_plot_is_left_out_when_asked() {
    let path = file("table.trace", TRACE.as_bytes());
    let ran = run(&["replay", &path]);
    for title in [
        "lapidary",
        "PyTorch's rules",
        "powers of two",
        "best fit, one heap",
        "a buffer a tensor",
    ] {
        assert!(ran.out.contains(title), "{}", ran.out);
    }
    assert!(
        ran.out.contains('⠉') || ran.out.contains('⠒') || ran.out.contains('⣿'),
        "{}",
        ran.out
    );
    let plain = run(&["replay", "--no-plot", "--against", "pytorch,heap", &path]);
    assert_eq!(plain.out.lines().count(), 5, "{}", plain.out);
    let two = run(&["replay", "--no-plot", &path, &path]);
    assert!(
        two.out.contains("peak reserved ÷ peak live, 2 traces"),
        "{}",
        two.out
    );
}

#[test]
fn a_wrong_line_is_named() {
    for (name, text, said) in [
        (
            "twice.trace",
            "a 0 5\nf 0\nf 0\n",
            "line 3: storage 0 was released before",
        ),
        (
            "unknown.trace",
            "a 0 5\nf 7\n",
            "line 2: storage 7 was never created",
        ),
        (
            "foreign.json",
            "{\"a\": 1}\n",
            "line 1: `{\"a\":` is not an event",
        ),
        ("empty.trace", "", "it has no allocation"),
        (
            "twice.csv",
            "Thread,Time,Action,Pointer,Size,Stream\n1,t,free,0x10,5,0\n",
            "line 2: 0x10 is freed",
        ),
    ] {
        let path = file(name, text.as_bytes());
        check_fails(&["replay", &path], &[&path, said]);
    }
    let mut binary = vec![0xff; 100];
    binary[0] = 0x89;
    check_fails(
        &["replay", &file("picture.png", &binary)],
        &["line 1: it is not text"],
    );
    check_fails(&["replay", "no/such/file"], &["no/such/file: No such file"]);
}

#[test]
fn a_truncated_file_is_named_and_the_others_are_replayed_all_the_same() {
    let whole = std::fs::read("tests/traces/mlp_accum_train.trace.gz").unwrap();
    let cut = file("cut.trace.gz", &whole[..whole.len() / 2]);
    let good = file("good.trace", TRACE.as_bytes());
    let ran = run(&["replay", "--json", "--against", "none", &cut, &good]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("it is truncated"), "{}", ran.err);
    assert_eq!(lines(&ran.out)[0]["trace"], "good.trace");
}

#[test]
fn what_is_read_and_written_may_pass_any_sum() {
    let half = 1_u64 << 55;
    let mut text = format!("a 0 {half} P.x\na 1 {half} P.y\n");
    text += &"r 0\nw 0\nr 1\nw 1\n".repeat(700);
    let path = file("vast.trace", text.as_bytes());
    for policy in ["default", "no-move", "choice"] {
        let args = ["replay", "--json", "--against", "none", "--budget", "0.6x"];
        let ran = run(&[&args[..], &["--policy", policy, &path]].concat());
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{policy}");
        assert_eq!(lines(&ran.out)[0]["bytes_spilled_reference"], u64::MAX);
    }
}

#[test]
fn an_operator_may_read_as_many_storages_as_a_line_has_room_for() {
    let count = 50_000;
    let mut text: String = (0..count).map(|id| format!("a {id} 256 P.x\n")).collect();
    let ids: String = (0..count).map(|id| format!(" {id}")).collect();
    text += &format!("r{ids}{ids}\nw{ids}\n");
    let path = file("wide.trace", text.as_bytes());
    let args = ["replay", "--json", "--against", "none", "--budget", "2x"];
    let ran = run(&[&args[..], &["--policy", "choice", &path]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(lines(&ran.out)[0]["bytes_spilled_reference"], 0);
}
