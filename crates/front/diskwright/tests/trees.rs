//! Tests of listings, walks and paths.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diskwright::Error;
use diskwright::fs::{Image, RenameMode};

use super::images::{FORMATS, judge, new_image};

fn paths(walk: impl Iterator<Item = diskwright::Result<diskwright::fs::WalkEntry>>) -> Vec<String> {
    walk.map(|entry| String::from_utf8(entry.unwrap().path().to_vec()).unwrap()).collect()
}

fn small_tree(format: &str) -> Image {
    let (_, image) = new_image(format);
    image.create_dir_all("/top/b/c").unwrap();
    image.create_dir_all("/top/a").unwrap();
    image.write("/top/b/c/file", "x").unwrap();
    image.write("/top/a/file", "y").unwrap();
    image.symlink("b", "/top/link").unwrap();
    image
}

#[test]
fn walks_are_depth_first_and_go_where_they_are_sent() {
    for format in FORMATS {
        let image = small_tree(format);
        let all = ["", "/a", "/a/file", "/b", "/b/c", "/b/c/file", "/link"];
        let below = |top: &str| all.iter().map(|path| format!("{top}{path}")).collect::<Vec<_>>();
        assert_eq!(paths(image.walk("/top").sorted()), below("/top"));
        assert_eq!(paths(image.walk("top/").sorted())[1..3], ["top/a", "top/a/file"]);
        let mut unsorted = paths(image.walk("top"));
        unsorted.sort();
        assert_eq!(unsorted, below("top"));
        // The start of the walk is followed, but no links below it.
        assert_eq!(
            paths(image.walk("/top/link")),
            ["/top/link", "/top/link/c", "/top/link/c/file"]
        );
        assert_eq!(paths(image.walk("/top/a/file")), ["/top/a/file"]);
        let mut walk = image.walk("/top").sorted();
        let (mut seen, mut depths) = (Vec::new(), Vec::new());
        while let Some(entry) = walk.next() {
            let entry = entry.unwrap();
            seen.push(entry.file_name().to_vec());
            depths.push(entry.depth());
            if entry.file_name() == b"b" {
                walk.skip_current_dir();
            }
        }
        assert_eq!(seen, [&b""[..], b"a", b"file", b"b", b"link"]);
        assert_eq!(depths, [0, 1, 2, 1, 1]);
        let mut none = image.walk("/none");
        let error = none.next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "/none: no such file or directory");
        assert!(none.next().is_none());
    }
}

#[test]
fn a_directory_is_listed_while_it_changes() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        image.create_dir("many").unwrap();
        for number in 0..6000 {
            image.write(format!("many/{number}"), "").unwrap();
        }
        // No lock is held between two entries, so each can be removed.
        let mut count = 0;
        for entry in image.read_dir("many").unwrap() {
            let entry = entry.unwrap();
            assert!(entry.file_type().unwrap().is_file());
            image.remove_file(entry.path()).unwrap();
            let error = entry.metadata().unwrap_err();
            assert!(matches!(error, Error::File { source: vfs::Error::NotFound, .. }));
            count += 1;
        }
        assert_eq!(count, 6000);
        // A removed directory has no entries.
        let mut listing = image.read_dir("many").unwrap();
        image.remove_dir("many").unwrap();
        image.create_dir("many").unwrap();
        image.write("many/new", "").unwrap();
        assert!(listing.next().is_none_or(|entry| entry.is_err()));
        drop(listing);
        image.close().unwrap();
        judge(&device);
    }
}

#[test]
fn paths_are_bytes_and_what_the_host_calls_paths() {
    for format in FORMATS {
        let (_, image) = new_image(format);
        let name = b"not \xff text";
        image.write(name, "x").unwrap();
        image.write(&name[..], "y").unwrap();
        let host = Path::new("/").join(OsStr::from_bytes(name));
        assert_eq!(image.read(&host).unwrap(), b"y");
        assert_eq!(image.read(host.as_os_str()).unwrap(), b"y");
        assert_eq!(image.read(name.to_vec()).unwrap(), b"y");
        let entries = image.read_dir("/").unwrap().map(Result::unwrap);
        let mut found = entries.filter(|entry| entry.file_name() == name);
        assert_eq!(found.next().unwrap().path(), b"/not \xff text");
        assert_eq!(image.canonicalize(host).unwrap(), b"/not \xff text");
        // Error messages escape arbitrary names.
        let error = image.create_dir(name).unwrap_err();
        assert_eq!(error.to_string(), "not \\xff text: file exists");
    }
}

#[test]
fn paths_that_lead_nowhere_say_so() {
    for format in FORMATS {
        let image = small_tree(format);
        image.symlink("/loop", "/loop").unwrap();
        image.symlink("../../../top/a", "/top/up").unwrap();
        let said = |error: Error| error.to_string();
        assert_eq!(
            said(image.read("/loop").unwrap_err()),
            "/loop: too many levels of symbolic links"
        );
        assert_eq!(said(image.read("").unwrap_err()), ": no such file or directory");
        assert!(said(image.read("a\0b").unwrap_err()).contains("must not contain NUL"));
        assert!(said(image.rename("top", "a\0b").unwrap_err()).contains("must not contain NUL"));
        assert!(said(image.read("/").unwrap_err()).contains("is a directory"));
        assert!(said(image.remove_file("/").unwrap_err()).contains("is a directory"));
        assert!(image.remove_dir("/").is_err());
        assert!(image.remove_dir_all("/").is_err());
        assert!(image.rename("/", "/elsewhere").is_err());
        assert!(said(image.create_dir("/").unwrap_err()).contains("file exists"));
        image.create_dir_all("/").unwrap();
        assert_eq!(image.canonicalize("/top/up/file").unwrap(), b"/top/a/file");
        assert_eq!(image.canonicalize("/../..").unwrap(), b"/");
        assert_eq!(image.canonicalize("top/link/./c/..").unwrap(), b"/top/b");
        assert!(matches!(image.exists("/loop"), Err(Error::File { .. })));
        assert!(!image.exists("/top/none/none").unwrap());
    }
}

#[test]
fn names_change_places() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        image.write("one", "1").unwrap();
        image.write("two", "2").unwrap();
        assert!(image.rename_with("one", "two", RenameMode::NoReplace).is_err());
        image.rename_with("one", "two", RenameMode::Exchange).unwrap();
        assert_eq!(image.read("one").unwrap(), b"2");
        image.close().unwrap();
        judge(&device);
    }
}

#[test]
fn new_files_get_the_group_of_a_directory_that_gives_it_on() {
    for format in FORMATS {
        let (_, image) = new_image(format);
        image.create_dir("shared").unwrap();
        image.chown("shared", None, Some(77)).unwrap();
        image.set_permissions("shared", 0o2775).unwrap();
        image.create_dir_all("shared/a/b").unwrap();
        image.write("shared/a/b/file", "").unwrap();
        let (dir, file) =
            (image.metadata("shared/a/b").unwrap(), image.metadata("shared/a/b/file").unwrap());
        assert_eq!((dir.gid(), dir.permissions()), (77, 0o2755));
        assert_eq!((file.gid(), file.permissions()), (77, 0o644));
    }
}
