//! Kernel file systems: mounted, used, unmounted, and sound.

use std::fs;
use std::path::Path;

use bench::contestant::{Contestant, Session};
use bench::environments::{FsSpec, Kernel, TargetSpec};
use bench::target::{Host, InProcess, Target};
use bench::{Error, with_target};
use testkit::model::Model;
use testkit::require;
use vfs::FileSystem;

use super::NEED;
use super::driver::{drive, snapshot};
use super::traces::{assert_no_trace, assert_no_trace_at_last, loop_devices};

pub(crate) fn spec(text: &str) -> FsSpec {
    match text.parse().unwrap() {
        TargetSpec::Kernel(spec) => spec,
        other => panic!("{other}"),
    }
}

fn host(session: &dyn Session) -> &Host {
    match session.target() {
        bench::contestant::AnyTarget::Host(host) => host,
        bench::contestant::AnyTarget::InProcess(_) => panic!("not in this process"),
    }
}

/// Runs operations on a target and on the reference model, and checks the image afterwards.
fn works(target: &str) {
    let (scratch, results) = (testkit::scratch(), testkit::scratch());
    let image = results.path().join("image");
    let kernel = Kernel::new(spec(target), None, scratch.path()).keep_image(&image);
    let mut session = kernel.start(&NEED).unwrap();
    let model = Model::new();
    let in_process = InProcess::new(&model, model.root());
    let expected = drive(&in_process, 11, 4000);
    let found = with_target!(session.target(), target => drive(target, 11, 4000));
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected, found, "{target}");
    }
    let expected = snapshot(&in_process);
    assert!(expected == snapshot(host(&*session)), "{target}: the trees differ");
    session.drop_caches().unwrap();
    assert!(expected == snapshot(host(&*session)), "{target}: the trees differ on the image");
    assert_eq!(session.size(), fs::metadata(&image).unwrap().len());
    assert_eq!(loop_devices(results.path()).len(), 1);
    session.finish().unwrap();
    assert_no_trace(scratch.path());
    assert_eq!(loop_devices(results.path()), [""; 0]);
    testkit::judge(&image);
}

#[test]
fn ext4_is_mounted_worked_on_and_sound() {
    require!(Tool("e2fsck"), Mount("ext4"));
    works("kernel:ext4");
    works("kernel:ext4,^orphan_file");
}

#[test]
fn xfs_is_mounted_worked_on_and_sound() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    works("kernel:xfs");
    works("kernel:xfs,^parent");
}

#[test]
fn nothing_has_a_name_while_it_is_mounted() {
    require!(Mount("xfs"), Mount("ext4"));
    for target in ["kernel:ext4", "kernel:xfs"] {
        let scratch = testkit::scratch();
        let kernel = Kernel::new(spec(target), None, scratch.path());
        let session = kernel.start(&NEED).unwrap();
        // Several images with the same UUID can be mounted at once.
        let second = kernel.start(&NEED).unwrap();
        assert_eq!(loop_devices(scratch.path()).len(), 2);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(&scratch.path().display().to_string()), "{mounts}");
        // After an error, a session is dropped without being finished.
        drop(second);
        assert_eq!(loop_devices(scratch.path()).len(), 1);
        session.finish().unwrap();
        assert_no_trace(scratch.path());
    }
}

#[test]
fn caches_are_not_dropped_under_open_files() {
    require!(Mount("ext4"));
    let scratch = testkit::scratch();
    let kernel = Kernel::new(spec("kernel:ext4"), None, scratch.path());
    let mut session = kernel.start(&NEED).unwrap();
    let top = host(&*session).top().unwrap();
    let error = session.drop_caches().unwrap_err();
    assert!(matches!(&error, Error::Host { source, .. } if source.raw_os_error() == Some(16)));
    // From here on operations fail, instead of acting on another directory.
    assert!(host(&*session).top().is_err());
    drop(session);
    assert_eq!(loop_devices(scratch.path()).len(), 1);
    drop(top);
    assert_no_trace_at_last(scratch.path());
}

#[test]
fn what_cannot_be_had_is_told() {
    require!(Mount("ext4"));
    let refusal = |scratch: &Path, need| {
        Kernel::new(spec("kernel:ext4"), None, scratch).start(need).err().expect("it is refused")
    };
    let scratch = testkit::scratch();
    let missing = refusal(&scratch.path().join("missing"), &NEED);
    assert!(matches!(&missing, Error::Host { source, .. } if source.raw_os_error() == Some(2)));
    let existing = bench::contestant::Need { existing: true, ..NEED };
    assert!(matches!(refusal(scratch.path(), &existing), Error::Unsupported(_)));
    let large = bench::contestant::Need { bytes: 1 << 42, ..NEED };
    let full = refusal(scratch.path(), &large);
    assert!(matches!(&full, Error::Unsupported(why) if why.contains("too little")), "{full}");
    let nothing = refusal(Path::new("/"), &NEED);
    assert!(
        matches!(&nothing, Error::Unsupported(why) if why.contains("mounted over")),
        "{nothing}"
    );
    assert_no_trace(scratch.path());
}

#[test]
fn a_report_tells_the_kernel_and_the_features() {
    let described = Kernel::new(spec("kernel:xfs,^parent"), None, "/dev/shm").describe();
    assert_eq!(described.name, "kernel:xfs,^parent");
    assert!(described.what.starts_with("xfs of Linux "), "{}", described.what);
    assert!(described.features.contains("crc") && !described.features.contains("parent"));
    assert!(!described.remarks.is_empty());
}
