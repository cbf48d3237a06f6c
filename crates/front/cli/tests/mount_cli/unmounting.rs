//! `diskwright unmount`.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use testkit::{judge, require, scratch};

use crate::mount::{Point, is_mounted, unmount_when_free, wait_until};
use crate::mount_cli::common::{cat, ext4, fails, ok, on_each_format};

#[test]
fn it_returns_when_others_can_use_the_image() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|dir, image| {
        let point = Point::new();
        for round in 0..5 {
            ok(dir, &point, "mount a.img POINT");
            for n in 0..200 {
                fs::write(point.path().join(format!("{round} {n}")), vec![round; 100_000]).unwrap();
            }
            ok(dir, &point, "unmount POINT");
            assert!(File::open(image).unwrap().try_lock().is_ok(), "somebody still uses the image");
            judge(image);
            ok(dir, &point, "mount a.img POINT -o ro");
            ok(dir, &point, "unmount POINT");
            // For read-only mounts, unmounting does not wait for the server to end.
            let is_free = || File::open(image).unwrap().try_lock().is_ok();
            wait_until("nobody to read the image", is_free);
            ok(dir, &point, "rm -r a.img /etc");
            ok(dir, &point, "cp -r source/etc a.img:/");
            for n in 0..200 {
                let line = format!("/{round} {n}");
                if n % 50 == 0 {
                    assert_eq!(cat(image, &line).as_bytes(), vec![round; 100_000]);
                }
            }
            ok(dir, &point, "mount a.img POINT");
            for n in 0..200 {
                fs::remove_file(point.path().join(format!("{round} {n}"))).unwrap();
            }
            ok(dir, &point, "unmount POINT");
        }
        judge(image);
    });
}

#[test]
fn busy_mounts_remain_without_lazy() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|dir, image| {
        let point = Point::new();
        ok(dir, &point, "mount a.img POINT");
        let used = File::create(point.path().join("used")).unwrap();
        let said = fails(dir, &point, "unmount POINT", 4);
        assert!(said.contains("busy") || said.contains("programs use it"), "{said}");
        assert!(is_mounted(point.path()));
        let said = fails(dir, &point, "unmount --lazy --timeout 1 POINT", 4);
        assert!(said.contains("still in use after 1 seconds"), "{said}");
        assert!(!is_mounted(point.path()));
        drop(used);
        wait_until("the server to let go of the image", || {
            File::open(image).unwrap().try_lock().is_ok()
        });
        judge(image);
        assert_eq!(cat(image, "/used"), "");
    });
}

/// Writes a file that the kernel caches and that the image has no room for.
fn too_large_file(point: &Point) -> File {
    let mut file = File::create(point.path().join("too large")).unwrap();
    let _ = file.write_all(&vec![1; 80 << 20]);
    file
}

/// Unmounts an image without room for the kernel's cached data. Returns the message.
fn assert_write_back_fails(dir: &Path, point: &Point, options: &str) -> String {
    let said = fails(dir, point, &format!("unmount {options} POINT"), 4);
    assert!(said.contains("write back") && said.contains("No space left"), "{said}");
    said
}

#[test]
fn unmount_reports_failed_write_back_and_waits_for_the_image() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|dir, image| {
        let point = Point::new();
        ok(dir, &point, "mount a.img POINT");
        drop(too_large_file(&point));
        fs::write(point.path().join("etc/hostname"), "changed\n").unwrap();
        assert_write_back_fails(dir, &point, "");
        assert!(!is_mounted(point.path()));
        assert!(File::open(image).unwrap().try_lock().is_ok(), "somebody still uses the image");
        judge(image);
        assert_eq!(cat(image, "/etc/hostname"), "changed\n");
    });
}

/// The kernel reports lost writes to one call only.
#[test]
fn unmount_reports_lost_writes_of_a_mount_in_use() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|dir, image| {
        let point = Point::new();
        ok(dir, &point, "mount a.img POINT");
        let file = too_large_file(&point);
        let said = assert_write_back_fails(dir, &point, "");
        assert!(said.contains("still mounted") && said.contains("programs use it"), "{said}");
        assert!(is_mounted(point.path()));
        drop(file);
        let end = unmount_when_free(point.path());
        assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
        judge(image);
        ok(dir, &point, "mount a.img POINT");
        let file = too_large_file(&point);
        let said = assert_write_back_fails(dir, &point, "--lazy --timeout 1");
        assert!(said.contains("still in use") && !is_mounted(point.path()), "{said}");
        drop(file);
        wait_until("the server to let go of the image", || {
            File::open(image).unwrap().try_lock().is_ok()
        });
        judge(image);
    });
}

#[test]
fn unmounting_a_plain_directory_is_refused() {
    let dir = scratch();
    let point = Point::new();
    let said = fails(dir.path(), &point, "unmount POINT", 1);
    assert!(said.contains("not a mount of diskwright"), "{said}");
    fails(dir.path(), &point, "unmount /proc", 1);
    fails(dir.path(), &point, "unmount /nonexistent/dir", 4);
    fails(dir.path(), &point, "unmount", 2);
}

#[test]
fn a_mount_with_a_name_of_its_own_is_unmounted_without_waiting() {
    require!(Fuse);
    let dir = scratch();
    let (image, point) = (ext4(dir.path()), Point::new());
    ok(dir.path(), &point, "mount a.img POINT -o fsname=root");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = format!("root {} fuse.diskwright rw", point.path().display());
    assert!(mounts.contains(&line), "{mounts}");
    // Another image with the same name is not affected.
    testkit::copy_image(&image, &dir.path().join("b.img"));
    let other = Point::new();
    ok(dir.path(), &other, "mount b.img POINT -o fsname=root");
    let said = ok(dir.path(), &point, "unmount POINT");
    assert!(said.contains("its image cannot be determined"), "{said}");
    ok(dir.path(), &other, "unmount POINT");
    wait_until("the server to let go of the image", || {
        File::open(&image).unwrap().try_lock().is_ok()
    });
}
