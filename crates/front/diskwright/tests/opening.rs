//! Creating, opening and closing images, and images that were not closed.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use disk::{Access, Fault, FaultyDevice};
use diskwright::Error;
use diskwright::fs::{
    BlockDevice, Ext4Options, File, Image, ImageOptions, MemoryDevice, XfsOptions,
};
use fastrand::Rng;

use super::images::{FORMATS, judge, new_image, open, options};

#[test]
fn an_image_is_made_in_a_file_and_locked() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let scratch = testkit::scratch();
        let path = scratch.path().join("new.img");
        let image = Image::create(&path, 400 << 20, options(format)).unwrap();
        image.write("file", "text").unwrap();
        let error = io::Error::from(Image::open(&path).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        let error = Image::create(&path, 400 << 20, options(format)).unwrap_err();
        assert_eq!(io::Error::from(error).kind(), ErrorKind::AlreadyExists);
        image.close().unwrap();
        testkit::judge(&path);
        let reader = Image::open(&path).unwrap();
        assert!(!reader.is_writable());
        assert_eq!(Image::open(&path).unwrap().read_to_string("file").unwrap(), "text");
        assert!(Image::open_writable(&path).is_err());
        drop(reader);
        let image = Image::open_writable(&path).unwrap();
        image.remove_file("file").unwrap();
        image.set_label("changed").unwrap();
        drop(image);
        testkit::judge(&path);
        assert_eq!(Image::open(&path).unwrap().label().unwrap(), b"changed");
    }
}

#[test]
fn a_failed_creation_leaves_no_file() {
    let scratch = testkit::scratch();
    let path = scratch.path().join("none.img");
    assert!(Image::create(&path, 1000, Ext4Options::new()).is_err());
    assert!(Image::create(&path, 32 << 20, XfsOptions::new()).is_err());
    assert!(Image::create(&path, 32 << 20, Ext4Options::new().features("no_such")).is_err());
    assert!(Image::create(&path, 1 << 30, XfsOptions::new().label("much too long")).is_err());
    assert!(Image::create(&path, 1 << 30, Ext4Options::new().block_size(5)).is_err());
    assert!(Image::create(&path, u64::MAX, Ext4Options::new()).is_err());
    assert!(Image::create(scratch.path().join("no/dir"), 1 << 30, Ext4Options::new()).is_err());
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn an_image_may_lie_anywhere_on_a_device() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let window: Arc<dyn BlockDevice> = device.clone();
    let window = diskwright::fs::WindowDevice::new(window, 1 << 20, 32 << 20).unwrap();
    let image = Image::format(Arc::new(window), Ext4Options::new()).unwrap();
    image.write("file", "text").unwrap();
    image.close().unwrap();
    let at = ImageOptions::new().offset(1 << 20).cache_bytes(1 << 20);
    let image = at.clone().write(true).owner(5, 6).open_device(device.clone()).unwrap();
    image.create_dir("dir").unwrap();
    assert_eq!(image.metadata("dir").unwrap().uid(), 5);
    image.close().unwrap();
    assert_eq!(at.open_device(device.clone()).unwrap().read("file").unwrap(), b"text");
    let error = ImageOptions::new().partition(1).open_device(device.clone()).unwrap_err();
    assert!(error.to_string().starts_with("the image: "), "{error}");
    assert!(ImageOptions::new().open_device(device.clone()).is_err());
    assert!(ImageOptions::new().offset(u64::MAX).open_device(device.clone()).is_err());
    let options = ImageOptions::new().write(true).norecovery(true);
    assert!(matches!(options.open_device(device).unwrap_err(), Error::Usage(_)));
}

#[test]
fn a_device_with_any_contents_is_formatted() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let device = Arc::new(MemoryDevice::new(300 << 20));
    let mut random = Rng::with_seed(1);
    for offset in (0..device.len()).step_by(1 << 20) {
        let garbage: Vec<u8> = (0..4096).map(|_| random.u8(..)).collect();
        device.write_at(offset, &garbage).unwrap();
    }
    for format in ["xfs", "ext4", "ext4", "xfs"] {
        let image = Image::format(device.clone(), options(format)).unwrap();
        assert_eq!(image.read_dir("/").unwrap().count(), usize::from(format == "ext4"));
        for number in 0..50 {
            image.create_dir_all(format!("a/{number}/b")).unwrap();
            image.write(format!("a/{number}/file"), vec![1; number * 999]).unwrap();
        }
        image.close().unwrap();
        judge(&device);
    }
}

#[test]
fn an_image_that_is_dropped_is_closed() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        image.write("file", "text").unwrap();
        drop(image);
        judge(&device);
        assert_eq!(open(&device, false).read("file").unwrap(), b"text");
    }
}

#[test]
fn an_image_that_is_left_open_has_what_was_synced() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        let mut file = File::create(&image, "synced").unwrap();
        io::Write::write_all(&mut file, b"text").unwrap();
        file.sync_all().unwrap();
        image.write("not synced", "text").unwrap();
        // State after a crash.
        let left = Arc::new(device.fork());
        let reader = open(&left, false);
        assert_eq!(reader.read("synced").unwrap(), b"text");
        drop(reader);
        open(&left, true).close().unwrap();
        judge(&left);
        drop((file, image));
        judge(&device);
    }
}

#[test]
fn a_panic_leaves_an_image_as_a_crash_does() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        image.write("before", "text").unwrap();
        image.sync().unwrap();
        let end = catch_unwind(AssertUnwindSafe(move || {
            image.write("after", "text").unwrap();
            std::panic::resume_unwind(Box::new("the program is at its end"));
        }));
        assert!(end.is_err());
        let verdict = testkit::show_image(&device, testkit::verdict);
        assert!(verdict.is_err(), "nobody recovered it");
        let image = open(&device, true);
        assert_eq!(image.read("before").unwrap(), b"text");
        assert!(!image.exists("after").unwrap());
        image.close().unwrap();
        judge(&device);
    }
}

#[test]
fn an_abandoned_image_is_as_after_a_crash() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        image.write("before", "text").unwrap();
        image.sync().unwrap();
        image.write("after", "text").unwrap();
        let file = File::open(&image, "before").unwrap();
        image.abandon();
        assert!(matches!(file.read_at(&mut [0; 4], 0).unwrap_err(), Error::Closed), "{format}");
        drop(file);
        let verdict = testkit::show_image(&device, testkit::verdict);
        assert!(verdict.is_err(), "{format} was closed");
        let image = open(&device, true);
        assert!(image.exists("before").unwrap() && !image.exists("after").unwrap(), "{format}");
        image.close().unwrap();
        judge(&device);
    }
}

#[test]
fn closing_waits_for_the_file_system_of_other_threads() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        let (started, has_started) = mpsc::channel();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (image, is_done) = (&image, &is_done);
            scope.spawn(move || {
                let fs = image.file_system().unwrap();
                started.send(()).unwrap();
                // In this time, the other thread tries to close the image.
                thread::sleep(Duration::from_millis(100));
                fs.set_label(b"late").unwrap();
                is_done.store(true, Ordering::SeqCst);
            });
            has_started.recv().unwrap();
            image.close_for_all().unwrap();
            assert!(is_done.load(Ordering::SeqCst), "{format} was closed too early");
        });
        assert!(matches!(image.file_system().err(), Some(Error::Closed)));
        assert!(matches!(image.info().unwrap_err(), Error::Closed));
        image.close_for_all().unwrap();
        judge(&device);
        assert_eq!(open(&device, false).label().unwrap(), b"late");
    }
}

#[test]
fn a_file_system_can_own_its_image() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        let fs = image.into_file_system().unwrap();
        fs.set_label(b"one").unwrap();
        fs.close().unwrap();
        judge(&device);
        let fs = open(&device, true).into_file_system().unwrap();
        assert_eq!(fs.label().unwrap(), b"one");
        fs.set_label(b"two").unwrap();
        drop(fs);
        judge(&device);
        let image = open(&device, false);
        assert!(!image.info().unwrap().needs_recovery);
        assert_eq!(image.info().unwrap().label, b"two");
    }
}

#[test]
fn failing_devices_are_reported() {
    for format in FORMATS {
        let (device, image) = new_image(format);
        image.write("file", vec![1; 1 << 20]).unwrap();
        image.close().unwrap();
        let faulty = Arc::new(FaultyDevice::new(device));
        let image = ImageOptions::new().write(true).open_device(faulty.clone()).unwrap();
        let file = File::open(&image, "file").unwrap();
        faulty.set(Access::Read, Fault::From(1));
        let error = file.read_at(&mut [0; 100], 5000).unwrap_err();
        assert!(matches!(error, Error::File { source: vfs::Error::Device(_), .. }), "{error:?}");
        faulty.set(Access::Read, Fault::Never);
        assert_eq!(file.read_at(&mut [0; 100], 5000).unwrap(), 100);
        faulty.set(Access::Write, Fault::From(1));
        let failed = image.write("other", "text").and_then(|()| image.sync());
        assert!(failed.is_err(), "{format}");
        assert!(image.close().is_err(), "{format}");
    }
}

/// Calls all reading functions and ignores their results.
fn look_everywhere(image: &Image) {
    for entry in image.walk("/").sorted().take(1000).flatten() {
        let path = entry.path();
        let _ = image.canonicalize(path);
        let _ = image.read_link(path);
        for name in image.list_xattrs(path).unwrap_or_default() {
            let _ = image.get_xattr(path, name);
        }
        if let Ok(file) = File::open(image, path) {
            let mut piece = vec![0; 10_000];
            let _ = file.read_at(&mut piece, 0);
            let _ = file.read_at(&mut piece, entry.metadata().len().saturating_sub(5000));
        }
        if entry.metadata().is_dir() {
            image.read_dir(path).into_iter().flatten().flatten().for_each(|entry| {
                let _ = entry.metadata();
            });
        }
    }
}

/// Calls all changing functions.
fn change_everywhere(image: &Image) {
    let paths: Vec<_> = image.walk("/").take(200).flatten().map(|e| e.path().to_vec()).collect();
    for path in &paths {
        let _ = image.write([path, &b"/new"[..]].concat(), "text");
        let _ = image.set_permissions(path, 0o700);
        let _ = image.set_xattr(path, "user.x", "y");
    }
    for path in paths.iter().rev() {
        let _ = image.rename(path, "moved");
        let _ = image.remove_file(path);
        let _ = image.remove_dir_all(path);
    }
}

#[test]
fn damage_is_an_error_and_no_panic() {
    for format in FORMATS {
        let (device, image) = new_image(format);
        for number in 0..40 {
            image.create_dir_all(format!("dir{}/{number}", number % 3)).unwrap();
            image.write(format!("dir{}/{number}/file", number % 3), vec![1; 5000]).unwrap();
            image.symlink("dir0", format!("link{number}")).unwrap();
        }
        image.set_xattr("dir0", "user.large", [1; 1500]).unwrap();
        image.close().unwrap();
        // Offsets of metadata: all file contents are bytes of value 1.
        let mut places = Vec::new();
        device
            .for_each_part(|offset, bytes| {
                let used = bytes.iter().zip(offset..).filter(|(byte, _)| **byte > 1);
                places.extend(used.map(|(_, at)| at));
                Ok(())
            })
            .unwrap();
        for seed in 0..testkit::effort(60, 100, 20_000) {
            let mut random = Rng::with_seed(seed);
            let damaged = Arc::new(device.fork());
            for _ in 0..random.u32(1..8) {
                let at = *random.choice(&places).unwrap();
                damaged.write_at(at, &[random.u8(..)]).unwrap();
            }
            for norecovery in [false, true] {
                let options = ImageOptions::new().norecovery(norecovery);
                if let Ok(image) = options.open_device(damaged.clone()) {
                    look_everywhere(&image);
                }
            }
            if let Ok(image) = ImageOptions::new().write(true).open_device(damaged) {
                change_everywhere(&image);
                let _ = image.close();
            }
        }
    }
}
