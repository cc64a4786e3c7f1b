//! Tests of shares and claims, as numbers.

use std::sync::Arc;

use super::super::DeadList;
use super::super::share::{Amount, MadeBy, ShareHandle, ShareId, ShareOptions};
use super::{IDLE_COMMANDS, Lending, SharePaths, Shares, Whole, Whom};
use crate::number_map::NumberMap;

const WHOLE: Whole = Whole {
    limit_bytes: 1000,
    device_bytes: None,
};

/// A table, and its shares. Each entry: name, guarantee, the share around it.
fn table(shares: &[(&str, u64, &str)]) -> (Shares, Vec<Arc<ShareHandle>>) {
    let (mut table, dead) = (Shares::default(), DeadList::new());
    let mut paths = SharePaths::default();
    let mut handles: Vec<Arc<ShareHandle>> = Vec::new();
    for &(name, guaranteed_bytes, around) in shares {
        let around = handles.iter().find(|one| **one.path() == *around);
        let share = ShareOptions::guaranteed(guaranteed_bytes);
        let path = paths.numbered(name, around);
        let handle = table.add(path, share, around, MadeBy::App, WHOLE, &dead);
        handles.push(handle.unwrap());
    }
    (table, handles)
}

fn due(share: ShareId, bytes: u64) -> Whom {
    Whom::owing(ShareId::MAIN, share, bytes)
}

/// What is asked if nobody owes anything.
fn need(share: ShareId) -> Whom {
    due(share, 0).in_turn(false).last().unwrap()
}

#[test]
fn promises_are_kept_or_refused() {
    let (mut table, handles) = table(&[("app", 600, ""), ("user", 400, "app")]);
    let dead = DeadList::new();
    let mut refuse = |share: ShareOptions, around: Option<&Arc<ShareHandle>>, why: &str| {
        let error = table
            .add(("x".into(), 9), share, around, MadeBy::App, WHOLE, &dead)
            .unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    let within = Some(&handles[0]);
    refuse(
        ShareOptions::guaranteed(401),
        None,
        "more than what is left",
    );
    refuse(
        ShareOptions::guaranteed(201),
        within,
        "more than what is left",
    );
    refuse(
        ShareOptions::guaranteed(9).with_ceiling(8),
        None,
        "below the guarantee",
    );
    refuse(ShareOptions::guaranteed(0).with_ceiling(0), None, "0 bytes");
    refuse(
        ShareOptions::guaranteed(Amount::OfDevice(5)),
        None,
        "give bytes",
    );
    let half = ShareOptions::guaranteed(Amount::OfBudget(20)).with_ceiling(Amount::OfBudget(50));
    let job = table
        .add(("job".into(), 9), half, None, MadeBy::App, WHOLE, &dead)
        .unwrap();
    let of_job = |table: &Shares| {
        let job = table.use_of(job.id()).unwrap();
        (job.guaranteed_bytes, job.ceiling_bytes)
    };
    assert_eq!(of_job(&table), (200, Some(500)));
    assert!(
        table
            .resize(&handles[0], ShareOptions::guaranteed(399), WHOLE)
            .is_err()
    );
    table
        .resize(&handles[0], ShareOptions::guaranteed(500), WHOLE)
        .unwrap();
    assert_eq!(table.promised_bytes(), 700);
    let smaller = Whole {
        limit_bytes: 900,
        ..WHOLE
    };
    table.follow(smaller);
    assert_eq!(of_job(&table), (180, Some(450)));
    handles[0].close();
    table.close(&handles[0]);
    assert!(handles[1].check_open().is_err());
    assert_eq!(table.promised_bytes(), 180);
}

#[test]
fn numbers_of_shares_never_repeat() {
    let (mut table, handles) = table(&[("a", 0, "")]);
    let dead = DeadList::new();
    table.last = u32::MAX - 1;
    let mut add = || {
        let share = ShareOptions::guaranteed(0);
        table.add(("x".into(), 9), share, None, MadeBy::App, WHOLE, &dead)
    };
    let last = add().unwrap();
    assert!(last.id() > handles[0].id());
    let error = add().unwrap_err().to_string();
    assert!(error.contains("open the device again"), "{error}");
}

#[test]
fn ceilings_hold_for_all_that_is_within() {
    let (mut table, handles) = table(&[("app", 0, ""), ("user", 0, "app")]);
    let (app, user) = (handles[0].id(), handles[1].id());
    let share = ShareOptions::guaranteed(0).with_ceiling(100);
    table.resize(&handles[0], share, WHOLE).unwrap();
    table.gained(app, 30, false);
    table.gained(user, 60, false);
    assert_eq!(table.hindrance(user, 10, 90), None);
    let hindrance = table.hindrance(user, 25, 90).unwrap();
    assert_eq!((hindrance.share, hindrance.excess_bytes), (app, 15));
    table.lost(app, 30, true);
    assert_eq!(table.hindrance(user, 25, 60), None);
    assert_eq!(table.use_of(app).unwrap().evictions, 1);
}

/// The bytes that somebody must give up first.
fn excess(table: &Shares, share: ShareId, more_bytes: u64, live_bytes: u64) -> u64 {
    let hindrance = table.hindrance(share, more_bytes, live_bytes);
    hindrance.map_or(0, |one| one.excess_bytes)
}

#[test]
fn what_could_not_be_given_back_is_not_lent() {
    let (mut table, handles) = table(&[("a", 600, ""), ("b", 0, "")]);
    let (a, b) = (handles[0].id(), handles[1].id());
    table.lending = Some(Lending {
        limit_bytes: 1000,
        room_bytes: 50,
    });
    assert_eq!(excess(&table, b, 450, 0), 0);
    assert_eq!(excess(&table, b, 451, 0), 1);
    assert_eq!(excess(&table, ShareId::MAIN, 451, 0), 1);
    table.gained(b, 450, false);
    assert_eq!(excess(&table, a, 600, 450), 0);
    table.gained(a, 100, false);
    assert_eq!(excess(&table, b, 1, 550), 1);
}

#[test]
fn a_guarantee_within_a_share_is_lent_by_the_same_rule() {
    let (mut table, handles) =
        table(&[("app", 600, ""), ("user", 400, "app"), ("guest", 0, "app")]);
    let (user, guest) = (handles[1].id(), handles[2].id());
    let share = ShareOptions::guaranteed(600).with_ceiling(700);
    table.resize(&handles[0], share, WHOLE).unwrap();
    table.lending = Some(Lending {
        limit_bytes: 1000,
        room_bytes: 50,
    });
    // The ceiling around both leaves 300 beside the user's guarantee, and 50 may leave.
    assert_eq!(excess(&table, guest, 350, 0), 0);
    assert_eq!(excess(&table, guest, 351, 0), 1);
    table.gained(guest, 350, false);
    // The user may claim what counts for it already.
    assert_eq!(excess(&table, user, 350, 350), 0);
    // Of the device, 300 are left beside the ceiling.
    assert_eq!(excess(&table, ShareId::MAIN, 300, 350), 0);
    assert_eq!(excess(&table, ShareId::MAIN, 301, 350), 1);
}

#[test]
fn a_promise_needs_room_for_what_must_leave_and_for_what_is_pinned() {
    let (mut table, handles) = table(&[("a", 600, ""), ("b", 0, "")]);
    let (a, b) = (handles[0].id(), handles[1].id());
    let unmet = |table: &Shares, room_bytes, pinned: &[(ShareId, u64)]| {
        let lending = Lending {
            limit_bytes: 1000,
            room_bytes,
        };
        let mut by_share = NumberMap::default();
        for (share, bytes) in pinned {
            by_share.insert(share.number(), *bytes);
        }
        let unmet = table.unmet(lending, 900, || by_share);
        (unmet.stuck_bytes, unmet.pinned_bytes)
    };
    table.gained(b, 800, false);
    // 100 are in no share. So 500 have to leave, if `a` wants what it is guaranteed.
    assert_eq!(unmet(&table, 500, &[]), (0, 0));
    assert_eq!(unmet(&table, 499, &[]), (1, 0));
    assert_eq!(unmet(&table, 500, &[(b, 400)]), (0, 0));
    assert_eq!(unmet(&table, 500, &[(b, 350), (ShareId::MAIN, 51)]), (0, 1));
    // Its own pins are in nobody's way.
    assert_eq!(unmet(&table, 500, &[(a, 600), (b, 400)]), (0, 0));
    // Without a guarantee nobody is owed anything, though pins exceed the limit.
    table.close(&handles[0]);
    assert_eq!(unmet(&table, 0, &[(a, 600), (b, 600)]), (0, 0));
}

#[test]
fn borrowers_give_back_and_nobody_falls_below_a_guarantee() {
    let (mut table, handles) = table(&[("a", 400, ""), ("b", 200, ""), ("c", 0, "")]);
    let [a, b, c] = [0, 1, 2].map(|index| handles[index].id());
    table.gained(b, 500, false);
    table.gained(c, 250, false);
    let may = |whom: Whom, from: ShareId| table.claim(whom, 900, 0).may_take(from);
    // `a` is within its guarantee.
    assert!(may(due(a, 300), b) && may(due(a, 300), c));
    assert!(may(due(a, 300), ShareId::MAIN));
    assert!(!may(due(a, 400), a) && may(due(a, 401), a));
    // `b` would have borrowed 301 bytes. `c` has borrowed 250, and 150 are in no share.
    assert!(!may(due(b, 1), c) && !may(due(b, 1), ShareId::MAIN));
    assert!(may(due(b, 1), b) && may(need(b), c));
    // `c` may take from `b` until both have borrowed about the same.
    let mut claim = table.claim(due(c, 10), 900, 0);
    let mut taken_bytes = 0;
    while claim.take(b, 10) {
        taken_bytes += 10;
    }
    assert_eq!(taken_bytes, 40);
    let mut claim = table.claim(need(a), 900, 0);
    assert!(claim.take(b, 300), "it was borrowed");
    assert!(!claim.take(b, 1), "it is guaranteed");
}

#[test]
fn idle_shares_do_not_compete() {
    let (mut table, handles) = table(&[("a", 0, ""), ("b", 0, "")]);
    let [a, b] = [0, 1].map(|index| handles[index].id());
    table.gained(a, 900, false);
    table.gained(b, 50, false);
    let may = |table: &Shares, now| table.claim(due(a, 10), 950, now).may_take(b);
    table.runs(b, 7);
    assert!(!may(&table, 99 + IDLE_COMMANDS), "nothing else has run");
    table.runs(a, 8);
    table.runs(a, 9);
    assert!(!may(&table, 8 + IDLE_COMMANDS));
    assert!(may(&table, 9 + IDLE_COMMANDS));
}

#[test]
fn what_a_share_ran_counts_for_those_around_it_after_its_end() {
    let (mut table, handles) = table(&[("a", 0, ""), ("b", 0, ""), ("part", 0, "b")]);
    let [a, b, part] = [0, 1, 2].map(|index| handles[index].id());
    table.gained(a, 900, false);
    table.gained(b, 50, false);
    let may = |table: &Shares, now| table.claim(due(a, 10), 950, now).may_take(b);
    table.runs(part, 7);
    table.forget(part);
    assert!(!may(&table, 99 + IDLE_COMMANDS));
    table.runs(a, 200);
    assert!(!may(&table, 200 + IDLE_COMMANDS));
    assert!(may(&table, 201 + IDLE_COMMANDS));
}

#[test]
fn guarantees_hold_within_a_share_too() {
    let shares = [
        ("app", 500, ""),
        ("u", 300, "app"),
        ("v", 0, "app"),
        ("job", 100, ""),
    ];
    let (mut table, handles) = table(&shares);
    let [app, u, v, job] = [0, 1, 2, 3].map(|index| handles[index].id());
    table.gained(u, 300, false);
    table.gained(v, 250, false);
    table.gained(app, 50, false);
    let may = |whom: Whom, from: ShareId| table.claim(whom, 600, 0).may_take(from);
    // `app` has borrowed 100 bytes. `v` gives them back, or `app` itself, but not `u`.
    assert!(may(due(job, 100), v) && may(due(job, 100), app));
    assert!(!may(due(job, 100), u) && !may(need(job), u));
    // `u` may have more only from those who have borrowed more within `app`.
    assert!(may(due(u, 100), v) && !may(due(u, 100), app));
    assert!(may(due(app, 100), v) && !may(due(app, 100), u));
    assert!(may(Whom::all(app), u) && !may(Whom::all(app), job));
    assert!(may(Whom::all(ShareId::MAIN), u));
}

#[test]
fn best_effort_shares_give_first_and_take_nothing() {
    let (mut table, handles) = table(&[("a", 0, ""), ("cache", 0, ""), ("part", 0, "cache")]);
    let [a, cache, part] = [0, 1, 2].map(|index| handles[index].id());
    let share = ShareOptions::best_effort();
    table.resize(&handles[1], share, WHOLE).unwrap();
    table.gained(a, 100, false);
    table.gained(cache, 40, false);
    table.gained(part, 10, false);
    assert!(table.has_best_effort() && table.is_best_effort(part) && !table.is_best_effort(a));
    let may = |whom: Whom, from: ShareId| table.claim(whom, 300, 0).may_take(from);
    // Who has borrowed more comes first, too: here `a` has.
    let turns: Vec<Whom> = due(a, 10).in_turn(true).collect();
    assert!(may(turns[0], cache) && may(turns[0], part));
    assert!(!may(turns[0], a) && !may(turns[0], ShareId::MAIN));
    assert_eq!(turns[1], due(a, 10));
    assert!(may(
        due(ShareId::MAIN, 10).in_turn(true).next().unwrap(),
        cache
    ));
    // A lowered budget takes from it first, too.
    let limit = Whom::all(ShareId::MAIN).in_turn(true).next().unwrap();
    assert!(may(limit, part) && !may(limit, a));
    for whom in due(cache, 10)
        .in_turn(true)
        .chain(due(part, 10).in_turn(true))
    {
        assert!(!may(whom, a) && !may(whom, ShareId::MAIN), "{whom:?}");
    }
    // Its own, and parts of one tree among each other.
    assert!(may(due(cache, 10), cache) && may(due(cache, 10), part));
    assert!(may(due(part, 10), part) && may(due(part, 10), cache));
}
