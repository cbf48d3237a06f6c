//! Images with many features, created by the tools of the formats: comparison of free space with the tools.

use std::path::Path;
use std::process::Command;

use testkit::{Mke2fs, MkfsXfs, effort, require, scratch, xfs_db};
use vfs::survey::BlockUse;

use crate::disk_map::common::{Ledger, assert_right, open_file};

/// Type, block size, features and other options.
const EXT: [(&str, u32, &str, &str); 15] = [
    ("ext2", 1024, "", ""),
    ("ext3", 1024, "", ""),
    ("ext3", 4096, "^resize_inode", "-J size=4"),
    ("ext4", 1024, "", ""),
    ("ext4", 1024, "meta_bg,^resize_inode", ""),
    ("ext4", 2048, "^flex_bg", ""),
    ("ext4", 4096, "", "-G 4 -g 2048"),
    ("ext4", 4096, "^metadata_csum,^uninit_bg", "-g 1024"),
    ("ext4", 4096, "bigalloc", "-C 16384"),
    ("ext4", 1024, "bigalloc,ea_inode", "-C 16384"),
    ("ext4", 4096, "sparse_super2,quota,project,orphan_file", ""),
    ("ext4", 4096, "mmp,^has_journal,inline_data", "-I 512"),
    ("ext4", 4096, "^extents,^64bit,^flex_bg", "-g 4096"),
    ("ext4", 4096, "fast_commit,casefold", "-J size=4 -l bad"),
    ("ext4", 65536, "", "-N 4000"),
];

const XFS: [&str; 9] = [
    "",
    "-b size=1024 -d agcount=9",
    "-b size=65536",
    "-m crc=0 -n ftype=0",
    "-i size=2048 -m rmapbt=0,reflink=0",
    "-m rmapbt=1 -n parent=1",
    "-i sparse=0 -m finobt=0,rmapbt=0,reflink=0,bigtime=0,inobtcount=0",
    "-n size=16384 -l size=16m",
    "-d agcount=32 -s size=4096 -b size=4096",
];

/// Creates a tree with small and large files, a sparse file, symbolic links with separate blocks, and a large
/// directory.
fn make_tree(root: &Path) {
    let large = root.join("large");
    std::fs::create_dir_all(&large).unwrap();
    for number in 0..1500 {
        std::fs::write(large.join(format!("{number:060}")), vec![1; number % 40]).unwrap();
    }
    std::fs::write(root.join("file"), vec![2; 5 << 20]).unwrap();
    let mut holes = vec![0; 2 << 20];
    holes.chunks_mut(192 << 10).for_each(|part| part[0] = 1);
    std::fs::write(root.join("holes"), holes).unwrap();
    for len in [20, 59, 60, 700] {
        std::os::unix::fs::symlink("t".repeat(len), root.join(format!("link-{len}"))).unwrap();
    }
}

/// Returns the output of a program.
fn said(command: &mut Command) -> String {
    let output = command.output().expect("a program that is there");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the free blocks that dumpe2fs lists for all groups, as runs.
fn dumped(image: &Path) -> Vec<(u64, u64)> {
    let text = said(testkit::command("dumpe2fs").arg(image));
    let lists = text.lines().filter_map(|line| line.trim_start().strip_prefix("Free blocks: "));
    // The superblock's line contains a number and is not indented.
    let lists = lists.filter(|list| !list.starts_with(' '));
    let run = |run: &str| {
        let number = |text: &str| text.trim().parse::<u64>().expect("a block");
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        (number(first), number(last) - number(first) + 1)
    };
    lists.flat_map(|list| list.split(',')).filter(|r| !r.trim().is_empty()).map(run).collect()
}

#[test]
fn free_space_is_what_dumpe2fs_says_whatever_the_features() {
    require!(Tool("mke2fs"), Tool("dumpe2fs"));
    let home = scratch();
    let (image, source) = (home.path().join("image"), home.path().join("source"));
    make_tree(&source);
    std::fs::write(home.path().join("bad"), "9000\n9001\n9010\n").unwrap();
    for (fs_type, block_size, features, options) in EXT {
        let name = format!("{fs_type} {block_size} {features} {options}");
        let mut mke2fs = Mke2fs::new(fs_type).block_size(block_size).populate(&source);
        if !features.is_empty() {
            mke2fs = mke2fs.features(features);
        }
        let has_bad = options.contains("-l bad");
        let bad = home.path().join("bad");
        let options = options.replace("-l bad", &format!("-l {}", bad.display()));
        let size = if block_size == 65536 { 1 << 30 } else { 96 << 20 };
        mke2fs.arguments(options.split_whitespace()).create(&image, size);
        let fs = open_file(&image);
        let survey = assert_right(&name, &*fs);
        let mut free = Ledger::of(&name, &*fs).free_runs;
        free.sort_unstable();
        // dumpe2fs prints only the first block of the last cluster of a run.
        let cluster = options.split_whitespace().skip_while(|word| *word != "-C").nth(1);
        let cluster =
            cluster.map_or(1, |bytes| bytes.parse::<u64>().unwrap() / u64::from(block_size));
        free.iter_mut().for_each(|(_, len)| *len -= cluster - 1);
        assert_eq!(free, dumped(&image), "{name}");
        assert_eq!(survey.total(BlockUse::Bad), if has_bad { 3 } else { 0 }, "{name}");
        assert!(
            survey.total(BlockUse::Data) > 0 && survey.total(BlockUse::Directories) > 0,
            "{name}"
        );
        assert_eq!(survey.log.is_empty(), features.contains("^has_journal") || fs_type == "ext2");
    }
}

/// Returns the buckets of `xfs_db`'s histogram: minimum and maximum length, runs, blocks. It counts the blocks that
/// groups reserve for their trees as runs of one block; these are removed here.
fn freesp(image: &Path, groups: u64) -> Vec<[u64; 4]> {
    let text = xfs_db(image, &["freesp"]);
    let row = |line: &str| -> Option<[u64; 4]> {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        Some([numbers.next()??, numbers.next()??, numbers.next()??, numbers.next()??])
    };
    let mut rows: Vec<[u64; 4]> = text.lines().filter_map(row).collect();
    let kept = |ag: u64| -> u64 {
        let text = xfs_db(image, &[&format!("agf {ag}"), "print flcount"]);
        text.trim().strip_prefix("flcount = ").expect("a count").parse().expect("a count")
    };
    let kept: u64 = (0..groups).map(kept).sum();
    if let Some(ones) = rows.first_mut().filter(|row| row[0] == 1) {
        (ones[2], ones[3]) = (ones[2] - kept, ones[3] - kept);
    }
    rows.retain(|row| row[2] > 0);
    rows
}

#[test]
fn free_space_is_what_xfs_db_says_whatever_the_features() {
    require!(Tool("mkfs.xfs"), Tool("xfs_db"));
    let home = scratch();
    let (image, source) = (home.path().join("image"), home.path().join("source"));
    make_tree(&source);
    for options in XFS {
        let mkfs = MkfsXfs::default().options(options).prototype(&source);
        mkfs.create(&image, if options.contains("65536") { 2 << 30 } else { 640 << 20 });
        let fs = open_file(&image);
        let survey = assert_right(options, &*fs);
        let ours = survey.free.buckets().into_iter().filter(|bucket| bucket.count > 0);
        let ours: Vec<[u64; 4]> = ours.map(|b| [b.from, b.to, b.count, b.sum]).collect();
        let mut theirs = freesp(&image, survey.shape.groups);
        // The last bucket of xfs_db ends at the end of a group.
        if let (Some(last), Some(own)) = (theirs.last_mut(), ours.last()) {
            last[1] = own[1];
        }
        assert_eq!(ours, theirs, "{options}");
        assert!(survey.total(BlockUse::Data) > 0 && survey.total(BlockUse::Log) > 0, "{options}");
    }
}

#[test]
fn files_that_kernels_share_count_once() {
    require!(Tool("mkfs.xfs"), Mount("xfs"));
    let home = scratch();
    let image = home.path().join("image");
    MkfsXfs::default().create(&image, 320 << 20);
    let copies = effort(5, 20, 200);
    testkit::populate_with_kernel(&image, "xfs", |root| {
        let file = root.join("file");
        std::fs::write(&file, vec![7; 1 << 20]).unwrap();
        for copy in 0..copies {
            let to = root.join(format!("copy-{copy}"));
            said(Command::new("cp").arg("--reflink=always").args([&file, &to]));
            let mut bytes = std::fs::read(&to).unwrap();
            bytes.truncate(4096 * (copy + 1));
            use std::os::unix::fs::FileExt;
            let to = std::fs::File::options().write(true).open(&to).unwrap();
            // Blocks in the middle are no longer shared by the copy.
            to.write_all_at(&[8; 8192], 4096 * 3 * copy as u64 % (1 << 20)).unwrap();
        }
    });
    let survey = assert_right("reflinks", &*open_file(&image));
    assert!(survey.total(BlockUse::Shared) > 0);
    // Blocks that are no longer shared.
    assert!(survey.total(BlockUse::Data) >= 2 * copies as u64);
    assert_eq!(survey.files.files, copies as u64 + 1);
}

#[test]
fn each_block_is_counted_once_after_any_change() {
    require!(Tool("mke2fs"), Mount("ext4"), Tool("mkfs.xfs"), Mount("xfs"));
    let home = scratch();
    let image = home.path().join("image");
    Mke2fs::new("ext4").block_size(1024).create(&image, 32 << 20);
    churn(&image, "ext4");
    Mke2fs::new("ext4").features("bigalloc").arguments(["-C", "16384"]).create(&image, 64 << 20);
    churn(&image, "ext4");
    Mke2fs::new("ext3").block_size(1024).create(&image, 32 << 20);
    churn(&image, "ext3");
    MkfsXfs::default().options("-b size=1024").create(&image, 320 << 20);
    churn(&image, "xfs");
}

/// Lets the kernel write alternately into files, punch holes and allocate, to fragment them.
fn churn(image: &Path, fs_type: &str) {
    use std::os::unix::fs::FileExt;
    let rounds = effort(150, 600, 3000);
    testkit::populate_with_kernel(image, fs_type, |root| {
        let open = |name: &str| {
            let mut options = std::fs::File::options();
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(root.join(name))
                .unwrap()
        };
        let files = ["a", "b", "c", "d"].map(open);
        let mut random = 12_345_u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for round in 0..rounds {
            let file = &files[next(4) as usize];
            let at = next(4000) * 1024;
            match next(8) {
                0 if fs_type != "ext3" => punch(file, at, next(64) * 1024 + 1024),
                1 => file.set_len(at).unwrap(),
                _ => file
                    .write_all_at(&vec![round as u8; 1024 * (1 + next(4) as usize)], at)
                    .unwrap(),
            }
            if round % 16 == 0 {
                file.sync_all().unwrap();
            }
        }
        for number in 0..rounds {
            std::fs::write(root.join(format!("{number:0200}")), b"small").unwrap();
        }
    });
    let fs = open_file(image);
    let survey = assert_right(fs_type, &*fs);
    assert!(survey.files.files_fragmented >= 3, "{fs_type}");
    let worst = &survey.files.worst;
    assert!(worst.windows(2).all(|pair| pair[0].fragments >= pair[1].fragments));
    assert!(worst.iter().all(|file| file.path.is_some()), "{worst:?}");
    assert!(worst.len() <= 10);
}

fn punch(file: &std::fs::File, at: u64, len: u64) {
    use rustix::fs::{FallocateFlags, fallocate};
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len).unwrap();
    fallocate(file, FallocateFlags::KEEP_SIZE, at + (4 << 20), len).unwrap();
}
