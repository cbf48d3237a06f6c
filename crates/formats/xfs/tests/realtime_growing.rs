//! Growing realtime sections, with and without groups. Judges are xfs_repair, our own check and the guest's kernel.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice, RecordingDevice};
use testkit::crash::{cut_off, flushes, read_image};
use testkit::{MkfsXfs, effort, require};
use vfs::{Error, FileSystem, InodeFlags, NewInode, Timestamp};
use xfs::resize::{grow_realtime, plan_realtime};
use xfs::{OpenOptions, Xfs};

use crate::changing::MIB;
use crate::checking::findings;
use crate::realtime_change::in_guest;
use crate::realtime_crash::{Pair, joined};

const TIME: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 0 };
/// Sizes of the image and of the realtime device of [`Pair`].
const SIZE: u64 = 64 * MIB;
const DEVICE: u64 = 24 * MIB;

/// Options of mkfs.xfs for sections of about 10 MiB: the feature, and the suboptions of `-r`.
const SECTIONS: [(&str, &str); 7] = [
    ("metadir=0", ",size=10m"),
    ("metadir=0", ",size=10100k,extsize=12k"),
    ("metadir=1", ",size=10m,rgsize=8064k"),
    ("metadir=1", ",size=8064k,rgsize=8064k"),
    ("metadir=1,rmapbt=0,reflink=0", ",size=10m,rgsize=4m"),
    ("metadir=1", ",size=10092k,extsize=12k,rgsize=3m"),
    // Growing takes several steps.
    ("metadir=1", ",size=10m,rgsize=80k"),
];

fn made(folder: &Path, name: &str, (features, section): (&str, &str)) -> Pair {
    let pair = Pair::in_folder(folder, name);
    File::create(&pair.realtime).unwrap().set_len(DEVICE).unwrap();
    let realtime = pair.realtime.display();
    let options = format!("-d rtinherit=1 -m {features} -r rtdev={realtime}{section}");
    MkfsXfs::default().options(&options).create(&pair.image, SIZE);
    pair
}

fn blocks(fs: &Xfs) -> u64 {
    fs.superblock().raw.rblocks.get()
}

/// Fills the section up to `left` bytes.
fn fill(fs: &Xfs, name: &str, left: u64) {
    let file = fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
    assert!(fs.file_attributes(file).unwrap().flags.contains(InodeFlags::REALTIME));
    let free = fs.statfs().unwrap();
    let bytes = (free.blocks_free * u64::from(free.block_size)).saturating_sub(left);
    for at in (0..bytes).step_by(MIB as usize) {
        let len = (bytes - at).min(MIB);
        fs.write(file, at, &vec![7; len as usize], None).unwrap();
    }
}

#[test]
fn sections_grow_with_and_without_groups() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let folder = testkit::scratch();
    for (nth, section) in SECTIONS.into_iter().enumerate() {
        let pair = made(folder.path(), &nth.to_string(), section);
        let fs = pair.open();
        fill(&fs, "first", MIB);
        Xfs::close(fs).unwrap();
        for size in [13 * MIB + 4096, DEVICE] {
            let planned = plan_realtime(&*pair.device(), size).unwrap();
            let grown = grow_realtime(pair.device(), size, TIME).unwrap();
            assert_eq!(planned, grown, "{section:?}");
            assert!(grown.is_change(), "{section:?}");
            assert!(size - grown.bytes_after() < 160 << 10, "{section:?}: {grown:?}");
            pair.assert_sound();
        }
        let fs = pair.open();
        fill(&fs, "second", 0);
        fs.unlink(fs.root(), b"first", None).unwrap();
        Xfs::close(fs).unwrap();
        pair.assert_sound();
        let again = grow_realtime(pair.device(), DEVICE, TIME).unwrap();
        assert!(!again.is_change(), "{section:?}");
    }
}

#[test]
fn an_image_gets_its_first_section() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let folder = testkit::scratch();
    for (nth, features) in
        ["metadir=1", "metadir=1,rmapbt=0,reflink=0", "rmapbt=0,reflink=0"].into_iter().enumerate()
    {
        let pair = Pair::in_folder(folder.path(), &nth.to_string());
        File::create(&pair.realtime).unwrap().set_len(DEVICE).unwrap();
        let options = format!("-d rtinherit=1 -l size=15m -m {features}");
        MkfsXfs::default().options(&options).create(&pair.image, SIZE);
        let grown = grow_realtime(pair.device(), DEVICE, TIME).unwrap();
        assert_eq!((grown.blocks_before, grown.bytes_after()), (0, DEVICE));
        pair.assert_sound();
        let fs = pair.open();
        fill(&fs, "file", 0);
        Xfs::close(fs).unwrap();
        pair.assert_sound();
    }
}

#[test]
fn invalid_growth_is_refused_and_changes_nothing() {
    require!(Tool("mkfs.xfs"));
    let folder = testkit::scratch();
    let pair = made(folder.path(), "image", SECTIONS[0]);
    let before = std::fs::read(&pair.image).unwrap();
    let refused = |size| grow_realtime(pair.device(), size, TIME).unwrap_err().to_string();
    assert!(refused(9 * MIB).contains("shrinking the realtime section"));
    assert!(refused(DEVICE + MIB).contains("extend it first"));
    let alone = crate::making::open(&pair.image);
    assert!(matches!(grow_realtime(alone, DEVICE, TIME), Err(Error::Invalid(_))));
    let plain = Pair::in_folder(folder.path(), "plain");
    std::fs::rename(&pair.realtime, &plain.realtime).unwrap();
    MkfsXfs::default().create(&plain.image, SIZE);
    let error = grow_realtime(plain.device(), DEVICE, TIME).unwrap_err().to_string();
    assert!(error.contains("without metadir"), "{error}");
    assert!(std::fs::read(&pair.image).unwrap() == before);
}

/// Until the growth is in the log, recovery gives the old size, afterwards that after a step.
#[test]
fn growth_survives_a_crash_anywhere() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let folder = testkit::scratch();
    for (nth, section) in SECTIONS.into_iter().enumerate() {
        let pair = made(folder.path(), &format!("start{nth}"), section);
        let start = MemoryDevice::new(SIZE + DEVICE);
        for (path, offset) in [(&pair.image, 0), (&pair.realtime, SIZE)] {
            let part = read_image(path).unwrap();
            part.for_each_part(|at, bytes| start.write_at(offset + at, bytes)).unwrap();
        }
        let device = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
        let grown = grow_realtime(joined(device.clone()), DEVICE, TIME).unwrap();
        let events = device.take();
        let mut random = fastrand::Rng::with_seed(nth as u64);
        let mut ends = flushes(&events);
        let more = ends.len() * (effort(1, 1, 20) - 1);
        ends.extend((0..more).map(|_| random.usize(0..=events.len())));
        ends.push(events.len());
        let mut sizes = std::collections::BTreeSet::new();
        for end in ends {
            let state = Arc::new(cut_off(&start, &events, end, &mut random));
            let fs = Xfs::open_writable(joined(state.clone()), &OpenOptions::default()).unwrap();
            sizes.insert(blocks(&fs));
            Xfs::close(fs).unwrap();
            let found = findings(joined(Arc::new(state.fork()))).unwrap();
            assert!(found.is_empty(), "{section:?}, event {end}: {found:#?}");
            let crashed = Pair::write(folder.path(), "crashed", &state);
            let verdict = crashed.verdict();
            assert!(verdict.is_ok(), "{section:?}, event {end}: {verdict:?}");
            let again = grow_realtime(joined(state.clone()), DEVICE, TIME).unwrap();
            assert_eq!(again.blocks_after, grown.blocks_after);
            assert!(findings(joined(state)).unwrap().is_empty(), "{section:?}, event {end}");
        }
        assert_eq!(sizes.first(), Some(&grown.blocks_before), "{section:?}");
        assert_eq!(sizes.last(), Some(&grown.blocks_after), "{section:?}");
        let is_stepwise = section.1.ends_with("80k");
        assert_eq!(sizes.len() > 2, is_stepwise, "{section:?}: {sizes:?}");
    }
}

/// The guest's kernel uses grown sections, and its scrub finds nothing.
#[test]
fn kernels_use_grown_sections() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Guest("XFS_RT"));
    let folder = testkit::scratch();
    for (nth, section) in [SECTIONS[1], SECTIONS[2], SECTIONS[6]].into_iter().enumerate() {
        let pair = made(folder.path(), &nth.to_string(), section);
        let fs = pair.open();
        fill(&fs, "first", MIB);
        Xfs::close(fs).unwrap();
        grow_realtime(pair.device(), DEVICE, TIME).unwrap();
        in_guest(std::slice::from_ref(&pair), USE);
        pair.assert_sound();
    }
}

/// Fills most of the section, checks it, and removes half of it.
pub(crate) const USE: &str = "set -e\n\
    mount -t xfs -o rtdev=$2 $1 /mnt\n\
    xfs_io -f -c 'pwrite -q -S 5 0 12m' -c fsync /mnt/new\n\
    xfs_scrub -n /mnt\n\
    rm /mnt/new\n\
    xfs_io -f -c 'pwrite -q -S 6 0 5m' /mnt/newer\n\
    umount /mnt\n";
