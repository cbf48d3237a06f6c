//! Images with a metadata directory: changing, recovery, quotas, check and repair. Linux 7.2 made the golden images
//! (`golden/make-metadir`).

use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::crash::{CrashTarget, Judge, Options};
use testkit::operation::Mix;
use testkit::{KernelMount, MkfsXfs, MountOptions, require, scratch};
use vfs::survey::BlockUse;
use vfs::{Error, FileSystem, Ino, NewInode, SetAttributes};
use xfs::format::features::Version;
use xfs::format::geometry::Geometry;
use xfs::format::inode::{Inode, seal_slot};
use xfs::format::metafile::MetafileType;
use xfs::format::superblock::Superblock;
use xfs::{OpenOptions, Xfs};

use crate::changing::judges::check_recovered;
use crate::changing::{SYNCING, TargetLayout, XfsTarget, assert_clean};
use crate::checking::{Sound, findings};
use crate::common::image::unpack_device;
use crate::making::{self, GIB, MIB, case};
use crate::quotas::run::QuotaRun;
use crate::repair::quota_files::change_superblock;
use crate::repair::subject::repaired;

/// `sb_qflags`: all kinds accounted, enforced and counted.
const COUNTED: u16 = 0x7cf;
/// Root of the metadata directory, its directories `rtgroups` and `quota`, and the quota files, in the golden images.
const METADIR: Ino = Ino(129);

fn with_quotas() -> Arc<MemoryDevice> {
    Arc::new(unpack_device(include_bytes!("golden/metadir-quota.img.gz.gz")))
}

fn with_log() -> Arc<MemoryDevice> {
    Arc::new(unpack_device(include_bytes!("golden/metadir-log.img.gz.gz")))
}

fn open(device: &Arc<MemoryDevice>) -> Xfs {
    Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap()
}

fn superblock(device: &MemoryDevice) -> Superblock {
    let mut sector = vec![0; 4096];
    device.read_at(0, &mut sector).unwrap();
    Superblock::parse(&sector, device.len()).unwrap()
}

fn qflags(device: &MemoryDevice) -> u16 {
    superblock(device).raw.qflags.get()
}

#[track_caller]
fn assert_sound(device: &MemoryDevice) {
    let found = findings(Arc::new(device.fork())).unwrap();
    assert!(found.is_empty(), "{found:#?}");
}

/// Returns the bytes of an inode's slot, and their place.
fn slot(device: &MemoryDevice, ino: Ino) -> (u64, Vec<u8>) {
    let geometry = Geometry::new(&superblock(device));
    let (ag, ag_ino) = geometry.split_ino(ino).unwrap();
    let (block, at) = geometry.inode_place(ag_ino);
    let byte = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
    let mut slot = vec![0; geometry.inode_size()];
    device.read_at(byte, &mut slot).unwrap();
    (byte, slot)
}

fn edit(device: &MemoryDevice, ino: Ino, change: impl FnOnce(&mut Inode)) {
    let (byte, bytes) = slot(device, ino);
    let mut inode = Inode::from_slot(&bytes);
    change(&mut inode);
    seal_slot(inode.as_mut_bytes());
    device.write_at(byte, inode.as_bytes()).unwrap();
}

/// Returns the inodes of the metadata directory with their types.
fn metadata(device: &MemoryDevice) -> Vec<(Ino, MetafileType)> {
    let geometry = Geometry::new(&superblock(device));
    let is_metadata = |ino: &Ino| {
        let (_, slot) = slot(device, *ino);
        slot.starts_with(b"IN") && Inode::from_slot(&slot).is_metadata()
    };
    let of_group = |ag| {
        (0..u64::from(geometry.ag_blocks) << geometry.inodes_per_block_log())
            .map(move |nth| geometry.ino(ag, xfs::format::address::AgIno(nth as u32)))
    };
    let exists = |ino: &Ino| geometry.split_ino(*ino).is_some();
    let all = geometry.ags().flat_map(of_group).filter(exists).filter(is_metadata);
    all.map(|ino| (ino, Inode::from_slot(&slot(device, ino).1).metafile_type())).collect()
}

pub(crate) fn of_type(device: &MemoryDevice, wanted: MetafileType) -> Ino {
    metadata(device).into_iter().find(|(_, found)| *found == wanted).unwrap().0
}

/// Numbers from outside do not lead into the tree, and it does not appear in listings.
#[test]
fn the_tree_is_hidden() {
    let device = with_quotas();
    let files = metadata(&device);
    assert_eq!(files.len(), 6, "{files:?}");
    let fs = Xfs::open(device, &OpenOptions::default()).unwrap();
    for (ino, _) in files {
        for refused in [
            fs.attributes(ino).map(drop),
            fs.open(ino),
            fs.read(ino, 0, &mut [0; 8]).map(drop),
            fs.parents(ino, &mut |_, _| {}).map(drop),
            fs.file_attributes(ino).map(drop),
            fs.lookup(ino, b"quota").map(drop),
        ] {
            assert!(matches!(refused, Err(Error::NotFound)), "{ino}: {refused:?}");
        }
    }
    let mut names = Vec::new();
    fs.for_each_entry(fs.root(), &mut |entry| {
        names.push(entry.name.to_vec());
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert!(names.contains(&b"dir".to_vec()) && !names.contains(&b"quota".to_vec()));
}

#[test]
fn images_of_kernels_are_sound() {
    require!(Tool("xfs_repair"));
    assert_sound(&with_quotas());
    assert_sound(&with_log());
    assert_clean(&with_quotas());
}

/// The log of the kernel creates the quota files and counts in them.
#[test]
fn logs_of_kernels_are_replayed() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let device = with_log();
    let fs = open(&device);
    let dir = fs.lookup(fs.root(), b"dir").unwrap();
    assert!(matches!(fs.lookup(dir, b"file2"), Err(Error::NotFound)));
    let file = fs.lookup(dir, b"file6").unwrap();
    assert_eq!(fs.attributes(file).unwrap().size, 120 << 10);
    fs.close().unwrap();
    assert_eq!(qflags(&device), COUNTED);
    assert_sound(&device);
    assert_clean(&device);
}

#[test]
fn usage_is_counted_through_all_changes() {
    require!(Tool("xfs_repair"));
    for seed in 0..testkit::effort(1, 3, 20) {
        let device = with_quotas();
        let mut run = QuotaRun::new(open(&device), seed);
        run.steps(500);
        run.fs.close().unwrap();
        assert_eq!(qflags(&device), COUNTED);
        assert_sound(&device);
        assert_clean(&device);
    }
}

/// Flags of accounting and enforcement are options of mounts in such an image. They stay when nothing is counted.
#[test]
fn quotas_that_were_not_counted_stay_demanded() {
    let device = with_quotas();
    for (before, after) in [(0x3, 0x3), (0x2cb, 0x2cb), (0x7, 0x7)] {
        change_superblock(&device, |raw| raw.qflags = before.into());
        let fs = open(&device);
        fs.create(fs.root(), format!("{before}").as_bytes(), &NewInode::default()).unwrap();
        fs.close().unwrap();
        assert_eq!(qflags(&device), after);
    }
    // A lost quota file.
    let device = with_quotas();
    let user = of_type(&device, MetafileType::UserQuota);
    edit(&device, user, Inode::clear_metadata);
    open(&device).close().unwrap();
    assert_eq!(qflags(&device), COUNTED & !0x4);
}

#[test]
fn limits_of_the_kernel_are_enforced() {
    let device = with_quotas();
    let fs = open(&device);
    let file = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    let owner = SetAttributes { uid: Some(500), ..SetAttributes::default() };
    fs.set_attributes(file, &owner).unwrap();
    let refused = fs.write(file, 0, &vec![1; 2 << 20], None);
    assert!(matches!(refused, Err(Error::QuotaExceeded)), "{refused:?}");
    fs.close().unwrap();
    assert_sound(&device);
}

#[test]
fn a_crash_anywhere_leaves_a_sound_image() {
    require!(Tool("xfs_repair"));
    let image = with_quotas();
    let fs = open(&image);
    let dir = fs.lookup(fs.root(), b"dir").unwrap();
    for nth in 1..=6 {
        fs.unlink(dir, format!("file{nth}").as_bytes(), None).unwrap();
    }
    fs.rmdir(fs.root(), b"dir", None).unwrap();
    fs.close().unwrap();
    let image = image.fork();
    let way = crate::changing::target::Way::InPlace;
    let target = XfsTarget::with_images(TargetLayout::DEFAULT, way, vec![image]);
    let repair = check_recovered(4);
    let judges: [&dyn Judge; 2] = [&Sound, &repair];
    let options = Options { mixes: vec![Mix::ALL, Mix::METADATA, SYNCING], ..Options::default() };
    let target: &dyn CrashTarget = &target;
    testkit::assert_survives(target, &judges, options, 100);
}

/// Fills an image, and lets the check, xfs_repair and the kernel judge it.
fn use_image(image: &Path) {
    let fs = Xfs::open_writable(making::open(image), &OpenOptions::default()).unwrap();
    let dir = fs.mkdir(fs.root(), b"dir", &NewInode::default()).unwrap();
    for nth in 0..300 {
        let file = fs.create(dir, format!("file{nth}").as_bytes(), &NewInode::default()).unwrap();
        fs.write(file, 0, &vec![7; nth * 100], None).unwrap();
    }
    fs.close().unwrap();
    testkit::xfs_repair(image);
    crate::checking::assert_sound(image);
    let mount = KernelMount::new(image, &MountOptions::read_write("xfs"));
    assert_eq!(std::fs::read(mount.path().join("dir/file9")).unwrap(), [7; 900]);
    std::fs::write(mount.path().join("dir/other"), [8; 10_000]).unwrap();
    mount.unmount();
    testkit::xfs_repair(image);
    crate::checking::assert_sound(image);
}

#[test]
fn images_of_both_makers_are_changed_by_both() {
    require!(Tool("xfs_repair"), Version("mkfs.xfs", 7, 2), Mount("xfs"));
    let home = scratch();
    let image = home.path().join("image");
    for options in ["-m metadir=1", "-m metadir=1 -n parent=0", "-m uquota,gqnoenforce -b size=1k"]
    {
        MkfsXfs::default().options(options).create(&image, 300 * MIB);
        crate::checking::assert_sound(&image);
        use_image(&image);
    }
    for features in ["+metadir", "+metadir,-parent", "+metadir,-rmapbt,-reflink"] {
        making::Case { features, ..case(GIB) }.make(&image);
        crate::checking::assert_sound(&image);
        testkit::xfs_repair(&image);
        use_image(&image);
    }
}

/// A kernel replays the log of an image that was not closed.
#[test]
fn the_kernel_replays_our_log() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let device = with_quotas();
    let fs = open(&device);
    for nth in 0..200 {
        let file = fs.create(fs.root(), format!("{nth}").as_bytes(), &NewInode::default()).unwrap();
        fs.write(file, 0, &vec![9; 5000], None).unwrap();
    }
    fs.sync().unwrap();
    let crashed = device.fork();
    drop(fs);
    let home = scratch();
    let image = home.path().join("image");
    testkit::crash::write_image(&crashed, &image).unwrap();
    let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
    for nth in 0..200 {
        assert_eq!(std::fs::read(mount.path().join(nth.to_string())).unwrap(), [9; 5000]);
    }
    mount.unmount();
    testkit::xfs_repair(&image);
    crate::checking::assert_sound(&image);
}

/// The kernel's online check knows the paths of metadata files.
#[test]
fn scrub_accepts_changed_images() {
    require!(Guest("XFS_ONLINE_SCRUB"));
    let home = scratch();
    let image = home.path().join("image");
    making::Case { features: "+metadir", ..case(300 * MIB) }.make(&image);
    assert!(testkit::scrub(&image));
    let device = with_quotas();
    let mut run = QuotaRun::new(open(&device), 7);
    run.steps(200);
    run.fs.close().unwrap();
    testkit::crash::write_image(&device, &image).unwrap();
    assert!(testkit::scrub(&image));
}

/// Growing keeps the fields of the metadata directory in all superblocks.
#[test]
fn growing_keeps_the_tree() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let home = scratch();
    let image = home.path().join("image");
    making::Case { features: "+metadir", ..case(300 * MIB) }.make(&image);
    std::fs::File::options().write(true).open(&image).unwrap().set_len(GIB).unwrap();
    xfs::resize::grow(making::open(&image), GIB).unwrap();
    testkit::xfs_repair(&image);
    use_image(&image);
}

/// Maps count the files of the tree as the file system's own.
#[test]
fn a_survey_counts_quota_files_as_system() {
    #[derive(Default)]
    struct Blocks(u64);
    impl vfs::survey::Sink for Blocks {
        fn extent(&mut self, extent: vfs::survey::Extent) {
            if extent.kind == BlockUse::System {
                self.0 += extent.len;
            }
        }
        fn remark(&mut self, remark: String) {
            panic!("{remark}");
        }
        fn progress(&mut self, _done: u64, _total: u64) -> std::ops::ControlFlow<()> {
            std::ops::ControlFlow::Continue(())
        }
        fn file(&mut self, file: vfs::survey::FileLayout) {
            assert_ne!(file.ino, METADIR);
        }
    }
    let device = with_quotas();
    let mut blocks = Blocks::default();
    let fs = Xfs::open(device.clone(), &OpenOptions::default()).unwrap();
    vfs::survey::TellsLayout::tell_layout(&fs, &mut blocks);
    assert!(blocks.0 > 0);
}

/// Damage of the tree: name, change, and a code that the check must find.
type Harm = (&'static str, fn(&MemoryDevice), &'static str);

const HARMS: &[Harm] = &[
    (
        "type of the user file",
        |image| set_type(image, MetafileType::UserQuota, 3),
        "xfs-metadir-file",
    ),
    ("invalid type", |image| set_type(image, MetafileType::GroupQuota, 99), "xfs-inode-field"),
    ("no type", |image| set_type(image, MetafileType::ProjectQuota, 0), "xfs-inode-field"),
    (
        "type of the root",
        |image| edit(image, METADIR, |of| of.as_mut_bytes()[7] = 2),
        "xfs-inode-field",
    ),
    (
        "file without the flag",
        |image| edit(image, of_type(image, MetafileType::UserQuota), Inode::clear_metadata),
        "xfs-metadir-flag",
    ),
    (
        "root without the flag",
        |image| edit(image, METADIR, Inode::clear_metadata),
        "xfs-metadir-root",
    ),
    (
        "root as a file",
        |image| {
            edit(image, METADIR, |of| {
                of.set_mode(vfs::FileType::Regular, 0);
                of.as_mut_bytes()[5] = 2;
            });
        },
        "xfs-metadir-root",
    ),
    ("lost slot of the root", |image| zero(image, METADIR), "xfs-inode"),
    ("owner", |image| edit(image, METADIR, |of| of.set_uid(5)), "xfs-inode-field"),
    (
        "permissions",
        |image| {
            edit(image, of_type(image, MetafileType::UserQuota), |of| of.set_permissions(0o644));
        },
        "xfs-inode-field",
    ),
    (
        "flags",
        |image| edit(image, of_type(image, MetafileType::UserQuota), |of| of.set_flags(0)),
        "xfs-inode-field",
    ),
    ("links", |image| edit(image, METADIR, |of| of.set_nlink(9)), "xfs-inode-links"),
    (
        "an ordinary file with the flag",
        |image| {
            let fs = Xfs::open(Arc::new(image.fork()), &OpenOptions::default()).unwrap();
            let file = fs.lookup(fs.root(), b"g").or_else(|_| {
                let dir = fs.lookup(fs.root(), b"dir")?;
                fs.lookup(dir, b"file3")
            });
            edit(image, file.unwrap(), |of| of.set_flags2(of.flags2() | 0x20));
        },
        "xfs-metadir-flag",
    ),
    (
        "the root directory with the flag",
        |image| {
            edit(image, Ino(128), |of| of.set_flags2(of.flags2() | 0x20));
        },
        "xfs-metadir-flag",
    ),
    (
        "name of the directory of quota files",
        |image| edit(image, METADIR, |of| of.as_mut_bytes()[201] ^= 0x20),
        "xfs-metadir-file",
    ),
    (
        "name of the user file",
        |image| {
            // Contents of the directory: header, length of the name, position.
            edit(image, directory(image, b"user"), |of| of.as_mut_bytes()[185] ^= 0x20);
        },
        "xfs-metadir-file",
    ),
    (
        "records past all identifiers",
        |image| {
            let project = of_type(image, MetafileType::ProjectQuota);
            edit(image, project, |of| of.as_mut_bytes()[178] ^= 0x80);
        },
        "xfs-inode-map",
    ),
    (
        "an empty tree",
        |image| {
            edit(image, METADIR, |of| {
                of.as_mut_bytes()[176] = 0;
                of.set_size(6);
            });
        },
        "xfs-inode-lost",
    ),
    (
        "lost slot of the user file",
        |image| {
            zero(image, of_type(image, MetafileType::UserQuota));
        },
        "xfs-inode",
    ),
    (
        "number of the root",
        |image| {
            change_superblock(image, |raw| raw.metadirino = 140.into());
        },
        "xfs-superblock-field",
    ),
    (
        "an inode of old superblocks",
        |image| {
            change_superblock(image, |raw| raw.uquotino = 131.into());
        },
        "xfs-superblock-field",
    ),
    (
        "no flag for quotas",
        |image| {
            change_superblock(image, |raw| {
                raw.versionnum = (raw.versionnum.get() & !Version::QUOTA.bits()).into();
            });
        },
        "xfs-superblock-field",
    ),
    (
        "realtime groups",
        |image| {
            change_superblock(image, |raw| raw.rgblklog = 3);
        },
        "xfs-superblock-field",
    ),
];

/// Returns the directory of the tree whose first entry has a name.
fn directory(image: &MemoryDevice, first: &[u8]) -> Ino {
    let is_it = |ino: &Ino| slot(image, *ino).1[185..].starts_with(first);
    let all = metadata(image).into_iter().map(|(ino, _)| ino);
    all.filter(|ino| *ino != METADIR).find(is_it).unwrap()
}

fn set_type(image: &MemoryDevice, of: MetafileType, number: u8) {
    edit(image, of_type(image, of), |inode| inode.as_mut_bytes()[7] = number);
}

fn zero(image: &MemoryDevice, ino: Ino) {
    let (byte, bytes) = slot(image, ino);
    image.write_at(byte, &vec![0; bytes.len()]).unwrap();
}

#[test]
fn damage_of_the_tree_is_found_and_repaired() {
    require!(Tool("xfs_repair"));
    let image = with_quotas();
    let mut wrong = Vec::new();
    for (name, harm, code) in HARMS {
        let damaged = image.fork();
        harm(&damaged);
        let outcome = match repaired(damaged) {
            Ok(outcome) => outcome,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        if !outcome.codes.contains(code) {
            wrong.push(format!("{name}: {code} is not in {:?}", outcome.codes));
        }
        if !outcome.left.is_empty() || !outcome.is_complete {
            wrong.push(format!("{name}: left are {:#?}", outcome.left));
        }
        let judged = testkit::show_image(&outcome.device, testkit::xfs_repair_alone);
        if let Err(complaint) = judged {
            wrong.push(format!("{name}: xfs_repair says {complaint}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
