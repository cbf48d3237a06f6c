//! Shared blocks and intents of realtime groups.

use testkit::guest::{self, GuestJob};
use testkit::require;
use vfs::{AllocateMode, FileSystem, Ino, NewInode};
use xfs::{OpenOptions, Xfs};

use crate::realtime_change::in_guest;
use crate::realtime_crash::Pair;

const KIB: u64 = 1 << 10;

fn create(fs: &Xfs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap()
}

fn contents(fs: &Xfs, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0xee; fs.attributes(ino).unwrap().size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Random writes, holes and truncation of files that share blocks, and the same in memory.
fn change(fs: &Xfs, files: &mut Vec<(Ino, Vec<u8>)>, random: &mut fastrand::Rng) {
    let nth = random.usize(..files.len());
    let (ino, model) = &mut files[nth];
    let (offset, len) = (random.u64(..600 * KIB), random.u64(1..60 * KIB));
    let range = offset as usize..(offset + len) as usize;
    match random.u32(..6) {
        0..3 => {
            let bytes = vec![random.u8(1..); len as usize];
            fs.write(*ino, offset, &bytes, None).unwrap();
            model.resize(model.len().max(range.end), 0);
            model[range].copy_from_slice(&bytes);
        }
        3 => {
            fs.allocate(*ino, offset, len, AllocateMode::PunchHole).unwrap();
            let end = range.end.min(model.len());
            model[range.start.min(end)..end].fill(0);
        }
        4 => {
            fs.truncate(*ino, offset, None).unwrap();
            model.resize(offset as usize, 0);
        }
        _ => {
            // A new copy of a whole file.
            let model = model.clone();
            let copy = create(fs, &format!("copy{}", files.len()));
            let source = files[nth].0;
            fs.share_blocks((source, 0), (copy, 0), model.len() as u64).unwrap();
            files.push((copy, model));
        }
    }
}

#[test]
fn shared_blocks_of_realtime_files_are_copied_before_writes() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let folder = testkit::scratch();
    for seed in 0..testkit::effort(2, 2, 100) {
        let pair = Pair::make_groups(folder.path(), &format!("image{seed}"), "");
        let mut random = fastrand::Rng::with_seed(seed);
        let fs = pair.open();
        let before = fs.statfs().unwrap().blocks_free;
        let mut files =
            vec![(create(&fs, "first"), Vec::new()), (create(&fs, "second"), Vec::new())];
        for round in 0..200 {
            if files.len() > 20 {
                let (ino, model) = files.pop().unwrap();
                assert!(contents(&fs, ino) == model, "seed {seed}: inode {ino}");
                fs.unlink(fs.root(), format!("copy{}", files.len()).as_bytes(), None).unwrap();
            }
            change(&fs, &mut files, &mut random);
            if round % 50 == 0 {
                fs.sync().unwrap();
            }
        }
        for (ino, model) in &files {
            assert!(contents(&fs, *ino) == *model, "seed {seed}: inode {ino}");
        }
        Xfs::close(fs).unwrap();
        pair.assert_sound();
        let fs = pair.open();
        for name in fs_names(&files) {
            fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
        }
        fs.sync().unwrap();
        assert_eq!(fs.statfs().unwrap().blocks_free, before);
        Xfs::close(fs).unwrap();
        pair.assert_sound();
    }
}

fn fs_names(files: &[(Ino, Vec<u8>)]) -> Vec<String> {
    let copies = (2..files.len()).map(|nth| format!("copy{nth}"));
    ["first".to_owned(), "second".to_owned()].into_iter().chain(copies).collect()
}

/// Logs of the guest's kernel, which stops while it frees many extents of files that share blocks.
#[test]
fn realtime_intents_of_the_kernel_are_finished() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Guest("XFS_RT"));
    let folder = testkit::scratch();
    let mut intents = 0;
    for attempt in 0..testkit::effort(4, 8, 20) {
        let pair = Pair::make_groups(folder.path(), &format!("image{attempt}"), "");
        let delay = 60_000 + attempt * 25_000;
        let script = format!(
            "set -e\n\
            mount -t xfs -o rtdev=$2 $1 /mnt\n\
            for i in $(seq 0 899); do echo \"pwrite -q -S 7 $((i * 8192)) 4096\"; done \
            | xfs_io -f /mnt/many\n\
            xfs_io -f -c 'reflink /mnt/many' /mnt/copy\n\
            xfs_io -f -c 'pwrite -q -S 5 0 4m' /mnt/kept\n\
            for i in $(seq 0 2 899); do echo \"pwrite -q -S 9 $((i * 8192)) 4096\"; done \
            | xfs_io /mnt/copy\n\
            sync\n\
            (while :; do sync; done) & busy=$!\n\
            (rm /mnt/copy; rm /mnt/many) &\n\
            usleep {delay}\n\
            xfs_io -x -c shutdown /mnt\n\
            kill $busy || true\n\
            wait || true\n\
            umount /mnt\n"
        );
        in_guest(std::slice::from_ref(&pair), &script);
        let fs = pair.open();
        intents += fs.recovered().intents;
        let kept = fs.lookup(fs.root(), b"kept").unwrap();
        assert!(contents(&fs, kept) == vec![5; 4 << 20]);
        Xfs::close(fs).unwrap();
        pair.assert_sound();
        if intents > 0 {
            return;
        }
    }
    panic!("no log had intents");
}

/// The guest's kernel replays our log.
#[test]
fn kernels_replay_our_changes_of_realtime_groups() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Guest("XFS_RT"));
    let folder = testkit::scratch();
    let pair = Pair::make_groups(folder.path(), "image", "");
    let fs = pair.open();
    let mut random = fastrand::Rng::with_seed(9);
    let mut files = vec![(create(&fs, "first"), Vec::new()), (create(&fs, "second"), Vec::new())];
    for _ in 0..150 {
        change(&fs, &mut files, &mut random);
    }
    fs.sync().unwrap();
    // Dropped without a close: the log is dirty.
    drop(fs);
    let names = fs_names(&files).join(" ");
    let script = format!(
        "set -e\nmount -t xfs -o rtdev=$2 $1 /mnt\n\
        for i in {names}; do crc32 /mnt/$i; done\n\
        xfs_scrub -n /mnt || echo scrub failed\numount /mnt\n"
    );
    let job = GuestJob::new(script).disk(&pair.image, false).disk(&pair.realtime, false);
    let answer = guest::run(&job);
    assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
    let is_fault = |line: &str| {
        ["Corruption", "Error", "Warning", "scrub failed"].iter().any(|it| line.contains(it))
    };
    assert!(!answer.output.lines().any(is_fault), "{}", answer.output);
    let words = answer.output.lines().filter_map(|line| line.split_whitespace().next());
    let found: Vec<u32> = words.filter_map(|word| u32::from_str_radix(word, 16).ok()).collect();
    let sums: Vec<u32> =
        files.iter().map(|(_, model)| crate::realtime_change::crc32(model)).collect();
    assert_eq!(found, sums, "{}", answer.output);
    pair.assert_sound();
    let fs = Xfs::open(pair.device(), &OpenOptions::default()).unwrap();
    for (ino, model) in &files {
        assert!(contents(&fs, *ino) == *model, "inode {ino}");
    }
}
