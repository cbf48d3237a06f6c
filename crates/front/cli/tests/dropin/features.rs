//! Features that `tune2fs` switches on and off. The result has the same header fields as with the
//! original, passes e2fsck, and shows the kernel the same files.

use std::fs;
use std::path::Path;

use testkit::{KernelMount, MountOptions};

use super::{contents, done, home, run};

/// Arguments of mke2fs and of tune2fs.
struct FeatureCase {
    make: &'static str,
    tune: &'static str,
}

const fn case(make: &'static str, tune: &'static str) -> FeatureCase {
    FeatureCase { make, tune }
}

/// Requests that the original executes, partly by a following e2fsck.
const CASES: [FeatureCase; 46] = [
    case("-t ext2", "-j"),
    case("-t ext2 -b 4096", "-O has_journal"),
    case("-t ext2", "-J size=2"),
    case("-t ext4 -O ^has_journal", "-j"),
    case("-t ext4 -O ^has_journal", "-J size=4,location=20m"),
    case("-t ext4 -O ^has_journal -b 4096", "-j -J location=5000"),
    case("-t ext4 -O ^has_journal", "-J size=4,fast_commit_size=512 -O fast_commit"),
    case("-t ext4 -O ^has_journal,^orphan_file", "-O has_journal,orphan_file"),
    case("-t ext4", "-O ^has_journal,^orphan_file"),
    case("-t ext3", "-O ^has_journal"),
    case("-t ext4", "-O fast_commit"),
    case("-t ext4 -O ^orphan_file", "-O orphan_file"),
    case("-t ext4 -O ^orphan_file", "-O orphan_file -E orphan_file_size=64"),
    case("-t ext4 -O orphan_file", "-O ^orphan_file"),
    case("-t ext4 -O orphan_file", "-E orphan_file_size=64"),
    case("-t ext4", "-O quota"),
    case("-t ext4", "-Q usrquota"),
    case("-t ext3", "-Q grpquota"),
    case("-t ext4", "-Q prjquota"),
    case("-t ext4", "-O project,quota -Q prjquota"),
    case("-t ext4", "-O project"),
    case("-t ext4 -O quota", "-O ^quota"),
    case("-t ext4 -O quota", "-Q ^usrquota"),
    case("-t ext4 -O quota", "-Q ^usrquota,^grpquota"),
    case("-t ext4 -O quota,project", "-O ^project"),
    case("-t ext4 -O quota,project", "-O ^quota"),
    case("-t ext4", "-O ^metadata_csum"),
    case("-t ext4 -O metadata_csum_seed", "-O ^metadata_csum"),
    case("-t ext4 -O metadata_csum_seed", "-O ^metadata_csum_seed"),
    case("-t ext4 -O ^metadata_csum", "-O metadata_csum"),
    case("-t ext4 -O ^metadata_csum,uninit_bg -b 4096", "-O metadata_csum"),
    case("-t ext3", "-O metadata_csum"),
    case("-t ext4 -O ^metadata_csum,uninit_bg", "-O ^uninit_bg"),
    case("-t ext3", "-O uninit_bg"),
    case("-t ext3", "-O extents,uninit_bg,dir_index,has_journal"),
    case("-t ext4", "-O ^resize_inode"),
    case("-t ext4", "-O encrypt,verity,stable_inodes"),
    case("-t ext4", "-O casefold"),
    case("-t ext4", "-E encoding=utf8,encoding_flags=strict"),
    case("-t ext4 -O casefold", "-O ^casefold"),
    case("-t ext2 -O ^sparse_super,^resize_inode", "-O sparse_super"),
    case("-t ext4", "-O ^huge_file,^dir_nlink,^extra_isize"),
    case("-t ext4 -O ^flex_bg,^extra_isize,^dir_nlink", "-O flex_bg,extra_isize,dir_nlink"),
    case("-t ext4", "-O mmp"),
    case("-t ext4 -O ^metadata_csum_seed", "-O metadata_csum_seed"),
    case("-t ext4", "-E mmp_update_interval=7,force_fsck"),
];

/// Lines of `tune2fs -l` with a time, a count of bytes written, or a checksum over them.
const CHANGING: [&str; 5] =
    ["Lifetime writes", "Checksum:", "Last write time", "Last checked", "MMP block number"];

fn theirs(dir: &Path, line: &str) -> (i32, String) {
    let mut words = line.split_whitespace();
    let mut command = testkit::command(words.next().unwrap());
    let output = command.current_dir(dir).env("TZ", "UTC").args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), format!("{text}{messages}"))
}

fn fields(dir: &Path, image: &str) -> Vec<String> {
    let (status, text) = theirs(dir, &format!("tune2fs -l {image}"));
    assert_eq!(status, 0, "{text}");
    let is_kept = |line: &&str| !CHANGING.iter().any(|name| line.starts_with(name));
    text.lines().filter(is_kept).map(str::to_owned).collect()
}

/// Creates an image with the original, with files and a directory large enough for an index.
fn make(dir: &Path, arguments: &str) {
    let _ = fs::remove_file(dir.join("theirs"));
    let (status, text) = theirs(dir, &format!("mke2fs -q -F {arguments} -d tree theirs 64M"));
    assert_eq!(status, 0, "{arguments}: {text}");
    // Create indexes, and correct quota usage.
    let (status, text) = theirs(dir, "e2fsck -fyD theirs");
    assert!(matches!(status, 0 | 1), "{arguments}: {text}");
    fs::copy(dir.join("theirs"), dir.join("ours")).unwrap();
}

#[test]
fn features_come_and_go_as_by_the_original() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("tune2fs"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    for FeatureCase { make: made, tune } in CASES {
        let what = format!("mke2fs {made}, tune2fs {tune}");
        make(dir, made);
        let (status, text) = theirs(dir, &format!("tune2fs {tune} theirs"));
        assert_eq!(status, 0, "{what}: {text}");
        // The original leaves some changes to e2fsck.
        let left = if tune.contains("force_fsck") { 0 } else { theirs(dir, "e2fsck -fy theirs").0 };
        assert!(matches!(left, 0 | 1), "{what}");
        let ended = run(dir, &format!("tune2fs {tune} ours"));
        assert_eq!(ended.status, 0, "{what}: {ended:?}");
        if !tune.contains("force_fsck") {
            let (status, text) = theirs(dir, "e2fsck -fn ours");
            assert_eq!(status, 0, "{what}: {text}");
        }
        assert_eq!(fields(dir, "ours"), fields(dir, "theirs"), "{what}");
        assert_eq!(contents(dir, "ours", "/etc/file-7"), "7", "{what}");
        assert_eq!(run(dir, "e2fsck -fn ours").status, 0, "{what}");
        // A second identical request changes nothing.
        let before = fs::read(dir.join("ours")).unwrap();
        let is_refused = run(dir, &format!("tune2fs {tune} ours")).status != 0;
        let makes_again = tune.contains("orphan_file_size");
        assert!(makes_again || fs::read(dir.join("ours")).unwrap() == before, "{what}");
        assert_eq!(is_refused, tune.contains("-j") || tune.contains("-J"), "{what}");
    }
}

/// Returns the names after `-O` in a request.
fn features_of(tune: &str) -> impl Iterator<Item = &str> {
    let mut words = tune.split(' ');
    let list = words.find(|word| *word == "-O").and_then(|_| words.next());
    list.into_iter().flat_map(|list| list.split(',')).map(|name| match name {
        "extents" => "extent",
        name => name,
    })
}

#[test]
fn listed_features_are_those_that_change() {
    let home = home();
    let listed = done(home.path(), "tune2fs --supported");
    let is_listed = |name: &str| listed.lines().any(|line| line.strip_prefix("-O ") == Some(name));
    for name in CASES.iter().flat_map(|case| features_of(case.tune)) {
        assert!(is_listed(name), "{name}");
    }
    for name in ["64bit", "^64bit", "meta_bg", "bigalloc", "inline_data", "^flex_bg", "^extent"] {
        assert!(!is_listed(name), "{name}");
        let with_it = name.trim_start_matches('^');
        let before = if name.starts_with('^') { with_it } else { &format!("^{name}") };
        done(home.path(), &format!("mke2fs -q -F -t ext4 -O {before} image 16M"));
        let ended = run(home.path(), &format!("tune2fs -O {name} image"));
        assert!(ended.status == 1 && ended.messages.contains(with_it), "{name}: {ended:?}");
    }
    assert!(!is_listed("needs_recovery") && is_listed("^resize_inode"));
}

/// Checksums depend on the UUID: all of them are rewritten.
#[test]
fn a_new_uuid_rewrites_all_checksums() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("tune2fs"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    for options in ["-U random", "-U clear -O quota", "-U random -O ^orphan_file"] {
        make(dir, "-t ext4 -O metadata_csum,^metadata_csum_seed");
        let before = fields(dir, "ours");
        done(dir, &format!("tune2fs {options} ours"));
        assert_ne!(fields(dir, "ours"), before, "{options}");
        let (status, text) = theirs(dir, "e2fsck -fn ours");
        assert_eq!(status, 0, "{options}: {text}");
        assert_eq!(contents(dir, "ours", "/etc/file-7"), "7", "{options}");
    }
}

/// Full directory blocks have no room for checksums: names move to other blocks.
#[test]
fn full_directories_get_room_for_checksums() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    // Names of 248 bytes take 256 bytes: four fill a block of 1 KiB.
    for number in 0..400 {
        fs::create_dir_all(dir.join("tree/full")).unwrap();
        fs::write(dir.join(format!("tree/full/{number:0>248}")), "").unwrap();
    }
    for made in ["-t ext4 -b 1024 -O ^metadata_csum", "-t ext3 -b 1024 -O ^dir_index"] {
        make(dir, made);
        done(dir, "tune2fs -O metadata_csum ours");
        let (status, text) = theirs(dir, "e2fsck -fn ours");
        assert_eq!(status, 0, "{made}: {text}");
        assert_eq!(contents(dir, "ours", &format!("/full/{:0>248}", 399)), "", "{made}");
        done(dir, "tune2fs -O ^metadata_csum ours");
        let (status, text) = theirs(dir, "e2fsck -fn ours");
        assert_eq!(status, 0, "{made}: {text}");
    }
}

#[test]
fn kernels_show_the_same_files_after_a_change_of_features() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("e2fsck"), Tool("diff"), Root);
    let home = home();
    let dir = home.path();
    // Some kernels have no quota support and mount such an image only read-only.
    for (made, tune) in [
        ("-t ext2", "-O has_journal,extents,uninit_bg"),
        ("-t ext4 -O orphan_file", "-O ^has_journal"),
        ("-t ext4", "-O quota -Q usrquota,grpquota,prjquota"),
        ("-t ext4 -O ^metadata_csum", "-O metadata_csum"),
        ("-t ext4", "-O ^metadata_csum,^resize_inode"),
        ("-t ext4 -O ^orphan_file", "-O orphan_file,fast_commit -U random"),
    ] {
        let what = format!("mke2fs {made}, tune2fs {tune}");
        make(dir, made);
        done(dir, &format!("tune2fs {tune} ours"));
        let is_read_only = tune.contains("quota");
        let options = if is_read_only { MountOptions::read_only } else { MountOptions::read_write };
        let mount = KernelMount::new(dir.join("ours"), &options("ext4"));
        let mut diff = testkit::command("diff");
        let diff = diff.args(["-r", "--no-dereference", "-x", "lost+found"]);
        let diff = diff.arg(dir.join("tree")).arg(mount.path()).output().unwrap();
        assert!(diff.status.success(), "{what}: {}", String::from_utf8_lossy(&diff.stdout));
        for number in 0..if is_read_only { 0 } else { 100 } {
            fs::write(mount.path().join(format!("etc/new-{number}")), "new").unwrap();
        }
        mount.unmount();
        let (status, text) = theirs(dir, "e2fsck -fn ours");
        assert_eq!(status, 0, "{what}: {text}");
    }
}

/// Requests without the features that they need, and requests that would lose data.
#[test]
fn requests_that_cannot_be_met_change_nothing() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("tune2fs"));
    let home = home();
    let dir = home.path();
    for (made, tune) in [
        ("-t ext4", "-j"),
        ("-t ext4", "-J size=8"),
        ("-t ext2", "-J size=100000"),
        ("-t ext2", "-J size=40"),
        ("-t ext4 -O ^has_journal,^orphan_file", "-O orphan_file"),
        ("-t ext4 -O ^orphan_file", "-E orphan_file_size=1000000"),
        ("-t ext4 -I 128", "-O project"),
        ("-t ext4", "-O ^flex_bg"),
        ("-t ext4", "-O ^extent"),
        ("-t ext4", "-O resize_inode,^ext_attr"),
        ("-t ext4 -O ^resize_inode", "-O resize_inode"),
        ("-t ext4", "-O bigalloc"),
        ("-t ext4", "-O inline_data"),
        ("-t ext4", "-O meta_bg"),
        ("-t ext4 -O stable_inodes", "-O ^stable_inodes"),
        ("-t ext4", "-E clear_mmp"),
    ] {
        let what = format!("mke2fs {made}, tune2fs {tune}");
        make(dir, made);
        let before = fs::read(dir.join("ours")).unwrap();
        let ended = run(dir, &format!("tune2fs {tune} ours"));
        assert_eq!(ended.status, 1, "{what}: {ended:?}");
        assert!(!ended.messages.is_empty(), "{what}");
        assert!(fs::read(dir.join("ours")).unwrap() == before, "{what}");
        let (status, text) = theirs(dir, &format!("tune2fs {tune} theirs"));
        assert_ne!(status, 0, "{what}: {text}");
    }
    // Without a request both print their usage.
    assert_eq!(run(dir, "tune2fs ours").status, theirs(dir, "tune2fs theirs").0);
    assert_eq!(run(dir, "tune2fs none").status, theirs(dir, "tune2fs none").0);
}

/// resize2fs and debugfs can remove mmp, unless another host uses the image.
#[test]
fn mmp_goes_unless_another_host_uses_the_image() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("e2fsck"), Tool("debugfs"));
    let home = home();
    let dir = home.path();
    make(dir, "-t ext4 -O mmp,^metadata_csum");
    let block = theirs(dir, "tune2fs -l ours").1;
    let block = block.lines().find_map(|line| line.strip_prefix("MMP block number:")).unwrap();
    let offset = block.trim().parse::<u64>().unwrap() * 1024;
    // Sequence number of a host that is checking the image. The number of another use could be that of a host that has
    // crashed, for which programs wait.
    let image = fs::File::options().write(true).open(dir.join("ours")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &[0x50, 0x4d, 0x4d, 0xe2], offset + 4)
        .unwrap();
    for refused in ["-O ^mmp", "-L label", "-E clear_mmp"] {
        let ended = run(dir, &format!("tune2fs {refused} ours"));
        assert_eq!(ended.status, 1, "{refused}: {ended:?}");
    }
    done(dir, "tune2fs -f -E clear_mmp ours");
    done(dir, "tune2fs -O ^mmp ours");
    let (status, text) = theirs(dir, "e2fsck -fn ours");
    assert_eq!(status, 0, "{text}");
    done(dir, "resize2fs ours 40M");
}
