//! Making and repairing images with a realtime section, judged by xfs_repair.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use operations::repair::{Staging, make_plan, write_in_place};
use testkit::require;
use vfs::check::{Finding, Observer};
use vfs::{Error, FileSystem, InodeFlags, NewInode};
use xfs::format::checksum;
use xfs::format::extent::Extent;
use xfs::format::inode::Fork;
use xfs::format::superblock::{CRC_OFFSET, RawSuperblock, SUPERBLOCK_SIZE};
use xfs::mkfs::{self, FeatureChange, Inherited, Options, PreviousContents, RealtimeSection};
use xfs::repair::Repair;
use xfs::{OpenOptions, Xfs};
use zerocopy::{FromBytes, IntoBytes};

use crate::changing::MIB;
use crate::checking::findings;
use crate::realtime_crash::Pair;

const SIZE: u64 = 64 * MIB;

fn options(bytes: u64, extent_bytes: Option<u32>) -> Options {
    Options {
        realtime: Some(RealtimeSection { extent_bytes, ..RealtimeSection::new(bytes) }),
        inherited: Inherited { realtime: true, ..Inherited::default() },
        allow_small: true,
        uuid: [0x44; 16],
        ..Options::new(SIZE)
    }
}

/// Makes an image and its realtime device as files.
fn made(folder: &Path, name: &str, options: &Options) -> Pair {
    let pair = Pair::in_folder(folder, name);
    let bytes = options.realtime.map_or(0, |section| section.bytes);
    for (path, bytes) in [(&pair.image, options.size_bytes), (&pair.realtime, bytes)] {
        File::create(path).unwrap().set_len(bytes).unwrap();
    }
    let layout = mkfs::plan(options).unwrap();
    mkfs::format(&*pair.device(), &layout, PreviousContents::Zeros).unwrap();
    pair
}

fn superblock(pair: &Pair) -> RawSuperblock {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    File::open(&pair.image).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    RawSuperblock::read_from_bytes(&bytes).unwrap()
}

#[test]
fn made_sections_are_those_of_mkfs_xfs() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let folder = testkit::scratch();
    // The last size ends with a partial extent, and the bitmap has several blocks.
    let cases = [
        (24 * MIB, None),
        (24 * MIB, Some(16 << 10)),
        (24 * MIB, Some(12 << 10)),
        (5000 * MIB, None),
    ];
    for (nth, (bytes, extent)) in cases.into_iter().enumerate() {
        let ours = made(folder.path(), &format!("ours{nth}"), &options(bytes, extent));
        ours.assert_sound();
        let theirs = Pair::in_folder(folder.path(), &format!("theirs{nth}"));
        File::create(&theirs.realtime).unwrap().set_len(bytes).unwrap();
        let extent = extent.map_or(String::new(), |bytes| format!(",extsize={bytes}"));
        let line =
            format!("-d rtinherit=1 -m metadir=0 -r rtdev={}{extent}", theirs.realtime.display());
        testkit::MkfsXfs::default().options(&line).create(&theirs.image, SIZE);
        let [ours_raw, theirs_raw] = [&ours, &theirs].map(superblock);
        let fields = |raw: &RawSuperblock| {
            let realtime = [raw.rblocks.get(), raw.rextents.get(), raw.frextents.get()];
            let sizes = [raw.rextsize.get(), raw.rbmblocks.get(), raw.rextslog.into()];
            (realtime, sizes, raw.features_ro_compat.get(), raw.fdblocks.get())
        };
        assert_eq!(fields(&ours_raw), fields(&theirs_raw), "case {nth}");

        let fs = ours.open();
        let ino = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
        assert!(fs.file_attributes(ino).unwrap().flags.contains(InodeFlags::REALTIME));
        fs.write(ino, 0, &vec![9; 1 << 20], None).unwrap();
        Xfs::close(fs).unwrap();
        ours.assert_sound();
        for pair in [&ours, &theirs] {
            std::fs::remove_file(&pair.realtime).unwrap();
        }
    }
}

#[test]
fn invalid_sections_are_refused() {
    let refused = |options: &Options| match mkfs::plan(options) {
        Err(Error::Invalid(message)) => message,
        other => panic!("{other:?}"),
    };
    assert!(refused(&options(24 * MIB, Some(5000))).contains("multiple of the block size"));
    assert!(refused(&options(24 * MIB, Some(1 << 11))).contains("4 KiB to 1 GiB"));
    assert!(refused(&options(4095, None)).contains("smaller than"));
    assert!(refused(&options(1 << 50, None)).contains("2^32"));
    assert!(refused(&options(1 << 43, None)).contains("first allocation group"));
    let features = FeatureChange::parse_list("rmapbt").unwrap();
    assert!(refused(&Options { features, ..options(24 * MIB, None) }).contains("rmapbt"));
    let layout = mkfs::plan(&options(24 * MIB, None)).unwrap();
    let alone = disk::MemoryDevice::new(SIZE);
    let error = mkfs::format(&alone, &layout, PreviousContents::Zeros).unwrap_err();
    assert!(error.to_string().contains("realtime device is missing"), "{error}");
}

#[test]
fn inherited_attributes_are_those_of_the_root() {
    require!(Tool("xfs_repair"));
    let folder = testkit::scratch();
    let inherited = Inherited {
        realtime: false,
        dax: true,
        extent_blocks: 8,
        cow_extent_blocks: 16,
        project: 42,
    };
    let options = Options { realtime: None, inherited, ..options(0, None) };
    let path = folder.path().join("image");
    let file = File::create_new(&path).unwrap();
    file.set_len(SIZE).unwrap();
    let device = Arc::new(
        disk::FileDevice::new(File::options().read(true).write(true).open(&path).unwrap()).unwrap(),
    );
    mkfs::format(&*device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    let fs = Xfs::open_writable(device, &OpenOptions::default()).unwrap();
    let ino = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    let found = fs.file_attributes(ino).unwrap();
    assert_eq!(found.project_id, 42);
    assert_eq!((found.extent_size_bytes, found.cow_extent_size_bytes), (8 << 12, 16 << 12));
    assert!(found.flags.contains(InodeFlags::DAX));
    Xfs::close(fs).unwrap();
    testkit::xfs_repair(&path);
}

struct Silent;

impl Observer for Silent {
    fn found(&self, _: Finding) {}
}

#[test]
fn damaged_bitmaps_summaries_and_counts_are_rebuilt() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let folder = testkit::scratch();
    let pair = Pair::make(folder.path(), "image", ",extsize=8k");
    let fs = pair.open();
    let mut random = fastrand::Rng::with_seed(3);
    for nth in 0..200 {
        let ino = fs.create(fs.root(), format!("{nth}").as_bytes(), &NewInode::default()).unwrap();
        fs.write(ino, 0, &vec![nth as u8; random.usize(1..60_000)], None).unwrap();
    }
    for nth in (0..200).step_by(3) {
        fs.unlink(fs.root(), format!("{nth}").as_bytes(), None).unwrap();
    }
    Xfs::close(fs).unwrap();
    pair.assert_sound();
    let raw = superblock(&pair);
    for _ in 0..testkit::effort(4, 10, 300) {
        let fs = Xfs::open(pair.device(), &OpenOptions::default()).unwrap();
        let places = [raw.rbmino, raw.rsumino].map(|ino| {
            let inode = fs.inode(vfs::Ino(ino.get())).unwrap();
            let start = Extent::parse(inode.fork(Fork::Data)).start;
            fs.geometry().byte_of(fs.geometry().device_block(start))
        });
        drop(fs);
        let file = File::options().read(true).write(true).open(&pair.image).unwrap();
        for place in places {
            let mut bytes = [0; 4096];
            file.read_exact_at(&mut bytes, place).unwrap();
            for _ in 0..random.usize(1..20) {
                bytes[random.usize(..1024)] = random.u8(..);
            }
            file.write_all_at(&bytes, place).unwrap();
        }
        let mut sector = [0; 512];
        file.read_exact_at(&mut sector, 0).unwrap();
        let mut raw = RawSuperblock::read_from_bytes(&sector[..SUPERBLOCK_SIZE]).unwrap();
        raw.frextents = random.u64(..1 << 20).into();
        sector[..SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
        checksum::seal(&mut sector, CRC_OFFSET);
        file.write_all_at(&sector, 0).unwrap();
        // agf_freeblks of the first group.
        file.read_exact_at(&mut sector, 512).unwrap();
        sector[56] ^= 1;
        checksum::seal(&mut sector, 216);
        file.write_all_at(&sector, 512).unwrap();
        assert!(!findings(pair.device()).unwrap().is_empty());
        let device = pair.device();
        let staging = Arc::new(Staging::new(device.clone()));
        let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
        assert!(plan.left.is_empty(), "{:?}", plan.left);
        write_in_place(&*device, &plan.steps, &mut |_, _| true).unwrap();
        pair.assert_sound();
    }
}

/// The data device grows; the realtime section stays.
#[test]
fn images_with_a_section_grow_in_place() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    grow(Pair::make);
    grow(Pair::make_groups);
}

fn grow(make: fn(&Path, &str, &str) -> Pair) {
    let folder = testkit::scratch();
    let pair = make(folder.path(), "image", ",extsize=8k");
    let fs = pair.open();
    let ino = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    fs.write(ino, 0, &[1; 90_000], None).unwrap();
    Xfs::close(fs).unwrap();
    let file = File::options().write(true).open(&pair.image).unwrap();
    file.set_len(2 * SIZE).unwrap();
    let grown = xfs::resize::grow(pair.device(), 2 * SIZE).unwrap();
    assert!(grown.groups_after > grown.groups_before);
    pair.assert_sound();
    let fs = pair.open();
    fs.write(ino, 90_000, &[2; 90_000], None).unwrap();
    Xfs::close(fs).unwrap();
    pair.assert_sound();
}

#[test]
fn an_inode_of_a_realtime_file_is_repaired_with_its_device() {
    require!(Tool("mkfs.xfs"));
    let folder = testkit::scratch();
    let pair = Pair::make(folder.path(), "image", "");
    let fs = pair.open();
    let ino = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    fs.write(ino, 0, &[1; 9000], None).unwrap();
    Xfs::close(fs).unwrap();
    let fs = Xfs::open(pair.device(), &OpenOptions::default()).unwrap();
    let slot = fs.inode_byte(ino).unwrap();
    drop(fs);
    let file = File::options().read(true).write(true).open(&pair.image).unwrap();
    // The checksum of the inode.
    file.write_all_at(&[0xee; 4], slot + 100).unwrap();
    // Without the realtime device nothing is repaired.
    let alone = Arc::new(disk::FileDevice::new(file).unwrap());
    let staging = Arc::new(Staging::new(alone));
    let error = make_plan(&Repair::default(), &staging, &Silent).err().unwrap().to_string();
    assert!(error.contains("--rt-device FILE"), "{error}");
    let staging = Arc::new(Staging::new(pair.device()));
    let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
    assert!(plan.left.is_empty(), "{:?}", plan.left);
    write_in_place(&*pair.device(), &plan.steps, &mut |_, _| true).unwrap();
    pair.assert_sound();
    let fs = pair.open();
    let mut found = vec![0; 9000];
    assert_eq!(fs.read(ino, 0, &mut found).unwrap(), 9000);
    assert_eq!(found, [1; 9000]);
}
