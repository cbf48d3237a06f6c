//! A hundred images, created by the originals and by us: the programs' output about them is
//! compared line by line.

use std::path::Path;

use super::{done, file, home, run, run_with};

/// Maximum image size in bytes.
const EXT_BYTES: u64 = 64 << 20;
const XFS_BYTES: u64 = 320 << 20;

/// A program, its arguments before the image, and the start of lines that only the original prints.
const EXT_PROGRAMS: [(&str, &str, &str); 4] = [
    ("dumpe2fs", "", ""),
    ("tune2fs", "-l", "tune2fs "),
    ("blkid", "-p -o export", "DEVNAME="),
    ("debugfs", "-R stats", ""),
];

/// Returns all combinations of one word list each.
fn product(lists: &[&[&str]]) -> Vec<String> {
    lists.iter().fold(vec![String::new()], |starts, list| {
        let mut longer = Vec::new();
        for start in &starts {
            longer.extend(list.iter().map(|word| format!("{start} {word}")));
        }
        longer
    })
}

/// Options of both mke2fs: 36 combinations.
fn ext_options() -> Vec<String> {
    product(&[
        &["-t ext2", "-t ext3 -J size=4", "-t ext4"],
        &["-b 1024", "-b 2048 -m 0", "-b 4096 -g 4096"],
        &["-I 128 -L one", "-I 256 -U clear"],
        &["-O ^resize_inode -e panic", "-O large_file -M /srv -L a\"b\\c"],
    ])
}

/// Options of both mkfs.xfs: 14 combinations.
fn xfs_options() -> Vec<String> {
    let mut options = product(&[
        &["-b size=2048", "-b size=4096 -L label"],
        &["-i size=512", "-i size=1024,sparse=0"],
        &["-d agcount=2", "-d agcount=4", "-m rmapbt=0"],
    ]);
    options.extend(["-m reflink=0 -n size=8192".into(), "-l size=64m -i maxpct=5".into()]);
    options
}

/// Makes an image by the original or by our program.
fn make(dir: &Path, is_ours: bool, program: &str, options: &str) {
    if is_ours {
        done(dir, &format!("{program} -q {options} image"));
        return;
    }
    let mut command = testkit::command(program);
    command.current_dir(dir).env("MKE2FS_CONFIG", "none.conf").arg("-q");
    let output = command.args(options.split_whitespace()).arg("image").output().unwrap();
    assert!(output.status.success(), "{program} {options}: {output:?}");
}

/// Compares the output of a program about the image. Lines that start with `own` occur only in the
/// original.
fn compare(dir: &Path, (program, options, own): (&str, &str, &str), about: &str) {
    let arguments: Vec<&str> = match program {
        // One argument has a space.
        "debugfs" => vec!["-R", "stats", "image"],
        _ => options.split_whitespace().chain(["image"]).collect(),
    };
    let ours = run_with(dir, &format!("{program} {}", arguments.join(" ")), &[("TZ", "UTC")]);
    assert_eq!(ours.status, 0, "{about}: {ours:?}");
    let mut theirs = testkit::command(program);
    let output = theirs.current_dir(dir).env("TZ", "UTC").args(arguments).output().unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    let is_common = |line: &&str| own.is_empty() || !line.starts_with(own);
    let [mut ours, mut theirs] =
        [&ours.out, &theirs].map(|text| text.lines().filter(is_common).collect::<Vec<_>>());
    if program == "blkid" {
        // Properties have no order.
        ours.sort_unstable();
        theirs.sort_unstable();
    }
    assert_eq!(ours, theirs, "{about}: {program} {options}");
}

#[test]
fn images_of_ext_are_shown_as_by_the_originals() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("dumpe2fs"), Tool("tune2fs"));
    testkit::require!(Tool("blkid"), Tool("debugfs"));
    let home = home();
    let dir = home.path();
    for options in ext_options() {
        for is_ours in [false, true] {
            file(dir, "image", 0);
            file(dir, "image", EXT_BYTES);
            make(dir, is_ours, "mke2fs", &options);
            let about = format!("{options}, ours: {is_ours}");
            EXT_PROGRAMS.into_iter().for_each(|program| compare(dir, program, &about));
        }
    }
}

#[test]
fn images_of_xfs_are_shown_as_by_the_originals() {
    testkit::require!(Version("mkfs.xfs", 7, 0), Tool("xfs_db"), Tool("blkid"));
    let home = home();
    let dir = home.path();
    for options in xfs_options() {
        for is_ours in [false, true] {
            file(dir, "image", 0);
            file(dir, "image", XFS_BYTES);
            make(dir, is_ours, "mkfs.xfs", &options);
            let about = format!("{options}, ours: {is_ours}");
            compare(dir, ("blkid", "-p -o export", "DEVNAME="), &about);
            let mut theirs = testkit::command("xfs_db");
            let output = theirs.current_dir(dir).args(["-r", "-c", "info", "image"]).output();
            let theirs = String::from_utf8(output.unwrap().stdout).unwrap();
            let ours = run(dir, "xfs_info image");
            assert_eq!(ours.out, theirs, "{about}");
        }
    }
}
