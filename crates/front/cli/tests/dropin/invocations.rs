//! Invocations of e2fsprogs' programs, with the system's programs and ours on copies of one image.
//! Exit status, header, result of e2fsck, tree and length of the image must be equal.
//!
//! The names follow those of e2fsprogs' own test directories: `m_` for mke2fs, `r_` for resizing,
//! `t_` for tune2fs, `d_` for debugfs, `j_` for journals, `u_` for undo files, and `o_` for offsets
//! in names.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::callers::CONFIG;
use super::invocation_cases::{CASES, EXCEPTIONS, REFUSED};
use super::{Ended, run_with};

/// Lines of `dumpe2fs -h` with times, random values, sums of them, or choices of the programs.
///
/// Our programs write through the journal, which then has features. The original omits the overhead
/// after a resize. The owner of an MMP block is the host that wrote it last.
const CHANGING: [&str; 14] = [
    "Lifetime writes",
    "Checksum",
    "Journal checksum",
    "Journal features",
    "Journal sequence",
    "Journal start",
    "Filesystem UUID",
    "Directory Hash Seed",
    "Last write time",
    "Last checked",
    "Filesystem created",
    "Free blocks",
    "Free inodes",
    "    mmp_",
];

const VARIABLES: [(&str, &str); 3] =
    [("MKE2FS_CONFIG", "mke2fs.conf"), ("TZ", "UTC"), ("DEBUGFS_PAGER", "cat")];

/// A line of the table.
struct Case<'a> {
    name: &'a str,
    /// Arguments of mke2fs, and further steps after `;`. The original creates the image from which
    /// both start.
    start: &'a str,
    line: &'a str,
    /// Requests of debugfs.
    requests: &'a str,
}

impl<'a> Case<'a> {
    fn parse(line: &'a str) -> Self {
        let mut columns = line.split('|').map(str::trim);
        let mut next = || columns.next().unwrap_or_default();
        Self { name: next(), start: next(), line: next(), requests: next() }
    }

    fn may_differ(&self, part: &str) -> bool {
        EXCEPTIONS.iter().any(|(name, parts, _)| *name == self.name && parts.contains(&part))
    }

    /// Returns the suffix of image names, in the original's syntax for offsets.
    fn suffix(&self) -> &str {
        let word = self.line.split_whitespace().find(|word| word.contains("{}?"));
        word.map_or("", |word| word.trim_start_matches("{}"))
    }
}

fn theirs(dir: &Path, line: &str) -> Ended {
    let mut words = line.split_whitespace();
    let mut command = testkit::command(words.next().unwrap());
    let output = command.current_dir(dir).envs(VARIABLES).args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let status = output.status.code().unwrap_or(-1);
    Ended { status, out: text(&output.stdout), messages: text(&output.stderr) }
}

/// Writes requests to a file. The table separates them by commas.
fn requests(dir: &Path, text: &str) {
    fs::write(dir.join("requests"), text.replace(" , ", "\n") + "\n").unwrap();
}

/// Creates a directory with a tree of files of several kinds.
fn home() -> tempfile::TempDir {
    let home = testkit::scratch();
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("etc/deep/deeper")).unwrap();
    fs::create_dir_all(tree.join("empty")).unwrap();
    fs::write(tree.join("etc/hostname"), "box\n").unwrap();
    let big: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8 + 1).collect();
    fs::write(tree.join("big"), big).unwrap();
    fs::File::create(tree.join("hole")).unwrap().set_len(50_000).unwrap();
    std::os::unix::fs::symlink("etc/hostname", tree.join("link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(100), tree.join("slow")).unwrap();
    for number in 0..60 {
        let name = format!("etc/file-with-a-long-name-{number}");
        fs::write(tree.join(name), number.to_string()).unwrap();
    }
    fs::write(home.path().join("host"), "from the host\n").unwrap();
    let mut sparse = vec![0; 20_000];
    sparse[9_000] = 1;
    fs::write(home.path().join("sparse"), sparse).unwrap();
    fs::write(home.path().join("mke2fs.conf"), CONFIG).unwrap();
    home
}

fn start(dir: &Path, case: &Case<'_>) {
    for name in ["theirs", "ours", "theirs.undo", "ours.undo"] {
        let _ = fs::remove_file(dir.join(name));
    }
    for step in case.start.split(" ; ").map(str::trim).filter(|step| !step.is_empty()) {
        let line = if let Some(script) = step.strip_prefix("script ") {
            requests(dir, script);
            "debugfs -w -f requests theirs".to_owned()
        } else if step.starts_with('-') {
            format!("mke2fs -q -F {step}")
        } else {
            step.to_owned()
        };
        let ended = theirs(dir, &line.replace("{}", "theirs"));
        assert!(matches!(ended.status, 0 | 1), "{} {line}: {ended:?}", case.name);
    }
    if dir.join("theirs").exists() {
        fs::copy(dir.join("theirs"), dir.join("ours")).unwrap();
    }
    requests(dir, case.requests);
}

fn header(dir: &Path, image: &str) -> BTreeMap<String, String> {
    let ended = theirs(dir, &format!("dumpe2fs -h {image}"));
    let kept = |line: &&str| !CHANGING.iter().any(|name| line.starts_with(name));
    let lines = ended.out.lines().filter(kept).filter_map(|line| line.split_once(':'));
    let mut lines: BTreeMap<_, _> =
        lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    // The original omits it after a change of the size.
    lines.remove("Overhead clusters");
    lines
}

/// Path, type and permissions, owner, length and contents of each file.
type Tree = BTreeMap<String, (u32, u32, u32, u64, Vec<u8>)>;

fn tree(dir: &Path, image: &str) -> Tree {
    let out = dir.join("out");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir(&out).unwrap();
    let name = out.to_str().unwrap();
    fs::write(dir.join("dump"), format!("rdump / {name}\n")).unwrap();
    theirs(dir, &format!("debugfs -f dump {image}"));
    let mut found = Tree::new();
    let mut rest = vec![out.clone()];
    while let Some(at) = rest.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let (len, contents) = if metadata.is_dir() {
                rest.push(path.clone());
                (0, Vec::new())
            } else if metadata.is_symlink() {
                (0, fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
            } else {
                (metadata.len(), fs::read(&path).unwrap_or_default())
            };
            let path = path.strip_prefix(&out).unwrap().display().to_string();
            let owner = (metadata.mode(), metadata.uid(), metadata.gid());
            found.insert(path, (owner.0, owner.1, owner.2, len, contents));
        }
    }
    found
}

/// Returns the differences between the programs.
fn differences(dir: &Path, case: &Case<'_>) -> Vec<String> {
    start(dir, case);
    let before = fs::read(dir.join("ours")).ok();
    let ours = run_with(dir, &case.line.replace("{}", "ours"), &VARIABLES);
    if let Some((_, phrase, _)) = REFUSED.iter().find(|(name, ..)| *name == case.name) {
        let says = ours.messages.contains(phrase) && ours.messages.contains("upported");
        let is_kept = fs::read(dir.join("ours")).ok() == before;
        return match says && is_kept && ours.status == 1 {
            true => Vec::new(),
            false => vec![format!("not refused by the name {phrase}: {ours:?}")],
        };
    }
    let by_them = theirs(dir, &case.line.replace("{}", "theirs"));
    let suffix = case.suffix();
    let (a, b) = (format!("theirs{suffix}"), format!("ours{suffix}"));
    // The original leaves some feature changes to e2fsck.
    let is_left = header(dir, &a).get("Filesystem state").is_some_and(|state| state != "clean");
    if case.name.starts_with("t_") && is_left {
        theirs(dir, &format!("e2fsck -fy {a}"));
    }
    let mut found = Vec::new();
    let mut compare = |part: &str, theirs: String, ours: String| {
        if theirs != ours && !case.may_differ(part) {
            found.push(format!("{part}: theirs {theirs}, ours {ours}"));
        }
    };
    compare("status", by_them.status.to_string(), format!("{}", ours.status));
    let (left, right) = (header(dir, &a), header(dir, &b));
    let only = |one: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
        let lines = one.iter().filter(|(name, value)| other.get(*name) != Some(*value));
        format!("{:?}", lines.collect::<Vec<_>>())
    };
    compare("header", only(&left, &right), only(&right, &left));
    let check = |image: &str| theirs(dir, &format!("e2fsck -fn {image}"));
    let (left, right) = (check(&a), check(&b));
    let says = |ended: &Ended| format!("{}", ended.status);
    compare("check", says(&left), says(&right));
    let (left, right) = (tree(dir, &a), tree(dir, &b));
    let names = |one: &Tree, other: &Tree| {
        let files = one.iter().filter(|(name, file)| other.get(*name) != Some(*file));
        let shown = files.map(|(name, file)| format!("{name} {:o} {}", file.0, file.3));
        format!("{:?}", shown.collect::<Vec<_>>())
    };
    compare("tree", names(&left, &right), names(&right, &left));
    // The original leaves an empty file if it fails to create an image.
    let bytes = |image| fs::metadata(dir.join(image)).map_or(0, |file| file.len());
    let length = |image| bytes(image).to_string();
    compare("length", length("theirs"), length("ours"));
    if !found.is_empty() {
        found.push(format!("theirs: {by_them:?}\nours: {ours:?}"));
    }
    found
}

/// Runs the cases of a family; in quick mode every seventh.
fn family(prefix: &str) {
    testkit::require!(
        Version("mke2fs", 1, 47),
        Tool("dumpe2fs"),
        Tool("debugfs"),
        Tool("e2fsck"),
        Tool("resize2fs"),
        Tool("tune2fs")
    );
    let home = home();
    let cases: Vec<_> =
        CASES.lines().map(Case::parse).filter(|case| case.name.starts_with(prefix)).collect();
    assert!(cases.len() > 1, "{prefix}");
    let mut wrong = Vec::new();
    for case in cases.iter().step_by(testkit::effort(7, 1, 1)) {
        let found = differences(home.path(), case);
        if !found.is_empty() {
            wrong.push(format!("{}: {}\n  {}", case.name, case.line, found.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn mke2fs_makes_what_the_original_makes() {
    family("m_");
}

#[test]
fn resize2fs_resizes_as_the_original() {
    family("r_");
}

#[test]
fn tune2fs_tunes_as_the_original() {
    family("t_");
}

#[test]
fn debugfs_changes_what_the_original_changes() {
    family("d_");
}

#[test]
fn journals_are_replayed_as_by_the_original() {
    family("j_");
}

#[test]
fn undo_files_are_kept_or_refused() {
    family("u_");
}

/// The original's e2undo restores every byte of an image, of any block size and with an offset.
#[test]
fn e2undo_restores_changed_images() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("e2undo"), Tool("debugfs"));
    let home = home();
    let dir = home.path();
    let many = (0..300).map(|n| format!("mkdir d{n}")).collect::<Vec<_>>().join(" , ");
    for (made, damage, line, asked) in [
        ("-t ext4 -b 1024", "", "tune2fs -z undo -L name {}", ""),
        ("-t ext2 -b 1024", "", "tune2fs -z undo -j {}", ""),
        ("-t ext4 -b 4096 -O metadata_csum", "", "tune2fs -z undo -O ^metadata_csum {}", ""),
        ("-t ext4 -b 1024", "", "debugfs -w -z undo -f requests {}", &*many),
        ("-t ext4 -b 4096", "", "debugfs -w -z undo -f requests {}", "write host a , rm big"),
        ("-t ext4 -b 1024", "sif big links_count 7", "e2fsck -fy -z undo {}", ""),
        ("-t ext4 -b 4096", "clri <13> , freeb 100 50", "e2fsck -fy -z undo {}", ""),
        ("-t ext4 -E offset=1048576", "", "tune2fs -z undo -c 7 {}?offset=1048576", ""),
    ] {
        let _ = fs::remove_file(dir.join("undo"));
        let made = format!("mke2fs -q -F {made} -d tree image 32M");
        assert_eq!(theirs(dir, &made).status, 0, "{made}");
        if !damage.is_empty() {
            requests(dir, damage);
            theirs(dir, "debugfs -w -f requests image");
        }
        let before = fs::read(dir.join("image")).unwrap();
        requests(dir, asked);
        let ended = run_with(dir, &line.replace("{}", "image"), &VARIABLES);
        assert!(matches!(ended.status, 0 | 1) && ended.out.contains("e2undo undo"), "{ended:?}");
        assert!(fs::read(dir.join("image")).unwrap() != before, "{line}");
        let mode = fs::metadata(dir.join("undo")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{line}");
        let offset = if line.contains('?') { "-o 1048576 " } else { "" };
        let undone = theirs(dir, &format!("e2undo {offset}undo image"));
        assert_eq!(undone.status, 0, "{line}: {undone:?}");
        assert!(fs::read(dir.join("image")).unwrap() == before, "{line}");
    }
    // A call that changes nothing leaves no file, and an existing file is kept.
    let clean = run_with(dir, "e2fsck -z none image", &VARIABLES);
    assert!(clean.status == 0 && !dir.join("none").exists(), "{clean:?}");
    let before = fs::read(dir.join("undo")).unwrap();
    assert_ne!(run_with(dir, "tune2fs -z undo -L other image", &VARIABLES).status, 0);
    assert!(fs::read(dir.join("undo")).unwrap() == before);
}

#[test]
fn names_with_an_offset_lead_to_the_same_image() {
    family("o_");
}

/// mke2fs accepts the offset in the name, too, and resize2fs does not change the bytes before the
/// image.
#[test]
fn mke2fs_takes_an_offset_in_the_name() {
    testkit::require!(Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    let time = [("E2FSPROGS_FAKE_TIME", "1600000000")];
    let make = |line: &str| run_with(dir, line, &time);
    for (name, line) in [
        ("named", "mke2fs -q -F -t ext4 -d tree named?offset=1048576 16M"),
        ("given", "mke2fs -q -F -t ext4 -d tree -E offset=1048576 given 16M"),
        ("both", "mke2fs -q -F -t ext4 -d tree -E offset=1048576 both?offset=0x100000 16M"),
    ] {
        fs::write(dir.join(name), vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(make(line).status, 0, "{line}");
    }
    let read = |name: &str| fs::read(dir.join(name)).unwrap();
    assert!(read("named") == read("given") && read("named") == read("both"));
    let ended = make("mke2fs -q -F -t ext4 -E offset=4096 named?offset=1048576 16M");
    assert!(ended.status == 1 && ended.messages.contains("offset=4096"), "{ended:?}");
    let ended = make("resize2fs -M named?offset=1048576");
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(read("named").len() < read("given").len());
    assert!(read("named")[..1 << 20].iter().all(|byte| *byte == b'x'));
    let checked = theirs(dir, "e2fsck -fn named?offset=1048576");
    assert_eq!(checked.status, 0, "{checked:?}");
}

/// Each exception refers to a case of the table, and each rejection to a part of the page that
/// explains it.
#[test]
fn exceptions_have_their_reasons_in_the_page() {
    let names: Vec<_> = CASES.lines().map(|line| Case::parse(line).name).collect();
    assert!(names.len() >= 60, "{}", names.len());
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/dropin.md");
    let page = fs::read_to_string(page).unwrap();
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, _, reason) in EXCEPTIONS {
        assert!(names.contains(name) && words.contains(reason), "{name}: {reason}");
    }
    for (name, _, reason) in REFUSED {
        assert!(names.contains(name) && words.contains(reason), "{name}: {reason}");
    }
}
