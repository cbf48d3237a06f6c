//! A device that starts to fail during a change or a sync: nothing more is written, and the image is in the state after
//! a crash.

use std::sync::Arc;

use disk::{Access, Fault, FaultyDevice, MemoryDevice};
use vfs::{Error, FileSystem};

use super::failing::{ATTEMPTS_MAX, LIMIT, Scenario, all, furnished};
use super::{NEW, Trial, Watchdog};
use crate::crash::ModelSnapshot;
use crate::fs_tree::FsTree;

/// Lets the device fail from each write, and from each flush, of each operation and the following sync.
///
/// # Panics
/// If the operation is partially done, the sync reports success, more is written, or the image is not sound.
pub fn fail_writes(trial: &Trial<'_>) {
    let _watchdog = Watchdog::new(LIMIT, format!("failing writes of {}", trial.name));
    let image = furnished(trial);
    let mut failed = 0;
    for scenario in all(trial) {
        let states = states(trial, &scenario, &image);
        for access in [Access::Write, Access::Flush] {
            let number = (1..=ATTEMPTS_MAX).find(|&number| {
                let attempt = Attempt { trial, scenario: &scenario, access, number };
                !attempt.fails(&image, &states)
            });
            failed += number.unwrap_or_else(|| panic!("{access:?}s never come to an end")) - 1;
        }
    }
    assert!(failed > 200, "only {failed} writes and flushes failed");
}

/// Returns the states before and after an operation.
fn states(trial: &Trial<'_>, scenario: &Scenario, image: &MemoryDevice) -> [ModelSnapshot; 2] {
    let mounted = trial.open(Arc::new(image.fork()));
    let fs = mounted.file_system();
    let mut session = scenario.prepare(fs);
    let before = ModelSnapshot::of(fs, &session).unwrap();
    scenario.act(fs, &mut session).unwrap();
    [before, ModelSnapshot::of(fs, &session).unwrap()]
}

struct Attempt<'a> {
    trial: &'a Trial<'a>,
    scenario: &'a Scenario,
    access: Access,
    number: u64,
}

impl Attempt<'_> {
    fn what(&self) -> String {
        let Self { trial, scenario, access, number } = self;
        format!("{:?} of {}, {access:?}s from {number} on", scenario.operation, trial.name)
    }

    /// Returns whether anything failed, after a check of the image.
    fn fails(&self, image: &MemoryDevice, states: &[ModelSnapshot; 2]) -> bool {
        let what = self.what();
        let memory = Arc::new(image.fork());
        let device = Arc::new(FaultyDevice::new(memory.clone()));
        let mounted = self.trial.open(device.clone());
        let fs = mounted.file_system();
        let mut session = self.scenario.prepare(fs);
        fs.sync().unwrap();
        device.set(self.access, Fault::From(self.number));
        let outcome = self.scenario.act(fs, &mut session);
        let synced = fs.sync();
        if device.failures(self.access) == 0 {
            outcome.and(synced).unwrap_or_else(|error| panic!("{what}: {error}"));
            return false;
        }
        match &outcome {
            Ok(()) => {
                assert!(matches!(synced, Err(Error::Device(_))), "{what}: sync: {synced:?}");
                assert_stopped(fs, &device, &what);
            }
            Err(Error::Device(_)) => {
                assert_ended(fs, &device, &what);
                let shown = FsTree::of(fs).unwrap();
                self.check_shown(states, &shown);
            }
            Err(error) => panic!("{what}: {error}"),
        }
        device.set(self.access, Fault::Never);
        drop(mounted);
        self.judge(&memory, states);
        true
    }

    /// Checks that the state after a failed operation is the old one or the new one. If a request consists of several
    /// operations, those before the failed one have happened, so its file is partially changed.
    fn check_shown(&self, states: &[ModelSnapshot; 2], shown: &FsTree) {
        let what = self.what();
        let seen = match self.scenario.long_request() {
            Some(file) if self.trial.parts_long_requests => {
                let others = states.each_ref().map(|state| state.without(file));
                crate::crash::check(&others, &shown.filter(|path| path != file))
            }
            _ => crate::crash::check(states, shown),
        };
        seen.unwrap_or_else(|text| panic!("{what}: {text}"));
    }

    fn judge(&self, memory: &Arc<MemoryDevice>, states: &[ModelSnapshot; 2]) {
        let what = self.what();
        let again = self.trial.open(memory.clone());
        let found = FsTree::of(again.file_system()).unwrap();
        crate::crash::check(states, &found).unwrap_or_else(|text| panic!("{what}: {text}"));
        again.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        self.trial.check_alike(memory);
    }
}

/// Asserts that nothing can be changed, even if the device works again.
fn assert_ended(fs: &dyn FileSystem, device: &FaultyDevice, what: &str) {
    for access in [Access::Write, Access::Flush] {
        device.set(access, Fault::Never);
    }
    let refused = fs.create(fs.root(), b"late", &NEW);
    assert!(matches!(refused, Err(Error::Device(_))), "{what}: a late file: {refused:?}");
    let synced = fs.sync();
    assert!(matches!(synced, Err(Error::Device(_))), "{what}: a late sync: {synced:?}");
}

/// Asserts that nothing can be changed or written, even if the device works again.
fn assert_stopped(fs: &dyn FileSystem, device: &FaultyDevice, what: &str) {
    for access in [Access::Write, Access::Flush] {
        device.set(access, Fault::Never);
    }
    let refused = fs.create(fs.root(), b"late", &NEW);
    assert!(matches!(refused, Err(Error::Device(_))), "{what}: a late file: {refused:?}");
    let synced = fs.sync();
    assert!(matches!(synced, Err(Error::Device(_))), "{what}: a late sync: {synced:?}");
    assert_eq!(device.count(Access::Write), 0, "{what}: writes after a failure");
}
