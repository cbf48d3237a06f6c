//! Each feature switched off and on in turn.

use std::fs::File;
use std::path::{Path, PathBuf};

use testkit::{Ignore, Sample, Tree, require, scratch};

use crate::build::common::{
    build, build_command, fail, judge, judge_but, narrow_sample, same_every_time, sample_in,
    small_sample, succeed,
};

struct Fixture {
    directory: tempfile::TempDir,
    source: PathBuf,
    tree: Tree,
}

impl Fixture {
    fn new() -> Self {
        let directory = scratch();
        // Small enough for blocks of 1 KiB, too.
        let (source, tree) = sample_in(directory.path(), &small_sample(1024));
        Fixture { directory, source, tree }
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// Builds with these features in blocks of 1 and 4 KiB, and in a given size of several groups.
    /// Uses all options together or one after the other.
    fn judge_each(&self, list: &[&str]) {
        let all = ["--block-size 1K --size 600M", "--block-size 4K", "--block-size 1K"];
        for (number, features) in list.iter().enumerate() {
            let asked = testkit::effort(1, 2, all.len());
            for options in all.iter().cycle().skip(number).take(asked) {
                self.judge(features, options);
            }
        }
    }

    fn judge(&self, features: &str, options: &str) {
        build(&self.source, &self.image(), &format!("-O {features} --force {options}"));
        let superblock = testkit::debugfs(&self.image(), "show_super_stats -h");
        let line = superblock.lines().find(|line| line.starts_with("Filesystem features:"));
        let on: Vec<_> = line.unwrap().split_whitespace().skip(2).collect();
        for feature in features.split(',') {
            match feature.strip_prefix('^') {
                Some(feature) => assert!(!on.contains(&feature), "{feature} in {on:?}"),
                None => assert!(on.contains(&feature), "{feature} not in {on:?}"),
            }
        }
        judge(&self.image(), &self.tree);
    }
}

#[test]
fn without_a_journal_or_checksum_feature() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let fixture = Fixture::new();
    fixture.judge_each(&[
        "^has_journal",
        "^orphan_file",
        "^metadata_csum",
        "^metadata_csum_seed",
        "^metadata_csum,uninit_bg",
        "^metadata_csum,uninit_bg,^64bit",
    ]);
}

#[test]
fn without_a_layout_feature() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let fixture = Fixture::new();
    fixture.judge_each(&[
        "^resize_inode",
        "^64bit",
        "^flex_bg",
        "^sparse_super",
        "meta_bg",
        "meta_bg,^flex_bg",
        "sparse_super2",
        "sparse_super2,^resize_inode",
    ]);
}

#[test]
fn without_an_inode_feature() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let fixture = Fixture::new();
    let list = ["^huge_file", "^dir_nlink", "^extra_isize", "^extent,^64bit", "ea_inode"];
    fixture.judge_each(&list);
}

#[test]
fn other_directory_features() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let fixture = Fixture::new();
    let list =
        ["^dir_index", "^filetype", "large_dir", "inline_data", "inline_data,^metadata_csum"];
    fixture.judge_each(&list);
    for inode_size in [512, 1024] {
        let options = format!("-O inline_data --inode-size {inode_size} --force");
        build(&fixture.source, &fixture.image(), &options);
        judge(&fixture.image(), &fixture.tree);
    }
}

#[test]
fn features_that_are_off_by_default() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let fixture = Fixture::new();
    let list = ["bigalloc", "fast_commit", "mmp", "quota", "quota,project", "stable_inodes"];
    fixture.judge_each(&list);
    // Kernels may lack the code for these.
    for features in ["casefold", "encrypt", "casefold,encrypt,verity"] {
        build(&fixture.source, &fixture.image(), &format!("-O {features} --force"));
        testkit::e2fsck(fixture.image());
    }
}

#[test]
fn quota_files_contain_the_usage_and_are_reproducible() {
    require!(Tool("e2fsck"), Tool("debugfs"));
    let fixture = Fixture::new();
    let again = fixture.directory.path().join("again");
    for features in ["quota", "quota,project"] {
        for image in [&fixture.image(), &again] {
            let options = format!("-O {features} --force");
            let mut command = build_command(&fixture.source, image, &options);
            let output = command.env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            testkit::e2fsck(image);
        }
        assert!(std::fs::read(fixture.image()).unwrap() == std::fs::read(&again).unwrap());
        let listed = testkit::debugfs(&again, "list_quota user");
        assert!(listed.lines().count() > 2, "{listed}");
    }
}

/// The guest's kernel need not count the usage, and a build is reproducible. The library adds the same quotas to an
/// existing image.
#[test]
fn xfs_quotas_are_counted_when_they_are_built() {
    require!(Guest("XFS_QUOTA"), Tool("xfs_repair"));
    let directory = scratch();
    let sample = Sample { wide_names: 300, depth: 4, wide_times: false, ..Sample::for_xfs() };
    let (source, _) = sample_in(directory.path(), &sample);
    let [image, again] = ["image", "again"].map(|name| directory.path().join(name));
    let kinds = ["quota", "quota,metadir", "uquota,pquota,^bigtime"];
    for features in testkit::effort(&kinds[..1], &kinds[..1], &kinds[..]) {
        for image in [&image, &again] {
            let options = format!("--fs xfs -O {features} --force");
            succeed(&mut same_every_time(&source, image, &options));
            testkit::xfs_repair(image);
        }
        assert!(std::fs::read(&image).unwrap() == std::fs::read(&again).unwrap());
        assert_counted(&again, features);
    }
    build(&source, &again, "--fs xfs --force");
    let quotas = diskwright::tune::Quotas::ALL;
    diskwright::tune::add_xfs_quotas(&again, &Default::default(), quotas, None).unwrap();
    testkit::xfs_repair(&again);
    assert_counted(&again, "added");
}

/// Asserts that the guest's kernel reports usage without counting.
#[track_caller]
fn assert_counted(image: &Path, what: &str) {
    let options = if what.starts_with("uquota") { "uquota,pquota" } else { "uquota,gquota,pquota" };
    let script = format!(
        "set -e\nmount -t xfs -o nouuid,{options} $1 /mnt\n\
         xfs_quota -x -c 'report -u -b -i -n -N' /mnt\numount /mnt"
    );
    let answer = testkit::guest::run(&testkit::guest::GuestJob::new(script).disk(image, false));
    assert!(answer.status == 0, "{what}: {}\n{}", answer.output, answer.log);
    assert!(!answer.log.to_lowercase().contains("quotacheck"), "{what}: {}", answer.log);
    let used: u64 = answer
        .output
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum();
    assert!(used > 0, "{what}: {}", answer.output);
    testkit::xfs_repair(image);
}

/// The features of ext2.
#[test]
fn minimal_features() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let directory = scratch();
    let (source, tree) = sample_in(directory.path(), &narrow_sample(1024));
    let image = directory.path().join("image");
    let ext2 = "^has_journal,^extent,^64bit,^flex_bg,^metadata_csum,^extra_isize,^huge_file,\
                ^dir_nlink,^dir_index,^resize_inode";
    for options in ["--block-size 1K --inode-size 128", "--inode-size 128", "--inode-size 256"] {
        for features in [ext2, "none,ext_attr,large_file"] {
            build(&source, &image, &format!("-O {features} --force {options}"));
            judge(&image, &tree);
        }
    }
}

/// A file of 2 GiB or more needs large_file. A build without the feature must reject it.
#[test]
fn without_large_file() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let directory = scratch();
    let source = directory.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let image = directory.path().join("image");
    File::create(source.join("file")).unwrap().set_len((2 << 30) - 1).unwrap();
    for block_size in [1024, 4096] {
        build(&source, &image, &format!("-O ^large_file --block-size {block_size} --force"));
        judge(&image, &Tree::of(&source));
    }
    File::create(source.join("larger")).unwrap().set_len(2 << 30).unwrap();
    right_or_refused(&source, &image, "-O ^large_file --force", "larger");
}

/// Attributes need ext_attr.
#[test]
fn without_ext_attr() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let fixture = Fixture::new();
    let (source, image) = (&fixture.source, &fixture.image());
    right_or_refused(source, image, "-O ^ext_attr", "extended attributes");
    let without = Ignore {
        xattrs: true,
        paths: vec![b"xattrs", b"acls"],
        directory_nlink: true,
        ..Ignore::default()
    };
    for gone in ["xattrs", "acls"] {
        std::fs::remove_dir_all(source.join(gone)).unwrap();
    }
    // Removing the directories changed the root's time, so take a new snapshot.
    let tree = Tree::of(source);
    build(source, image, "-O ^ext_attr --force");
    judge_but(image, &tree, &without);
}

/// Asserts that either the image contains the whole source, or the error names the file that it
/// cannot contain.
fn right_or_refused(source: &Path, image: &Path, options: &str, file: &str) {
    let output = build_command(source, image, options).output().unwrap();
    if output.status.success() {
        return judge(image, &Tree::of(source));
    }
    let text = fail(&mut build_command(source, image, options), 4);
    assert!(text.contains(file), "{text}");
}
