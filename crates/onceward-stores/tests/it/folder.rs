//! Tests of opening folders: a refused folder is left byte for byte as it was.

use std::path::Path;
use std::process::{Command, Stdio};

use onceward::ErrorKind;

use crate::support::*;

fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_missing_folder_is_created_and_an_unfinished_one_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder.path().join("a/b/c")));
    for leftover in [&["LOCK"][..], &["LOCK", "ONCEWARD.new"]] {
        let folder = tempfile::tempdir().unwrap();
        for name in leftover {
            write(&folder.path().join(name), b"");
        }
        let store = open(folder.path());
        hold(&store, 1, 30);
    }
    // The marker is there, the database was being made: any part of it may be missing.
    for half in ["db/version", "db/keyspaces/2", "db/keyspaces", "db/0.jnl", "db", "ACKED"] {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path()));
        write(&folder.path().join("CREATING"), b"");
        let gone = folder.path().join(half);
        if gone.is_dir() { std::fs::remove_dir_all(gone) } else { std::fs::remove_file(gone) }.unwrap();
        hold(&open(folder.path()), 1, 30);
        assert!(!folder.path().join("CREATING").exists());
        assert!(load(&open(folder.path()), 1).is_some());
    }
}

#[cfg(unix)]
#[test]
fn a_new_folder_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;

    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("a/b");
    drop(open(&folder));
    assert_eq!(std::fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
}

#[cfg(unix)]
#[test]
fn a_folder_that_was_there_before_is_closed_to_others() {
    use std::os::unix::fs::PermissionsExt;

    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("volume");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    drop(open(&folder));
    assert_eq!((mode(&folder), mode(&folder.join("db"))), (0o700, 0o700));
    for file in ["ONCEWARD", "LOCK", "ACKED"] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
}

#[test]
fn a_foreign_folder_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("photos/cat.jpg"), b"meow");
    let error = refused(folder.path());
    assert_eq!(error.kind(), ErrorKind::Foreign);
    assert!(error.to_string().contains("photos"), "{error}");

    let file = folder.path().join("photos/cat.jpg");
    let Err(error) = try_open(&file) else { panic!("opened a file") };
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"meow");
}

#[test]
fn another_format_or_a_damaged_marker_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    hold(&open(folder.path()), 1, 30);
    // Cuts the preallocated zeros, which would only be read and compared a hundred times.
    drop(open(folder.path()));
    let marker = folder.path().join("ONCEWARD");
    let good = std::fs::read(&marker).unwrap();
    let line = String::from_utf8(good.clone()).unwrap();
    let (text, checksum) = line.strip_suffix('\n').unwrap().rsplit_once(' ').unwrap();
    let nonce = text.strip_prefix("onceward-embedded 3 ").unwrap();
    assert!(nonce.len() == 32 && nonce.bytes().all(|digit| digit.is_ascii_hexdigit()), "{line}");
    assert_eq!(checksum, format!("{:08x}", crc32fast::hash(text.as_bytes())));

    // A later version may write anything after the number.
    for (text, parts) in [
        ("onceward-embedded 4", ["format 4", "use the version that wrote it"]),
        ("onceward-embedded 4 and more", ["format 4", "use the version that wrote it"]),
        // As all folders were before the first release.
        (
            &format!("onceward-embedded 1 {nonce}"),
            ["format 1, which was never released", "Nothing was changed"],
        ),
        (
            &format!("onceward-embedded 2 {nonce}"),
            ["format 2, which was never released", "Nothing was changed"],
        ),
    ] {
        write(&marker, format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes())).as_bytes());
        let error = refused(folder.path());
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
    }

    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x04;
        write(&marker, &bad);
        assert_eq!(refused(folder.path()).kind(), ErrorKind::Damaged, "byte {at}");
    }
    for len in 0..good.len() {
        write(&marker, &good[..len]);
        assert_eq!(refused(folder.path()).kind(), ErrorKind::Damaged, "cut to {len}");
    }
    write(&marker, &good);
    assert!(load(&open(folder.path()), 1).is_some());
}

#[test]
fn what_fjall_needs_is_not_made_again() {
    let good = tempfile::tempdir().unwrap();
    {
        let store = open(good.path());
        for key in 0..10 {
            hold(&store, key, 30);
        }
    }
    for name in [
        "db",
        "db/version",
        "db/0.jnl",
        "db/keyspaces/0/current",
        "db/keyspaces/2",
        "db/keyspaces/4/current",
        "db/keyspaces/5/current",
    ] {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(good.path(), folder.path());
        let gone = folder.path().join(name);
        if gone.is_dir() { std::fs::remove_dir_all(gone) } else { std::fs::remove_file(gone) }.unwrap();
        let error = refused(folder.path());
        assert_eq!(error.kind(), ErrorKind::Damaged, "{name}: {error}");
    }
}

#[test]
fn the_side_file_may_be_removed_but_not_damaged() {
    let folder = tempfile::tempdir().unwrap();
    hold(&open(folder.path()), 1, 30);
    let acked = folder.path().join("ACKED");
    let good = std::fs::read(&acked).unwrap();
    let mut bad = good.clone();
    bad[3] ^= 1;
    write(&acked, &bad);
    assert!(load(&open(folder.path()), 1).is_some(), "one place of two is enough");
    bad.copy_from_slice(&good);
    bad[3] ^= 1;
    bad[515] ^= 1;
    write(&acked, &bad);
    let error = refused(folder.path());
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("ACKED"), "{error}");
    std::fs::remove_file(&acked).unwrap();
    assert!(load(&open(folder.path()), 1).is_some());
}

#[test]
fn a_second_opening_is_refused_while_the_first_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    hold(&store, 1, 30);
    assert_eq!(refused(folder.path()).kind(), ErrorKind::InUse);
    // And from another process.
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "folder::child_opens_a_folder_in_use"])
        .env("ONCEWARD_TEST_IN_USE", folder.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    drop(store);
    assert!(load(&open(folder.path()), 1).is_some());
}

/// The other process of the test above.
#[test]
fn child_opens_a_folder_in_use() {
    if let Some(path) = std::env::var_os("ONCEWARD_TEST_IN_USE") {
        let Err(error) = try_open(Path::new(&path)) else { panic!("two processes on one folder") };
        assert_eq!(error.kind(), ErrorKind::InUse);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_folder_is_refused_untouched() {
    use crate::disk_full::Mount;

    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::tmpfs(folder.path(), "size=64m") else { return };
    let (ours, empty) = (folder.path().join("ours"), folder.path().join("empty"));
    hold(&open(&ours), 1, 30);
    std::fs::create_dir(&empty).unwrap();
    mount.remount("ro");
    for path in [&ours, &empty, &folder.path().join("missing")] {
        let before = all_bytes(folder.path());
        let Err(error) = try_open(path) else { panic!("opened a read-only folder") };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("ead-only"), "{error}");
        assert!(before == all_bytes(folder.path()));
    }
    mount.remount("rw");
    assert!(load(&open(&ours), 1).is_some());
}
