//! New file systems, checked by xfs_repair and the kernel and compared with those of mkfs.xfs.

use crate::making;

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use making::{Case, GIB, MIB, PARENTLESS, TIB, case};
use testkit::{KernelMount, MountOptions, require, scratch, xfs_db, xfs_repair};
use vfs::{Error, Ino};
use xfs::mkfs::{self, Options, PreviousContents};
use xfs::{CACHE_BYTES_DEFAULT, OpenOptions, Xfs};

/// Sizes, block sizes and features that determine the layout.
const CASES: &[Case] = &[
    case(300 * MIB),
    case(GIB),
    case(10 * GIB),
    case(300 * MIB + 3 * 512),
    case(301 * MIB + 3 * 4096),
    Case { block_size: 1024, ..case(GIB + 7 * 4096) },
    Case { block_size: 2048, ..case(300 * MIB) },
    Case { block_size: 8192, ..case(300 * MIB) },
    Case { block_size: 16 << 10, ..case(GIB) },
    Case { block_size: 32 << 10, ..case(GIB) },
    Case { block_size: 64 << 10, ..case(GIB) },
    Case { block_size: 64 << 10, features: "-reflink", ..case(300 * MIB) },
    Case { block_size: 64 << 10, inode_size: 2048, ..case(GIB) },
    Case { block_size: 64 << 10, sector_size: 4096, ..case(GIB) },
    Case { inode_size: 1024, ..case(GIB) },
    Case { inode_size: 2048, ..case(GIB) },
    Case { dir_block_size: 16 << 10, ..case(GIB) },
    Case { block_size: 1024, dir_block_size: 64 << 10, ..case(299 * MIB) },
    Case { sector_size: 4096, ..case(GIB) },
    Case { sector_size: 1024, ..case(GIB) },
    Case { sector_size: 4096, block_size: 8192, ..case(GIB) },
    Case { features: "-finobt", ..case(GIB) },
    Case { features: "-inobtcount", ..case(GIB) },
    Case { features: "-rmapbt", ..case(GIB) },
    Case { features: "-reflink", ..case(GIB) },
    Case { features: "-bigtime", ..case(GIB) },
    Case { features: "-sparse", ..case(GIB) },
    Case { features: "-nrext64", ..case(GIB) },
    Case { features: "-exchange", ..case(GIB) },
    Case { features: "-parent", ..case(GIB) },
    Case { features: PARENTLESS, ..case(GIB) },
    Case { features: "+metadir", ..case(GIB) },
    Case { features: "+metadir", ag_count: Some(7), ..case(5 * GIB) },
    Case { features: "+metadir", block_size: 64 << 10, ..case(GIB) },
    Case { features: "+metadir", block_size: 1024, inode_size: 512, ..case(GIB) },
    Case { features: "+metadir,-parent", ..case(GIB) },
    Case { features: "+metadir", sector_size: 4096, inode_size: 1024, ..case(GIB) },
    Case { label: "twelve bytes", ..case(GIB) },
    Case { ag_count: Some(7), ..case(5 * GIB) },
    Case { log_bytes: Some(100 * MIB), ..case(GIB) },
    case(32 * MIB),
    case(63 * MIB),
    case(64 * MIB),
    case(200 * MIB),
    case(299 * MIB),
];

/// Images for devices with stripes.
const STRIPED: &[Case] = &[
    Case { stripe: Some((64, 4)), ..case(GIB) },
    Case { stripe: Some((64, 1)), ..case(GIB) },
    Case { stripe: Some((512, 2)), ..case(GIB) },
    Case { stripe: Some((20, 3)), ..case(GIB) },
    Case { stripe: Some((64, 4)), block_size: 8192, inode_size: 1024, ..case(GIB) },
    Case { stripe: Some((1024, 4)), features: "+metadir", ..case(GIB) },
    Case { stripe: Some((64, 4)), ag_count: Some(8), ..case(GIB) },
    Case { stripe: Some((64, 3)), ag_count: Some(7), ..case(5 * GIB) },
];

#[test]
fn repair_and_kernel_accept_them() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let home = scratch();
    let image = home.path().join("image");
    let some = testkit::effort(4, 1, 1);
    for case in CASES.iter().step_by(some).chain(STRIPED).chain(&[case(TIB), case(9 * TIB)]) {
        case.make(&image);
        xfs_repair(&image);
        let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
        std::fs::create_dir(mount.path().join("directory")).unwrap();
        std::fs::write(mount.path().join("directory/file"), vec![7; 100_000]).unwrap();
        mount.unmount();
        xfs_repair(&image);
    }
}

#[test]
fn images_equal_those_of_mkfs() {
    require!(Version("mkfs.xfs", 7, 2));
    let home = scratch();
    let (ours, theirs) = (home.path().join("ours"), home.path().join("theirs"));
    for case in CASES.iter().step_by(testkit::effort(2, 1, 1)).chain(STRIPED) {
        case.make(&ours);
        case.make_with_mkfs(&theirs);
        making::assert_same_but_for_times(case, &ours, &theirs);
    }
}

#[test]
fn plans_are_those_of_mkfs() {
    require!(Version("mkfs.xfs", 7, 2));
    let sizes = [16, 20, 31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 129, 299, 300, 301, 511, 4097];
    let large = [GIB, 7 * GIB, 128 * GIB, 129 * GIB, 500 * GIB, TIB - 4096, TIB, TIB + 4096];
    let huge = [3 * TIB, 4 * TIB - 4096, 4 * TIB, 4 * TIB + 4096, 4 * TIB + 16 * MIB, 50 * TIB];
    let sizes = sizes.map(|mib| mib * MIB + 12288).into_iter().chain(large).chain(huge);
    // Each step contains sizes of all kinds.
    for size in sizes.step_by(testkit::effort(3, 1, 1)) {
        for block_size in [1024, 2048, 4096, 8192, 16 << 10, 32 << 10, 64 << 10] {
            for sector_size in [512, 4096].into_iter().filter(|size| *size <= block_size) {
                let case = Case { block_size, sector_size, ..case(size) };
                case.compare_plans();
            }
        }
    }
    for size in [GIB, 8 * GIB, 9 * GIB, 512 * GIB, 600 * GIB, 2 * TIB, 5 * TIB] {
        for stripe in [(64, 4), (20, 3), (512, 2), (4, 3), (256, 1)] {
            Case { stripe: Some(stripe), ..case(size) }.compare_plans();
        }
    }
    for features in ["-nrext64", "-rmapbt", "-reflink", "-finobt", "-sparse,-bigtime", "+metadir"] {
        for block_size in [1024, 4096, 64 << 10] {
            for size in [300 * MIB, 2 * GIB, 2 * TIB] {
                Case { block_size, features, ..case(size) }.compare_plans();
            }
        }
    }
}

#[test]
fn numbers_are_what_xfs_db_reads() {
    require!(Tool("xfs_db"));
    let home = scratch();
    let image = home.path().join("image");
    Case { label: "label", sector_size: 4096, ..case(GIB) }.make(&image);
    let text =
        xfs_db(&image, &["sb 0", "p fname rootino logsectsize inoalignmt", "sb 3", "p magicnum"]);
    for line in ["fname = \"label\\000", "rootino = 128", "logsectsize = 4096", "inoalignmt = 8"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let text =
        xfs_db(&image, &["agf 2", "p crc", "agi 2", "p crc", "agfl 2", "p crc", "sb 2", "p crc"]);
    assert_eq!(text.matches("(correct)").count(), 4, "{text}");
}

#[test]
fn only_what_is_not_zero_is_written() {
    let home = scratch();
    let image = home.path().join("image");
    case(TIB).make(&image);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&image).unwrap());
    assert!(blocks * 512 < MIB, "{} bytes", blocks * 512);
}

#[test]
fn old_contents_do_not_show() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let home = scratch();
    let image = home.path().join("image");
    let size = 128 * MIB;
    std::fs::write(&image, vec![0xa5; size as usize]).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&image).unwrap();
    let device = disk::FileDevice::new(file).unwrap();
    let options = Options { block_size: 16 << 10, allow_small: true, ..Options::new(size) };
    let layout = mkfs::plan(&options).unwrap();
    mkfs::format(&device, &layout, PreviousContents::Unknown).unwrap();
    xfs_repair(&image);
    KernelMount::new(&image, &MountOptions::read_write("xfs")).unmount();
}

/// Returns a new file system of 64 MiB in memory.
fn fresh() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(64 * MIB);
    let options = Options { allow_small: true, uuid: [0x5a; 16], ..Options::new(64 * MIB) };
    mkfs::format(&device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    Arc::new(device)
}

#[test]
fn an_image_is_refused_until_it_is_finished() {
    let device = fresh();
    let fs = Xfs::open_in_progress(device.clone(), CACHE_BYTES_DEFAULT).unwrap();
    let refused = Xfs::open(device.clone(), &OpenOptions::default()).err().unwrap();
    assert!(matches!(&refused, Error::Corrupt(_)), "{refused}");
    assert!(refused.to_string().contains("never finished"), "{refused}");
    fs.finish(None).unwrap();
    let fs = Xfs::open(device, &OpenOptions::default()).unwrap();
    assert_eq!(vfs::FileSystem::root(&fs), Ino(128));
}

#[test]
fn a_uuid_given_at_the_end_leaves_the_metadata_as_it_is() {
    require!(Tool("xfs_repair"), Tool("xfs_db"), Mount("xfs"));
    let home = scratch();
    let image = home.path().join("image");
    case(GIB).make(&image);
    let device = making::open(&image);
    let fs = Xfs::open_in_progress(device.clone(), CACHE_BYTES_DEFAULT).unwrap();
    fs.finish(Some([0xc3; 16])).unwrap();
    device.flush().unwrap();
    xfs_repair(&image);
    for ag in 0..4 {
        let text = xfs_db(&image, &[&format!("sb {ag}"), "p uuid meta_uuid crc"]);
        assert!(text.starts_with("uuid = c3c3c3c3-"), "{text}");
        assert!(text.contains("meta_uuid = 5a5a5a5a-") && text.contains("(correct)"), "{text}");
    }
    let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
    std::fs::write(mount.path().join("file"), b"contents").unwrap();
    mount.unmount();
    xfs_repair(&image);
    let fs = Xfs::open(device, &OpenOptions::default()).unwrap();
    assert_eq!(fs.superblock().raw.uuid, [0xc3; 16]);
}

#[test]
fn the_uuid_it_has_is_no_other_one() {
    let device = fresh();
    Xfs::open_in_progress(device.clone(), CACHE_BYTES_DEFAULT)
        .unwrap()
        .finish(Some([0x5a; 16]))
        .unwrap();
    let fs = Xfs::open(device, &OpenOptions::default()).unwrap();
    assert_eq!(fs.superblock().raw.meta_uuid, [0; 16]);
    assert_eq!(fs.superblock().raw.features_incompat.get() & 4, 0);
}
