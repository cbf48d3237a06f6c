//! The table with a file system that only counts references.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use vfs::{
    AllocateMode, Attributes, Cookie, DirEntry, Error, FileSystem, Ino, MappedExtent, NewInode,
    RenameMode, Result, SetAttributes, SpecialFile, StatFs, Timestamp,
};

use super::{LookupCounts, NEIGHBOURS, ROOM_KEPT, SHARDS};

const ROOT: Ino = Ino(128);

/// Inodes from here on are not in use.
const USED_END: u64 = 10_000;

/// Reference count of each inode.
struct Counting(Vec<AtomicU64>);

impl Counting {
    fn new() -> Self {
        Self((0..USED_END).map(|_| AtomicU64::new(0)).collect())
    }

    fn opens(&self, ino: Ino) -> u64 {
        self.0[ino.0 as usize].load(Ordering::SeqCst)
    }

    fn opens_of_all(&self) -> u64 {
        self.0.iter().map(|opens| opens.load(Ordering::SeqCst)).sum()
    }
}

/// A method that the table never calls.
fn unasked() -> ! {
    panic!("opening and closing are all that the table needs")
}

#[rustfmt::skip]
impl FileSystem for Counting {
    fn root(&self) -> Ino {
        ROOT
    }

    fn open(&self, ino: Ino) -> Result<()> {
        let opens = self.0.get(ino.0 as usize).ok_or(Error::NotFound)?;
        opens.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn close(&self, ino: Ino) -> Result<()> {
        let before = self.0[ino.0 as usize].fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "closed too often");
        if ino.0 % 1000 == 999 { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn statfs(&self) -> Result<StatFs> { unasked() }
    fn lookup(&self, _: Ino, _: &[u8]) -> Result<Ino> { unasked() }
    fn attributes(&self, _: Ino) -> Result<Attributes> { unasked() }
    fn set_attributes(&self, _: Ino, _: &SetAttributes) -> Result<()> { unasked() }
    fn create(&self, _: Ino, _: &[u8], _: &NewInode) -> Result<Ino> { unasked() }
    fn mkdir(&self, _: Ino, _: &[u8], _: &NewInode) -> Result<Ino> { unasked() }
    fn mknod(&self, _: Ino, _: &[u8], _: SpecialFile, _: &NewInode) -> Result<Ino> { unasked() }
    fn symlink(&self, _: Ino, _: &[u8], _: &[u8], _: &NewInode) -> Result<Ino> { unasked() }
    fn readlink(&self, _: Ino) -> Result<Vec<u8>> { unasked() }
    fn create_unlinked(&self, _: Ino, _: &NewInode) -> Result<Ino> { unasked() }
    fn link(&self, _: Ino, _: Ino, _: &[u8], _: Option<Timestamp>) -> Result<()> { unasked() }
    fn link_over(&self, _: Ino, _: Ino, _: &[u8], _: Option<Timestamp>) -> Result<()> { unasked() }
    fn unlink(&self, _: Ino, _: &[u8], _: Option<Timestamp>) -> Result<()> { unasked() }
    fn rmdir(&self, _: Ino, _: &[u8], _: Option<Timestamp>) -> Result<()> { unasked() }
    fn rename(&self, _: (Ino, &[u8]), _: (Ino, &[u8]), _: RenameMode, _: Option<Timestamp>) -> Result<()> { unasked() }
    fn read(&self, _: Ino, _: u64, _: &mut [u8]) -> Result<usize> { unasked() }
    fn write(&self, _: Ino, _: u64, _: &[u8], _: Option<Timestamp>) -> Result<()> { unasked() }
    fn allocate(&self, _: Ino, _: u64, _: u64, _: AllocateMode) -> Result<()> { unasked() }
    fn truncate(&self, _: Ino, _: u64, _: Option<Timestamp>) -> Result<()> { unasked() }
    fn extent_map(&self, _: Ino, _: u64, _: u64, _: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>) -> Result<()> { unasked() }
    fn readdir(&self, _: Ino, _: Cookie, _: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()> { unasked() }
    fn get_xattr(&self, _: Ino, _: &[u8]) -> Result<Vec<u8>> { unasked() }
    fn set_xattr(&self, _: Ino, _: &[u8], _: &[u8]) -> Result<()> { unasked() }
    fn remove_xattr(&self, _: Ino, _: &[u8]) -> Result<()> { unasked() }
    fn list_xattrs(&self, _: Ino, _: &mut dyn FnMut(&[u8])) -> Result<()> { unasked() }
    fn fsync(&self, _: Ino) -> Result<()> { unasked() }
    fn sync(&self) -> Result<()> { unasked() }
}

/// Returns the number of inodes in all shards.
fn known_count(known: &LookupCounts) -> usize {
    known.shards.iter().map(|shard| shard.0.lock().len()).sum()
}

fn capacity(known: &LookupCounts) -> usize {
    known.shards.iter().map(|shard| shard.0.lock().capacity()).max().unwrap_or(0)
}

#[test]
fn a_known_inode_is_opened_once() {
    let (fs, known) = (Counting::new(), LookupCounts::default());
    let ino = Ino(7);
    for _ in 0..3 {
        known.tell(&fs, ino).unwrap();
        assert_eq!(fs.opens(ino), 1);
    }
    known.forget(&fs, ino, 2).unwrap();
    assert_eq!(fs.opens(ino), 1);
    known.forget(&fs, ino, 1).unwrap();
    assert_eq!((fs.opens(ino), known_count(&known)), (0, 0));
    known.forget(&fs, ino, 1).unwrap();
    known.forget(&fs, Ino(USED_END), u64::MAX).unwrap();
    known.tell(&fs, ino).unwrap();
    known.tell(&fs, ino).unwrap();
    known.forget(&fs, ino, u64::MAX).unwrap();
    assert_eq!((fs.opens(ino), known_count(&known)), (0, 0));
}

#[test]
fn the_root_and_what_is_not_there_are_never_in_it() {
    let (fs, known) = (Counting::new(), LookupCounts::default());
    known.tell(&fs, ROOT).unwrap();
    known.forget(&fs, ROOT, 1).unwrap();
    assert!(matches!(known.tell(&fs, Ino(USED_END)), Err(Error::NotFound)));
    assert_eq!((fs.opens_of_all(), known_count(&known)), (0, 0));
}

#[test]
fn the_table_takes_over_the_reference_of_the_caller() {
    let (fs, known) = (Counting::new(), LookupCounts::default());
    let ino = Ino(9);
    fs.open(ino).unwrap();
    known.tell_opened(&fs, ino).unwrap();
    assert_eq!(fs.opens(ino), 1);
    // If there is already a reference, the other one is dropped.
    fs.open(ino).unwrap();
    known.tell_opened(&fs, ino).unwrap();
    assert_eq!(fs.opens(ino), 1);
    known.forget(&fs, ino, 2).unwrap();
    assert_eq!((fs.opens(ino), known_count(&known)), (0, 0));
}

#[test]
fn everything_is_closed_at_the_end() {
    let (fs, known) = (Counting::new(), LookupCounts::default());
    // The file system refuses to close the last of them.
    for ino in 0..1000 {
        for _ in 0..1 + ino % 3 {
            known.tell(&fs, Ino(ino)).unwrap();
        }
    }
    assert_eq!(fs.opens_of_all(), 999);
    assert!(matches!(known.close_all(&fs), Err(Error::NoSpace)));
    assert_eq!((fs.opens_of_all(), known_count(&known)), (0, 0));
    known.close_all(&fs).unwrap();
}

#[test]
fn an_empty_shard_keeps_little_room() {
    let (fs, known) = (Counting::new(), LookupCounts::default());
    let all = || (0..USED_END).map(Ino).filter(|&ino| ino != ROOT);
    all().for_each(|ino| known.tell(&fs, ino).unwrap());
    assert_eq!(known_count(&known) as u64, USED_END - 1);
    for ino in all() {
        let _ = known.forget(&fs, ino, 1);
    }
    assert_eq!((fs.opens_of_all(), known_count(&known)), (0, 0));
    assert!(capacity(&known) <= ROOM_KEPT * 2);
}

#[test]
fn neighbours_share_a_shard_and_others_do_not() {
    let known = LookupCounts::default();
    let place = |ino| std::ptr::from_ref(known.shard(Ino(ino))) as usize;
    assert!((0..NEIGHBOURS).all(|ino| place(ino) == place(0)));
    let mut places: Vec<_> = (0..10 * SHARDS as u64).map(|row| place(row * NEIGHBOURS)).collect();
    places.sort_unstable();
    places.dedup();
    assert!(places.len() > SHARDS * 9 / 10, "{} shards are used", places.len());
}

/// Threads look up and forget a few inodes as fast as possible. While one of them knows an inode, it must be open,
/// whatever the others do.
#[test]
fn counts_are_right_under_concurrent_references_and_forgets() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 40_000;
    let (fs, known) = (Counting::new(), LookupCounts::default());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (fs, known) = (&fs, &known);
            scope.spawn(move || {
                let mut random = thread + 1;
                for round in 0..ROUNDS {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(round);
                    let ino = Ino(random >> 40 & 3);
                    let times = 1 + (random >> 50 & 1);
                    for _ in 0..times {
                        if random >> 60 == 0 {
                            fs.open(ino).unwrap();
                            known.tell_opened(fs, ino).unwrap();
                        } else {
                            known.tell(fs, ino).unwrap();
                        }
                    }
                    assert!(fs.opens(ino) >= 1);
                    known.forget(fs, ino, times).unwrap();
                }
            });
        }
    });
    assert_eq!((fs.opens_of_all(), known_count(&known)), (0, 0));
}
