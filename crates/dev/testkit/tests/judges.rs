//! The judges must be able to reject.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use testkit::{
    Ignore, KernelMount, Mke2fs, MountOptions, Need, NodeKind, Sample, Tree, assert_same, debugfs,
    debugfs_write, differences, e2fsck, e2fsck_verdict, populate_with_kernel, require, sample_tree,
    scratch,
};

const MIB: u64 = 1 << 20;

fn small_tree(root: &Path) {
    fs::create_dir(root.join("directory")).unwrap();
    fs::write(root.join("directory/file"), "content").unwrap();
    fs::write(root.join("other"), "").unwrap();
    symlink("other", root.join("symlink")).unwrap();
}

/// Returns the single difference that `change` makes to a small tree.
fn difference_after(change: impl FnOnce(&Path)) -> String {
    let scratch = scratch();
    small_tree(scratch.path());
    let before = Tree::of(scratch.path());
    // The directory's own time changes with its entries. It is restored, because it is not under test.
    let directory_time = fs::metadata(scratch.path()).unwrap().modified().unwrap();
    change(scratch.path());
    File::open(scratch.path()).unwrap().set_modified(directory_time).unwrap();
    let found = differences(&before, &Tree::of(scratch.path()), &Ignore::default());
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().unwrap()
}

#[test]
fn equal_trees_are_the_same() {
    let scratch = scratch();
    small_tree(scratch.path());
    assert_same(&Tree::of(scratch.path()), &Tree::of(scratch.path()), &Ignore::default());
}

#[test]
fn a_changed_time_is_seen_to_the_nanosecond() {
    let text = difference_after(|root| {
        let file = OpenOptions::new().write(true).open(root.join("other")).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        file.set_modified(time + Duration::from_nanos(1)).unwrap();
    });
    assert!(text.starts_with("/other: mtime"), "{text}");
}

#[test]
fn a_changed_mode_is_seen() {
    let text = difference_after(|root| {
        fs::set_permissions(root.join("other"), Permissions::from_mode(0o4755)).unwrap();
    });
    assert!(text.starts_with("/other: mode: expected") && text.contains("4755"), "{text}");
}

#[test]
fn missing_and_unexpected_entries_are_detected() {
    let text = difference_after(|root| fs::remove_file(root.join("symlink")).unwrap());
    assert_eq!(text, "/symlink: missing (Symlink)");
    let text = difference_after(|root| drop(File::create(root.join("new")).unwrap()));
    assert_eq!(text, "/new: not expected (File)");
}

#[test]
fn one_changed_byte_is_seen() {
    let text = difference_after(|root| {
        let file = OpenOptions::new().write(true).open(root.join("directory/file")).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"C", 0).unwrap();
        file.set_modified(time).unwrap();
    });
    assert!(text.starts_with("/directory/file: content checksum"), "{text}");
}

#[test]
fn holes_are_distinguished_from_zeros_only_on_request() {
    let scratch = scratch();
    let [sparse, full] = ["sparse", "full"].map(|name| scratch.path().join(name));
    for root in [&sparse, &full] {
        fs::create_dir(root).unwrap();
        File::create(root.join("file")).unwrap().set_len(MIB).unwrap();
    }
    fs::write(full.join("file"), vec![0; MIB as usize]).unwrap();
    for path in [sparse.join("file"), full.join("file"), sparse.clone(), full.clone()] {
        File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let (sparse, full) = (Tree::of(&sparse), Tree::of(&full));
    assert_same(&sparse, &full, &Ignore { holes: true, ..Ignore::default() });
    let found = differences(&sparse, &full, &Ignore::default());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("/file: data ranges"), "{found:?}");
}

#[test]
fn broken_hard_links_are_seen() {
    let scratch = scratch();
    for name in ["a", "c"] {
        fs::create_dir(scratch.path().join(name)).unwrap();
        fs::write(scratch.path().join(name).join("1"), "x").unwrap();
    }
    fs::hard_link(scratch.path().join("a/1"), scratch.path().join("a/2")).unwrap();
    fs::write(scratch.path().join("c/2"), "x").unwrap();
    let [linked, copied] = ["a", "c"].map(|name| Tree::of(scratch.path().join(name)));
    let ignore = Ignore { mtime: true, ..Ignore::default() };
    let found = differences(&linked, &copied, &ignore);
    assert!(found.iter().any(|line| line.starts_with("/2: hard link of")), "{found:?}");
}

#[test]
#[should_panic(expected = "the trees differ in")]
fn a_difference_panics() {
    let scratch = scratch();
    small_tree(scratch.path());
    let before = Tree::of(scratch.path());
    fs::remove_file(scratch.path().join("other")).unwrap();
    assert_same(&before, &Tree::of(scratch.path()), &Ignore::default());
}

#[test]
fn needs_are_named_when_missing() {
    let needs = [Need::Tool("sh"), Need::Tool("no-such-tool")];
    if std::env::var_os("DISKWRIGHT_REQUIRE_TOOLS").is_none() {
        assert!(!testkit::satisfied("a test of skipping", &needs));
    }
    assert!(testkit::satisfied("a test that runs", &needs[..1]));
}

/// Not a test by itself: the next test runs it.
#[test]
#[ignore = "a part of another test, which starts it"]
fn a_test_of_a_missing_tool() {
    require!(Version("sh", 1_000_000, 0), Tool("no-such-tool"));
    panic!("nobody has that");
}

#[test]
fn missing_tools_skip_a_test_or_fail_it_if_tools_are_required() {
    let run = |required: bool| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "judges::a_test_of_a_missing_tool"]);
        command.env_remove("DISKWRIGHT_REQUIRE_TOOLS");
        if required {
            command.env("DISKWRIGHT_REQUIRE_TOOLS", "1");
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let (passes, said) = run(false);
    assert!(passes, "{said}");
    assert!(said.contains("SKIPPED testkit::judges::a_test_of_a_missing_tool: sh "), "{said}");
    assert!(said.contains("1000000.0 is needed"), "{said}");
    let (passes, said) = run(true);
    assert!(!passes, "{said}");
    assert!(
        said.contains("testkit::judges::a_test_of_a_missing_tool may not be skipped here"),
        "{said}"
    );
}

/// Run by a test below.
#[test]
#[ignore = "a part of another test, which starts it"]
fn a_test_that_forgot_to_require_its_judge() {
    testkit::command("no-such-tool");
    panic!("the judge is there");
}

/// Run by a test below.
#[test]
#[ignore = "a part of another test, which starts it"]
fn a_test_whose_threads_forgot_to_require_their_judge() {
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| testkit::command("no-such-tool"));
        }
    });
    panic!("the judge is there");
}

/// Run by a test below: fails while other tests are skipped.
#[test]
#[ignore = "a part of another test, which starts it"]
fn a_failing_test_next_to_skipped_ones() {
    std::thread::sleep(Duration::from_millis(300));
    panic!("a failure");
}

#[test]
fn a_missing_judge_skips_a_test_that_forgot_to_require_it() {
    let run = |tests: &[&str], required: bool| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.arg("--ignored").args(tests).env_remove("DISKWRIGHT_REQUIRE_TOOLS");
        if required {
            command.env("DISKWRIGHT_REQUIRE_TOOLS", "1");
        }
        let output = command.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), text)
    };
    let forgetful = [
        "a_test_that_forgot_to_require_its_judge",
        "a_test_whose_threads_forgot_to_require_their_judge",
    ];
    for name in forgetful {
        let (passes, said) = run(&[name], false);
        assert!(passes, "{said}");
        let line = format!("SKIPPED testkit::judges::{name}: no-such-tool is not installed");
        assert!(said.contains(&line), "{said}");
        let (passes, said) = run(&[name], true);
        assert!(!passes && said.contains("may not be skipped here"), "{said}");
    }
    let [first, second] = forgetful;
    let (passes, said) = run(&[first, second, "a_failing_test_next_to_skipped_ones"], false);
    assert!(!passes && said.contains("2 passed; 1 failed"), "{said}");
    assert!(said.contains("a failure"), "{said}");
}

#[test]
fn e2fsck_accepts_a_new_image_and_refuses_damage() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    let mke2fs = Mke2fs::new("ext4").block_size(1024);
    mke2fs.create(&image, 16 * MIB);
    e2fsck(&image);
    let device = OpenOptions::new().write(true).open(&image).unwrap();
    // The superblock's free block count (a 32-bit field at 12) no longer matches its checksum.
    device.write_all_at(&[0xa5; 4], 1024 + 12).unwrap();
    assert!(e2fsck_verdict(&image).is_err());
    mke2fs.create(&image, 16 * MIB);
    debugfs_write(&image, "clri <11>");
    let output = e2fsck_verdict(&image).unwrap_err();
    assert!(output.contains("lost+found"), "{output}");
}

#[test]
fn e2fsck_refuses_an_image_that_needs_recovery() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").create(&image, 16 * MIB);
    debugfs_write(&image, "feature needs_recovery");
    assert!(e2fsck_verdict(&image).is_err());
}

#[test]
fn debugfs_reads_what_mke2fs_copied() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    small_tree(&source);
    let image = scratch.path().join("image");
    Mke2fs::new("ext2").inode_size(128).populate(&source).create(&image, 8 * MIB);
    e2fsck(&image);
    assert!(debugfs(&image, "cat /directory/file").contains("content"));
}

#[test]
fn a_sample_tree_is_rich_and_the_same_for_the_same_seed() {
    let scratch = scratch();
    let sample = Sample { wide_names: 300, ..Sample::default() };
    let [first, second] = ["first", "second"].map(|name| {
        let root = scratch.path().join(name);
        fs::create_dir(&root).unwrap();
        sample_tree(&root, &sample);
        Tree::of(root)
    });
    assert_same(&first, &second, &Ignore { atime: false, ..Ignore::default() });
    assert_eq!(first.node("types/fifo").kind, NodeKind::Fifo);
    assert_eq!(first.node("holes/huge").size, 5 << 30);
    assert_eq!(first.node("holes/huge").data.len(), 4);
    assert_eq!(
        first.node("links/other/third").link_leader.as_deref(),
        Some(&b"links/original"[..])
    );
    assert_eq!(first.node("symlinks/of-4095").target.len(), 4095);
    assert!(first.nodes.values().any(|node| node.mtime.0 < 0));
    assert!(first.nodes.values().any(|node| node.mtime.0 > i64::from(u32::MAX)));
}

#[test]
fn the_kernel_stores_a_sample_tree_and_every_attribute_of_it() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let scratch = scratch();
    for block_size in [1024, 4096] {
        let image = scratch.path().join(format!("image-{block_size}"));
        Mke2fs::new("ext4").block_size(block_size).create(&image, 128 * MIB);
        let mut expected = None;
        populate_with_kernel(&image, "ext4", |root| {
            let sample = Sample { wide_names: 500, ..Sample::for_block_size(block_size) };
            assert_eq!(sample_tree(root, &sample), Vec::<String>::new());
            // Blocks of new files are not allocated before a sync, and holes are visible only afterwards.
            rustix::fs::syncfs(std::fs::File::open(root).unwrap()).unwrap();
            expected = Some(Tree::of(root));
        });
        e2fsck(&image);
        let mount = KernelMount::new(&image, &MountOptions::read_only("ext4"));
        let ignore = Ignore { ctime: false, ..Ignore::default() };
        assert_same(&expected.unwrap(), &Tree::of(mount.path()), &ignore);
        let root = Tree::of(mount.path());
        assert!(root.node("acls/directory").xattrs.contains_key(&b"system.posix_acl_default"[..]));
        assert!(root.node("xattrs/capable").xattrs.contains_key(&b"security.capability"[..]));
    }
}

#[test]
fn a_mount_ends_with_its_guard_also_in_a_panic() {
    require!(Tool("mke2fs"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").create(&image, 16 * MIB);
    let mut mount_point = None;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let options = MountOptions { no_recovery: true, ..MountOptions::read_only("ext4") };
        let mount = KernelMount::new(&image, &options);
        mount_point = Some(mount.path().to_path_buf());
        panic!("a failing test");
    }));
    assert!(result.is_err());
    let mount_point = mount_point.unwrap();
    assert!(!mount_point.exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&format!("{} ", mount_point.display())));
}

#[test]
fn an_image_behind_an_offset_is_mounted() {
    require!(Tool("mke2fs"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").create(&image, 16 * MIB);
    let mut disk = vec![0; MIB as usize];
    disk.extend(fs::read(&image).unwrap());
    fs::write(&image, disk).unwrap();
    let options = MountOptions { offset: MIB, ..MountOptions::read_only("ext4") };
    assert!(KernelMount::new(&image, &options).path().join("lost+found").is_dir());
    let refused = KernelMount::attempt(&image, &MountOptions::read_only("ext4"));
    assert!(refused.unwrap_err().contains("wrong fs type"));
}

#[test]
fn parallel_mounts_do_not_disturb_each_other() {
    require!(Tool("mke2fs"), Mount("ext4"));
    let scratch = scratch();
    std::thread::scope(|scope| {
        for number in 0..12 {
            let image = scratch.path().join(format!("image-{number}"));
            scope.spawn(move || {
                Mke2fs::new("ext4").create(&image, 16 * MIB);
                let name = format!("of-{number}");
                populate_with_kernel(&image, "ext4", |root| {
                    fs::write(root.join(&name), "").unwrap();
                });
                let mount = KernelMount::new(&image, &MountOptions::read_only("ext4"));
                assert!(mount.path().join(&name).is_file());
            });
        }
    });
}
