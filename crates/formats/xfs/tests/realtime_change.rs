//! Changes of realtime files, judged by xfs_repair, our own check and the guest's kernel.

use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, JoinedDevice, MemoryDevice, OverlayDevice};
use testkit::guest::{self, Answer, GuestJob};
use testkit::require;
use vfs::{AllocateMode, Error, FileAttributesChange, FileSystem, Ino, InodeFlags, NewInode};
use xfs::{OpenOptions, Xfs};

use crate::checking::findings;
use crate::realtime_crash::Pair;

const KIB: u64 = 1 << 10;

fn file_device(path: &Path) -> Arc<dyn BlockDevice> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}

impl Pair {
    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        let [data, realtime] = [&self.image, &self.realtime].map(|path| file_device(path));
        Arc::new(JoinedDevice::new(data, None, Some(realtime)).unwrap())
    }

    pub(crate) fn open(&self) -> Xfs {
        Xfs::open_writable(self.device(), &OpenOptions::default()).unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_sound(&self) {
        let found = findings(self.device()).unwrap();
        assert!(found.is_empty(), "{found:#?}");
        self.verdict().unwrap();
    }
}

fn create(fs: &Xfs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap()
}

fn flags(fs: &Xfs, ino: Ino) -> InodeFlags {
    fs.file_attributes(ino).unwrap().flags
}

fn contents(fs: &Xfs, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0xee; fs.attributes(ino).unwrap().size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Random writes, holes, preallocation and truncation of one file, and the same in memory.
fn change(fs: &Xfs, ino: Ino, random: &mut fastrand::Rng, model: &mut Vec<u8>) {
    let (offset, len) = (random.u64(..600 * KIB), random.u64(1..90 * KIB));
    let range = offset as usize..(offset + len) as usize;
    match random.u32(..8) {
        0..4 => {
            let bytes = vec![random.u8(1..); len as usize];
            fs.write(ino, offset, &bytes, None).unwrap();
            model.resize(model.len().max(range.end), 0);
            model[range].copy_from_slice(&bytes);
        }
        4 => {
            fs.allocate(ino, offset, len, AllocateMode::PunchHole).unwrap();
            let end = range.end.min(model.len());
            model[range.start.min(end)..end].fill(0);
        }
        5 => {
            fs.allocate(ino, offset, len, AllocateMode::UnwrittenKeepSize).unwrap();
        }
        6 => {
            fs.allocate(ino, offset, len, AllocateMode::Zero).unwrap();
            model.resize(model.len().max(range.end), 0);
            model[range].fill(0);
        }
        _ => {
            fs.truncate(ino, offset, None).unwrap();
            model.resize(offset as usize, 0);
        }
    }
}

/// Makes random changes of six files, and returns the checksums of their contents.
fn changed(pair: &Pair, seed: u64) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let fs = pair.open();
    let mut files: Vec<(Ino, Vec<u8>)> = Vec::new();
    for nth in 0..6 {
        let ino = create(&fs, &format!("file{nth}"));
        assert!(flags(&fs, ino).contains(InodeFlags::REALTIME));
        files.push((ino, Vec::new()));
    }
    for round in 0..300 {
        let (ino, model) = &mut files[random.usize(..6)];
        change(&fs, *ino, &mut random, model);
        if round % 60 == 0 {
            fs.sync().unwrap();
        }
    }
    for (ino, model) in &files {
        assert!(contents(&fs, *ino) == *model, "seed {seed}: inode {ino}");
    }
    Xfs::close(fs).unwrap();
    files.iter().map(|(_, model)| crc32(model)).collect()
}

/// Returns the CRC-32 of contents, as the guest's crc32 prints it.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[test]
fn realtime_files_are_changed_as_the_kernel_expects() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Guest("XFS_RT"));
    agree_with_the_kernel(Pair::make);
}

#[test]
fn files_of_realtime_groups_are_changed_as_the_kernel_expects() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Guest("XFS_RT"));
    agree_with_the_kernel(Pair::make_groups);
}

fn agree_with_the_kernel(make: fn(&Path, &str, &str) -> Pair) {
    let folder = testkit::scratch();
    let kinds = ["", ",extsize=16k", ",extsize=12k"];
    let make = |nth: usize| make(folder.path(), &format!("image{nth}"), kinds[nth]);
    let pairs: Vec<Pair> = (0..kinds.len()).map(make).collect();
    let free = |pair: &Pair| {
        let fs = Xfs::open(pair.device(), &OpenOptions::default()).unwrap();
        fs.statfs().unwrap().blocks_free
    };
    let before: Vec<u64> = pairs.iter().map(free).collect();
    let sums: Vec<u32> = (0..).zip(&pairs).flat_map(|(seed, pair)| changed(pair, seed)).collect();
    pairs.iter().for_each(Pair::assert_sound);

    // The guest's kernel reads the files, and writes some itself.
    let script = "set -e\n\
        change() {\n\
        mount -t xfs -o rtdev=$2 $1 /mnt\n\
        for i in 0 1 2 3 4 5; do crc32 /mnt/file$i; done\n\
        xfs_io -f -c 'pwrite -q -S 0x55 0 100k' /mnt/theirs\n\
        for i in 0 1 2; do xfs_io -c 'fpunch 10k 50k' -c 'pwrite -q -S 1 30k 7k' /mnt/file$i; done\n\
        umount /mnt\n\
        }\n\
        change $1 $2\nchange $3 $4\nchange $5 $6\n";
    let answer = in_guest(&pairs, script);
    let words = answer.output.lines().filter_map(|line| line.split_whitespace().next());
    let found: Vec<u32> = words.filter_map(|word| u32::from_str_radix(word, 16).ok()).collect();
    assert_eq!(found, sums, "{}", answer.output);

    // The files that the kernel wrote are read, and everything can be freed.
    for (pair, before) in pairs.iter().zip(before) {
        pair.assert_sound();
        let fs = pair.open();
        let theirs = fs.lookup(fs.root(), b"theirs").unwrap();
        assert!(contents(&fs, theirs) == vec![0x55; 100 << 10]);
        for name in (0..6).map(|nth| format!("file{nth}")).chain(["theirs".to_owned()]) {
            fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
        }
        fs.sync().unwrap();
        assert_eq!(fs.statfs().unwrap().blocks_free, before);
        Xfs::close(fs).unwrap();
        pair.assert_sound();
    }
}

/// Runs a script in the guest, whose arguments are the two devices of each image.
pub(crate) fn in_guest(pairs: &[Pair], script: &str) -> Answer {
    let mut job = GuestJob::new(script.to_owned());
    for pair in pairs {
        job = job.disk(&pair.image, false).disk(&pair.realtime, false);
    }
    let answer = guest::run(&job);
    assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
    answer
}

#[test]
fn a_full_section_recovers_its_space() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let folder = testkit::scratch();
    let kinds = [(false, ""), (false, ",extsize=64k"), (true, ""), (true, ",extsize=64k")];
    for (nth, (has_groups, options)) in kinds.into_iter().enumerate() {
        let make = if has_groups { Pair::make_groups } else { Pair::make };
        let pair = make(folder.path(), &nth.to_string(), options);
        let fs = pair.open();
        let total = fs.statfs().unwrap();
        assert!(total.blocks * 4096 <= 24 << 20, "{total:?}");
        let bytes = vec![7; 300 << 10];
        for round in 0..3 {
            let mut files = 0;
            let error = loop {
                let ino = create(&fs, &format!("{files}"));
                files += 1;
                if let Err(error) = fs.write(ino, 0, &bytes, None) {
                    break error;
                }
            };
            assert!(matches!(error, Error::NoSpace), "{error}");
            assert!(
                fs.statfs().unwrap().blocks_free * 4096 < bytes.len() as u64,
                "{:?}",
                fs.statfs()
            );
            for nth in (0..files).rev().filter(|nth| round < 2 || nth % 3 == 0) {
                fs.unlink(fs.root(), format!("{nth}").as_bytes(), None).unwrap();
            }
            if round < 2 {
                assert_eq!(fs.statfs().unwrap().blocks_free, total.blocks_free);
            }
        }
        Xfs::close(fs).unwrap();
        pair.assert_sound();
    }
}

#[test]
fn nothing_is_written_without_the_realtime_device() {
    require!(Tool("mkfs.xfs"));
    let folder = testkit::scratch();
    let pair = Pair::make(folder.path(), "image", "");
    let before = std::fs::read(&pair.image).unwrap();
    let alone = file_device(&pair.image);
    let error = Xfs::open_writable(alone.clone(), &OpenOptions::default()).err().unwrap();
    assert!(error.to_string().contains("--rt-device FILE"), "{error}");
    let short: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 20));
    let joined = Arc::new(JoinedDevice::new(alone, None, Some(short)).unwrap());
    let error = Xfs::open_writable(joined, &OpenOptions::default()).err().unwrap();
    assert!(error.to_string().contains("1048576 bytes"), "{error}");
    assert!(before == std::fs::read(&pair.image).unwrap());
}

#[test]
fn flags_and_hints_of_realtime_files_are_checked() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let folder = testkit::scratch();
    let pair = Pair::make(folder.path(), "image", ",extsize=16k");
    let fs = pair.open();
    let set = |ino, change: FileAttributesChange| fs.set_file_attributes(ino, &change);
    let realtime = InodeFlags::REALTIME;
    let change = FileAttributesChange::default;
    let ino = create(&fs, "file");
    // Off and on again, without blocks.
    set(ino, FileAttributesChange { clear: realtime, ..change() }).unwrap();
    assert!(!flags(&fs, ino).contains(realtime));
    set(ino, FileAttributesChange { set: realtime, ..change() }).unwrap();
    let hint = |bytes| FileAttributesChange { extent_size_bytes: Some(bytes), ..change() };
    assert!(set(ino, hint(20 << 10)).is_err());
    set(ino, hint(64 << 10)).unwrap();
    fs.write(ino, 100 << 10, b"data", None).unwrap();
    assert!(set(ino, FileAttributesChange { clear: realtime, ..change() }).is_err());
    // The hint aligns the allocation.
    assert_eq!(fs.attributes(ino).unwrap().blocks_512 * 512, 64 << 10);
    let mut expected = vec![0; 100 << 10];
    expected.extend(b"data");
    assert!(contents(&fs, ino) == expected);
    let dir = fs.mkdir(fs.root(), b"dir", &NewInode::default()).unwrap();
    assert!(flags(&fs, dir).contains(InodeFlags::RTINHERIT));
    set(dir, FileAttributesChange { clear: InodeFlags::RTINHERIT, ..change() }).unwrap();
    let plain = fs.create(dir, b"plain", &NewInode::default()).unwrap();
    fs.write(plain, 0, &[1; 100_000], None).unwrap();
    assert!(!flags(&fs, plain).contains(realtime));
    Xfs::close(fs).unwrap();
    pair.assert_sound();
}

/// Logs of the guest's kernel with changes of the bitmap and the summary.
#[test]
fn logs_with_realtime_changes_are_replayed() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Guest("XFS_RT"));
    replay_changes(Pair::make);
}

#[test]
fn logs_with_changes_of_realtime_groups_are_replayed() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Guest("XFS_RT"));
    replay_changes(Pair::make_groups);
}

fn replay_changes(make: fn(&Path, &str, &str) -> Pair) {
    let folder = testkit::scratch();
    let pair = make(folder.path(), "image", ",extsize=16k");
    let script = "set -e\n\
        mount -t xfs -o rtdev=$2 $1 /mnt\n\
        for i in $(seq 30); do xfs_io -f -c \"pwrite -q -S $i 0 $((i * 7))k\" /mnt/f$i; done\n\
        sync\n\
        for i in $(seq 1 3 30); do rm /mnt/f$i; done\n\
        for i in $(seq 2 3 30); do xfs_io -c 'truncate 25k' -c 'fpunch 0 16k' /mnt/f$i; done\n\
        xfs_io -f -c 'falloc 0 1m' /mnt/more\n\
        xfs_io -x -c 'shutdown -f' /mnt\n\
        umount /mnt\n";
    in_guest(std::slice::from_ref(&pair), script);
    // A reader replays in memory, even without the realtime device; so does the check.
    let alone = Arc::new(OverlayDevice::new(file_device(&pair.image)));
    let read = Xfs::open(alone.clone(), &OpenOptions::default()).unwrap();
    assert!(read.recovered().items_replayed > 0, "{:?}", read.recovered());
    drop(read);
    let found = findings(alone).unwrap();
    assert!(found.is_empty(), "{found:#?}");
    let fs = pair.open();
    assert!(fs.lookup(fs.root(), b"f4").is_err());
    let ino = fs.lookup(fs.root(), b"f5").unwrap();
    let mut expected = vec![5; 25 << 10];
    expected[..16 << 10].fill(0);
    assert!(contents(&fs, ino) == expected);
    Xfs::close(fs).unwrap();
    pair.assert_sound();
}
