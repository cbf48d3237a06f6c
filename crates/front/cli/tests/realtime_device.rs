//! Commands on XFS images with realtime files.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use testkit::{require, scratch};

use crate::mount::{Point, unmount_when_free};
use crate::program::run;

/// Images that Linux 7.2 filled, with the realtime devices.
const FILES: [(&str, &[u8]); 4] = [
    ("classic.img", include_bytes!("../../../formats/xfs/tests/golden/realtime-classic.img.gz.gz")),
    ("classic.rt", include_bytes!("../../../formats/xfs/tests/golden/realtime-classic.rt.gz.gz")),
    ("metadir.img", include_bytes!("../../../formats/xfs/tests/golden/realtime-metadir.img.gz.gz")),
    ("metadir.rt", include_bytes!("../../../formats/xfs/tests/golden/realtime-metadir.rt.gz.gz")),
];

/// Decompresses gzip into a file.
pub(crate) fn unpack(bytes: &[u8], to: &Path) {
    let mut gzip = testkit::command("gzip");
    gzip.arg("-dc").stdin(Stdio::piped()).stdout(File::create(to).unwrap());
    let mut child = gzip.spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(child.wait().unwrap().success());
}

fn unpack_all(dir: &Path) {
    for (name, bytes) in FILES {
        let once = dir.join("once");
        unpack(bytes, &once);
        unpack(&fs::read(once).unwrap(), &dir.join(name));
    }
}

#[track_caller]
pub(crate) fn ok(dir: &Path, line: &str) -> Vec<u8> {
    let output = run(dir, line);
    assert_eq!(output.status.code(), Some(0), "{line}: {:?}", String::from_utf8(output.stderr));
    output.stdout
}

#[test]
fn realtime_files_are_read_with_their_device() {
    require!(Tool("gzip"), Fuse);
    let dir = scratch();
    let dir = dir.path();
    unpack_all(dir);
    let long: Vec<u8> = (0..20).flat_map(|nth| std::iter::repeat_n(nth + 1, 1 << 20)).collect();
    for name in ["classic", "metadir"] {
        let device = format!("--rt-device {name}.rt");
        assert!(ok(dir, &format!("cat {name}.img /dir/long {device}")) == long, "{name}");
        ok(dir, &format!("extract {name}.img {name} {device}"));
        assert!(fs::read(dir.join(name).join("dir/long")).unwrap() == long, "{name}");
        let output = run(dir, &format!("cat {name}.img /dir/long"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{name}: {said}");
        assert!(said.contains("--rt-device FILE"), "{name}: {said}");
        ok(dir, &format!("ls -l {name}.img /dir"));
        ok(dir, &format!("mkdir {name}.img /new {device}"));

        let point = Point::new();
        let place = point.path().to_str().unwrap();
        ok(dir, &format!("mount {name}.img {place} -o ro,rtdev={name}.rt"));
        let found = fs::read(point.path().join("dir/long")).unwrap();
        assert!(unmount_when_free(point.path()).status.success());
        assert!(found == long, "{name}");
    }
}

#[test]
fn maps_know_each_block_of_the_data_section() {
    require!(Tool("gzip"));
    let dir = scratch();
    let dir = dir.path();
    unpack_all(dir);
    for name in ["classic", "metadir"] {
        let line = format!("map {name}.img --rt-device {name}.rt --format text");
        let shown = String::from_utf8(ok(dir, &line)).unwrap();
        assert!(shown.contains("the realtime device is left out"), "{name}: {shown}");
        assert!(!shown.contains("unknown") && !shown.contains("refers to them"), "{name}: {shown}");
    }
}

#[test]
fn converted_images_contain_the_realtime_files() {
    require!(Tool("gzip"), Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    unpack_all(dir);
    let expected = ok(dir, "cat metadir.img /dir/many --rt-device metadir.rt");
    ok(dir, "convert metadir.img copy.img --rt-device metadir.rt --size 300M");
    assert!(ok(dir, "cat copy.img /dir/many") == expected);
    testkit::xfs_repair(dir.join("copy.img"));
}

#[test]
fn realtime_files_are_changed_checked_and_repaired_with_their_device() {
    require!(Tool("gzip"), Tool("xfs_repair"), Fuse);
    let dir = scratch();
    let dir = dir.path();
    unpack_all(dir);
    let device = "--rt-device classic.rt";
    let judge_of = |name: &str| {
        let mut repair = testkit::command("xfs_repair");
        let (device, image) = (format!("{name}.rt"), format!("{name}.img"));
        repair.current_dir(dir).args(["-n", "-f", "-r", &device, &image]);
        let output = repair.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let judge = || judge_of("classic");
    ok(dir, &format!("check classic.img {device}"));
    ok(dir, "check classic.img");
    let bytes: Vec<u8> = (0..700_000_u32).map(|nth| (nth / 999) as u8).collect();
    fs::write(dir.join("source"), &bytes).unwrap();
    let output = run(dir, "cp source classic.img:/dir/copy");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("--rt-device FILE"), "{said}");
    ok(dir, &format!("cp source classic.img:/dir/copy {device}"));
    judge();
    ok(dir, "check metadir.img --rt-device metadir.rt");
    ok(dir, "cp source metadir.img:/dir/copy --rt-device metadir.rt");
    assert!(ok(dir, "cat metadir.img /dir/copy --rt-device metadir.rt") == bytes);
    ok(dir, "rm metadir.img /dir/many --rt-device metadir.rt");
    ok(dir, "check metadir.img --rt-device metadir.rt");
    judge_of("metadir");
    // The superblock of realtime groups contains the label and the UUID.
    for name in ["classic", "metadir"] {
        ok(dir, &format!("as xfs_admin -r {name}.rt -L label -U generate {name}.img"));
        ok(dir, &format!("check {name}.img --rt-device {name}.rt"));
        judge_of(name);
    }
    let flags = String::from_utf8(ok(dir, "lsattr -l classic.img /dir/copy")).unwrap();
    assert!(flags.contains("realtime"), "{flags}");

    let point = Point::new();
    let place = point.path().to_str().unwrap();
    ok(dir, &format!("mount classic.img {place} -o rtdev=classic.rt"));
    assert!(fs::read(point.path().join("dir/copy")).unwrap() == bytes);
    fs::write(point.path().join("dir/more"), &bytes[..99_999]).unwrap();
    fs::remove_file(point.path().join("dir/many")).unwrap();
    assert!(unmount_when_free(point.path()).status.success());
    judge();
    assert!(ok(dir, &format!("cat classic.img /dir/more {device}")) == bytes[..99_999]);

    // The bitmap is block 15, and the summary block 14.
    let image = File::options().read(true).write(true).open(dir.join("classic.img")).unwrap();
    for block in [14, 15] {
        std::os::unix::fs::FileExt::write_all_at(&image, &[0x3c; 64], block * 4096).unwrap();
    }
    drop(image);
    let output = run(dir, &format!("check classic.img {device}"));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("xfs-realtime-bitmap") && said.contains("xfs-realtime-summary"),
        "{said}"
    );
    ok(dir, &format!("repair --yes classic.img {device}"));
    ok(dir, &format!("check classic.img {device}"));
    judge();
    assert!(ok(dir, &format!("cat classic.img /dir/copy {device}")) == bytes);
}

#[test]
fn a_realtime_section_grows_with_its_device() {
    require!(Tool("gzip"), Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    unpack_all(dir);
    for name in ["classic", "metadir"] {
        let device = format!("--rt-device {name}.rt");
        let path = dir.join(format!("{name}.rt"));
        let before = fs::metadata(&path).unwrap().len();
        let output = run(dir, &format!("grow {name}.img --rt-size"));
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        File::options().write(true).open(&path).unwrap().set_len(before * 2).unwrap();
        ok(dir, &format!("grow {name}.img {device} --rt-size={}", before + (before / 2)));
        let grown =
            String::from_utf8(ok(dir, &format!("grow {name}.img {device} --rt-size --json")));
        assert!(grown.unwrap().contains(&(before * 2).to_string()), "{name}");
        ok(dir, &format!("check {name}.img {device}"));
        let mut repair = testkit::command("xfs_repair");
        let (rt, image) = (format!("{name}.rt"), format!("{name}.img"));
        repair.current_dir(dir).args(["-n", "-f", "-r", &rt, &image]);
        let output = repair.output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        let long: Vec<u8> = (0..20).flat_map(|nth| std::iter::repeat_n(nth + 1, 1 << 20)).collect();
        assert!(ok(dir, &format!("cat {name}.img /dir/long {device}")) == long, "{name}");
    }
}
