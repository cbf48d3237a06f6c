//! If source and image are on one file system with reflinks, contents are shared instead of copied.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use testkit::{KernelMount, MountOptions, require, scratch};

use crate::build::common::{build, succeed};

use crate::program::diskwright;

/// Size in bytes of the large file of a source: not a multiple of the block size.
const LARGE_BYTES: usize = (3 << 20) + 1234;

/// Bytes of data between holes in the sparse file.
const SPARSE_BYTES: usize = 200_000;

/// Mounts an XFS with reflinks that contains a source.
fn xfs_with_source(home: &Path) -> (KernelMount, PathBuf) {
    let (image, empty) = (home.join("host.xfs"), home.join("empty"));
    std::fs::create_dir(&empty).unwrap();
    build(&empty, &image, "--fs xfs --size 512M");
    let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
    let source = mount.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let bytes: Vec<u8> = (0..LARGE_BYTES as u32).map(|at| (at * 7 % 251) as u8 + 1).collect();
    std::fs::write(source.join("large"), &bytes).unwrap();
    std::fs::write(source.join("small"), b"few bytes").unwrap();
    let sparse = File::create(source.join("sparse")).unwrap();
    sparse.write_all_at(&bytes[..SPARSE_BYTES], 1 << 20).unwrap();
    sparse.set_len(5 << 20).unwrap();
    (mount, source)
}

/// Returns the bytes of a file in shared extents.
fn shared_bytes(file: &Path) -> u64 {
    let output = succeed(testkit::command("filefrag").args(["-e", "-s", "-b1"]).arg(file));
    let text = String::from_utf8(output.stdout).unwrap();
    let len = |line: &str| line.split(':').nth(3)?.trim().parse::<u64>().ok();
    text.lines().filter(|line| line.contains("shared")).filter_map(len).sum()
}

fn assert_same_contents(source: &Path, copy: &Path) {
    for name in ["large", "small", "sparse"] {
        let (expected, found) = (source.join(name), copy.join(name));
        assert!(std::fs::read(&expected).unwrap() == std::fs::read(&found).unwrap(), "{name}");
    }
}

#[test]
fn contents_are_shared_with_the_image_and_back() {
    require!(Root, Mount("xfs"), Tool("filefrag"), Tool("e2fsck"), Tool("xfs_repair"));
    let home = scratch();
    let (mount, source) = xfs_with_source(home.path());
    for format in ["ext4", "xfs"] {
        for options in ["", "--uuid 11111111-2222-3333-4444-555555555555"] {
            let (shared, copied) = (mount.path().join("a.img"), home.path().join("b.img"));
            let options = format!("--fs {format} --size 300M --force {options}");
            let mut command = diskwright();
            command.env("SOURCE_DATE_EPOCH", "1600000000").arg("build");
            command.args(options.split_whitespace()).arg(&source).arg(&shared);
            succeed(&mut command);
            let mut command = diskwright();
            command.env("SOURCE_DATE_EPOCH", "1600000000").arg("build");
            command.args(options.split_whitespace()).arg(&source).arg(&copied);
            succeed(&mut command);
            testkit::judge(&shared);
            // Whole blocks of both large pieces. The end of data before a hole is known only in
            // whole blocks.
            let blocks = (LARGE_BYTES / 4096 + SPARSE_BYTES.div_ceil(4096)) as u64 * 4096;
            assert_eq!(shared_bytes(&shared), blocks, "{options}");
            succeed(testkit::command("cmp").arg(&shared).arg(&copied));

            let out = mount.path().join("out");
            succeed(diskwright().arg("extract").arg(&shared).arg(&out));
            assert_same_contents(&source, &out);
            assert!(shared_bytes(&out.join("large")) >= LARGE_BYTES as u64 / 4096 * 4096);
            std::fs::remove_dir_all(&out).unwrap();
            // Later writes to the image do not affect the source.
            succeed(diskwright().arg("rm").arg(&shared).arg("/large"));
            std::fs::remove_file(&shared).unwrap();
        }
    }
}

/// An archive's contents are aligned to 512 bytes. Data not aligned to blocks is copied.
#[test]
fn unaligned_data_is_copied() {
    require!(Root, Mount("xfs"), Tool("filefrag"), Tool("tar"), Tool("e2fsck"));
    let home = scratch();
    let (mount, source) = xfs_with_source(home.path());
    let (archive, image) = (mount.path().join("source.tar"), mount.path().join("a.img"));
    let mut tar = testkit::command("tar");
    succeed(
        tar.arg("-C")
            .arg(&source)
            .arg("-cSf")
            .arg(&archive)
            .arg("large")
            .arg("small")
            .arg("sparse"),
    );
    build(&archive, &image, "");
    testkit::judge(&image);
    let out = home.path().join("out");
    succeed(diskwright().arg("extract").arg(&image).arg(&out));
    assert_same_contents(&source, &out);
}
