//! mke2fs compared with the original: keys of mke2fs.conf, options that determine the layout, and
//! zeros in sources.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Output, Stdio};

use testkit::{KernelMount, MountOptions};

use super::{Ended, contents, done, file, home, run, run_with};

/// Lines of dumpe2fs that differ between runs, or that count intended differences.
const VOLATILE: [&str; 12] = [
    "Filesystem UUID",
    "Directory Hash Seed",
    "Filesystem created",
    "Last mount time",
    "Last write time",
    "Last checked",
    "Next check after",
    "Checksum",
    "Journal checksum",
    "Lifetime writes",
    "Free blocks",
    "Overhead clusters",
];

/// A configuration, in which two lines are replaced.
const CONFIG: &str = "[defaults]
base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
blocksize = 4096
@defaults
[fs_types]
ext4 = {
@ext4
features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
}
small = {
}
floppy = {
}
";

/// Section of a key, the lines with it, options of the call, and the field of dumpe2fs that shows
/// the key. With an empty field, all fields must equal those of a call without the key.
const KEYS: [(&str, &str, &str, &str); 34] = [
    ("defaults", "inode_size = 512", "", "Inode size"),
    ("ext4", "inode_size = 512\ninode_size = 256", "", "Inode size"),
    ("ext4", "inode_ratio = 65536", "", "Inode count"),
    ("ext4", "inode_ratio = 0", "", "Inode count"),
    ("ext4", "blocksize = 2048", "", "Block size"),
    ("ext4", "blocksize = -1", "", ""),
    ("ext4", "blocksize = 1024", "-b -2048", "Block size"),
    ("ext4", "features = large_dir", "", "Filesystem features"),
    ("ext4", "base_features = sparse_super", "", "Filesystem features"),
    ("ext4", "default_features = ^64bit,large_dir", "", "Filesystem features"),
    ("ext4", "default_features = ^64bit", "-O large_dir", ""),
    ("defaults", "default_features = ^64bit", "", "Filesystem features"),
    ("ext4", "enable_periodic_fsck = yes", "", "Check interval"),
    ("ext4", "enable_periodic_fsck = 1", "", "Maximum mount count"),
    ("ext4", "default_mntopts = acl,discard", "", "Default mount options"),
    ("ext4", "default_mntopts = journal_data,^acl", "", "Default mount options"),
    ("ext4", "errors = remount-ro", "", "Errors behavior"),
    ("defaults", "errors = panic", "", "Errors behavior"),
    ("ext4", "errors = panic", "-e continue", ""),
    ("ext4", "hash_alg = tea", "", "Default directory hash"),
    ("ext4", "flex_bg_size = 64", "", "Flex block group size"),
    ("ext4", "flex_bg_size = 64", "-G 8", ""),
    ("ext4", "reserved_ratio = 1.5", "", "Reserved block count"),
    ("ext4", "cluster_size = 32768", "-O bigalloc", "Cluster size"),
    ("ext4", "cluster_size = 32768", "", ""),
    ("ext4", "num_backup_sb = 0", "-O sparse_super2,^resize_inode -b 1024", "Filesystem features"),
    ("ext4", "encoding = utf8\nencoding_flags = strict", "-O casefold", "Character encoding"),
    ("ext4", "options = stride=4,test_fs=1", "", "Filesystem flags"),
    ("ext4", "options = stride=4", "-E stride=8", ""),
    ("ext4", "warn_y2038_dates = 0\ninode_size = 128", "", ""),
    ("ext4", "lazy_itable_init = 0\nlazy_journal_init = 0\ndiscard = no", "", ""),
    ("ext4", "packed_meta_blocks = 1", "", ""),
    ("ext4", "journal_location = 3000", "", ""),
    ("ext4", "make_hugefiles = 0\nhugefiles_size = 1M\nauto_64-bit_support = 1", "", ""),
];

/// Keys and values that are rejected, and the name in the message.
const REFUSED: [(&str, &str, &str); 13] = [
    ("ext4", "make_hugefiles = 1", "make_hugefiles"),
    ("ext4", "force_undo = true", "force_undo"),
    ("defaults", "undo_dir = /var/tmp", "undo_dir"),
    ("defaults", "creator_os = hurd", "creator_os"),
    ("ext4", "errors = sparkles", "errors"),
    ("ext4", "hash_alg = sparkles", "hash_alg"),
    ("ext4", "flex_bg_size = 3", "flex_bg_size"),
    ("ext4", "default_mntopts = sparkles", "sparkles"),
    ("ext4", "options = sparkles", "sparkles"),
    ("ext4", "enable_periodic_fsck = perhaps", "enable_periodic_fsck"),
    ("ext4", "blocksize = 131072", "blocksize"),
    ("ext4", "reserved_ratio = 70", "reserved_ratio"),
    ("ext4", "num_backup_sb = 3", "num_backup_sb"),
];

/// Keys without effect, which are reported.
const REPORTED: [(&str, &str, &str); 4] = [
    ("defaults", "features = 64bit", "features"),
    ("defaults", "sparkles = 1", "sparkles"),
    ("ext4", "journal_size = 5", "journal_size"),
    ("defaults", "[sparkles]\nx = 1\n[defaults]", "[sparkles]"),
];

/// Calls that determine the layout or the superblock.
const LAYOUTS: [&str; 28] = [
    "-E desc_size=128",
    "-E desc_size=1024 -b 1024",
    "-E desc_size=0",
    "-b 8192",
    "-b 16384 -O ^resize_inode",
    "-b 65536",
    "-b 1024 -G 64",
    "-b 1024 -E packed_meta_blocks=1",
    "-b 1024 -O ^resize_inode,sparse_super2 -E num_backup_sb=1",
    "-b 1024 -E resize=10g",
    "-E resize=100000000",
    "-O orphan_file -E orphan_file_size=1m",
    "-O fast_commit",
    "-O fast_commit -J size=8,fast_commit_size=100",
    "-O encrypt,stable_inodes,verity",
    "-E encoding=utf8,encoding_flags=strict",
    "-O bigalloc",
    "-O bigalloc -C 65536 -b 1024",
    "-O bigalloc,orphan_file,^resize_inode -C 16384",
    "-O quota",
    "-O quota,project",
    "-O quota,project -E quotatype=usrquota:prjquota",
    "-J location=3000",
    "-g 4096",
    "-L 01234567890123456789",
    "-M /0123456789012345678901234567890123456789012345678901234567890123456789",
    "-e panic -E stride=3,stripe_width=9,test_fs -c -c",
    "-K -R stride=4",
];

/// Returns the fields of `dumpe2fs -h` that do not differ between runs.
fn header(image: &Path) -> BTreeMap<String, String> {
    let output = testkit::command("dumpe2fs").arg("-h").arg(image).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let lines = lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    lines.filter(|(name, _)| !VOLATILE.contains(&&**name)).collect()
}

fn config(dir: &Path, place: &str, lines: &str) {
    let all = CONFIG.replace(&format!("@{place}"), lines);
    let all: String =
        all.lines().filter(|line| !line.starts_with('@')).flat_map(|line| [line, "\n"]).collect();
    fs::write(dir.join("mke2fs.conf"), all).unwrap();
}

/// Creates an image with our program and with the original, with the configuration.
fn both(dir: &Path, bytes: u64, options: &str) -> (Ended, Output) {
    for image in ["ours", "theirs"] {
        let _ = fs::remove_file(dir.join(image));
        file(dir, image, bytes);
    }
    // The mount count of a periodic check depends on the UUID.
    let line = format!("-q -F -t ext4 -U 0a28e812-3747-40bc-8194-e08e509097d0 {options}");
    let variables = [("MKE2FS_CONFIG", "mke2fs.conf")];
    let ours = run_with(dir, &format!("mke2fs {line} ours"), &variables);
    let mut theirs = testkit::command("mke2fs");
    theirs.current_dir(dir).envs(variables).args(line.split_whitespace()).arg("theirs");
    (ours, theirs.output().unwrap())
}

fn same_headers(dir: &Path, what: &str) -> BTreeMap<String, String> {
    let (mut ours, mut theirs) = (header(&dir.join("ours")), header(&dir.join("theirs")));
    if what.contains("quota") {
        // Quota files are written through the journal, which then has been used.
        for all in [&mut ours, &mut theirs] {
            all.retain(|name, _| !name.starts_with("Journal "));
        }
    }
    let different = ours.iter().filter(|(name, value)| theirs.get(*name) != Some(value));
    let different: Vec<_> = different.map(|line| (line, theirs.get(line.0))).collect();
    assert!(different.is_empty(), "{what}: {different:?}");
    assert_eq!(ours.len(), theirs.len(), "{what}: {theirs:?}");
    ours
}

#[test]
fn each_key_of_the_configuration_does_what_it_does_for_the_original() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("dumpe2fs"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    let mut plain = BTreeMap::new();
    for (place, lines, options, field) in KEYS {
        config(dir, place, "");
        if !plain.contains_key(options) {
            let (ours, _) = both(dir, 16 << 20, options);
            assert_eq!(ours.status, 0, "{options}: {ours:?}");
            plain.insert(options, header(&dir.join("ours")));
        }
        config(dir, place, lines);
        let (ours, theirs) = both(dir, 16 << 20, options);
        assert!(ours.status == 0 && theirs.status.success(), "{lines}: {ours:?} {theirs:?}");
        assert!(!ours.messages.contains("no effect"), "{lines}: {ours:?}");
        let with = same_headers(dir, lines);
        testkit::e2fsck(dir.join("ours"));
        let before = &plain[options];
        if field.is_empty() {
            assert_eq!(&with, before, "{lines}");
        } else if field != "Character encoding" && !lines.starts_with("num_backup_sb") {
            assert_ne!(with.get(field), before.get(field), "{lines}: {field}");
        }
    }
}

#[test]
fn keys_that_cannot_be_followed_are_named() {
    let home = home();
    let dir = home.path();
    let variables = [("MKE2FS_CONFIG", "mke2fs.conf")];
    for (place, lines, name) in REFUSED {
        config(dir, place, lines);
        let ended = run_with(dir, "mke2fs -q -t ext4 image 16M", &variables);
        assert!(ended.status == 1 && ended.messages.contains(name), "{lines}: {ended:?}");
        assert!(ended.messages.contains("mke2fs.conf"), "{lines}: {ended:?}");
        assert!(!dir.join("image").exists(), "{lines}");
    }
    for (place, lines, name) in REPORTED {
        config(dir, place, lines);
        let ended = run_with(dir, "mke2fs -q -t ext4 image 16M", &variables);
        let is_named = ended.messages.contains(name) && ended.messages.contains("no effect");
        assert!(ended.status == 0 && is_named, "{lines}: {ended:?}");
    }
    // An unused type is ignored, and not rejected.
    config(dir, "ext4", "}\nhuge = {\nmake_hugefiles = 1");
    let ended = run_with(dir, "mke2fs -q -t ext4 image 16M", &variables);
    assert!(ended.status == 0 && !ended.messages.contains("hugefiles"), "{ended:?}");
    let ended = run_with(dir, "mke2fs -q -t ext4 -T huge image 16M", &variables);
    assert_eq!(ended.status, 1, "{ended:?}");
}

#[test]
fn options_of_the_layout_give_what_the_original_gives() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("dumpe2fs"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    config(dir, "ext4", "inode_size = 256");
    for options in LAYOUTS {
        let (ours, theirs) = both(dir, 64 << 20, options);
        assert!(ours.status == 0 && theirs.status.success(), "{options}: {ours:?} {theirs:?}");
        same_headers(dir, options);
        testkit::e2fsck(dir.join("ours"));
    }
    let quota = "-O quota,project -d tree";
    let (ours, _) = both(dir, 64 << 20, quota);
    assert_eq!(ours.status, 0, "{ours:?}");
    testkit::e2fsck(dir.join("ours"));
    assert_eq!(contents(dir, "ours", "/etc/file-299"), "299");
    let said = run(dir, "mke2fs -q -F -t ext4 -E orphan_file_size=1g image 64M");
    assert!(said.status == 1 && said.messages.contains("orphan_file_size"), "{said:?}");
    // The original rejects these, too.
    for options in
        ["-G 3", "-O ^flex_bg -G 32", "-C 65536", "-E resize=1000", "-g 100", "-E encoding=latin1"]
    {
        let (ours, theirs) = both(dir, 64 << 20, options);
        assert!(ours.status == 1 && !theirs.status.success(), "{options}: {ours:?} {theirs:?}");
    }
}

#[test]
fn kernels_mount_file_systems_of_these_layouts() {
    testkit::require!(Mount("ext4"));
    let home = home();
    let dir = home.path();
    for options in [
        "-O bigalloc -C 65536 -d tree",
        "-b 1024 -E packed_meta_blocks=1 -d tree",
        "-O fast_commit -G 64 -d tree",
        "-O sparse_super2,^resize_inode -E num_backup_sb=0 -d tree",
    ] {
        done(dir, &format!("mke2fs -q -t ext4 {options} image 64M"));
        let image = dir.join("image");
        let mounted = KernelMount::new(&image, &MountOptions::read_write("ext4"));
        let path = mounted.path();
        assert_eq!(fs::read_to_string(path.join("etc/hostname")).unwrap(), "box\n", "{options}");
        fs::write(path.join("new"), vec![1; 100_000]).unwrap();
        drop(mounted);
        testkit::e2fsck(dir.join("image"));
        let _ = fs::remove_file(dir.join("image"));
    }
}

/// Creates a tree in which most bytes are written zeros.
fn zeros(dir: &Path) {
    let tree = dir.join("zeros");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("lastlog"), vec![0; 40 << 20]).unwrap();
    fs::write(tree.join("small"), [0; 100]).unwrap();
    let mut mixed = vec![0; 300_000];
    mixed[70_000..70_010].fill(7);
    mixed[299_999] = 1;
    fs::write(tree.join("mixed"), mixed).unwrap();
    fs::write(tree.join("data"), "data").unwrap();
}

fn same_contents(dir: &Path, image: &str) {
    let opened = diskwright::fs::Image::open(dir.join(image)).unwrap();
    for name in ["lastlog", "small", "mixed", "data"] {
        let there = opened.read(format!("/{name}")).unwrap();
        assert!(there == fs::read(dir.join("zeros").join(name)).unwrap(), "{image}: {name}");
    }
}

/// Returns the free blocks from dumpe2fs.
fn free_blocks(image: &Path) -> u64 {
    let output = testkit::command("dumpe2fs").arg("-h").arg(image).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let free = text.lines().find_map(|line| line.strip_prefix("Free blocks:")).unwrap();
    free.trim().parse().unwrap()
}

#[test]
fn blocks_of_zeros_in_sources_become_holes() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("dumpe2fs"), Tool("e2fsck"));
    testkit::require!(Tool("tar"), Tool("gzip"), Tool("xz"), Tool("bzip2"));
    let home = home();
    let dir = home.path();
    zeros(dir);
    config(dir, "ext4", "inode_size = 256");
    let tar = |arguments: &str| {
        let mut tar = testkit::command("tar");
        let arguments = arguments.split_whitespace();
        assert!(tar.current_dir(dir).args(arguments).status().unwrap().success());
    };
    tar("-C zeros -cf zeros.tar .");
    tar("-C zeros -czf zeros.tar.gz .");
    tar("-C zeros -cJf zeros.tar.xz .");
    tar("-C zeros -cjf zeros.tar.bz2 .");
    let (ours, theirs) = both(dir, 16 << 20, "-d zeros");
    assert!(ours.status == 0 && theirs.status.success(), "{ours:?} {theirs:?}");
    same_headers(dir, "-d zeros");
    let free = free_blocks(&dir.join("theirs"));
    let sources = ["", "zeros.tar", "zeros.tar.gz", "zeros.tar.xz", "zeros.tar.bz2"];
    for (image, source) in ["ours", "a", "b", "c", "d"].into_iter().zip(sources) {
        if !source.is_empty() {
            let line = format!("mke2fs -q -t ext4 -d {source} {image} 16M");
            let ended = run_with(dir, &line, &[("MKE2FS_CONFIG", "mke2fs.conf")]);
            assert_eq!(ended.status, 0, "{source}: {ended:?}");
        }
        testkit::e2fsck(dir.join(image));
        same_contents(dir, image);
        assert_eq!(free_blocks(&dir.join(image)), free, "{image}");
    }
}

#[test]
fn builds_make_holes_of_zeros_only_if_asked() {
    testkit::require!(Tool("e2fsck"), Tool("xfs_repair"));
    let home = home();
    let dir = home.path();
    zeros(dir);
    let build = |options: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_diskwright"));
        command.env("SOURCE_DATE_EPOCH", "1700000000");
        command.current_dir(dir).arg("build").args(options.split_whitespace());
        let output = command.args(["--force", "zeros", "image"]).output().unwrap();
        assert!(output.status.success(), "{options}: {output:?}");
        same_contents(dir, "image");
        testkit::judge(dir.join("image"));
        fs::metadata(dir.join("image")).unwrap().len()
    };
    assert!(build("") > 40 << 20);
    for options in ["", "--threads 1", "-O inline_data", "-O bigalloc"] {
        let bytes = build(&format!("--sparse {options}"));
        assert!(bytes < 2 << 20, "{options}: {bytes}");
    }
    build("--sparse --fs xfs --small --size 40M");
    // The layout depends neither on the threads nor on the kind of source.
    let image = |options: &str| {
        build(options);
        fs::read(dir.join("image")).unwrap()
    };
    let options = "--sparse --size 16M --uuid 0a28e812-3747-40bc-8194-e08e509097d0";
    assert!(image(&format!("{options} --threads 1")) == image(&format!("{options} --threads 4")));
}

#[test]
fn a_file_system_at_an_offset_does_not_change_bytes_before_it() {
    testkit::require!(Version("e2fsck", 1, 45));
    let home = home();
    let dir = home.path();
    let image = fs::File::create(dir.join("image")).unwrap();
    image.write_all_at(&[0xaa; 1 << 20], 0).unwrap();
    image.set_len(33 << 20).unwrap();
    image.write_all_at(&[0xbb; 1 << 20], 32 << 20).unwrap();
    done(dir, "mke2fs -q -t ext4 -E offset=1048576 -O quota -d tree image 31M");
    let bytes = fs::read(dir.join("image")).unwrap();
    assert!(bytes[..1 << 20].iter().all(|byte| *byte == 0xaa));
    assert!(bytes[32 << 20..].iter().all(|byte| *byte == 0xbb) && bytes.len() == 33 << 20);
    let mut check = testkit::command("e2fsck");
    let output = check.current_dir(dir).args(["-fn", "image?offset=1048576"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Without a size it uses the rest of the file, and reports it.
    let ended = run(dir, "mke2fs -q -F -t ext4 -E offset=1048576 image");
    assert!(ended.status == 0 && ended.messages.contains("offset"), "{ended:?}");
    done(dir, "mke2fs -q -t ext4 -E offset=4096 new 8M");
    assert_eq!(fs::metadata(dir.join("new")).unwrap().len(), (8 << 20) + 4096);
}

#[test]
fn extended_attributes_are_left_out_if_asked() {
    testkit::require!(Tool("tar"), Tool("e2fsck"), Tool("setfattr"));
    let home = home();
    let dir = home.path();
    let mut set = testkit::command("setfattr");
    let set = set.current_dir(dir).args(["-n", "user.color", "-v", "blue", "tree/large"]);
    if !set.stderr(Stdio::null()).status().unwrap().success() {
        testkit::skip("the scratch directory has no extended attributes");
    }
    for (options, is_there) in [("", true), ("-E no_copy_xattrs", false)] {
        done(dir, &format!("mke2fs -q -F -t ext4 {options} -d tree image 32M"));
        testkit::e2fsck(dir.join("image"));
        let image = diskwright::fs::Image::open(dir.join("image")).unwrap();
        let names = image.list_xattrs("/large").unwrap();
        assert_eq!(names.iter().any(|name| name == b"user.color"), is_there);
    }
}
