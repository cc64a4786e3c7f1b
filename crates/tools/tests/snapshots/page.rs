//! A snapshot's page is complete, and names that a program chose are only ever text in it.

use lapidary::shares::ShareOptions;
use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu, Tensor, stats::Snapshot};
use serde_json::json;

use super::open_alone;

fn page(snapshot: &Snapshot) -> String {
    let mut page = Vec::new();
    lapidary_tools::page::write(snapshot, &mut page).unwrap();
    String::from_utf8(page).unwrap()
}

/// The content of the element with this opening tag.
fn inside<'a>(page: &'a str, opening: &str) -> &'a str {
    let (_, after) = page.split_once(opening).expect(opening);
    after.split_once("</script>").expect("its end").0
}

fn head(page: &str) -> serde_json::Value {
    let text = inside(
        page,
        "<script type=\"application/json\" data-snapshot=\"events-0\">",
    );
    serde_json::from_str(text).unwrap()
}

/// The page's script reads the versions that the core reads, and knows its reclaim steps and its
/// numbers: the page takes them from the core.
#[test]
fn the_script_agrees_with_the_core() {
    use lapidary::stats::ReclaimStep;
    use lapidary_core::internal::{OLDEST_SNAPSHOT_VERSION, SNAPSHOT_VERSION};

    let snapshot = named(&["x"]).0.memory().snapshot();
    let page = page(&snapshot);
    let head = head(&page);
    let names = ReclaimStep::ALL.map(|step| format!("\"{}\"", step.name()));
    let (names, versions) = (names.join(","), [OLDEST_SNAPSHOT_VERSION, SNAPSHOT_VERSION]);
    let script = serde_json::to_string(&versions).unwrap();
    let script = format!("const VERSIONS = {script}, STEPS = [{names},\"other\"], HELP = ");
    let (_, help) = page.split_once(&script).expect(&script);
    let help = help.split_once(";\n").unwrap().0;
    let help: serde_json::Value = serde_json::from_str(help).unwrap();
    for number in snapshot.stats.numbers() {
        let value = serde_json::to_value(number.value).unwrap();
        assert_eq!(head["stats"][number.name], value, "{number:?}");
        assert_eq!(help[number.name], number.help);
    }
    for (script, part) in [
        (include_str!("../../src/page/decode.js"), "] = VERSIONS;"),
        (include_str!("../../src/page/decode.js"), "step: STEPS,"),
        (
            include_str!("../../src/page/panels.js"),
            "allNumbers(stats),",
        ),
        (
            include_str!("../../src/page/panels.js"),
            "...waitsFigure(stats),",
        ),
    ] {
        assert!(script.contains(part) && page.contains(part), "{part}");
    }
}

fn named(names: &[&str]) -> (Gpu, Vec<Tensor>) {
    let (gpu, _) = open_alone(SimOptions::default());
    gpu.memory().keep_history(1000);
    let make = |name: &&str| {
        let x = gpu.zeros(&[1000], DType::F32).unwrap().named(name);
        x.force().unwrap();
        x
    };
    let tensors = names.iter().map(make).collect();
    (gpu, tensors)
}

#[test]
fn a_page_has_the_blocks_the_tags_and_every_event() {
    let (gpu, _tensors) = named(&["weights", "scores"]);
    let snapshot = gpu.memory().snapshot();
    let page = page(&snapshot);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    let head = head(&page);
    assert_eq!(head["format"], "lapidary-snapshot");
    assert_eq!(head["event_count"], snapshot.moments.len());
    assert_eq!(
        head["stats"]["live_bytes"]["now"],
        snapshot.stats.live_bytes.now
    );
    let blocks = head["slabs"][0]["blocks"].as_array().unwrap();
    assert_eq!(blocks.len(), 2);
    let tag = blocks[0][4].as_u64().unwrap() as usize;
    assert_eq!(head["tags"][tag]["name"], "weights");
    assert_eq!(head["clipped"], 0);
}

/// The script groups by the types, and tells what left without a write.
#[test]
fn a_page_has_the_types_and_what_was_dropped() {
    let (gpu, tensors) = named(&["weights", "scores"]);
    tensors[0].evict().unwrap();
    tensors[0].prefetch().unwrap();
    gpu.flush().unwrap();
    tensors[0].evict().unwrap();
    let snapshot = gpu.memory().snapshot();
    let head = head(&page(&snapshot));
    assert_eq!(head["types"][0][0], "F32");
    assert_eq!(head["types"][0][1].as_array().unwrap().len(), 2);
    assert_eq!(head["stats"]["evicted_bytes"], 4000);
    assert_eq!(head["stats"]["dropped_bytes"], 4000);
    assert_eq!(head["stats"]["dropped_to_source_bytes"], 0);
    assert!(include_str!("../../src/page/decode.js").contains("doc.types"));
    let panels = include_str!("../../src/page/panels.js");
    for name in ["evicted_bytes", "dropped_bytes", "dropped_to_source_bytes"] {
        assert!(panels.contains(&format!("stats.{name}")), "{name}");
    }
}

/// The script shows each of these numbers of a share.
#[test]
fn a_page_has_the_shares() {
    let (gpu, _) = open_alone(SimOptions::default());
    let ceiling = ShareOptions::guaranteed(4096).with_ceiling(1 << 20);
    let job = gpu.share("job", ceiling).unwrap();
    let closed = gpu.share("closed", ShareOptions::guaranteed(4096)).unwrap();
    closed.close().unwrap();
    let x = job.zeros(&[16 << 10], DType::U8).unwrap();
    x.force().unwrap();
    let head = head(&page(&gpu.memory().snapshot()));
    let shares = head["stats"]["shares"].as_array().unwrap();
    let [closed, job] = &shares[..] else {
        panic!("{shares:?}");
    };
    let is_job = [
        &job["path"],
        &job["guaranteed_bytes"],
        &job["ceiling_bytes"],
    ];
    assert_eq!(is_job, [&json!("job"), &json!(4096), &json!(1 << 20)]);
    assert_eq!(job["bytes"]["now"], 16 << 10);
    assert_eq!(job["is_closed"], false);
    assert_eq!(closed["is_closed"], true);
    let script = include_str!("../../src/page/panels.js");
    for name in [
        "path",
        "bytes",
        "guaranteed_bytes",
        "ceiling_bytes",
        "is_closed",
    ]
    .into_iter()
    .chain(["evictions", "restores", "refusals"])
    {
        assert!(job.get(name).is_some(), "{name} in {job}");
        assert!(script.contains(&format!("share?.{name}")), "{name}");
    }
}

#[test]
fn a_page_asks_for_nothing_else() {
    let page = page(&named(&["x"]).0.memory().snapshot());
    for outside in [
        "http:", "https:", " src=", "@import", "url(", "fetch(", "import(",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn hostile_names_are_in_a_page_as_escapes_only() {
    let names = [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "<img src=x onerror=alert(1)>",
        "\u{0}\u{1b}[31m\u{202e}\n",
    ];
    let plain = page(&named(&["x"]).0.memory().snapshot());
    let (gpu, _tensors) = named(&names);
    let hostile = page(&gpu.memory().snapshot());
    for markup in ["<script", "</script", "<!--", "<img", "alert(1)</"] {
        let count = |page: &str| page.matches(markup).count();
        assert_eq!(count(&plain), count(&hostile), "{markup}");
    }
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!hostile.contains(control));
    // Decoding gives the same texts.
    let tags = head(&hostile)["tags"].clone();
    let told: Vec<_> = tags
        .as_array()
        .unwrap()
        .iter()
        .map(|tag| &tag["name"])
        .collect();
    for name in names {
        assert!(told.iter().any(|told| *told == name), "{name}: {told:?}");
    }
}

#[test]
fn long_names_are_clipped_and_that_is_told() {
    let long = "é".repeat(5 << 20);
    let short = page(&named(&["x"]).0.memory().snapshot());
    let (gpu, _tensors) = named(&[&long]);
    let clipped = page(&gpu.memory().snapshot());
    assert!(clipped.len() < short.len() + 2048, "{}", clipped.len());
    let head = head(&clipped);
    assert_eq!(head["clipped"], 1);
    let mut names = head["tags"].as_array().unwrap().iter();
    assert!(names.any(|tag| tag["name"] == "é".repeat(512)));
}

#[test]
fn an_event_takes_a_few_bytes() {
    let (gpu, mut tensors) = named(&["x"]);
    gpu.memory().keep_history(100_000);
    while gpu.memory().history().moments.len() < 20_000 {
        tensors.clear();
        for _ in 0..64 {
            tensors.push(gpu.zeros(&[1000], DType::F32).unwrap());
        }
        gpu.flush().unwrap();
    }
    let snapshot = gpu.memory().snapshot();
    let page = page(&snapshot);
    let events = inside(&page, "<script type=\"text/plain\" id=\"events-0\">");
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    assert!(events.chars().all(is_letter));
    let per_event = events.len() as f64 / snapshot.moments.len() as f64;
    assert!(per_event < 14.0, "{per_event} letters");
}

#[test]
fn two_snapshots_make_one_page() {
    let (gpu, _tensors) = named(&["x"]);
    let before = gpu.memory().snapshot();
    let mut page = Vec::new();
    lapidary_tools::page::write_comparison(&before, &gpu.memory().snapshot(), &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert_eq!(page.matches(" data-snapshot=\"events-").count(), 2);
    assert!(page.contains(" id=\"events-1\">"));
}
