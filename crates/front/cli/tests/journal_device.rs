//! Commands and drop-in programs on ext4 images whose journal is on another device.

use std::fs::{self, File};
use std::path::Path;

use testkit::{KernelMount, LoopDevice, MountOptions, require, scratch};

use crate::mount::{Point, unmount_when_free};
use crate::program::{fails, ok};

/// Makes `a.img`, whose journal is `journal`.
fn made(dir: &Path) {
    fs::write(dir.join("motd"), "Welcome.\n").unwrap();
    ok(dir, "as mke2fs -q -F -O journal_dev -b 4096 -L log journal 16M");
    ok(dir, "as mke2fs -q -F -t ext4 -J device=journal a.img 64M");
}

/// Asserts that the kernel mounts an image, and that e2fsck finds nothing.
fn accepted(dir: &Path, image: &str, journal: &str) {
    let device = LoopDevice::new(dir.join(journal));
    let extra = format!("journal_path={}", device.name());
    let options = MountOptions { extra: &extra, ..MountOptions::read_write("ext4") };
    KernelMount::new(dir.join(image), &options).unmount();
    drop(device);
    let mut check = testkit::command("e2fsck");
    let output = check.args(["-fn", "-j", journal, image]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn images_are_changed_and_checked_with_their_journal_device() {
    require!(Tool("e2fsck"), Mount("ext4"), Loop);
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    accepted(dir, "a.img", "journal");
    for line in [
        "mkdir a.img /etc --log-device journal",
        "cp motd a.img:/etc/motd --log-device journal",
        "mv a.img /etc/motd /etc/issue --log-device journal",
        "recover a.img --log-device journal",
        "check a.img --log-device journal",
        "repair --yes a.img --log-device journal",
        "trim a.img --log-device journal",
        "as e2fsck -fy -j journal a.img",
        "as tune2fs -J device=journal -U random a.img",
        "as tune2fs -L label a.img",
    ] {
        ok(dir, line);
    }
    accepted(dir, "a.img", "journal");
    assert_eq!(ok(dir, "cat a.img /etc/issue --log-device journal"), "Welcome.\n");
    let info = ok(dir, "info --json a.img --log-device journal");
    assert!(info.contains("\"needs_recovery\": false") && info.contains("label"), "{info}");
    let info = ok(dir, "info a.img");
    assert!(info.contains("external journal UUID"), "{info}");
    let dump = ok(dir, "dump --json a.img journal --log-device journal");
    assert!(dump.contains("\"maxlen\""), "{dump}");
    File::options().write(true).open(dir.join("a.img")).unwrap().set_len(200 << 20).unwrap();
    ok(dir, "grow a.img --log-device journal");
    accepted(dir, "a.img", "journal");
    ok(dir, "convert a.img b.img --size 64M --log-device journal");
    assert_eq!(ok(dir, "cat b.img /etc/issue"), "Welcome.\n");
    testkit::e2fsck(dir.join("b.img"));
}

#[test]
fn a_missing_or_wrong_journal_device_is_named_with_the_next_step() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    let before = [fs::read(dir.join("journal")).unwrap(), fs::read(dir.join("a.img")).unwrap()];
    for line in ["mkdir a.img /etc", "check a.img", "repair --yes a.img"] {
        let said = fails(dir, line, 3);
        assert!(
            said.contains("external journal") && said.contains("--log-device FILE"),
            "{line}: {said}"
        );
    }
    // A clean image can be read.
    ok(dir, "ls a.img /");
    ok(dir, "check --norecovery a.img");
    let said = fails(dir, "as e2fsck -fn a.img", 8);
    assert!(said.contains("-j FILE"), "{said}");
    let said = fails(dir, "as tune2fs -O ^has_journal a.img", 1);
    assert!(said.contains("-J device=FILE"), "{said}");
    ok(dir, "as mke2fs -q -F -O journal_dev -b 4096 other 16M");
    let said = fails(dir, "mkdir a.img /etc --log-device other", 3);
    assert!(said.contains("a journal device with the UUID"), "{said}");
    let said = fails(dir, "mkdir a.img /etc --log-device motd", 3);
    assert!(said.contains("without the journal of an ext4 file system"), "{said}");
    for line in ["info journal", "check journal", "ls journal /"] {
        let said = fails(dir, line, 3);
        assert!(said.contains("the device of an ext4 journal with the UUID"), "{line}: {said}");
    }
    // Each journal belongs to one image.
    let said = fails(dir, "as mke2fs -q -F -t ext4 -J device=journal c.img 64M", 1);
    assert!(said.contains("uses"), "{said}");
    let said = fails(dir, "as mke2fs -q -F -t ext4 -b 1024 -J device=other c.img 64M", 1);
    assert!(said.contains("leave -b out"), "{said}");
    assert!(before[0] == fs::read(dir.join("journal")).unwrap());
    assert!(before[1] == fs::read(dir.join("a.img")).unwrap());
}

#[test]
fn builds_place_the_journal_on_another_device() {
    require!(Tool("e2fsck"), Mount("ext4"), Loop);
    let dir = scratch();
    let dir = dir.path();
    fs::create_dir(dir.join("source")).unwrap();
    fs::write(dir.join("source/motd"), "Welcome.\n").unwrap();
    for (number, options) in ["", "--size 64M", "--features ^metadata_csum"].iter().enumerate() {
        let (image, journal) = (format!("{number}.img"), format!("{number}.log"));
        File::create(dir.join(&journal)).unwrap().set_len(16 << 20).unwrap();
        ok(dir, &format!("build source {image} --fs ext4 --log-device {journal} {options}"));
        let shown = ok(dir, &format!("cat {image} /motd --log-device {journal}"));
        assert_eq!(shown, "Welcome.\n");
        accepted(dir, &image, &journal);
        ok(dir, &format!("check {image} --log-device {journal}"));
    }
    let said = fails(dir, "build source b.qcow2 --log-device 0.log --output qcow2", 2);
    assert!(said.contains("only be written raw"), "{said}");
    File::create(dir.join("small")).unwrap().set_len(4000).unwrap();
    let said = fails(dir, "build source b.img --size 64M --log-device small", 2);
    assert!(said.contains("1024 blocks"), "{said}");
}

#[test]
fn mounts_use_and_lock_the_journal_device() {
    require!(Fuse, Tool("e2fsck"), Mount("ext4"), Loop);
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    let point = Point::new();
    let place = point.path().to_str().unwrap();
    ok(dir, &format!("mount a.img {place} -o journal_path=journal"));
    fs::write(point.path().join("file"), "contents").unwrap();
    fs::copy(dir.join("a.img"), dir.join("b.img")).unwrap();
    let said = fails(dir, "ls b.img / --log-device journal", 4);
    assert!(said.contains("journal") && said.contains("in use"), "{said}");
    assert!(unmount_when_free(point.path()).status.success());
    let device = LoopDevice::new(dir.join("journal"));
    let number = {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(device.name()).unwrap().rdev()
    };
    ok(dir, &format!("mount a.img {place} -o journal_dev={number:#x}"));
    assert_eq!(fs::read(point.path().join("file")).unwrap(), b"contents");
    assert!(unmount_when_free(point.path()).status.success());
    drop(device);
    let said = fails(dir, &format!("mount a.img {place} -o journal_dev=0xfff00"), 2);
    assert!(said.contains("no such device"), "{said}");
    assert_eq!(ok(dir, "cat a.img /file --log-device journal"), "contents");
    accepted(dir, "a.img", "journal");
}

/// Returns the output of a program of e2fsprogs.
fn original(dir: &Path, program: &str, arguments: &[&str]) -> String {
    let output = testkit::command(program).args(arguments).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Removes lines with times.
fn without_times(text: &str) -> Vec<&str> {
    let times = ["Filesystem created", "Last write time", "Last checked", "Lifetime writes"];
    text.lines().filter(|line| !times.iter().any(|time| line.starts_with(time))).collect()
}

#[test]
fn journal_devices_are_those_of_the_original() {
    require!(Tool("mke2fs"), Tool("dumpe2fs"), Tool("e2fsck"), Tool("tune2fs"), Loop);
    let dir = scratch();
    let dir = dir.path();
    let common = "-L log -U 11111111-2222-3333-4444-555555555555 \
                  -E hash_seed=0a28e812-3747-40bc-8194-e08e509097d1";
    for options in ["-b 1024", "-b 2048", "-b 4096", "-b 4096 -O metadata_csum"] {
        let line = format!("-q -F -O journal_dev {options} {common} FILE 16M");
        let line = line.replace("journal_dev -b 4096 -O ", "journal_dev,").replace("-O -b", "-b");
        let words = |file: &str| line.replace("FILE", file);
        ok(dir, &format!("as mke2fs {}", words("ours")));
        let theirs = words("theirs");
        original(dir, "mke2fs", &theirs.split_whitespace().collect::<Vec<_>>());
        let shown = [
            original(dir, "dumpe2fs", &["theirs"]),
            original(dir, "dumpe2fs", &["ours"]),
            ok(dir, "as dumpe2fs theirs"),
        ];
        let without = |text| {
            let lines = without_times(text).into_iter();
            lines.filter(|line| !line.starts_with("Checksum:")).collect::<Vec<_>>()
        };
        assert_eq!(without(&shown[0]), without(&shown[1]), "{options}");
        assert_eq!(shown[0], shown[2], "{options}");
        assert_eq!(ok(dir, "as blkid -o value -s TYPE ours"), "jbd\n");
        // Each program adds an image to the journal that the other made.
        let device = LoopDevice::new(dir.join("ours"));
        let argument = format!("device={}", device.name());
        original(dir, "mke2fs", &["-q", "-F", "-t", "ext4", "-J", &argument, "by-them", "64M"]);
        drop(device);
        ok(dir, "check by-them --log-device ours");
        ok(dir, "as mke2fs -q -F -t ext4 -J device=theirs by-us 64M");
        original(dir, "e2fsck", &["-fn", "-j", "theirs", "by-us"]);
        let users = original(dir, "dumpe2fs", &["theirs"]);
        assert_eq!(users, ok(dir, "as dumpe2fs theirs"));
        assert!(users.contains("Journal users:"), "{users}");
        fs::remove_file(dir.join("by-them")).unwrap();
        fs::remove_file(dir.join("by-us")).unwrap();
    }
}

#[test]
fn journals_are_moved_to_another_device_and_back() {
    require!(Tool("e2fsck"), Tool("dumpe2fs"), Mount("ext4"), Loop);
    let dir = scratch();
    let dir = dir.path();
    ok(dir, "as mke2fs -q -F -O journal_dev -b 4096 journal 16M");
    ok(dir, "as mke2fs -q -F -t ext4 -b 4096 a.img 64M");
    let features = |image: &str| original(dir, "dumpe2fs", &["-h", image]);
    let said = fails(dir, "as tune2fs -J device=journal a.img", 1);
    assert!(said.contains("already has a journal"), "{said}");
    ok(dir, "as tune2fs -O ^has_journal a.img");
    ok(dir, "as tune2fs -J device=journal a.img");
    accepted(dir, "a.img", "journal");
    assert!(features("a.img").contains("Journal UUID:"));
    ok(dir, "as tune2fs -O orphan_file -J device=journal a.img");
    ok(dir, "as tune2fs -O ^has_journal -J device=journal a.img");
    testkit::e2fsck(dir.join("a.img"));
    assert!(!features("a.img").contains("Journal UUID:"));
    let shown = original(dir, "dumpe2fs", &["journal"]);
    assert!(shown.contains("Journal number of users:  0"), "{shown}");
    ok(dir, "as tune2fs -J size=4 a.img");
    testkit::e2fsck(dir.join("a.img"));
    assert!(features("a.img").contains("Journal inode:"));
    // A lost journal is removed by force.
    ok(dir, "as tune2fs -O ^has_journal a.img");
    ok(dir, "as tune2fs -J device=journal a.img");
    fs::remove_file(dir.join("journal")).unwrap();
    let said = fails(dir, "as tune2fs -O ^has_journal a.img", 1);
    assert!(said.contains("-J device=FILE"), "{said}");
    ok(dir, "as tune2fs -f -O ^has_journal a.img");
    testkit::e2fsck(dir.join("a.img"));
    // Programs find a block device by the number or the UUID of the journal.
    ok(dir, "as mke2fs -q -F -O journal_dev -b 4096 journal 16M");
    let device = LoopDevice::new(dir.join("journal"));
    ok(dir, &format!("as tune2fs -J device={} a.img", device.name()));
    ok(dir, "as e2fsck -fy a.img");
    ok(dir, "as tune2fs -U random a.img");
    original(dir, "e2fsck", &["-fn", "-j", device.name(), "a.img"]);
    ok(dir, "as tune2fs -O ^has_journal a.img");
    drop(device);
    testkit::e2fsck(dir.join("a.img"));
}
