//! Under fakeroot, files have the owners and types that it simulates.

use std::fs;
use std::process::Command;

use super::{Ended, home};

/// Runs a script under fakeroot in a directory. `$DISKWRIGHT` is the program.
fn pretend(dir: &std::path::Path, script: &str) -> Ended {
    let mut command = testkit::command("fakeroot");
    command.current_dir(dir).env("DISKWRIGHT", env!("CARGO_BIN_EXE_diskwright"));
    let output = command.args(["--", "sh", "-ec", script]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let status = output.status.code().unwrap();
    Ended { status, out: text(output.stdout), messages: text(output.stderr) }
}

/// Lists the files of an image.
fn listed(dir: &std::path::Path, image: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    let output = command.current_dir(dir).args(["ls", "-l", image, "/"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn owners_faked_by_fakeroot_are_in_the_image() {
    testkit::require!(Tool("fakeroot"), Tool("sh"), Tool("e2fsck"), Tool("setcap"));
    let home = home();
    let dir = home.path();
    fs::write(dir.join("tree/ping"), "program").unwrap();
    let script = "
        mknod tree/null c 1 3
        mknod tree/disk b 8 17
        chown 12:34 tree/large
        chown -h 56:78 tree/link
        chmod 4750 tree/ping
        setcap cap_net_raw+ep tree/ping
        $DISKWRIGHT as mkfs.ext4 -q -d tree ext4.img 64M
        $DISKWRIGHT as mkfs.xfs -q -d size=320m -p tree xfs.img
        $DISKWRIGHT build tree built.img
    ";
    let ended = pretend(dir, script);
    assert_eq!(ended.status, 0, "{ended:?}");
    for image in ["ext4.img", "xfs.img", "built.img"] {
        let listing = listed(dir, image);
        let line = |name: &str| {
            let mut lines = listing.lines();
            let found = lines.find(|line| line.split_whitespace().any(|word| word == name));
            found.unwrap_or_else(|| panic!("{name} is not in {listing}")).to_owned()
        };
        assert!(line("null").starts_with('c'), "{listing}");
        assert!(line("disk").starts_with('b'), "{listing}");
        assert!(line("ping").starts_with("-rwsr-x---"), "{listing}");
        for (name, uid, gid) in [("large", "12", "34"), ("link", "56", "78"), ("etc", "0", "0")] {
            let line = line(name);
            let words: Vec<_> = line.split_whitespace().collect();
            assert!(words.contains(&uid) && words.contains(&gid), "{name}: {line}");
        }
        let opened = diskwright::fs::Image::open(dir.join(image)).unwrap();
        let capabilities = opened.get_xattr("/ping", "security.capability").unwrap();
        assert!(capabilities.is_some(), "{image}");
    }
    testkit::e2fsck(dir.join("ext4.img"));
    // On the host, the file is not a device, and its owner is unchanged.
    assert!(fs::symlink_metadata(dir.join("tree/null")).unwrap().is_file());
}
