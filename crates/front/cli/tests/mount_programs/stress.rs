//! Many threads that change their own files in shared directories. Each thread keeps the expected
//! contents of its files. Some names are contested by all threads, and the winners are counted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use fastrand::Rng;
use rustix::fs::{CWD, FallocateFlags, RenameFlags, XattrFlags};
use rustix::fs::{copy_file_range, fallocate, getxattr, renameat_with, setxattr};

use crate::place::probe::{map, pattern};
use crate::place::{Place, has_compiler, prove_on_both};

const WORKERS: u64 = 6;
const FILES_MAX: usize = 40;
const BYTES_MAX: u64 = 300_000;

/// Number of names that all threads create and remove.
const CONTESTED: usize = 8;

/// Expected state of a file.
#[derive(Clone, Default)]
struct StressModel {
    contents: Vec<u8>,
    attribute: Option<Vec<u8>>,
    /// All names of the file, at least one.
    names: Vec<PathBuf>,
}

struct Worker<'a> {
    root: &'a Path,
    number: u64,
    random: Rng,
    files: Vec<StressModel>,
    next_name: u64,
    /// Number of existing entries for each contested name.
    contested: &'a [AtomicI64],
}

/// Returns a directory: one of two shared ones, or the worker's own.
fn directory(root: &Path, worker: u64, choice: usize) -> PathBuf {
    root.join(match choice {
        0 | 1 => format!("shared {choice}"),
        _ => format!("of {worker}"),
    })
}

impl Worker<'_> {
    fn new_name(&mut self) -> PathBuf {
        self.next_name += 1;
        let padding = "long ".repeat(self.random.usize(..30));
        let name = format!("{} {padding}{}", self.number, self.next_name);
        directory(self.root, self.number, self.random.usize(..3)).join(name)
    }

    fn step(&mut self) {
        if self.files.len() < 3 || (self.files.len() < FILES_MAX && self.random.u8(..8) == 0) {
            return self.create();
        }
        let at = self.random.usize(..self.files.len());
        match self.random.u8(..20) {
            0..=3 => self.write(at),
            4 => self.truncate(at),
            5 => self.punch(at),
            6 => self.map(at),
            7 => self.copy(at),
            8 | 9 => self.rename(at),
            10 => self.replace(at),
            11 => self.exchange(at),
            12 => self.link(at),
            13 | 14 => self.unlink(at),
            15 => self.set_attribute(at),
            16 => self.sync(at),
            17 => self.contest(),
            18 => self.publish(),
            _ => check(&self.files[at]),
        }
    }

    fn range(&mut self, end: u64) -> (u64, u64) {
        let offset = self.random.u64(..=end);
        (offset, self.random.u64(1..40_000).min(BYTES_MAX - offset.min(BYTES_MAX - 1)))
    }

    fn open(&self, at: usize) -> File {
        File::options().read(true).write(true).open(&self.files[at].names[0]).unwrap()
    }

    fn create(&mut self) {
        let name = self.new_name();
        let contents = pattern(self.random.u64(..), 0, self.random.u64(..50_000));
        File::create_new(&name).unwrap().write_all_at(&contents, 0).unwrap();
        self.files.push(StressModel { contents, attribute: None, names: vec![name] });
    }

    fn write(&mut self, at: usize) {
        let end = self.files[at].contents.len() as u64 + 5000;
        let (offset, len) = self.range(end.min(BYTES_MAX));
        let bytes = pattern(self.random.u64(..), offset, len);
        self.open(at).write_all_at(&bytes, offset).unwrap();
        let contents = &mut self.files[at].contents;
        contents.resize(contents.len().max((offset + len) as usize), 0);
        contents[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
    }

    fn truncate(&mut self, at: usize) {
        let len = self.random.u64(..BYTES_MAX);
        self.open(at).set_len(len).unwrap();
        self.files[at].contents.resize(len as usize, 0);
    }

    fn punch(&mut self, at: usize) {
        let end = self.files[at].contents.len();
        let (offset, len) = self.range(end as u64);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.open(at), flags, offset, len).unwrap();
        let range = offset as usize..end.min((offset + len) as usize);
        self.files[at].contents[range].fill(0);
    }

    /// By another process.
    fn map(&mut self, at: usize) {
        let end = self.files[at].contents.len() as u64;
        if end == 0 {
            return;
        }
        let offset = self.random.u64(..end);
        let (len, seed) = (self.random.u64(1..=end - offset), self.random.u64(..));
        map(&self.files[at].names[0], offset, len, seed, self.random.u8(..4) == 0);
        let range = offset as usize..(offset + len) as usize;
        self.files[at].contents[range].copy_from_slice(&pattern(seed, offset, len));
    }

    fn copy(&mut self, at: usize) {
        let to = self.random.usize(..self.files.len());
        let len = self.files[at].contents.len();
        let offset = self.random.u64(..BYTES_MAX / 2);
        if to == at || len == 0 {
            return;
        }
        let (source, target) = (self.open(at), self.open(to));
        let mut done = 0;
        while done < len {
            let (mut from, mut into) = (done as u64, offset + done as u64);
            done += copy_file_range(&source, Some(&mut from), &target, Some(&mut into), len - done)
                .unwrap();
        }
        let bytes = self.files[at].contents.clone();
        let contents = &mut self.files[to].contents;
        contents.resize(contents.len().max(offset as usize + len), 0);
        contents[offset as usize..offset as usize + len].copy_from_slice(&bytes);
    }

    fn rename(&mut self, at: usize) {
        let name = self.new_name();
        let which = self.random.usize(..self.files[at].names.len());
        fs::rename(&self.files[at].names[which], &name).unwrap();
        self.files[at].names[which] = name;
    }

    /// Renames over another file, whose last name this may have been.
    fn replace(&mut self, at: usize) {
        let over = self.random.usize(..self.files.len());
        if over == at {
            return;
        }
        let from = self.files[at].names.remove(0);
        let to = self.files[over].names.remove(0);
        fs::rename(from, &to).unwrap();
        self.files[at].names.push(to);
        self.files.retain(|file| !file.names.is_empty());
    }

    fn exchange(&mut self, at: usize) {
        let with = self.random.usize(..self.files.len());
        if with == at {
            return;
        }
        let (a, b) = (self.files[at].names[0].clone(), self.files[with].names[0].clone());
        renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
        self.files[at].names[0] = b;
        self.files[with].names[0] = a;
    }

    fn link(&mut self, at: usize) {
        let name = self.new_name();
        fs::hard_link(&self.files[at].names[0], &name).unwrap();
        self.files[at].names.push(name);
    }

    /// Sometimes with the file open, whose contents must not change.
    fn unlink(&mut self, at: usize) {
        let open = self.random.bool().then(|| self.open(at));
        let name = self.files[at].names.pop().unwrap();
        fs::remove_file(name).unwrap();
        if let Some(open) = open {
            let mut found = vec![0; self.files[at].contents.len()];
            open.read_exact_at(&mut found, 0).unwrap();
            assert!(found == self.files[at].contents);
            assert_eq!(open.metadata().unwrap().nlink(), self.files[at].names.len() as u64);
        }
        if self.files[at].names.is_empty() {
            self.files.swap_remove(at);
        }
    }

    fn set_attribute(&mut self, at: usize) {
        let value = pattern(self.random.u64(..), 0, self.random.u64(..2000));
        setxattr(&self.files[at].names[0], "user.proof", &value, XattrFlags::empty()).unwrap();
        self.files[at].attribute = Some(value);
    }

    fn sync(&mut self, at: usize) {
        let file = self.open(at);
        if self.random.bool() { file.sync_all() } else { file.sync_data() }.unwrap();
    }

    /// Exactly one thread succeeds in creating a name, and exactly one in removing it.
    fn contest(&mut self) {
        let which = self.random.usize(..CONTESTED);
        let path = self.root.join(format!("shared 0/contested {which}"));
        if self.random.bool() {
            match File::create_new(&path) {
                Ok(_) => drop(self.contested[which].fetch_add(1, Ordering::SeqCst)),
                Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists),
            }
        } else {
            match fs::remove_file(&path) {
                Ok(()) => drop(self.contested[which].fetch_sub(1, Ordering::SeqCst)),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
            }
        }
    }

    /// Replaces a file that all threads read: readers see one complete version.
    fn publish(&mut self) {
        let seed = self.random.u64(..);
        let mut bytes = seed.to_le_bytes().to_vec();
        bytes.extend(pattern(seed, 0, 1000 + seed % 20_000));
        let temporary = self.root.join(format!("shared 1/version of {}", self.number));
        fs::write(&temporary, bytes).unwrap();
        let published = self.root.join("shared 1/published");
        fs::rename(temporary, &published).unwrap();
        check_published(&published);
    }
}

fn check_published(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let seed = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes[8..] == pattern(seed, 0, 1000 + seed % 20_000), "a mixed version");
}

/// Compares a file with its expected state.
fn check(file: &StressModel) {
    for name in &file.names {
        let found = fs::read(name).unwrap();
        let differs = found.iter().zip(&file.contents).position(|(a, b)| a != b);
        let lens = (found.len(), file.contents.len());
        assert!(found == file.contents, "{}: {lens:?}, first at {differs:?}", name.display());
    }
    let name = &file.names[0];
    assert_eq!(fs::metadata(name).unwrap().nlink(), file.names.len() as u64, "{}", name.display());
    let mut value = vec![0; 4096];
    let found = getxattr(name, "user.proof", &mut value[..]).ok().map(|len| value[..len].to_vec());
    assert!(found == file.attribute, "{}: attribute", name.display());
}

/// Asserts that exactly the expected names exist.
fn check_names(root: &Path, files: &[Vec<StressModel>], contested: &[AtomicI64]) {
    let mut found = BTreeMap::new();
    let directories = (0..WORKERS).map(|worker| directory(root, worker, 2));
    for path in directories.chain([directory(root, 0, 0), directory(root, 0, 1)]) {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if name.starts_with(|c: char| c.is_ascii_digit()) {
                found.insert(path, ());
            }
        }
    }
    let names = files.iter().flatten().flat_map(|file| &file.names);
    let expected: BTreeMap<_, _> = names.map(|name| (name.clone(), ())).collect();
    assert!(found == expected, "{} names instead of {}", found.len(), expected.len());
    for (which, count) in contested.iter().enumerate() {
        let exists = root.join(format!("shared 0/contested {which}")).exists();
        assert_eq!(count.load(Ordering::SeqCst), i64::from(exists), "contested {which}");
    }
}

fn threads_change_a_tree(place: &mut Place) {
    if !has_compiler("threads_change_a_tree") {
        return;
    }
    let root = place.path().to_owned();
    for worker in 0..WORKERS {
        for choice in 0..3 {
            fs::create_dir_all(directory(&root, worker, choice)).unwrap();
        }
    }
    let contested: Vec<_> = (0..CONTESTED).map(|_| AtomicI64::new(0)).collect();
    let files: Vec<Vec<StressModel>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let random = Rng::with_seed(1000 + number);
                let mut worker = Worker {
                    root: &root,
                    number,
                    random,
                    files: Vec::new(),
                    next_name: 0,
                    contested: &contested,
                };
                scope.spawn(move || {
                    (0..testkit::effort(1_000, 3_000, 100_000)).for_each(|_| worker.step());
                    worker.files
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    files.iter().flatten().for_each(check);
    check_names(&root, &files, &contested);
    place.remount();
    // The image now has another mount point.
    let moved = |path: &PathBuf| place.path().join(path.strip_prefix(&root).unwrap());
    let files: Vec<Vec<StressModel>> = files
        .into_iter()
        .map(|files| {
            let moved = |file: StressModel| StressModel {
                names: file.names.iter().map(moved).collect(),
                ..file
            };
            files.into_iter().map(moved).collect()
        })
        .collect();
    files.iter().flatten().for_each(check);
    check_names(place.path(), &files, &contested);
    check_published(&place.join("shared 1/published"));
}

prove_on_both!(threads_change_a_tree);
