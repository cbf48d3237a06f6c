//! Journals on another device: read, replayed, written, checked and repaired here, by e2fsck and by the kernel.

mod crash;
pub(crate) mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use disk::{BlockDevice, DeviceRole, MemoryDevice, OverlayDevice};
use ext4::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use ext4::repair::Repair;
use ext4::resize::SizeRequest;
use ext4::{Ext4, OpenOptions};
use operations::repair::{Staging, make_plan, write_in_place};
use testkit::crash::{PairedImage, joined};
use testkit::{Ignore, LoopDevice, Mke2fs, differences, require, scratch};
use vfs::check::Silent;
use vfs::{FileSystem, NewInode};
use zerocopy::IntoBytes;

use support::{IMAGE, JOURNAL, findings, in_folder, made, write};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 24 * MIB;
const JOURNAL_BYTES: u64 = 8 * MIB;

/// Journal block of the journal superblock with blocks of 4 KiB, in bytes.
const JOURNAL_SUPERBLOCK: u64 = 4096;

/// Changes many files.
fn change(root: &Path, round: u32) {
    let dir = root.join(format!("dir {round}"));
    std::fs::create_dir(&dir).unwrap();
    for index in 0..120 {
        std::fs::write(dir.join(format!("file {index}")), vec![index as u8; index * 50]).unwrap();
    }
    for index in (0..120).step_by(3) {
        std::fs::remove_file(dir.join(format!("file {index}"))).unwrap();
    }
}

/// Stops the file system as if the machine had crashed, after the journal was written.
fn shut_down(root: &Path) {
    let mut io = testkit::command("xfs_io");
    let output = io.args(["-x", "-c", "shutdown -f"]).arg(root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Lets the kernel change a new image made by mke2fs, and stops it with changes in the journal.
fn dirty(folder: &Path, block_size: u32) -> PairedImage {
    let pair = in_folder(folder, "dirty");
    std::fs::File::create(&pair.log).unwrap().set_len(JOURNAL_BYTES).unwrap();
    let journal = LoopDevice::new(&pair.log);
    let size = block_size.to_string();
    let mut made = testkit::command("mke2fs");
    made.args(["-q", "-F", "-O", "journal_dev", "-b", &size, journal.name()]);
    assert!(made.status().unwrap().success());
    let device = format!("device={}", journal.name());
    let mke2fs = Mke2fs::new("ext4").block_size(block_size);
    mke2fs.arguments(["-J", &device]).create(&pair.image, 64 * MIB);
    drop(journal);
    let stop = |root: &Path| {
        for round in 0..3 {
            change(root, round);
            assert!(Command::new("sync").arg("-f").arg(root).status().unwrap().success());
        }
        shut_down(root);
    };
    pair.mounted(false, stop).unwrap();
    pair
}

#[test]
fn journals_of_the_kernel_are_replayed_from_another_device() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("xfs_io"), Mount("ext4"), Loop);
    for block_size in [4096, 1024] {
        let home = scratch();
        let pair = dirty(home.path(), block_size);
        let (ours, theirs) = (pair.copy("ours"), pair.copy("theirs"));
        theirs.mounted(false, |_| ()).unwrap();
        let expected = theirs.tree();
        // A reader replays in memory, and changes nothing.
        let before = [&pair.image, &pair.log].map(|path| std::fs::read(path).unwrap());
        let fs = Ext4::open(pair.device(), &OpenOptions::default()).unwrap();
        assert!(fs.lookup(fs.root(), b"dir 2").is_ok());
        assert!(before == [&pair.image, &pair.log].map(|path| std::fs::read(path).unwrap()));

        let fs = Ext4::open_writable(ours.device(), &OpenOptions::default()).unwrap();
        assert!(fs.recovered().blocks_replayed > 0, "{:?}", fs.recovered());
        fs.close().unwrap();
        let list = differences(&expected, &ours.tree(), &Ignore::default());
        assert!(list.is_empty(), "{block_size}:\n{}", list.join("\n"));
        ours.verdict().unwrap_or_else(|what| panic!("{block_size}: {what}"));
    }
}

/// Returns an image with changes that are only in its journal.
fn changed(block_size: u32) -> [Arc<MemoryDevice>; 2] {
    let parts = made(SIZE, JOURNAL_BYTES, block_size);
    let device = joined(parts[0].clone(), parts[1].clone());
    let fs = Ext4::open_writable(device, &OpenOptions::default()).unwrap();
    for number in 0..200 {
        let name = format!("file {number}");
        let ino = fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
        fs.write(ino, 0, name.as_bytes(), None).unwrap();
    }
    fs.sync().unwrap();
    drop(fs);
    parts
}

#[test]
fn others_replay_our_journal_from_another_device() {
    require!(Tool("e2fsck"), Mount("ext4"), Loop);
    for block_size in [4096, 2048, 1024] {
        let home = scratch();
        let parts = changed(block_size);
        let pair = write(home.path(), "ours", [&parts[0], &parts[1]]);
        let by_e2fsck = pair.copy("by e2fsck");
        let output = by_e2fsck.checker(&["-fy", "-j"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("recovering journal"), "{output:?}");
        assert_eq!(by_e2fsck.tree().nodes.len(), 202);
        let tree = pair.mounted(false, |root| testkit::Tree::of(root)).unwrap();
        assert_eq!(tree.nodes.len(), 202);
        for pair in [&pair, &by_e2fsck] {
            pair.verdict().unwrap();
        }
        // And it is ours again.
        let fs = Ext4::open_writable(pair.device(), &OpenOptions::default()).unwrap();
        assert!(fs.lookup(fs.root(), b"file 7").is_ok());
        fs.close().unwrap();
        pair.verdict().unwrap();
    }
}

/// Asserts that a device still has its contents.
fn assert_same(device: &MemoryDevice, before: &MemoryDevice) {
    let mut is_changed = false;
    let each = |_, _: &[u8]| {
        is_changed = true;
        Ok(())
    };
    device.for_each_part_unlike(before, each).unwrap();
    assert!(!is_changed);
}

#[test]
fn images_without_their_journal_device_are_only_read() {
    let [data, journal] = changed(4096);
    let before = data.fork();
    let alone = || data.clone() as Arc<dyn BlockDevice>;
    for refused in [
        Ext4::open(alone(), &OpenOptions::default()).err(),
        Ext4::open_writable(alone(), &OpenOptions::default()).err(),
        ext4::check::check(alone(), &Default::default(), &Silent).err(),
    ] {
        let text = refused.expect("it is refused").to_string();
        assert!(text.contains("external journal") && text.contains("--log-device"), "{text}");
    }
    let staging = Arc::new(Staging::new(alone()));
    assert!(make_plan(&Repair::default(), &staging, &Silent).is_err());
    assert_eq!(staging.step_count(), 0);
    assert_same(&data, &before);
    let norecovery = OpenOptions { norecovery: true, ..OpenOptions::default() };
    Ext4::open(alone(), &norecovery).unwrap();
    let ignores = vfs::check::Options::default().with_norecovery(true);
    ext4::check::check(alone(), &ignores, &Silent).unwrap();
    // A clean image can be read.
    let fs = Ext4::open_writable(joined(data.clone(), journal), &OpenOptions::default()).unwrap();
    fs.close().unwrap();
    let fs = Ext4::open(alone(), &OpenOptions::default()).unwrap();
    assert!(fs.lookup(fs.root(), b"file 7").is_ok());
    assert!(Ext4::open_writable(alone(), &OpenOptions::default()).is_err());
}

/// Changes the superblock of a journal device.
fn edit(device: &MemoryDevice, change: impl FnOnce(&mut RawSuperblock)) {
    let mut raw = RawSuperblock::zeroed();
    device.read_at(SUPERBLOCK_OFFSET, raw.as_mut_bytes()).unwrap();
    change(&mut raw);
    raw.seal();
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
}

#[test]
fn wrong_journal_devices_are_refused_and_not_written() {
    let [data, journal] = changed(4096);
    let short = MemoryDevice::new(JOURNAL_BYTES - 4096);
    let mut bytes = vec![0; short.len() as usize];
    journal.read_at(0, &mut bytes).unwrap();
    short.write_at(0, &bytes).unwrap();
    let like = |change: fn(&mut RawSuperblock)| {
        let device = journal.fork();
        edit(&device, change);
        device
    };
    let torn = journal.fork();
    torn.write_at(SUPERBLOCK_OFFSET + 120, b"label").unwrap();
    let shared = journal.fork();
    shared.write_at(JOURNAL_SUPERBLOCK + 0x43, &[2]).unwrap();
    // Without checksums, the count of users needs no other change.
    shared.write_at(JOURNAL_SUPERBLOCK + 0x28, &[0; 4]).unwrap();
    let cases = [
        (short, "a log device of 8384512 bytes for a journal of 8388608 bytes"),
        (like(|raw| raw.uuid[0] ^= 1), "4b4a4a4a-4a4a-4a4a-4a4a-4a4a4a4a4a4a"),
        (like(|raw| raw.log_block_size = 1.into()), "blocks of 2048 bytes"),
        (torn, "checksum"),
        (shared, "2 file systems use"),
        (MemoryDevice::new(JOURNAL_BYTES), "without the journal of an ext4 file system"),
        (MemoryDevice::new(9), "without the journal of an ext4 file system"),
        (data.fork(), "without the journal of an ext4 file system"),
    ];
    for (device, expected) in cases {
        let device = Arc::new(device);
        let before = device.fork();
        let both = || joined(Arc::new(data.fork()), device.clone());
        let opened = Ext4::open_writable(both(), &OpenOptions::default()).err();
        let found = opened.expect("it is refused").to_string();
        assert!(found.contains(expected), "{found}");
        assert!(Ext4::open(both(), &OpenOptions::default()).is_err());
        let staging = Arc::new(Staging::new(both()));
        assert!(make_plan(&Repair::default(), &staging, &Silent).is_err(), "{expected}");
        assert_same(&device, &before);
    }
    // An image with its journal inside has no other one, nor does one without a journal.
    for layout in
        [crate::changing::ImageParameters::DEFAULT, crate::changing::ImageParameters::NO_JOURNAL]
    {
        let both = joined(Arc::new(layout.make()), journal.clone());
        let found = Ext4::open(both.clone(), &OpenOptions::default()).err().unwrap();
        assert!(found.to_string().contains("leave --log-device out"), "{found}");
        assert!(Ext4::open_writable(both, &OpenOptions::default()).is_err());
    }
    // The journal device itself is named.
    let found = Ext4::open(journal, &OpenOptions::default()).err().unwrap().to_string();
    assert!(found.contains("journal with the UUID 4a4a4a4a-"), "{found}");
}

/// Repairs an image and its journal in memory. Returns the codes of the findings.
fn repaired(device: &Arc<dyn BlockDevice>) -> Vec<&'static str> {
    let staging = Arc::new(Staging::new(Arc::clone(device)));
    let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
    assert!(plan.left.is_empty(), "{:?}", plan.left);
    write_in_place(&**device, &plan.steps, &mut |_, _| true).unwrap();
    plan.findings.iter().map(|finding| finding.code.name).collect()
}

#[test]
fn damaged_journals_and_wrong_users_are_repaired() {
    require!(Tool("e2fsck"), Mount("ext4"), Loop);
    let home = scratch();
    let parts = changed(4096);
    let damage = |at: u64, bytes: &[u8]| {
        let device = parts[1].fork();
        device.write_at(at, bytes).unwrap();
        device
    };
    let clean = {
        let (data, journal) = (Arc::new(parts[0].fork()), Arc::new(parts[1].fork()));
        Ext4::open_writable(joined(data.clone(), journal.clone()), &OpenOptions::default())
            .unwrap()
            .close()
            .unwrap();
        [data, journal]
    };
    let users = clean[1].fork();
    let mut none = [0; 4];
    users.read_at(JOURNAL_SUPERBLOCK + 0x40, &mut none).unwrap();
    assert_eq!(none, [0, 0, 0, 1]);
    ext4_users(&users, 0);
    let other = clean[1].fork();
    ext4_users(&other, 1);
    let cases = [
        ("magic", &parts[0], damage(JOURNAL_SUPERBLOCK, &[0; 12]), "ext4-journal-superblock"),
        ("log", &parts[0], damage(3 * JOURNAL_SUPERBLOCK + 40, &[9; 40]), "ext4-journal-replay"),
        ("no users", &clean[0], users, "ext4-journal-superblock"),
        ("other user", &clean[0], other, "ext4-journal-superblock"),
    ];
    for (name, data, journal, expected) in cases {
        let (data, journal) = (Arc::new(data.fork()), Arc::new(journal));
        let device = joined(data.clone(), journal.clone());
        let codes = repaired(&device);
        assert!(codes.contains(&expected), "{name}: {codes:?}");
        assert_eq!(findings(device), Vec::<String>::new(), "{name}");
        let pair = write(home.path(), name, [&data, &journal]);
        pair.verdict().unwrap();
        pair.mounted(false, |_| ()).unwrap();
        pair.verdict().unwrap();
    }
}

/// Changes the users of a journal: none, or another file system.
fn ext4_users(device: &MemoryDevice, count: u8) {
    use ext4::format::jbd2::RawJournalSuperblock;
    let mut block = [0; 1024];
    device.read_at(JOURNAL_SUPERBLOCK, &mut block).unwrap();
    let mut raw = RawJournalSuperblock::parse(&block).unwrap();
    raw.set_user((count > 0).then_some([0x77; 16]));
    raw.seal();
    device.write_at(JOURNAL_SUPERBLOCK, raw.as_bytes()).unwrap();
}

#[test]
fn small_repairs_are_written_through_a_journal_on_another_device() {
    let parts = made(SIZE, JOURNAL_BYTES, 4096);
    let device = joined(parts[0].clone(), parts[1].clone());
    let mut raw = RawSuperblock::zeroed();
    parts[0].read_at(SUPERBLOCK_OFFSET, raw.as_mut_bytes()).unwrap();
    raw.set_free_blocks(raw.free_blocks() - 3);
    raw.seal();
    parts[0].write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
    assert!(!findings(device.clone()).is_empty());
    let staging = Arc::new(Staging::new(Arc::clone(&device)));
    let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
    let through: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(Arc::clone(&device)));
    let writer = ext4::repair::open_log(through.clone()).unwrap().expect("a usable journal");
    operations::repair::write_through_log(through.clone(), writer, &plan.steps, &mut |_, _| true)
        .unwrap();
    assert_eq!(findings(through), Vec::<String>::new());
}

/// A build changes the UUID at the end.
#[test]
fn finished_images_are_the_user_of_their_journal() {
    let parts = made(SIZE, JOURNAL_BYTES, 4096);
    let device = || joined(parts[0].clone(), parts[1].clone());
    let journal = |device: &dyn BlockDevice| {
        let mut users = [0; 16];
        device.read_at(DeviceRole::Log.start() + JOURNAL_SUPERBLOCK + 0x100, &mut users).unwrap();
        users
    };
    assert_eq!(journal(&*device()), IMAGE);
    let fs = Ext4::open_in_progress(device(), 16 << 20).unwrap();
    fs.finish(Some([0x33; 16])).unwrap();
    drop(fs);
    assert_eq!(journal(&*device()), [0x33; 16]);
    let fs = Ext4::open_writable(device(), &OpenOptions::default()).unwrap();
    let raw = &fs.superblock().raw;
    assert_eq!((raw.uuid, raw.journal_uuid, raw.journal_inum.get()), ([0x33; 16], JOURNAL, 0));
    fs.close().unwrap();
    assert_eq!(findings(device()), Vec::<String>::new());
}

#[test]
fn images_grow_and_shrink_with_their_journal_device() {
    require!(Tool("e2fsck"));
    let home = scratch();
    let parts = made(SIZE, JOURNAL_BYTES, 4096);
    let larger = MemoryDevice::new(200 * MIB);
    parts[0].for_each_part(|at, bytes| larger.write_at(at, bytes)).unwrap();
    let pair = write(home.path(), "resized", [&larger, &parts[1]]);
    ext4::resize::grow(pair.device(), 200 * MIB / 4096, SIZE).unwrap();
    pair.verdict().unwrap();
    let fs = Ext4::open_writable(pair.device(), &OpenOptions::default()).unwrap();
    let ino = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    fs.write(ino, 0, &vec![7; 20 << 20], None).unwrap();
    fs.close().unwrap();
    ext4::resize::shrink(pair.device(), SizeRequest::Blocks(40 * MIB / 4096), &mut |_, _| true)
        .unwrap();
    pair.verdict().unwrap();
    assert!(pair.tree().nodes.len() > 2);
}

/// Damages the superblocks and the log of a journal device at random. Each case is refused, or repaired completely.
#[test]
fn damaged_journal_devices_are_refused_or_repaired() {
    let parts = changed(4096);
    let mut random = fastrand::Rng::with_seed(17);
    let mut outcomes = [0; 3];
    for case in 0..testkit::effort(200, 500, 10_000) {
        let (data, journal) = (Arc::new(parts[0].fork()), Arc::new(parts[1].fork()));
        for _ in 0..random.usize(1..4) {
            let areas = [1024..2048, 4096..4096 + 1024, 4096..4096 + 96, 8192..40 * 4096];
            let area = areas[random.usize(..areas.len())].clone();
            let at = random.u64(area);
            let mut bytes = [0; 4];
            journal.read_at(at, &mut bytes).unwrap();
            bytes[random.usize(..4)] ^= 1 << random.u8(..8);
            journal.write_at(at, &bytes).unwrap();
        }
        let device = joined(data, journal);
        let view = Arc::new(OverlayDevice::new(device.clone()));
        let opened = Ext4::open_writable(view, &OpenOptions::default()).map(|fs| fs.close());
        let staging = Arc::new(Staging::new(Arc::clone(&device)));
        match make_plan(&Repair::default(), &staging, &Silent) {
            Ok(plan) => {
                assert!(plan.left.is_empty(), "{case}: {:?}", plan.left);
                write_in_place(&*device, &plan.steps, &mut |_, _| true).unwrap();
                assert_eq!(findings(device), Vec::<String>::new(), "{case}");
                outcomes[usize::from(opened.is_ok())] += 1;
            }
            Err(error) => {
                assert!(matches!(error, vfs::Error::Unsupported(_)), "{case}: {error}");
                assert!(opened.is_err(), "{case}");
                outcomes[2] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}
