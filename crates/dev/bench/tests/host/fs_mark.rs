//! Our fs_mark produces the same files as fs_mark 3.3.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench::contestant::{AnyTarget, Session};
use bench::jobs::{Context, FsMark, Job};
use bench::target::Host;
use bench::{Error, Result};
use tempfile::TempDir;
use testkit::require;

/// One loop takes much less than a second in both programs.
const RUN: FsMark =
    FsMark { threads: 2, files: 50, loops: 2, subdirectories: 3, cold: true, rename: false };
/// Names of directories in our run, one per thread.
const DIRECTORIES: [&str; 2] = ["0000", "0001"];

/// Contents of a directory.
#[derive(Debug, Default, PartialEq, Eq)]
struct DirectoryContents {
    files: usize,
    /// Length of names, their part behind the digits of the time, and file size.
    looks: BTreeSet<(usize, String, u64)>,
    /// Bytes of the random part of names.
    alphabet: BTreeSet<u8>,
    /// Timestamps in names, in seconds.
    seconds: BTreeSet<u64>,
}

/// Directories by path, relative to their common parent.
type FoundDirectories = BTreeMap<String, DirectoryContents>;

fn look(top: &Path) -> FoundDirectories {
    let mut found = FoundDirectories::new();
    let mut pending = vec![String::new()];
    while let Some(dir) = pending.pop() {
        let mut contents = DirectoryContents::default();
        for entry in fs::read_dir(top.join(&dir)).unwrap().map(std::result::Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                pending.push(format!("{dir}{name}/"));
            } else {
                assert!(metadata.is_file(), "{name}");
                contents.add(&name, metadata.len());
            }
        }
        found.insert(dir, contents);
    }
    found
}

impl DirectoryContents {
    fn add(&mut self, name: &str, size: u64) {
        let (time, rest) = name.split_at(8);
        let (filling, random) = rest.split_at(8);
        assert!(!time.contains(|c: char| c.is_ascii_uppercase()), "{name}");
        self.files += 1;
        self.looks.insert((name.len(), filling.to_owned(), size));
        self.alphabet.extend(random.bytes());
        self.seconds.insert(u64::from_str_radix(time, 16).unwrap());
    }
}

/// Returns the only second in which files were created.
#[track_caller]
fn only_second(found: &FoundDirectories) -> u64 {
    let seconds: BTreeSet<_> = found.values().flat_map(|dir| &dir.seconds).collect();
    assert_eq!(seconds.len(), 1, "{seconds:?}");
    **seconds.first().unwrap()
}

/// Removes the time of a run from names and from the subdirectory derived from it.
fn without_time(found: FoundDirectories, subdirectories: u32) -> FoundDirectories {
    let second = only_second(&found);
    let chosen = second.checked_rem(subdirectories.into()).map(|number| format!("{number:02x}/"));
    let rename = |(path, contents): (String, DirectoryContents)| {
        let path = match path.split_once('/') {
            Some((top, dir)) if chosen.as_deref() == Some(dir) => format!("{top}/chosen/"),
            _ => path,
        };
        (path, DirectoryContents { seconds: BTreeSet::new(), ..contents })
    };
    found.into_iter().map(rename).collect()
}

/// Returns the time since the start of the current second of Unix time, and that second.
fn clock() -> (Duration, u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (Duration::from_nanos(now.subsec_nanos().into()), now.as_secs())
}

/// Returns the result of fs_mark for a run within one second. In the next second it may choose
/// other subdirectories.
fn reference(job: &FsMark) -> FoundDirectories {
    let start = Instant::now();
    while start.elapsed() < testkit::HANG_AFTER {
        // Processes may see the time late, by up to a tick of the kernel's clock.
        let late = clock().0.checked_sub(Duration::from_millis(50));
        if late.is_none_or(|late| late > Duration::from_millis(300)) {
            sleep(Duration::from_millis(1060).saturating_sub(clock().0));
        }
        let dir = testkit::scratch();
        let (_, before) = clock();
        run_reference(job, dir.path());
        if clock().1 == before {
            let files = dir.path().join("files");
            let found = look(&files);
            assert_eq!(only_second(&found), before);
            return found;
        }
    }
    panic!("fs_mark did not once make 200 files within a second");
}

fn run_reference(job: &FsMark, dir: &Path) {
    let mut command = testkit::command("fs_mark");
    // It leaves a log in its directory.
    command.current_dir(dir).env("LC_ALL", "C").stdin(Stdio::null());
    command.args(["-k", "-S", "0", "-s", "0"]);
    command.args(["-n", &job.files.to_string(), "-L", &job.loops.to_string()]);
    if job.subdirectories > 0 {
        command.args(["-D", &job.subdirectories.to_string()]);
    }
    for name in DIRECTORIES {
        // A relative path: it does not accept a path of 40 bytes.
        let path = Path::new("files").join(name);
        fs::create_dir_all(dir.join(&path)).unwrap();
        command.arg("-d").arg(path);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A directory that is inspected each time caches are to be dropped.
struct Watched {
    dir: TempDir,
    host: Host,
    seen: Vec<FoundDirectories>,
}

impl Watched {
    fn new() -> Self {
        let dir = testkit::scratch();
        let host = Host::new(dir.path());
        Self { dir, host, seen: Vec::new() }
    }
}

impl Session for Watched {
    fn target(&self) -> AnyTarget<'_> {
        AnyTarget::Host(&self.host)
    }

    fn drop_caches(&mut self) -> Result<()> {
        self.seen.push(look(self.dir.path()));
        Ok(())
    }

    fn size(&self) -> u64 {
        0
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Err(Error::Unsupported("not in this test".into()))
    }
}

/// Returns the files of our run before they are removed.
fn ours(job: &FsMark) -> FoundDirectories {
    let mut session = Watched::new();
    let (stop, progress) = (AtomicBool::new(false), |_| {});
    job.run(&job.cases()[0], &mut session, &Context::new(1, &stop, &progress)).unwrap();
    // The run first checks whether caches can be dropped.
    let full = session.seen.into_iter().filter(|found| found.len() > 1);
    let [found] = <[FoundDirectories; 1]>::try_from(full.collect::<Vec<_>>()).unwrap();
    found
}

#[test]
fn files_are_those_of_fs_mark() {
    require!(Tool("fs_mark"));
    for (subdirectories, dir) in [(RUN.subdirectories, "chosen/"), (0, "")] {
        let job = FsMark { subdirectories, ..RUN };
        let theirs = without_time(reference(&job), subdirectories);
        let ours = without_time(ours(&job), subdirectories);
        assert_eq!(ours, theirs, "{subdirectories} subdirectories");
        // Exclude that both are empty, or that both differ from the request.
        for top in DIRECTORIES {
            let files = &theirs[&format!("{top}/{dir}")];
            assert_eq!((files.files, files.alphabet.len()), (100, 36), "{theirs:?}");
            assert_eq!(files.looks, BTreeSet::from([(40, "~~~~~~~~".to_owned(), 0)]));
        }
        assert_eq!(theirs.len(), if subdirectories == 0 { 3 } else { 5 });
    }
}
