//! `lapidary view` and `lapidary diff`: snapshots in files, and files that are none.

use std::fs;
use std::process::Stdio;

use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu, Snapshot, Tensor};

use crate::{check_fails, file, folder, program, run};

fn open() -> Gpu {
    let (gpu, _) = Gpu::simulated(SimOptions::default()).unwrap();
    gpu.keep_history(1000);
    gpu
}

fn tensor(gpu: &Gpu, kib: usize, name: &str) -> Tensor {
    let tensor = gpu.zeros(&[kib << 8], DType::F32).unwrap().named(name);
    tensor.force().unwrap();
    tensor
}

fn json(snapshot: &Snapshot) -> Vec<u8> {
    let mut json = Vec::new();
    snapshot.write_json(&mut json).unwrap();
    json
}

#[test]
fn a_snapshot_is_shown_as_the_page_and_written_in_other_forms() {
    let gpu = open();
    let _kept = tensor(&gpu, 512, "weights");
    let snapshot = gpu.snapshot();
    let path = file("one.json", &json(&snapshot));

    let ran = run(&["view", &path]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(
        ran.out.starts_with(&snapshot.stats.to_string()),
        "{}",
        ran.out
    );
    let told: serde_json::Value =
        serde_json::from_str(&run(&["view", "--json", &path]).out).unwrap();
    assert_eq!(told["stats"]["live_bytes"]["now"], 512 << 10);

    let folder = folder("faces");
    let at = |name: &str| folder.join(name).into_os_string().into_string().unwrap();
    let (html, pickle, rmm) = (at("page.html"), at("s.pickle"), at("log.csv"));
    let trace = at("trace.json");
    let ran = run(&[
        "view",
        &path,
        "--html",
        &html,
        "--perfetto",
        &trace,
        "--pickle",
        &pickle,
        "--rmm",
        &rmm,
    ]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""), "{ran:?}");
    assert!(fs::read(&html).unwrap().starts_with(b"<!doctype html>"));
    assert!(fs::read(&pickle).unwrap().starts_with(b"\x80"));
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
    let map = run(&["view", "--map", &path]).out;
    assert!(map.contains("AAAA") && map.contains("`weights`"), "{map}");
    // What was written as a log can be replayed.
    let ran = run(&["replay", "--json", "--against", "none", &rmm]);
    let line: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(line["peak_live"], 512 << 10);
    check_fails(
        &["view", &path, "--html", "no/such/folder/page.html"],
        &["no/such/folder"],
    );
}

#[test]
fn a_file_that_is_no_snapshot_or_only_a_part_of_one_is_refused_with_the_place() {
    let gpu = open();
    let whole = json(&gpu.snapshot());
    let cut = file("cut.json", &whole[..whole.len() / 2]);
    check_fails(&["view", &cut], &[&cut, "line 1"]);
    check_fails(&["diff", &cut, &cut], &[&cut]);
    check_fails(&["view", &file("text.json", b"a 0 5\n")], &["text.json"]);
    check_fails(
        &["view", &file("nested.json", "[".repeat(1 << 20).as_bytes())],
        &["nested.json"],
    );
    let newer = String::from_utf8(whole)
        .unwrap()
        .replacen("\"version\":1", "\"version\":99", 1);
    check_fails(
        &["view", &file("newer.json", newer.as_bytes())],
        &["version", "99"],
    );
    check_fails(&["view", "no/such/file"], &["no/such/file: No such file"]);
}

#[test]
fn two_snapshots_differ_by_what_is_new_what_grew_what_shrank_and_what_is_gone() {
    let gpu = open();
    let grows = |count: usize| {
        (0..count)
            .map(|_| tensor(&gpu, 4, "grows"))
            .collect::<Vec<_>>()
    };
    let shrinks = |count: usize| {
        (0..count)
            .map(|_| tensor(&gpu, 8, "shrinks"))
            .collect::<Vec<_>>()
    };
    let (few, many, goes) = (grows(1), shrinks(3), tensor(&gpu, 16, "goes"));
    let before = file("before.json", &json(&gpu.snapshot()));
    drop((few, many, goes));
    let _kept = (grows(3), shrinks(1), tensor(&gpu, 32, "comes"));
    let after = file("after.json", &json(&gpu.snapshot()));

    let ran = run(&["diff", &before, &after]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let section = |title: &str| {
        let lines = ran.out.lines().skip_while(|line| *line != title).skip(1);
        lines
            .take_while(|line| line.starts_with(' '))
            .collect::<Vec<_>>()
            .join("\n")
    };
    for (title, bytes, name) in [
        ("new", "+32.0 KiB", "`comes`"),
        ("grew", "+8.00 KiB", "`grows`"),
        ("shrank", "-16.0 KiB", "`shrinks`"),
        ("gone", "-16.0 KiB", "`goes`"),
    ] {
        let lines = section(title);
        assert!(
            lines.contains(bytes) && lines.contains(name),
            "{title}: {}",
            ran.out
        );
    }
    let told: serde_json::Value =
        serde_json::from_str(&run(&["diff", "--json", &before, &after]).out).unwrap();
    assert_eq!(told["tags"].as_array().unwrap().len(), 4, "{told}");
    let page = folder("pages")
        .join("both.html")
        .into_os_string()
        .into_string()
        .unwrap();
    assert_eq!(
        run(&["diff", &before, &after, "--html", &page]).code,
        Some(0)
    );
    assert!(fs::read(&page).unwrap().starts_with(b"<!doctype html>"));
    assert!(
        run(&["diff", &before, &before])
            .out
            .contains("every maker holds what it held before")
    );
}

#[test]
fn who_stops_reading_is_no_failure() {
    let gpu = open();
    let _kept: Vec<Tensor> = (0..100).map(|_| tensor(&gpu, 1, "many")).collect();
    let path = file("pipe.json", &json(&gpu.snapshot()));
    for args in [
        &["view", "--json", &path][..],
        &["completions", "zsh"],
        &["replay", "tests/traces/bert_mlm_train.trace.gz"],
    ] {
        let mut child = program()
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(0), ""), "{args:?}");
    }
}
