//! An image with a computed size has room for its source, whatever the source contains.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use diskwright::Image;
use diskwright::build::{BuildOptions, BuildReport, Format, Progress, build};
use testkit::{require, scratch};

struct Quiet;

impl Progress for Quiet {
    fn made(&self, _: u64, _: u64) {}
}

/// Writes archives with all kinds of entries.
struct Tar {
    out: BufWriter<File>,
}

impl Tar {
    fn create(path: &Path) -> Self {
        Self { out: BufWriter::new(File::create(path).unwrap()) }
    }

    fn header(&mut self, kind: u8, name: &[u8], link: &[u8], size: u64) {
        let mut header = [0_u8; 512];
        let name = &name[..name.len().min(100)];
        let link = &link[..link.len().min(100)];
        header[..name.len()].copy_from_slice(name);
        for (at, number) in [(100, 0o755), (108, 0), (116, 0)] {
            header[at..at + 7].copy_from_slice(format!("{number:07o}").as_bytes());
        }
        header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        header[136..147].copy_from_slice(format!("{:011o}", 1_500_000_000).as_bytes());
        header[156] = kind;
        header[157..157 + link.len()].copy_from_slice(link);
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.out.write_all(&header).unwrap();
    }

    fn contents(&mut self, bytes: &[u8]) {
        self.out.write_all(bytes).unwrap();
        let rest = bytes.len().next_multiple_of(512) - bytes.len();
        self.out.write_all(&vec![0; rest]).unwrap();
    }

    /// Adds one entry, preceded by records for values that do not fit a header.
    fn add(&mut self, kind: u8, name: &str, link: &str, bytes: &[u8], more: &[(String, Vec<u8>)]) {
        let mut records = more.to_vec();
        for (key, value) in [("path", name), ("linkpath", link)] {
            if value.len() > 99 {
                records.push((key.into(), value.into()));
            }
        }
        if !records.is_empty() {
            let all: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
            self.header(b'x', b"pax", b"", all.len() as u64);
            self.contents(&all);
        }
        self.header(kind, name.as_bytes(), link.as_bytes(), bytes.len() as u64);
        self.contents(bytes);
    }

    fn finish(mut self) {
        self.out.write_all(&[0; 1024]).unwrap();
        self.out.flush().unwrap();
    }
}

/// Returns a record of a pax header, which starts with its own length.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = 1 + key.len() + 1 + value.len() + 1;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    let mut bytes = format!("{len} {key}=").into_bytes();
    bytes.extend_from_slice(value);
    bytes.push(b'\n');
    bytes
}

fn options(source: &Path, format: Format) -> BuildOptions {
    BuildOptions::new(source, source.with_extension("image"), format)
        .small(format == Format::Xfs)
        .threads(1)
        .force(true)
        .source_date_epoch(1_600_000_000)
}

/// Returns a name of the usual length, or of a random one.
fn name(rng: &mut fastrand::Rng, number: usize) -> String {
    let len = if rng.u8(..8) == 0 { rng.usize(1..240) } else { rng.usize(1..30) };
    format!("{number}-{}", "n".repeat(len))
}

/// Writes an archive with a random mixture of entries, in which one kind may prevail.
fn mixture(path: &Path, rng: &mut fastrand::Rng, block_size: u32) {
    let mut tar = Tar::create(path);
    let weights: Vec<u32> = (0..7).map(|_| [0, 1, 1, 5, 60][rng.usize(..5)]).collect();
    let total = weights.iter().sum::<u32>().max(1);
    let count = [20, 300, 2_500][rng.usize(..3)];
    let value_max = block_size as usize / 2;
    let (mut dirs, mut files) = (vec![String::new()], Vec::new());
    let mut data = 12 << 20_usize;
    for number in 0..count {
        let dir = &dirs[rng.usize(..dirs.len())];
        let path = format!("{dir}{}", name(rng, number));
        let mut pick = rng.u32(..total);
        let kind = weights.iter().position(|&weight| {
            let found = pick < weight;
            pick = pick.saturating_sub(weight);
            found
        });
        match kind.unwrap_or(0) {
            0 => tar.add(b'0', &path, "", b"", &[]),
            1 => {
                tar.add(b'2', &path, &"t".repeat(rng.usize(1..1000)), b"", &[]);
                continue;
            }
            2 if path.len() < 2_000 => {
                tar.add(b'5', &path, "", b"", &[]);
                dirs.push(format!("{path}/"));
                continue;
            }
            3 => {
                let count = rng.usize(1..4);
                let attribute = |at| {
                    let value = vec![b'v'; rng.usize(1..value_max / count)];
                    (format!("SCHILY.xattr.user.a{at}"), value)
                };
                let all: Vec<_> = (0..count).map(attribute).collect();
                tar.add(b'0', &path, "", b"", &all);
            }
            4 if !files.is_empty() => {
                let target: &String = &files[rng.usize(..files.len())];
                tar.add(b'1', &path, target, b"", &[]);
                continue;
            }
            5 => tar.add(b'0', &path, "", &vec![1; rng.usize(1..3_000)], &[]),
            _ => {
                let len = rng.usize(..200_000).min(data);
                data -= len;
                tar.add(b'0', &path, "", &vec![2; len], &[]);
            }
        }
        files.push(path);
    }
    tar.finish();
}

/// Builds an image, checks it, and asserts that its free space is small.
fn build_and_judge(options: &BuildOptions, what: &str) -> BuildReport {
    let report = build(options, &Quiet).unwrap_or_else(|error| panic!("{what}: {error}"));
    testkit::judge(&options.image);
    let image = Image::open(&options.image).unwrap();
    let info = image.info().unwrap();
    let free = info.blocks_free * u64::from(info.block_size);
    let bytes = report.image_bytes;
    if options.free > 0 {
        // Blocks that kernels reserve for themselves are in addition.
        assert!(free >= options.free, "{what}: {free} bytes of {bytes} are free");
    } else {
        // The log determines the minimum size, most of all with large blocks.
        let smallest_made = if info.block_size > 4096 { 96 << 20 } else { 32 << 20 };
        let is_smallest_made = options.format == Format::Xfs && bytes <= smallest_made;
        // Groups of XFS reserve some blocks, of any size.
        let spare = bytes / 16 + 200 * u64::from(info.block_size);
        assert!(is_smallest_made || free <= spare, "{what}: {free} bytes of {bytes} are free");
    }
    report
}

fn source(home: &tempfile::TempDir) -> PathBuf {
    home.path().join("source.tar")
}

#[test]
fn any_mixture_fits_into_ext4_of_a_computed_size() {
    require!(Tool("e2fsck"));
    for seed in 0..testkit::effort(6, 12, 500) {
        let (home, mut rng) = (scratch(), fastrand::Rng::with_seed(seed));
        let mut options = options(&source(&home), Format::Ext4);
        options.block_size = [None, Some(1024), Some(2048), Some(4096)][rng.usize(..4)];
        options.inode_size = [None, Some(128), Some(512)][rng.usize(..3)];
        options.no_journal = rng.bool();
        options.free = [0, 0, 5 << 20][rng.usize(..3)];
        mixture(&source(&home), &mut rng, options.block_size.unwrap_or(4096));
        build_and_judge(&options, &format!("seed {seed}: {options:?}"));
    }
}

#[test]
fn any_mixture_fits_into_xfs_of_a_computed_size() {
    require!(Version("xfs_repair", 6, 17));
    for seed in 0..testkit::effort(6, 12, 500) {
        let (home, mut rng) = (scratch(), fastrand::Rng::with_seed(seed));
        let mut options = options(&source(&home), Format::Xfs);
        options.block_size = [None, Some(1024), Some(4096), Some(16384)][rng.usize(..4)];
        options.inode_size = [None, Some(512), Some(1024)][rng.usize(..3)];
        if options.block_size == Some(1024) {
            options.inode_size = None;
        }
        options.free = [0, 0, 20 << 20][rng.usize(..3)];
        mixture(&source(&home), &mut rng, options.block_size.unwrap_or(4096));
        build_and_judge(&options, &format!("seed {seed}: {options:?}"));
    }
}

/// Inodes may take a larger part of the space than usual, as mkfs.xfs allows with an option.
#[test]
fn many_small_files_fit_into_xfs_of_a_computed_size() {
    require!(Version("xfs_repair", 6, 17));
    let cases = [
        (9_000, true, b'0', 0),
        (12_000, true, b'2', 0),
        (40_000, true, b'5', 8 << 20),
        (200_000, false, b'0', 0),
        (100_000, true, b'0', 0),
    ];
    let asked = testkit::effort(2, 3, cases.len());
    for (count, small, kind, free) in cases.into_iter().take(asked) {
        let home = scratch();
        let mut tar = Tar::create(&source(&home));
        let link = if kind == b'2' { "somewhere" } else { "" };
        for number in 0..count {
            tar.add(kind, &format!("d{}/{number}", number / 5_000), link, b"", &[]);
        }
        tar.finish();
        let options = options(&source(&home), Format::Xfs).small(small).free(free);
        let what = format!("{count} of kind {kind}");
        let report = build(&options, &Quiet).unwrap_or_else(|error| panic!("{what}: {error}"));
        testkit::judge(&options.image);
        if !small {
            assert_eq!(report.image_bytes, 300 << 20, "{what}");
            // An explicit size gives at least the same room.
            let given = options.size(report.image_bytes);
            build(&given, &Quiet).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

#[test]
fn free_space_comes_with_inodes() {
    require!(Tool("e2fsck"));
    let home = scratch();
    let path = source(&home);
    let mut tar = Tar::create(&path);
    tar.add(b'0', "file", "", b"contents", &[]);
    tar.finish();
    let mut options = options(&path, Format::Ext4);
    options.free = 256 << 20;
    build_and_judge(&options, "256 MiB free");
    let image = Image::open(&options.image).unwrap();
    let found = image.statfs().unwrap();
    // One inode per 16 KiB, as with mke2fs.
    assert!(found.inodes_free >= 16_384, "{found:?}");
    assert!(found.inodes_free < 20_000, "{found:?}");
}
