//! Power loss at any moment of `apply`. The image is entirely old or new. If `apply` takes several
//! steps, each file is.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, Event, MemoryDevice, RecordingDevice};
use diskwright::Image;
use diskwright::apply::{Observer, apply_in};
use diskwright::build::Owner;
use diskwright::diff::{Change, DiffOptions, Side, diff};
use diskwright::edit::{Editor, Policy};
use import::oci::{LayerFile, Limits};
use testkit::crash::{cut_off, read_image, write_image};
use testkit::{Mke2fs, effort, judge, require};
use vfs::{Paths, Timestamp};

use super::tarball::{Member, dir, file, link, tar};
use crate::layers::common::{FORMATS, build, make};
use crate::program::ok;

struct Quiet;

impl Observer for Quiet {
    fn file(&mut self, _: &[u8]) {}

    fn copied(&mut self, _: u64) {}

    fn warning(&mut self, message: &str) {
        panic!("{message}");
    }
}

/// Applies a layer to an image in memory and closes it. Returns everything that was written.
fn recorded(start: &MemoryDevice, layer: &Path, is_xfs: bool) -> Vec<Event> {
    let device = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
    let beside = layer.parent().unwrap();
    let layer =
        LayerFile::load(layer, beside, &Limits::default(), &import::Options::default()).unwrap();
    let time = Timestamp { sec: 2_000_000, nsec: 0 };
    let policy = Policy { owner: Owner { uid: 0, gid: 0 }, time };
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    if is_xfs {
        let fs = xfs::Xfs::open_writable(shared, &xfs::OpenOptions::default()).unwrap();
        apply_in(Editor::new(Paths::new(&fs), policy), &layer, &mut Quiet).unwrap();
        fs.close().unwrap();
    } else {
        let fs = ext4::Ext4::open_writable(shared, &ext4::OpenOptions::default()).unwrap();
        apply_in(Editor::new(Paths::new(&fs), policy), &layer, &mut Quiet).unwrap();
        fs.close().unwrap();
    }
    device.take()
}

/// Returns the differences between two images.
fn differences(a: &Path, b: &Path) -> Vec<Change> {
    let open = |path: &Path| Image::open(path).unwrap();
    let (a, b) = (open(a), open(b));
    let options = DiffOptions::default();
    let mut changes = Vec::new();
    diff(Side::Image(&a), Side::Image(&b), &options, &mut Quiet, &mut |change| {
        changes.push(change.clone());
        Ok(())
    })
    .unwrap();
    changes
}

/// Simulates power loss at many moments, and calls `check` with the old image, the new image, and
/// the one found.
fn stop_often(home: &Path, members: &[Member], check: impl Fn(&Path, &Path, &Path)) {
    let (old, new, found) = (home.join("a.img"), home.join("new.img"), home.join("found.img"));
    let layer = home.join("layer.tar");
    fs::write(&layer, tar(members)).unwrap();
    testkit::copy_image(&old, &new);
    ok(home, "apply layer.tar new.img");
    let start = read_image(&old).unwrap();
    let is_xfs = testkit::Format::of(&old) == testkit::Format::Xfs;
    let events = recorded(&start, &layer, is_xfs);
    let mut random = fastrand::Rng::with_seed(11);
    let mut moments: Vec<usize> = (1..=events.len()).collect();
    random.shuffle(&mut moments);
    moments.truncate(effort(6, 15, 400) as usize);
    // All was written, and nothing had to be recovered.
    moments.push(events.len());
    for end in moments {
        let _ = fs::remove_file(&found);
        write_image(&cut_off(&start, &events, end, &mut random), &found).unwrap();
        // Readers see the same without recovery as after it.
        check(&old, &new, &found);
        ok(home, "recover found.img");
        judge(&found);
        check(&old, &new, &found);
    }
}

/// Returns a change of contents, types and names, which also hides files.
fn change() -> Vec<Member> {
    let mut members = vec![
        file(".wh.gone", ""),
        file("d/.wh.x", ""),
        link("moved", "d/x"),
        file("f", "new contents"),
        dir("type"),
        file("type/inside", "x"),
        file("sub", "a file now"),
        Member::File("large".into(), vec![7; 3 << 20]),
        Member::Fifo("d/pipe".into()),
    ];
    members.extend((0..60).map(|n| file(&format!("many/{n}"), &"m".repeat(n * 100))));
    members
}

#[test]
fn a_power_cut_leaves_the_old_image_or_the_new_one() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let home = testkit::scratch();
        let home = home.path();
        make(&home.join("a"), &["d/x", "f", "gone/1", "gone/2", "sub/1", "type", "kept"]);
        build(home, "a", "a.img", format);
        stop_often(home, &change(), |old, new, found| {
            let (from_old, from_new) = (differences(old, found), differences(new, found));
            assert!(
                from_old.is_empty() || from_new.is_empty(),
                "{format}: neither old nor new: {from_old:?} {from_new:?}"
            );
        });
    }
}

#[test]
fn in_several_steps_a_power_cut_leaves_old_and_new_files() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let home = testkit::scratch();
    let home = home.path();
    // With the smallest possible journal, the names alone take several checkpoints.
    let small = Mke2fs::new("ext4").block_size(1024).arguments(["-J", "size=1", "-N", "8000"]);
    small.create(&home.join("a.img"), 64 << 20);
    let members = |contents: &str| -> Vec<Member> {
        let mut members = Vec::new();
        for number in 0..1500 {
            members.push(file(&format!("d{}/{number}", number % 40), contents));
            members.push(dir(&format!("d{}/dir {number}", number % 40)));
        }
        members
    };
    fs::write(home.join("layer.tar"), tar(&members("old"))).unwrap();
    ok(home, "apply layer.tar a.img");
    stop_often(home, &members("newer"), |old, new, found| {
        let (from_old, from_new) = (differences(old, found), differences(new, found));
        // Each path that differs from the old image equals the new one.
        let unlike_old: Vec<_> = from_old.iter().map(|change| &change.path).collect();
        let both: Vec<_> =
            from_new.iter().filter(|change| unlike_old.contains(&&change.path)).collect();
        assert!(both.is_empty(), "neither old nor new: {both:?}");
    });
}
