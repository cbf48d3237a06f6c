//! Unnamed files: unlinked while open, and created without a name.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, statvfs};
use rustix::io::Errno;

use crate::place::probe::pattern;
use crate::place::{Place, prove_on_both};

const BYTES: u64 = 8 << 20;

/// Returns the free bytes after all freed space is counted.
fn free(place: &Place) -> u64 {
    rustix::fs::syncfs(File::open(place.path()).unwrap()).unwrap();
    let found = statvfs(place.path()).unwrap();
    found.f_bfree * found.f_frsize
}

/// An unlinked open file works like any other, and its space is freed on the last close.
fn open_files_outlive_their_names(place: &mut Place) {
    let before = free(place);
    let path = place.join("file");
    let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    file.write_all(&pattern(1, 0, BYTES / 2)).unwrap();
    let second = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(&pattern(1, BYTES / 2, BYTES / 2)).unwrap();
    file.sync_all().unwrap();
    // A new file of the same name is another file.
    fs::write(&path, "new").unwrap();
    let mut found = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut found).unwrap();
    assert!(found == pattern(1, 0, BYTES));
    file.set_len(BYTES / 4).unwrap();
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    rustix::fs::fsetxattr(&file, "user.x", b"y", rustix::fs::XattrFlags::empty()).unwrap();
    drop(file);
    assert!(before - free(place) >= BYTES / 4, "it is still there");
    let mut found = vec![0; BYTES as usize / 4];
    second.read_exact_at(&mut found, 0).unwrap();
    assert!(found == pattern(1, 0, BYTES / 4));
    drop(second);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    // The kernel sends RELEASE some time after the close.
    crate::place::wait_until("space to come back", || before - free(place) < BYTES / 8);
}

/// A directory removed while in use remains a directory in which nothing can be created.
fn removed_directories_stay_open(place: &mut Place) {
    fs::create_dir(place.join("directory")).unwrap();
    let directory = File::open(place.join("directory")).unwrap();
    fs::remove_dir(place.join("directory")).unwrap();
    assert_eq!(directory.metadata().unwrap().nlink(), 0);
    let made = openat(
        &directory,
        "x",
        OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::from(0o600),
    );
    assert_eq!(made.unwrap_err(), Errno::NOENT);
    let mut entries = rustix::fs::Dir::read_from(&directory).unwrap();
    while let Some(entry) = entries.read() {
        let entry = entry.unwrap();
        assert!([c".", c".."].contains(&entry.file_name()), "{:?}", entry.file_name());
    }
    // The same for a directory replaced by a rename.
    fs::create_dir(place.join("a")).unwrap();
    fs::create_dir(place.join("b")).unwrap();
    let replaced = File::open(place.join("b")).unwrap();
    fs::rename(place.join("a"), place.join("b")).unwrap();
    assert_eq!(replaced.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::metadata(place.join("b")).unwrap().nlink(), 2);
}

/// `O_TMPFILE`: an unnamed file is linked to a name, or freed.
fn files_are_made_without_a_name(place: &mut Place) {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let open = |flags| openat(CWD, place.path(), flags, Mode::from(0o640)).map(File::from);
    let name = |file: &File, path: &str| {
        use std::os::fd::AsRawFd;
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, source, CWD, place.join(path), AtFlags::SYMLINK_FOLLOW)
    };
    let named = open(flags).unwrap();
    named.write_all_at(&pattern(7, 0, 100_000), 0).unwrap();
    let stat = named.metadata().unwrap();
    assert_eq!((stat.nlink(), stat.mode() & 0o7777), (0, 0o640));
    name(&named, "named").unwrap();
    assert_eq!(named.metadata().unwrap().nlink(), 1);
    assert_eq!(fs::metadata(place.join("named")).unwrap().ino(), stat.ino());
    name(&named, "again").unwrap();
    assert_eq!(name(&named, "named"), Err(Errno::EXIST));
    // `O_EXCL` forbids linking it.
    let lost = open(flags | OFlags::EXCL).unwrap();
    lost.write_all_at(b"lost", 0).unwrap();
    assert_eq!(name(&lost, "lost"), Err(Errno::NOENT));
    // Many of them, all closed together.
    let many: Vec<_> = (0..200).map(|_| open(flags).unwrap()).collect();
    for (number, file) in many.iter().enumerate() {
        file.write_all_at(format!("{number}").as_bytes(), 4096).unwrap();
    }
    drop((named, lost, many));
    place.remount();
    assert!(fs::read(place.join("named")).unwrap() == pattern(7, 0, 100_000));
    assert_eq!(fs::metadata(place.join("again")).unwrap().nlink(), 2);
    assert!(!place.join("lost").exists());
}

/// After the last name is removed, an open file cannot be linked again.
fn unlinked_files_get_no_new_name(place: &mut Place) {
    use std::os::fd::AsRawFd;
    let file = File::create(place.join("file")).unwrap();
    fs::remove_file(place.join("file")).unwrap();
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    let linked = linkat(CWD, source, CWD, place.join("back"), AtFlags::SYMLINK_FOLLOW);
    assert_eq!(linked, Err(Errno::NOENT));
}

prove_on_both!(
    open_files_outlive_their_names,
    removed_directories_stay_open,
    files_are_made_without_a_name,
    unlinked_files_get_no_new_name,
);
