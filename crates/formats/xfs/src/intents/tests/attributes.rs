//! Intents about attributes and parent pointers.

use operations::RunOperations;
use std::fs::File;
use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};
use testkit::require;
use vfs::{Error, FileSystem, Ino};

use super::{Crash, next_id};
use crate::format::log::intent::{AttributeChange, AttributeWork, Intent, ParentLink};
use crate::inode::Handle;
use crate::xattr::parent::NamedLink;

/// Makes a file with attributes of all sizes, and files whose parent pointers are in the inode, in a leaf and in a
/// tree.
fn fill(root: &Path) {
    for name in ["attributes", "few", "some", "many"] {
        File::create(root.join(name)).unwrap();
    }
    let set = |name: &str, len: usize| {
        let file = root.join("attributes");
        setxattr(&file, name, &vec![b'v'; len], XattrFlags::empty()).unwrap();
    };
    (0..40).for_each(|at| set(&format!("user.attribute{at}"), at * 20));
    set("user.large", 20_000);
    set("trusted.large", 9000);
    for at in 0..400 {
        std::fs::hard_link(root.join("many"), root.join(format!("link{at}"))).unwrap();
    }
    for at in 0..30 {
        std::fs::hard_link(root.join("some"), root.join(format!("name{at}"))).unwrap();
    }
}

fn intent(handle: &Handle, work: AttributeWork) -> Intent {
    let generation = handle.inode.generation();
    Intent::attribute(next_id(), &AttributeChange { ino: handle.ino(), generation, work })
}

fn parent(crash: &Crash, name: &str) -> ParentLink {
    let root = crash.fs.root_ino();
    let generation = crash.fs.load(root).unwrap().inode.generation();
    ParentLink { dir: root, generation, name: name.into() }
}

fn link(link: &ParentLink) -> NamedLink<'_> {
    NamedLink { dir: link.dir, generation: link.generation, name: &link.name }
}

#[test]
fn parent_pointers_come_and_go() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for name in ["few", "many"] {
        let crash = Crash::new("-n parent=1", fill);
        let file = crash.handle(name);
        let there = parent(&crash, if name == "few" { "few" } else { "link77" });
        let ghost = parent(&crash, "a name that is not there");
        crash.judge(|op| {
            let mut file = file.clone();
            op.remove_parent(&mut file, link(&there))?;
            op.add_parent(&mut file, link(&ghost))?;
            let intents = vec![
                intent(&file, AttributeWork::ParentSet(there.clone())),
                intent(&file, AttributeWork::ParentRemove(ghost.clone())),
            ];
            op.stage(file);
            Ok(intents)
        });
    }
}

#[test]
fn parent_pointers_are_replaced() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for name in ["few", "many"] {
        for other in ["no", "a name that is longer than the one it was"] {
            let crash = Crash::new("-n parent=1", fill);
            let file = crash.handle(name);
            let there = parent(&crash, if name == "few" { "few" } else { "link99" });
            let ghost = parent(&crash, other);
            crash.judge(|op| {
                let mut file = file.clone();
                op.replace_parent(&mut file, link(&there), link(&ghost))?;
                let work = AttributeWork::ParentReplace { old: ghost.clone(), new: there.clone() };
                let intents = vec![intent(&file, work)];
                op.stage(file);
                Ok(intents)
            });
        }
    }
}

/// For attributes in blocks, the kernel first marks the old one incomplete, then removes it, and then adds the new one.
/// A crash may come in between.
#[test]
fn parent_pointers_that_do_not_count_any_more_are_replaced() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for (name, there) in [("some", "name7"), ("many", "link99")] {
        let crash = Crash::new("-n parent=1", fill);
        let file = crash.handle(name);
        // The entry in the directory gives the expected final state.
        let (old, new) = (parent(&crash, "a name that is not there"), parent(&crash, there));
        crash.judge(|op| {
            let mut file = file.clone();
            op.replace_parent(&mut file, link(&new), link(&old))?;
            op.mark_parent_incomplete(&file, &link(&old))?;
            let work = AttributeWork::ParentReplace { old: old.clone(), new: new.clone() };
            let intents = vec![intent(&file, work)];
            op.stage(file);
            Ok(intents)
        });
    }
}

#[test]
fn parent_pointers_that_do_not_count_are_set_and_removed() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("-n parent=1", fill);
    let file = crash.handle("some");
    let there = parent(&crash, "name7");
    let ghost = parent(&crash, "a name that is not there");
    crash.judge(|op| {
        let mut file = file.clone();
        op.add_parent(&mut file, link(&ghost))?;
        op.mark_parent_incomplete(&file, &link(&there))?;
        op.mark_parent_incomplete(&file, &link(&ghost))?;
        let intents = vec![
            intent(&file, AttributeWork::ParentSet(there.clone())),
            intent(&file, AttributeWork::ParentRemove(ghost.clone())),
        ];
        op.stage(file);
        Ok(intents)
    });
}

#[test]
fn parent_pointers_that_are_there_already_stay() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::new("-n parent=1", fill);
    let (few, ghost) = (parent(&crash, "few"), parent(&crash, "ghost"));
    let file = crash.handle("few");
    let replace = |old: &ParentLink, new: &ParentLink| AttributeWork::ParentReplace {
        old: old.clone(),
        new: new.clone(),
    };
    let works = [
        AttributeWork::ParentSet(few.clone()),
        AttributeWork::ParentRemove(ghost.clone()),
        replace(&ghost, &few),
        replace(&few, &few),
    ];
    for work in works {
        crash.fs.finish_intents(vec![intent(&file, work)]).unwrap();
        assert_eq!(crash.handle("few").inode, file.inode);
    }
    let stale = AttributeChange {
        ino: file.ino(),
        generation: file.inode.generation() ^ 1,
        work: AttributeWork::ParentRemove(few),
    };
    let absent = AttributeChange { ino: Ino(file.ino().0 + 40), ..stale.clone() };
    for change in [stale, absent] {
        let outcome = crash.fs.finish_intents(vec![Intent::attribute(1, &change)]);
        assert!(matches!(outcome, Err(Error::Corrupt(_))), "{outcome:?}");
    }
    crash.fs.close().unwrap();
    testkit::xfs_repair(&crash.path);
}

#[test]
fn attributes_are_set_and_removed() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::with_logged_attributes("", fill);
    let (few, file) = (crash.handle("few"), crash.handle("attributes"));
    let set = |name: &[u8], len| AttributeWork::Set {
        namespace: 0,
        name: name.to_vec(),
        value: vec![b'n'; len],
    };
    crash.judge(|op| {
        let mut touched = few.clone();
        touched.inode.set_permissions(0o640);
        op.stage(touched);
        Ok(vec![
            intent(&few, set(b"new", 30)),
            intent(&few, set(b"empty", 0)),
            intent(&few, set(b"large", 30_000)),
            intent(&file, set(b"also new", 5000)),
            intent(&file, AttributeWork::Remove { namespace: 0, name: b"large".to_vec() }),
            intent(&file, AttributeWork::Remove { namespace: 0, name: b"attribute7".to_vec() }),
        ])
    });
}

#[test]
fn interrupted_attribute_changes_are_completed() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::with_logged_attributes("", fill);
    let file = crash.handle("attributes");
    crash.judge(|op| {
        op.mark_attr_incomplete(&file, (0, b"large"))?;
        op.mark_attr_incomplete(&file, (2, b"large"))?;
        let remove = |namespace| AttributeWork::Remove { namespace, name: b"large".to_vec() };
        Ok(vec![intent(&file, remove(0)), intent(&file, remove(2))])
    });
}

#[test]
fn an_incomplete_attribute_is_set_again() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let crash = Crash::with_logged_attributes("", fill);
    let file = crash.handle("attributes");
    let name = b"large".to_vec();
    let value = vec![b'w'; 10_000];
    crash.fs.atomically(|op| op.mark_attr_incomplete(&file, (0, b"large"))).unwrap();
    let hidden = crash.fs.get_xattr(file.ino(), b"user.large");
    assert!(matches!(hidden, Err(Error::NoAttribute)));
    let work = AttributeWork::Set { namespace: 0, name, value: value.clone() };
    crash.fs.finish_intents(vec![intent(&file, work)]).unwrap();
    assert_eq!(crash.fs.get_xattr(file.ino(), b"user.large").unwrap(), value);
    let before = file.inode.nblocks();
    // A large value was removed, and one of half its size added.
    assert_eq!(crash.handle("attributes").inode.nblocks(), before - 2);
    crash.fs.close().unwrap();
    testkit::xfs_repair(&crash.path);
}
