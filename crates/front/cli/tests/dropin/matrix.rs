//! Combinations of options of mke2fs and mkfs.xfs, chosen at random from seeds. What the original refuses is refused.
//! Images are made, filled, and judged by our check, e2fsck or xfs_repair, and by the kernel where it mounts the image
//! of the original.

use std::fs;
use std::path::Path;

use testkit::{KernelMount, MountOptions, effort, require, scratch};

use super::run;
use crate::program::ok;

/// Features and other options of mke2fs. The first word is the letter.
const EXT4: &[&str] = &[
    "O 64bit",
    "O ^64bit",
    "O bigalloc",
    "O casefold",
    "O ^dir_index",
    "O ^dir_nlink",
    "O ea_inode",
    "O encrypt",
    "O ^ext_attr",
    "O ^extent",
    "O ^extra_isize",
    "O fast_commit",
    "O ^filetype",
    "O ^flex_bg",
    "O ^has_journal",
    "O ^huge_file",
    "O inline_data",
    "O large_dir",
    "O meta_bg",
    "O ^metadata_csum",
    "O metadata_csum_seed",
    "O orphan_file",
    "O project",
    "O quota",
    "O ^resize_inode",
    "O ^sparse_super",
    "O sparse_super2",
    "O stable_inodes",
    "O uninit_bg",
    "O verity",
    "b 1024",
    "b 2048",
    "b 4096",
    "C 16384",
    "E packed_meta_blocks=1",
    "E quotatype=usrquota:prjquota",
    "E root_owner=5:6",
    "E stride=4,stripe_width=16",
    "G 4",
    "I 128",
    "I 512",
    "J size=4",
    "N 3000",
    "e remount-ro",
    "g 8192",
    "i 8192",
    "m 0",
    "t ext2",
    "t ext3",
];

/// Options of mkfs.xfs.
const XFS: &[&str] = &[
    "b size=1024",
    "b size=2048",
    "b size=16384",
    "d agcount=3",
    "d cowextsize=8",
    "d daxinherit=1",
    "d extszinherit=8",
    "d rtinherit=1",
    "d su=64k,sw=4",
    "i exchange=0",
    "i exchange=1",
    "i maxpct=50",
    "i nrext64=0",
    "i size=1024",
    "i size=2048",
    "i sparse=0",
    "l size=80m",
    "l su=32k",
    "l sectsize=4096",
    "m autofsck=1",
    "m bigtime=0",
    "m finobt=0",
    "m inobtcount=0",
    "m metadir=1",
    "m reflink=0",
    "m rmapbt=0",
    "m uquota,pquota",
    "n ftype=0",
    "n parent=0",
    "n parent=1",
    "n size=16384",
    "n version=ci",
    "r extsize=64k",
    "r rtdev=rt",
    "r rtdev=rt,rgcount=4",
    "s size=4096",
];

/// Returns the arguments of a case: two or three options. Several of a letter are joined with commas.
fn arguments(all: &[&'static str], seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut chosen: Vec<(&str, String)> = Vec::new();
    for option in random.choose_multiple(all.iter(), random.clone().usize(2..4)) {
        let (letter, value) = option.split_once(' ').unwrap();
        match chosen.iter_mut().find(|(of, _)| *of == letter) {
            Some((_, values)) if "OEm".contains(letter) => *values += &format!(",{value}"),
            Some((_, other)) => *other = value.to_owned(),
            None => chosen.push((letter, value.to_owned())),
        }
    }
    chosen.sort_unstable();
    let words: Vec<String> =
        chosen.iter().map(|(letter, value)| format!("-{letter} {value}")).collect();
    words.join(" ")
}

/// Files of several sizes, directories, links and long names.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/deeper")).unwrap();
    for (nth, len) in [0, 1, 60, 1000, 5000, 70_000, 900_000].into_iter().enumerate() {
        fs::write(root.join(format!("file{nth}")), vec![nth as u8 + 1; len]).unwrap();
    }
    for nth in 0..150 {
        let name = format!("deep/a rather long name of entry number {nth}");
        fs::write(root.join(name), nth.to_string()).unwrap();
    }
    std::os::unix::fs::symlink("deep/deeper", root.join("short")).unwrap();
    std::os::unix::fs::symlink("x/".repeat(90), root.join("slow")).unwrap();
    fs::hard_link(root.join("file5"), root.join("deep/deeper/link")).unwrap();
}

/// Counts of outcomes.
#[derive(Debug, Default)]
struct Outcomes {
    made: u32,
    mounted: u32,
    refused: u32,
    /// Arguments that only we refuse.
    refused_here: Vec<String>,
}

/// Runs the original. Returns whether it made an image.
fn original(dir: &Path, program: &str, line: &str) -> bool {
    let mut command = testkit::command(program);
    command.env("MKE2FS_CONFIG", "none.conf").current_dir(dir);
    command.args(line.split_whitespace()).output().unwrap().status.success()
}

/// Makes an image with both programs, and fills and judges ours.
fn case(dir: &Path, xfs: bool, arguments: &str, outcomes: &mut Outcomes) {
    let has_realtime = arguments.contains("rtdev=");
    for name in ["image", "theirs", "rt"] {
        fs::remove_file(dir.join(name)).ok();
    }
    if has_realtime {
        fs::File::create(dir.join("rt")).unwrap().set_len(400 << 20).unwrap();
    }
    let (program, options, size) =
        if xfs { ("mkfs.xfs", "-q -f", 400 << 20) } else { ("mke2fs", "-q -F", 48 << 20) };
    // The type is ext4 unless another one is chosen.
    let kind = if xfs || arguments.contains("-t ") { "" } else { "-t ext4" };
    let line = |name: &str| {
        fs::File::create(dir.join(name)).unwrap().set_len(size).unwrap();
        format!("{options} {kind} {arguments} {name}")
    };
    let is_accepted = original(dir, program, &line("theirs"));
    let ours = run(dir, &format!("{program} {}", line("image")));
    match (is_accepted, ours.status) {
        (false, 0) => panic!("only {program} of others refuses {arguments}"),
        (false, _) => return outcomes.refused += 1,
        (true, 0) => outcomes.made += 1,
        (true, _) => {
            return outcomes.refused_here.push(format!("{arguments}: {}", ours.messages.trim()));
        }
    }
    let device = if has_realtime { "--rt-device rt" } else { "" };
    ok(dir, &format!("cp -r tree image:/tree {device}"));
    ok(dir, &format!("rm -r image /tree/deep/deeper {device}"));
    ok(dir, &format!("check image {device}"));
    judge(dir, xfs, has_realtime, arguments);
    let (fs_type, extra) = if xfs { ("xfs", "nouuid") } else { ("ext4", "") };
    let options = MountOptions { extra, ..MountOptions::read_only(fs_type) };
    if has_realtime || KernelMount::attempt(&dir.join("theirs"), &options).is_err() {
        return;
    }
    let mount = KernelMount::attempt(&dir.join("image"), &options);
    let mount = mount.unwrap_or_else(|error| panic!("{arguments}: {error}"));
    let found = fs::read(mount.path().join("tree/file6")).unwrap();
    assert!(found == vec![7; 900_000], "{arguments}");
    assert_eq!(fs::read_dir(mount.path().join("tree/deep")).unwrap().count(), 150, "{arguments}");
    outcomes.mounted += 1;
}

fn judge(dir: &Path, xfs: bool, has_realtime: bool, arguments: &str) {
    let mut command = testkit::command(if xfs { "xfs_repair" } else { "e2fsck" });
    match (xfs, has_realtime) {
        (true, true) => command.args(["-n", "-f", "-r", "rt", "image"]),
        (true, false) => command.args(["-n", "-f", "image"]),
        (false, _) => command.args(["-fn", "image"]),
    };
    let output = command.current_dir(dir).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // An extent tree that could be smaller is not damaged.
    assert!(output.status.success(), "{arguments}: {text}{output:?}");
}

fn judge_all(all: &[&'static str], xfs: bool, cases: u64) -> Outcomes {
    let dir = scratch();
    make_tree(&dir.path().join("tree"));
    let mut outcomes = Outcomes::default();
    let chosen = std::env::var("DISKWRIGHT_MATRIX_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = chosen.map_or(0..cases, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let arguments = arguments(all, seed);
        println!("seed {seed}: {arguments}");
        case(dir.path(), xfs, &arguments, &mut outcomes);
    }
    println!("{outcomes:#?}");
    outcomes
}

#[test]
fn combinations_of_mke2fs_are_made_or_refused_by_both() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let found = judge_all(EXT4, false, effort(12, 40, 1000));
    assert!(found.refused_here.is_empty(), "{:#?}", found.refused_here);
    assert!(found.made > 0 && found.mounted > 0, "{found:?}");
}

#[test]
fn combinations_of_mkfs_xfs_are_made_or_refused_by_both() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let found = judge_all(XFS, true, effort(12, 40, 1000));
    assert!(found.refused_here.is_empty(), "{:#?}", found.refused_here);
    assert!(found.made > 0 && found.mounted > 0, "{found:?}");
}
