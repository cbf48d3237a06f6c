//! Extended attributes against a model. e2fsck and the kernel check the results.

use crate::common;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use common::layout::{ImageStructures, StructureKind};
use disk::FileDevice;
use ext4::{Ext4, OpenOptions};
use fastrand::Rng;
use rustix::fs::{XattrFlags, lsetxattr};
use testkit::{
    KernelMount, Mke2fs, MountOptions, Tree, e2fsck, populate_with_kernel, require, scratch,
};
use vfs::path::LastLink;
use vfs::{AllocateMode, Error, FileSystem, Ino, NewInode, Paths};

const MIB: u64 = 1 << 20;
const NEW: NewInode = NewInode {
    permissions: 0o644,
    uid: 7,
    gid: 8,
    time: vfs::Timestamp { sec: 1_700_000_000, nsec: 0 },
    parent_time: None,
};

/// Files created by the kernel: some share blocks and values.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "plain", "directory", "link", "long-link"];

#[derive(Clone, Copy, Debug)]
struct XattrCase {
    fs_type: &'static str,
    block_size: u32,
    inode_size: u32,
    ea_inode: bool,
}

const CASES: [XattrCase; 9] = [
    case("ext4", 1024, 128, false),
    case("ext4", 1024, 128, true),
    case("ext4", 1024, 256, false),
    case("ext4", 1024, 256, true),
    case("ext4", 4096, 128, true),
    case("ext4", 4096, 256, false),
    case("ext4", 4096, 256, true),
    case("ext4", 4096, 1024, true),
    // Values in inodes with block maps.
    case("ext3", 1024, 256, true),
];

const fn case(
    fs_type: &'static str,
    block_size: u32,
    inode_size: u32,
    ea_inode: bool,
) -> XattrCase {
    XattrCase { fs_type, block_size, inode_size, ea_inode }
}

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;
type XattrModel = BTreeMap<&'static str, Attributes>;

impl XattrCase {
    /// Creates an image filled by the kernel: `a` to `d` have the same attributes and share a block. With `ea_inode`,
    /// all share a value, which some attribute blocks refer to.
    fn make(&self, image: &Path) {
        let features = if self.ea_inode { "^has_journal,ea_inode" } else { "^has_journal" };
        let mke2fs = Mke2fs::new(self.fs_type).block_size(self.block_size);
        mke2fs.inode_size(self.inode_size).features(features).create(image, 16 * MIB);
        populate_with_kernel(image, "ext4", |root| self.fill(root));
        let bytes = std::fs::read(image).unwrap();
        let layout = ImageStructures::of(&bytes);
        let blocks: Vec<_> =
            layout.structures.iter().filter(|s| s.kind == StructureKind::Attributes).collect();
        let sharers = blocks.iter().map(|s| blocks.iter().filter(|o| o.block == s.block).count());
        assert_eq!(sharers.max(), Some(4), "{self:?}: the kernel shares a block");
    }

    /// Maximum space in a block for all attributes and a new one, if all of them are stored there.
    fn bytes_needed(&self, all: &Attributes, name: &[u8], value: &[u8]) -> usize {
        let entry = |name: &[u8]| (16 + name.len()).next_multiple_of(4);
        let inside = |value: &[u8]| value.len().next_multiple_of(4);
        let others = all.iter().filter(|(known, _)| *known != name).map(|(name, value)| {
            let apart = self.ea_inode && value.len() > self.block_size as usize;
            entry(name) + if apart { 0 } else { inside(value) }
        });
        let new = if self.ea_inode { 0 } else { inside(value) };
        others.sum::<usize>() + entry(name) + new
    }

    fn fill(&self, root: &Path) {
        for name in &NAMES[..5] {
            File::create(root.join(name)).unwrap();
        }
        std::fs::create_dir(root.join("directory")).unwrap();
        std::os::unix::fs::symlink("target", root.join("link")).unwrap();
        std::os::unix::fs::symlink("t".repeat(200), root.join("long-link")).unwrap();
        let set = |file: &str, name: &str, value: &[u8]| {
            lsetxattr(root.join(file), name, value, XattrFlags::empty()).unwrap();
        };
        for file in ["a", "b", "c", "d"] {
            if self.inode_size > 128 {
                // Leaves less room than another entry needs.
                set(file, "user.in-inode", &vec![b'i'; self.inode_size as usize - 208]);
            }
            set(file, "user.in-block", &vec![b'b'; self.block_size as usize / 2]);
            if self.ea_inode {
                set(file, "user.apart", &vec![b'x'; 5000]);
            }
        }
        if self.ea_inode {
            set("plain", "user.apart", &vec![b'x'; 5000]);
            set("long-link", "trusted.apart", &vec![b'y'; 7000]);
        }
        set("link", "trusted.short", b"1");
    }
}

fn open(image: &Path) -> Ext4 {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let device = FileDevice::new(file).unwrap();
    Ext4::open_writable(Arc::new(device), &OpenOptions::default()).unwrap()
}

fn ino(fs: &Ext4, path: &str) -> Ino {
    Paths::new(fs).resolve(path.as_bytes(), LastLink::Keep).unwrap()
}

fn attributes(fs: &Ext4, ino: Ino) -> Attributes {
    let mut names: Vec<Vec<u8>> = Vec::new();
    fs.list_xattrs(ino, &mut |name| names.push(name.to_vec())).unwrap();
    let value = |name: Vec<u8>| {
        let value = fs.get_xattr(ino, &name).unwrap();
        (name, value)
    };
    let count = names.len();
    let all: Attributes = names.into_iter().map(value).collect();
    assert_eq!(all.len(), count, "no name is there twice");
    all
}

/// Returns all attributes that the kernel shows.
fn kernel(image: &Path) -> XattrModel {
    let mount = KernelMount::new(image, &MountOptions::read_only("ext4"));
    let tree = Tree::of(mount.path());
    let model = NAMES.iter().map(|&name| (name, tree.node(name).xattrs.clone())).collect();
    mount.unmount();
    model
}

/// Returns the numbers of free blocks and free inodes.
fn free(fs: &Ext4) -> (u64, u64) {
    let totals = fs.statfs().unwrap();
    (totals.blocks_free, totals.inodes_free)
}

/// Returns an access control list in Linux's format, with `users` named users.
fn acl(users: u32) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    let mut add = |tag: u16, id: u32| {
        list.extend(tag.to_le_bytes());
        list.extend(6_u16.to_le_bytes());
        list.extend(id.to_le_bytes());
    };
    add(1, u32::MAX);
    (0..users).for_each(|user| add(2, 1000 + user));
    [4, 16, 32].into_iter().for_each(|tag| add(tag, u32::MAX));
    list
}

/// Returns a random name that is valid for the inode, and a value.
fn attribute(rng: &mut Rng, file: &str, case: &XattrCase) -> (Vec<u8>, Vec<u8>) {
    let prefix = if file.ends_with("link") { "trusted." } else { "user." };
    if prefix == "user." && rng.u8(..8) == 0 {
        return (b"system.posix_acl_access".to_vec(), acl(rng.u32(1..20)));
    }
    let known = ["in-inode", "in-block", "apart", "short", "s", "medium-length-of-a-name"];
    let name = format!("{prefix}{}", known[rng.usize(..known.len())]);
    let block_size = case.block_size as usize;
    let len = match rng.u8(..10) {
        0 => 0,
        1..=4 => rng.usize(..100),
        5..=7 => rng.usize(..block_size / 2),
        8 => rng.usize(block_size - 100..block_size + 100),
        _ => rng.usize(..=65536),
    };
    (name.into_bytes(), (0..len).map(|_| rng.u8(..)).collect())
}

/// Makes one random change of one inode. Returns true if it succeeded.
fn step(fs: &Ext4, rng: &mut Rng, case: &XattrCase, model: &mut XattrModel) -> bool {
    let file = NAMES[rng.usize(..NAMES.len())];
    if NAMES[..5].contains(&file) && rng.u8(..40) == 0 {
        // Deleting a file frees all space of its attributes.
        fs.unlink(fs.root(), file.as_bytes(), None).unwrap();
        fs.create(fs.root(), file.as_bytes(), &NEW).unwrap();
        model.insert(file, Attributes::new());
    }
    let ino = ino(fs, file);
    let expected = model.get_mut(file).unwrap();
    let (mut name, value) = attribute(rng, file, case);
    let before = free(fs);
    let done = if rng.u8(..3) == 0 {
        if let Some(known) = expected.keys().nth(rng.usize(..8)) {
            name.clone_from(known);
        }
        match (fs.remove_xattr(ino, &name), expected.remove(&name)) {
            (Ok(()), Some(_)) => true,
            (Err(Error::NoAttribute), None) => false,
            (result, was) => panic!("{case:?}: {result:?}, though it was {was:?}"),
        }
    } else {
        match fs.set_xattr(ino, &name, &value) {
            Ok(()) => {
                expected.insert(name, value);
                true
            }
            Err(Error::AttributeTooLarge(_)) => {
                let room = case.block_size as usize - 36;
                let needed = case.bytes_needed(expected, &name, &value);
                assert!(needed > room, "{case:?}: {needed} bytes should fit into {room}");
                false
            }
            Err(other) => panic!("{case:?}: {other}"),
        }
    };
    assert_eq!(&attributes(fs, ino), expected, "{case:?}, {file}");
    assert!(done || free(fs) == before, "what is refused takes nothing");
    done
}

#[test]
fn random_changes_agree_with_a_model_and_the_kernel() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let scratch = scratch();
    for (number, case) in CASES.iter().enumerate() {
        let image = scratch.path().join("image");
        case.make(&image);
        let mut model = kernel(&image);
        let mut rng = Rng::with_seed(number as u64);
        let mut done = 0;
        for _ in 0..6 {
            let fs = open(&image);
            for (name, expected) in &model {
                assert_eq!(&attributes(&fs, ino(&fs, name)), expected, "{case:?}, {name}");
            }
            done += (0..80).filter(|_| step(&fs, &mut rng, case, &mut model)).count();
            fs.close().unwrap();
            e2fsck(&image);
            assert!(kernel(&image) == model, "{case:?}: the kernel sees something else");
        }
        assert!(done > 150, "{case:?}: only {done} changes were made");
    }
}

#[test]
fn nothing_is_left_when_all_is_removed() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let scratch = scratch();
    for case in CASES {
        let image = scratch.path().join("image");
        case.make(&image);
        let fs = open(&image);
        let (blocks, inodes) = free(&fs);
        for name in NAMES {
            let ino = ino(&fs, name);
            for attribute in attributes(&fs, ino).into_keys() {
                fs.remove_xattr(ino, &attribute).unwrap();
                let again = fs.remove_xattr(ino, &attribute);
                assert!(matches!(again, Err(Error::NoAttribute)), "{again:?}");
            }
            let taken = fs.attributes(ino).unwrap().blocks_512 * 512 / u64::from(case.block_size);
            let data = u64::from(name == "directory" || name == "long-link");
            assert_eq!(taken, data, "{case:?}, {name}");
        }
        fs.close().unwrap();
        e2fsck(&image);
        let fs = open(&image);
        let (blocks_now, inodes_now) = free(&fs);
        // Two values, of five and seven thousand bytes, and one shared block.
        let value_blocks = [5000, 7000_u64].map(|len| len.div_ceil(case.block_size.into()));
        let mut expected = 1;
        if case.ea_inode {
            expected += value_blocks.iter().sum::<u64>();
            assert_eq!(inodes_now - inodes, 2, "{case:?}");
        }
        // In a small inode, the entry of a link's value is in a block; so is a short value.
        expected += if case.inode_size == 128 { 1 + 2 * u64::from(case.ea_inode) } else { 0 };
        assert!(blocks_now - blocks >= expected, "{case:?}: {} blocks", blocks_now - blocks);
    }
}

#[test]
fn a_full_image_refuses_and_stays_as_it_was() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let scratch = scratch();
    let case = case("ext4", 1024, 256, true);
    let image = scratch.path().join("image");
    case.make(&image);
    let fs = open(&image);
    let filler = fs.create(fs.root(), b"filler", &NEW).unwrap();
    let unwritten = |at: u64, blocks: u64| {
        fs.allocate(filler, at * 1024, blocks * 1024, AllocateMode::Unwritten)
    };
    let mut at = 0;
    while unwritten(at, 1).is_ok() {
        at += 1;
    }
    // The remaining blocks are reserved for operations that free space.
    let kept = free(&fs).0;
    let available = || free(&fs).0 - kept;
    at -= 70;
    fs.truncate(filler, at * 1024, None).unwrap();
    let mut allocate = |blocks: u64| {
        unwritten(at, blocks).unwrap();
        at += blocks;
    };
    for spare in (0..=70).rev() {
        if available() > spare {
            allocate(available() - spare);
        }
        let before = free(&fs);
        // The entry fits into this inode; the value needs 64 blocks.
        let plain = ino(&fs, "plain");
        let was = attributes(&fs, plain);
        match fs.set_xattr(plain, b"trusted.huge", &vec![3; 65536]) {
            Ok(()) => fs.remove_xattr(plain, b"trusted.huge").unwrap(),
            Err(Error::NoSpace) => assert!(spare < 65, "{spare}"),
            Err(other) => panic!("{other}"),
        }
        assert!(attributes(&fs, plain) == was && free(&fs) == before, "{spare}");
        // Both need a copy of the shared block, and one also needs blocks for a value.
        for (name, len) in
            [("user.more", 300), ("user.huge", 66 << 10)].into_iter().skip(spare.min(1) as usize)
        {
            let refused = fs.set_xattr(ino(&fs, "b"), name.as_bytes(), &vec![1; len]);
            // The longer one exceeds the maximum size of a value, independent of free space.
            let is_expected = match refused {
                Err(Error::NoSpace) => name == "user.more",
                Err(Error::AttributeTooLarge(_)) => name == "user.huge",
                _ => false,
            };
            assert!(is_expected, "{spare}: {refused:?}");
            assert!(free(&fs) == before, "{spare}");
        }
    }
    // There is no room for a copy of the shared block.
    let a = ino(&fs, "a");
    let mut expected = attributes(&fs, a);
    assert_eq!(available(), 0);
    assert!(matches!(fs.set_xattr(a, b"user.more", &[1; 300]), Err(Error::NoSpace)));
    assert_eq!(attributes(&fs, a), expected);
    // After a removal the remaining attributes fit nowhere else. They get a block of the reserve for freeing
    // operations.
    fs.remove_xattr(a, b"user.in-block").unwrap();
    expected.remove(b"user.in-block".as_slice()).unwrap();
    assert_eq!(attributes(&fs, a), expected);
    fs.close().unwrap();
    e2fsck(&image);
}

#[test]
fn threads_let_go_of_shared_blocks_and_values() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let scratch = scratch();
    let case = case("ext4", 1024, 256, true);
    let made = scratch.path().join("made");
    case.make(&made);
    let start = kernel(&made);
    for round in 0..testkit::effort(3, 6, 200) {
        let image = scratch.path().join("image");
        testkit::copy_image(&made, &image);
        let fs = Arc::new(open(&image));
        let (sender, receiver) = std::sync::mpsc::channel();
        for (number, file) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let (fs, sender, mut expected) = (fs.clone(), sender.clone(), start[file].clone());
            std::thread::spawn(move || {
                let mut rng = Rng::with_seed(round * 4 + number as u64);
                let ino = ino(&fs, file);
                for _ in 0..=rng.u32(..30) {
                    let (name, value) = attribute(&mut rng, file, &case);
                    if rng.bool() {
                        let removed = fs.remove_xattr(ino, &name).is_ok();
                        assert_eq!(removed, expected.remove(&name).is_some());
                    } else if fs.set_xattr(ino, &name, &value).is_ok() {
                        expected.insert(name, value);
                    }
                    assert_eq!(attributes(&fs, ino), expected);
                }
                sender.send((file, expected)).unwrap();
            });
        }
        drop(sender);
        let mut model = start.clone();
        for _ in 0..4 {
            let (file, expected) =
                receiver.recv_timeout(testkit::HANG_AFTER).expect("no thread fails or waits");
            model.insert(file, expected);
        }
        // The threads may not have dropped their references yet.
        fs.finish(None).unwrap();
        e2fsck(&image);
        assert!(kernel(&image) == model, "round {round}");
    }
}
