//! Kills at any moment. An interrupted repair leaves an image that can be repaired or restored; an
//! interrupted restore can be repeated.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice, RecordingDevice};
use operations::repair::{
    Plan, Repairer, Staging, UndoDevice, UndoSink, fits, make_plan, pages_of, restore,
    write_in_place, write_through_log,
};
use parking_lot::Mutex;
use testkit::crash::{cut_off, read_image};
use testkit::{effort, judge, require};
use vfs::check::{Options, Summary};

use crate::check::common::{FORMATS, image, run};

/// Collects findings.
#[derive(Default)]
struct Keep(Mutex<Vec<String>>);

impl vfs::check::Observer for Keep {
    fn found(&self, finding: vfs::check::Finding) {
        self.0.lock().push(format!("{finding:?}"));
    }
}

fn repairer(is_xfs: bool) -> Box<dyn Repairer> {
    let options = Options::default();
    if is_xfs {
        Box::new(xfs::repair::Repair { options })
    } else {
        Box::new(ext4::repair::Repair { options })
    }
}

fn plan(is_xfs: bool, device: Arc<dyn BlockDevice>) -> Plan {
    let staging = Arc::new(Staging::new(device));
    let plan = make_plan(&*repairer(is_xfs), &staging, &Keep::default()).expect("a plan");
    assert!(plan.left.is_empty(), "cannot be repaired: {:?}", plan.left);
    plan
}

fn check(is_xfs: bool, device: Arc<dyn BlockDevice>) -> (Vec<String>, Summary) {
    let keep = Keep::default();
    let check = if is_xfs { xfs::check::check } else { ext4::check::check };
    let summary = check(device, &Options::default(), &keep).expect("an image that can be checked");
    (keep.0.into_inner(), summary)
}

fn all(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Checks whether a device has these contents.
fn has_contents(device: &dyn BlockDevice, expected: &[u8]) -> bool {
    let mut buffer = vec![0; 1 << 20];
    let mut parts = expected.chunks(buffer.len()).zip((0..).step_by(1 << 20));
    device.len() == expected.len() as u64
        && parts.all(|(part, offset)| {
            let found = &mut buffer[..part.len()];
            device.read_at(offset, found).unwrap();
            found == part
        })
}

/// Creates an image of some files, with several kinds of damage.
fn damaged(options: &str, random: &mut fastrand::Rng) -> MemoryDevice {
    let home = image(options);
    let path = home.path().join("a.img");
    for number in 0..20 {
        assert_eq!(run(home.path(), &format!("mkdir a.img /dir/{number}")).status, 0);
    }
    let file = File::options().read(true).write(true).open(&path).unwrap();
    for number in 0..8 {
        let dump = run(home.path(), &format!("dump a.img inode /dir/{number} --json")).out;
        let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
        let at = dump["block"].as_u64().unwrap() * 4096 + dump["offset"].as_u64().unwrap();
        // The link count and the fields next to it, in both formats.
        file.write_all_at(&[random.u8(..)], at + random.u64(16..28)).unwrap();
    }
    read_image(&path).unwrap()
}

/// An undo file, and its durable length before each event of the image.
#[derive(Clone)]
struct Sink {
    bytes: Arc<Mutex<Vec<u8>>>,
    durable: Arc<Mutex<Vec<(usize, usize)>>>,
    image: Arc<RecordingDevice>,
}

impl UndoSink for Sink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.lock().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let durable = (self.image.event_count(), self.bytes.lock().len());
        self.durable.lock().push(durable);
        Ok(())
    }
}

/// Asserts that an image can be repaired, and that the external checkers agree.
fn assert_repairable(is_xfs: bool, state: MemoryDevice, is_judged: bool) {
    let state = Arc::new(state);
    let plan = plan(is_xfs, state.clone());
    write_in_place(&*state, &plan.steps, &mut |_, _| true).unwrap();
    let (found, summary) = check(is_xfs, state.clone());
    assert!(found.is_empty() && summary.is_complete, "{found:?}");
    if is_judged {
        testkit::show_image(&state, |path| judge(path));
    }
}

#[test]
fn a_crashed_repair_in_place_can_be_undone_or_continued() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for (options, is_xfs) in [(FORMATS[0], false), (FORMATS[1], true)] {
        let mut random = fastrand::Rng::with_seed(17);
        let start = damaged(options, &mut random);
        let before = all(&start);
        let image = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
        let sink = Sink { bytes: Arc::default(), durable: Arc::default(), image: image.clone() };
        let plan = plan(is_xfs, image.clone());
        assert!(!plan.steps.is_empty(), "nothing was damaged");
        let kept = UndoDevice::begin(image.clone(), Box::new(sink.clone())).unwrap();
        kept.save(pages_of(&plan.steps)).unwrap();
        write_in_place(&kept, &plan.steps, &mut |_, _| true).unwrap();
        let events = image.take();
        let (undo, durable) = (sink.bytes.lock().clone(), sink.durable.lock().clone());
        for number in 0..effort(12, 50, 2_000) {
            let end = random.usize(..=events.len());
            let state = cut_off(&start, &events, end, &mut random);
            let of_undo = durable.iter().take_while(|(at, _)| *at <= end).last();
            let undo = &undo[..of_undo.map_or(0, |(_, len)| *len)];
            // The restore is also interrupted and repeated.
            let restored = Arc::new(RecordingDevice::new(Arc::new(state.fork())));
            restore(&*restored, undo).unwrap();
            assert!(has_contents(&*restored, &before), "state {number} is not brought back");
            let steps = restored.take();
            let again = cut_off(&state, &steps, random.usize(..=steps.len()), &mut random);
            restore(&again, undo).unwrap();
            assert!(
                has_contents(&again, &before),
                "state {number} is not brought back after a crash"
            );
            assert_repairable(is_xfs, state, number % 4 == 0);
        }
    }
}

#[test]
fn a_crashed_repair_through_the_log_can_be_continued() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let mut random = fastrand::Rng::with_seed(18);
    let start = damaged(FORMATS[0], &mut random);
    let plan = plan(false, Arc::new(start.fork()));
    let image = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
    let writer = ext4::repair::open_log(image.clone()).unwrap().expect("a journal");
    assert!(fits(&*writer, &plan.steps));
    write_through_log(image.clone(), writer, &plan.steps, &mut |_, _| true).unwrap();
    let (found, _) = check(false, image.clone());
    assert!(found.is_empty(), "{found:?}");
    let events = image.take();
    for number in 0..effort(12, 50, 2_000) {
        let end = random.usize(..=events.len());
        let state = cut_off(&start, &events, end, &mut random);
        assert_repairable(false, state, number % 4 == 0);
    }
}
