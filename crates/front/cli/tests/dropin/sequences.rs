//! Sequences of calls from the sources of image builders, and checks by a current kernel.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::guest::{self, GuestJob};

use super::{contents, done, home};

/// Creates a store with 400 directories, as NixOS does.
fn store(dir: &Path) {
    for number in 1..=400_usize {
        let package = dir.join(format!("root/nix/store/p{number}"));
        fs::create_dir_all(&package).unwrap();
        let bytes: Vec<u8> = (0..number * 37).map(|at| (at * number % 26) as u8 + b'a').collect();
        fs::write(package.join("f"), bytes).unwrap();
    }
}

/// Returns a value of the header, in blocks or bytes.
fn value(dir: &Path, image: &str, name: &str) -> u64 {
    let header = done(dir, &format!("dumpe2fs -h {image}"));
    let line = header.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap().trim().parse().unwrap()
}

/// NixOS's make-ext4-fs: create, check, shrink to fit, and add 16 MiB. The journal is small
/// compared with the moved data.
#[test]
fn make_ext4_fs_of_nixos_shrinks_to_fit() {
    testkit::require!(Tool("e2fsck"));
    let home = testkit::scratch();
    let dir = home.path();
    store(dir);
    let sizes: &[u64] = testkit::effort(&[12], &[12, 13, 16, 24], &[12, 13, 16, 24]);
    for &mib in sizes {
        super::file(dir, "image", mib << 20);
        let make = "mkfs.ext4 -L NIXOS -U 44444444-4444-4444-8888-888888888888 -d root image";
        done(dir, make);
        done(dir, "fsck.ext4 -n -f image");
        let promised = done(dir, "resize2fs -P image");
        let promised: u64 = promised.rsplit(' ').next().unwrap().trim().parse().unwrap();
        done(dir, "resize2fs -M image");
        let (blocks, size) =
            (value(dir, "image", "Block count"), value(dir, "image", "Block size"));
        assert!(blocks <= promised, "{mib} MiB: {blocks} of {promised}");
        assert_eq!(fs::metadata(dir.join("image")).unwrap().len(), blocks * size);
        testkit::e2fsck(dir.join("image"));
        let larger = (blocks * size + (16 << 20)) / size;
        done(dir, &format!("resize2fs image {larger}"));
        assert_eq!(value(dir, "image", "Block count"), larger);
        testkit::e2fsck(dir.join("image"));
        assert_eq!(contents(dir, "image", "/nix/store/p3/f").len(), 111);
        fs::remove_file(dir.join("image")).unwrap();
    }
}

/// The estimate is near the original's. The result is at most the estimate, and a second call changes nothing.
#[test]
fn the_minimum_is_near_that_of_the_original() {
    testkit::require!(Version("resize2fs", 1, 47), Tool("mke2fs"), Tool("e2fsck"));
    let home = testkit::scratch();
    let dir = home.path();
    store(dir);
    let number = |text: &str| text.rsplit(' ').next().unwrap().trim().parse::<u64>().unwrap();
    let few = [("10M", "-t ext4 -b 1024"), ("16M", "-t ext4 -b 4096"), ("10M", "-t ext2 -b 1024")];
    let sizes: &[&str] = testkit::effort(&[], &["12M", "64M", "1G"], &["1G"]);
    let kinds = few.map(|(_, kind)| kind);
    let large = sizes.iter().flat_map(|size| kinds.map(|kind| (*size, kind)));
    for (size, kind) in
        few.into_iter().chain(large.filter(|(size, kind)| *size != "12M" || kind.ends_with("1024")))
    {
        let what = format!("{kind} {size}");
        done(dir, &format!("mke2fs -q -F {kind} -d root image {size}"));
        let journal = done(dir, "dumpe2fs -h image");
        let journal = journal.lines().find(|line| line.starts_with("Total journal blocks"));
        let theirs = testkit::command("resize2fs").current_dir(dir).args(["-P", "image"]).output();
        let theirs = number(std::str::from_utf8(&theirs.unwrap().stdout).unwrap());
        let ours = number(&done(dir, "resize2fs -P image"));
        assert!(ours <= theirs + theirs / 50 + 80, "{what}: {ours}, the original {theirs}");
        done(dir, "resize2fs -M image");
        let blocks = value(dir, "image", "Block count");
        assert!(blocks <= ours, "{what}: {blocks} of {ours}");
        testkit::e2fsck(dir.join("image"));
        assert_eq!(contents(dir, "image", "/nix/store/p3/f").len(), 111);
        assert_eq!(number(&done(dir, "resize2fs -P image")), blocks, "{what}");
        assert!(done(dir, "resize2fs -M image").contains("Nothing to do!"), "{what}");
        let header = done(dir, "dumpe2fs -h image");
        assert!(journal.is_none_or(|journal| header.contains(journal)), "{what}: {header}");
        fs::remove_file(dir.join("image")).unwrap();
    }
}

/// e2b's templates: packed metadata, and the image enlarged to the size of the disk.
#[test]
fn templates_of_e2b_are_made_and_enlarged() {
    testkit::require!(Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    super::file(dir, "image", 64 << 20);
    done(dir, "mkfs.ext4 -q -G 64 -E packed_meta_blocks=1 -b 4096 -d tree image");
    fs::File::options().write(true).open(dir.join("image")).unwrap().set_len(256 << 20).unwrap();
    done(dir, "e2fsck -f -y image");
    done(dir, "resize2fs image");
    assert_eq!(value(dir, "image", "Block count"), 65536);
    assert!(done(dir, "debugfs -R ls image").contains("etc"));
    testkit::e2fsck(dir.join("image"));
}

/// kiwi's disks: created empty, filled by others, checked, and enlarged.
#[test]
fn disks_of_kiwi_are_made_checked_and_enlarged() {
    testkit::require!(Tool("e2fsck"), Tool("xfs_repair"));
    let home = home();
    let dir = home.path();
    super::file(dir, "ext4", 64 << 20);
    done(dir, "mkfs.ext4 ext4");
    super::file(dir, "ext4", 128 << 20);
    done(dir, "mkfs.ext4 -L ROOT ext4");
    done(dir, "e2fsck -f -y ext4");
    done(dir, "resize2fs ext4");
    testkit::e2fsck(dir.join("ext4"));
    super::file(dir, "xfs", 320 << 20);
    done(dir, "mkfs.xfs -f -L ROOT xfs");
    fs::File::options().write(true).open(dir.join("xfs")).unwrap().set_len(400 << 20).unwrap();
    done(dir, "xfs_growfs xfs");
    testkit::xfs_repair(dir.join("xfs"));
}

/// Talos: options from a file, and a prototype or an archive from an open descriptor.
#[test]
fn talos_passes_open_descriptors() {
    testkit::require!(Tool("e2fsck"), Tool("xfs_repair"), Tool("tar"));
    let home = home();
    let dir = home.path();
    fs::write(dir.join("options"), "[metadata]\nreflink=1\n[inode]\nsparse=1\n").unwrap();
    fs::write(dir.join("proto"), "/\n0 0\nd--755 0 0\nname ---644 5 6 tree/etc/hostname\n$\n")
        .unwrap();
    super::file(dir, "xfs", 64 << 20);
    let program = env!("CARGO_BIN_EXE_diskwright");
    for script in [
        "\"$0\" as mkfs.xfs -q -f -c options=options -p file=/proc/self/fd/3 --unsupported xfs 3<proto",
        "tar -C tree -cf - . | MKE2FS_CONFIG=none \"$0\" as mkfs.ext4 -q -d - ext4 32M",
    ] {
        let mut shell = Command::new("sh");
        let output = shell.current_dir(dir).args(["-c", script, program]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    }
    testkit::xfs_repair(dir.join("xfs"));
    testkit::e2fsck(dir.join("ext4"));
    assert_eq!(contents(dir, "xfs", "/name"), "box\n");
    assert_eq!(contents(dir, "ext4", "/etc/hostname"), "box\n");
}

/// A kernel folds names and counts quotas in an image made by mke2fs. At full effort only, because
/// a guest takes seconds.
#[test]
fn a_kernel_folds_names_and_counts_quotas() {
    if testkit::effort(true, false, false) {
        return;
    }
    testkit::require!(Guest("UNICODE"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q -O casefold,quota -E encoding=utf8 -d tree image 64M");
    fs::write(dir.join("requests"), "mkdir folds\nsif folds flags 0x40080000\n").unwrap();
    done(dir, "debugfs --strict -w -f requests image");
    let image = dir.join("image");
    let script = "set -e\nmount -o usrquota,grpquota $1 /mnt\necho x >/mnt/folds/Grösse\n\
        chown 1000 /mnt/folds/Grösse\ncat /mnt/folds/GRÖSSE\numount /mnt";
    let answer = guest::run(&GuestJob::new(script).disk(&image, false));
    assert_eq!((answer.status, &*answer.output), (0, "x\n"), "{}", answer.log);
    assert!(!answer.log.contains("EXT4-fs error"), "{}", answer.log);
    testkit::e2fsck(&image);
    let report = guest::quota_report(&image, guest::Kernel::Newest).unwrap();
    let inodes = |user| report.iter().find(|(id, ..)| *id == user).map(|(.., inodes)| *inodes);
    assert_eq!(inodes(1000), Some(1), "{report:?}");
    assert!(inodes(0).is_some_and(|count| count > 300), "{report:?}");
}
