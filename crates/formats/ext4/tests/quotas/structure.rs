//! Growing quota files keep the structure that the kernel expects. e2fsck checks only the entries, not the lists of
//! blocks with free entries.

use std::collections::BTreeSet;
use std::fs;

use testkit::{debugfs, require};
use vfs::{FileSystem, SetAttributes};

use super::{QuotaImage, check, owned};

const BLOCK: usize = 1024;

/// Contents of a quota file, read without code under test.
struct QuotaFile(Vec<u8>);

impl QuotaFile {
    fn dump(image: &QuotaImage, ino: u32) -> Self {
        let folder = testkit::scratch();
        let path = folder.path().join("quota");
        debugfs(&image.path, &format!("dump <{ino}> {}", path.display()));
        Self(fs::read(path).unwrap())
    }

    fn number(&self, block: u32, at: usize) -> u32 {
        let at = block as usize * BLOCK + at;
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    /// Collects the leaves below a node.
    fn leaves(&self, node: u32, level: u32, into: &mut BTreeSet<u32>) -> usize {
        let children = (0..256).map(|at| self.number(node, at * 4)).filter(|&child| child != 0);
        if level == 3 {
            return children.map(|child| into.insert(child)).count();
        }
        children.map(|child| self.leaves(child, level + 1, into)).sum()
    }

    /// Asserts that counts and lists are correct. Returns the number of entries.
    fn check(&self) -> usize {
        let blocks = self.number(0, 20);
        assert_eq!(blocks as usize * BLOCK, self.0.len());
        assert_eq!(self.number(0, 24), 0, "nothing is ever given back");
        let mut leaves = BTreeSet::new();
        let ids = self.leaves(1, 0, &mut leaves);
        let mut with_room = BTreeSet::new();
        let mut entries = 0;
        for &leaf in &leaves {
            let start = leaf as usize * BLOCK + 16;
            let in_use = self.0[start..start + 14 * 72].chunks(72);
            let count = in_use.filter(|entry| entry.iter().any(|&byte| byte != 0)).count();
            assert_eq!(self.number(leaf, 8) as usize, count, "leaf {leaf}");
            entries += count;
            if count < 14 {
                with_room.insert(leaf);
            }
        }
        assert_eq!(entries, ids);
        let (mut at, mut before, mut listed) = (self.number(0, 28), 0, BTreeSet::new());
        while at != 0 {
            assert!(listed.insert(at), "the list goes in a circle");
            assert_eq!(self.number(at, 4), before);
            (before, at) = (at, self.number(at, 0));
        }
        assert_eq!(listed, with_room);
        entries
    }
}

/// More owners change within one checkpoint than a small journal has blocks.
#[test]
fn many_owners_fit_a_small_journal() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    const OWNERS: u32 = 20_000;
    let image = QuotaImage::new(&["-b", "1024", "-J", "size=1", "-O", "quota"]);
    assert_eq!(QuotaFile::dump(&image, 3).check(), 1);
    // The first run creates the entries, the second only changes them.
    for run in 0..2 {
        let fs = image.open();
        let name = format!("file{run}");
        let file = fs.create(fs.root(), name.as_bytes(), &owned(0, 0)).unwrap();
        fs.write(file, 0, &[1; 5000], None).unwrap();
        let other = fs.create(fs.root(), format!("other{run}").as_bytes(), &owned(0, 0)).unwrap();
        for id in 0..OWNERS {
            let id = id * 3;
            let ino = if id % 2 == 0 { file } else { other };
            let change = SetAttributes { uid: Some(id), gid: Some(id), ..SetAttributes::default() };
            fs.set_attributes(ino, &change).unwrap();
        }
        fs.close().unwrap();
        check(&image.path);
        for ino in [3, 4] {
            assert_eq!(QuotaFile::dump(&image, ino).check(), OWNERS as usize);
        }
    }
}
