//! Conversion of old formats to new ones, and changes of size.

use std::fs;
use std::path::Path;

use ::diskwright::{Details, Image, ImageInfo};
use testkit::{Ignore, Tree, XfsSample, require, scratch};

use super::common::{convert, files};
use crate::build::common::{
    build, build_command, common_sample, judge, judge_but, mount, narrow_sample, sample_in, succeed,
};
use crate::program::diskwright;

fn info(image: &Path) -> ImageInfo {
    Image::open(image).unwrap().info().unwrap()
}

#[test]
fn ext2_and_ext3_become_ext4() {
    require!(Tool("e2fsck"), Mount("ext4"), Root);
    let directory = scratch();
    let home = directory.path();
    let (source, _) = sample_in(home, &narrow_sample(1024));
    let (old, new) = (home.join("old.img"), home.join("new.img"));
    let ext2 = "--inode-size 128 -O none,filetype,sparse_super,large_file,ext_attr,dir_index";
    for (features, format) in [("", "ext2"), (",has_journal", "ext3")] {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let size = "--size 200M --block-size 1K --force";
        build(&source, &old, &format!("{ext2}{features} {size} --label old --uuid {uuid}"));
        let before = info(&old);
        assert_eq!(before.format_name(), format);
        let tree = Tree::of(mount(&old).path());
        succeed(&mut convert(&old, &new, "--keep-uuid --force"));
        let after = info(&new);
        assert_eq!(
            (after.format_name(), &*after.label_text(), &*after.uuid_text()),
            ("ext4", "old", uuid)
        );
        assert_eq!(fs::metadata(&new).unwrap().len(), 200 << 20);
        judge_but(&new, &tree, &Ignore::default());
    }
}

#[test]
fn xfs_of_version_4_becomes_version_5() {
    let sample = XfsSample::named("6.1-v4-ftype-2k");
    require!(Tool(sample.program), Tool("xfs_repair"));
    let directory = scratch();
    let home = directory.path();
    let (old, new, work) = (home.join("old.img"), home.join("new.img"), home.join("work"));
    fs::create_dir(&work).unwrap();
    sample.create(&old, &work);
    succeed(&mut convert(&old, &new, ""));
    testkit::judge(&new);
    let before = files(&old);
    let mut after = files(&new);
    assert!(before.len() > 10 && before.values().all(|file| file.crtime.is_none()));
    after.values_mut().for_each(|file| file.crtime = None);
    assert_eq!(before, after);
    let version = |image: &Path| {
        let Details::Xfs(details) = info(image).details else { panic!("not XFS") };
        details.features.version
    };
    assert_eq!((version(&old), version(&new)), (4, 5));
    let advertises = |image: &Path| {
        let text = succeed(diskwright().arg("info").arg(image));
        String::from_utf8_lossy(&text.stdout).contains("diskwright convert")
    };
    assert!(advertises(&old) && !advertises(&new));
}

#[test]
fn xfs_shrinks_and_a_partition_is_a_source() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let home = directory.path();
    let (source, tree) = sample_in(home, &common_sample());
    let (old, new, disk) = (home.join("old.img"), home.join("new.img"), home.join("disk"));
    build(&source, &old, "--fs xfs --size 1G");
    succeed(&mut convert(&old, &new, "--size min --small"));
    assert!(fs::metadata(&new).unwrap().len() < 200 << 20);
    judge(&new, &tree);
    let sizes = |options: &str, expected: u64| {
        succeed(convert(&new, &old, options).arg("--force"));
        assert_eq!(fs::metadata(&old).unwrap().len(), expected, "{options}");
    };
    let small = fs::metadata(&new).unwrap().len();
    sizes("--size 600M", 600 << 20);
    sizes("", small);
    // In place, with a larger size.
    let listed = files(&new);
    succeed(&mut convert(&new, &new, "--size 500M --force"));
    assert_eq!(files(&new), listed);
    judge(&new, &tree);
    // In a partition.
    let mut table = vec![0; 512];
    table[450] = 0x83;
    table[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    table[458..462].copy_from_slice(&1_048_576_u32.to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::write(&disk, table).unwrap();
    fs::OpenOptions::new().write(true).open(&disk).unwrap().set_len(600 << 20).unwrap();
    let mut dd = testkit::command("dd");
    let (from, to) = (format!("if={}", new.display()), format!("of={}", disk.display()));
    succeed(dd.args([from, to]).args(["bs=1M", "seek=1", "conv=notrunc,sparse", "status=none"]));
    succeed(&mut convert(&disk, &old, "--partition 1 --size min --small --force"));
    judge(&old, &tree);
    let named = format!("image:{}:1", disk.display());
    succeed(&mut build_command(Path::new(&named), &old, "--force"));
    judge(&old, &tree);
}

#[test]
fn large_attributes_of_xfs_get_inodes_of_their_own() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let directory = scratch();
    let home = directory.path();
    let source = home.join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "x").unwrap();
    let (xfs, ext4, back) = (home.join("x.img"), home.join("e.img"), home.join("b.img"));
    build(&source, &xfs, "--fs xfs --small");
    let value = "v".repeat(20_000);
    let mut command = diskwright();
    succeed(command.args(["setfattr", "-n", "user.large", "-v", &value]).arg(&xfs).arg("/file"));
    let expected = files(&xfs);
    for (from, to, options) in [(&xfs, &ext4, "--fs ext4"), (&ext4, &back, "--fs xfs --small")] {
        succeed(&mut convert(from, to, options));
        testkit::judge(to);
        assert_eq!(files(to), expected);
    }
    let features = info(&ext4).features();
    assert!(features.iter().any(|group| group.names.iter().any(|name| name == "ea_inode")));
}
