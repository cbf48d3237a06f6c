//! Every suboption of mkfs.xfs(8) works like in the original or is rejected by its name. Geometries
//! are compared with those of the original, line by line.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Ended, done, file, home, run, run_with};

/// Size of the image file in bytes.
const BYTES: u64 = 400 << 20;

/// Options for which both programs produce the same geometry.
const SAME: &[&str] = &[
    "",
    "-b size=2048",
    "-b size=65536",
    "-c options=file",
    "-c defaults=file -d agcount=5",
    "-c defaults=empty,options=file",
    "-d agcount=3",
    "-d agsize=100m",
    "-d cowextsize=0",
    "-d cowextsize=8",
    "-d daxinherit=1",
    "-d extszinherit=8",
    "-d projinherit=1",
    "-d rtinherit=1",
    "-d daxinherit=0",
    "-d extszinherit=0",
    "-d file,size=400m",
    "-d file=0",
    "-d noalign",
    "-d projinherit=0",
    "-d rtinherit=0",
    "-d sectsize=1024",
    "-d size=310m",
    "-d su=0,sw=0",
    "-d su=4k,sw=3,agcount=4",
    "-d agcount=5",
    "-d agcount=6",
    "-d su=64k,sw=1,agcount=4 -l su=32k",
    "-d su=64k,sw=4,agcount=4",
    "-d su=64k,sw=4,agcount=3 -b size=1024",
    "-d su=512k,sw=2,agcount=2",
    "-d sunit=128,swidth=512,agcount=3",
    "-d sunit=0,swidth=0",
    "-f",
    "-i align=1",
    "-i attr=2",
    "-i exchange=0",
    "-i max_atomic_write=64k",
    "-i max_atomic_write=1m -d agcount=3",
    "-i max_atomic_write=16m",
    "-i max_atomic_write=64k -b size=1024",
    "-i maxpct=50",
    "-i nrext64=0",
    "-i perblock=4",
    "-i projid32bit=1",
    "-i size=1024",
    "-i sparse=0",
    "-K",
    "-l file",
    "-l file=1,size=64m",
    "-l agnum=0",
    "-l agnum=1",
    "-l internal",
    "-l internal=1",
    "-l lazy-count=1",
    "-l logdev=other",
    "-f -l name=other,size=64m",
    "-l sectsize=512",
    "-l size=64m",
    "-l su=256k",
    "-l su=32k",
    "-l su=4096",
    "-l sunit=64",
    "-l version=2",
    "-L label",
    "-m autofsck=0",
    "-m autofsck=none",
    "-m autofsck=repair",
    "-m metadir=1",
    "-m uquota,gqnoenforce",
    "-m bigtime=0",
    "-m crc=1",
    "-m finobt=0",
    "-m gqnoenforce=0",
    "-m gquota=0",
    "-m inobtcount=0",
    "-m metadir=0",
    "-m pqnoenforce=0",
    "-m pquota=0",
    "-m reflink=0",
    "-m rmapbt=0",
    "-m uqnoenforce=0",
    "-m uquota=0",
    "-m uuid=0a28e812-3747-40bc-8194-e08e509097d0",
    "-N",
    "-n ftype=1",
    "-n parent=0",
    "-n size=8192",
    "-n version=2",
    "-n version=ci",
    "-p file=protofile",
    "-p slashes,slashes_are_spaces=1",
    "-p file=tree",
    "-p tree",
    "-p tree,atime=0",
    "-p tree,atime=1",
    "-q",
    "-r concurrency=2",
    "-r extsize=4096",
    "-r extsize=64k",
    "-m metadir=1 -r extsize=64k",
    "-r file",
    "-m metadir=1 -r rgsize=64m",
    "-m metadir=1 -r rgsize=65m",
    "-f -m metadir=1 -r rtdev=other",
    "-f -m metadir=1 -r rtdev=other,size=50m",
    "-f -m metadir=1 -r rtdev=other,size=17416k,extsize=28k",
    "-f -m metadir=1 -r rtdev=other -l logdev=log",
    "-f -m rmapbt=1 -r rtdev=other",
    "-f -m reflink=1 -r rtdev=other",
    "-r noalign",
    "-f -r name=other,extsize=64k",
    "-r reserved=0",
    "-f -r rtdev=other",
    "-f -r rtdev=other,size=50m -d rtinherit",
    "-r rgsize=64m",
    "-f -m metadir=1 -r rtdev=other,rgcount=3",
    "-f -m metadir=1 -r rtdev=other,rgsize=16m,size=50m",
    "-f -m metadir=1,rmapbt=0 -r rtdev=other,rgsize=32m,extsize=16k -d rtinherit",
    "-r zoned=0",
    "-s size=1024",
    "-s size=4096 -l sunit=8",
    "--unsupported",
    "--unsupported -d size=40m",
];

/// Options that both accept, without a comparison of the geometry. The original's depends on the
/// number of processors, and small logs with stripes are slightly larger here.
const TAKEN: &[&str] = &[
    "-d concurrency=2",
    "-l concurrency=2",
    "-V",
    "--unsupported -d size=64m -l su=4k",
    "--unsupported -d size=200m -l su=256k",
    "--unsupported -d size=40m -b size=1024 -l su=3k",
];

/// Options that both reject.
const WRONG: &[&str] = &[
    "-b log=12",
    "-b size=3000",
    "-c options=absent",
    "-c options=wrong",
    "-c options=file -d agcount=4",
    "-c file",
    "-d agcount=0",
    "-d agcount=1",
    "-d agcount=3,agcount=3",
    "-d agcount=3,agsize=100m",
    "-d agsize=400m",
    "-d agcount=7",
    "-d agcount=8",
    "-d su=64k,sw=4",
    "-d su=4k,sw=1",
    "-d size=300m,su=64k,sw=4",
    "-d size=320m,agcount=5",
    "-d max_atomic_write=4k",
    "-i max_atomic_write=0",
    "-i max_atomic_write=3k",
    "-i max_atomic_write=2k",
    "-i max_atomic_write=1g",
    "-i max_atomic_write=64k -m reflink=0",
    "-c makecfg",
    "-l size=20m",
    "-l size=63m",
    "-l logdev=other,size=20m",
    "-d name=other",
    "-d size=1g",
    "-d size=200m",
    "-d su=64k",
    "-d su=64k,sw=0",
    "-d su=64k,sw=2,sunit=128,swidth=256",
    "-d sunit=128,swidth=500",
    "-d sunit=128",
    "-i align=0",
    "-i attr=1",
    "-i projid32bit=0",
    "-i size=100",
    "-l agnum=9",
    "-l internal=0,logdev=other",
    "-l internal=0",
    "-l lazy-count=0",
    "-l sectsize=4096",
    "-l size=67112960 -l su=32k",
    "-l su=5000",
    "-l su=512k",
    "-l sunit=0",
    "-l version=1",
    "-L thirteen-bytes",
    "-m finobt=0,inobtcount=1",
    "-n ftype=0",
    "-n size=3000",
    "-p absent",
    "-p file=tree -p tree",
    "-p tree,atime=2",
    "-r rgcount=0",
    "-r extsize=3k",
    "-m metadir=1 -r rgsize=4k",
    "-m metadir=1 -r rgcount=2",
    "-f -m metadir=1 -r rtdev=other,rgcount=2,rgsize=32m",
    "-f -m metadir=1 -r rtdev=other,rgsize=4k",
    "-r size=0",
    "-r start=0",
    "-r start=8",
    "-s size=100",
    "--sparkles",
];

/// Options that only the original accepts, with the words of our error, which name them.
const REFUSED: &[(&str, &str)] = &[("-m crc=0", "-m crc"), ("-r zoned=1", "-r zoned")];

fn prepare() -> tempfile::TempDir {
    let home = home();
    let dir = home.path();
    for (name, text) in [
        ("file", "# Three groups.\n[metadata]\nrmapbt = 0\n\n[Data]\nagcount: 3 ; of three\n"),
        ("empty", ""),
        ("wrong", "[data]\nsparkles=1\n"),
        ("protofile", "/boot 0 0 d--755 0 0 ab ---644 0 0 file $\n"),
        ("slashes", "/boot 0 0 d--755 0 0 a/b ---644 0 0 file $\n"),
    ] {
        fs::write(dir.join(name), text).unwrap();
    }
    file(dir, "other", 100 << 20);
    file(dir, "log", 80 << 20);
    home
}

/// Runs our program on a new file.
fn ours(dir: &Path, options: &str) -> Ended {
    file(dir, "image", BYTES);
    run(dir, &format!("mkfs.xfs {options} image"))
}

fn theirs(dir: &Path, options: &str) -> (i32, String) {
    file(dir, "image", BYTES);
    let mut mkfs = testkit::command("mkfs.xfs");
    let output = mkfs.current_dir(dir).args(options.split_whitespace()).arg("image").output();
    let output = output.unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn theirs_says(dir: &Path, image: &str) -> String {
    let mut command = testkit::command("xfs_db");
    let output = command.current_dir(dir).args(["-r", "-c", "info", image]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the value of `autofsck` that an image has.
fn autofsck(dir: &Path) -> String {
    let mut command = testkit::command("xfs_db");
    let commands = ["-x", "-r", "-c", "path /", "-c", "attr_get -r xfs:autofsck", "image"];
    let output = command.current_dir(dir).args(commands).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn images_are_repaired_automatically_as_those_of_mkfs_xfs() {
    testkit::require!(Version("mkfs.xfs", 7, 0), Tool("xfs_db"), Tool("xfs_repair"));
    let home = prepare();
    let dir = home.path();
    let mut values = std::collections::BTreeSet::new();
    for options in [
        "",
        "-m rmapbt=0",
        "-n parent=0",
        "-m metadir=1",
        "-m autofsck=none",
        "-m autofsck=check,rmapbt=0",
        "-p tree",
    ] {
        let ended = ours(dir, options);
        assert_eq!(ended.status, 0, "{options}: {ended:?}");
        testkit::xfs_repair(dir.join("image"));
        let known = autofsck(dir);
        let (status, said) = theirs(dir, options);
        assert_eq!(status, 0, "{options}: {said}");
        assert_eq!(known, autofsck(dir), "{options}");
        values.insert(known);
    }
    assert_eq!(values.len(), 4, "{values:?}");
}

#[test]
fn each_suboption_makes_the_geometry_of_mkfs_xfs() {
    testkit::require!(Version("mkfs.xfs", 7, 0), Tool("xfs_db"), Tool("xfs_repair"));
    let home = prepare();
    let dir = home.path();
    for options in SAME {
        let ended = ours(dir, options);
        assert_eq!(ended.status, 0, "{options}: {ended:?}");
        let is_made = *options != "-N";
        let bytes = fs::metadata(dir.join("image")).unwrap().len();
        let known = done_if(is_made, dir, "xfs_info image");
        if options.contains("su") || options.contains("file") {
            testkit::xfs_repair(dir.join("image"));
        }
        let (status, said) = theirs(dir, options);
        assert_eq!(status, 0, "{options}: {said}");
        // The original prints more about some features.
        let is_line = |line: &&str| !line.ends_with("will not be supported by future versions.");
        // Groups that all start on one disk: advice of three lines.
        let advice = if said.starts_with("Warning: AG size is a multiple") { 3 } else { 0 };
        let said: Vec<_> = said.lines().skip(advice).filter(is_line).collect();
        assert_eq!(ended.out.lines().collect::<Vec<_>>(), said, "{options}");
        assert_eq!(bytes, fs::metadata(dir.join("image")).unwrap().len(), "{options}");
        if is_made {
            assert_eq!(known, theirs_says(dir, "image"), "{options}");
        }
    }
    for options in TAKEN {
        let ended = ours(dir, options);
        assert_eq!(ended.status, 0, "{options}: {ended:?}");
        if *options != "-V" {
            testkit::xfs_repair(dir.join("image"));
        }
        let log = |said: &str| {
            let blocks =
                said.lines().find_map(|line| line.strip_prefix("log ")?.split_once("blocks="));
            blocks.map_or(0, |(_, rest)| rest.split(',').next().unwrap().parse::<u32>().unwrap())
        };
        let (status, said) = theirs(dir, options);
        assert_eq!(status, 0, "{options}: {said}");
        let is_machine = options.contains("concurrency");
        assert!(is_machine || log(&ended.out) >= log(&said), "{options}: {ended:?}, {said}");
    }
}

fn done_if(is_to_run: bool, dir: &Path, line: &str) -> String {
    if is_to_run { done(dir, line) } else { String::new() }
}

#[test]
fn suboptions_are_refused_by_name_and_change_nothing() {
    testkit::require!(Version("mkfs.xfs", 7, 0));
    let home = prepare();
    let dir = home.path();
    for options in WRONG {
        let ended = ours(dir, options);
        assert_eq!(ended.status, 1, "{options}: {ended:?}");
        assert!(!ended.messages.is_empty(), "{options}");
        assert_eq!(fs::metadata(dir.join("image")).unwrap().blocks(), 0, "{options}");
        assert_eq!(theirs(dir, options).0, 1, "{options}");
    }
    for (options, words) in REFUSED {
        let ended = ours(dir, options);
        assert_eq!(ended.status, 1, "{options}: {ended:?}");
        assert!(ended.messages.contains(words), "{options}: {ended:?}");
        assert!(ended.messages.contains("not supported"), "{options}: {ended:?}");
        assert!(!dir.join("made").exists());
    }
}

/// Each suboption in the usage text of the original is in one of the tables.
#[test]
fn no_suboption_is_forgotten() {
    testkit::require!(Version("mkfs.xfs", 7, 0));
    let output = testkit::command("mkfs.xfs").output().unwrap();
    let usage = String::from_utf8(output.stderr).unwrap();
    let refused = REFUSED.iter().map(|(options, _)| options);
    let tables: Vec<&str> = SAME.iter().chain(TAKEN).chain(WRONG).chain(refused).copied().collect();
    let (mut letter, mut count) = (' ', 0);
    for line in usage.lines().filter(|line| line.starts_with("/*") || line.starts_with('\t')) {
        let list = match line.split_once("[-") {
            Some((_, rest)) => {
                letter = rest.chars().next().unwrap();
                &rest[1..]
            }
            None => line,
        };
        let separators = |c: char| "[](),|".contains(c) || c.is_whitespace();
        for word in list.split(separators).filter(|word| !word.is_empty()) {
            let name = word.split('=').next().unwrap();
            let is_value = word.chars().all(|c| c.is_ascii_digit()) || matches!(name, "ci" | "xxx");
            let is_text = "Lpq".contains(letter) && !word.contains('=')
                || matches!(name, "devicename" | "maximum");
            if is_value || is_text {
                continue;
            }
            let is_there = tables.iter().any(|options| {
                let mut words = options.split(' ');
                words.any(|word| word == format!("-{letter}"))
                    && options.split([' ', ',']).any(|word| word.split('=').next() == Some(name))
            });
            assert!(is_there, "-{letter} {name} of {line}");
            count += 1;
        }
    }
    assert!(count > 60, "{count} of {usage}");
}

#[test]
fn small_file_systems_are_made_for_tests_only() {
    let home = home();
    let dir = home.path();
    file(dir, "image", 64 << 20);
    let ended = run(dir, "mkfs.xfs image");
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(ended.messages.contains("Filesystem must be larger than 300MiB."), "{ended:?}");
    assert!(ended.messages.contains("--unsupported") && !ended.messages.contains("--small"));
    let variables = [("TEST_DIR", "1"), ("TEST_DEV", "1"), ("QA_CHECK_FS", "1")];
    assert_eq!(run_with(dir, "mkfs.xfs image", &variables[..2]).status, 1);
    let ended = run_with(dir, "mkfs.xfs image", &variables);
    assert_eq!(ended.status, 0, "{ended:?}");
    let ended = run(dir, "mkfs.xfs -f --unsupported image");
    let said = "Filesystems formatted with --unsupported are not supported!!";
    assert!(ended.status == 0 && ended.out.contains(said), "{ended:?}");
    // Without a superblock copy, no file system is made.
    file(dir, "tiny", 20 << 20);
    for line in ["mkfs.xfs -d agcount=1 -d file,size=1g tiny", "mkfs.xfs --unsupported tiny"] {
        let ended = run(dir, line);
        assert_eq!(ended.status, 1, "{line}: {ended:?}");
        let phrase = "must have at least 2 superblocks for redundancy!";
        assert!(ended.messages.contains(phrase), "{line}: {ended:?}");
    }
    testkit::require!(Tool("xfs_repair"));
    testkit::xfs_repair(dir.join("image"));
}

#[test]
fn files_keep_their_times_of_access_if_asked_for() {
    let home = home();
    let dir = home.path();
    for (options, accessed) in
        [("tree", 1_100_000_000), ("tree,atime=0", 1_100_000_000), ("tree,atime=1", 1_000_000_000)]
    {
        file(dir, "image", BYTES);
        // Reading the file changes the time.
        let touched = fs::File::open(dir.join("tree/etc/file-1")).unwrap();
        let at = |seconds| std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let times =
            fs::FileTimes::new().set_accessed(at(1_000_000_000)).set_modified(at(1_100_000_000));
        touched.set_times(times).unwrap();
        done(dir, &format!("mkfs.xfs -q -p {options} image"));
        let image = diskwright::fs::Image::open(dir.join("image")).unwrap();
        let found = image.metadata("/etc/file-1").unwrap();
        assert_eq!((found.atime().sec, found.mtime().sec), (accessed, 1_100_000_000), "{options}");
    }
}

/// Both write the same file, and no file system.
#[test]
fn options_are_written_to_the_file_of_the_original() {
    testkit::require!(Version("mkfs.xfs", 7, 0));
    let home = prepare();
    let dir = home.path();
    for options in [
        "",
        "-m autofsck=0",
        "-m rmapbt=0",
        "-m uquota,gqnoenforce",
        "-m finobt=0 -d agcount=3",
        "-n version=ci,size=8192 -b size=1024",
        "-i sparse=0,size=1024 -r extsize=64k -l size=100m -d su=64k,sw=2,agcount=2",
        "-r rtdev=other",
        "-m metadir=1 -r rtdev=other",
        "-c options=file",
    ] {
        let options = format!("-f -c makecfg=made {options}");
        let ended = ours(dir, &options);
        assert_eq!(ended.status, 0, "{options}: {ended:?}");
        let made = fs::read_to_string(dir.join("made")).unwrap();
        assert_eq!(fs::metadata(dir.join("image")).unwrap().blocks(), 0, "{options}");
        fs::remove_file(dir.join("made")).unwrap();
        let (status, said) = theirs(dir, &options);
        assert_eq!(status, 0, "{options}: {said}");
        assert_eq!(made, fs::read_to_string(dir.join("made")).unwrap(), "{options}");
        // The file has the same effect as the options that it contains.
        let ended = ours(dir, "-f -c defaults=made");
        assert_eq!(ended.status, 0, "{options}: {ended:?}");
    }
}

/// Images of the original, also with features that ours does not support.
#[test]
fn xfs_info_prints_the_lines_of_the_original() {
    testkit::require!(Version("mkfs.xfs", 7, 0), Tool("xfs_db"));
    let home = home();
    let dir = home.path();
    file(dir, "other", 100 << 20);
    for options in [
        "-m crc=0",
        "-m crc=0 -l version=1,lazy-count=0 -i attr=1,projid32bit=0 -n ftype=0 -d size=350m",
        "-m crc=0 -i attr=0",
        "-m metadir=1 -r rtdev=other",
        "-m rmapbt=0,reflink=0 -r rtdev=other,extsize=64k",
        "-l logdev=other -d su=64k,sw=2",
        "-d su=4k,sw=3 -l size=40m --unsupported",
        "-b size=1024 -n size=16384,version=ci -i maxpct=3",
        "-s size=4096 -b size=8192 -i size=2048",
        "-i sparse=0,nrext64=0,exchange=0 -n parent=0 -m finobt=0,bigtime=0",
        "-d agcount=5 -m inobtcount=0,autofsck=1 -L label",
    ] {
        let (status, said) = theirs(dir, &format!("-f {options}"));
        assert_eq!(status, 0, "{options}: {said}");
        assert_eq!(done(dir, "xfs_info image"), theirs_says(dir, "image"), "{options}");
    }
}

#[test]
fn realtime_sections_grow_with_their_device() {
    testkit::require!(Tool("xfs_repair"));
    let home = home();
    let dir = home.path();
    file(dir, "image", BYTES);
    file(dir, "other", 100 << 20);
    done(dir, "mkfs.xfs -q -m metadir=1 -r rtdev=other,size=50m,rgsize=16m image");
    let said = done(dir, "xfs_growfs -r -R 20000 --rt-device other image");
    assert!(said.ends_with("realtime blocks changed from 12800 to 20000\n"), "{said}");
    let said = done(dir, "xfs_growfs -r --rt-device other image");
    assert!(said.ends_with("realtime blocks changed from 20000 to 25600\n"), "{said}");
    let said = done(dir, "xfs_growfs -r --rt-device other image");
    assert!(said.ends_with("realtime size unchanged, skipping\n"), "{said}");
    done(dir, "xfs_repair -n -r other image");
    let Ended { status, messages, .. } = run(dir, "xfs_growfs -r image");
    assert_eq!(status, 1, "{messages}");
    assert!(messages.contains("--rt-device"), "{messages}");
    let mut theirs = testkit::command("xfs_repair");
    let theirs = theirs.current_dir(dir).args(["-n", "-f", "-r", "other", "image"]);
    assert!(theirs.output().unwrap().status.success());
}
