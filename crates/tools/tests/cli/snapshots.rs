//! `lapidary view` and `lapidary diff` with snapshots and with other files.

use std::fs;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;

use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu, Tensor, stats::Snapshot};
use lapidary_core::internal::SNAPSHOT_VERSION;
use lapidary_tools::{formats, page};
use serde_json::Value;

use crate::cli::{check_fails, file, folder, program, run};

fn open() -> Gpu {
    let (gpu, _) = Gpu::simulated(SimOptions::default()).unwrap();
    gpu.memory().keep_history(1000);
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
    let snapshot = gpu.memory().snapshot();
    let path = file("one.json", &json(&snapshot));

    let ran = run(&["view", &path]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(
        ran.out.starts_with(&snapshot.stats.to_string()),
        "{}",
        ran.out
    );
    let told: Value = serde_json::from_str(&run(&["view", "--json", &path]).out).unwrap();
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
    let trace: Value = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
    let map = run(&["view", "--map", &path]).out;
    assert!(map.contains("AAAA") && map.contains("`weights`"), "{map}");
    // `replay` reads the log that `view` wrote.
    let ran = run(&["replay", "--json", "--against", "none", &rmm]);
    let line: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(line["peak_live"], 512 << 10);
    check_fails(
        &["view", &path, "--html", "no/such/folder/page.html"],
        &["no/such/folder"],
    );
}

#[test]
fn a_file_that_is_no_snapshot_or_only_a_part_of_one_is_refused_with_the_place() {
    let gpu = open();
    let whole = json(&gpu.memory().snapshot());
    let cut = file("cut.json", &whole[..whole.len() / 2]);
    check_fails(&["view", &cut], &[&cut, "line 1"]);
    check_fails(&["diff", &cut, &cut], &[&cut]);
    check_fails(&["view", &file("text.json", b"a 0 5\n")], &["text.json"]);
    check_fails(
        &["view", &file("nested.json", "[".repeat(1 << 20).as_bytes())],
        &["nested.json"],
    );
    let version = format!("\"version\":{SNAPSHOT_VERSION}");
    let newer = String::from_utf8(whole)
        .unwrap()
        .replacen(&version, "\"version\":99", 1);
    check_fails(
        &["view", &file("newer.json", newer.as_bytes())],
        &["version", "99"],
    );
    check_fails(&["view", "no/such/file"], &["no/such/file: No such file"]);
}

/// What a program sends that writes `text` again and again, from a thread of its own.
fn endless(text: &'static [u8]) -> io::PipeReader {
    let (reader, mut writer) = io::pipe().unwrap();
    let sent = text.repeat((64 << 10) / text.len() + 1);
    std::thread::spawn(move || while writer.write_all(&sent).is_ok() {});
    reader
}

#[test]
#[cfg(unix)]
fn what_has_no_end_is_refused_by_its_beginning() {
    check_fails(&["view", "/dev/zero"], &["/dev/zero", "begins with"]);
    check_fails(&["diff", "/dev/zero", "/dev/zero"], &["begins with"]);
    check_fails(&["replay", "/dev/zero"], &["line 1: it is longer than"]);
    for (command, text, said) in [
        ("view", &b"y\n"[..], "begins with `y?y?"),
        ("view", b"\n", "begins with"),
        ("view", b"\x1f\x8b", "gzip -d"),
        ("view", b"[1,", "begins with `[1,"),
        ("view", b"\"text\"", "begins with"),
        ("view", b"{\"a\":", "first 4.00 MiB do not say"),
        ("view", b"{\"a\":]", "line 1 column 6"),
        ("view", b"{\"a", "line 1 column 6"),
        (
            "diff",
            b"{\"format\":\"car\",\"version\":1,\"x\":[",
            "`car`",
        ),
        ("replay", b"\n", "no event in the first"),
        ("replay", b"# remark\n", "no event in the first"),
        ("replay", b"m\n", "no event in the first"),
        (
            "replay",
            b"Thread,Time,Action,Pointer,Size,Stream\n",
            "line 2",
        ),
    ] {
        let mut program = program();
        program.arg(command).arg("/dev/stdin").stdin(endless(text));
        if command == "diff" {
            program.arg("no/such/file");
        }
        let output = program.output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(said), "`{said}` is not in: {err}");
    }
}

/// The head need not come first, nor in one part.
#[test]
fn a_snapshot_is_read_in_parts_and_with_its_fields_in_any_order() {
    struct Bytewise<'a>(&'a [u8]);
    impl io::Read for Bytewise<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let some = into.len().min(1);
            io::Read::read(&mut self.0, &mut into[..some])
        }
    }
    let gpu = open();
    let _kept: Vec<Tensor> = (0..2000)
        .map(|number| tensor(&gpu, 4, &format!("weights {number}")))
        .collect();
    let snapshot = gpu.memory().snapshot();
    let whole = json(&snapshot);
    assert_eq!(Snapshot::read_json(Bytewise(&whole)).unwrap(), snapshot);
    let mut value: Value = serde_json::from_slice(&whole).unwrap();
    let fields = value.as_object_mut().unwrap();
    let (format, version) = (fields.remove("format"), fields.remove("version"));
    let rest = value.to_string();
    let rest = rest.strip_suffix('}').unwrap();
    let last = format!(
        "{rest},\"version\":{},\"format\":{}}}",
        version.unwrap(),
        format.unwrap()
    );
    assert!(rest.len() > 1 << 17);
    assert_eq!(Snapshot::read_json(last.as_bytes()).unwrap(), snapshot);
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
    let before = file("before.json", &json(&gpu.memory().snapshot()));
    drop((few, many, goes));
    let _kept = (grows(3), shrinks(1), tensor(&gpu, 32, "comes"));
    let after = file("after.json", &json(&gpu.memory().snapshot()));

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
    let told: Value = serde_json::from_str(&run(&["diff", "--json", &before, &after]).out).unwrap();
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
            .contains("every maker holds as many bytes as before")
    );
}

#[test]
fn who_stops_reading_is_no_failure() {
    let gpu = open();
    let _kept: Vec<Tensor> = (0..100).map(|_| tensor(&gpu, 1, "many")).collect();
    let path = file("pipe.json", &json(&gpu.memory().snapshot()));
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

#[test]
fn all_files_are_written_even_where_nobody_hears_of_them() {
    let path = file("deaf.json", &json(&open().memory().snapshot()));
    let folder = folder("unheard");
    let (html, pickle) = (folder.join("page.html"), folder.join("s.pickle"));
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut view = program();
    view.args(["view", &path]).arg("--html").arg(&html);
    view.arg("--pickle").arg(&pickle).stderr(writer);
    assert_eq!(view.output().unwrap().status.code(), Some(0));
    assert!(html.exists() && pickle.exists());
}

#[test]
#[cfg(unix)]
fn names_from_files_and_of_files_cannot_steer_the_terminal() {
    let hostile = "a\u{1b}[2J\u{7}\u{202e}\n";
    let on = |adapter: &str, name: &str| {
        let mut value: Value = serde_json::from_slice(&json(&open().memory().snapshot())).unwrap();
        value["stats"]["adapter"] = format!("{hostile}{adapter}").into();
        file(&format!("{hostile}{name}"), value.to_string().as_bytes())
    };
    let (one, other) = (on("one", "one.json"), on("other", "other.json"));
    let trace = file(&format!("{hostile}x.trace"), b"a 0 5\n");
    let missing = format!("{hostile}missing");
    let page = folder("steered").join(hostile);
    let page = page.into_os_string().into_string().unwrap();
    for args in [
        &["diff", &one, &other][..],
        &["diff", &one, &missing],
        &["view", &one],
        &["view", &one, "--html", &page],
        &["view", &trace],
        &["replay", "--no-plot", &trace],
        &["replay", &missing],
        &["replay", &one],
    ] {
        let ran = run(args);
        let said = ran.out + &ran.err;
        assert!(said.contains("a?[2J???"), "{args:?}: {said}");
        for forbidden in ['\u{1b}', '\u{7}', '\u{202e}'] {
            assert!(!said.contains(forbidden), "{args:?}: {said:?}");
        }
    }
}

/// JSON pointers to all numbers.
fn numbers(value: &Value, place: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(place.to_owned()),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                numbers(item, &format!("{place}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                numbers(field, &format!("{place}/{name}"), found);
            }
        }
        _ => {}
    }
}

/// Writes the snapshot in every format, if it is valid. Some formats refuse some numbers.
fn show_all(json: &[u8], other: &Snapshot) -> bool {
    let Ok(snapshot) = Snapshot::from_json(json) else {
        return false;
    };
    let mut shown = snapshot.stats.to_string() + &snapshot.map().columns(80).to_string();
    for suggestion in snapshot.advice() {
        shown += &suggestion.to_string();
    }
    assert!(!shown.is_empty());
    let _ = snapshot.write_json(io::sink());
    let _ = page::write(&snapshot, io::sink());
    let _ = page::write_comparison(&snapshot, other, io::sink());
    let _ = page::write_comparison(other, &snapshot, io::sink());
    let _ = formats::write_trace(&snapshot, io::sink());
    let _ = formats::write_pickle(&snapshot, io::sink());
    let _ = formats::write_rmm(&snapshot, io::sink());
    true
}

#[test]
fn whatever_number_a_snapshot_says_it_is_shown_or_refused() {
    let golden = fs::read("tests/snapshots/golden/snapshot.json").unwrap();
    let other = Snapshot::from_json(&golden).unwrap();
    let whole: Value = serde_json::from_slice(&golden).unwrap();
    let mut places = Vec::new();
    numbers(&whole, "", &mut places);
    let mut shown = 0;
    for place in &places {
        for number in [u64::MAX, u64::from(u32::MAX), 0] {
            let mut value = whole.clone();
            *value.pointer_mut(place).unwrap() = number.into();
            let json = value.to_string();
            let told = catch_unwind(AssertUnwindSafe(|| show_all(json.as_bytes(), &other)));
            assert!(told.is_ok(), "{place} = {number}");
            shown += usize::from(told.unwrap());
        }
    }
    assert!(shown > 100, "{shown} of {}", places.len());
}
