//! Rare features: multi-mount protection, descriptors in meta groups, fast commits, names hashed with a key.

use std::path::Path;

use ext4::format::features::Compat;
use testkit::{KernelMount, Mke2fs, MountOptions, Sample, effort, require, sample_tree, scratch};
use vfs::check::Finding;
use vfs::{FileAttributesChange, FileSystem, InodeFlags};

use super::tree::ReachableTree;
use super::{apply, describe, plan};
use crate::check::victim::{is_explained, judge};
use crate::common::layout::{ImageStructures, Structure, StructureKind, edit_superblock};
use crate::names::common as names;

/// Creates an image by mke2fs with some files.
fn made(work: &Path, block_size: u32, arguments: &[&str]) -> Vec<u8> {
    let tree = work.join("tree");
    if !tree.exists() {
        std::fs::create_dir(&tree).unwrap();
        sample_tree(&tree, &Sample { wide_names: 300, ..Sample::for_block_size(1024) });
    }
    let place = work.join("made");
    let mke2fs = Mke2fs::new("ext4").block_size(block_size).inode_count(2048);
    mke2fs.arguments(arguments.iter().copied()).populate(&tree).create(&place, 24 << 20);
    crate::check::sound::settle(&place);
    std::fs::read(&place).unwrap()
}

/// Repairs an image, asserts that it is sound, and returns it.
#[track_caller]
fn repaired(image: &[u8], what: &str) -> Vec<u8> {
    let made = plan(image).unwrap_or_else(|error| panic!("{what}: {error}"));
    let text = format!("{what}\n{}", describe(&made));
    assert!(made.left.is_empty() && made.summary.is_complete, "{text}");
    let after = apply(image, &made.steps);
    if let Some(remarks) = judge(&after).filter(|text| !is_explained(text)) {
        panic!("{text}{remarks}");
    }
    let again = plan(&after).unwrap_or_else(|error| panic!("{text}{error}"));
    assert!(again.steps.is_empty() && again.findings.is_empty(), "{text}{}", describe(&again));
    after
}

#[test]
fn the_block_of_mmp_is_written_again() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let work = scratch();
    let place = work.path().join("image");
    let mut random = fastrand::Rng::with_seed(67);
    for features in ["mmp", "mmp,^metadata_csum"] {
        let image = made(work.path(), 1024, &["-O", features]);
        let before = ReachableTree::of(&image).expect("a sound image");
        let layout = ImageStructures::of(&image);
        let block = layout.sb.raw.mmp_block.get();
        let at = block as usize * 1024;
        for number in 0..effort(4, 8, 500) {
            let mut damaged = image.clone();
            match number % 4 {
                0 => damaged[at..at + 1024].fill(0),
                1 => damaged[at..at + 1024].fill_with(|| random.u8(..)),
                2 => damaged[at + random.usize(..4)] ^= 1 << random.u8(..8),
                _ => {
                    // The block number is out of range, in use, or 0.
                    let any = random.u64(..24 << 10);
                    let other = *random.choice(&[0, 1, 3, 1 << 40, any]).unwrap();
                    edit_superblock(&mut damaged, |raw| raw.mmp_block = other.into());
                }
            }
            let what = format!("{features} {number}");
            let after = repaired(&damaged, &what);
            let now = ReachableTree::of(&after).expect("a tree");
            let lost = before.lost_in(&now, None, true);
            assert!(lost.inodes.is_empty() && lost.names.is_empty(), "{what}: {lost:?}");
            // A kernel reads the block before it mounts for writing.
            if number == 0 {
                std::fs::write(&place, &after).unwrap();
                let options = MountOptions::read_write("ext4");
                KernelMount::new(&place, &options).unmount();
            }
        }
    }
}

#[test]
fn descriptors_in_meta_groups_come_from_their_copies() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let work = scratch();
    let mut random = fastrand::Rng::with_seed(71);
    for features in ["meta_bg,^resize_inode", "meta_bg,^resize_inode,^flex_bg,^metadata_csum"] {
        let image = made(work.path(), 1024, &["-O", features, "-g", "512"]);
        let before = ReachableTree::of(&image).expect("a sound image");
        let layout = ImageStructures::of(&image);
        let geometry = &layout.geometry;
        let per_block = geometry.desc_per_block();
        let blocks = geometry.groups_count.div_ceil(per_block);
        assert!(blocks >= 2, "there is but one meta group");
        // The first descriptor block, and its copies in the second and the last group of the meta group.
        let copies = |index: u32| -> Vec<usize> {
            let first = index * per_block;
            let last = (first + per_block).min(geometry.groups_count) - 1;
            let own = geometry.gdt_block(index).0 as usize;
            let holders = [first + 1, last].into_iter().filter(|group| *group <= last);
            let places = holders.filter_map(|group| {
                let (range, start) = geometry.gdt_copy_in(ext4::format::address::Group(group));
                range.contains(&index).then(|| start.0 as usize + (index - range.start) as usize)
            });
            std::iter::once(own).chain(places).collect()
        };
        for number in 0..effort(8, 15, 2_000) {
            let index = random.u32(..blocks);
            let mut all = copies(index);
            all.sort_unstable();
            all.dedup();
            // One copy stays valid, or none.
            let is_hopeless = number % 4 == 3;
            if !is_hopeless {
                all.remove(random.usize(..all.len()));
            }
            let mut damaged = image.clone();
            for block in &all {
                let bytes = &mut damaged[block * 1024..(block + 1) * 1024];
                if random.bool() { bytes.fill(0) } else { bytes.fill_with(|| random.u8(..)) }
            }
            let what = format!("{features} {number}: blocks {all:?} of meta group {index}");
            let made = plan(&damaged).unwrap_or_else(|error| panic!("{what}: {error}"));
            if is_hopeless && !made.left.is_empty() {
                continue;
            }
            let after = repaired(&damaged, &what);
            let now = ReachableTree::of(&after).expect("a tree");
            let lost = before.lost_in(&now, None, true);
            let is_whole = lost.inodes.is_empty() && lost.names.is_empty();
            assert!(is_whole || is_hopeless, "{what}: {lost:?}\n{}", describe(&made));
        }
    }
}

/// Creates an image of a kernel that was stopped with fast commits in its journal, one for each file that was fsynced.
fn with_fast_commits(work: &Path) -> Vec<u8> {
    let (live, crashed) = (work.join("live"), work.join("crashed"));
    Mke2fs::new("ext4").block_size(1024).features("fast_commit").create(&live, 32 << 20);
    let options = MountOptions { extra: "commit=600", ..MountOptions::read_write("ext4") };
    let mount = KernelMount::new(&live, &options);
    std::fs::create_dir(mount.path().join("dir")).unwrap();
    std::fs::write(mount.path().join("dir/old"), vec![5; 30_000]).unwrap();
    let synced = std::process::Command::new("sync").arg("-f").arg(mount.path()).status();
    assert!(synced.unwrap().success());
    for number in 0..10 {
        let file = mount.path().join(format!("fast-{number}"));
        std::fs::write(&file, vec![number; 3000]).unwrap();
        std::fs::File::open(&file).unwrap().sync_all().unwrap();
    }
    testkit::copy_image(&live, &crashed);
    mount.unmount();
    std::fs::read(&crashed).unwrap()
}

/// Returns how many of the fsynced files exist with their contents.
fn fast_files(image: &[u8]) -> usize {
    let tree = ReachableTree::of(image).expect("a tree");
    let names = (0..10_u8).filter(|number| {
        let name = format!("fast-{number}").into_bytes();
        let held = tree.names.get(&(2, name)).and_then(|ino| tree.inodes.get(ino));
        let expected = ext4::format::checksum::crc32c(u32::MAX, &[*number; 3000]);
        held.is_some_and(|held| held.contents == expected)
    });
    names.count()
}

#[test]
fn fast_commits_are_replayed_up_to_the_damage_and_with_damage_elsewhere() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let work = scratch();
    let image = with_fast_commits(work.path());
    let memory = crate::common::image::device(&image);
    let report = ext4::log::recover(&*memory).expect("a sound journal");
    assert!(!report.fast_commits.is_empty(), "{report:?}");
    assert_eq!(fast_files(&repaired(&image, "nothing")), 10);

    let layout = ImageStructures::of(&image);
    assert!(layout.sb.features.compat(Compat::FAST_COMMIT));
    // Damage outside of the journal: the counts of a group, a bitmap, an inode, the superblock.
    let group = layout.groups[0];
    let bitmap = layout.block_range(group.block_bitmap).start;
    let old = ReachableTree::of(&image).map_or(12, |tree| {
        *tree.names.iter().find(|((_, name), _)| name == b"old").expect("the old file").1
    });
    let slot = layout.slot_range(vfs::Ino(old)).start;
    let places = [layout.descriptor_range(ext4::format::address::Group(0)).start + 12, bitmap + 20];
    for at in places.into_iter().chain([slot + 26, slot + 0x1c]) {
        let mut damaged = image.clone();
        damaged[at] ^= 0x15;
        for is_sealed in [false, true] {
            if is_sealed {
                layout.seal(&mut damaged);
            }
            let what = format!("byte {at:#x}, sealed: {is_sealed}");
            assert_eq!(fast_files(&repaired(&damaged, &what)), 10, "{what}");
        }
    }

    // Damage in the fast commit area, which is the last part of the journal.
    let memory = crate::common::image::device(&image);
    let map = ext4::log::JournalMap::read(&*memory, &layout.sb).expect("sound").expect("a journal");
    let mut random = fastrand::Rng::with_seed(73);
    let area: Vec<usize> = (map.blocks() - 256..map.blocks())
        .filter_map(|block| map.place_of(block).map(|(at, _)| at as usize))
        .filter(|at| image[*at..at + 1024].iter().any(|byte| *byte != 0))
        .collect();
    assert!(!area.is_empty(), "where the fast commits are");
    let mut fewest = 10;
    for number in 0..effort(10, 20, 1_000) {
        let mut damaged = image.clone();
        let at = area[random.usize(..area.len())] + random.usize(..1024);
        damaged[at] ^= 1 << random.u8(..8);
        let after = repaired(&damaged, &format!("{number}: byte {at:#x}"));
        fewest = fewest.min(fast_files(&after));
    }
    println!("{} blocks of fast commits; {fewest} files at worst", area.len());
}

#[test]
fn names_that_are_hashed_with_a_key_keep_their_index() {
    require!(Tool("mke2fs"));
    let work = scratch();
    let tree = work.path().join("tree");
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    // The names leave room for a hash of two words after each. After the conversion it will contain old bytes.
    for number in 0..400 {
        std::fs::write(tree.join(format!("dir/a-name-of-forty-bytes-to-be-sure-{number:06}")), b"")
            .unwrap();
    }
    let place = work.path().join("made");
    let mke2fs = Mke2fs::new("ext4").block_size(1024).inode_count(1024);
    let mke2fs = mke2fs.features("casefold,encrypt,^has_journal");
    mke2fs.arguments(["-E", "encoding=utf8"]).populate(&tree).create(&place, 24 << 20);
    let mut image = std::fs::read(&place).unwrap();
    let layout = ImageStructures::of(&image);
    // Turns a linear directory into one of this kind: sets its flags, with an invalid index.
    let is_leaf = |structure: &&Structure| structure.kind == StructureKind::Leaf;
    let ino = layout.structures.iter().rfind(is_leaf).expect("a directory").ino;
    let slot = layout.slot_range(ino).start;
    let flags = u32::from_le_bytes(image[slot + 0x20..slot + 0x24].try_into().unwrap());
    let flags = flags | 0x800 | 0x4000_0000 | 0x1000;
    image[slot + 0x20..slot + 0x24].copy_from_slice(&flags.to_le_bytes());
    layout.seal(&mut image);
    let is_indexed = |image: &[u8]| {
        let flags = u32::from_le_bytes(image[slot + 0x20..slot + 0x24].try_into().unwrap());
        flags & 0x1000 != 0
    };
    // The bytes after the names are not valid hashes, but those depend on a key that is unknown.
    let made = plan(&image).expect("a plan");
    assert!(made.findings.iter().any(|finding| finding.code.name == "ext4-htree-root"));
    assert!(made.left.is_empty(), "{}", describe(&made));
    let once = apply(&image, &made.steps);
    assert!(is_indexed(&once), "{}", describe(&made));
    // An entry that was moved to a leaf where its hash is not searched for.
    let layout = ImageStructures::of(&once);
    let mut damaged = once.clone();
    let leaves: Vec<_> = layout
        .structures
        .iter()
        .filter(|structure| structure.ino == ino && structure.kind == StructureKind::Leaf)
        .map(|structure| layout.block_range(structure.block))
        .collect();
    assert!(leaves.len() > 4, "one leaf is no index");
    let (one, two) = (leaves[1].clone(), leaves[3].clone());
    let bytes = damaged[one.clone()].to_vec();
    damaged.copy_within(two.clone(), one.start);
    damaged[two].copy_from_slice(&bytes);
    let made = plan(&damaged).expect("a plan");
    assert!(made.findings.iter().any(|finding| finding.code.name == "ext4-htree-hash"));
    assert!(made.left.is_empty(), "{}", describe(&made));
    let after = apply(&damaged, &made.steps);
    assert!(is_indexed(&after), "{}", describe(&made));
    let (before, now) =
        (ReachableTree::of(&once).expect("a tree"), ReachableTree::of(&after).expect("a tree"));
    assert!(before.names == now.names, "a name is lost");
    assert!(before.names.len() > 400);
}

/// With a strict encoding, e2fsck reports names that are not UTF-8 in case-insensitive directories. It replaces the
/// bytes from the first invalid one by dots.
#[test]
fn names_that_a_strict_encoding_refuses_get_another() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let work = scratch();
    let place = work.path().join("image");
    for (features, others) in [("casefold", 0), ("casefold", 300), ("casefold,inline_data", 0)] {
        let mke2fs = Mke2fs::new("ext4").block_size(1024).features(features);
        mke2fs.arguments(["-I", "256", "-E", "encoding=utf8"]).create(&place, 8 << 20);
        let fs = names::open(&place);
        let folded = fs.mkdir(fs.root(), b"folded", &names::NEW).unwrap();
        let plain = fs.mkdir(fs.root(), b"plain", &names::NEW).unwrap();
        let set = InodeFlags::CASEFOLD;
        let change = FileAttributesChange { set, ..FileAttributesChange::default() };
        fs.set_file_attributes(folded, &change).unwrap();
        let odd = [&b"A\xffb"[..], b"A\xfe ", b"abc\xc3(\xe2", b"\xff\xff", b"ok \xc3\xa9"];
        for dir in [folded, plain] {
            for name in odd {
                fs.create(dir, name, &names::NEW).unwrap();
            }
        }
        for number in 0..others {
            let name = format!("some further file {number}");
            fs.create(folded, name.as_bytes(), &names::NEW).unwrap();
        }
        fs.close().unwrap();
        // Such names are allowed unless the encoding is strict.
        let mut image = std::fs::read(&place).unwrap();
        assert!(plan(&image).unwrap().findings.is_empty());
        edit_superblock(&mut image, |raw| raw.encoding_flags = 1.into());
        assert!(judge(&image).is_some_and(|text| text.contains("illegal UTF-8")));
        let found = plan(&image).unwrap().findings;
        let is_name = |finding: &&Finding| finding.code.name == "ext4-directory-name";
        assert_eq!(found.iter().filter(is_name).count(), 4, "{features}");
        std::fs::write(&place, repaired(&image, features)).unwrap();
        let fs = names::open(&place);
        let kept = |dir| -> Vec<Vec<u8>> {
            let all = names::entries(&fs, dir).into_iter().map(|(name, _)| name);
            all.filter(|name| !name.starts_with(b"some")).collect()
        };
        assert_eq!(kept(plain).len(), odd.len());
        // Two names become equal, and one becomes "..": these get numbers.
        let expected = ["..~1", "A..", "A..~1", "abc...", "ok \u{e9}"];
        assert_eq!(kept(folded), expected.map(|name| name.as_bytes().to_vec()), "{features}");
        fs.close().unwrap();
    }
}
