//! A Redis server of this machine as a tier: it is stopped, restarted, full, suspended, changed and
//! emptied by others.
//!
//! Each test starts its own `redis-server` on a free port of the loopback interface, with nothing
//! on disk. Debian's package of this name has it; `cargo xtask ci --only redis` installs it and
//! runs these tests, which the suite leaves out.

mod server;

use std::time::Duration;

use lapidary::stores::{RedisStore, StoreFailure, StoreTier};
use lapidary::{Budget, Error, Gpu, Residency, Tensor};

use super::{LEN, SHORT, assert_holds, budget, eventually, open, tensor};
use server::Server;

const MIB: usize = 1 << 20;

/// A time-out for a server that answers.
const LONG: Duration = Duration::from_secs(60);

fn tier(server: &Server, timeout: Duration) -> StoreTier {
    let store = RedisStore::at(server.address()).timeout(timeout);
    StoreTier::new("redis", store, 64 << 20).timeout(timeout)
}

fn open_on(server: &Server, timeout: Duration) -> Gpu {
    open(vec![tier(server, timeout)], budget()).0
}

#[track_caller]
fn evict(gpu: &Gpu, start: u32) -> Tensor {
    let x = tensor(gpu, start);
    x.evict().unwrap();
    assert_eq!(x.residency(), Residency::Store);
    x
}

#[track_caller]
fn assert_lost(x: &Tensor, expected: impl Fn(&StoreFailure) -> bool) {
    let _ = x.to_vec::<u32>();
    let Err(Error::Poisoned { cause, .. }) = x.force() else {
        panic!("it has a value, or may get it back");
    };
    let Error::Store(cause) = &*cause else {
        panic!("{cause}");
    };
    assert!(expected(&cause.failure), "{cause}");
}

#[test]
#[ignore = "needs a redis-server: `cargo xtask ci --only redis` installs it"]
fn tensors_of_any_size_go_to_a_server_and_come_back() {
    let server = Server::start(&[]);
    let wide = Budget {
        host_bytes: Some(0),
        ..Budget::device(32 << 20)
    };
    let (gpu, _sim) = open(vec![tier(&server, LONG)], wide);
    let held: Vec<_> = [1, LEN, MIB / 4 - 1, MIB / 4, MIB / 4 + 1, 1_000_000]
        .into_iter()
        .map(|len| {
            let values: Vec<u32> = (0..len as u32)
                .map(|at| at.wrapping_mul(0x9E37_79B1))
                .collect();
            (gpu.tensor(&values, &[len]).unwrap(), values)
        })
        .collect();
    held.iter().for_each(|(x, _)| x.evict().unwrap());
    // Values have at most 1 MiB.
    assert_eq!(server.fields(), 1 + 1 + 1 + 1 + 2 + 4);
    for (x, values) in &held {
        assert_eq!(x.residency(), Residency::Store);
        assert!(x.to_vec::<u32>().unwrap() == *values);
        assert!(x.add(0_u32).unwrap().to_vec::<u32>().unwrap() == *values);
    }
    drop(held);
    gpu.memory().stats();
    eventually("removed", || server.fields() == 0);
    let stats = gpu.memory().stats();
    assert_eq!((stats.stores[0].failures, stats.stores[0].lost), (0, 0));
}

#[test]
#[ignore = "needs a redis-server: `cargo xtask ci --only redis` installs it"]
fn a_full_server_is_passed_over() {
    let server = Server::start(&["--maxmemory-policy", "noeviction"]);
    let gpu = open_on(&server, LONG);
    let x = evict(&gpu, 1);
    server.cli(&["config", "set", "maxmemory", "1"]);
    let y = tensor(&gpu, 2);
    y.evict().unwrap();
    assert_eq!(y.residency(), Residency::Disk);
    assert_eq!(gpu.memory().stats().stores[0].failures, 1);
    // A full server still gives what it has.
    assert_holds(&x, 1);
    assert_holds(&y, 2);
}

#[test]
#[ignore = "needs a redis-server: `cargo xtask ci --only redis` installs it"]
fn a_suspended_server_is_passed_over_and_used_again() {
    let server = Server::start(&[]);
    let gpu = open_on(&server, SHORT);
    let x = evict(&gpu, 1);
    server.signal("STOP");
    let y = tensor(&gpu, 2);
    y.evict().unwrap();
    assert_eq!(y.residency(), Residency::Disk);
    assert!(matches!(x.to_vec::<u32>(), Err(Error::Store(_))));
    assert_holds(&y, 2);
    server.signal("CONT");
    eventually("ready", || !gpu.memory().stats().stores[0].rests);
    assert_holds(&x, 1);
    evict(&gpu, 3);
}

#[test]
#[ignore = "needs a redis-server: `cargo xtask ci --only redis` installs it"]
fn values_that_another_client_changed_are_found() {
    let server = Server::start(&[]);
    let gpu = open_on(&server, LONG);
    let x = evict(&gpu, 1);
    let change = |lua: &str| {
        let script = format!(
            "local hash = redis.call('keys', 'lapidary:*')[1] \
             for _, field in ipairs(redis.call('hkeys', hash)) do {lua} end"
        );
        server.cli(&["eval", &script, "0"]);
    };
    let is_damage = |failure: &StoreFailure| matches!(failure, StoreFailure::Damaged(_));
    change("redis.call('hset', hash, field, string.rep('x', 4096))");
    let y = evict(&gpu, 2);
    assert_lost(&x, is_damage);
    assert_holds(&y, 2);
    change("redis.call('hset', hash, field, 'short')");
    assert_lost(&y, is_damage);
    let z = evict(&gpu, 3);
    server.cli(&[
        "eval",
        "redis.call('set', redis.call('keys', 'lapidary:*')[1], 'x')",
        "0",
    ]);
    assert_lost(&z, is_damage);
    // The server is used again once the foreign value is gone.
    server.cli(&["flushall"]);
    eventually("ready", || !gpu.memory().stats().stores[0].rests);
    assert_holds(&evict(&gpu, 4), 4);
}

#[test]
#[ignore = "needs a redis-server: `cargo xtask ci --only redis` installs it"]
fn an_emptied_server_has_lost_its_tensors_and_no_others() {
    let server = Server::start(&[]);
    let gpu = open_on(&server, LONG);
    let (x, here) = (evict(&gpu, 1), tensor(&gpu, 2));
    server.cli(&["flushall"]);
    let later = evict(&gpu, 3);
    assert_lost(&x, |failure| *failure == StoreFailure::NotFound);
    assert_holds(&here, 2);
    assert_holds(&later, 3);
}

#[test]
#[ignore = "needs a redis-server: `cargo xtask ci --only redis` installs it"]
fn a_restarted_server_is_used_again() {
    let mut server = Server::start(&[]);
    let gpu = open_on(&server, SHORT);
    let x = evict(&gpu, 1);
    server.stop();
    let y = tensor(&gpu, 2);
    y.evict().unwrap();
    assert_eq!(y.residency(), Residency::Disk);
    // The server may still have the bytes.
    let Err(Error::Store(error)) = x.to_vec::<u32>() else {
        panic!("there is no server");
    };
    assert!(matches!(error.failure, StoreFailure::Gone(_)), "{error}");
    server.restart();
    eventually("ready", || !gpu.memory().stats().stores[0].rests);
    assert_lost(&x, |failure| *failure == StoreFailure::NotFound);
    assert_holds(&y, 2);
    assert_holds(&evict(&gpu, 3), 3);
}

#[test]
#[ignore = "needs a redis-server: `cargo xtask ci --only redis` installs it"]
fn values_live_as_long_as_the_device_and_go_with_it() {
    let server = Server::start(&[]);
    let store = RedisStore::at(server.address()).expire_after(Duration::from_secs(3));
    let hash = store.hash().to_owned();
    let (gpu, _sim) = open(vec![StoreTier::new("redis", store, 1 << 20)], budget());
    let x = evict(&gpu, 1);
    assert_eq!(server.cli(&["keys", "*"]), hash);
    // Longer than the values would live if nobody asked for them.
    std::thread::sleep(Duration::from_millis(4500));
    let ttl: i64 = server.cli(&["ttl", &hash]).parse().unwrap();
    assert!((0..=3).contains(&ttl), "{ttl}");
    assert_holds(&x, 1);
    drop((x, gpu));
    eventually("removed", || server.cli(&["keys", "*"]).is_empty());
}

/// The port of the server, in a process that dies with tensors in it.
const DYING: &str = "LAPIDARY_DYING_BESIDE_REDIS";

#[test]
#[ignore = "needs a redis-server: `cargo xtask ci --only redis` installs it"]
fn the_values_of_a_dead_process_expire() {
    if let Ok(address) = std::env::var(DYING) {
        let store = RedisStore::at(address).expire_after(Duration::from_secs(3));
        let (gpu, _sim) = open(vec![StoreTier::new("redis", store, 1 << 20)], budget());
        let _x = evict(&gpu, 1);
        std::process::abort();
    }
    let server = Server::start(&[]);
    let name = "stores::redis::the_values_of_a_dead_process_expire";
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--include-ignored"])
        .env(DYING, server.address())
        .output()
        .unwrap();
    assert!(!child.status.success());
    assert_eq!(server.fields(), 1, "{child:?}");
    eventually("expired", || server.cli(&["keys", "*"]).is_empty());
}

#[test]
#[ignore = "needs a redis-server: `cargo xtask ci --only redis` installs it"]
fn logins_databases_and_unix_sockets_work() {
    let server = Server::start(&["--requirepass", "secret"]);
    let with = |store: RedisStore| {
        let tier = StoreTier::new("redis", store, 1 << 20).timeout(LONG);
        let (gpu, sim) = open(vec![tier], budget());
        let x = tensor(&gpu, 1);
        x.evict().unwrap();
        assert_holds(&x, 1);
        (gpu, sim, x)
    };
    for address in [server.address(), server.socket()] {
        let known = || RedisStore::at(address.clone()).login("default", "secret");
        assert_eq!(with(known()).2.residency(), Residency::Store);
        let elsewhere = with(known().database(3));
        assert_eq!(server.cli(&["-a", "secret", "-n", "3", "dbsize"]), "1");
        drop(elsewhere);
        // Without the right password the disk takes the bytes.
        for stranger in [
            RedisStore::at(address.clone()),
            RedisStore::at(address.clone()).login("default", "wrong"),
            known().database(999),
        ] {
            assert_eq!(with(stranger).2.residency(), Residency::Disk);
        }
    }
    let nowhere = RedisStore::at("no.such.host.invalid:1");
    assert_eq!(with(nowhere).2.residency(), Residency::Disk);
}
