//! One damage at a time: the error must name the damaged structure and its position.

use crate::common;

use common::image::{device, golden};
use common::layout::{ImageStructures, StructureKind, edit_superblock};
use common::walk;
use ext4::format::address::{Block, FileBlock, Group};
use ext4::format::extent::{self, Extent, IndexEntry};
use ext4::format::features::{Incompat, RoCompat};
use ext4::format::inode::{Inode, flags};
use ext4::format::superblock::Superblock;
use ext4::{Ext4, OpenOptions};
use vfs::path::{LastLink, Order};
use vfs::{Cookie, Corruption, Error, FileSystem, Ino, Paths};

/// A golden image to be damaged.
struct GoldenImage {
    image: Vec<u8>,
    layout: ImageStructures,
}

impl GoldenImage {
    fn new(name: &str) -> Self {
        let image = golden(name);
        Self { layout: ImageStructures::of(&image), image }
    }

    /// Returns the inode at a path of the undamaged image.
    fn ino(&self, path: &str) -> Ino {
        Paths::new(&self.fs()).resolve(path.as_bytes(), LastLink::Keep).unwrap()
    }

    fn block(&mut self, block: Block) -> &mut [u8] {
        let range = self.layout.block_range(block);
        &mut self.image[range]
    }

    /// Changes an inode.
    fn edit(&mut self, ino: Ino, edit: impl FnOnce(&mut Inode)) {
        let range = self.layout.slot_range(ino);
        let slot = &mut self.image[range];
        let mut inode = Inode::from_slot(slot);
        edit(&mut inode);
        let bytes = inode.as_bytes();
        slot[..bytes.len()].copy_from_slice(bytes);
    }

    /// Recomputes the checksums.
    fn seal(&mut self) {
        self.layout.seal(&mut self.image);
    }

    fn open(&self) -> Result<Ext4, Error> {
        Ext4::open(device(&self.image), &OpenOptions { norecovery: false, ..walk::OPTIONS })
    }

    fn fs(&self) -> Ext4 {
        self.open().expect("the damage does not keep it from being opened")
    }

    /// Returns the first damage found when everything is read.
    fn damage(&self) -> Corruption {
        let outcome = walk::everything(device(&self.image));
        let corrupt = |e| if let Error::Corrupt(c) = e { Some(c) } else { None };
        outcome.errors.into_iter().find_map(corrupt).expect("the damage is found")
    }
}

fn damage<T>(result: Result<T, Error>) -> Corruption {
    match result {
        Err(Error::Corrupt(c)) => c,
        Err(other) => panic!("not damage: {other}"),
        Ok(_) => panic!("the damage is not found"),
    }
}

#[track_caller]
fn assert_names(c: &Corruption, structure: &str, ino: Option<Ino>, block: Option<Block>) {
    assert_eq!(c.structure(), structure, "{c}");
    if let Some(ino) = ino {
        assert_eq!(c.inode(), Some(ino.0), "{c}");
    }
    if let Some(block) = block {
        assert_eq!(c.block(), Some(block.0), "{c}");
    }
}

/// Reads the start of a file, up to 1 MiB.
fn read(fs: &Ext4, ino: Ino) -> Result<usize, Error> {
    fs.read(ino, 0, &mut vec![0; 1 << 20])
}

fn map(fs: &Ext4, ino: Ino) -> Result<(), Error> {
    fs.extent_map(ino, 0, u64::MAX, &mut |_| std::ops::ControlFlow::Continue(()))
}

fn list(fs: &Ext4, dir: Ino) -> Result<(), Error> {
    fs.readdir(dir, Cookie(0), &mut |_| std::ops::ControlFlow::Continue(()))
}

/// Returns the extent tree blocks of an inode, in tree order.
fn extent_nodes(victim: &GoldenImage, ino: Ino) -> Vec<Block> {
    let all = victim.layout.structures.iter();
    all.filter(|s| s.kind == StructureKind::Extents && s.ino == ino).map(|s| s.block).collect()
}

#[test]
fn an_extent_tree_node_that_points_to_itself() {
    let mut victim = GoldenImage::new("ext4-plain");
    let ino = victim.ino("many-blocks");
    let node = extent_nodes(&victim, ino)[0];
    let entry = IndexEntry { block: FileBlock(0), leaf: node }.encode();
    victim.block(node)[extent::entry_range(0)].copy_from_slice(&entry);
    let c = damage(read(&victim.fs(), ino));
    assert_names(&c, "extent tree node", Some(ino), Some(node));
    assert!(c.to_string().contains("wrong depth"), "{c}");
}

#[test]
fn an_extent_tree_node_under_two_parents() {
    let mut victim = GoldenImage::new("ext4-plain");
    let ino = victim.ino("many-blocks");
    let nodes = extent_nodes(&victim, ino);
    // The second entry of the first index node refers to the first leaf.
    let index = victim.block(nodes[0]);
    let range = extent::entry_range(1);
    let second =
        FileBlock(u32::from_le_bytes(index[range.start..range.start + 4].try_into().unwrap()));
    index[range].copy_from_slice(&IndexEntry { block: second, leaf: nodes[1] }.encode());
    let c = damage(map(&victim.fs(), ino));
    assert_names(&c, "extent tree node", Some(ino), Some(nodes[1]));
    assert!(c.to_string().contains("outside the range"), "{c}");
}

#[test]
fn an_extent_tree_of_the_wrong_depth() {
    for (depth, problem) in [(0, "wrong depth"), (2, "wrong depth"), (9, "wrong depth")] {
        let mut victim = GoldenImage::new("ext4");
        let ino = victim.ino("many-blocks");
        let node = extent_nodes(&victim, ino)[0];
        let expected = if depth == 0 { Some(node) } else { None };
        if depth == 0 {
            victim.block(node)[6] = 1;
        } else {
            victim.edit(ino, |inode| inode.i_block_mut()[6] = depth);
        }
        victim.seal();
        let c = damage(read(&victim.fs(), ino));
        assert_names(&c, "extent tree node", Some(ino), expected);
        assert!(c.to_string().contains(problem), "{c}");
    }
}

#[test]
fn extents_outside_the_file_system() {
    let mut victim = GoldenImage::new("ext4");
    let ino = victim.ino("small");
    let blocks = victim.layout.geometry.blocks_count;
    for start in [blocks, u64::from(u32::MAX) << 8, 0] {
        let extent = Extent { block: FileBlock(0), len: 1, start: Block(start), unwritten: false };
        victim.edit(ino, |inode| {
            inode.i_block_mut()[extent::entry_range(0)].copy_from_slice(&extent.encode());
        });
        victim.seal();
        assert_names(&damage(read(&victim.fs(), ino)), "block map", Some(ino), None);
    }
}

#[test]
fn a_block_of_pointers_to_itself() {
    let mut victim = GoldenImage::new("ext3");
    let ino = victim.ino("many-blocks");
    let mut indirect = 0;
    victim.edit(ino, |inode| {
        let map = inode.i_block_mut();
        indirect = u32::from_le_bytes(map[48..52].try_into().unwrap());
        map.copy_within(48..52, 56);
        inode.set_size(16 << 30);
    });
    for pointer in victim.block(Block(indirect.into())).as_chunks_mut::<4>().0 {
        *pointer = indirect.to_le_bytes();
    }
    let c = damage(map(&victim.fs(), ino));
    assert_names(&c, "block map", Some(ino), None);
    assert!(c.to_string().contains("more blocks than the file system"), "{c}");
}

#[test]
fn a_pointer_outside_the_file_system() {
    let mut victim = GoldenImage::new("ext3");
    let ino = victim.ino("many-blocks");
    let mut indirect = 0;
    victim.edit(ino, |inode| {
        indirect = u32::from_le_bytes(inode.i_block()[48..52].try_into().unwrap());
    });
    victim.block(Block(indirect.into()))[8..12].copy_from_slice(&[0xff; 4]);
    let c = damage(read(&victim.fs(), ino));
    assert_names(&c, "indirect block", Some(ino), Some(Block(indirect.into())));
}

#[test]
fn a_directory_that_contains_itself() {
    let mut victim = GoldenImage::new("ext4-plain");
    let (dir, inside) = (victim.ino("directory/deeper"), victim.ino("directory/deeper/deepest"));
    let leaf =
        victim.layout.structures.iter().find(|s| s.ino == dir && s.kind == StructureKind::Leaf);
    let leaf = leaf.unwrap().block;
    let block = victim.block(leaf);
    let at = block.windows(7).position(|name| name == b"deepest").unwrap() - 8;
    assert_eq!(block[at..at + 4], (inside.0 as u32).to_le_bytes());
    block[at..at + 4].copy_from_slice(&(dir.0 as u32).to_le_bytes());
    let fs = victim.fs();
    let mut walk = Paths::new(&fs).walk(fs.root(), Order::Sorted);
    let failed = walk.find_map(Result::err).expect("the cycle is found");
    assert_eq!(failed.path, b"directory/deeper/deepest");
    assert_names(&damage(Err::<(), _>(failed.error)), "directory tree", Some(dir), None);
}

#[test]
fn records_of_a_directory_that_do_not_add_up() {
    for rec_len in [0_u16, 7, 2048, 0xfffc] {
        let mut victim = GoldenImage::new("ext4");
        let dir = victim.ino("directory");
        let mut structures = victim.layout.structures.iter();
        let leaf =
            structures.find(|s| s.ino == dir && s.kind == StructureKind::Leaf).unwrap().block;
        victim.block(leaf)[16..18].copy_from_slice(&rec_len.to_le_bytes());
        victim.seal();
        let fs = victim.fs();
        assert_names(&damage(list(&fs, dir)), "directory block", Some(dir), Some(leaf));
        let c = damage(fs.lookup(dir, b"deeper"));
        assert_names(&c, "directory block", Some(dir), Some(leaf));
    }
}

#[test]
fn an_index_that_leads_back_to_its_root() {
    let mut victim = GoldenImage::new("deep-index-plain");
    let dir = victim.ino("many");
    let node = victim.layout.first(StructureKind::IndexNode).block;
    let root = victim.layout.first(StructureKind::IndexRoot).block;
    let sound = victim.image.clone();
    // The block of the first entry, in the node and in the root.
    for (block, at) in [(node, 12), (root, 36)] {
        victim.block(block)[at..at + 4].fill(0);
        let fs = victim.fs();
        // Some name has such a low hash that it is searched for below the first entry.
        let numbers = (0..1_000).map(|number: u32| number.to_le_bytes().map(|byte| byte | 0x40));
        let mut lookups = numbers.map(|name| fs.lookup(dir, &name));
        let found = lookups.find(|result| !matches!(result, Err(Error::NotFound)));
        for c in [damage(list(&fs, dir)), damage(found.expect("a low hash"))] {
            assert_names(&c, "directory index", Some(dir), None);
            assert!(c.to_string().contains("contains a loop"), "{c}");
        }
        victim.image = sound.clone();
    }
}

#[test]
fn an_index_whose_leaves_all_have_one_hash() {
    let mut victim = GoldenImage::new("deep-index-plain");
    let dir = victim.ino("many");
    let node = victim.layout.first(StructureKind::IndexNode).block;
    let root = victim.layout.first(StructureKind::IndexRoot).block;
    // All entries refer to the same node, and there to the same leaf, which continues each time. In hash order that is
    // one run of 100 times 100 leaves.
    for (block, start) in [(root, 32), (node, 8)] {
        let bytes = victim.block(block);
        bytes[start + 2..start + 4].copy_from_slice(&100_u16.to_le_bytes());
        let first: [u8; 4] = bytes[start + 4..start + 8].try_into().unwrap();
        for entry in bytes[start + 8..].as_chunks_mut::<8>().0.iter_mut().take(99) {
            entry[..4].copy_from_slice(&1_u32.to_le_bytes());
            entry[4..].copy_from_slice(&first);
        }
    }
    // The number of blocks for that, in the only group.
    let blocks: u16 = 8192;
    victim.image.resize(usize::from(blocks) << 10, 0);
    edit_superblock(&mut victim.image, |raw| raw.blocks_count_lo = u32::from(blocks).into());
    victim.edit(dir, |inode| inode.set_size(u64::from(blocks) << 10));
    let c = damage(list(&victim.fs(), dir));
    assert_names(&c, "directory index", Some(dir), None);
    assert!(c.to_string().contains("too many leaves with the same hash"), "{c}");
}

#[test]
fn an_index_with_wrong_counts() {
    for (kind, at, name) in [
        (StructureKind::IndexRoot, 32, "directory index root"),
        (StructureKind::IndexNode, 8, "directory index node"),
    ] {
        for (field, value) in [(0, 0xffff_u16), (2, 0xffff), (2, 0)] {
            let mut victim = GoldenImage::new("deep-index");
            let dir = victim.ino("many");
            let block = victim.layout.first(kind).block;
            victim.block(block)[at + field..][..2].copy_from_slice(&value.to_le_bytes());
            let c = damage(list(&victim.fs(), dir));
            assert_names(&c, name, Some(dir), Some(block));
        }
    }
}

#[test]
fn an_index_of_too_many_levels() {
    let mut victim = GoldenImage::new("deep-index");
    let dir = victim.ino("many");
    let root = victim.layout.first(StructureKind::IndexRoot).block;
    victim.block(root)[30] = 2;
    victim.seal();
    let c = damage(list(&victim.fs(), dir));
    assert_names(&c, "directory index root", Some(dir), None);
    assert!(c.to_string().contains("too many levels"), "{c}");
}

#[test]
fn invalid_sizes() {
    let huge = (1 << 60) - 1;
    let mut victim = GoldenImage::new("ext4");
    let [dir, link, file] = ["directory", "slow-link", "small"].map(|path| victim.ino(path));
    for ino in [dir, link, file] {
        victim.edit(ino, |inode| inode.set_size(huge));
    }
    victim.seal();
    let fs = victim.fs();
    let c = damage(list(&fs, dir));
    assert_names(&c, "directory", Some(dir), None);
    assert!(c.to_string().contains("larger than the file system"), "{c}");
    assert_names(&damage(fs.lookup(dir, b"no such name")), "directory", Some(dir), None);
    assert_names(&damage(fs.readlink(link)), "symbolic link", Some(link), None);
    // A file may consist mostly of a hole, so a large size costs nothing.
    map(&fs, file).expect("one block and a hole");
    assert_eq!(fs.read(file, huge - 4, &mut [1; 16]).unwrap(), 4);
}

#[test]
fn an_inline_directory_larger_than_its_room() {
    let mut victim = GoldenImage::new("inline");
    let ino = victim.ino("empty");
    victim.edit(ino, |inode| inode.set_size(5_000));
    victim.seal();
    assert_names(&damage(list(&victim.fs(), ino)), "inline data", Some(ino), None);
}

#[test]
fn group_descriptors_out_of_range() {
    let far = u32::MAX.to_le_bytes();
    for (name, group) in [("ext4", 0), ("meta-bg", 1)] {
        for at in [0, 4, 8] {
            let mut victim = GoldenImage::new(name);
            let range = victim.layout.descriptor_range(Group(group));
            victim.image[range.start + at..][..4].copy_from_slice(&far);
            victim.seal();
            let c = damage(victim.open());
            assert_names(&c, "group descriptor", None, None);
            assert!(c.to_string().contains(&format!("group {group}")), "{c}");
        }
    }
}

#[test]
fn an_inode_table_over_the_directory_tree() {
    let mut victim = GoldenImage::new("ext4-plain");
    let root = victim.layout.structures.iter().find(|s| s.ino == Ino(2)).unwrap().block;
    let range = victim.layout.descriptor_range(Group(0));
    victim.image[range.start + 8..][..4].copy_from_slice(&(root.0 as u32).to_le_bytes());
    let c = victim.damage();
    assert!(c.inode().is_some(), "{c}");
}

#[test]
fn attributes_out_of_range() {
    let mut victim = GoldenImage::new("ext4");
    let block = victim.layout.first(StructureKind::Attributes).block;
    // The offset and the size of the first entry's value.
    for (at, len) in [(34, 2), (40, 4)] {
        let saved = victim.image.clone();
        victim.block(block)[at..at + len].fill(0xff);
        victim.seal();
        let c = victim.damage();
        assert_names(&c, "extended attributes", None, Some(block));
        victim.image = saved;
    }
}

#[test]
fn an_attribute_value_in_a_wrong_inode() {
    let mut victim = GoldenImage::new("ea-inode");
    let ino = victim.ino("small");
    // The entry whose `e_value_inum` is not 0 gets the number of its own inode.
    let mut holders = victim.layout.inodes.iter().copied();
    let holder = holders.find(|i| victim.layout.inode(&victim.image, *i).has_flag(flags::EA_INODE));
    let holder = holder.expect("a large value").0 as u32;
    let own = victim
        .layout
        .structures
        .iter()
        .filter(|s| s.ino == ino && s.kind == StructureKind::Attributes);
    let mut ranges: Vec<_> = own.map(|s| victim.layout.block_range(s.block)).collect();
    ranges.push(victim.layout.slot_range(ino));
    for range in ranges {
        for at in range.step_by(4) {
            if victim.image[at..at + 4] == holder.to_le_bytes() {
                victim.image[at..at + 4].copy_from_slice(&(ino.0 as u32).to_le_bytes());
            }
        }
    }
    victim.seal();
    let c = damage(victim.fs().get_xattr(ino, b"user.in-an-inode"));
    assert_names(&c, "extended attribute inode", Some(ino), None);
}

#[test]
fn an_attribute_block_outside_the_file_system() {
    let mut victim = GoldenImage::new("ext4");
    let ino = victim.ino("small");
    victim.edit(ino, |inode| inode.set_file_acl(1 << 40));
    victim.seal();
    let c = damage(victim.fs().list_xattrs(ino, &mut |_| {}));
    assert_names(&c, "inode", Some(ino), None);
}

#[test]
fn every_checksum_is_checked_and_named() {
    for (name, kind, structure) in [
        ("ext4", StructureKind::Leaf, "directory block"),
        ("ext4", StructureKind::IndexRoot, "directory index root"),
        ("deep-index", StructureKind::IndexNode, "directory index node"),
        ("ext4", StructureKind::Extents, "extent tree node"),
        ("ext4", StructureKind::Attributes, "extended attribute block"),
    ] {
        let mut victim = GoldenImage::new(name);
        let found = victim.layout.first(kind);
        let block = victim.block(found.block);
        // A bit that no other check covers: of an inode number, a hash or the checksum.
        let at = match kind {
            StructureKind::Leaf => 1020,
            StructureKind::IndexRoot => 1020,
            StructureKind::IndexNode => 1020,
            StructureKind::Extents => 1020,
            StructureKind::Attributes => 16,
        };
        block[at] ^= 1;
        let c = victim.damage();
        let owner = (kind != StructureKind::Attributes).then_some(found.ino);
        assert_names(&c, structure, owner, Some(found.block));
        assert!(c.to_string().contains("wrong checksum"), "{c}");
    }
}

#[test]
fn checksums_of_superblock_descriptors_and_inodes() {
    let mut victim = GoldenImage::new("ext4");
    let ino = victim.ino("small");
    let fresh = victim.image.clone();
    victim.edit(ino, |inode| inode.set_uid(77));
    let c = damage(victim.fs().attributes(ino));
    let start = victim.layout.slot_range(ino).start as u64;
    let block = Block(start / u64::from(victim.layout.geometry.block_size()));
    assert_names(&c, "inode", Some(ino), Some(block));
    assert!(c.to_string().contains("wrong checksum"), "{c}");

    victim.image = fresh.clone();
    let range = victim.layout.descriptor_range(Group(0));
    victim.image[range.start + 12] ^= 1;
    let c = damage(victim.open());
    assert_names(&c, "group descriptor", None, None);
    assert!(c.to_string().contains("wrong checksum"), "{c}");

    victim.image = fresh;
    victim.image[1024 + 0x78] ^= 1;
    let c = damage(victim.open());
    assert_names(&c, "superblock", None, None);
    assert!(c.to_string().contains("wrong checksum"), "{c}");
}

#[test]
fn bitmaps_are_checked_before_they_are_used() {
    for (at, structure) in [(0, "block bitmap"), (4, "inode bitmap")] {
        let mut victim = GoldenImage::new("ext4");
        let dir = victim.ino("directory");
        let descriptor = &victim.layout.groups[0];
        let bitmap = if at == 0 { descriptor.block_bitmap } else { descriptor.inode_bitmap };
        victim.block(bitmap)[7] ^= 1;
        let fs = Ext4::open_in_progress(device(&victim.image), 1 << 20).unwrap();
        let c = damage(fs.mkdir(dir, b"new", &vfs::NewInode::default()));
        assert_names(&c, structure, None, Some(bitmap));
    }
}

fn unsupported(result: Result<Ext4, Error>) -> String {
    match result {
        Err(Error::Unsupported(unsupported)) => unsupported.to_string(),
        Err(other) => panic!("not unsupported: {other}"),
        Ok(_) => panic!("it is opened"),
    }
}

#[test]
fn unknown_features_are_refused_by_name() {
    for (bit, name) in [(Incompat::COMPRESSION.bits(), "compression"), (1 << 30, "I30")] {
        let mut victim = GoldenImage::new("ext4");
        edit_superblock(&mut victim.image, |raw| {
            raw.feature_incompat = (raw.feature_incompat.get() | bit).into();
        });
        let message = unsupported(victim.open());
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn images_with_features_that_cannot_be_maintained_are_only_read() {
    for (ro_compat, reason) in [
        (RoCompat::READONLY, "read-only"),
        (RoCompat::SHARED_BLOCKS, "shared_blocks"),
        (RoCompat::from_bits_retain(1 << 29), "FEATURE_R29"),
    ] {
        let mut victim = GoldenImage::new("ext4");
        edit_superblock(&mut victim.image, |raw| {
            raw.feature_ro_compat = (raw.feature_ro_compat.get() | ro_compat.bits()).into();
        });
        list(&victim.fs(), victim.ino("/")).unwrap();
        let message = unsupported(Ext4::open_writable(device(&victim.image), &walk::OPTIONS));
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn readers_replay_a_journal_in_memory_unless_recovery_is_disabled() {
    let mut victim = GoldenImage::new("journal");
    edit_superblock(&mut victim.image, |raw| {
        raw.feature_incompat = (raw.feature_incompat.get() | Incompat::RECOVER.bits()).into();
    });
    // The image needs recovery, but the reader sees the replayed state.
    let recovers = |sb: &Superblock| sb.features.incompat(Incompat::RECOVER);
    let replayed = victim.open().unwrap();
    assert!(replayed.needs_recovery() && recovers(replayed.superblock_found()));
    assert!(!recovers(replayed.superblock()));
    let norecovery = OpenOptions { norecovery: true, ..walk::OPTIONS };
    let fs = Ext4::open(device(&victim.image), &norecovery).expect("as it lies");
    assert!(fs.needs_recovery() && recovers(fs.superblock()));
}

#[test]
fn other_files_are_not_images() {
    for image in [vec![0; 100], vec![0; 4096], vec![0xff; 1 << 20]] {
        let opened = Ext4::open(device(&image), &walk::OPTIONS);
        assert_names(&damage(opened), "superblock", None, None);
    }
}
