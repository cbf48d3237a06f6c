//! Commands on images in volumes, arrays, encrypted volumes and disk containers.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use testkit::{require, scratch};

use crate::program::{diskwright, failed, fails, ok, run};

/// Unpacks images of the crate `layers`, which real tools made.
fn unpacked(dir: &Path, names: &[&str]) {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../io/layers/tests/images");
    for name in names {
        let mut gzip = testkit::command("gzip");
        let output = gzip.arg("-dc").arg(images.join(format!("{name}.gz"))).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        fs::write(dir.join(name), output.stdout).unwrap();
    }
}

#[test]
fn logical_volumes_are_listed_read_and_changed() {
    require!(Tool("gzip"), Tool("e2fsck"));
    let dir = scratch();
    let dir = dir.path();
    unpacked(dir, &["lvm-pv1", "lvm-pv2", "lvm-pv3"]);
    let said = fails(dir, "ls lvm-pv1", 2);
    assert!(
        said.contains("vg/lin (ext2/3/4, 4.0 MiB)") && said.contains("--volume VG/LV"),
        "{said}"
    );
    let members = "--member lvm-pv2 --member lvm-pv3";
    let striped = format!("cat lvm-pv1 /etc/motd --volume vg/str {members}");
    assert_eq!(ok(dir, &striped), "Welcome to str.\n");
    let said = fails(dir, "cat lvm-pv1 /etc/motd --volume vg/str", 3);
    assert!(said.contains("needs the physical volume") && said.contains("--member"), "{said}");
    let info = ok(dir, "info lvm-pv1 --volume vg/lin");
    assert!(info.contains("LVM2 volume vg/lin"), "{info}");
    let info = ok(dir, "info --json lvm-pv1 --volume vg/lin");
    assert!(info.contains("\"layers\": [") && info.contains("\"uuid\""), "{info}");
    fs::write(dir.join("new"), "new\n").unwrap();
    ok(dir, &format!("cp new lvm-pv1:/etc/new --volume vg/str {members}"));
    assert_eq!(ok(dir, &format!("cat lvm-pv1 /etc/new --volume vg/str {members}")), "new\n");
    ok(dir, &format!("check lvm-pv1 --volume vg/str {members}"));
    // The independent checker reads the volume as a raw image.
    ok(dir, &format!("convert lvm-pv1 raw.img --volume vg/str --size 8M {members}"));
    testkit::e2fsck(dir.join("raw.img"));
    let said = fails(dir, "mkdir lvm-pv1 /no --volume vg/rone", 2);
    assert!(said.contains("a mirror needs writes to all of its legs"), "{said}");
    assert_eq!(ok(dir, "cat lvm-pv2 /etc/motd --volume rone"), "Welcome to lega.\n");
    let said = fails(dir, "ls lvm-pv3 --volume vg/thin", 3);
    assert!(said.contains("type thin is not supported"), "{said}");
}

#[test]
fn arrays_are_read_with_their_members_and_mirrors_are_not_written() {
    require!(Tool("gzip"));
    let dir = scratch();
    let dir = dir.path();
    unpacked(dir, &["md-five-0", "md-five-1", "md-five-2", "md-end-0", "md-end-1"]);
    let five = "md-five-0 / --member md-five-2 --member md-five-1";
    assert!(ok(dir, &format!("ls {five}")).contains("numbers"));
    let said = fails(dir, "ls md-five-1 --member md-five-2", 3);
    assert!(said.contains("needs its members number 0"), "{said}");
    let before = fs::read(dir.join("md-end-0")).unwrap();
    assert_eq!(ok(dir, "cat md-end-0 /etc/motd"), "Welcome to end.\n");
    let said = fails(dir, "mkdir md-end-0 /new", 2);
    assert!(said.contains("can only be read") && said.contains("--zero-superblock"), "{said}");
    assert!(fs::read(dir.join("md-end-0")).unwrap() == before);
}

#[test]
fn encrypted_volumes_need_their_key_and_never_show_it() {
    require!(Tool("gzip"));
    let dir = scratch();
    let dir = dir.path();
    unpacked(dir, &["luks-one", "nested"]);
    fs::write(dir.join("key"), "correct horse").unwrap();
    fs::write(dir.join("line"), "correct horse\nmore").unwrap();
    fs::write(dir.join("wrong"), "battery staple").unwrap();
    assert_eq!(ok(dir, "cat nested /etc/motd --key-file key"), "Welcome to nested.\n");
    assert_eq!(
        ok(dir, "cat nested /etc/motd --partition 1 --key-file key"),
        "Welcome to nested.\n"
    );
    let info = ok(dir, "info nested --key-file key");
    for layer in ["partition 1", "LUKS2 volume ", "LVM2 volume inner/root"] {
        assert!(info.contains(layer), "{layer}: {info}");
    }
    let said = fails(dir, "cat luks-one /etc/motd --key-file wrong", 2);
    assert!(said.contains("no key slot accepts") && !said.contains("staple"), "{said}");
    let said = fails(dir, "cat luks-one /etc/motd --key-file none", 4);
    assert!(said.contains("cannot read the passphrase: none: No such file"), "{said}");
    let line = "cat luks-one /etc/motd --passphrase-fd 0";
    let mut command = diskwright();
    command.current_dir(dir).args(line.split(' '));
    let input = fs::File::open(dir.join("line")).unwrap();
    let output = command.stdin(Stdio::from(input)).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "Welcome to one.\n");
    ok(dir, "mkdir luks-one /new --key-file key");
    assert!(ok(dir, "ls luks-one --key-file key").contains("new"));
    ok(dir, "check luks-one --key-file key");
    let output = run(dir, "ls luks-one --key-file key --passphrase-fd 0");
    failed(output, "two keys", 2);
}

#[test]
fn containers_of_qemu_are_read() {
    require!(Tool("qemu-img"));
    let dir = scratch();
    let dir = dir.path();
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/motd"), "Welcome.\n".repeat(40_000)).unwrap();
    ok(dir, "build tree root.img --size 64M");
    let expected = ok(dir, "cat root.img /motd");
    for (format, options) in [
        ("vmdk", "subformat=monolithicSparse"),
        ("vmdk", "subformat=streamOptimized"),
        ("vpc", "subformat=dynamic,force_size=on"),
        ("vhdx", "subformat=dynamic"),
        ("vhdx", "block_size=1M"),
        ("vdi", "static=off"),
    ] {
        let mut convert = testkit::command("qemu-img");
        let output = convert
            .current_dir(dir)
            .args(["convert", "-O", format, "-o", options, "root.img", "disk"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{format} {options}: {output:?}");
        assert_eq!(ok(dir, "cat disk /motd"), expected, "{format} {options}");
        ok(dir, "check disk");
        let info = ok(dir, "info disk");
        assert!(info.contains("layer:"), "{info}");
        let before = fs::read(dir.join("disk")).unwrap();
        let said = fails(dir, "mkdir disk /new", 2);
        assert!(said.contains("qemu-img convert"), "{said}");
        assert!(fs::read(dir.join("disk")).unwrap() == before, "{format} {options}");
    }
    ok(dir, "build tree sparse --size 64M --output android-sparse");
    assert_eq!(ok(dir, "cat sparse /motd"), expected);
}
