//! Deliberately damaged attributes with valid checksums: errors are fine, panics are not.

use crate::support;

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use disk::{FileDevice, OverlayDevice};
use fastrand::Rng;
use support::image::kernel_image;
use testkit::require;
use vfs::{FileSystem, Ino};
use xfs::Xfs;
use xfs::format::checksum;

const BLOCK: usize = 1024;

/// Makes a file with a tree of attributes and of parent pointers.
fn make(root: &Path) {
    std::fs::write(root.join("file"), b"").unwrap();
    for number in 0..400 {
        let name = format!("user.attribute-{number}");
        rustix::fs::setxattr(root.join("file"), name, b"value", rustix::fs::XattrFlags::empty())
            .unwrap();
        std::fs::hard_link(root.join("file"), root.join(format!("link-{number}"))).unwrap();
    }
    let name = "user.large";
    rustix::fs::setxattr(root.join("file"), name, &[7; 9000], rustix::fs::XattrFlags::empty())
        .unwrap();
}

/// Returns blocks of attributes near the start of the image, and their offsets.
fn attribute_blocks(image: &std::fs::File) -> Vec<(u64, Vec<u8>)> {
    let (mut found, mut block) = (Vec::new(), vec![0; BLOCK]);
    for at in (0..image.metadata().unwrap().size()).step_by(BLOCK).take(20_000) {
        image.read_exact_at(&mut block, at).unwrap();
        let is_tree = [[0x3b, 0xee], [0x3e, 0xbe]].iter().any(|magic| block[8..10] == *magic);
        if is_tree || block.starts_with(b"XARM") {
            found.push((at, block.clone()));
        }
    }
    found
}

/// Uses all operations on attributes, ignoring their results.
fn use_all(path: &Path, ino: Ino, rng: &mut Rng) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let fs = Xfs::open_in_progress(
        Arc::new(OverlayDevice::new(Arc::new(FileDevice::new(file).unwrap()))),
        8 << 20,
    )
    .unwrap();
    let mut names = Vec::new();
    let _ = fs.list_xattrs(ino, &mut |name| names.push(name.to_vec()));
    assert!(names.len() <= 30_000);
    names.extend((0..400).map(|number| format!("user.attribute-{number}").into_bytes()));
    names.push(b"user.large".to_vec());
    let _ = fs.parents(ino, &mut |_, _| ());
    for name in names.iter().step_by(7) {
        let _ = fs.get_xattr(ino, name);
        let _ = match rng.u8(..3) {
            0 => fs.remove_xattr(ino, name),
            1 => fs.set_xattr(ino, name, &vec![1; rng.usize(..900)]),
            _ => fs.set_xattr(ino, &[name, b"-new".as_slice()].concat(), b"new"),
        };
    }
    let _ = fs.get_xattr(ino, b"user.large");
    // Dropped without being finished, so nothing is written.
}

#[test]
fn damage_does_no_harm() {
    require!(Tool("mkfs.xfs"), Mount("xfs"));
    let note = |root: &Path| Ino(std::fs::metadata(root.join("file")).unwrap().ino());
    let (image, ino) = kernel_image("-b size=1024 -n parent=1", |root, _| make(root), note);
    let file = std::fs::File::options().read(true).write(true).open(image.path()).unwrap();
    let blocks = attribute_blocks(&file);
    assert!(blocks.len() > 20, "only {} blocks", blocks.len());
    let mut rng = Rng::with_seed(11);
    for _ in 0..testkit::effort(100, 300, 20_000) {
        let mut changed = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let (at, old) = &blocks[rng.usize(..blocks.len())];
            let mut new = old.clone();
            for _ in 0..rng.usize(1..4) {
                // Mostly the header and the first entries.
                let place = if rng.bool() { rng.usize(..120) } else { rng.usize(..BLOCK) };
                new[place] = if rng.bool() { rng.u8(..) } else { new[place] ^ 1 << rng.u8(..8) };
            }
            if !new.starts_with(&[0x58]) && rng.bool() {
                // A sibling or child pointer that forms a cycle.
                let (_, other) = &blocks[rng.usize(..blocks.len())];
                new[..8].copy_from_slice(&other[..8]);
            }
            checksum::seal(&mut new, 12);
            file.write_all_at(&new, *at).unwrap();
            changed.push((*at, old));
        }
        use_all(image.path(), ino, &mut rng);
        for (at, old) in changed {
            file.write_all_at(old, at).unwrap();
        }
    }
}
