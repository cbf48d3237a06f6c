//! New file systems, checked by e2fsck and the kernel and compared with those of mke2fs.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, MemoryDevice};
use ext4::mkfs::{self, FeatureChange, InodeCount, Options, PreviousContents};
use ext4::{Ext4, OpenOptions};
use testkit::guest::{self, Access, Kernel};
use testkit::{KernelMount, MountOptions, require, scratch};
use vfs::{Error, FileSystem, NewInode, Timestamp};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const UUID: [u8; 16] = [0x5a; 16];
const UUID_TEXT: &str = "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
const HASH_SEED: [u8; 16] = [0xc3; 16];
const HASH_SEED_TEXT: &str = "c3c3c3c3-c3c3-c3c3-c3c3-c3c3c3c3c3c3";
const TIME: i64 = 1_700_000_000;

/// Parameters of a new file system.
#[derive(Clone, Copy)]
struct MkfsCase {
    size: u64,
    block_size: u32,
    inode_size: u16,
    ratio: u64,
    /// Changes to the default features. mke2fs requires that dependent features are all named.
    features: &'static str,
}

const fn case(size: u64, block_size: u32) -> MkfsCase {
    MkfsCase { size, block_size, inode_size: 256, ratio: 16384, features: "" }
}

impl MkfsCase {
    fn options(&self) -> Options {
        Options {
            block_size: Some(self.block_size),
            inode_size: self.inode_size,
            inodes: InodeCount::PerBytes(self.ratio),
            label: b"a label".to_vec(),
            uuid: UUID,
            hash_seed: HASH_SEED,
            features: FeatureChange::parse_list(self.features).unwrap(),
            time: Timestamp { sec: TIME, nsec: 0 },
            ..Options::new(self.size)
        }
    }

    fn make(&self, image: &Path) {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(image);
        let file = file.unwrap();
        file.set_len(self.size).unwrap();
        let layout = mkfs::plan(&self.options()).unwrap_or_else(|e| panic!("{self}: {e}"));
        let device = FileDevice::new(file).unwrap();
        mkfs::format(&device, &layout, PreviousContents::Zeros).unwrap();
    }

    fn make_with_mke2fs(&self, image: &Path) {
        File::create(image).unwrap().set_len(self.size).unwrap();
        // Lists all features, because a distribution's mke2fs.conf may omit some.
        let mut features = String::from(
            "none,has_journal,ext_attr,resize_inode,dir_index,orphan_file,filetype,extent,64bit,\
             flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum,\
             metadata_csum_seed",
        );
        for change in self.features.split(',').filter(|change| !change.is_empty()) {
            let change = change.replace('-', "^").replace('+', "");
            write!(features, ",{change}").unwrap();
        }
        let output = testkit::command("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-L", "a label", "-U", UUID_TEXT])
            .args(["-E", &format!("hash_seed={HASH_SEED_TEXT}")])
            .args(["-b", &self.block_size.to_string(), "-I", &self.inode_size.to_string()])
            .args(["-i", &self.ratio.to_string(), "-O", &features])
            .arg(image)
            .env("E2FSPROGS_FAKE_TIME", TIME.to_string())
            .output()
            .unwrap();
        assert!(output.status.success(), "{self}: {output:?}");
    }
}

impl std::fmt::Display for MkfsCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, block_size, inode_size, ratio, features } = self;
        let mib = size / MIB;
        write!(f, "{mib} MiB, blocks {block_size}, inodes {inode_size}/{ratio}, {features:?}")
    }
}

/// Sizes, block sizes and features that determine the layout.
const CASES: &[MkfsCase] = &[
    case(3 * MIB, 1024),
    case(3 * MIB, 4096),
    case(8 * MIB, 1024),
    case(8 * MIB, 4096),
    case(64 * MIB, 1024),
    case(64 * MIB, 2048),
    case(64 * MIB, 4096),
    case(256 * MIB, 4096),
    case(500 * MIB, 1024),
    case(500 * MIB, 2048),
    case(500 * MIB, 4096),
    case(GIB, 1024),
    case(GIB, 2048),
    case(GIB, 4096),
    case(2176 * MIB, 4096),
    case(9 * GIB, 1024),
    case(9 * GIB, 4096),
    case(70 * GIB, 4096),
    case(300 * GIB, 4096),
    MkfsCase { ratio: 4096, ..case(9 * GIB, 4096) },
    MkfsCase { ratio: 1024, ..case(64 * MIB, 1024) },
    MkfsCase { ratio: 1 << 20, ..case(9 * GIB, 4096) },
    MkfsCase { inode_size: 128, ..case(500 * MIB, 4096) },
    MkfsCase { inode_size: 512, ..case(500 * MIB, 4096) },
    MkfsCase { inode_size: 1024, features: "+inline_data", ..case(500 * MIB, 2048) },
    // A last group that is too short to be used, and one just long enough.
    case(128 * MIB + 100 * 4096, 4096),
    case(16 * MIB + 400 * 1024, 1024),
    MkfsCase { features: "-has_journal,-orphan_file", ..case(500 * MIB, 4096) },
    MkfsCase { features: "-orphan_file", ..case(500 * MIB, 4096) },
    MkfsCase { features: "-resize_inode", ..case(GIB, 1024) },
    MkfsCase { features: "-flex_bg", ..case(500 * MIB, 4096) },
    MkfsCase { features: "-64bit", ..case(9 * GIB, 1024) },
    MkfsCase { features: "-metadata_csum,-metadata_csum_seed", ..case(500 * MIB, 4096) },
    MkfsCase { features: "-metadata_csum,-metadata_csum_seed,-flex_bg", ..case(64 * MIB, 1024) },
    MkfsCase { features: "-metadata_csum,-metadata_csum_seed,+uninit_bg", ..case(GIB, 1024) },
    MkfsCase {
        features: "-metadata_csum,-metadata_csum_seed,+uninit_bg,-64bit",
        ..case(GIB, 1024)
    },
    MkfsCase { features: "-metadata_csum_seed", ..case(500 * MIB, 4096) },
    MkfsCase { features: "-sparse_super,-resize_inode", ..case(500 * MIB, 1024) },
    MkfsCase { features: "+sparse_super2", ..case(500 * MIB, 1024) },
    MkfsCase { features: "+meta_bg,-resize_inode", ..case(GIB, 1024) },
    MkfsCase { features: "+meta_bg,-resize_inode,-64bit", ..case(9 * GIB, 1024) },
    MkfsCase { features: "+large_dir,+ea_inode", ..case(64 * MIB, 4096) },
    MkfsCase { features: "+mmp", ..case(64 * MIB, 4096) },
    MkfsCase { features: "+mmp,-metadata_csum,-metadata_csum_seed", ..case(16 * MIB, 1024) },
    MkfsCase { features: "-extent,-64bit,-orphan_file", ..case(GIB, 1024) },
    MkfsCase { features: "-extent,-64bit", ..case(64 * MIB, 4096) },
    MkfsCase {
        features: "-extent,-64bit,-orphan_file,-has_journal,-metadata_csum,-metadata_csum_seed,\
                   -flex_bg,-huge_file,-dir_nlink,-extra_isize",
        inode_size: 128,
        ..case(64 * MIB, 1024)
    },
];

/// Blocks that are larger than the pages of most machines.
const LARGE_BLOCKS: &[MkfsCase] = &[
    case(256 * MIB, 8192),
    case(256 * MIB, 16384),
    case(3 * GIB, 16384),
    case(GIB, 32768),
    case(40 * MIB, 65536),
    case(9 * GIB, 65536),
    MkfsCase { inode_size: 1024, features: "-resize_inode", ..case(2 * GIB, 65536) },
    MkfsCase { features: "-metadata_csum,-metadata_csum_seed", ..case(GIB, 65536) },
    MkfsCase { features: "-extent,-64bit,-orphan_file", ..case(GIB, 65536) },
];

#[test]
fn e2fsck_finds_nothing_to_say() {
    require!(Tool("e2fsck"));
    let dir = scratch();
    let image = dir.path().join("image");
    for case in CASES.iter().chain(LARGE_BLOCKS) {
        case.make(&image);
        if let Err(output) = testkit::e2fsck_verdict(&image) {
            panic!("{case}:\n{output}");
        }
    }
}

#[test]
fn the_kernel_mounts_and_writes_them() {
    require!(Mount("ext4"), Tool("e2fsck"));
    let dir = scratch();
    let image = dir.path().join("image");
    for case in CASES {
        case.make(&image);
        let mount = KernelMount::new(&image, &MountOptions::read_write("ext4"));
        assert_eq!(std::fs::read_dir(mount.path()).unwrap().count(), 1, "{case}");
        for name in 0..20 {
            let directory = mount.path().join(format!("d{name}"));
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("file"), [name; 20_000]).unwrap();
        }
        mount.unmount();
        if let Err(output) = testkit::e2fsck_verdict(&image) {
            panic!("{case}:\n{output}");
        }
    }
}

/// Returns what a program prints about an image, without the parts that may differ.
fn description(program: &str, arguments: &[&str], image: &Path, case: &MkfsCase) -> String {
    let output =
        testkit::command(program).args(arguments).arg(image).env("TZ", "UTC").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The MMP block of mke2fs contains the current time and the names of host and device. The amount that mke2fs writes
    // depends on its implementation, and checksums cover that number. mke2fs leaves old
    // bytes in unused parts of an inode whose contents moved to a block.
    let has_remains = case.size >= 300 * GIB || case.features.contains("inline_data");
    let differs = |line: &str| {
        line.starts_with("Lifetime writes:")
            || line.starts_with("Checksum:")
            || ["mmp_update_", "mmp_node_name", "mmp_device_name"]
                .iter()
                .any(|field| line.trim_start().starts_with(field))
            || has_remains && line.starts_with("Inode checksum:")
    };
    text.lines().filter(|line| !differs(line)).fold(String::new(), |mut all, line| {
        all += line;
        all.push('\n');
        all
    })
}

#[test]
fn images_equal_those_of_mke2fs() {
    require!(Tool("mke2fs"), Tool("dumpe2fs"), Tool("debugfs"));
    let dir = scratch();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let mut differences = String::new();
    // In the smallest images with large blocks, mke2fs puts the resize inode's block elsewhere.
    let is_smallest = |case: &&MkfsCase| {
        [(3 * MIB, 4096), (40 * MIB, 65536)].contains(&(case.size, case.block_size))
    };
    let all = CASES.iter().chain(LARGE_BLOCKS);
    for case in all.filter(|case| !is_smallest(case)) {
        case.make(&ours);
        case.make_with_mke2fs(&theirs);
        let requests = [1, 2, 7, 8, 11, 12].map(|ino| ["-R".to_owned(), format!("stat <{ino}>")]);
        let mut compare = |program: &str, arguments: &[&str]| {
            let [a, b] = [&ours, &theirs].map(|i| description(program, arguments, i, case));
            assert!(a.lines().count() > 5, "{case}: {program} {arguments:?}: {a}");
            if a != b {
                writeln!(differences, "{case}: {program} {arguments:?}").unwrap();
            }
            for (a, b) in a.lines().zip(b.lines()).filter(|(a, b)| a != b).take(6) {
                writeln!(differences, "  - {b}\n  + {a}").unwrap();
            }
        };
        compare("dumpe2fs", &[]);
        for request in &requests {
            compare("debugfs", &[&request[0], &request[1]]);
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// Fills an image through this crate. Returns the number of files.
fn fill(image: &Path) -> u32 {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    let fs = Ext4::open_writable(device, &OpenOptions::default()).unwrap();
    let files = (fs.statfs().unwrap().inodes_free as u32 / 2).min(5000);
    for number in 0..files {
        let name = format!("a file with a long name that fills directories {number}");
        let ino = fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
        if number % 50 == 0 {
            fs.write(ino, u64::from(number) * 1000, &[7; 70_000], None).unwrap();
            fs.set_xattr(ino, b"user.large", &[3; 900]).unwrap();
        }
        if number % 7 == 0 {
            fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
        }
    }
    fs.close().unwrap();
    files - files.div_ceil(7)
}

#[test]
fn images_with_large_blocks_are_made_and_changed() {
    require!(Tool("e2fsck"));
    let dir = scratch();
    let image = dir.path().join("image");
    for case in LARGE_BLOCKS {
        case.make(&image);
        fill(&image);
        if let Err(output) = testkit::e2fsck_verdict(&image) {
            panic!("{case}:\n{output}");
        }
    }
}

#[test]
fn kernels_since_6_19_mount_and_change_large_blocks() {
    require!(Guest("EXT4_FS"), GuestTree, Tool("e2fsck"));
    let dir = scratch();
    let image = dir.path().join("image");
    // The emulated guest takes half a minute for each.
    for case in LARGE_BLOCKS.iter().step_by(testkit::effort(4, 3, 1)) {
        case.make(&image);
        let files = fill(&image);
        let shown = guest::shown(&image, Kernel::Newest, Access::ReadWrite, "");
        let tree = shown.unwrap_or_else(|what| panic!("{case}: {what}"));
        assert!(tree.nodes.len() as u32 >= files, "{case}: {}", tree.nodes.len());
        if let Err(output) = testkit::e2fsck_verdict(&image) {
            panic!("{case}:\n{output}");
        }
    }
}

#[test]
fn a_device_full_of_old_data_gives_the_same_file_system() {
    require!(Tool("e2fsck"));
    let case = case(64 * MIB, 4096);
    let layout = mkfs::plan(&case.options()).unwrap();
    let clean = MemoryDevice::new(case.size);
    mkfs::format(&clean, &layout, PreviousContents::Zeros).unwrap();
    let dirty = MemoryDevice::from_bytes(&vec![0xee; case.size as usize]);
    mkfs::format(&dirty, &layout, PreviousContents::Unknown).unwrap();
    let dir = scratch();
    let image = dir.path().join("image");
    let (mut a, mut b) = (vec![0; case.size as usize], vec![0; case.size as usize]);
    clean.read_at(0, &mut a).unwrap();
    dirty.read_at(0, &mut b).unwrap();
    let differing = a.iter().zip(&b).filter(|(a, b)| a != b).count() as u64;
    assert_eq!(differing, layout.free_blocks() * u64::from(case.block_size));
    std::fs::write(&image, &b).unwrap();
    testkit::e2fsck(&image);
}

#[test]
fn invalid_options_are_refused() {
    let refusal = |change: &dyn Fn(&mut Options)| {
        let mut options = Options::new(64 * MIB);
        change(&mut options);
        mkfs::plan(&options).map(|_| ()).unwrap_err()
    };
    assert!(matches!(refusal(&|o| o.size_bytes = 0), Error::NoSpace));
    assert!(matches!(refusal(&|o| o.size_bytes = 8 << 10), Error::NoSpace));
    for size in [512, 3000, 131_072] {
        assert!(matches!(refusal(&|o| o.block_size = Some(size)), Error::Invalid(_)));
    }
    assert!(matches!(refusal(&|o| o.inode_size = 200), Error::Invalid(_)));
    assert!(matches!(refusal(&|o| o.inode_size = 8192), Error::Invalid(_)));
    assert!(matches!(refusal(&|o| o.inodes = InodeCount::PerBytes(0)), Error::Invalid(_)));
    assert!(matches!(refusal(&|o| o.inodes = InodeCount::Count(u32::MAX)), Error::Invalid(_)));
    assert!(matches!(refusal(&|o| o.label = vec![b'x'; 17]), Error::Invalid(_)));
    assert!(matches!(refusal(&|o| o.journal_bytes = Some(1)), Error::Invalid(_)));
    assert!(matches!(refusal(&|o| o.journal_bytes = Some(60 * MIB)), Error::Invalid(_)));
    let unsupported = refusal(&|o| o.features = FeatureChange::parse_list("+journal_dev").unwrap());
    assert!(matches!(unsupported, Error::Unsupported(_)), "{unsupported}");
}

#[test]
fn every_size_has_a_sound_plan() {
    for kib in (300..20_000).step_by(117) {
        for block_size in [1024, 2048, 4096] {
            for inodes in [InodeCount::PerBytes(16384), InodeCount::Count(1000)] {
                let options =
                    Options { block_size: Some(block_size), inodes, ..Options::new(kib * 1024) };
                let layout = match mkfs::plan(&options) {
                    Ok(layout) => layout,
                    Err(Error::NoSpace | Error::Invalid(_)) => continue,
                    Err(e) => panic!("{kib} KiB, blocks {block_size}: {e}"),
                };
                let device = MemoryDevice::new(kib * 1024);
                mkfs::format(&device, &layout, PreviousContents::Zeros).unwrap();
                assert!(layout.free_blocks() < layout.superblock().blocks_count);
            }
        }
    }
}
