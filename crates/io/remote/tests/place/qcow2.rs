//! qcow2 images of qemu-img, sound and damaged, opened for writing. `qemu-img check` verifies the results.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use disk::BlockDevice;
use diskwright_remote::place::NamedFiles;
use diskwright_remote::place::disk::{DiskError, VirtualDisk};
use testkit::{require, scratch};

const MIB: u64 = 1 << 20;
const CLUSTER: u64 = 64 << 10;
const EXCLUSIVE: u64 = 1 << 63;

fn qemu_status(dir: &Path, line: &str) -> i32 {
    let mut command = testkit::command("qemu-img");
    let output = command.current_dir(dir).args(line.split_whitespace()).output().unwrap();
    output.status.code().unwrap()
}

#[track_caller]
fn qemu(dir: &Path, line: &str) {
    assert_eq!(qemu_status(dir, line), 0, "qemu-img {line}");
}

/// Returns random non-zero bytes.
fn noise(len: u64, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(1..)).collect()
}

/// Writes a raw disk of 8 MiB with data at its start and its end.
fn raw_disk(dir: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 8 * MIB as usize];
    bytes[..MIB as usize].copy_from_slice(&noise(MIB, 1));
    bytes[7 * MIB as usize..].copy_from_slice(&noise(MIB, 2));
    fs::write(dir.join("raw"), &bytes).unwrap();
    bytes
}

fn open(path: &Path, is_writable: bool) -> Result<VirtualDisk, DiskError> {
    open_with(path, is_writable, false)
}

fn open_with(
    path: &Path,
    is_writable: bool,
    allow_data_files: bool,
) -> Result<VirtualDisk, DiskError> {
    let open = |path: &Path, is_written| File::options().read(true).write(is_written).open(path);
    VirtualDisk::open(
        "qcow2",
        path,
        is_writable,
        None,
        NamedFiles { open: &open, allow_data_files },
    )
}

fn contents(disk: &VirtualDisk) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; disk.len() as usize];
    disk.read_at(0, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn sound_images_of_each_kind_are_written_and_stay_sound() {
    require!(Tool("qemu-img"));
    let kinds = [
        "",
        "-o compat=0.10",
        "-o cluster_size=512",
        "-o cluster_size=2M",
        "-o refcount_bits=1",
        "-o refcount_bits=2,cluster_size=4k",
        "-o refcount_bits=8",
        "-o refcount_bits=64,cluster_size=1k",
        "-o lazy_refcounts=on",
        "-o preallocation=metadata",
        "-o preallocation=falloc",
        "-o preallocation=full",
        "-c",
        "-c -o cluster_size=4k",
    ];
    for kind in kinds {
        let dir = scratch();
        let mut expected = raw_disk(dir.path());
        qemu(dir.path(), &format!("convert -f raw -O qcow2 {kind} raw disk"));
        write_and_judge(dir.path(), &mut expected, kind);
    }
}

/// Overwrites, allocates and zeroes, and compares the result with qemu-img.
#[track_caller]
fn write_and_judge(dir: &Path, expected: &mut [u8], kind: &str) {
    let disk = open(&dir.join("disk"), true).unwrap_or_else(|e| panic!("{kind}: {e}"));
    for (at, len) in [(100, 5000), (3 * MIB + 17, 200_000), (7 * MIB, 1)] {
        let bytes = noise(len, at);
        disk.write_at(at, &bytes).unwrap();
        expected[at as usize..(at + len) as usize].copy_from_slice(&bytes);
    }
    disk.flush().unwrap();
    drop(disk);
    assert_eq!(qemu_status(dir, "check -q disk"), 0, "{kind}");
    qemu(dir, "convert -O raw disk back");
    assert!(fs::read(dir.join("back")).unwrap() == expected, "{kind}");
    // The image must still be accepted after imago has changed it.
    let disk = open(&dir.join("disk"), true).unwrap_or_else(|e| panic!("{kind}: {e}"));
    assert!(contents(&disk).unwrap() == expected, "{kind}");
}

#[test]
fn snapshots_are_kept() {
    require!(Tool("qemu-img"));
    let dir = scratch();
    let mut expected = raw_disk(dir.path());
    let before = expected.clone();
    qemu(dir.path(), "convert -f raw -O qcow2 raw disk");
    qemu(dir.path(), "snapshot -c first disk");
    qemu(dir.path(), "snapshot -c second disk");
    write_and_judge(dir.path(), &mut expected, "snapshots");
    qemu(dir.path(), "convert -l snapshot.name=first -O raw disk first");
    assert!(fs::read(dir.path().join("first")).unwrap() == before);
    // After a snapshot is deleted, the `COPIED` flags must be right again.
    qemu(dir.path(), "snapshot -d first disk");
    write_and_judge(dir.path(), &mut expected, "a deleted snapshot");
}

#[test]
fn the_clusters_of_bitmaps_are_not_overwritten() {
    require!(Tool("qemu-img"));
    let dir = scratch();
    raw_disk(dir.path());
    qemu(dir.path(), "convert -f raw -O qcow2 raw disk");
    qemu(dir.path(), "bitmap --add --enable disk marks");
    let path = dir.path().join("disk");
    let sound = fs::read(&path).unwrap();
    open(&path, true).unwrap().write_at(3 * MIB, &noise(MIB, 4)).unwrap();
    // The write has invalidated the bitmap, as the format requires, and its clusters are leaked (status 3).
    assert_eq!(qemu_status(dir.path(), "check -q disk"), 3);
    let directory = Sample { bytes: sound.clone() }.bitmaps();
    let case: DamageCase = ("bitmap", "qcow2 bitmap directory at", |s| s.count(s.bitmaps(), 0));
    assert!(directory > 0);
    refuse(&path, &sound, &case);
}

/// An image as bytes, with the locations of its structures.
struct Sample {
    bytes: Vec<u8>,
}

impl Sample {
    fn get(&self, at: u64) -> u64 {
        u64::from_be_bytes(self.bytes[at as usize..][..8].try_into().unwrap())
    }

    fn set(&mut self, at: u64, value: u64) {
        self.bytes[at as usize..][..8].copy_from_slice(&value.to_be_bytes());
    }

    fn set_half(&mut self, at: u64, value: u32) {
        self.bytes[at as usize..][..4].copy_from_slice(&value.to_be_bytes());
    }

    fn l1(&self) -> u64 {
        self.get(40)
    }

    fn refcounts(&self) -> u64 {
        self.get(48)
    }

    fn snapshots(&self) -> u64 {
        self.get(64)
    }

    fn block(&self) -> u64 {
        self.get(self.refcounts())
    }

    fn l2(&self) -> u64 {
        self.get(self.l1()) & !EXCLUSIVE
    }

    fn data(&self) -> u64 {
        self.get(self.l2()) & !EXCLUSIVE
    }

    /// Sets the refcount of the cluster at an offset.
    fn count(&mut self, place: u64, count: u16) {
        let at = (self.block() + place / CLUSTER * 2) as usize;
        self.bytes[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }

    /// Returns the offset of the bitmap directory, from the header extension.
    fn bitmaps(&self) -> u64 {
        let magic = 0x2385_2875_u32.to_be_bytes();
        let at = self.bytes.windows(4).position(|four| four == magic).unwrap() as u64;
        self.get(at + 24)
    }

    fn end(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// A kind of damage: its name, the expected structure in the message, and the change.
type DamageCase = (&'static str, &'static str, fn(&mut Sample));

/// Damage in images without snapshots. The first ones affect only refcounts, so reads stay right.
const COUNTS: [DamageCase; 9] = [
    (
        "count of the header",
        "qcow2 header at byte 0: refcount (expected at least 1, found 0)",
        |s| s.count(0, 0),
    ),
    ("count of L1", "qcow2 L1 table at", |s| s.count(s.l1(), 0)),
    ("count of L2", "qcow2 L2 table 0 at", |s| s.count(s.l2(), 0)),
    ("count of data", "qcow2 data cluster of guest byte 0 at", |s| s.count(s.data(), 0)),
    ("count of the refcount table", "qcow2 refcount table at", |s| s.count(s.refcounts(), 0)),
    ("count of a refcount block", "qcow2 refcount block 0 at", |s| s.count(s.block(), 0)),
    ("zero entry of the refcount table", "qcow2 header at byte 0: refcount", |s| {
        s.set(s.refcounts(), 0);
    }),
    (
        "exclusive data counted twice",
        "refcount of a cluster marked exclusive (expected 1, found 2)",
        |s| {
            s.count(s.data(), 2);
        },
    ),
    ("exclusive L2 counted twice", "qcow2 L2 table 0 at", |s| s.count(s.l2(), 2)),
];

const PLACES: [DamageCase; 24] = [
    ("L1 past the end", "qcow2 L1 table at", |s| s.set(40, s.end() + CLUSTER)),
    ("L1 unaligned", "qcow2 L1 table at", |s| s.set(40, s.l1() + 512)),
    ("L1 on the header", "qcow2 L1 table at byte 0: place", |s| s.set(40, 0)),
    ("L1 on the refcount table", "overlap", |s| s.set(40, s.refcounts())),
    ("L1 on data", "qcow2 L1 table at", |s| s.set(40, s.data())),
    ("L1 too long", "qcow2 L1 table at", |s| s.set_half(36, u32::MAX)),
    ("L1 that names itself", "overlap", |s| s.set(s.l1(), s.l1() | EXCLUSIVE)),
    ("reserved bits in L1", "reserved bits", |s| s.set(s.l1(), s.get(s.l1()) | 2)),
    ("L2 past the end", "qcow2 L2 table 0 at", |s| s.set(s.l1(), (s.end() + CLUSTER) | EXCLUSIVE)),
    ("L2 unaligned", "qcow2 L2 table 0 at", |s| s.set(s.l1(), (s.l2() + 512) | EXCLUSIVE)),
    ("L2 on the refcount block", "overlap", |s| s.set(s.l1(), s.block() | EXCLUSIVE)),
    ("L2 twice", "overlap", |s| {
        s.set_half(36, 2);
        s.set(s.l1() + 8, s.get(s.l1()));
    }),
    ("data past the end", "guest byte 0 at", |s| s.set(s.l2(), (s.end() + CLUSTER) | EXCLUSIVE)),
    ("data unaligned", "guest byte 0 at", |s| s.set(s.l2(), (s.data() + 512) | EXCLUSIVE)),
    ("data on L2", "overlap", |s| s.set(s.l2(), s.l2() | EXCLUSIVE)),
    ("data on L1", "overlap", |s| s.set(s.l2(), s.l1() | EXCLUSIVE)),
    ("data on a refcount block", "overlap", |s| s.set(s.l2(), s.block() | EXCLUSIVE)),
    ("data twice", "qcow2 shared data cluster at", |s| s.set(s.l2() + 8, s.get(s.l2()))),
    ("reserved bits in L2", "reserved bits", |s| s.set(s.l2(), s.get(s.l2()) | 1 << 60)),
    ("refcount table past the end", "qcow2 refcount table at", |s| s.set(48, s.end() + CLUSTER)),
    ("refcount table unaligned", "qcow2 refcount table at", |s| s.set(48, s.refcounts() + 512)),
    ("refcount block past the end", "refcount block 0 at", |s| {
        s.set(s.refcounts(), s.end() + CLUSTER);
    }),
    ("refcount block twice", "overlap", |s| s.set(s.refcounts() + 8, s.block())),
    ("refcount block is its table", "refcount", |s| s.set(s.refcounts(), s.refcounts())),
];

const HEADERS: [DamageCase; 8] = [
    ("cluster size", "cluster_bits", |s| s.set_half(20, 40)),
    ("refcount width", "refcount_order", |s| s.set_half(96, 7)),
    ("no refcount table", "refcount_table_clusters", |s| s.set_half(56, 0)),
    ("huge refcount table", "refcount_table_clusters", |s| s.set_half(56, u32::MAX)),
    ("dirty", "marked as dirty", |s| s.set(72, 1)),
    ("corrupt", "marked as corrupt", |s| s.set(72, 2)),
    ("backing name past the cluster", "qcow2 backing file name", |s| {
        s.set(8, CLUSTER - 4);
        s.set_half(16, 5);
    }),
    // QEMU's header has 112 bytes.
    ("length of an extension", "length of an extension", |s| s.set_half(116, u32::MAX)),
];

const SNAPSHOTS: [DamageCase; 9] = [
    ("count of the snapshot table", "qcow2 snapshot table at", |s| s.count(s.snapshots(), 0)),
    ("count of a snapshot's L1", "L1 table of snapshot 0 at", |s| s.count(s.get(s.snapshots()), 0)),
    ("count of a shared L2", "expected at least 2, found 1", |s| s.count(s.l2(), 1)),
    ("count of shared data", "expected at least 2, found 1", |s| s.count(s.data(), 1)),
    ("snapshots past the end", "qcow2 snapshot table at", |s| s.set(64, s.end() + CLUSTER)),
    ("snapshots unaligned", "qcow2 snapshot table at", |s| s.set(64, s.snapshots() + 8)),
    ("snapshots on L1", "overlap", |s| s.set(64, s.l1())),
    ("a snapshot's L1 is the active one", "overlap", |s| s.set(s.snapshots(), s.l1())),
    ("huge snapshot", "qcow2 snapshot table at", |s| s.set_half(s.snapshots() + 36, u32::MAX)),
];

#[test]
fn a_damaged_image_is_refused_before_the_first_write_and_stays_as_it_is() {
    require!(Tool("qemu-img"));
    let dir = scratch();
    let expected = raw_disk(dir.path());
    qemu(dir.path(), "convert -f raw -O qcow2 raw disk");
    let plain = fs::read(dir.path().join("disk")).unwrap();
    qemu(dir.path(), "snapshot -c first disk");
    let snapshot = fs::read(dir.path().join("disk")).unwrap();
    let path = dir.path().join("bad");
    for case in COUNTS.iter().chain(&PLACES).chain(&HEADERS) {
        refuse(&path, &plain, case);
        judge_damage(dir.path(), case.0);
    }
    for case in &SNAPSHOTS {
        refuse(&path, &snapshot, case);
        judge_damage(dir.path(), case.0);
    }
    // Readers do not use refcounts.
    for case in &COUNTS {
        damaged(&path, &plain, case);
        assert!(contents(&open(&path, false).unwrap()).unwrap() == expected, "{}", case.0);
    }
}

fn damaged(path: &Path, sound: &[u8], (_, _, damage): &DamageCase) -> Vec<u8> {
    let mut sample = Sample { bytes: sound.to_vec() };
    damage(&mut sample);
    fs::write(path, &sample.bytes).unwrap();
    sample.bytes
}

#[track_caller]
fn refuse(path: &Path, sound: &[u8], case: &DamageCase) {
    let bytes = damaged(path, sound, case);
    let (name, structure, _) = case;
    let Err(error) = open(path, true) else { panic!("{name}: the image is taken") };
    let message = error.to_string();
    assert!(message.contains(structure), "{name}: {message}");
    assert!(message.contains("qemu-img check -r all"), "{name}: {message}");
    assert!(fs::read(path).unwrap() == bytes, "{name}: the file has changed");
    // A reader gets bytes or an error.
    if let Ok(disk) = open(path, false) {
        let _ = contents(&disk);
    }
}

/// Checks that qemu-img detects the damage, too. Its status is 1 or 2 for errors, and 63 if it cannot open the image.
#[track_caller]
fn judge_damage(dir: &Path, name: &str) {
    // QEMU accepts images with these flags, and clears the flags if it finds no other error.
    if matches!(name, "dirty" | "corrupt") {
        return;
    }
    assert_ne!(qemu_status(dir, "check -q -f qcow2 bad"), 0, "{name}");
}

#[test]
fn random_damages_give_an_error_or_a_sound_image() {
    require!(Tool("qemu-img"));
    let dir = scratch();
    raw_disk(dir.path());
    qemu(dir.path(), "convert -f raw -O qcow2 -o cluster_size=4k raw disk");
    qemu(dir.path(), "snapshot -c first disk");
    let sound = fs::read(dir.path().join("disk")).unwrap();
    let sample = Sample { bytes: sound.clone() };
    let tables =
        [0, sample.l1(), sample.l2(), sample.refcounts(), sample.block(), sample.snapshots()];
    let path: PathBuf = dir.path().join("bad");
    let mut random = fastrand::Rng::with_seed(39);
    let (mut taken, written) = (0, noise(3 * CLUSTER, 3));
    for round in 0..testkit::effort(300, 700, 20_000) {
        let mut bytes = sound.clone();
        for _ in 0..random.usize(1..4) {
            let at = tables[random.usize(..tables.len())] as usize + random.usize(..128);
            let at = at.min(bytes.len() - 1);
            bytes[at] = if random.bool() { random.u8(..) } else { bytes[at] ^ 1 << random.u8(..8) };
        }
        fs::write(&path, &bytes).unwrap();
        match open(&path, true) {
            Err(_) => assert!(fs::read(&path).unwrap() == bytes, "round {round}: a change"),
            Ok(disk) => {
                taken += 1;
                let _ = disk.write_at(2 * MIB, &written);
                let _ = disk.flush();
                drop(disk);
                // Status 3 means only leaked clusters. A disk size that QEMU rejects gives 1.
                let status = qemu_status(dir.path(), "check -q -f qcow2 bad");
                let before = sound_size(&sound, &bytes);
                assert!(!before || status == 0 || status == 3, "round {round}: status {status}");
            }
        }
    }
    assert!(taken > 0, "no image was taken");
}

/// Checks that the header fields which only QEMU verifies are unchanged: all but the tables.
fn sound_size(sound: &[u8], bytes: &[u8]) -> bool {
    sound[..36] == bytes[..36] && sound[72..128] == bytes[72..128]
}

#[test]
fn an_image_that_is_its_own_backing_file_is_refused() {
    require!(Tool("qemu-img"));
    let dir = scratch();
    qemu(dir.path(), "create -q -f qcow2 a 1M");
    qemu(dir.path(), "create -q -f qcow2 -b a -F qcow2 b");
    qemu(dir.path(), "rebase -u -f qcow2 -b b -F qcow2 a");
    for is_writable in [false, true] {
        let Err(error) = open(&dir.path().join("a"), is_writable) else { panic!("it is taken") };
        assert!(error.to_string().contains("is its own backing file"), "{error}");
    }
}
