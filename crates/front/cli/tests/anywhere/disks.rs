//! Virtual disks of other programs.

use std::fs;

use testkit::{require, scratch};

use super::{fails, ok, run, served};

#[test]
fn a_qcow2_is_read_and_changed() {
    require!(Tool("qemu-img"), Tool("e2fsck"), Tool("xfs_repair"));
    let dir = scratch();
    let (_server, images) = served(dir.path());
    let qemu = |line: &str| {
        let mut command = testkit::command("qemu-img");
        let output = command.current_dir(dir.path()).args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "qemu-img {line}: {output:?}");
    };
    for format in images {
        qemu(&format!("convert -O qcow2 {format}.img {format}.qcow2"));
        qemu(&format!("create -q -f qcow2 -b {format}.qcow2 -F qcow2 {format}.top"));
        let before = fs::read(dir.path().join(format!("{format}.qcow2"))).unwrap();
        for disk in ["qcow2", "top"] {
            let place = format!("qcow2:{format}.{disk}");
            assert_eq!(ok(dir.path(), &format!("cat {place} /etc/hostname")), b"image\n");
            assert!(run(dir.path(), &format!("diff {place} {format}.img")).status.success());
        }
        let place = format!("qcow2:{format}.top");
        ok(dir.path(), &format!("mkdir {place} /made"));
        ok(dir.path(), &format!("cp source/noise {place}:/made/noise"));
        ok(dir.path(), &format!("rm -r {place} /usr"));
        assert!(
            ok(dir.path(), &format!("cat {place} /made/noise"))
                == fs::read(dir.path().join("source/noise")).unwrap()
        );
        qemu(&format!("check -q {format}.top"));
        assert!(
            fs::read(dir.path().join(format!("{format}.qcow2"))).unwrap() == before,
            "the backing file has changed"
        );
        qemu(&format!("convert -O raw {format}.top {format}.raw"));
        testkit::judge(dir.path().join(format!("{format}.raw")));
        assert!(ok(dir.path(), &format!("cat {format}.raw /made/noise")).len() == 6 << 20);
    }
}

#[test]
fn files_of_another_disk_format_are_refused() {
    let dir = scratch();
    fs::write(dir.path().join("text"), "It was a dark and stormy night.".repeat(100)).unwrap();
    for line in ["ls qcow2:text", "ls vmdk:text", "ls vhdx:text", "ls vpc:text"] {
        assert!(fails(dir.path(), line, 3).contains("text: "), "{line}");
    }
    assert!(fails(dir.path(), "ls vhdx:text", 3).contains("qemu-img convert"));
    assert!(fails(dir.path(), "ls qcow2:nothing", 4).contains("nothing"));
    assert!(fails(dir.path(), "rm vmdk:text /x", 2).contains("vmdk:text"));
}
