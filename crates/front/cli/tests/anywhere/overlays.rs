//! Mounts of remote images: read-only, and with changes kept in a local file.

use std::fs::{self, File};

use testkit::{require, scratch};

use super::{fails, image, ok, run, served};
use crate::mount::{Mounting, Point};

#[test]
fn a_place_is_mounted_for_reading_and_outlives_its_object() {
    require!(Fuse);
    let dir = scratch();
    let (server, images) = served(dir.path());
    for format in images {
        let url = server.url(format);
        let mut mounted = Mounting::new(url.as_ref()).start();
        assert!(
            mounted.said().contains("use --overlay FILE to store changes"),
            "{}",
            mounted.said()
        );
        assert_eq!(fs::read_to_string(mounted.join("etc/hostname")).unwrap(), "image\n");
        assert!(fs::write(mounted.join("new"), "").is_err());
        // If the image is replaced, reads of the file fail, and the mount stays.
        server.put(format, fs::read(image(dir.path(), format)).unwrap(), "two");
        assert!(fs::read(mounted.join("noise")).is_err());
        assert_eq!(fs::read_to_string(mounted.join("etc/hostname")).unwrap(), "image\n");
        mounted.unmount();
        // In the background, as users mount. When unmounting returns, all is written.
        let point = Point::new();
        let place = point.path().display();
        assert!(run(dir.path(), &format!("mount {url} {place}")).status.success());
        assert_eq!(fs::read_to_string(point.path().join("etc/hostname")).unwrap(), "image\n");
        ok(dir.path(), &format!("unmount {place}"));
        let line = format!("--cache=kept mount --overlay {format}.once {url} {place}");
        ok(dir.path(), &line);
        fs::write(point.path().join("new"), "kept").unwrap();
        ok(dir.path(), &format!("unmount {place}"));
        ok(dir.path(), &format!("commit {format}.once {format}.new"));
        assert_eq!(ok(dir.path(), &format!("cat {format}.new /new")), b"kept");
    }
}

#[test]
fn changes_are_kept_in_a_file_and_become_an_image() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    let dir = scratch();
    let (server, images) = served(dir.path());
    for format in images {
        let (url, overlay) = (server.url(format), dir.path().join(format!("{format}.ovl")));
        let mount = || {
            let mounting = Mounting::new(url.as_ref());
            mounting.arguments(["--overlay".as_ref(), overlay.as_os_str()]).start()
        };
        let mounted = mount();
        let path = mounted.join("etc/hostname");
        fs::write(&path, "changed\n").unwrap();
        fs::create_dir(mounted.join("made")).unwrap();
        let file = File::create(mounted.join("made/synced")).unwrap();
        std::io::Write::write_all(&mut &file, b"this is synced").unwrap();
        file.sync_all().unwrap();
        drop(file);
        // Like a crash: synced data is recovered from the log.
        mounted.kill();
        let mounted = mount();
        assert_eq!(fs::read_to_string(mounted.join("made/synced")).unwrap(), "this is synced");
        assert_eq!(fs::read_to_string(mounted.join("etc/hostname")).unwrap(), "changed\n");
        fs::remove_file(mounted.join("noise")).unwrap();
        mounted.unmount();
        let name = format!("{format}.ovl");
        let report = ok(dir.path(), &format!("commit {name} {format}.new --json"));
        assert!(String::from_utf8(report).unwrap().contains(&url));
        let new = dir.path().join(format!("{format}.new"));
        testkit::judge(&new);
        assert_eq!(ok(dir.path(), &format!("cat {format}.new /made/synced")), b"this is synced");
        let differ = run(dir.path(), &format!("diff {format}.img {format}.new"));
        assert_eq!(differ.status.code(), Some(1));
        // The image below is unchanged, and another one is rejected.
        assert_eq!(ok(dir.path(), &format!("cat {url} /etc/hostname")), b"image\n");
        assert!(fails(dir.path(), &format!("commit {name} {format}.new"), 4).contains("exists"));
        ok(dir.path(), &format!("commit --force {name} {format}.new"));
        server.put(format, fs::read(image(dir.path(), format)).unwrap(), "two");
        let told = fails(dir.path(), &format!("commit {name} other"), 3);
        assert!(told.contains("ETag \"one\"") && told.contains("ETag \"two\""), "{told}");
        assert!(!dir.path().join("other").exists());
        let told = fails(
            dir.path(),
            &format!("mount --foreground --overlay {name} {format}.img source"),
            3,
        );
        assert!(told.contains("belongs to"), "{told}");
        fails(
            dir.path(),
            &format!("mount --foreground --overlay {format}.new {format}.img source"),
            3,
        );
    }
}

#[test]
fn a_record_replaces_a_link_and_does_not_follow_it() {
    require!(Fuse);
    let dir = scratch();
    let (_server, _) = served(dir.path());
    let (victim, record) = (dir.path().join("victim"), dir.path().join("record"));
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, &record).unwrap();
    let point = Point::new();
    let place = point.path().display();
    // A background process changes its directory.
    ok(dir.path(), &format!("mount --record record ext4.img {place}"));
    assert_eq!(fs::read_to_string(point.path().join("etc/hostname")).unwrap(), "image\n");
    ok(dir.path(), &format!("unmount {place}"));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!fs::read_to_string(&record).unwrap().is_empty());
}

/// A command after `unmount` can use the record.
#[test]
fn unmount_waits_for_the_record() {
    require!(Fuse);
    let dir = scratch();
    let (server, _) = served(dir.path());
    let point = Point::new();
    let place = point.path().display();
    for image in ["ext4.img", &server.url("xfs")] {
        for round in 0..5 {
            let record = format!("record{round}");
            ok(dir.path(), &format!("mount --record {record} {image} {place}"));
            assert_eq!(fs::read_to_string(point.path().join("etc/hostname")).unwrap(), "image\n");
            ok(dir.path(), &format!("unmount {place}"));
            assert!(
                fs::read_to_string(dir.path().join(&record)).is_ok_and(|text| !text.is_empty()),
                "{image}"
            );
            fs::remove_file(dir.path().join(&record)).unwrap();
        }
    }
}
