//! Repair of files with all available redundancy: maps and inodes from the reverse map, names from parent pointers.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::fs_tree::{FsTree, Rules};
use vfs::{FileSystem, Ino, NewInode};
use xfs::format::dir::DirLayout;
use xfs::format::dir::short::{self, Short, ShortEntry};
use xfs::format::geometry::Geometry;
use xfs::format::inode::{Fork, Inode, seal_slot};
use xfs::mkfs::{self, FeatureChange, Options, PreviousContents};
use xfs::{OpenOptions, Xfs};

use super::{shown, subject};
use crate::common::layout::Layout;

const SIZE: u64 = 128 << 20;

/// A damaged image, with its contents before.
struct DamagedFile {
    device: MemoryDevice,
    bytes: Vec<u8>,
    layout: Layout,
    tree: FsTree,
}

/// Makes a tree with large directories, files with many extents and attributes of all kinds.
fn fill(fs: &Xfs) {
    let new = NewInode { permissions: 0o755, ..NewInode::default() };
    let file = NewInode { permissions: 0o644, ..NewInode::default() };
    let root = fs.root();
    let deep = fs.mkdir(root, b"deep", &new).unwrap();
    let deeper = fs.mkdir(deep, b"deeper", &new).unwrap();
    let large = fs.mkdir(deeper, b"large", &new).unwrap();
    for nth in 0..2000 {
        let name = format!("a file with a name of some length, number {nth}");
        let ino = fs.create(large, name.as_bytes(), &file).unwrap();
        if nth % 50 == 0 {
            fs.write(ino, 0, name.as_bytes(), None).unwrap();
            fs.link(ino, deep, format!("link {nth}").as_bytes(), None).unwrap();
        }
    }
    for nth in 0..40 {
        fs.create(root, format!("in the root {nth}").as_bytes(), &file).unwrap();
    }
    let pieces = fs.create(deep, b"pieces", &file).unwrap();
    for nth in 0..1500_u64 {
        fs.write(pieces, nth * 3 * 4096, &[nth as u8; 4096], None).unwrap();
    }
    for nth in 0..60 {
        let value = vec![nth as u8; 1 + nth * 70];
        fs.set_xattr(pieces, format!("user.attribute {nth}").as_bytes(), &value).unwrap();
    }
    fs.symlink(deep, b"short", b"target", &file).unwrap();
    fs.symlink(deep, b"long", &[b'x'; 900], &file).unwrap();
}

impl DamagedFile {
    fn new(features: &str) -> Self {
        let features = FeatureChange::parse_list(features).unwrap();
        let options = Options { allow_small: true, features, ..Options::new(SIZE) };
        let device = Arc::new(MemoryDevice::new(SIZE));
        mkfs::format(&*device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
        let fs = Xfs::open_in_progress(device.clone(), 16 << 20).unwrap();
        fill(&fs);
        fs.finish(None).unwrap();
        drop(fs);
        let tree = tree(device.fork());
        let mut bytes = vec![0; SIZE as usize];
        device.read_at(0, &mut bytes).unwrap();
        Self { device: device.fork(), layout: Layout::of(&bytes), bytes, tree }
    }

    /// Zeroes all structures that `is_it` accepts. Returns their number.
    fn zero(&self, is_it: impl Fn(&[u8]) -> bool) -> usize {
        let mut count = 0;
        for structure in &self.layout.structures {
            let bytes = &self.bytes[structure.start..structure.start + structure.len];
            if is_it(bytes) {
                self.device.zero_range(structure.start as u64, structure.len as u64).unwrap();
                count += 1;
            }
        }
        count
    }

    fn slot_byte(&self, ino: Ino) -> u64 {
        let geometry = &self.layout.geometry;
        let (ag, ag_ino) = geometry.split_ino(ino).unwrap();
        let (block, at) = geometry.inode_place(ag_ino);
        geometry.byte_of(geometry.block_of(ag, block)) + at as u64
    }

    fn lookup(&self, path: &str) -> Ino {
        let fs = open(self.device.fork());
        let mut at = fs.root();
        for name in path.split('/') {
            at = fs.lookup(at, name.as_bytes()).unwrap();
        }
        at
    }

    /// Changes the entries of a shortform directory.
    fn edit_short(&self, dir: Ino, change: impl FnOnce(&mut Ino, &mut Vec<(Vec<u8>, Ino, u8)>)) {
        let geometry: &Geometry = &self.layout.geometry;
        let layout = DirLayout::new(geometry);
        let mut slot = vec![0; geometry.inode_size()];
        self.device.read_at(self.slot_byte(dir), &mut slot).unwrap();
        let mut inode = Inode::from_slot(&slot);
        let contents = inode.fork(Fork::Data)[..inode.size() as usize].to_vec();
        let old = Short::parse(&layout, geometry, &contents).unwrap();
        let mut parent = old.parent();
        let mut entries: Vec<_> =
            old.entries().map(|entry| (entry.name.to_vec(), entry.ino, entry.code)).collect();
        change(&mut parent, &mut entries);
        let mut offset = layout.first_entry();
        let mut all = Vec::new();
        for (name, ino, code) in &entries {
            all.push(ShortEntry { offset, name, ino: *ino, code: *code });
            offset += layout.entry_size(name.len());
        }
        let bytes = short::build(&layout, parent, all.into_iter());
        inode.set_size(bytes.len() as u64);
        inode.fork_mut(Fork::Data)[..bytes.len()].copy_from_slice(&bytes);
        seal_slot(inode.as_mut_bytes());
        self.device.write_at(self.slot_byte(dir), inode.as_bytes()).unwrap();
    }

    /// Repairs the image, and checks the result.
    #[track_caller]
    fn repair(&self) -> MemoryDevice {
        let outcome = subject::repaired(self.device.fork()).unwrap();
        assert!(outcome.left.is_empty() && outcome.is_complete, "{}", shown(&outcome.left));
        testkit::show_image(&outcome.device, |path| testkit::xfs_repair(path));
        outcome.device
    }

    /// Repairs the image and asserts that nothing is lost.
    #[track_caller]
    fn repair_all(&self) {
        let rules = Rules { times: false, ..Rules::default() };
        let differences = self.tree.differences(&tree(self.repair()), rules);
        let first: Vec<_> = differences.iter().take(10).collect();
        assert!(differences.is_empty(), "{} differences: {first:#?}", differences.len());
    }
}

fn open(device: MemoryDevice) -> Xfs {
    Xfs::open(Arc::new(device), &OpenOptions::default()).unwrap()
}

fn tree(device: MemoryDevice) -> FsTree {
    FsTree::of(&open(device)).unwrap()
}

const ALL: &str = "rmapbt=1,parent=1";

#[test]
fn names_come_back_from_parent_pointers() {
    testkit::require!(Tool("xfs_repair"));
    let subject = DamagedFile::new(ALL);
    let is_data = |bytes: &[u8]| matches!(&bytes[..4], b"XDB3" | b"XDD3");
    assert!(subject.zero(is_data) > 10);
    subject.repair_all();
}

#[test]
fn further_names_come_back_from_parent_pointers() {
    testkit::require!(Tool("xfs_repair"));
    let subject = DamagedFile::new(ALL);
    let deep = subject.lookup("deep");
    let is_its = |bytes: &[u8]| {
        matches!(&bytes[..4], b"XDB3" | b"XDD3") && bytes[40..48] == deep.0.to_be_bytes()
    };
    assert!(subject.zero(is_its) > 0);
    subject.repair_all();
}

#[test]
fn directory_indexes_are_rebuilt() {
    testkit::require!(Tool("xfs_repair"));
    for features in [ALL, "rmapbt=0,parent=0"] {
        let subject = DamagedFile::new(features);
        let is_index =
            |bytes: &[u8]| &bytes[..4] == b"XDF3" || matches!(bytes[8..10], [0x3d, 0xf1 | 0xff]);
        assert!(subject.zero(is_index) > 5);
        subject.repair_all();
    }
}

#[test]
fn maps_come_back_from_the_reverse_map() {
    testkit::require!(Tool("xfs_repair"));
    let subject = DamagedFile::new(ALL);
    assert!(subject.zero(|bytes| &bytes[..4] == b"BMA3") > 2);
    subject.repair_all();
}

#[test]
fn an_inode_is_restored_from_the_reverse_map() {
    testkit::require!(Tool("xfs_repair"));
    let subject = DamagedFile::new(ALL);
    let ino = subject.lookup("deep/pieces");
    subject.device.write_at(subject.slot_byte(ino), &[0xa5; 512]).unwrap();
    let repaired = tree(subject.repair());
    let (before, after) = (subject.tree.by_ino(ino).unwrap(), repaired.by_ino(ino).unwrap());
    assert!(before.contents.granules.iter().all(|(at, bytes)| {
        after.contents.granules.get(at).is_some_and(|found| found == bytes)
    }));
    assert_eq!(before.xattrs, after.xattrs);
    assert!(subject.tree.paths.keys().eq(repaired.paths.keys()));
}

#[test]
fn a_directory_is_restored_from_the_reverse_map() {
    testkit::require!(Tool("xfs_repair"));
    let subject = DamagedFile::new(ALL);
    let ino = subject.lookup("deep/deeper/large");
    subject.device.zero_range(subject.slot_byte(ino), 512).unwrap();
    let repaired = tree(subject.repair());
    assert!(subject.tree.paths.keys().eq(repaired.paths.keys()));
}

#[test]
fn an_inline_directory_is_restored_from_its_contents() {
    testkit::require!(Tool("xfs_repair"));
    for fill in [0, 0xa5] {
        let subject = DamagedFile::new(ALL);
        let ino = subject.lookup("deep/deeper");
        subject.device.write_at(subject.slot_byte(ino), &[fill; 512]).unwrap();
        let repaired = tree(subject.repair());
        assert!(subject.tree.paths.keys().eq(repaired.paths.keys()));
    }
}

#[test]
fn lost_attributes_leave_the_others() {
    testkit::require!(Tool("xfs_repair"));
    let subject = DamagedFile::new(ALL);
    let mut count = 0;
    let is_one = |bytes: &[u8]| bytes[8..10] == [0x3b, 0xee];
    for structure in &subject.layout.structures {
        let bytes = &subject.bytes[structure.start..structure.start + structure.len];
        if is_one(bytes) {
            count += 1;
            if count == 3 {
                subject.device.zero_range(structure.start as u64, 4096).unwrap();
            }
        }
    }
    assert!(count > 3);
    let ino = subject.lookup("deep/pieces");
    let repaired = tree(subject.repair());
    let (before, after) = (subject.tree.by_ino(ino).unwrap(), repaired.by_ino(ino).unwrap());
    assert!(after.xattrs.len() > before.xattrs.len() / 2);
    assert!(after.xattrs.iter().all(|(name, value)| before.xattrs.get(name) == Some(value)));
    assert_eq!(before.contents, after.contents);
    assert!(subject.tree.paths.keys().eq(repaired.paths.keys()));
}

#[test]
fn a_loop_is_taken_apart() {
    testkit::require!(Tool("xfs_repair"));
    for features in [ALL, "rmapbt=0,parent=0"] {
        let subject = DamagedFile::new(features);
        let (deep, deeper) = (subject.lookup("deep"), subject.lookup("deep/deeper"));
        // The root's entry is in a block; change it to lead to another file.
        let name = b"deep";
        let file = subject.lookup("in the root 7");
        let at = subject.bytes.windows(13).position(|bytes| {
            bytes[..8] == deep.0.to_be_bytes() && bytes[8] == 4 && &bytes[9..] == name
        });
        let at = at.expect("an entry in a block");
        subject.device.write_at(at as u64, &file.0.to_be_bytes()).unwrap();
        subject.device.write_at(at as u64 + 13, &[1]).unwrap();
        subject.layout.seal(&subject.device, at..at + 14);
        subject.edit_short(deeper, |_, entries| entries.push((b"up".to_vec(), deep, 2)));
        let fs = open(subject.repair());
        if features == ALL {
            // The entry that led to another file is replaced.
            assert_eq!(fs.lookup(fs.root(), b"deep").unwrap(), deep);
        } else {
            let lost = fs.lookup(fs.root(), b"lost+found").unwrap();
            let found = fs.lookup(lost, deep.to_string().as_bytes());
            assert!(found.is_ok() || fs.lookup(lost, deeper.to_string().as_bytes()).is_ok());
        }
    }
}

#[test]
fn invalid_entries_are_corrected() {
    testkit::require!(Tool("xfs_repair"));
    let subject = DamagedFile::new(ALL);
    let deeper = subject.lookup("deep/deeper");
    let file = subject.lookup("in the root 3");
    let large = subject.lookup("deep/deeper/large");
    subject.edit_short(deeper, |_, entries| {
        entries.push((b"twice".to_vec(), file, 1));
        entries.push((b"twice".to_vec(), file, 1));
        entries.push((b"of another type".to_vec(), file, 2));
        entries.push((b"dangling".to_vec(), Ino(file.0 | 0x3f_0000), 1));
        entries.push((b"second".to_vec(), large, 2));
    });
    let repaired = tree(subject.repair());
    for name in ["twice", "twice~1", "of another type", "large"] {
        let path = format!("deep/deeper/{name}");
        assert!(repaired.get(path.as_bytes()).is_some(), "{path}");
    }
    assert!(repaired.get(b"deep/deeper/dangling").is_none());
    assert!(repaired.get(b"deep/deeper/second").is_none());
}

/// A file claims blocks of another: it gets back its own blocks if the reverse map has them, otherwise a copy.
#[test]
fn blocks_with_several_owners_are_distinguished() {
    testkit::require!(Tool("xfs_repair"));
    for features in [ALL, "rmapbt=0,parent=0"] {
        let subject = DamagedFile::new(features);
        let [victim, thief] = [50, 100].map(|nth| {
            subject.lookup(&format!(
                "deep/deeper/large/a file with a name of some length, number {nth}"
            ))
        });
        let geometry = subject.layout.geometry;
        let slot = |ino: Ino| {
            let mut slot = vec![0; geometry.inode_size()];
            subject.device.read_at(subject.slot_byte(ino), &mut slot).unwrap();
            Inode::from_slot(&slot)
        };
        let (of_victim, mut of_thief) = (slot(victim), slot(thief));
        let record = of_victim.fork(Fork::Data)[..16].to_vec();
        of_thief.fork_mut(Fork::Data)[..16].copy_from_slice(&record);
        seal_slot(of_thief.as_mut_bytes());
        subject.device.write_at(subject.slot_byte(thief), of_thief.as_bytes()).unwrap();
        if features == ALL {
            subject.repair_all();
            continue;
        }
        let repaired = tree(subject.repair());
        let (before, after) =
            (subject.tree.by_ino(victim).unwrap(), repaired.by_ino(victim).unwrap());
        assert_eq!(before.contents, after.contents);
        assert!(subject.tree.paths.keys().eq(repaired.paths.keys()));
    }
}
