//! A store that takes no writes, and a clock that jumps: the gateway says so, runs nothing twice, and goes on by itself.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::stage::{Gateway, Home, Service, rounds};
use crate::process::{eventually, send};

/// Says what was left out; under `./check` that is a failure.
fn not_tested(why: &str) {
    assert!(std::env::var_os("ONCEWARD_CHECK").is_none(), "{why}, and ./check needs it");
    // Past the test's captured output: a skip must be seen.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// A small file system of its own, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, with a visible message, where mounting is not permitted.
    fn mount(path: &Path, size: &str) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(path)
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(path.to_path_buf()));
        }
        not_tested("mounting is not permitted here, a full disk was NOT tested");
        None
    }

    fn resize(&self, size: &str) {
        let status =
            Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn ready(gateway: &Gateway) -> (u16, String) {
    let answer = send(gateway.admin, "GET", "/readyz", &[], "");
    (answer.status, answer.body)
}

#[test]
fn a_full_disk_is_not_ready_and_goes_on_by_itself() {
    for _ in 0..rounds(1, 10) {
        if !fill_a_disk() {
            return;
        }
    }
}

/// Whether a small disk could be had.
fn fill_a_disk() -> bool {
    let (home, service) = (Home::new(), Service::charging());
    let Some(disk) = SmallDisk::mount(home.folder.path(), "6m") else { return false };
    let gateway = home.start(&service.url());
    assert_eq!(ready(&gateway).0, 200);
    let filler = home.folder.path().join("filler");
    let mut recorded = 0;
    let mut file = fs::File::create(&filler).unwrap();
    let refused = eventually("the disk is full", || {
        let _ = file.write_all(&vec![0; 64 << 10]);
        let answer = gateway.charge(&format!("k{recorded}"), "{}");
        if answer.status == 201 {
            recorded += 1;
            return None;
        }
        Some(answer)
    });
    assert_eq!(refused.problem(), (503, "store-unavailable".into()));
    let why = eventually("it is not ready", || {
        let (status, body) = ready(&gateway);
        (status == 503).then_some(body)
    });
    assert!(why.contains("no room left"), "{why}");
    let replayed = gateway.charge("k0", "{}");
    assert_eq!(replayed.field("idempotent-replayed"), Some("true"), "reads go on");
    disk.resize("100m");
    eventually("it is ready again", || (ready(&gateway).0 == 200).then_some(()));
    let effects = service.effects();
    for number in 0..recorded {
        let answer = gateway.charge(&format!("k{number}"), "{}");
        assert_eq!((answer.status, answer.field("idempotent-replayed")), (201, Some("true")), "{number}");
    }
    assert_eq!(service.effects(), effects, "nothing ran again");
    assert_eq!(gateway.charge("fresh", "{}").status, 201);
    true
}

/// Adds the number of seconds in a file to every reading of the wall clock.
const SHIFTED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    long shift = 0;
    FILE *file = id == CLOCK_REALTIME ? fopen(getenv("SHIFT_FILE"), "r") : NULL;
    if (file) { if (fscanf(file, "%ld", &shift) != 1) shift = 0; fclose(file); }
    now->tv_sec += shift;
    return result;
}
"#;

/// A gateway whose wall clock goes by `shift`, a file with a number of seconds. `None`, with a visible message, without a
/// C compiler.
fn start_with_shifted_clock(home: &Home, scheme: &str, upstream: &str) -> Option<Gateway> {
    let folder = home.folder.path();
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, SHIFTED_CLOCK).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
    if !built.is_ok_and(|status| status.success()) {
        not_tested("there is no C compiler, jumps of the clock were NOT tested");
        return None;
    }
    let store = format!("{scheme}:{}", folder.join("receipts").display());
    let shift = folder.join("shift");
    let variables =
        [("LD_PRELOAD", library.to_str().unwrap()), ("SHIFT_FILE", shift.to_str().unwrap()), SECRET];
    Some(Gateway::start_on(&store, upstream, &home.config(), &["--sweep-every", "100ms"], &variables))
}

const SECRET: (&str, &str) = ("ONCEWARD_SECRET", "0123456789abcdef0123456789abcdef");
const DAY_S: i64 = 86_400;

fn set_clock_of(home: &Home, shift_s: i64) {
    let (new, shift) = (home.folder.path().join("shift.new"), home.folder.path().join("shift"));
    fs::write(&new, shift_s.to_string()).unwrap();
    fs::rename(new, shift).unwrap();
}

#[test]
fn a_clock_that_jumps_ends_no_retention_on_sqlite() {
    let (home, service) = (Home::new(), Service::charging());
    set_clock_of(&home, 0);
    let Some(gateway) = start_with_shifted_clock(&home, "sqlite", &service.url()) else { return };
    assert_eq!(gateway.charge("a", "{}").status, 201);
    let jumps = 2 * rounds(1, 10);
    for jump in 0..jumps {
        let shift_s = if jump % 2 == 0 { 2 * DAY_S } else { -2 * DAY_S };
        let counted = gateway.metric("onceward_clock_jumps_total");
        set_clock_of(&home, shift_s);
        eventually("the jump is counted", || {
            assert_eq!(gateway.charge("a", "{}").field("idempotent-replayed"), Some("true"));
            (gateway.metric("onceward_clock_jumps_total") > counted).then_some(())
        });
        let key = format!("after{jump}");
        assert_eq!(gateway.charge(&key, "{}").status, 201);
        assert_eq!(gateway.charge(&key, "{}").field("idempotent-replayed"), Some("true"));
    }
    assert_eq!(service.effects(), 1 + jumps);
}

/// The clock jumps while the gateway runs, and is wrong when it starts again.
#[test]
fn a_clock_that_jumps_ends_no_retention() {
    a_wrong_clock_ends_no_retention("embedded");
}

#[test]
fn a_start_with_a_wrong_clock_ends_no_retention_on_sqlite() {
    a_wrong_clock_ends_no_retention("sqlite");
}

fn a_wrong_clock_ends_no_retention(scheme: &str) {
    let (home, service) = (Home::new(), Service::charging());
    let set_clock = |shift_s| set_clock_of(&home, shift_s);
    set_clock(0);
    let Some(gateway) = start_with_shifted_clock(&home, scheme, &service.url()) else { return };
    assert_eq!(gateway.charge("a", "{}").status, 201);
    // The clock jumps while the gateway runs: the receipt is kept for a day, and two have passed.
    set_clock(2 * DAY_S);
    eventually("the jump is counted", || {
        assert_eq!(gateway.charge("a", "{}").field("idempotent-replayed"), Some("true"));
        (gateway.metric("onceward_clock_jumps_total") >= 1.0).then_some(())
    });
    gateway.kill();
    let start = || start_with_shifted_clock(&home, scheme, &service.url()).unwrap();
    let replays = |gateway: &Gateway, key: &str, shift_s: i64| {
        assert_eq!(gateway.charge(key, "{}").field("idempotent-replayed"), Some("true"), "{key} {shift_s}");
    };
    // It starts with a clock that is far ahead, or far behind, and is corrected a moment later.
    let starts = 2 * rounds(1, 10);
    for (number, shift_s) in [2 * DAY_S, -20_000 * DAY_S].into_iter().cycle().take(starts).enumerate() {
        set_clock(shift_s);
        let gateway = start();
        replays(&gateway, "a", shift_s);
        let new = format!("new-{number}");
        assert_eq!(gateway.charge(&new, "{}").status, 201);
        set_clock(0);
        replays(&gateway, "a", shift_s);
        gateway.kill();
        // What was recorded by the wrong clock is kept as long as what was not.
        let gateway = start();
        replays(&gateway, &new, 0);
        gateway.kill();
    }
    assert_eq!(service.effects(), 1 + starts);
}
