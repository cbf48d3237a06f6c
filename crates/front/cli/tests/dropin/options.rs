//! Every option of the manual pages works or is rejected by its name.

use std::fs;
use std::process::Command;

use super::{Ended, done, file, home, run};

/// Options that work, with values.
const MKE2FS: [&str; 65] = [
    "-c",
    "-c -c",
    "-C 65536 -O bigalloc",
    "-e panic",
    "-E encoding=utf8",
    "-E encoding_flags=strict",
    "-E mmp_update_interval=5",
    "-E no_copy_xattrs",
    "-E num_backup_sb=1",
    "-E offset=1024",
    "-E orphan_file_size=64k",
    "-E packed_meta_blocks=1",
    "-E quotatype=usrquota",
    "-E resize=1g",
    "-E stride=4",
    "-E stripe_width=8",
    "-E stripe-width=8",
    "-E test_fs",
    "-b 1024",
    "-b -2048",
    "-D",
    "-d tree",
    "-e continue",
    "-E lazy_itable_init=0",
    "-E lazy_journal_init=1",
    "-E nodiscard",
    "-E discard",
    "-E assume_storage_prezeroed=1",
    "-E root_owner",
    "-E root_perms=700",
    "-E revision=1",
    "-F",
    "-g 8192",
    "-G 16",
    "-G 32",
    "-i 8192",
    "-I 128",
    "-j",
    "-J fast_commit_size=1",
    "-J location=5",
    "-J size=4",
    "-K",
    "-L label",
    "-m 2.5",
    "-M /mnt",
    "-n",
    "-N 500",
    "-o Linux",
    "-q",
    "-r 1",
    "-R stride=4",
    "-v",
    "-b 4096",
    "-b 65536",
    "-J device=journal",
    "-E android_sparse",
    "-E desc_size=128",
    "-E hash_seed=0a28e812-3747-40bc-8194-e08e509097d1",
    "-E packed_meta_blocks=0",
    "-E root_selinux=label",
    "-O ^64bit",
    "-t ext3",
    "-T news",
    "-U random",
    "-V",
];
/// Options that are rejected.
const NOT_MKE2FS: [&str; 5] = ["-l list", "-o hurd", "-r 0", "-S", "-z undo"];
/// Options of mke2fs(8), and the words listed under `-E` and `-J`.
const MANUAL_MKE2FS: [&str; 58] = [
    "-b",
    "-c",
    "-C",
    "-d",
    "-D",
    "-e",
    "-E",
    "-F",
    "-g",
    "-G",
    "-i",
    "-I",
    "-j",
    "-J",
    "-K",
    "-l",
    "-L",
    "-m",
    "-M",
    "-n",
    "-N",
    "-o",
    "-O",
    "-q",
    "-r",
    "-R",
    "-S",
    "-t",
    "-T",
    "-U",
    "-v",
    "-V",
    "-z",
    "-E assume_storage_prezeroed",
    "-E discard",
    "-E encoding",
    "-E encoding_flags",
    "-E hash_seed",
    "-E lazy_itable_init",
    "-E lazy_journal_init",
    "-E mmp_update_interval",
    "-E no_copy_xattrs",
    "-E nodiscard",
    "-E num_backup_sb",
    "-E offset",
    "-E orphan_file_size",
    "-E packed_meta_blocks",
    "-E quotatype",
    "-E resize",
    "-E root_owner",
    "-E root_perms",
    "-E stride",
    "-E stripe_width",
    "-E test_fs",
    "-J device",
    "-J fast_commit_size",
    "-J location",
    "-J size",
];
/// Features of ext4(5) that are supported, alone or with others, and those that are not.
const FEATURES: [&str; 27] = [
    "64bit",
    "bigalloc",
    "casefold",
    "dir_index",
    "dir_nlink",
    "ea_inode",
    "encrypt",
    "ext_attr",
    "extent",
    "extra_isize",
    "fast_commit",
    "filetype",
    "flex_bg",
    "has_journal",
    "huge_file",
    "inline_data",
    "large_dir",
    "large_file",
    "metadata_csum",
    "metadata_csum_seed",
    "mmp",
    "orphan_file",
    "project",
    "quota",
    "resize_inode",
    "sparse_super",
    "stable_inodes",
];
const NOT_FEATURES: [&str; 1] = ["shared_blocks"];
const E2FSCK: [&str; 28] = [
    "-a",
    "-j journal",
    "-b 8193",
    "-B 1024",
    "-C 0",
    "-d",
    "-D",
    "-E discard",
    "-E journal_only",
    "-f",
    "-F",
    "-t",
    "-v",
    "-V",
    "-E ea_ver=2",
    "-E fixes_only",
    "-E fragcheck",
    "-E inode_count_fullmap",
    "-E no_inode_count_fullmap",
    "-E nodiscard",
    "-E no_optimize_extents",
    "-E optimize_extents",
    "-E readahead_kb=64",
    "-n",
    "-p",
    "-r",
    "-y",
    "-z undo",
];
const NOT_E2FSCK: [&str; 7] =
    ["-c", "-k", "-l list", "-L list", "-E bmap2extent", "-E unshare_blocks", "-E check_encoding"];
const RESIZE2FS: [&str; 6] = ["-d 2", "-f", "-F", "-p", "-P", "-M"];
const NOT_RESIZE2FS: [&str; 4] = ["-b", "-s", "-S 4", "-z undo"];
const XFS_REPAIR: [&str; 14] = [
    "-f",
    "-L",
    "-m 100",
    "-M",
    "-n",
    "-P",
    "-t 10",
    "-v",
    "-e",
    "-o bhash=100",
    "-o ag_stride=2",
    "-o noquota",
    "-o phase2_threads=2",
    "-V",
];
const NOT_XFS_REPAIR: [&str; 3] = ["-c bigtime=1", "-d", "-o force_geometry"];
const MAKE_EXT4FS: [&str; 17] = [
    "-b 1024",
    "-B blocks",
    "-f",
    "-g 32768",
    "-i 5000",
    "-I 128",
    "-j 2048",
    "-J",
    "-L label",
    "-m 1.5",
    "-s",
    "-S contexts",
    "-T 1600000000",
    "-T -1",
    "-u",
    "-v",
    "-w",
];
const NOT_MAKE_EXT4FS: [&str; 8] =
    ["-a /system", "-c", "-d base", "-D base", "-g 4096", "-t", "-X", "-z"];
const E2FSDROID: [&str; 4] = ["-B blocks", "-e", "-T 1600000000", "-C fs_config"];
const NOT_E2FSDROID: [&str; 8] =
    ["-a /system", "-d base", "-D base", "-g 0:0:1", "-p product", "-s", "-S contexts", "-u 0:0:1"];
const XFS_ADMIN: [&str; 11] = [
    "-O bigtime=1,inobtcount=1",
    "-O nrext64=1 -O exchange=1",
    "-f -l",
    "-l",
    "-L label",
    "-L --",
    "-u",
    "-U generate",
    "-U nil",
    "-U restore",
    "-U 0a28e812-3747-40bc-8194-e08e509097d0",
];
const NOT_XFS_ADMIN: [&str; 4] = ["-c 0", "-e", "-j", "-p"];
const TUNE2FS: [&str; 32] = [
    "-c 20",
    "-c random",
    "-E encoding=utf8",
    "-E encoding_flags=strict",
    "-E mmp_update_interval=7",
    "-E orphan_file_size=64",
    "-Q usrquota",
    "-C 3",
    "-e continue",
    "-E stride=4",
    "-E stripe_width=8",
    "-E mount_opts=noatime",
    "-f -L label",
    "-g 0",
    "-i 30d",
    "-l",
    "-L label",
    "-m 2",
    "-M /srv",
    "-o acl",
    "-O large_dir",
    "-r 10",
    "-T now",
    "-T 20200101",
    "-u 0",
    "-U random",
    "-V",
    "-E hash_alg=tea",
    "-E test_fs",
    "-E ^test_fs",
    "-E hash_alg=half_md4",
    "-z undo-of-tune2fs -L other",
];
const NOT_TUNE2FS: [&str; 3] = ["-E revision=1", "-s 0", "-I 512"];
const DUMPE2FS: [&str; 5] = ["-h -x", "-h -f", "-x", "-f", "-V"];
const NOT_DUMPE2FS: [&str; 6] = ["-b", "-g", "-i", "-m", "-o superblock=1", "-o blocksize=1024"];
const XFS_GROWFS: [&str; 4] = ["-d", "-D 112640", "-n", "-V"];
const DEBUGFS: [&str; 8] =
    ["--strict", "-c", "-D", "-f requests", "-R ls", "-V", "-w", "-z undo-of-debugfs"];
const NOT_DEBUGFS: [&str; 5] = ["-b 1024", "-d device", "-i", "-n", "-s 8193"];
const BLKID: [&str; 30] = [
    "-c /dev/null",
    "--cache-file /dev/null",
    "-d",
    "--no-encoding",
    "-D",
    "--no-part-details",
    "-g",
    "--garbage-collect",
    "-n ext4",
    "--match-types ext4",
    "-o value",
    "--output value",
    "--output=export",
    "-o full",
    "-o udev",
    "-o device",
    "-O 0",
    "--offset 0",
    "-p",
    "--probe",
    "-s TYPE",
    "--match-tag TYPE",
    "-u filesystem",
    "--usages filesystem,raid",
    "-u noraid",
    "-V",
    "--version",
    "-ps TYPE",
    "-o export -p",
    "-w /dev/null",
];
const NOT_BLKID: [&str; 20] = [
    "-h",
    "--help",
    "-H setting",
    "--hint setting",
    "-i",
    "--info",
    "-k",
    "--list-filesystems",
    "-l",
    "--list-one",
    "-L label",
    "--label label",
    "-o list",
    "-S 4096",
    "--size 4096",
    "-t TYPE=ext4",
    "--match-token TYPE=ext4",
    "-U 0a28e812-3747-40bc-8194-e08e509097d0",
    "--uuid 0a28e812-3747-40bc-8194-e08e509097d0",
    "--output list",
];
const NOT_XFS_GROWFS: [&str; 8] = ["-e 4", "-i", "-l", "-L 4", "-m 5", "-p mtab", "-t mtab", "-x"];

#[test]
fn each_option_works_or_is_refused_by_its_name() {
    let home = home();
    let dir = home.path();
    for option in MKE2FS {
        done(dir, "mke2fs -q -F -O journal_dev -b 4096 journal 16M");
        let Ended { status, out, messages } =
            run(dir, &format!("mke2fs -t ext4 {option} image 32M"));
        assert_eq!(status, 0, "{option}: {messages}");
        // The version goes to standard error, in a form that callers parse.
        let said = if option == "-V" { messages } else { out };
        assert!(option != "-V" || said.starts_with("mke2fs 1.47.4 "), "{said}");
        assert_eq!(option == "-q", said.is_empty(), "{option}: {said}");
        assert!(!said.contains(" 0 "), "{option}: {said}");
        let _ = fs::remove_file(dir.join("image"));
    }
    refused(&home, "mke2fs {} image 32M", &NOT_MKE2FS, 1);
    done(dir, "mkfs.ext4 -q -d tree image 32M");
    for option in E2FSCK {
        done(dir, &format!("e2fsck {option} image"));
    }
    refused(&home, "e2fsck {} image", &NOT_E2FSCK, 16);
    for option in RESIZE2FS {
        done(dir, &format!("resize2fs {option} image"));
    }
    refused(&home, "resize2fs {} image", &NOT_RESIZE2FS, 1);
    done(dir, "mkfs.xfs -q -f -d file,size=400m image");
    for option in XFS_REPAIR {
        done(dir, &format!("xfs_repair {option} image"));
    }
    refused(&home, "xfs_repair {} image", &NOT_XFS_REPAIR, 1);
    for option in XFS_GROWFS {
        done(dir, &format!("xfs_growfs {option} image"));
    }
    refused(&home, "xfs_growfs {} image", &NOT_XFS_GROWFS, 1);
}

#[test]
fn each_option_of_the_manual_page_of_mke2fs_is_tried() {
    let tried: Vec<_> = MKE2FS.iter().chain(&NOT_MKE2FS).collect();
    for option in MANUAL_MKE2FS {
        let is_it = |tried: &str| {
            let rest = tried.strip_prefix(option);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '=']))
        };
        assert!(tried.iter().any(|tried| is_it(tried)), "{option}");
    }
}

#[test]
fn each_feature_is_made_or_refused_by_its_name() {
    testkit::require!(Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    let more = [
        "meta_bg,^resize_inode",
        "sparse_super2,^resize_inode",
        "uninit_bg,^metadata_csum",
        "verity",
        // Makes no file system: see `journal_device`.
        "journal_dev",
    ];
    let listed = done(dir, "mke2fs --supported");
    let listed: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("-O ")).collect();
    let mut made: Vec<_> = FEATURES.into_iter().chain(more).collect();
    made.sort_unstable();
    // Some features exclude others, which follow after a comma.
    assert!(made.iter().map(|made| made.split(',').next().unwrap()).eq(listed));
    for feature in made {
        done(dir, &format!("mke2fs -q -F -t ext4 -O {feature} image 16M"));
        if feature != "journal_dev" {
            testkit::e2fsck(dir.join("image"));
        }
    }
    for feature in NOT_FEATURES {
        let ended = run(dir, &format!("mke2fs -q -F -t ext4 -O {feature} image 16M"));
        assert!(ended.status == 1 && ended.messages.contains(feature), "{feature}: {ended:?}");
    }
}

#[test]
fn options_of_programs_that_change_superblocks_work_or_are_refused() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.xfs -q -d size=320m image");
    for option in XFS_ADMIN {
        done(dir, &format!("xfs_admin {option} image"));
    }
    refused(&home, "xfs_admin {} image", &NOT_XFS_ADMIN, 1);
    done(dir, "mkfs.ext4 -q image 32M");
    for option in TUNE2FS {
        done(dir, &format!("tune2fs {option} image"));
    }
    refused(&home, "tune2fs {} image", &NOT_TUNE2FS, 1);
    for option in DUMPE2FS {
        done(dir, &format!("dumpe2fs {option} image"));
    }
    refused(&home, "dumpe2fs {} image", &NOT_DUMPE2FS, 1);
    testkit::require!(Tool("e2fsck"));
    testkit::e2fsck(dir.join("image"));
}

#[test]
fn options_of_programs_that_read_images_work_or_are_refused() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q image 32M");
    fs::write(dir.join("requests"), "ls\n").unwrap();
    for option in DEBUGFS {
        done(dir, &format!("debugfs {option} image"));
    }
    refused(&home, "debugfs {} image", &NOT_DEBUGFS, 1);
    for option in BLKID {
        assert!(!done(dir, &format!("blkid {option} image")).is_empty(), "{option}");
    }
    refused(&home, "blkid {} image", &NOT_BLKID, 4);
    for nothing in ["-n xfs", "--match-types noext4", "-u nofilesystem", "--usages raid"] {
        assert_eq!(run(dir, &format!("blkid -p {nothing} image")).status, 2, "{nothing}");
    }
    let ended = run(dir, "blkid --sparkles image");
    assert!(ended.status == 4 && ended.messages.contains("--sparkles"), "{ended:?}");
}

#[test]
fn options_of_programs_that_build_device_images_work_or_are_refused() {
    let home = home();
    let dir = home.path();
    fs::write(dir.join("contexts"), "/.* u:object_r:x:s0\n").unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    fs::write(dir.join("fs_config"), " 0 0 755\n").unwrap();
    for option in MAKE_EXT4FS {
        done(dir, &format!("make_ext4fs -l 32M {option} image tree"));
        let _ = fs::remove_file(dir.join("image"));
    }
    refused(&home, "make_ext4fs -l 32M {} image tree", &NOT_MAKE_EXT4FS, 1);
    assert!(!dir.join("image").exists());
    for option in E2FSDROID {
        done(dir, "mkfs.ext4 -q -b 4096 image 32M");
        done(dir, &format!("e2fsdroid -f empty {option} image"));
    }
    done(dir, "mkfs.ext4 -q -b 4096 image 32M");
    refused(&home, "e2fsdroid -f tree {} image", &NOT_E2FSDROID, 1);
}

fn refused(home: &tempfile::TempDir, line: &str, options: &[&str], status: i32) {
    for option in options {
        let ended = run(home.path(), &line.replace("{}", option));
        assert_eq!(ended.status, status, "{option}: {ended:?}");
        let mut words = option.split(['=', ' ']);
        let (letter, value) = (words.next().unwrap(), words.next());
        assert!(ended.messages.contains(letter), "{option}: {ended:?}");
        let names_it = ended.messages.contains("not supported");
        assert!(names_it, "{option}: {ended:?}");
        if letter == "-E" {
            assert!(ended.messages.contains(value.unwrap()), "{option}: {ended:?}");
        }
    }
}

#[test]
fn links_stand_for_the_programs() {
    let home = home();
    let dir = home.path();
    let links = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
        command.current_dir(dir).args(["links", "bin"]).output().unwrap()
    };
    assert_eq!(links().status.code(), Some(0));
    assert_eq!(links().status.code(), Some(0));
    let make = |name: &str| {
        let mut command = Command::new(dir.join("bin").join(name));
        command.current_dir(dir).env("MKE2FS_CONFIG", "none.conf");
        command
    };
    assert!(make("mkfs.ext3").args(["-q", "image", "16M"]).status().unwrap().success());
    let output = make("dumpe2fs").args(["-h", "image"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("has_journal") && !text.contains("extent"), "{text}");
    // The system's blkid detects more formats.
    assert!(!dir.join("bin/blkid").exists());
    let line = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
        command.current_dir(dir).arg("links").args(words).output().unwrap().status.code()
    };
    assert_eq!(line(&["few", "--only", "mke2fs,mkfs.xfs"]), Some(0));
    assert_eq!(fs::read_dir(dir.join("few")).unwrap().count(), 2);
    assert_eq!(line(&["bin", "--with", "blkid"]), Some(0));
    assert!(dir.join("bin/blkid").exists());
    assert_eq!(line(&["bin", "--only", "mkfs.zfs"]), Some(2));
    // Files of other origin are kept.
    fs::remove_file(dir.join("bin/e2fsck")).unwrap();
    file(dir, "bin/e2fsck", 0);
    let output = links();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("bin/e2fsck"));
    assert!(fs::symlink_metadata(dir.join("bin/e2fsck")).unwrap().is_file());
}
