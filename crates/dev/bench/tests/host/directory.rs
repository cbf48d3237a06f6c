//! Directories of mounted file systems.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bench::contestant::{AnyTarget, Contestant, Need, Session};
use bench::environments::Directory;
use bench::target::{InProcess, Target};
use bench::{Error, with_target};
use testkit::model::Model;
use vfs::FileSystem;

use super::NEED;
use super::driver::{drive, snapshot};

const EXISTING: Need = Need { inodes: 0, bytes: 0, threads: 1, existing: true };

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn start(path: &Path, need: &Need) -> Box<dyn Session> {
    Directory::new(path, None).start(need).unwrap()
}

fn refusal(path: &Path, need: &Need) -> Error {
    Directory::new(path, None).start(need).err().expect("it is refused")
}

#[test]
fn operations_do_what_they_do_in_the_model() {
    let dir = testkit::scratch();
    for seed in 0..testkit::effort(2, 4, 100) {
        let model = Model::new();
        let in_process = InProcess::new(&model, model.root());
        let session = start(dir.path(), &NEED);
        let expected = drive(&in_process, seed, 4000);
        let found = with_target!(session.target(), target => drive(target, seed, 4000));
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected, found, "seed {seed}");
        }
        let expected = snapshot(&in_process);
        assert!(expected.len() > 20 && expected.values().any(|(_, data)| data.len() > 100_000));
        let found = with_target!(session.target(), target => snapshot(target));
        assert!(expected == found, "seed {seed}: the trees differ");
        session.finish().unwrap();
    }
}

#[test]
fn nothing_stays_after_success_or_an_error_or_a_panic() {
    let dir = testkit::scratch();
    fs::write(dir.path().join("somebody's"), "data").unwrap();
    let work = |session: &dyn Session| {
        with_target!(session.target(), target => drive(target, 7, 300));
        let made = names(dir.path());
        let prefix = format!("diskwright-workload-{}-", std::process::id());
        assert!(made.iter().any(|name| name.starts_with(&prefix)), "{made:?}");
    };
    let session = start(dir.path(), &NEED);
    work(&*session);
    session.finish().unwrap();
    assert_eq!(names(dir.path()), ["somebody's"]);

    let failing = || -> bench::Result<()> {
        let session = start(dir.path(), &NEED);
        work(&*session);
        Err(Error::Interrupted)
    };
    assert!(matches!(failing(), Err(Error::Interrupted)));
    assert_eq!(names(dir.path()), ["somebody's"]);

    let panicking = AssertUnwindSafe(|| {
        let session = start(dir.path(), &NEED);
        work(&*session);
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert_eq!(catch_unwind(panicking).unwrap_err().downcast_ref(), Some(&"on purpose"));
    assert_eq!(names(dir.path()), ["somebody's"]);
}

#[test]
fn runs_do_not_meet_and_leave_what_is_not_theirs() {
    let dir = testkit::scratch();
    let (first, second) = (start(dir.path(), &NEED), start(dir.path(), &NEED));
    assert_eq!(names(dir.path()).len(), 2);
    with_target!(first.target(), target => drive(target, 1, 300));
    assert!(with_target!(second.target(), target => snapshot(target)).is_empty());
    first.finish().unwrap();
    assert_eq!(names(dir.path()).len(), 1);
    second.finish().unwrap();
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn what_exists_is_worked_on_itself_and_stays() {
    let dir = testkit::scratch();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/file"), "contents").unwrap();
    let session = start(dir.path(), &EXISTING);
    let found = with_target!(session.target(), target => snapshot(target));
    assert_eq!(found["/sub/file"].1, b"contents");
    assert_eq!(names(dir.path()), ["sub"]);
    assert!(session.size() > 0);
    session.finish().unwrap();
    assert_eq!(names(&dir.path().join("sub")), ["file"]);
}

#[test]
fn what_cannot_be_had_is_told() {
    let dir = testkit::scratch();
    let missing = refusal(&dir.path().join("missing"), &NEED);
    assert!(matches!(&missing, Error::Host { source, .. } if source.raw_os_error() == Some(2)));
    fs::write(dir.path().join("file"), "").unwrap();
    let file = refusal(&dir.path().join("file"), &NEED);
    assert!(matches!(&file, Error::Unsupported(why) if why.contains("not a directory")), "{file}");
    let large = Need { bytes: u64::MAX, ..NEED };
    let full = refusal(dir.path(), &large);
    assert!(matches!(&full, Error::Unsupported(why) if why.contains("too little")), "{full}");
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn caches_are_dropped_or_the_reason_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = start(dir.path(), &NEED);
    let AnyTarget::Host(host) = session.target() else { panic!("system calls") };
    let top = host.top().unwrap();
    let file = host.create(&top, b"file", false).unwrap();
    host.write(&file, 0, &[7; 10_000]).unwrap();
    drop((file, top));
    let is_root = rustix::process::geteuid().is_root();
    let what = Directory::new(dir.path(), None).describe().what;
    match session.drop_caches() {
        Ok(()) => assert!(is_root),
        Err(Error::Unsupported(why)) if is_root => {
            // On a disk, root may lack the privilege for the switch: in a container.
            let reason = what.starts_with("tmpfs") || why.contains("Read-only");
            assert!(reason, "{what}: {why}");
        }
        Err(Error::Unsupported(why)) => assert!(why.contains("root"), "{why}"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(with_target!(session.target(), target => snapshot(target)).len(), 1);
}

#[test]
fn a_report_tells_the_file_system() {
    let described = Directory::new("/proc", Some("memory:ext4".into())).describe();
    assert_eq!(described.name, "/proc");
    assert!(described.what.starts_with("proc, mounted at /proc (rw"), "{}", described.what);
    assert_eq!(described.base.as_deref(), Some("memory:ext4"));
    assert!(described.remarks.iter().any(|remark| remark.contains("system calls of Linux")));
}
