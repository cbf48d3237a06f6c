//! Workload targets within this process: parsing of target names, file systems in memory, image
//! files.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bench::contestant::{AnyTarget, Contestant, Need, Session};
use bench::environments::{FsSpec, ImageFile, Memory, TargetSpec};
use bench::target::Target;
use bench::{Error, with_target};
use disk::{BlockDevice, MemoryDevice};
use diskwright::{Image, ImageOptions};
use testkit::{Mke2fs, MkfsXfs, require, scratch};
use vfs::FileType;

const NEED: Need = Need { inodes: 10_000, bytes: 16 << 20, threads: 2, existing: false };
const EXISTING: Need = Need { existing: true, ..NEED };

/// Sizes of files by name.
type SizesByName = BTreeMap<Vec<u8>, u64>;

/// Returns a name of 40 bytes. With such names, XFS directories soon get an index of free space.
fn name(random: &mut fastrand::Rng) -> Vec<u8> {
    (0..40).map(|_| random.lowercase() as u8).collect()
}

/// Creates, changes and removes files in the directory `files`, in an order determined by `seed`.
fn work<T: Target>(target: &T, files: &mut SizesByName, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let top = target.top().unwrap();
    if files.is_empty() {
        target.make_dir(&top, b"files").unwrap();
    }
    let dir = target.open_dir(&top, b"files").unwrap();
    let any = |files: &SizesByName, random: &mut fastrand::Rng| {
        let at = random.usize(..files.len().max(1));
        files.keys().nth(at).cloned()
    };
    for _ in 0..4000 {
        match random.u32(..20) {
            0..12 => {
                let name = name(&mut random);
                target.make_file(&dir, &name).unwrap();
                files.insert(name, 0);
            }
            12 => {
                let name = name(&mut random);
                let file = target.create(&dir, &name, true).unwrap();
                let contents = vec![7; random.usize(..20_000)];
                target.write(&file, 0, &contents).unwrap();
                target.close(file).unwrap();
                files.insert(name, contents.len() as u64);
            }
            13 => {
                let Some(name) = any(files, &mut random) else { continue };
                let file = target.open(&dir, &name).unwrap();
                let size = random.u64(..30_000);
                target.truncate(&file, size).unwrap();
                target.close(file).unwrap();
                files.insert(name, size);
            }
            14 => {
                let Some(name) = any(files, &mut random) else { continue };
                // Removed while open.
                let file = target.open(&dir, &name).unwrap();
                target.unlink(&dir, &name).unwrap();
                target.close(file).unwrap();
                files.remove(&name);
            }
            _ => {
                let Some(name) = any(files, &mut random) else { continue };
                target.unlink(&dir, &name).unwrap();
                files.remove(&name);
            }
        }
    }
}

/// Asserts that the directory `files` contains these files.
#[track_caller]
fn check<T: Target>(target: &T, files: &SizesByName) {
    let dir = target.open_dir(&target.top().unwrap(), b"files").unwrap();
    let mut found = SizesByName::new();
    target
        .list(&dir, &mut |name, _| {
            found.insert(name.to_vec(), 0);
            Ok(())
        })
        .unwrap();
    for (name, size) in &mut found {
        let (file_type, bytes) = target.stat(&dir, name).unwrap();
        assert_eq!(file_type, FileType::Regular);
        *size = bytes;
    }
    assert!(found == *files, "{} files, {} expected", found.len(), files.len());
}

/// Leaves files open, one of them unlinked.
fn leave_open<T: Target>(target: &T) {
    let top = target.top().unwrap();
    for name in [b"named", b"gone!"] {
        let file = target.create(&top, name, true).unwrap();
        target.write(&file, 0, &[1; 10_000]).unwrap();
    }
    target.unlink(&top, b"gone!").unwrap();
}

/// Works, drops caches, checks, and continues.
fn work_in_two_parts(session: &mut dyn Session) {
    let mut files = SizesByName::new();
    with_target!(session.target(), target => work(target, &mut files, 1));
    with_target!(session.target(), target => leave_open(target));
    session.drop_caches().unwrap();
    with_target!(session.target(), target => check(target, &files));
    with_target!(session.target(), target => work(target, &mut files, 2));
    with_target!(session.target(), target => check(target, &files));
}

fn memory(text: &str) -> FsSpec {
    match text.parse() {
        Ok(TargetSpec::Memory(spec)) => spec,
        other => panic!("{text}: {other:?}"),
    }
}

/// Returns the device after a run.
fn run(text: &str) -> std::sync::Arc<MemoryDevice> {
    let mut session = Memory::new(memory(text), None).make(&NEED).unwrap();
    work_in_two_parts(&mut session);
    let device = session.device().clone();
    Box::new(session).finish().unwrap();
    device
}

fn write_out(device: &MemoryDevice, path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(device.len()).unwrap();
    device.for_each_part(|offset, bytes| file.write_all_at(bytes, offset)).unwrap();
}

#[test]
fn names_of_targets_have_a_normal_form() {
    let same = [
        "memory:xfs",
        "memory:ext4",
        "kernel:xfs,^parent",
        "kernel:ext4,^orphan_file,size=8G",
        "memory:xfs,^parent,+ascii-ci,free-index=forward-decode,size=2G",
        "memory:ext4,+none,+extent,+dir_index,+filetype",
        "memory:ext4,+large_dir,orphans=list,size=1537M",
        "./memory:x",
        "/mnt/somewhere",
        "root.img",
    ];
    for text in same {
        assert_eq!(text.parse::<TargetSpec>().unwrap().to_string(), text);
    }
    let normal = [
        ("memory:xfs,size=2048M,-parent", "memory:xfs,^parent,size=2G"),
        ("memory:xfs,parent,^parent", "memory:xfs,^parent"),
        ("memory:xfs,free-index=tree,ascii-ci", "memory:xfs,+ascii-ci,free-index=tree"),
        ("memory:ext4,orphans=off,size=1GiB", "memory:ext4,orphans=off,size=1G"),
    ];
    for (text, expected) in normal {
        let spec: TargetSpec = text.parse().unwrap();
        assert_eq!(spec.to_string(), expected);
        assert_eq!(expected.parse(), Ok(spec));
    }
    assert_eq!("./memory:x".parse(), Ok(TargetSpec::Path("./memory:x".into())));
}

#[test]
fn targets_that_cannot_be_are_refused_with_what_can() {
    let refused = [
        ("", "memory:FORMAT"),
        ("memory:", "memory:ext4 or memory:xfs"),
        ("kernel:zfs", "kernel:ext4 or kernel:xfs"),
        ("memory:xfs,", "write feature names"),
        ("memory:xfs,+sparkles", "finobt"),
        ("memory:xfs,-crc", "version 4"),
        ("memory:ext4,+journal_dev", "mke2fs"),
        ("memory:ext4,^has_journal,+orphan_file", "orphan_file needs has_journal"),
        ("memory:xfs,free-index=fast", "block-skip"),
        ("memory:ext4,free-index=tree", "memory:xfs only"),
        ("kernel:xfs,free-index=tree", "memory:xfs only"),
        ("memory:ext4,orphans=never", "when-needed"),
        ("memory:xfs,orphans=off", "memory:ext4 only"),
        ("kernel:ext4,orphans=list", "^orphan_file"),
        ("memory:ext4,^has_journal,orphans=list", "journal"),
        ("memory:xfs,size=1G,size=2G", "twice"),
        ("memory:xfs,size=big", "is not a size"),
        ("memory:xfs,size=1M", "16 MiB"),
        ("memory:xfs,threads=3", "free-index="),
    ];
    for (text, expected) in refused {
        let error = text.parse::<TargetSpec>().unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn what_does_not_fit_is_refused_before_the_run() {
    let many = Need { inodes: 50_000_000, ..NEED };
    for text in ["memory:xfs,size=1G", "memory:ext4,size=1G"] {
        let Err(error) = Memory::new(memory(text), None).start(&many) else { panic!("{text}") };
        assert!(matches!(error, Error::Unsupported(_)), "{text}: {error}");
    }
    let large = Need { bytes: 2 << 30, ..NEED };
    for text in ["memory:xfs,size=1G", "memory:ext4,size=1G"] {
        let Err(error) = Memory::new(memory(text), None).start(&large) else { panic!("{text}") };
        assert!(error.to_string().contains("larger size"), "{text}: {error}");
    }
    for text in ["memory:xfs", "memory:ext4"] {
        let Err(error) = Memory::new(memory(text), None).start(&EXISTING) else { panic!("{text}") };
        assert!(error.to_string().contains("use an image"), "{text}: {error}");
    }
}

/// Sizes are derived from the need, and provide the required space.
#[test]
fn file_systems_have_room_for_what_is_needed() {
    let need = |inodes, bytes, threads| Need { inodes, bytes, threads, existing: false };
    let needs = [
        need(0, 0, 0),
        need(10_000_000, 0, 1),
        need(1000, 1 << 30, 4),
        need(1_000_000, 1_000_000, 128),
        need(5000, 0, u32::MAX),
    ];
    for need in needs {
        for text in ["memory:xfs", "memory:xfs,^parent,^rmapbt", "memory:ext4"] {
            let session = Memory::new(memory(text), None).make(&need).unwrap();
            let AnyTarget::InProcess(target) = session.target() else { panic!("a directory") };
            let totals = target.file_system().statfs().unwrap();
            let free = totals.blocks_free * u64::from(totals.block_size);
            assert!(free >= need.bytes, "{text}, {need:?}: {free} bytes");
            if text == "memory:ext4" {
                assert!(totals.inodes_free >= need.inodes, "{need:?}: {}", totals.inodes_free);
            }
        }
    }
}

#[test]
fn xfs_in_memory_is_sound_with_every_way_to_find_room() {
    require!(Tool("xfs_repair"));
    let dir = scratch();
    for way in ["tree", "block-skip", "reverse", "forward", "forward-decode"] {
        let image = dir.path().join(way);
        write_out(&run(&format!("memory:xfs,free-index={way}")), &image);
        testkit::xfs_repair(&image);
    }
}

#[test]
fn xfs_in_memory_is_sound_with_any_features() {
    require!(Tool("xfs_repair"));
    let dir = scratch();
    let all = ["", ",size=64M", ",^parent", ",^finobt", ",^rmapbt,^reflink", ",ascii-ci,^bigtime"];
    for (number, items) in all.iter().enumerate() {
        let image = dir.path().join(number.to_string());
        write_out(&run(&format!("memory:xfs{items}")), &image);
        testkit::xfs_repair(&image);
    }
}

#[test]
fn ext4_in_memory_is_sound_with_every_way_to_record_orphans() {
    require!(Tool("e2fsck"));
    let dir = scratch();
    for when in ["when-needed", "always", "list", "off"] {
        for items in ["", ",^orphan_file"] {
            let image = dir.path().join(when);
            write_out(&run(&format!("memory:ext4{items},orphans={when},size=512M")), &image);
            testkit::e2fsck(&image);
        }
    }
}

#[test]
fn ext4_in_memory_is_sound_with_any_features() {
    require!(Tool("e2fsck"));
    let dir = scratch();
    let all = [
        "",
        ",^has_journal,size=256M",
        ",^metadata_csum,size=256M",
        ",^extent,^64bit,size=256M",
        ",inline_data,large_dir,ea_inode,size=256M",
        ",none,has_journal,filetype,size=256M",
    ];
    for (number, items) in all.iter().enumerate() {
        let image = dir.path().join(number.to_string());
        write_out(&run(&format!("memory:ext4{items}")), &image);
        testkit::e2fsck(&image);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for text in
        ["memory:xfs", "memory:xfs,free-index=reverse", "memory:ext4", "memory:ext4,^extent"]
    {
        let (first, second) = (parts(&run(text)), parts(&run(text)));
        assert!(!first.is_empty());
        let differs = first.iter().zip(&second).find(|(first, second)| first != second);
        assert!(first.len() == second.len() && differs.is_none(), "{text}: {differs:?}");
    }
}

/// Returns offsets and hashes of a device's contents, block by block.
fn parts(device: &MemoryDevice) -> Vec<(u64, u32)> {
    let mut parts = Vec::new();
    let each = |offset, bytes: &[u8]| {
        let blocks = bytes.chunks(4096).map(crc32c::crc32c);
        parts.extend((offset..).step_by(4096).zip(blocks));
        Ok(())
    };
    device.for_each_part(each).unwrap();
    parts
}

/// Size of image files.
const IMAGE_BYTES: u64 = 320 << 20;

/// The formats of image files.
const FORMATS: [&str; 2] = ["ext4", "xfs"];

/// Creates an image file with some contents, by the format's own mkfs.
fn image_of(format: &str, dir: &Path) -> std::path::PathBuf {
    let image = dir.join(format);
    let source = dir.join("source");
    std::fs::create_dir_all(source.join("a/b")).unwrap();
    std::fs::write(source.join("a/b/file"), "contents").unwrap();
    if format == "ext4" {
        Mke2fs::new("ext4").populate(&source).create(&image, IMAGE_BYTES);
    } else {
        MkfsXfs::default().prototype(&source).create(&image, IMAGE_BYTES);
    }
    image
}

/// Returns the names in the root of an image.
fn root_names(image: &Path) -> Vec<String> {
    let image = Image::open(image).unwrap();
    let fs = image.file_system().unwrap();
    let entries = fs.paths().read_dir(b"/").unwrap();
    entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

#[test]
fn nothing_is_left_in_an_image() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    FORMATS.into_iter().for_each(nothing_is_left_in);
}

fn nothing_is_left_in(format: &str) {
    let dir = scratch();
    let path = image_of(format, dir.path());
    let before = root_names(&path);
    let image = ImageFile::new(path.clone(), None).unwrap();
    let mut session = image.start(&NEED).unwrap();
    assert_eq!(session.size(), IMAGE_BYTES);
    work_in_two_parts(&mut *session);
    // Meanwhile no other user can open it.
    let Err(error) = image.start(&NEED) else { panic!("opened twice") };
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    session.finish().unwrap();
    assert_eq!(root_names(&path), before);
    testkit::judge(&path);

    // A run that ends early.
    let session = image.start(&NEED).unwrap();
    with_target!(session.target(), target => work(target, &mut SizesByName::new(), 3));
    drop(session);
    assert_eq!(root_names(&path), before);
    testkit::judge(&path);
}

/// After a kill, the image still contains the directory, and remains usable.
#[test]
fn what_a_kill_leaves_is_sound() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    FORMATS.into_iter().for_each(what_a_kill_leaves_in);
}

fn what_a_kill_leaves_in(format: &str) {
    let dir = scratch();
    let path = image_of(format, dir.path());
    let session = ImageFile::new(path.clone(), None).unwrap().start(&NEED).unwrap();
    let mut files = SizesByName::new();
    with_target!(session.target(), target => {
        work(target, &mut files, 1);
        target.sync().unwrap();
    });
    let killed = dir.path().join("killed");
    testkit::copy_image(&path, &killed);
    drop(session);

    ImageOptions::new().recover(&killed).unwrap();
    testkit::judge(&killed);
    let left = root_names(&killed);
    let own = format!("diskwright-workload-{}-0", std::process::id());
    assert!(left.contains(&own), "{left:?}");
    let opened = Image::open(&killed).unwrap();
    let fs = opened.file_system().unwrap();
    let found = fs.paths().read_dir(format!("/{own}/files").as_bytes()).unwrap();
    let found: Vec<Vec<u8>> = found.into_iter().map(|entry| entry.name).collect();
    assert!(files.keys().all(|name| found.contains(name)) && found.len() >= files.len());
    drop(fs);
    drop(opened);

    // Another run of the same process uses another name.
    let mut session = ImageFile::new(killed.clone(), None).unwrap().start(&NEED).unwrap();
    work_in_two_parts(&mut *session);
    session.finish().unwrap();
    assert_eq!(root_names(&killed), left);
    testkit::judge(&killed);
}

#[test]
fn a_workload_that_reads_has_all_of_an_image() {
    require!(Tool("mke2fs"), Tool("mkfs.xfs"));
    FORMATS.into_iter().for_each(all_is_read_of);
}

fn all_is_read_of(format: &str) {
    let dir = scratch();
    let path = image_of(format, dir.path());
    let bytes = std::fs::read(&path).unwrap();
    let mut session = ImageFile::new(path.clone(), None).unwrap().start(&EXISTING).unwrap();
    for _ in 0..2 {
        with_target!(session.target(), target => {
            let top = target.top().unwrap();
            let a = target.open_dir(&top, b"a").unwrap();
            let b = target.open_dir(&a, b"b").unwrap();
            assert_eq!(target.stat(&b, b"file").unwrap(), (FileType::Regular, 8));
            assert!(target.make_dir(&top, b"new").is_err());
        });
        session.drop_caches().unwrap();
    }
    session.finish().unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes, "the image was changed");
}

#[test]
fn images_that_cannot_be_used_say_why() {
    require!(Tool("mke2fs"));
    let dir = scratch();
    let path = dir.path().join("text");
    std::fs::write(&path, vec![b'x'; 10_000]).unwrap();
    let error = ImageFile::new(path, None).unwrap_err().to_string();
    assert!(error.contains("neither an ext2/3/4 nor an XFS image"), "{error}");

    let path = image_of("ext4", dir.path());
    let image = ImageFile::new(path.clone(), None).unwrap();
    let Err(error) = image.start(&Need { inodes: 1 << 30, ..NEED }) else { panic!("too many") };
    assert!(error.to_string().contains("too little"), "{error}");
    testkit::e2fsck(&path);

    let file = File::options().write(true).open(&path).unwrap();
    // A damaged superblock alone would be read from a copy.
    file.write_all_at(&[0xff; 8], 4096).unwrap();
    let error = ImageFile::new(path, None).unwrap_err();
    assert_eq!(error.outcome(), diskwright::Outcome::Image, "{error}");
}
