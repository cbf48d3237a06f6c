//! On a full file system, operations that free space always succeed, however many blocks they need temporarily.

use std::thread;

use vfs::{AllocateMode, Error, FileSystem, Ino};

use super::{NEW, Trial};

/// Number of blocks of each file for punching holes.
const VICTIM_BLOCKS: u64 = 600;
/// Numbers of contiguous and of fragmented files.
const WHOLE: usize = 3;
const MIXED: usize = 3;
/// Numbers of extents of files whose maps are exactly full: in the inode, and in a block of the map. Each extent has
/// three blocks, followed by a hole.
const MAPPED: std::ops::Range<usize> = 1..30;
const MAPPED_MORE: [usize; 4] = [59, 84, 251, 340];
const PIECE_BLOCKS: u64 = 3;
/// Number of small files with attributes.
const SMALL: usize = 120;
/// Size of the first writes that fill the file system, reduced when space runs out.
const STEP: usize = 1 << 20;
/// Number of blocks that may be reported as available when a file cannot get one, because its map may need them.
const AVAILABLE_MAX: u64 = 24;
/// Attributes of a small file. Most of them are stored outside of the inode.
const ATTRIBUTES: [(&[u8], usize); 4] =
    [(b"user.a", 20), (b"user.b", 300), (b"user.c", 500), (b"user.d", 40)];

/// A file system that is kept full.
struct Full<'f> {
    fs: &'f dyn FileSystem,
    block: u64,
    name: &'f str,
    filler: Ino,
}

impl Full<'_> {
    fn create(&self, name: &str) -> Ino {
        let made = self.fs.create(self.fs.root(), name.as_bytes(), &NEW);
        made.unwrap_or_else(|error| panic!("{}: {name}: {error}", self.name))
    }

    /// Asserts that a change that frees space succeeded.
    #[track_caller]
    fn freed<T>(&self, what: &str, outcome: vfs::Result<T>) -> T {
        outcome.unwrap_or_else(|error| panic!("{}: {what} when full: {error}", self.name))
    }

    /// Fills all space that ordinary writes can use, and checks the reported free space.
    fn fill(&self) {
        let mut size = self.fs.attributes(self.filler).unwrap().size;
        let mut step = STEP;
        while step as u64 >= self.block {
            match self.fs.write(self.filler, size, &vec![0xee; step], None) {
                Ok(()) => {}
                Err(Error::NoSpace) => step /= 2,
                Err(error) => panic!("{}: {error}", self.name),
            }
            size = self.fs.attributes(self.filler).unwrap().size.next_multiple_of(self.block);
        }
        let left = self.fs.statfs().unwrap();
        let (free, available) = (left.blocks_free, left.blocks_available);
        assert!(available <= AVAILABLE_MAX, "{}: {available} of {free} are left", self.name);
        assert!(free > available, "{}: nothing is kept for what frees", self.name);
    }

    /// Creates contiguous files, and files that grew alternately.
    fn make_victims(&self) -> Vec<Ino> {
        let bytes = vec![0x77; (VICTIM_BLOCKS * self.block) as usize];
        let mut all = Vec::new();
        for number in 0..WHOLE {
            let ino = self.create(&format!("whole{number}"));
            self.fs.write(ino, 0, &bytes, None).unwrap();
            all.push(ino);
        }
        let mixed: Vec<Ino> = (0..MIXED).map(|at| self.create(&format!("mixed{at}"))).collect();
        for at in 0..VICTIM_BLOCKS {
            for &ino in &mixed {
                self.fs.write(ino, at * self.block, &bytes[..self.block as usize], None).unwrap();
            }
        }
        all.extend(mixed);
        all
    }

    /// Creates files with maps of various sizes. Returns their numbers of extents.
    fn make_mapped(&self) -> Vec<(Ino, usize)> {
        let bytes = vec![0x55; (PIECE_BLOCKS * self.block) as usize];
        let make = |count| {
            let ino = self.create(&format!("mapped{count}"));
            for at in 0..count as u64 {
                self.fs.write(ino, at * (PIECE_BLOCKS + 1) * self.block, &bytes, None).unwrap();
            }
            (ino, count)
        };
        MAPPED.chain(MAPPED_MORE).map(make).collect()
    }

    /// Punches out the middle of each extent, of all files in turn. Before the first punch of each file, only the
    /// reserve is left, not even space freed earlier.
    fn punch_mapped(&self, files: &[(Ino, usize)]) {
        for at in 0..MAPPED_MORE[3] {
            for &(ino, count) in files.iter().filter(|(_, count)| at < *count) {
                if at == 0 {
                    self.fill();
                }
                // Starts in the middle, where nodes have no free entries at their ends.
                let piece = ((at + count / 2) % count) as u64;
                let start = (piece * (PIECE_BLOCKS + 1) + 1) * self.block;
                let outcome = self.fs.allocate(ino, start, self.block, AllocateMode::PunchHole);
                self.freed(&format!("punching extent {piece} of {count}"), outcome);
            }
        }
    }

    /// Punches out every second block of a file, and some bytes before and after it.
    fn punch(&self, ino: Ino) {
        for at in (1..VICTIM_BLOCKS - 1).step_by(2) {
            let (before, after) = if at % 8 == 1 { (100, 50) } else { (0, 0) };
            let (start, len) = (at * self.block - before, self.block + before + after);
            let outcome = self.fs.allocate(ino, start, len, AllocateMode::PunchHole);
            self.freed(&format!("punching block {at} of inode {ino}"), outcome);
        }
    }

    fn assert_punched(&self, ino: Ino) {
        let mut bytes = vec![1; (VICTIM_BLOCKS * self.block) as usize];
        assert_eq!(self.fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
        for (at, block) in bytes.chunks_exact(self.block as usize).enumerate() {
            let is_punched = at % 2 == 1 && (at as u64) < VICTIM_BLOCKS - 1;
            let middle = block[block.len() / 2];
            assert_eq!(middle, if is_punched { 0 } else { 0x77 }, "{}: {ino}: {at}", self.name);
        }
    }

    /// Creates small files in separate directories, as many as there are inodes for.
    fn make_small(&self) -> usize {
        for number in 0..SMALL {
            let dir = match self.fs.mkdir(self.fs.root(), &directory(number), &NEW) {
                Ok(dir) => dir,
                Err(Error::NoInodes) => return number,
                Err(error) => panic!("{}: {error}", self.name),
            };
            let Ok(ino) = self.fs.create(dir, FILE, &NEW) else { return number };
            self.fs.write(ino, 0, &vec![3; 700], None).unwrap();
            for (name, len) in ATTRIBUTES {
                match self.fs.set_xattr(ino, name, &vec![b'v'; len]) {
                    // Those of ext4 must fit into one block.
                    Ok(()) | Err(Error::NoSpace) => {}
                    Err(error) => panic!("{}: {error}", self.name),
                }
            }
        }
        SMALL
    }

    /// Removes attributes, files and directories of small files, and fills the freed space again.
    fn remove_small(&self, count: usize) {
        let root = self.fs.root();
        for number in 0..count {
            let dir = self.fs.lookup(root, &directory(number)).unwrap();
            let ino = self.fs.lookup(dir, FILE).unwrap();
            for (name, _) in ATTRIBUTES {
                match self.fs.remove_xattr(ino, name) {
                    Err(Error::NoAttribute) => {}
                    outcome => self.freed("removing an attribute", outcome),
                }
            }
            if number % 3 == 0 {
                self.fs.open(ino).unwrap();
            }
            self.freed("unlink", self.fs.unlink(dir, FILE, None));
            if number % 3 == 0 {
                self.freed("the last close", self.fs.close(ino));
            }
            self.freed("rmdir", self.fs.rmdir(root, &directory(number), None));
            if number % 40 == 39 {
                self.fill();
            }
        }
    }

    /// Truncates files within blocks, then to zero.
    fn cut(&self, victims: &[Ino]) {
        for size in [VICTIM_BLOCKS / 2 * self.block + 5, 3 * self.block + 17, 0] {
            for &ino in victims {
                self.freed("truncate", self.fs.truncate(ino, size, None));
            }
            self.fill();
        }
    }
}

/// A file of the random trial, and its expected contents.
struct ExpectedFile {
    ino: Ino,
    bytes: Vec<u8>,
}

impl Full<'_> {
    /// Changes a file in a random way. Only operations that need space may fail, without a change.
    fn step(&self, file: &mut ExpectedFile, rng: &mut fastrand::Rng) {
        let block = self.block as usize;
        let most = RANDOM_BLOCKS * block;
        let (start, len) = (rng.usize(..most), rng.usize(1..4 * block));
        let end = (start + len).min(most);
        let (at, len) = (start as u64, (end - start) as u64);
        match rng.u8(..10) {
            0..4 => {
                let data = vec![rng.u8(1..); end - start];
                match self.fs.write(file.ino, at, &data, None) {
                    Ok(()) => {
                        file.bytes.resize(file.bytes.len().max(end), 0);
                        file.bytes[start..end].copy_from_slice(&data);
                    }
                    Err(Error::NoSpace) => {}
                    Err(error) => panic!("{}: {error}", self.name),
                }
            }
            4..8 => {
                let outcome = self.fs.allocate(file.ino, at, len, AllocateMode::PunchHole);
                self.freed("punching", outcome);
                let end = end.min(file.bytes.len());
                file.bytes[start.min(end)..end].fill(0);
            }
            8 => {
                let size = file.bytes.len().min(start);
                self.freed("truncate", self.fs.truncate(file.ino, size as u64, None));
                file.bytes.truncate(size);
            }
            _ => self.fs.sync().unwrap(),
        }
    }

    fn assert_holds(&self, file: &ExpectedFile) {
        let mut bytes = vec![1; file.bytes.len()];
        assert_eq!(self.fs.attributes(file.ino).unwrap().size, bytes.len() as u64);
        assert_eq!(self.fs.read(file.ino, 0, &mut bytes).unwrap(), bytes.len());
        assert!(bytes == file.bytes, "{}: inode {}", self.name, file.ino);
    }
}

/// Number of blocks of each file of the random trial.
const RANDOM_BLOCKS: usize = 300;

/// Writes, punches and truncates random files in a file system that is filled repeatedly. Operations that need space
/// may fail without a change; operations that free space must succeed.
///
/// # Panics
/// If an operation that frees space fails, or a file has unexpected contents.
pub fn random_when_full(trial: &Trial<'_>, seed: u64, steps: usize) {
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let filler = fs.create(fs.root(), b"filler", &NEW).unwrap();
    let name = format!("{}, seed {seed}", trial.name);
    let full = Full { fs, block: trial.block_bytes, name: &name, filler };
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut files: Vec<ExpectedFile> = (0..8)
        .map(|at| ExpectedFile { ino: full.create(&format!("random{at}")), bytes: Vec::new() })
        .collect();
    for step in 0..steps {
        if step % 37 == 36 {
            full.fill();
        }
        let which = rng.usize(..files.len());
        full.step(&mut files[which], &mut rng);
    }
    files.iter().for_each(|file| full.assert_holds(file));
    mounted.close().unwrap();
    (trial.check)(&device);
}

const FILE: &[u8] = b"a file with a name that is rather long, as names go";

fn directory(number: usize) -> Vec<u8> {
    format!("directory {number}").into_bytes()
}

/// Fills a file system with large, fragmented and small files, and then punches, truncates and removes, while all space
/// for ordinary writes is filled repeatedly. Preallocated space stays writable in any order.
///
/// # Panics
/// If an operation that frees space fails, or contents are unexpected.
pub fn freeing_when_full(trial: &Trial<'_>, preallocates: bool) {
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let filler = fs.create(fs.root(), b"filler", &NEW).unwrap();
    let full = Full { fs, block: trial.block_bytes, name: &trial.name, filler };
    let victims = full.make_victims();
    let mapped = full.make_mapped();
    let small = full.make_small();
    let promised = full.create("promised");
    if preallocates {
        let len = VICTIM_BLOCKS * trial.block_bytes;
        fs.allocate(promised, 0, len, AllocateMode::Unwritten).unwrap();
    }
    full.fill();
    for at in (0..VICTIM_BLOCKS).step_by(2).filter(|_| preallocates) {
        let outcome =
            fs.write(promised, at * trial.block_bytes, &vec![5; trial.block_bytes as usize], None);
        full.freed("writing to space allocated in advance", outcome);
    }
    full.punch_mapped(&mapped);
    full.fill();
    thread::scope(|scope| {
        for chunk in victims.chunks(2) {
            let full = &full;
            scope.spawn(move || chunk.iter().for_each(|&ino| full.punch(ino)));
        }
    });
    victims.iter().for_each(|&ino| full.assert_punched(ino));
    full.fill();
    full.cut(&victims);
    full.remove_small(small);
    for number in 0..WHOLE {
        full.freed("unlink", fs.unlink(fs.root(), format!("whole{number}").as_bytes(), None));
    }
    full.freed("unlink", fs.unlink(fs.root(), b"filler", None));
    mounted.close().unwrap();
    (trial.check)(&device);
}
