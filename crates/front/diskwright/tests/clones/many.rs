//! Many clones of one base in one process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use diskwright::Image;
use diskwright::clones::{CommitOptions, ResetTarget, clone, commit, reset, snapshot};
use diskwright::fs::{Ext4Options, FormatOptions, XfsOptions};

use crate::images::FORMATS;

/// Size of the base: small, because each clone is committed.
const BASE_BYTES: u64 = 40 << 20;

/// Maximum growth of this process for an open clone, in bytes. Other tests run at the same time.
const BYTES_EACH_MAX: u64 = 2 << 20;

fn make_base(format: &str, path: &Path) {
    let options: FormatOptions = match format {
        "ext4" => Ext4Options::new().into(),
        _ => XfsOptions::new().allow_small(true).into(),
    };
    let image = Image::create(path, BASE_BYTES, options).unwrap();
    image.create_dir("etc").unwrap();
    for number in 0..50 {
        image.write(&*format!("etc/file-{number}"), format!("{number}\n")).unwrap();
    }
    image.write("etc/hostname", "base\n").unwrap();
    image.write("data", vec![7; 300_000]).unwrap();
    image.close().unwrap();
}

/// Paths with contents, which directories do not have.
type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn tree(image: &Image) -> Contents {
    let mut files = Contents::new();
    for entry in image.walk("/") {
        let entry = entry.unwrap();
        let is_file = entry.metadata().is_file();
        let contents = if is_file { image.read(entry.path()).unwrap() } else { Vec::new() };
        files.insert(entry.path().to_vec(), contents);
    }
    files
}

/// Names and contents that step `step` writes to clone `number`, and the name that it removes.
fn changes(number: usize, step: usize) -> ([(String, Vec<u8>); 2], String) {
    let name = format!("clone {number} step {step}\n").into_bytes();
    let new = (format!("new-{step}-{number}"), vec![number as u8; 5000 + number]);
    let removed = format!("etc/file-{}", (number + step * 25) % 50);
    ([("etc/hostname".into(), name), new], removed)
}

fn change(image: &Image, number: usize, step: usize) {
    let (written, removed) = changes(number, step);
    for (name, contents) in written {
        image.write(&*name, contents).unwrap();
    }
    image.remove_file(&*removed).unwrap();
}

/// Applies the changes of a step to the expected contents.
fn expect(contents: &mut Contents, number: usize, step: usize) {
    let (written, removed) = changes(number, step);
    let path = |name: String| format!("/{name}").into_bytes();
    contents.extend(written.map(|(name, bytes)| (path(name), bytes)));
    assert!(contents.remove(&path(removed)).is_some());
}

/// Resident memory of this process in bytes, and the number of its open files.
fn use_of_process() -> (u64, usize) {
    let memory = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = memory.split(' ').nth(1).unwrap().parse().unwrap();
    (pages * 4096, fs::read_dir("/proc/self/fd").unwrap().count())
}

/// Opens all clones at once, changes them, and returns them.
fn change_all(names: &[PathBuf], step: usize) {
    let (memory, files) = use_of_process();
    let mut open = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let image = Image::open_writable(name).unwrap();
        change(&image, number, step);
        open.push(image);
    }
    let (memory_now, files_now) = use_of_process();
    let each = memory_now.saturating_sub(memory) / names.len() as u64;
    assert!(each < BYTES_EACH_MAX, "{each} bytes for each open clone");
    // One for each clone, and one for the base and each snapshot.
    let files_each = files_now.saturating_sub(files) as f64 / names.len() as f64;
    let few = files_each < step as f64 + 0.3 || names.len() < 500;
    assert!(few, "{files_each} open files for each open clone");
    eprintln!("{} open clones: {each} bytes and {files_each:.2} files each", names.len());
    open.into_iter().for_each(|image| image.close().unwrap());
}

/// Commits a clone and returns its tree. An external program judges some.
fn committed(dir: &Path, clone: &Path, is_judged: bool) -> Contents {
    let result = dir.join("committed");
    commit(&CommitOptions::new(clone, &result).force(true), &mut |_| ()).unwrap();
    if is_judged {
        testkit::judge(&result);
    }
    tree(&Image::open(&result).unwrap())
}

#[test]
fn many_clones_change_apart_and_keep_their_snapshots() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let count = testkit::effort(30, 60, 1000);
    for format in FORMATS {
        let dir = testkit::scratch();
        let (dir, base) = (dir.path(), dir.path().join("base"));
        make_base(format, &base);
        let before = testkit::digest(&base);
        let name = |kind: &'static str| move |number| dir.join(format!("{kind}.{number}"));
        let clones: Vec<PathBuf> = (0..count).map(name("clone")).collect();
        let snapshots: Vec<PathBuf> = (0..count).map(name("snapshot")).collect();
        clone(&base, &clones, None).unwrap();
        change_all(&clones, 1);
        for (clone, name) in clones.iter().zip(&snapshots) {
            snapshot(clone, name).unwrap();
        }
        change_all(&clones, 2);
        let unchanged = tree(&Image::open(&base).unwrap());
        for (number, clone) in clones.iter().enumerate() {
            let mut first = unchanged.clone();
            expect(&mut first, number, 1);
            let mut second = first.clone();
            expect(&mut second, number, 2);
            let is_judged = number % (count / 10) == 0;
            assert!(committed(dir, clone, is_judged) == second, "{format}: clone {number}");
            assert!(committed(dir, &snapshots[number], false) == first, "snapshot {number}");
            reset(clone, if number % 2 == 0 { &ResetTarget::Last } else { &ResetTarget::Base })
                .unwrap();
        }
        for (number, clone) in clones.iter().enumerate() {
            let image = Image::open(clone).unwrap();
            let mut expected = unchanged.clone();
            if number % 2 == 0 {
                expect(&mut expected, number, 1);
            }
            assert!(tree(&image) == expected, "{format}: clone {number} after its reset");
        }
        assert_eq!(testkit::digest(&base), before, "{format}: the base is changed");
    }
}

#[test]
fn names_that_exist_leave_no_clone() {
    let dir = testkit::scratch();
    let base = dir.path().join("base");
    make_base("ext4", &base);
    let mut names: Vec<PathBuf> = (0..200).map(|n| dir.path().join(format!("c{n}"))).collect();
    fs::write(&names[170], "precious").unwrap();
    assert!(clone(&base, &names, None).unwrap_err().to_string().contains("exists"));
    let taken = names.remove(170);
    assert!(names.iter().all(|name| !name.exists()));
    assert_eq!(fs::read(taken).unwrap(), b"precious");
    clone(&base, &names, None).unwrap();
    assert_eq!(Image::open(&names[198]).unwrap().read("etc/hostname").unwrap(), b"base\n");
}
