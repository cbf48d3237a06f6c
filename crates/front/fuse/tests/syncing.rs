//! Durability of changes, the effects of damage, and access times.

use crate::serving;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use disk::{Access, Fault, MemoryDevice};
use ext4::Ext4;
use fuse::{AccessTimes, OnDamage, Options, Syncer};
use linux::abi::{ROOT_ID, ReadIn};
use linux::{Errno, Operation};
use serving::{Client, EXT4, KINDS, ServedImage, on_each};
use testkit::wait_until;
use vfs::FileSystem;

const SHORT: Duration = Duration::from_millis(20);
const SELDOM: Duration = Duration::from_secs(3600);

/// Returns whether a file of the root survived the crash.
fn survives(crashed: MemoryDevice, name: &str) -> bool {
    let fs = Ext4::open(Arc::new(crashed), &ext4::OpenOptions::default()).unwrap();
    fs.lookup(fs.root(), name.as_bytes()).is_ok()
}

#[test]
fn synced_data_survives_a_crash() {
    let image = ServedImage::new(EXT4);
    let client = Client::new(image.fs(), Options::default());
    let node = client.file("f");
    assert!(!survives(image.crashed(), "f"));
    client.fsync(node).unwrap();
    assert!(survives(image.crashed(), "f"));
    client.file("g");
    assert!(!survives(image.crashed(), "g"));
    client.syncfs().unwrap();
    assert!(survives(image.crashed(), "g"));
}

#[test]
fn changes_become_durable_at_intervals_and_nothing_is_written_without() {
    let image = ServedImage::new(EXT4);
    let client = Client::new(image.fs(), Options::default());
    thread::scope(|scope| {
        let syncer = Syncer::start(scope, &client.adapter, SHORT);
        for name in ["f", "g"] {
            let node = client.file(name);
            wait_until("a file to be durable", || survives(image.crashed(), name));
            // After the last sync with pending changes, reads cause none.
            wait_until("an image that nobody writes to", || {
                let before = image.device.count(Access::Flush);
                client.getattr(node);
                client.read(node, 0, 100).unwrap();
                client.readdir(ROOT_ID, 2, 4096).unwrap();
                thread::sleep(SHORT * 10);
                image.device.count(Access::Flush) == before
            });
        }
        drop(syncer);
    });
}

#[test]
fn a_syncer_ends_at_once_and_may_never_begin() {
    let image = ServedImage::new(EXT4);
    let client = Client::new(image.fs(), Options::default());
    let start = Instant::now();
    thread::scope(|scope| {
        let never = Syncer::start(scope, &client.adapter, Duration::ZERO);
        let seldom = Syncer::start(scope, &client.adapter, SELDOM);
        let longest = Syncer::start(scope, &client.adapter, Duration::MAX);
        client.file("f");
        thread::sleep(SHORT * 5);
        drop((never, seldom, longest));
    });
    assert!(start.elapsed() < SELDOM);
    assert!(!survives(image.crashed(), "f"));
}

#[test]
fn a_device_failure_is_reported_to_the_caller() {
    let image = ServedImage::new(EXT4);
    let client = Client::new(image.fs(), Options::default());
    let node = client.file("f");
    thread::scope(|scope| {
        image.device.set(Access::Write, Fault::From(1));
        let syncer = Syncer::start(scope, &client.adapter, SHORT);
        wait_until("a write that fails", || image.device.failures(Access::Write) > 0);
        drop(syncer);
    });
    image.device.set(Access::Write, Fault::Never);
    // Lost changes stay lost.
    assert_eq!(client.fsync(node), Err(Errno::IO));
    assert_eq!(client.syncfs(), Err(Errno::IO));
}

/// Returns an image with a damaged file and a sound one, with their nodes.
fn damaged() -> (ServedImage, u64, u64) {
    let image = ServedImage::new(EXT4);
    let client = Client::new(image.fs(), Options::default());
    let (victim, sound) = (client.file("victim"), client.file("sound"));
    for number in 0..100 {
        client.file(&format!("between{number}"));
    }
    drop(client);
    (image.with_damage(victim), victim, sound)
}

#[test]
fn after_damage_nothing_is_written() {
    let (image, victim, sound) = damaged();
    let client = Client::new(image.fs(), Options::default());
    client.write(sound, 0, b"before", 0).unwrap();
    client.file("unsynced");
    assert_eq!(client.attr(victim).unwrap_err(), Errno::UCLEAN);
    assert!(client.adapter.is_damaged());
    image.device.set(Access::Write, Fault::Never);
    assert_eq!(client.write(sound, 0, b"after", 0), Err(Errno::ROFS));
    assert_eq!(client.fallocate(sound, 0, 0, 4096), Err(Errno::ROFS));
    assert_eq!(client.copy((sound, 0), (sound, 9), 1, false), Err(Errno::ROFS));
    assert_eq!(client.setxattr(sound, b"user.x", b"1"), Err(Errno::ROFS));
    // No success: earlier writes are not durable, and will not be.
    assert_eq!(client.fsync(sound), Err(Errno::IO));
    assert_eq!(client.syncfs(), Err(Errno::IO));
    // Reads continue, and change nothing.
    assert_eq!(client.read(sound, 0, 100).unwrap(), b"before");
    thread::scope(|scope| {
        let syncer = Syncer::start(scope, &client.adapter, SHORT);
        thread::sleep(SHORT * 10);
        drop(syncer);
    });
    drop(client);
    assert_eq!(image.device.count(Access::Write), 0);
    assert!(!survives(image.crashed(), "unsynced"));
}

#[test]
fn damage_may_be_ignored() {
    let (image, victim, sound) = damaged();
    let options = Options { on_damage: OnDamage::Continue, ..Options::default() };
    let client = Client::new(image.fs(), options);
    assert_eq!(client.read(victim, 0, 10).unwrap_err(), Errno::UCLEAN);
    assert!(client.adapter.is_damaged());
    client.write(sound, 0, b"after", 0).unwrap();
    client.file("synced");
    assert_eq!(client.fsync(sound), Ok(()));
    assert!(survives(image.crashed(), "synced"));
}

#[test]
fn access_times_follow_the_rules_of_mount() {
    const DAY: u64 = 24 * 60 * 60;
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let recent = now - DAY / 2;
    // Access, modification and change times, and whether a read updates the first under each policy.
    let cases = [
        (1, 2, 1, [false, true, true]),
        (1, 1, 0, [false, true, true]),
        (1, 0, 1, [false, true, true]),
        (recent, recent - 1, recent - 1, [false, false, true]),
        (now - DAY - 5, 1, 1, [false, true, true]),
    ];
    let rules = [AccessTimes::Never, AccessTimes::Relative, AccessTimes::Always];
    on_each(&KINDS, |image| {
        for (at, access_times) in rules.into_iter().enumerate() {
            let client = Client::new(image.fs(), Options { access_times, ..Options::default() });
            let node = client.file(&format!("f{at}"));
            client.write(node, 0, b"contents", 0).unwrap();
            let dir = client.directory(ROOT_ID, &format!("d{at}"));
            for (atime, mtime, ctime, expected) in cases {
                for node in [node, dir] {
                    client.set_times(node, atime, mtime, ctime);
                    if node == dir {
                        client.readdir(dir, 0, 4096).unwrap();
                    } else {
                        assert_eq!(client.read(node, 2, 3).unwrap(), b"nte");
                    }
                    let attr = client.getattr(node);
                    assert_eq!(attr.atime >= now, expected[at], "{access_times:?} {atime} {mtime}");
                    assert_eq!((attr.mtime, attr.ctime), (mtime, ctime), "no other time changes");
                }
            }
        }
    });
}

#[test]
fn o_noatime_keeps_the_access_time() {
    on_each(&KINDS, |image| {
        let client = Client::new(image.fs(), Options::default());
        let node = client.file("f");
        client.write(node, 0, b"contents", 0).unwrap();
        client.set_times(node, 1, 2, 3);
        let flags = rustix::fs::OFlags::NOATIME.bits();
        let args = ReadIn { size: 5, flags, ..ReadIn::default() };
        assert_eq!(client.ask(node, Operation::Read(args)).unwrap(), b"conte");
        assert_eq!(client.getattr(node).atime, 1);
        client.read(node, 100, 5).unwrap();
        assert_eq!(client.getattr(node).atime, 1, "nothing was read");
    });
}

#[test]
fn read_only_mounts_leave_access_times() {
    let image = ServedImage::new(EXT4);
    let client = Client::new(image.fs(), Options::default());
    let node = client.file("f");
    client.write(node, 0, b"contents", 0).unwrap();
    client.set_times(node, 1, 2, 3);
    let access_times = AccessTimes::Always;
    let options = Options { read_only: true, access_times, ..Options::default() };
    let reader = Client::new(image.fs(), options);
    assert_eq!(reader.read(node, 0, 5).unwrap(), b"conte");
    assert_eq!(reader.getattr(node).atime, 1);
    assert_eq!(reader.syncfs(), Ok(()));
}
