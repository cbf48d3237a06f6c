//! Lifetime and contents of open files.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};

use diskwright::Error;
use diskwright::fs::{DirEntry, File, FileTimes, Image, ReadDir, SpecialFile, Timestamp, Walk};

use super::images::{FORMATS, judge, new_image, open};

#[test]
fn open_files_can_move_to_other_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Image>();
    check::<File>();
    check::<ReadDir>();
    check::<DirEntry>();
    check::<Walk>();
}

#[test]
fn a_file_without_names_lives_until_it_is_dropped() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        // Allocate the space of the directory before counting.
        image.write("other", "").unwrap();
        image.sync().unwrap();
        let free = image.statfs().unwrap();
        let mut file = File::create_new(&image, "gone").unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        image.remove_file("gone").unwrap();
        assert!(!image.exists("gone").unwrap());
        // Neither a file of the same name nor a new one reuses the inode.
        image.write("gone", "another").unwrap();
        file.write_all(b"more").unwrap();
        file.seek(SeekFrom::Start(99_999)).unwrap();
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"\x07more");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        image.remove_file("gone").unwrap();
        drop(file);
        image.sync().unwrap();
        let now = image.statfs().unwrap();
        assert_eq!((now.blocks_free, now.inodes_free), (free.blocks_free, free.inodes_free));
        image.close().unwrap();
        judge(&device);
    }
}

#[test]
fn a_file_outlives_its_image_value() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        let mut file = File::create(&image, "kept").unwrap();
        drop(image);
        file.write_all(b"written afterwards").unwrap();
        file.sync_all().unwrap();
        // The file is still open.
        assert!(testkit::show_image(&device, testkit::verdict).is_err(), "{format}");
        drop(file);
        // Dropping the last reference closed the image.
        judge(&device);
        assert_eq!(open(&device, false).read("kept").unwrap(), b"written afterwards");
    }
}

#[test]
fn closed_is_closed() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        image.create_dir("dir").unwrap();
        image.write("dir/file", "text").unwrap();
        let mut file = File::options().read(true).write(true).open(&image, "dir/file").unwrap();
        let mut listing = image.read_dir("dir").unwrap();
        let entry = listing.next().unwrap().unwrap();
        let mut walk = image.walk("/");
        walk.next().unwrap().unwrap();
        image.remove_file("dir/file").unwrap();
        image.close().unwrap();
        judge(&device);
        let is_closed = |error: Error| matches!(error, Error::Closed);
        assert!(is_closed(file.read_at(&mut [0], 0).unwrap_err()));
        assert!(is_closed(file.write_at(b"x", 0).unwrap_err()));
        assert!(is_closed(file.set_len(0).unwrap_err()));
        assert!(is_closed(file.sync_all().unwrap_err()));
        assert!(is_closed(file.metadata().unwrap_err()));
        assert!(is_closed(listing.next().unwrap().unwrap_err()));
        assert!(is_closed(entry.metadata().unwrap_err()));
        assert!(is_closed(walk.next().unwrap().unwrap_err()));
        assert!(walk.next().is_none());
        let error = file.read(&mut [0]).unwrap_err();
        assert!(error.to_string().contains("the image is closed"), "{error}");
        drop(file);
        judge(&device);
    }
}

#[test]
fn files_are_asked_for_what_they_were_opened_for() {
    for format in FORMATS {
        let (_, image) = new_image(format);
        image.write("file", "text").unwrap();
        let reader = File::open(&image, "file").unwrap();
        let writer = File::create(&image, "file").unwrap();
        let error = reader.write_at(b"x", 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "file: not open for writing; open it with OpenOptions that allow it"
        );
        // EBADF, as on the host.
        assert_eq!(io::Error::from(error).raw_os_error(), Some(9));
        let error = writer.read_at(&mut [0], 0).unwrap_err();
        assert_eq!(io::Error::from(error).raw_os_error(), Some(9));
        let directory = File::open(&image, "/").unwrap();
        assert!(directory.metadata().unwrap().is_dir());
        let error = io::Error::from(directory.read_at(&mut [0], 0).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        image.create_special("pipe", SpecialFile::Fifo, 0o600).unwrap();
        let error = io::Error::from(File::open(&image, "pipe").unwrap_err());
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn impossible_locations_are_errors() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        let mut file = File::create_new(&image, "file").unwrap();
        // XFS supports files of almost 2^63 bytes.
        let too_far = [u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64, 1 << 62];
        for offset in too_far.into_iter().take(if format == "xfs" { 3 } else { 5 }) {
            assert!(file.write_at(b"xx", offset).is_err(), "{format} {offset}");
            assert_eq!(file.read_at(&mut [0; 4], offset).unwrap_or(0), 0, "{format} {offset}");
            let error = io::Error::from(file.set_len(offset).unwrap_err());
            assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{format} {offset}");
        }
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert!(file.seek(SeekFrom::Current(-1)).is_err());
        assert!(file.seek(SeekFrom::End(-1)).is_err());
        file.seek(SeekFrom::Start(i64::MAX as u64)).unwrap();
        assert!(file.seek(SeekFrom::Current(1)).is_err());
        assert!(file.write(b"x").is_err());
        assert_eq!(file.stream_position().unwrap(), i64::MAX as u64);
        drop(file);
        image.close().unwrap();
        judge(&device);
    }
}

#[test]
fn owners_times_and_attributes_are_what_was_set() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        image.write("file", "").unwrap();
        image.symlink("file", "link").unwrap();
        let time = |sec| Timestamp { sec, nsec: 500 };
        let times = FileTimes::new().set_accessed(time(1)).set_modified(time(2));
        image.set_times("link", times).unwrap();
        image.set_times_nofollow("link", FileTimes::new().set_modified(time(3))).unwrap();
        image.set_permissions("link", 0o6755).unwrap();
        image.chown("link", Some(7), None).unwrap();
        image.lchown("link", None, Some(8)).unwrap();
        let file = File::open(&image, "link").unwrap();
        file.set_xattr("user.one", "1").unwrap();
        image.set_xattr("file", "user.two", [0, 1, 2]).unwrap();
        assert_eq!(image.get_xattr("link", "user.one").unwrap(), None);
        image.close().unwrap();
        judge(&device);
        let image = open(&device, false);
        let (file, link) =
            (image.metadata("link").unwrap(), image.symlink_metadata("link").unwrap());
        assert_eq!((file.atime(), file.mtime()), (time(1), time(2)));
        assert_eq!(link.mtime(), time(3));
        // As on the host, a change of owner clears the set-user-ID and set-group-ID bits.
        assert_eq!((file.uid(), file.gid(), file.permissions()), (7, 0, 0o755));
        assert_eq!((link.uid(), link.gid(), link.permissions()), (0, 8, 0o777));
        assert_eq!(image.list_xattrs("file").unwrap(), [b"user.one", b"user.two"]);
        assert_eq!(image.get_xattr("file", "user.two").unwrap().unwrap(), [0, 1, 2]);
        let error = image.set_xattr("file", "user.two", "").unwrap_err();
        assert_eq!(io::Error::from(error).kind(), ErrorKind::ReadOnlyFilesystem);
        let error = File::create(&image, "file").unwrap_err();
        assert_eq!(io::Error::from(error).kind(), ErrorKind::ReadOnlyFilesystem);
        File::open(&image, "file").unwrap().sync_all().unwrap();
        image.sync().unwrap();
    }
}
