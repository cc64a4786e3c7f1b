//! Findings, files and markers. The variants take the time that the test says, by a clock of the
//! test.

use std::cell::Cell;
use std::fs;

use super::*;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let unique = format!("lapidary-tuning-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        let _ = fs::remove_dir_all(&folder);
        Folder(folder)
    }

    /// The names of all files.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Writes a marker of another process.
    fn leave_marker(&self, tuning: &Tuning, owner: &str, variant: &str) -> PathBuf {
        let file = tuning.file.as_ref().unwrap();
        let marker = file.with_extension(format!("{owner}.trying"));
        assert!(cache_file::replace(&marker, KIND, variant.as_bytes()));
        marker
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn subject(version: &str) -> Subject {
    Subject {
        adapter: "an adapter".to_owned(),
        version: version.to_owned(),
        has_clock: true,
    }
}

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Advances the clock.
fn pass(ms: u64) {
    NOW.set(NOW.get() + Duration::from_millis(ms));
}

/// A tuning that is alone in its process. Otherwise other tests could use up the time.
fn alone(subject: Subject, folder: Option<&Folder>) -> Tuning {
    Tuning {
        spent: Box::leak(Box::default()),
        clock: || NOW.get(),
        ..Tuning::new(subject, folder.map(|folder| &*folder.0))
    }
}

const VARIANTS: [&str; 3] = ["slow", "fast", "broken"];

/// Chooses by running variants: one takes long, one takes no time, and one fails.
fn choose(tuning: &Tuning, problem: &str) -> usize {
    choose_by(tuning, problem, &VARIANTS, |variant| match variant {
        "slow" => {
            pass(15);
            Trial::Ran
        }
        "fast" => {
            pass(5);
            Trial::Ran
        }
        _ => Trial::Failed,
    })
}

fn choose_by(
    tuning: &Tuning,
    problem: &str,
    variants: &[&'static str],
    run: impl Fn(&str) -> Trial,
) -> usize {
    let mut runner = Runner {
        prepare: &mut || Ready::Yes,
        run: &mut |index, times| {
            let trials = (0..times).map(|_| run(variants[index]));
            trials.last().unwrap()
        },
    };
    tuning.choose("family", &problem, variants, &mut runner)
}

/// Chooses for a problem whose variants must not run.
fn unasked(tuning: &Tuning, problem: &str) -> usize {
    choose_by(tuning, problem, &VARIANTS, |variant| {
        panic!("{variant} was run")
    })
}

#[test]
fn the_fastest_variant_is_remembered_and_kept() {
    let folder = Folder::new("kept");
    let tuning = alone(subject("1"), Some(&folder));
    assert_eq!(choose(&tuning, "p"), 1);
    assert_eq!(unasked(&tuning, "p"), 1);
    assert_eq!(
        folder.files().len(),
        1,
        "no marker stays: {:?}",
        folder.files()
    );
    let text = fs::read_to_string(tuning.file.as_ref().unwrap()).unwrap();
    let expected = "\ndevice an adapter / 1\nbest family p = family \"fast\"\n";
    assert!(text.ends_with(expected), "{text}");

    let later = alone(subject("1"), Some(&folder));
    assert_eq!(unasked(&later, "p"), 1);
    assert_eq!(later.findings().trials, 0);
    assert!(tuning.findings().trials >= 2);
    // Without that variant the problem is measured again.
    let others = ["slow", "broken"];
    let run = |variant: &str| match variant {
        "slow" => Trial::Ran,
        _ => Trial::Failed,
    };
    assert_eq!(
        choose_by(&alone(subject("1"), Some(&folder)), "p", &others, run),
        0
    );
}

#[test]
fn a_variant_that_is_hardly_faster_does_not_take_the_rules_place() {
    for (time, chosen) in [(100, 0), (99, 0), (96, 0), (94, 1), (50, 1)] {
        let tuning = alone(subject("1"), None);
        let run = |variant: &str| {
            pass(if variant == "fast" { time } else { 100 });
            Trial::Ran
        };
        let got = choose_by(&tuning, "p", &VARIANTS[..2], run);
        assert_eq!(got, chosen, "{time} % of the rule's time");
    }
}

#[test]
fn what_was_lucky_once_does_not_take_the_rules_place() {
    let tuning = alone(subject("1"), None);
    let runs = Cell::new(0);
    let run = |variant: &str| {
        runs.set(runs.get() + 1);
        pass(match variant {
            "fast" if runs.get() == 8 => 5,
            "fast" => 12,
            _ => 10,
        });
        Trial::Ran
    };
    assert_eq!(choose_by(&tuning, "p", &VARIANTS[..2], run), 0);
}

#[test]
fn what_there_was_no_time_for_is_left_to_the_next_process() {
    let folder = Folder::new("hurried");
    let hurried = |left_ms: u64| {
        let tuning = alone(subject("1"), Some(&folder));
        let spent = MOST_TIME - Duration::from_millis(left_ms);
        let nanos = spent.as_nanos() as u64;
        tuning.spent.store(nanos, Ordering::Relaxed);
        let run = |_: &str| {
            pass(300);
            Trial::Ran
        };
        assert_eq!(choose_by(&tuning, "p", &VARIANTS[..2], run), 0);
        tuning.findings().best.len()
    };
    assert_eq!(hurried(2000), 0, "the next process has more time");
    let all = MOST_TIME.as_millis() as u64;
    assert_eq!(hurried(all), 1, "no process has more");
}

#[test]
fn the_least_time_counts_and_not_what_disturbs_some_runs() {
    let tuning = alone(subject("1"), None);
    let runs = Cell::new(0_u64);
    let run = |variant: &str| {
        runs.set(runs.get() + 1);
        pass(if variant == "fast" { 7 } else { 10 } + runs.get().div_ceil(2) % 3 * 9);
        Trial::Ran
    };
    assert_eq!(choose_by(&tuning, "p", &VARIANTS[..2], run), 1);
}

#[test]
fn files_that_are_broken_foreign_or_older_are_not_used_and_replaced() {
    let folder = Folder::new("broken");
    let tuning = alone(subject("1"), Some(&folder));
    assert_eq!(choose(&tuning, "p"), 1);
    let file = tuning.file.clone().unwrap();
    let whole = fs::read(&file).unwrap();
    let headless: &[u8] = b"best family p = family \"slow\"\n";
    let broken = [
        b"".as_slice(),
        b"\xff\xfe\n\0",
        headless,
        &whole[..whole.len() / 2],
    ];
    for content in broken {
        fs::write(&file, content).unwrap();
        let later = alone(subject("1"), Some(&folder));
        assert_eq!(later.findings(), Tuned::default());
        assert_eq!(choose(&later, "p"), 1);
        assert_eq!(fs::read(&file).unwrap(), whole, "written anew");
    }
    let newer = alone(subject("2"), Some(&folder));
    assert_eq!(newer.file.as_ref(), Some(&file), "one file an adapter");
    assert_eq!(newer.findings(), Tuned::default());
    assert_eq!(choose(&newer, "q"), 1);
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("/ 2\n") && !text.contains("family p"),
        "{text}"
    );
    // Lines without a finding are ignored. Control characters in names do not reach the file.
    let strange = "device an adapter / 2\nbest\nbest x\nnever \u{7}\n\nbest p = q\n";
    assert!(cache_file::replace(&file, KIND, strange.as_bytes()));
    let found = alone(subject("2"), Some(&folder)).findings();
    assert_eq!(found.best, [("p".to_owned(), "q".to_owned())]);
    assert!(found.never.is_empty());
    let wicked = alone(subject("3\nnever all"), Some(&folder));
    assert_eq!(wicked.device, "an adapter / 3 never all");
}

/// Collects the warnings of this thread.
struct Warnings;

thread_local! {
    static WARNED: Cell<Vec<String>> = const { Cell::new(Vec::new()) };
}

impl log::Log for Warnings {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let mut warned = WARNED.take();
        warned.push(record.args().to_string());
        WARNED.set(warned);
    }

    fn flush(&self) {}
}

#[test]
fn whoever_ignores_a_file_says_so_once() {
    // Another test of this process may have set the logger.
    let _ = log::set_logger(&Warnings);
    log::set_max_level(log::LevelFilter::Warn);
    let folder = Folder::new("warned");
    let check = |version: &str, expected: &str| {
        let tuning = alone(subject(version), Some(&folder));
        for problem in ["p", "q", "r"] {
            choose(&tuning, problem);
        }
        let warned = WARNED.take();
        match expected {
            "" => assert_eq!(warned, [""; 0]),
            _ => {
                assert_eq!(warned.len(), 1, "{warned:?}");
                let name = tuning.file.as_ref().unwrap().display().to_string();
                assert!(
                    warned[0].contains(expected) && warned[0].contains(&name),
                    "{warned:?}"
                );
            }
        }
        tuning.file.unwrap()
    };
    let file = check("1", "");
    check("1", "");
    check("2", "for another driver or version");
    check("2", "");
    fs::write(&file, b"nonsense").unwrap();
    check("2", "broken");
    let text = b"device another\n";
    assert!(cache_file::replace(&file, KIND, text));
    check("2", "for another driver or version");
    let newer = FileKind { version: 9, ..KIND };
    assert!(cache_file::replace(&file, newer, text));
    check("2", "of another version");
    check("2", "");
    // The file cannot be written. That gives one warning, not one per problem.
    drop(fs::remove_dir_all(&folder.0));
    fs::write(&folder.0, b"in the way").unwrap();
    let tuning = alone(subject("2"), Some(&folder));
    (0..9).for_each(|problem| assert_eq!(choose(&tuning, &problem.to_string()), 0));
    // On Windows a path below a file counts as absent, not as broken.
    let warned = if cfg!(windows) { 1 } else { 2 };
    assert_eq!(
        WARNED.take().len(),
        warned,
        "it is not read, and not written"
    );
    fs::remove_file(&folder.0).unwrap();
}

#[test]
fn two_that_share_a_file_keep_what_both_have_found() {
    let folder = Folder::new("shared");
    let [one, two] = [0, 1].map(|_| alone(subject("1"), Some(&folder)));
    assert_eq!((choose(&one, "p"), choose(&two, "q")), (1, 1));
    let both = alone(subject("1"), Some(&folder));
    assert_eq!((unasked(&both, "p"), unasked(&both, "q")), (1, 1));
}

#[test]
fn what_loses_the_device_is_not_tried_again() {
    let folder = Folder::new("lost");
    let tuning = alone(subject("1"), Some(&folder));
    let lose = |variant: &str| match variant {
        "fast" => Trial::Lost,
        _ => Trial::Ran,
    };
    assert_eq!(choose_by(&tuning, "p", &VARIANTS, lose), 0);
    assert_eq!(tuning.findings().never, ["family \"fast\""]);
    assert_eq!(
        folder.files().len(),
        1,
        "it says so itself: {:?}",
        folder.files()
    );
    for tuning in [&tuning, &alone(subject("1"), Some(&folder))] {
        let run = |variant: &str| {
            assert_ne!(variant, "fast");
            Trial::Ran
        };
        assert_eq!(choose_by(tuning, "q", &VARIANTS[..2], run), 0);
    }
    // The variant is not chosen either, not even as the rule's choice.
    let later = alone(subject("1"), Some(&folder));
    let run = |_: &str| Trial::Ran;
    assert_eq!(choose_by(&later, "r", &["fast", "slow"], run), 1);
}

#[test]
fn a_marker_that_was_left_behind_bars_its_variant() {
    let folder = Folder::new("markers");
    let tuning = alone(subject("1"), Some(&folder));
    let own = std::process::id();
    let bars = |owner: &str| {
        let marker = folder.leave_marker(&tuning, owner, "family \"fast\"");
        let later = alone(subject("1"), Some(&folder));
        let never = later.findings().never;
        assert_eq!(choose(&later, "p"), 0, "{owner}");
        assert_eq!(never, ["family \"fast\""], "{owner}");
        assert!(!marker.exists(), "{owner}");
        assert_eq!(folder.files().len(), 1);
        let _ = fs::remove_dir_all(&folder.0);
    };
    // An earlier process had the same number, which is usual in containers.
    bars(&format!("{own}-0000000000000001-0"));
    #[cfg(target_os = "linux")]
    {
        // No process can have this number.
        bars("4294967295-0000000000000001-7");
        let running = format!("{}-0000000000000001-0", std::os::unix::process::parent_id());
        let marker = folder.leave_marker(&tuning, &running, "family \"fast\"");
        let later = alone(subject("1"), Some(&folder));
        assert_eq!(choose(&later, "p"), 1, "a live process is trying it now");
        assert!(marker.exists());
    }
    // A damaged marker, or a file that is no marker, bars no variant.
    let broken = folder.leave_marker(&tuning, &format!("{own}-1-0"), "family \"slow\"");
    fs::write(&broken, b"in the middle of the wri").unwrap();
    folder.leave_marker(&tuning, "no marker", "family \"slow\"");
    let later = alone(subject("1"), Some(&folder));
    assert!(later.findings().never.is_empty());
    assert!(!broken.exists());
}

#[test]
#[ignore = "the next test runs it, in a process of its own"]
fn a_child_that_a_variant_ends() {
    let Some(folder) = std::env::var_os("LAPIDARY_TEST_FOLDER") else {
        return;
    };
    let tuning = Tuning::new(subject("1"), Some(Path::new(&folder)));
    choose_by(&tuning, "p", &VARIANTS[..2], |variant| match variant {
        "fast" => std::process::abort(),
        _ => Trial::Ran,
    });
}

#[test]
fn a_variant_that_ended_a_process_is_not_tried_again() {
    let folder = Folder::new("ended");
    let end = || {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args([
            "--ignored",
            "--exact",
            "tuning::tests::a_child_that_a_variant_ends",
        ]);
        let output = child.env("LAPIDARY_TEST_FOLDER", &folder.0).output();
        output.unwrap().status.success()
    };
    assert!(!end(), "it ended");
    if cfg!(target_os = "linux") {
        assert!(end(), "and not again");
        let later = alone(subject("1"), Some(&folder));
        assert_eq!(later.findings().never, ["family \"fast\""]);
        assert_eq!(folder.files().len(), 1, "{:?}", folder.files());
    }
}

#[test]
fn while_a_variant_runs_a_marker_names_it() {
    let folder = Folder::new("marked");
    let tuning = alone(subject("1"), Some(&folder));
    choose_by(&tuning, "p", &VARIANTS, |variant| {
        let named = format!("family {variant:?}");
        let marked = folder.files().into_iter().any(|name| {
            let path = folder.0.join(&name);
            name.ends_with(".trying")
                && cache_file::read(&path, KIND) == Some(named.clone().into_bytes())
        });
        assert!(marked, "{variant}: {:?}", folder.files());
        Trial::Ran
    });
}

#[test]
fn where_markers_cannot_be_written_nothing_is_tried() {
    let folder = Folder::new("stuck");
    fs::write(&folder.0, b"in the way").unwrap();
    let tuning = alone(subject("1"), Some(&folder));
    assert_eq!((unasked(&tuning, "p"), unasked(&tuning, "q")), (0, 0));
    assert_eq!(tuning.findings(), Tuned::default());
    fs::remove_file(&folder.0).unwrap();
}

#[test]
fn trials_end_when_their_time_is_up() {
    let tuning = alone(subject("1"), None);
    tuning
        .spent
        .store(MOST_TIME.as_nanos() as u64, Ordering::Relaxed);
    assert_eq!(unasked(&tuning, "p"), 0);
    let tuning = alone(subject("1"), None);
    let little = MOST_TIME - Duration::from_millis(20);
    tuning
        .spent
        .store(little.as_nanos() as u64, Ordering::Relaxed);
    choose(&tuning, "p");
    assert!(tuning.time_left().is_zero());
    assert_eq!(unasked(&tuning, "q"), 0);
    // Without measured times the limit is never reached.
    let mut tuning = alone(subject("1"), None);
    tuning.has_clock = false;
    let nanos = MOST_TIME.as_nanos() as u64;
    tuning.spent.store(nanos, Ordering::Relaxed);
    assert!(!tuning.time_left().is_zero());
}

#[test]
fn one_tries_at_a_time_and_the_others_go_by_the_rule() {
    let tuning = alone(subject("1"), None);
    let inner = Cell::new(None);
    let mut runner = Runner {
        prepare: &mut || Ready::Yes,
        run: &mut |index, _| {
            inner.set(Some(unasked(&tuning, "q")));
            pass([10, 5, 10][index]);
            Trial::Ran
        },
    };
    assert_eq!(tuning.choose("family", &"p", &VARIANTS, &mut runner), 1);
    assert_eq!(inner.get(), Some(0));
    assert_eq!(choose(&tuning, "q"), 1, "and try later");
}

#[test]
fn where_the_rules_choice_does_not_run_another_is_taken_for_now() {
    let folder = Folder::new("refused");
    let tuning = alone(subject("1"), Some(&folder));
    let run = |variant: &str| match variant {
        "broken" => Trial::Failed,
        _ => Trial::Ran,
    };
    let variants = ["broken", "slow", "fast"];
    assert_eq!(choose_by(&tuning, "p", &variants, run), 1);
    assert_eq!(tuning.findings().best, [], "it may run the next time");
    let none = choose_by(&tuning, "q", &variants, |_| Trial::Failed);
    assert_eq!(none, 0);
}

#[test]
fn whoever_cannot_try_goes_by_the_rule() {
    let tuning = alone(subject("1"), None);
    for (ready, asked_again) in [(Ready::Later, 2), (Ready::No, 1)] {
        let mut asked = 0;
        for _ in 0..2 {
            let mut runner = Runner {
                prepare: &mut || {
                    asked += 1;
                    ready
                },
                run: &mut |_, _| panic!("it was run"),
            };
            let chosen = tuning.choose("family", &format!("{ready:?}"), &VARIANTS, &mut runner);
            assert_eq!(chosen, 0);
        }
        assert_eq!(asked, asked_again, "{ready:?}");
    }
    let timeless = Subject {
        has_clock: false,
        ..subject("1")
    };
    assert_eq!(
        choose(&alone(timeless, None), "p"),
        0,
        "no clock, no winner"
    );
}
