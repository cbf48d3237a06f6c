//! Logs on another device: read, replayed, written, checked and repaired here and by the kernel.

mod crash;
mod support;

use std::sync::Arc;

use disk::{BlockDevice, DeviceRole, MemoryDevice, OverlayDevice};
use operations::repair::{Staging, UndoDevice, make_plan, restore, write_in_place};
use testkit::crash::{PairedImage, joined};
use testkit::{Ignore, MkfsXfs, differences, require, scratch};
use vfs::check::Silent;
use vfs::{FileSystem, NewInode};
use xfs::repair::Repair;
use xfs::{OpenOptions, Xfs};

use crate::log_recovery::support::{Load, MIB, Stop, shut_down, sync};
pub(crate) use support::made;
use support::{findings, in_folder, write};

const SIZE: u64 = 64 * MIB;
const LOG_BYTES: u64 = 16 * MIB;

/// Lets the kernel change a new image, and stops it.
fn dirty(folder: &std::path::Path, options: &str, seed: u64, stop: Stop) -> PairedImage {
    let pair = in_folder(folder, "dirty");
    std::fs::File::create(&pair.log).unwrap().set_len(LOG_BYTES).unwrap();
    let options = format!("-l logdev={},size={LOG_BYTES} {options}", pair.log.display());
    MkfsXfs::default().options(&options).create(&pair.image, 128 * MIB);
    let work = |root: &std::path::Path| {
        let mut load = Load::new(seed);
        for _ in 0..3 {
            load.run(root, 300);
            sync(root);
        }
        load.run(root, 200);
        shut_down(root, stop);
    };
    pair.mounted(false, work).unwrap();
    pair
}

#[test]
fn logs_of_the_kernel_are_replayed_from_another_device() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Tool("xfs_repair"), Mount("xfs"), Loop);
    let cases = [("", Stop::Flushed), ("-s size=4096", Stop::AtOnce)];
    for (seed, (options, stop)) in (60..).zip(cases) {
        let home = scratch();
        let pair = dirty(home.path(), options, seed, stop);
        let (ours, theirs) = (pair.copy("ours"), pair.copy("theirs"));
        theirs.mounted(false, |_| ()).unwrap();
        // A reader replays in memory, and changes nothing.
        let before = [&pair.image, &pair.log].map(|path| std::fs::read(path).unwrap());
        let expected = theirs.tree();
        let fs = Xfs::open(pair.device(), &OpenOptions::default()).unwrap();
        let shown = testkit::fs_tree::FsTree::of(&fs).unwrap();
        let list = testkit::shown_differences(&expected, &shown, testkit::Leave::default());
        assert!(list.is_empty(), "{options}:\n{}", list.join("\n"));
        assert!(before == [&pair.image, &pair.log].map(|path| std::fs::read(path).unwrap()));

        let fs = Xfs::open_writable(ours.device(), &OpenOptions::default()).unwrap();
        assert!(fs.recovered().items_replayed > 0, "{options}: {:?}", fs.recovered());
        Xfs::close(fs).unwrap();
        let list = differences(&expected, &ours.tree(), &Ignore::default());
        assert!(list.is_empty(), "{options}:\n{}", list.join("\n"));
        ours.verdict().unwrap_or_else(|what| panic!("{options}: {what}"));
    }
}

/// Returns an image with changes that are only in its log.
fn changed() -> [Arc<MemoryDevice>; 2] {
    let parts = made(SIZE, LOG_BYTES);
    let device = joined(parts[0].clone(), parts[1].clone());
    let fs = Xfs::open_writable(device, &OpenOptions::default()).unwrap();
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
fn the_kernel_replays_our_log_from_another_device() {
    require!(Tool("xfs_repair"), Tool("xfs_logprint"), Mount("xfs"), Loop);
    let home = scratch();
    let parts = changed();
    let pair = write(home.path(), "ours", [&parts[0], &parts[1]]);
    let mut logprint = testkit::command("xfs_logprint");
    logprint.args(["-t", "-l"]).arg(&pair.log).arg(&pair.image);
    let output = logprint.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("<DIRTY>"), "{output:?}");
    let tree = pair.mounted(false, |root| testkit::Tree::of(root)).unwrap();
    assert_eq!(tree.nodes.len(), 201);
    pair.verdict().unwrap();
    // And it is ours again.
    let fs = Xfs::open_writable(pair.device(), &OpenOptions::default()).unwrap();
    assert!(fs.lookup(fs.root(), b"file 7").is_ok());
    Xfs::close(fs).unwrap();
    pair.verdict().unwrap();
}

#[test]
fn images_without_their_log_device_are_only_read() {
    let [data, log] = changed();
    let before = data.fork();
    let alone = || data.clone() as Arc<dyn BlockDevice>;
    for refused in [
        Xfs::open(alone(), &OpenOptions::default()).err(),
        Xfs::open_writable(alone(), &OpenOptions::default()).err(),
        xfs::check::check(alone(), &Default::default(), &Silent).err(),
    ] {
        let text = refused.expect("it is refused").to_string();
        assert!(text.contains("external log") && text.contains("--log-device"), "{text}");
    }
    let staging = Arc::new(Staging::new(alone()));
    assert!(make_plan(&Repair::default(), &staging, &Silent).is_err());
    assert_eq!(staging.step_count(), 0);
    let mut is_changed = false;
    data.for_each_part_unlike(&before, |_, _| {
        is_changed = true;
        Ok(())
    })
    .unwrap();
    assert!(!is_changed);
    let norecovery = OpenOptions { norecovery: true, ..OpenOptions::default() };
    Xfs::open(alone(), &norecovery).unwrap();
    drop(log);
}

#[test]
fn wrong_log_devices_are_refused_and_not_written() {
    let [data, log] = changed();
    let short = MemoryDevice::new(LOG_BYTES - 4096);
    let other = Arc::new(log.fork());
    // The log of a file system with another UUID.
    for block in 0..LOG_BYTES / 512 {
        let mut uuid = [0; 16];
        other.read_at(block * 512 + 304, &mut uuid).unwrap();
        if uuid == [0x5a; 16] {
            other.write_at(block * 512 + 304, &[0x77; 16]).unwrap();
        }
    }
    let text = MemoryDevice::new(LOG_BYTES);
    text.write_at(5 << 20, b"a letter").unwrap();
    let cases = [
        (Arc::new(short), "a log device of 16773120 bytes for a log of 16777216 bytes"),
        (other, "77777777777777777777777777777777"),
        (Arc::new(text), "without a record of a log"),
    ];
    for (device, expected) in cases {
        let before = device.fork();
        let both = || joined(Arc::new(data.fork()), device.clone());
        let opened = Xfs::open_writable(both(), &OpenOptions::default()).err();
        let found = opened.expect("it is refused").to_string();
        assert!(found.contains(expected), "{found}");
        assert!(Xfs::open(both(), &OpenOptions::default()).is_err());
        let staging = Arc::new(Staging::new(both()));
        assert!(make_plan(&Repair::default(), &staging, &Silent).is_err(), "{expected}");
        let mut is_changed = false;
        device
            .for_each_part_unlike(&before, |_, _| {
                is_changed = true;
                Ok(())
            })
            .unwrap();
        assert!(!is_changed, "{expected}");
    }
    // An image with its log inside has no other one.
    let inside = Arc::new(crate::changing::TargetLayout::DEFAULT.make());
    let found = Xfs::open(joined(inside, log), &OpenOptions::default()).err().unwrap();
    assert!(found.to_string().contains("leave --log-device out"), "{found}");
}

/// Repairs an image and its log in memory. Returns the codes of the findings.
fn repaired(device: &Arc<dyn BlockDevice>) -> Vec<&'static str> {
    let staging = Arc::new(Staging::new(Arc::clone(device)));
    let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
    assert!(plan.left.is_empty(), "{:?}", plan.left);
    write_in_place(&**device, &plan.steps, &mut |_, _| true).unwrap();
    plan.findings.iter().map(|finding| finding.code.name).collect()
}

#[test]
fn lost_and_damaged_logs_on_another_device_are_replaced() {
    require!(Tool("xfs_repair"), Mount("xfs"), Loop);
    let home = scratch();
    let blank = MemoryDevice::new(LOG_BYTES);
    let parts = changed();
    let torn = parts[1].fork();
    // The header of the first record after the unmount record.
    torn.write_at(1024 + 100, &[0xff; 400]).unwrap();
    for (name, log) in [("blank", blank), ("torn", torn)] {
        let (data, log) = (Arc::new(parts[0].fork()), Arc::new(log));
        let device = joined(data.clone(), log.clone());
        assert!(Xfs::open_writable(device.clone(), &OpenOptions::default()).is_err(), "{name}");
        let codes = repaired(&device);
        assert!(codes.contains(&"xfs-log"), "{name}: {codes:?}");
        assert_eq!(findings(device), Vec::<String>::new());
        let pair = write(home.path(), name, [&data, &log]);
        pair.verdict().unwrap();
        pair.mounted(false, |_| ()).unwrap();
    }
}

#[test]
fn repairs_of_both_devices_are_undone_together() {
    let parts = changed();
    parts[0].zero_range(512, 512).unwrap();
    let device = joined(parts[0].clone(), parts[1].clone());
    let staging = Arc::new(Staging::new(Arc::clone(&device)));
    let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
    let is_of_log = |page: &u64| page * operations::repair::PAGE_BYTES >= DeviceRole::Log.start();
    assert!(plan.steps.iter().flat_map(|step| step.pages.keys()).any(is_of_log));
    let before = [parts[0].fork(), parts[1].fork()];
    let file = home_file();
    let kept = UndoDevice::begin(device.clone(), Box::new(file.reopen().unwrap())).unwrap();
    write_in_place(&kept, &plan.steps, &mut |_, _| true).unwrap();
    kept.finish(&[]).unwrap();
    restore(&*device, file.reopen().unwrap()).unwrap();
    let all = |device: &MemoryDevice| {
        let mut bytes = vec![0; device.len() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    for (now, before) in parts.iter().zip(&before) {
        assert!(all(now) == all(before));
    }
}

fn home_file() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new().unwrap()
}

/// A repair through the log must not take the first blocks of the image for blocks of the log.
#[test]
fn small_repairs_are_written_through_a_log_on_another_device() {
    let parts = made(SIZE, LOG_BYTES);
    let device = joined(parts[0].clone(), parts[1].clone());
    // agf_freeblks of the first group.
    let mut sector = [0; 512];
    parts[0].read_at(512, &mut sector).unwrap();
    sector[56] ^= 1;
    xfs::format::checksum::seal(&mut sector, 216);
    parts[0].write_at(512, &sector).unwrap();
    let staging = Arc::new(Staging::new(Arc::clone(&device)));
    let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
    let writer = xfs::repair::open_log(Arc::clone(&device)).unwrap().expect("a usable log");
    assert!(operations::repair::fits(&*writer, &plan.steps));
    let through = Arc::new(OverlayDevice::new(Arc::clone(&device)));
    drop(writer);
    let writer = xfs::repair::open_log(through.clone()).unwrap().unwrap();
    operations::repair::write_through_log(through.clone(), writer, &plan.steps, &mut |_, _| true)
        .unwrap();
    assert_eq!(findings(through), Vec::<String>::new());
    assert!(!findings(device).is_empty());
}

/// A build changes the UUID at the end, and writes the log again.
#[test]
fn finished_images_have_their_uuid_in_the_log_on_another_device() {
    let parts = made(SIZE, LOG_BYTES);
    let device = || joined(parts[0].clone(), parts[1].clone());
    let fs = Xfs::open_in_progress(device(), 16 << 20).unwrap();
    fs.finish(Some([0x33; 16])).unwrap();
    drop(fs);
    let fs = Xfs::open_writable(device(), &OpenOptions::default()).unwrap();
    assert_eq!(fs.superblock().raw.uuid, [0x33; 16]);
    Xfs::close(fs).unwrap();
    xfs::tune::change_uuid(&*device(), xfs::tune::NewUuid::First).unwrap();
    let fs = Xfs::open(device(), &OpenOptions::default()).unwrap();
    assert_eq!(fs.superblock().raw.uuid, [0x5a; 16]);
    assert_eq!(findings(device()), Vec::<String>::new());
}
