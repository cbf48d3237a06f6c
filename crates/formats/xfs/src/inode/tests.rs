//! Allocating and freeing inodes, compared with a model, with the trees, and checked by `xfs_repair`.

use operations::RunOperations;
use std::collections::BTreeSet;

use fastrand::Rng;
use vfs::{Error, FileSystem, FileType, Ino, Result};

use crate::Xfs;
use crate::alloc::ags::AgTree;
use crate::alloc::tests::{Fresh, records};
use crate::alloc::{ExtentRequest, RmapOwner};
use crate::btree::records::{FinoTree, InoTree};
use crate::format::address::{AgBlock, AgIno, AgNumber, FileBlock, FsBlock};
use crate::format::checksum;
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::inode::{CRC_OFFSET, Fork};
use crate::map::{Place, run_at};

/// mkfs.xfs options for images that differ in chunks and trees.
const KINDS: [&str; 8] = [
    "",
    "-b size=1024",
    "-m rmapbt=0",
    "-m finobt=0,inobtcount=0,rmapbt=0,reflink=0",
    "-i sparse=0",
    "-i size=2048",
    "-s size=4096 -i nrext64=0 -m bigtime=0",
    "-b size=65536",
];

/// Byte offset of `di_ino` in an inode.
const INO_OFFSET: usize = 152;

/// Allocates an inode, makes it a file and writes it.
fn take(fs: &Xfs, parent: Ino, is_dir: bool) -> Result<Ino> {
    let parent = fs.load(parent)?;
    fs.atomically(|op| {
        let mut handle = op.allocate_inode(&parent, is_dir)?;
        handle.inode.set_mode(FileType::Regular, 0o644);
        handle.inode.set_nlink(1);
        let ino = handle.ino();
        op.stage(handle);
        Ok(ino)
    })
}

fn free(fs: &Xfs, inos: &[Ino]) -> Result<()> {
    let handles = inos.iter().map(|&ino| fs.load(ino)).collect::<Result<Vec<_>>>()?;
    fs.atomically(|op| {
        handles.iter().for_each(|handle| op.free_inode(handle.clone()));
        Ok(())
    })
}

/// Checks that the inode trees agree with each other, the counts, and `used`.
fn check_inodes(fs: &Xfs, used: &BTreeSet<Ino>) {
    let geometry = fs.volume.geometry;
    let mut found = BTreeSet::new();
    for ag in geometry.ags() {
        fs.atomically(|op| {
            let mut ag = op.ag(ag)?;
            let chunks = records::<InoTree>(&mut ag, AgIno(0));
            let state = **ag.guard;
            let free = |chunk: &crate::btree::records::InodeChunk| u32::from(chunk.freecount);
            assert_eq!(state.icount, chunks.iter().map(|chunk| chunk.inodes()).sum::<u32>());
            assert_eq!(state.ifree, chunks.iter().map(free).sum::<u32>());
            if state.root(AgTree::Fino).levels > 0 {
                let with_free: Vec<_> =
                    chunks.iter().filter(|c| c.freecount > 0).copied().collect();
                assert_eq!(with_free, records::<FinoTree>(&mut ag, AgIno(0)));
            }
            for chunk in chunks {
                assert_eq!(chunk.available().count_ones(), free(&chunk));
                let inos = (0..INODES_PER_CHUNK).filter(|at| chunk.free >> at & 1 == 0);
                found.extend(inos.map(|at| geometry.ino(ag.number(), AgIno(chunk.start.0 + at))));
            }
            Ok(())
        })
        .unwrap();
    }
    let raw = &fs.volume.sb.raw;
    for ino in [raw.rootino, raw.rbmino, raw.rsumino] {
        assert!(found.remove(&Ino(ino.get())));
    }
    assert_eq!(&found, used);
    assert!(used.iter().all(|&ino| fs.inode_in_use(ino).unwrap() && fs.load(ino).is_ok()));
}

#[test]
fn random_allocation_and_freeing_leave_valid_trees() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    for (seed, kind) in KINDS.into_iter().enumerate() {
        let image = Fresh::new(kind, 320 << 20);
        let fs = &image.fs;
        let mut rng = Rng::with_seed(seed as u64);
        let mut used = BTreeSet::new();
        let mut parents = vec![fs.root_ino()];
        for step in 0..4000 {
            let share = if step / 500 % 2 == 0 { 80 } else { 35 };
            if used.is_empty() || rng.u32(..100) < share {
                let parent = parents[rng.usize(..parents.len())];
                let is_dir = rng.u32(..10) == 0;
                let ino = take(fs, parent, is_dir).unwrap();
                assert!(used.insert(ino), "{ino} was in use");
                if is_dir && parents.len() < 20 {
                    parents.push(ino);
                }
            } else {
                let at = rng.usize(..used.len());
                let inos: Vec<Ino> = used.iter().skip(at).take(rng.usize(1..5)).copied().collect();
                inos.iter().for_each(|ino| assert!(used.remove(ino)));
                parents.retain(|parent| !inos.contains(parent));
                free(fs, &inos).unwrap();
                assert!(inos.iter().all(|&ino| !fs.inode_in_use(ino).unwrap()));
            }
        }
        check_inodes(fs, &used);
        let left: Vec<Ino> = used.into_iter().collect();
        left.chunks(100).for_each(|inos| free(fs, inos).unwrap());
        check_inodes(fs, &BTreeSet::new());
        image.judge();
    }
}

#[test]
fn inodes_are_near_their_directory_and_directories_go_round() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let image = Fresh::new("", 320 << 20);
    let fs = &image.fs;
    let root = fs.root_ino();
    let group = |ino| fs.volume.geometry.split_ino(ino).unwrap().0.0;
    let files: Vec<Ino> = (0..200).map(|_| take(fs, root, false).unwrap()).collect();
    assert!(files.iter().all(|&ino| group(ino) == 0));
    assert!(files.is_sorted());
    // The root has two links, so its first directory is placed in the next group.
    let dir = take(fs, root, true).unwrap();
    assert_eq!(group(dir), 1);
    let child = take(fs, dir, false).unwrap();
    assert_eq!(child.0, dir.0 + 1);
    free(fs, &[dir, child]).unwrap();
    free(fs, &files).unwrap();
    image.judge();
}

/// Fragments a group's free space into pieces of `piece` blocks with one block in use between them. Returns the extents
/// in use.
fn fragment(fs: &Xfs, piece: u32) -> Vec<(FsBlock, u32)> {
    let mut taken = Vec::new();
    let owner = RmapOwner::RefcountTree;
    for ag in fs.volume.geometry.ags() {
        let near = fs.volume.geometry.fs_block(ag, AgBlock(0));
        while let Ok((start, len)) = fs.atomically(|op| {
            op.allocate_extent(&ExtentRequest {
                near,
                lead: 0,
                min_len: 1,
                max_len: piece,
                owner,
                for_data: false,
            })
        }) {
            taken.push((start, len));
        }
    }
    let (kept, given): (Vec<_>, Vec<_>) =
        taken.into_iter().enumerate().partition(|(at, _)| at % 2 == 0);
    fs.atomically(|op| {
        given.iter().for_each(|&(_, (start, len))| op.free_extent(start, len, owner));
        Ok(())
    })
    .unwrap();
    kept.into_iter().map(|(_, extent)| extent).collect()
}

#[test]
fn sparse_chunks_are_made_where_no_whole_one_fits() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    for kind in ["", "-m rmapbt=0", "-m rmapbt=0", "-b size=1024", "-m finobt=0 -i maxpct=0"] {
        let image = Fresh::new(kind, 64 << 20);
        let fs = &image.fs;
        let sparse = fs.volume.sb.raw.spino_align.get();
        let kept = fragment(fs, sparse + sparse / 2);
        let mut used = BTreeSet::new();
        let limit = loop {
            match take(fs, fs.root_ino(), false) {
                Ok(ino) => assert!(used.insert(ino)),
                Err(error) => break error,
            }
        };
        assert!(matches!(limit, Error::NoInodes), "{limit}");
        check_inodes(fs, &used);
        let has_holes = fs
            .atomically(|op| {
                let mut ag = op.ag(AgNumber(0))?;
                Ok(records::<InoTree>(&mut ag, AgIno(0)).iter().any(|c| c.holemask != 0))
            })
            .unwrap();
        assert!(has_holes, "{kind}");
        let left: Vec<Ino> = used.into_iter().collect();
        left.chunks(50).for_each(|inos| free(fs, inos).unwrap());
        check_inodes(fs, &BTreeSet::new());
        fs.atomically(|op| {
            kept.iter()
                .for_each(|&(start, len)| op.free_extent(start, len, RmapOwner::RefcountTree));
            Ok(())
        })
        .unwrap();
        image.judge();
    }
}

#[test]
fn threads_take_inodes_in_all_groups() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let image = Fresh::new("", 320 << 20);
    let fs = &image.fs;
    let work = |seed| {
        let mut rng = Rng::with_seed(seed);
        let parent = take(fs, fs.root_ino(), false).unwrap();
        let mut used = vec![parent];
        for _ in 0..3000 {
            if rng.u32(..100) < 70 {
                used.push(take(fs, used[rng.usize(..used.len())], rng.bool()).unwrap());
            } else if used.len() > 1 {
                free(fs, &[used.swap_remove(rng.usize(1..used.len()))]).unwrap();
            }
        }
        used
    };
    let all: Vec<Vec<Ino>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let used: BTreeSet<Ino> = all.iter().flatten().copied().collect();
    assert_eq!(used.len(), all.iter().map(Vec::len).sum::<usize>());
    check_inodes(fs, &used);
    all.iter().for_each(|inos| free(fs, inos).unwrap());
    image.judge();
}

#[test]
fn numbers_that_no_inode_has_are_not_in_use() {
    testkit::require!(Tool("mkfs.xfs"));
    let image = Fresh::new("", 320 << 20);
    let fs = &image.fs;
    for ino in [0, 1, 8, 64, 127, 131, 191, 192, 1 << 20, 1 << 40, u64::MAX] {
        assert!(!fs.inode_in_use(Ino(ino)).unwrap(), "{ino}");
    }
    for ino in [128, 129, 130] {
        assert!(fs.inode_in_use(Ino(ino)).unwrap(), "{ino}");
    }
}

/// Copies an inode into file data, with the number that an inode at that location would have.
#[test]
fn data_that_resembles_an_inode_has_no_parents() {
    testkit::require!(Tool("mkfs.xfs"), Mount("xfs"));
    for options in ["-n parent=1", "-n parent=0"] {
        let image = Fresh::filled(options, 320 << 20, |root| {
            std::fs::write(root.join("file"), vec![1; 4096]).unwrap();
        });
        let fs = &image.fs;
        let geometry = &fs.volume.geometry;
        let file = fs.load(fs.lookup(fs.root_ino(), b"file").unwrap()).unwrap();
        let run = run_at(&mut &**fs, &file, Fork::Data, FileBlock(0)).unwrap();
        let Place::Written(data) = run.place else { panic!("{run:?}") };
        let (ag, block) = geometry.split(data);
        let ino = geometry.ino(ag, geometry.first_ino(block));
        let mut slot = vec![0; geometry.inode_size()];
        let at = geometry.byte_of(file.block) + file.offset as u64;
        fs.device().read_at(at, &mut slot).unwrap();
        slot[INO_OFFSET..][..8].copy_from_slice(&ino.0.to_be_bytes());
        checksum::seal(&mut slot, CRC_OFFSET);
        fs.device().write_at(geometry.byte_of(geometry.device_block(data)), &slot).unwrap();
        assert!(fs.load(ino).is_ok(), "it does not look like an inode");
        assert!(!fs.inode_in_use(ino).unwrap());
        let parents = fs.parents(ino, &mut |_, _| panic!("it has a parent"));
        assert!(matches!(parents, Err(Error::NotFound)), "{parents:?}");
        let paths = vfs::path::paths_of(fs, ino);
        assert!(matches!(paths, Err(Error::NotFound)), "{paths:?}");
        assert_eq!(vfs::path::paths_of(fs, file.ino()).unwrap().paths, [b"/file"]);
    }
}
