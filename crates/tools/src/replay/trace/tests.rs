//! Reading of traces, and the errors of invalid ones.

use super::{Event, Role, parse};

fn check(text: &str, expected: Result<usize, (usize, &str)>) {
    let found = parse("test".into(), text.as_bytes());
    let found = found
        .map(|trace| trace.events.len())
        .map_err(|error| (error.line, error.what));
    assert_eq!(
        found,
        expected.map_err(|(line, what)| (line, what.to_string())),
        "{text:?}"
    );
}

#[test]
fn good_traces_are_read_and_bad_lines_are_named() {
    check(
        "# name: x\na 0 5 P.empty\nm step\nr 0\na 1 7 F.mm\nw 1\nf 0\n",
        Ok(5),
    );
    check("a 0 5\nm step\na 1 7\nf 0\n", Ok(3));
    check("", Ok(0));
    check(
        "a 0 5\nf 0\nf 0\n",
        Err((3, "storage 0 was released before")),
    );
    check("a 0 5\nf 1\n", Err((2, "storage 1 was never created")));
    check(
        "a 0 5\na 0 5\n",
        Err((2, "storage 0 is created where 1 is the next id")),
    );
    check("a 0 x\n", Err((1, "`x` is not a size")));
    check("a 0\n", Err((1, "a size is missing")));
    check("a 0 0\n", Err((1, "storage 0 has no bytes")));
    check("a -1 5\n", Err((1, "`-1` is not an id")));
    check("a 0 5\nf 0 1\n", Err((2, "`1` after a release")));
    check("a 0 5\nx\n", Err((2, "`x` is not an event")));
    check("r 0\n", Err((1, "storage 0 was never created")));
    check(
        "a 0 18446744073709551615\n",
        Err((1, "the live bytes pass 2^56")),
    );
    check(&"\n".repeat(1 << 20), Ok(0));
    let idle = "# nothing\n".repeat(1 << 17);
    check(
        &idle,
        Err((104_859, "there is no event in the first 1.00 MiB")),
    );
    check(&format!("a 0 5\n{idle}f 0\n"), Ok(2));
    let peak = parse("test".into(), &b"a 0 5\na 1 7\nf 0\na 2 4\n"[..])
        .unwrap()
        .peak_live_bytes;
    assert_eq!(peak, 12);
}

/// The operators of a trace, each as its operands: `2` read, `+2` made, `!2` changed in place.
fn check_operators(text: &str, expected: &[&str]) {
    let trace = parse("test".into(), text.as_bytes()).unwrap();
    let runs = trace.events.iter().filter_map(|event| match event {
        Event::Run { first, count } => Some(&trace.operands[*first..first + count]),
        _ => None,
    });
    let found: Vec<String> = runs
        .map(|operands| {
            let named = operands.iter().map(|operand| match operand.role {
                Role::Read => format!("{}", operand.id),
                Role::Make => format!("+{}", operand.id),
                Role::Update => format!("!{}", operand.id),
            });
            named.collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(found, expected, "{text:?}");
}

#[test]
fn lines_that_belong_together_are_one_operator() {
    check_operators("a 0 5 P.empty\nr 0\nw 0\n", &["+0", "!0"]);
    check_operators(
        "a 0 5 P.empty\na 1 5 P.empty\nr 0 1 0\na 2 5 F.mm\na 3 5 F.mm\na 4 5 F.zeros\nf 0\n",
        &["+0", "+1", "0 1 +2 +3", "+4"],
    );
    check_operators(
        "a 0 5 P.empty\nr 0\nr 0\na 1 5 F.add\nw 0 1\nm step\nr 1\n",
        &["+0", "0", "!0 +1", "1"],
    );
    check_operators("a 0 5 P.empty\nm step\nf 0\n", &[]);
}

#[test]
fn what_is_no_text_and_what_has_no_lines_is_refused_early() {
    let no_text = parse("test".into(), &b"a 0 5\n\xff\xfe\n"[..]).unwrap_err();
    assert_eq!((no_text.line, no_text.what.as_str()), (2, "it is not text"));
    let endless = vec![b'a'; 3 << 20];
    let endless = parse("test".into(), &endless[..]).unwrap_err();
    assert_eq!(
        (endless.line, endless.what.as_str()),
        (1, "it is longer than 1048576 bytes")
    );
}
