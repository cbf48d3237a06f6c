//! Names and paths: lengths, deep trees, renames with flags.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat_with, statat};
use rustix::io::Errno;

use crate::place::{Format, Place, prove_on_both, shell};

fn error_number<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

/// A name may contain every byte but two, and 255 of them.
fn names_have_255_bytes(place: &mut Place) {
    let long = OsString::from_vec((0..255).map(|n| b'a' + n % 26).collect());
    let odd: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
    let odd = OsString::from_vec(odd);
    let too_long = OsString::from_vec(vec![b'x'; 256]);
    for name in [&long, &odd] {
        fs::write(place.join(name), "here").unwrap();
        fs::create_dir(place.join("sub")).unwrap();
        fs::rename(place.join(name), place.join("sub").join(name)).unwrap();
        fs::hard_link(place.join("sub").join(name), place.join(name)).unwrap();
        assert_eq!(fs::read(place.join("sub").join(name)).unwrap(), b"here");
        fs::remove_dir_all(place.join("sub")).unwrap();
    }
    let path = place.join(&too_long);
    assert_eq!(error_number(fs::write(&path, "")), Errno::NAMETOOLONG);
    assert_eq!(error_number(fs::metadata(&path)), Errno::NAMETOOLONG);
    assert_eq!(error_number(fs::create_dir(&path)), Errno::NAMETOOLONG);
    assert_eq!(error_number(fs::rename(place.join(&long), &path)), Errno::NAMETOOLONG);
    assert_eq!(error_number(fs::hard_link(place.join(&long), &path)), Errno::NAMETOOLONG);
    assert_eq!(error_number(std::os::unix::fs::symlink("x", &path)), Errno::NAMETOOLONG);
    assert_eq!(error_number(fs::remove_file(&path)), Errno::NAMETOOLONG);
    place.remount();
    let mut found: Vec<_> =
        fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.retain(|name| name != "lost+found");
    found.sort();
    let mut expected = vec![long, odd];
    expected.sort();
    assert_eq!(found, expected);
}

/// Three hundred levels with long names: far deeper than the longest path.
fn trees_are_deeper_than_paths(place: &mut Place) {
    const LEVELS: u32 = 300;
    let name = |level: u32| format!("level {level} {}", "of a deep tree ".repeat(3));
    let open =
        |place: &Place| openat(rustix::fs::CWD, place.path(), flags(), Mode::empty()).unwrap();
    fn flags() -> OFlags {
        OFlags::DIRECTORY | OFlags::CLOEXEC
    }
    let mut directory = open(place);
    for level in 0..LEVELS {
        rustix::fs::mkdirat(&directory, name(level), Mode::from(0o755)).unwrap();
        directory = openat(&directory, name(level), flags(), Mode::empty()).unwrap();
    }
    let file = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let bottom = openat(&directory, "bottom", file, Mode::from(0o600)).unwrap();
    rustix::io::write(&bottom, b"all the way down").unwrap();
    drop((directory, bottom));
    let path = (0..LEVELS).fold(place.path().to_owned(), |path, level| path.join(name(level)));
    assert_eq!(error_number(fs::metadata(path)), Errno::NAMETOOLONG, "longer than PATH_MAX");
    place.remount();
    let mut directory = open(place);
    let mut numbers = vec![rustix::fs::fstat(&directory).unwrap().st_ino];
    for level in 0..LEVELS {
        directory = openat(&directory, name(level), flags(), Mode::empty()).unwrap();
        numbers.push(rustix::fs::fstat(&directory).unwrap().st_ino);
    }
    let stat = statat(&directory, "bottom", AtFlags::empty()).unwrap();
    assert_eq!(stat.st_size, 16);
    // Back up through directories that are in no cache.
    for level in (0..LEVELS as usize).rev() {
        directory = openat(&directory, "..", flags(), Mode::empty()).unwrap();
        assert_eq!(rustix::fs::fstat(&directory).unwrap().st_ino, numbers[level]);
    }
    drop(directory);
    let count: usize = shell(place.path(), "find . | wc -l").trim().parse().unwrap();
    let lost_and_found = usize::from(place.join("lost+found").exists());
    assert_eq!(count, LEVELS as usize + 2 + lost_and_found);
    fs::remove_dir_all(place.join(name(0))).unwrap();
    assert_eq!(fs::metadata(place.path()).unwrap().nlink(), 2 + lost_and_found as u64);
}

/// RENAME_NOREPLACE replaces nothing, and RENAME_EXCHANGE keeps both files, of any type.
fn renames_have_flags(place: &mut Place) {
    let root = fs::File::open(place.path()).unwrap();
    let rename = |old: &str, new: &str, flags| renameat_with(&root, old, &root, new, flags);
    fs::write(place.join("a"), "file").unwrap();
    fs::create_dir_all(place.join("b/inner/sub")).unwrap();
    fs::create_dir(place.join("c")).unwrap();
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename("a", "a", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename("a", "new", RenameFlags::NOREPLACE), Ok(()));
    assert_eq!(rename("new", "none", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    assert_eq!(rename("b", "b/inner/x", RenameFlags::empty()), Err(Errno::INVAL));
    assert_eq!(rename("b", "b/inner/sub", RenameFlags::EXCHANGE), Err(Errno::INVAL));
    assert_eq!(rename("b/inner/sub", "b", RenameFlags::EXCHANGE), Err(Errno::INVAL));
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    assert_eq!(rename("new", "c", both), Err(Errno::INVAL));
    // A file and a directory with different parents are exchanged, and the parents' link counts
    // change.
    let links = |name: &str| fs::metadata(place.join(name)).unwrap().nlink();
    assert_eq!((links("b"), links("b/inner")), (3, 3));
    assert_eq!(rename("new", "b/inner", RenameFlags::EXCHANGE), Ok(()));
    assert_eq!(fs::read(place.join("b/inner")).unwrap(), b"file");
    assert_eq!((links("b"), links("new")), (2, 3));
    let parent = fs::metadata(place.join("new/..")).unwrap().ino();
    assert_eq!(parent, fs::metadata(place.path()).unwrap().ino());
    // Two names of one file: no effect.
    fs::hard_link(place.join("b/inner"), place.join("second")).unwrap();
    assert_eq!(rename("b/inner", "second", RenameFlags::empty()), Ok(()));
    assert_eq!(links("second"), 2);
    // Over a non-empty directory, and over an empty one.
    let not_empty = rename("c", "new", RenameFlags::empty()).unwrap_err();
    assert!([Errno::NOTEMPTY, Errno::EXIST].contains(&not_empty), "POSIX allows both: {not_empty}");
    assert_eq!(rename("new", "c", RenameFlags::empty()), Ok(()));
    assert_eq!(rename("second", "c", RenameFlags::empty()), Err(Errno::ISDIR));
    assert_eq!(rename("c", "second", RenameFlags::empty()), Err(Errno::NOTDIR));
    drop(root);
    place.remount();
    assert!(place.join("c/sub").is_dir() && place.join("b/inner").is_file());
    assert!(!place.join("new").exists() && !place.join("a").exists());
}

/// Link targets of every length: in the inode, in a block, and too long.
fn symbolic_links_have_any_length(place: &mut Place) {
    // XFS stores 1023 bytes, ext4 one byte less than a block; 4095 is the maximum path length.
    let longest = if place.format() == Format::Xfs { 1023 } else { 4095 };
    let target = |len: usize| "target/".repeat(len / 7 + 1)[..len].to_owned();
    let lengths = [1, 59, 60, 61, 255, 256, 500, 1022, longest];
    for len in lengths {
        std::os::unix::fs::symlink(target(len), place.join(format!("link {len}"))).unwrap();
    }
    let too_long = std::os::unix::fs::symlink(target(longest + 1), place.join("too long"));
    assert_eq!(error_number(too_long), Errno::NAMETOOLONG);
    place.remount();
    for len in lengths {
        let link = place.join(format!("link {len}"));
        assert_eq!(fs::read_link(&link).unwrap().to_str().unwrap(), target(len));
        assert_eq!(fs::symlink_metadata(&link).unwrap().len(), len as u64);
    }
}

/// Creates names of `/file` in the directory `/links`.
fn link_in_image(image: &Path, numbers: Range<u64>) {
    let image = diskwright::Image::open_writable(image).unwrap();
    let fs = image.file_system().unwrap();
    let [file, links] = [&b"file"[..], b"links"].map(|name| fs.lookup(fs.root(), name).unwrap());
    for number in numbers {
        fs.link(file, links, number.to_string().as_bytes(), None).unwrap();
    }
    drop(fs);
    image.close().unwrap();
}

/// ext4 supports 65,000 names of a file. XFS supports more than the test creates.
fn links_are_limited(place: &mut Place) {
    let most = if place.format() == Format::Ext { 65_000 } else { 3000 };
    fs::write(place.join("file"), "contents").unwrap();
    fs::create_dir(place.join("links")).unwrap();
    let link = |place: &Place, number: u64| {
        fs::hard_link(place.join("file"), place.join(format!("links/{number}")))
    };
    // The mount creates the first names and the last ones. Those in between take it much longer than our library.
    let within = if place.format() == Format::Ext { 100..most - 100 } else { 100..100 };
    (1..within.start).for_each(|number| link(place, number).unwrap());
    place.unmount();
    link_in_image(place.image(), within.clone());
    place.mount_with("");
    (within.end..most).for_each(|number| link(place, number).unwrap());
    if place.format() == Format::Ext {
        assert_eq!(error_number(link(place, most)), Errno::MLINK);
        fs::remove_file(place.join("links/1")).unwrap();
        link(place, 1).unwrap();
    }
    place.remount();
    assert_eq!(fs::metadata(place.join("file")).unwrap().nlink(), most);
}

prove_on_both!(
    links_are_limited,
    names_have_255_bytes,
    trees_are_deeper_than_paths,
    renames_have_flags,
    symbolic_links_have_any_length,
);
