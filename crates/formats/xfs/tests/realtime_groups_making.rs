//! Making images with realtime groups, judged by xfs_repair, mkfs.xfs and the guest's kernel.

use std::fs::File;
use std::path::Path;

use testkit::{MkfsXfs, require};
use vfs::{Error, FileSystem, InodeFlags, NewInode};
use xfs::Xfs;
use xfs::format::superblock::{RawSuperblock, SUPERBLOCK_SIZE};
use xfs::mkfs::{self, FeatureChange, Inherited, Options, PreviousContents, RealtimeSection};
use zerocopy::FromBytes;

use crate::changing::MIB;
use crate::realtime_change::in_guest;
use crate::realtime_crash::Pair;
use crate::realtime_growing::USE;

const SIZE: u64 = 320 * MIB;

fn options(section: RealtimeSection, features: &str) -> Options {
    Options {
        realtime: Some(section),
        features: FeatureChange::parse_list(&format!("metadir,{features}")).unwrap(),
        inherited: Inherited { realtime: true, ..Inherited::default() },
        uuid: [0x55; 16],
        ..Options::new(SIZE)
    }
}

/// Makes an image and its realtime device as files.
fn made(folder: &Path, name: &str, options: &Options, contents: PreviousContents) -> Pair {
    let pair = Pair::in_folder(folder, name);
    let bytes = options.realtime.map_or(0, |section| section.bytes);
    for (path, bytes) in [(&pair.image, options.size_bytes), (&pair.realtime, bytes)] {
        let file = File::create(path).unwrap();
        file.set_len(bytes).unwrap();
        if contents == PreviousContents::Unknown {
            std::fs::write(path, vec![0xa5; bytes as usize]).unwrap();
        }
    }
    let layout = mkfs::plan(options).unwrap();
    mkfs::format(&*pair.device(), &layout, contents).unwrap();
    pair
}

fn superblock(pair: &Pair) -> RawSuperblock {
    let image = std::fs::read(&pair.image).unwrap();
    RawSuperblock::read_from_bytes(&image[..SUPERBLOCK_SIZE]).unwrap()
}

/// Fields that must equal those of mkfs.xfs.
fn fields(raw: &RawSuperblock) -> [u64; 11] {
    [
        raw.rblocks.get(),
        raw.rextents.get(),
        raw.frextents.get(),
        raw.rextsize.get().into(),
        raw.rbmblocks.get().into(),
        raw.rextslog.into(),
        raw.rgcount.get().into(),
        raw.rgextents.get().into(),
        raw.rgblklog.into(),
        raw.features_ro_compat.get().into(),
        raw.features_incompat.get().into(),
    ]
}

/// A section with the number of groups and their size in bytes, if they are not the default ones.
fn section(
    bytes: u64,
    extent: Option<u32>,
    count: Option<u32>,
    size: Option<u64>,
) -> RealtimeSection {
    let new = RealtimeSection::new(bytes);
    RealtimeSection { extent_bytes: extent, group_count: count, group_bytes: size, ..new }
}

#[test]
fn made_groups_are_those_of_mkfs_xfs() {
    require!(Version("mkfs.xfs", 7, 0), Tool("xfs_repair"));
    let folder = testkit::scratch();
    let cases = [
        (section(40 * MIB, None, Some(3), None), ""),
        (section(40 * MIB, None, None, Some(16 * MIB)), "-reflink"),
        (section(40 * MIB, Some(16 << 10), None, Some(8 * MIB)), ""),
        (section(39 * MIB, Some(12 << 10), None, Some(12 * MIB)), "-rmapbt,-reflink"),
        (section(300 * MIB, None, None, None), "-parent"),
        // Many groups, and one whose bitmap has several blocks.
        (section(40 * MIB, None, Some(160), None), ""),
        (section(3000 * MIB, None, Some(1), None), ""),
    ];
    for (nth, (section, features)) in cases.into_iter().enumerate() {
        let ours = made(
            folder.path(),
            &format!("ours{nth}"),
            &options(section, features),
            PreviousContents::Zeros,
        );
        ours.assert_sound();
        let theirs = Pair::in_folder(folder.path(), &format!("theirs{nth}"));
        File::create(&theirs.realtime).unwrap().set_len(section.bytes).unwrap();
        let mut line = format!("-d rtinherit=1 -r rtdev={}", theirs.realtime.display());
        for (name, value) in [
            ("extsize", section.extent_bytes.map(u64::from)),
            ("rgcount", section.group_count.map(u64::from)),
            ("rgsize", section.group_bytes),
        ] {
            line += &value.map_or(String::new(), |value| format!(",{name}={value}"));
        }
        line += " -m metadir=1";
        for off in features.split(',').filter_map(|name| name.strip_prefix('-')) {
            line += &format!("{}{off}=0", if off == "parent" { " -n " } else { "," });
        }
        MkfsXfs::default().options(&line).create(&theirs.image, SIZE);
        assert_eq!(fields(&superblock(&ours)), fields(&superblock(&theirs)), "case {nth}");

        let fs = ours.open();
        let ino = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
        assert!(fs.file_attributes(ino).unwrap().flags.contains(InodeFlags::REALTIME));
        fs.write(ino, 0, &vec![9; 30 << 20], None).unwrap();
        Xfs::close(fs).unwrap();
        ours.assert_sound();
        for pair in [&ours, &theirs] {
            std::fs::remove_file(&pair.realtime).unwrap();
            std::fs::remove_file(&pair.image).unwrap();
        }
    }
}

#[test]
fn groups_are_made_over_old_contents_and_reproducibly() {
    require!(Tool("xfs_repair"));
    let folder = testkit::scratch();
    let options = options(section(40 * MIB, None, Some(3), None), "");
    made(folder.path(), "old", &options, PreviousContents::Unknown).assert_sound();
    let read = |name| {
        let pair = made(folder.path(), name, &options, PreviousContents::Zeros);
        [std::fs::read(pair.image).unwrap(), std::fs::read(pair.realtime).unwrap()]
    };
    assert!(read("one") == read("two"));
}

#[test]
fn invalid_groups_are_refused() {
    let refused = |section, features| match mkfs::plan(&options(section, features)) {
        Err(Error::Invalid(message)) => message,
        other => panic!("{other:?}"),
    };
    let of = |count, size| section(40 * MIB, None, count, size);
    assert!(refused(of(Some(2), Some(20 * MIB)), "").contains("not both"));
    assert!(refused(of(Some(0), None), "").contains("at least one group"));
    assert!(refused(of(None, Some(4096)), "").contains("2 to 2^31 - 1"));
    assert!(refused(of(Some(20_000), None), "").contains("2 to 2^31 - 1"));
    let odd = section(40 * MIB, Some(12 << 10), None, Some(MIB));
    assert!(refused(odd, "").contains("multiple of the realtime extent size"));
    let shared = section(40 * MIB, Some(16 << 10), None, None);
    assert!(refused(shared, "reflink").contains("reflink"));
    assert!(refused(of(Some(3), None), "-metadir").contains("metadir"));
}

/// The guest's kernel uses made images, and its scrub finds nothing.
#[test]
fn kernels_use_made_groups() {
    require!(Tool("xfs_repair"), Guest("XFS_RT"));
    let folder = testkit::scratch();
    let cases = [
        section(40 * MIB, None, Some(3), None),
        section(40 * MIB, Some(16 << 10), None, Some(8 * MIB)),
        section(40 * MIB, None, Some(150), None),
    ];
    for (nth, section) in cases.into_iter().enumerate() {
        let options = options(section, "");
        let pair = made(folder.path(), &nth.to_string(), &options, PreviousContents::Zeros);
        in_guest(std::slice::from_ref(&pair), USE);
        pair.assert_sound();
    }
}
