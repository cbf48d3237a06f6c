//! Images after shrinking.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use disk::{BlockDevice, RecordingDevice};
use ext4::resize::{Shrunk, SizeRequest, plan_shrinking, shrink};
use testkit::fs_tree::FsTree;
use testkit::{effort, populate_with_kernel, require};
use vfs::{Error, FileType, Timestamp};

use super::grow::grow_to;
use super::kinds::{
    KINDS, MIB, MkfsParameters, assert_shows, assert_sound, count_usage, device, kind, tree,
};

/// Shrinks the file system of an image, and truncates its file.
pub(super) fn shrink_to(image: &Path, request: SizeRequest) -> vfs::Result<Shrunk> {
    let shrunk = shrink(device(image), request, &mut |_, _| true)?;
    let file = File::options().write(true).open(image).unwrap();
    file.set_len(shrunk.after.bytes()).unwrap();
    Ok(shrunk)
}

/// Creates directories all over the image, with small and large files, holes, links, attributes and deep directories.
pub(super) fn spread(root: &Path) {
    for number in 0..60_usize {
        let path = root.join(format!("spread{number}"));
        fs::create_dir_all(path.join("deeper/still")).unwrap();
        for file in 0..12 {
            fs::write(path.join(format!("file{file}")), vec![number as u8; file * 1500]).unwrap();
        }
        fs::hard_link(path.join("file3"), path.join("deeper/still/link")).unwrap();
        let target = "x/".repeat(number * 3 + 1);
        std::os::unix::fs::symlink(target, path.join("symlink")).unwrap();
        fs::write(path.join("large"), vec![number as u8; 300_000]).unwrap();
        let value = vec![b'v'; 500 + number % 7];
        rustix::fs::setxattr(
            path.join("file5"),
            "user.some",
            &value,
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
    }
    let many = root.join("spread7/many");
    fs::create_dir(&many).unwrap();
    for number in 0..600 {
        fs::write(many.join(format!("a rather long name of a file {number}")), "").unwrap();
    }
    // Many pieces, so that the map needs blocks.
    let ragged = File::create(root.join("spread9/ragged")).unwrap();
    for number in 0..500_u64 {
        std::os::unix::fs::FileExt::write_all_at(&ragged, b"piece", number * 9000).unwrap();
    }
}

/// Creates a larger image of a kind, filled by the kernel.
pub(super) fn filled(kind: &MkfsParameters, folder: &Path) -> std::path::PathBuf {
    let mut larger = MkfsParameters { size: kind.size + 160 * MIB, ..*kind };
    if !kind.is_for_kernels() {
        larger.features = "^quota";
    }
    let image = larger.make(folder);
    populate_with_kernel(&image, kind.fs_type, spread);
    if !kind.is_for_kernels() {
        let done = testkit::command("tune2fs").args(["-O", "quota"]).arg(&image).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        count_usage(&image);
    }
    image
}

#[test]
fn all_kinds_shrink_step_by_step() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Root);
    let folder = testkit::scratch();
    for kind in KINDS {
        let image = filled(&kind, folder.path());
        assert_sound(&image, kind.name);
        let before = tree(device(&image));
        let sizes =
            [190 * MIB, 123 * MIB + 5000, 90 * MIB].map(|bytes| bytes + kind.size - 40 * MIB);
        for bytes in sizes {
            let what = format!("{} at {bytes}", kind.name);
            let shrunk = shrink_to(&image, SizeRequest::Blocks(bytes / u64::from(kind.block_size)))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(shrunk.after.bytes() <= bytes, "{what}: {shrunk:?}");
            assert_sound(&image, &what);
            assert_shows(&image, &before, &what);
        }
        let least = shrink_to(&image, SizeRequest::Minimum)
            .unwrap_or_else(|error| panic!("{}, the least: {error}", kind.name));
        assert_sound(&image, kind.name);
        assert_shows(&image, &before, kind.name);
        println!("{}: {} of {}", kind.name, least.after.bytes(), least.before.bytes());
        assert!(least.after.bytes() < 100 * MIB, "{}: {least:?}", kind.name);
        let grown = grow_to(&image, 300 * MIB, kind.block_size).unwrap();
        assert!(grown.after.bytes() > 280 * MIB, "{grown:?}");
        assert_sound(&image, kind.name);
        if kind.is_for_kernels() {
            populate_with_kernel(&image, kind.fs_type, |root| {
                fs::create_dir(root.join("again")).unwrap();
                spread(&root.join("again"));
            });
            assert_sound(&image, kind.name);
        }
        fs::remove_file(&image).unwrap();
    }
}

fn seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Adjusts a tree to a run of resize2fs that took `run`, in seconds since the epoch.
///
/// If resize2fs renumbers an inode, it sets its change time. It sets both times of a directory with such an inode among
/// its entries, including `.` and `..`. Only the seconds change. It does so in images of mke2fs that no other program
/// changed. All other times stay.
fn with_times_of_resize2fs(mut tree: FsTree, found: &FsTree, run: RangeInclusive<i64>) -> FsTree {
    let number = |tree: &FsTree, path: &[u8]| tree.get(path).map(|inode| inode.attributes.ino);
    let has_other = |path: &[u8]| number(&tree, path) != number(found, path);
    let parent = |path: &[u8]| {
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        path[..end].to_vec()
    };
    let moved: BTreeSet<Vec<u8>> =
        tree.paths.keys().filter(|path| has_other(path)).cloned().collect();
    let holders: BTreeSet<Vec<u8>> = moved.iter().map(|path| parent(path)).collect();
    let set = |time: &mut Timestamp, now: Timestamp| {
        if run.contains(&now.sec) {
            time.sec = now.sec;
        }
    };
    for (path, place) in &tree.paths {
        let Some(now) = found.get(path).map(|inode| inode.attributes) else { continue };
        let own = &mut tree.inodes[*place].attributes;
        let is_directory = own.file_type == FileType::Directory;
        let has_moved = |path: &Vec<u8>| moved.contains(path);
        if has_moved(path) || is_directory && (holders.contains(path) || has_moved(&parent(path))) {
            set(&mut own.ctime, now.ctime);
            if is_directory {
                set(&mut own.mtime, now.mtime);
            }
        }
    }
    tree
}

#[test]
fn resize2fs_goes_on_after_a_shrink() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("resize2fs"), Tool("tune2fs"), Root);
    let folder = testkit::scratch();
    let kinds = KINDS.into_iter().filter(MkfsParameters::is_for_resize2fs);
    for kind in kinds.take(effort(4, KINDS.len(), KINDS.len())) {
        let image = filled(&kind, folder.path());
        let mut before = tree(device(&image));
        let bytes = kind.size + 90 * MIB;
        shrink_to(&image, SizeRequest::Blocks(bytes / u64::from(kind.block_size))).unwrap();
        assert_sound(&image, kind.name);
        // resize2fs does not count blocks that it allocates for maps of moved files in the quotas.
        let mut without_quota = testkit::command("tune2fs");
        let output = without_quota.args(["-O", "^quota"]).arg(&image).output().unwrap();
        assert!(output.status.success(), "{}: {output:?}", kind.name);
        // Ensures that all times set by resize2fs differ from the old ones.
        thread::sleep(Duration::from_millis(1100));
        for size in ["250M", "120M"] {
            let start = seconds();
            let output =
                testkit::command("resize2fs").arg("-f").arg(&image).arg(size).output().unwrap();
            let run = start..=seconds();
            let is_too_small =
                String::from_utf8_lossy(&output.stderr).contains("smaller than minimum");
            assert!(output.status.success() || is_too_small, "{}: {output:?}", kind.name);
            assert_sound(&image, kind.name);
            before = with_times_of_resize2fs(before, &tree(device(&image)), run);
            assert_shows(&image, &before, kind.name);
        }
        fs::remove_file(&image).unwrap();
    }
}

/// The minimum size computed from the blocks in use is a whole number of groups and is too small. At the next few sizes
/// the last group would be too small.
#[test]
fn the_minimum_size_is_found_past_impossible_sizes() {
    require!(Tool("mke2fs"), Mount("ext4"), Tool("e2fsck"));
    let scratch = testkit::scratch();
    let image = scratch.path().join("image");
    testkit::Mke2fs::new("ext4").block_size(1024).create(&image, 200 * MIB);
    populate_with_kernel(&image, "ext4", |root| {
        for number in 0..60 {
            let path = root.join(format!("d{number}"));
            fs::create_dir_all(path.join("e/f")).unwrap();
            for file in 0..5 {
                fs::write(path.join(format!("e/{file}")), file.to_string()).unwrap();
            }
            fs::hard_link(path.join("e/1"), path.join("e/f/link")).unwrap();
        }
    });
    let shrunk = shrink_to(&image, SizeRequest::Minimum).unwrap();
    assert!(shrunk.after.bytes() < 20 * MIB, "{shrunk:?}");
    testkit::e2fsck(&image);
}

/// e2fsck counts each block reserved for descriptors as a whole cluster.
#[test]
fn clusters_that_are_kept_are_counted_whole() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let folder = testkit::scratch();
    let kind = MkfsParameters {
        arguments: &["-C", "16384"],
        size: 200 * MIB,
        ..kind("clusters that are kept", "ext4", 1024, "bigalloc")
    };
    let image = kind.make(folder.path());
    testkit::e2fsck(&image);
    for mib in [170, 123] {
        shrink_to(&image, SizeRequest::Blocks(mib * 1024)).unwrap();
        testkit::e2fsck(&image);
    }
}

/// Metadata of removed groups takes space until they are removed. The planned size accounts for that, so it is possible
/// at once. Afterwards the space is free, and shrinking continues until the planned size is the current one.
#[test]
fn the_least_size_is_found_at_once() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let folder = testkit::scratch();
    let kind = MkfsParameters { size: 512 * MIB, ..kind("large", "ext4", 4096, "") };
    let image = kind.make(folder.path());
    let recording = Arc::new(RecordingDevice::new(device(&image)));
    let shared: Arc<dyn BlockDevice> = device(&image);
    let (before, planned) = plan_shrinking(&shared, SizeRequest::Minimum).unwrap();
    drop(shared);
    let at_once = SizeRequest::Blocks(planned.blocks);
    let shrunk = shrink(recording.clone(), at_once, &mut |_, _| true).unwrap();
    assert_eq!((shrunk.before, shrunk.after), (before, planned));
    let flushes = testkit::crash::flushes(&recording.take()).len();
    assert!(flushes < 40, "{flushes} flushes");
    let shrunk = shrink(recording.clone(), SizeRequest::Minimum, &mut |_, _| true).unwrap();
    assert!(shrunk.after.blocks < planned.blocks, "{shrunk:?}");
    let flushes = testkit::crash::flushes(&recording.take()).len();
    assert!(flushes < 40, "{flushes} flushes");
    let shared: Arc<dyn BlockDevice> = device(&image);
    assert_eq!(plan_shrinking(&shared, SizeRequest::Minimum).unwrap().1, shrunk.after);
    drop(shared);
    File::options().write(true).open(&image).unwrap().set_len(shrunk.after.bytes()).unwrap();
    testkit::e2fsck(&image);
}

#[test]
fn sizes_below_the_minimum_are_refused_without_changes() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Root);
    let folder = testkit::scratch();
    let image = KINDS[0].make(folder.path());
    populate_with_kernel(&image, "ext4", |root| {
        fs::write(root.join("most"), vec![7; 24 << 20]).unwrap();
    });
    let before = testkit::digest(&image);
    let shared: Arc<dyn BlockDevice> = device(&image);
    let error = plan_shrinking(&shared, SizeRequest::Blocks(4000)).unwrap_err();
    assert!(matches!(error, Error::NoSpace), "{error}");
    let error = shrink(device(&image), SizeRequest::Blocks(1 << 30), &mut |_, _| true).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert_eq!(testkit::digest(&image), before);
    let error = shrink(device(&image), SizeRequest::Blocks(4000), &mut |_, _| true).unwrap_err();
    assert!(matches!(error, Error::NoSpace), "{error}");
    assert_sound(&image, "refused");
    let stopped = shrink(device(&image), SizeRequest::Minimum, &mut |_, _| false).unwrap_err();
    assert!(matches!(stopped, Error::Device(_)), "{stopped}");
    assert_sound(&image, "stopped");
}
