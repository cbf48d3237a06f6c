//! Requests about names, on both formats.

use crate::common;

use common::{Caller, NewImage, S_IFREG, on_both};
use fuse::{OnDamage, Options};
use linux::abi::{Attr, EntryOut, ForgetOne, OpenOut, ROOT_ID, SetattrIn};
use linux::{Errno, Operation};
use zerocopy::FromBytes;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

/// A validity so long that the kernel need not ask again.
const LONG_SEC: u64 = 300_000_000;

#[test]
fn names_are_found_and_missing_names_are_cached() {
    on_both(|image| {
        let caller = Caller::new(image);
        let made = caller.create(ROOT_ID, "file");
        assert!(made.nodeid > 1 && made.attr.ino == made.nodeid && made.attr.nlink == 1);
        // The kernel must ask again for the space of a file that was empty.
        assert!(made.entry_valid > LONG_SEC && made.attr_valid <= 1);
        assert!(caller.mkdir(ROOT_ID, "dir", 0o755).unwrap().attr_valid > LONG_SEC);
        assert_eq!(caller.lookup(ROOT_ID, "file"), Ok(made));
        let absent = caller.lookup(ROOT_ID, "absent").unwrap();
        assert_eq!(absent.nodeid, 0);
        assert!(absent.entry_valid > LONG_SEC);
        assert_eq!(caller.mknod(ROOT_ID, "file", S_IFREG, 0), Err(Errno::EXIST));
        assert_eq!(caller.lookup(made.nodeid, "x").err(), Some(Errno::NOTDIR));
    });
}

#[test]
fn dots_are_found_from_any_node() {
    on_both(|image| {
        let caller = Caller::new(image);
        let dir = caller.mkdir(ROOT_ID, "dir", 0o755).unwrap();
        let below = caller.mkdir(dir.nodeid, "below", 0o755).unwrap();
        let file = caller.create(below.nodeid, "file");
        assert_eq!(caller.lookup(file.nodeid, ".").unwrap(), file);
        assert_eq!(caller.lookup(below.nodeid, "..").unwrap().nodeid, dir.nodeid);
        let root = caller.lookup(dir.nodeid, "..").unwrap();
        assert_eq!((root.nodeid, root.generation), (ROOT_ID, 0));
        assert_eq!(root.attr.ino, image.fs().root().0);
        assert_eq!(caller.lookup(file.nodeid, "..").err(), Some(Errno::NOTDIR));

        // First not known any more, then not existing any more.
        caller.forget(file.nodeid, 2);
        assert_eq!(caller.lookup(file.nodeid, ".").unwrap(), file);
        caller.forget(file.nodeid, 1);
        caller.unlink(below.nodeid, "file").unwrap();
        for name in [".", ".."] {
            assert_eq!(caller.lookup(file.nodeid, name).err(), Some(Errno::NOENT), "{name}");
        }
        for nodeid in [0, u64::MAX, 1 << 40] {
            assert!(caller.lookup(nodeid, ".").is_err(), "{nodeid}");
        }
        // The file system's internal inodes are not accessible: journal and orphan file, bitmap and summary.
        let own =
            if image.name == "ext4" { [8, 12] } else { [root.attr.ino + 1, root.attr.ino + 2] };
        for nodeid in own {
            assert!(image.fs().attributes(vfs::Ino(nodeid)).is_ok(), "{nodeid}");
            assert_eq!(caller.lookup(nodeid, ".").err(), Some(Errno::NOENT), "{nodeid}");
        }
    });
}

#[test]
fn an_unlinked_inode_stays_until_it_is_forgotten() {
    on_both(|image| {
        let caller = Caller::new(image);
        caller.create(ROOT_ID, "other");
        let free = caller.inodes_free();
        let file = caller.create(ROOT_ID, "file");
        assert_eq!(caller.lookup(ROOT_ID, "file").unwrap().nodeid, file.nodeid);
        caller.unlink(ROOT_ID, "file").unwrap();
        assert_eq!(caller.attr(file.nodeid).unwrap().nlink, 0);
        let others: Vec<_> = (0..40).map(|i| caller.create(ROOT_ID, &format!("n{i}"))).collect();
        assert!(others.iter().all(|other| other.nodeid != file.nodeid));
        // It was looked up twice.
        caller.forget(file.nodeid, 1);
        assert_eq!(caller.attr(file.nodeid).unwrap().nlink, 0);
        caller.forget(file.nodeid, 1);
        assert_eq!(caller.attr(file.nodeid).err(), Some(Errno::NOENT));

        // Now the number is free, and is reused with another generation.
        let reused: Vec<_> = (0..400).map(|i| caller.create(ROOT_ID, &format!("m{i}"))).collect();
        let reused = reused.into_iter().find(|new| new.nodeid == file.nodeid);
        assert_ne!(reused.expect("the number comes back").generation, file.generation);
        for (prefix, count) in [("n", 40), ("m", 400)] {
            for i in 0..count {
                caller.unlink(ROOT_ID, &format!("{prefix}{i}")).unwrap();
            }
        }
        // The kernel disconnects without forgetting.
        caller.adapter.finish().unwrap();
        assert_eq!(caller.inodes_free(), free);
        assert_eq!(caller.attr(others[0].nodeid).err(), Some(Errno::NOENT));
    });
}

#[test]
fn forgetting_too_much_does_no_harm() {
    on_both(|image| {
        let caller = Caller::new(image);
        let root = caller.attr(ROOT_ID).unwrap();
        let file = caller.create(ROOT_ID, "file");
        caller.forget(file.nodeid, u64::MAX);
        caller.forget(file.nodeid, 1);
        caller.forget(ROOT_ID, 5);
        caller.forget(0, 1);
        caller.forget(1 << 50, 1);
        assert_eq!(caller.lookup(ROOT_ID, "file").unwrap(), file);
        let dir = caller.mkdir(ROOT_ID, "dir", 0o700).unwrap();
        caller.unlink(ROOT_ID, "file").unwrap();
        caller.rmdir(ROOT_ID, "dir").unwrap();
        let nodes = [file.nodeid, ROOT_ID, 77_777, dir.nodeid]
            .map(|nodeid| ForgetOne { nodeid, nlookup: 1 });
        caller.ask(0, Operation::BatchForget { nodes: &nodes }).unwrap();
        assert_eq!(caller.attr(file.nodeid).err(), Some(Errno::NOENT));
        assert_eq!(caller.attr(dir.nodeid).err(), Some(Errno::NOENT));
        assert_eq!(caller.attr(ROOT_ID).unwrap().nlink, root.nlink);
    });
}

#[test]
fn dropping_the_adapter_frees_unlinked_files() {
    on_both(|image| {
        let caller = Caller::new(image);
        let free = {
            caller.create(ROOT_ID, "keep");
            caller.inodes_free()
        };
        caller.create(ROOT_ID, "file");
        caller.unlink(ROOT_ID, "file").unwrap();
        caller.tmpfile(ROOT_ID, 0o600).unwrap();
        assert!(caller.inodes_free() < free);
        drop(caller);
        assert_eq!(Caller::new(image).inodes_free(), free);
    });
}

#[test]
fn special_files_keep_their_kind_and_number() {
    on_both(|image| {
        let caller = Caller::new(image);
        // 8:1, 259:7, 3:262085, whose minor number has both parts, and nothing.
        for (number, rdev) in [0x801, 0x1_0307, 0x3ff0_03c5, 0].into_iter().enumerate() {
            for (kind, mode) in [("c", 0o020_640), ("b", 0o060_600)] {
                let name = format!("{kind}{number}");
                let made = caller.mknod(ROOT_ID, &name, mode, rdev).unwrap();
                assert_eq!((made.attr.mode, made.attr.rdev), (mode, rdev));
                assert_eq!(caller.attr(made.nodeid).unwrap(), made.attr);
            }
        }
        // XFS has fewer bits.
        let largest = caller.mknod(ROOT_ID, "largest", 0o020_600, u32::MAX);
        match image.name {
            "ext4" => assert_eq!(largest.unwrap().attr.rdev, u32::MAX),
            _ => assert_eq!(largest, Err(Errno::INVAL)),
        }
        for (name, mode) in [("fifo", 0o010_622), ("socket", 0o140_755), ("file", 0o107_777)] {
            let made = caller.mknod(ROOT_ID, name, mode, 0x801).unwrap();
            assert_eq!((made.attr.mode, made.attr.rdev), (mode, 0), "{name}");
        }
        for mode in [0o040_755, 0o120_777, 0o777, 0o170_000] {
            assert_eq!(caller.mknod(ROOT_ID, "no", mode, 0).err(), Some(Errno::INVAL), "{mode:o}");
        }
        assert_eq!(caller.find(ROOT_ID, "no"), None);
    });
}

#[test]
fn links_have_the_given_targets() {
    on_both(|image| {
        let caller = Caller { umask: 0o77, ..Caller::new(image) };
        let target = "far/../away".repeat(20);
        let link = caller.symlink(ROOT_ID, "link", &target).unwrap();
        assert_eq!((link.attr.mode, link.attr.size), (0o120_777, target.len() as u64));
        assert_eq!(caller.ask(link.nodeid, Operation::Readlink).unwrap(), target.as_bytes());
        assert_eq!(caller.ask(ROOT_ID, Operation::Readlink), Err(Errno::INVAL));

        let file = caller.create(ROOT_ID, "file");
        let dir = caller.mkdir(ROOT_ID, "dir", 0o755).unwrap();
        let second = caller.link(file.nodeid, dir.nodeid, "second").unwrap();
        assert_eq!((second.nodeid, second.attr.nlink), (file.nodeid, 2));
        assert_eq!(caller.link(file.nodeid, dir.nodeid, "second"), Err(Errno::EXIST));
        caller.forget(file.nodeid, 1);
        for (dir, name) in [(ROOT_ID, "file"), (dir.nodeid, "second")] {
            caller.unlink(dir, name).unwrap();
            assert!(caller.attr(file.nodeid).is_ok());
        }
        // The answer to LINK counted as well.
        caller.forget(file.nodeid, 1);
        assert_eq!(caller.attr(file.nodeid).err(), Some(Errno::NOENT));
        assert!(caller.link(file.nodeid, ROOT_ID, "back").is_err());
    });
}

#[test]
fn a_file_without_a_name_may_get_one() {
    on_both(|image| {
        let caller = Caller { uid: 7, gid: 8, umask: 0o27, ..Caller::new(image) };
        let free = caller.inodes_free();
        let args =
            linux::abi::CreateIn { flags: 0, mode: S_IFREG | 0o666, umask: 0o27, open_flags: 0 };
        let answer = caller.ask(ROOT_ID, Operation::Tmpfile { args }).unwrap();
        let (file, open) = EntryOut::read_from_prefix(&answer).unwrap();
        let open = OpenOut::read_from_bytes(open).unwrap();
        assert_eq!((open.fh, open.open_flags), (0, linux::abi::FOPEN_KEEP_CACHE));
        let Attr { nlink: 0, mode: 0o100_640, uid: 7, gid: 8, .. } = file.attr else {
            panic!("{:?}", file.attr);
        };
        let named = caller.link(file.nodeid, ROOT_ID, "named").unwrap();
        assert_eq!((named.nodeid, named.attr.nlink), (file.nodeid, 1));
        caller.forget(file.nodeid, 2);
        assert_eq!(caller.find(ROOT_ID, "named"), Some(file.nodeid));

        let nameless = caller.tmpfile(ROOT_ID, 0o600).unwrap();
        caller.forget(nameless.nodeid, 1);
        assert_eq!(caller.attr(nameless.nodeid).err(), Some(Errno::NOENT));
        caller.unlink(ROOT_ID, "named").unwrap();
        assert_eq!(caller.inodes_free(), free);
    });
}

#[test]
fn renaming_obeys_its_flags() {
    on_both(|image| {
        let caller = Caller::new(image);
        let [a, b] = ["a", "b"].map(|name| caller.create(ROOT_ID, name).nodeid);
        let dir = caller.mkdir(ROOT_ID, "dir", 0o755).unwrap().nodeid;
        let at_root = |name| (ROOT_ID, name);
        let rename = |from, to, flags| caller.rename(from, to, flags);

        assert_eq!(rename(at_root("a"), at_root("b"), RENAME_NOREPLACE), Err(Errno::EXIST));
        assert_eq!(rename(at_root("a"), at_root("x"), RENAME_EXCHANGE), Err(Errno::NOENT));
        let no_place = RENAME_WHITEOUT | RENAME_EXCHANGE;
        for flags in [no_place, RENAME_NOREPLACE | RENAME_EXCHANGE, 8, u32::MAX] {
            assert_eq!(rename(at_root("a"), at_root("x"), flags), Err(Errno::INVAL), "{flags}");
        }
        rename(at_root("a"), at_root("b"), RENAME_EXCHANGE).unwrap();
        assert_eq!([caller.find(ROOT_ID, "a"), caller.find(ROOT_ID, "b")], [Some(b), Some(a)]);
        rename(at_root("a"), (dir, "a"), RENAME_NOREPLACE).unwrap();
        assert_eq!([caller.find(ROOT_ID, "a"), caller.find(dir, "a")], [None, Some(b)]);
        assert_eq!(rename(at_root("b"), at_root("dir"), 0), Err(Errno::ISDIR));
        assert_eq!(rename(at_root("dir"), (dir, "in"), 0), Err(Errno::INVAL));

        rename(at_root("b"), (dir, "a"), 0).unwrap();
        assert_eq!(caller.find(dir, "a"), Some(a));
        assert_eq!(caller.attr(b).unwrap().nlink, 0, "what was replaced lives on");
        caller.forget(b, 1);
        assert_eq!(caller.attr(b).err(), Some(Errno::NOENT));
        assert_eq!(caller.rmdir(ROOT_ID, "dir"), Err(Errno::NOTEMPTY));
        assert_eq!(caller.unlink(ROOT_ID, "dir"), Err(Errno::ISDIR));
        assert_eq!(caller.rmdir(dir, "a"), Err(Errno::NOTDIR));
    });
}

#[test]
fn a_whiteout_belongs_to_its_creator() {
    on_both(|image| {
        let caller = Caller { uid: 7, gid: 8, umask: 0o77, ..Caller::new(image) };
        let file = caller.create(ROOT_ID, "file").nodeid;
        let free = caller.inodes_free();
        caller.rename((ROOT_ID, "file"), (ROOT_ID, "moved"), RENAME_WHITEOUT).unwrap();
        assert_eq!(caller.inodes_free(), free - 1);
        assert_eq!(caller.find(ROOT_ID, "moved"), Some(file));
        let Attr { mode: 0o020_000, rdev: 0, nlink: 1, uid: 7, gid: 8, .. } =
            caller.lookup(ROOT_ID, "file").unwrap().attr
        else {
            panic!("no whiteout");
        };
        let refused = caller.rename((ROOT_ID, "none"), (ROOT_ID, "x"), RENAME_WHITEOUT);
        assert_eq!(refused, Err(Errno::NOENT));
        assert_eq!(caller.inodes_free(), free - 1, "what failed leaves none");
    });
}

#[test]
fn names_end_at_255_bytes() {
    on_both(|image| {
        let caller = Caller::new(image);
        let (long, longer) = ("n".repeat(255), "n".repeat(256));
        let file = caller.create(ROOT_ID, &long);
        assert_eq!(caller.lookup(ROOT_ID, &long).unwrap(), file);
        let too_long = |outcome: Result<(), Errno>| assert_eq!(outcome, Err(Errno::NAMETOOLONG));
        too_long(caller.lookup(ROOT_ID, &longer).map(drop));
        too_long(caller.mknod(ROOT_ID, &longer, S_IFREG, 0).map(drop));
        too_long(caller.mkdir(ROOT_ID, &longer, 0).map(drop));
        too_long(caller.symlink(ROOT_ID, &longer, "x").map(drop));
        too_long(caller.link(file.nodeid, ROOT_ID, &longer).map(drop));
        too_long(caller.unlink(ROOT_ID, &longer));
        too_long(caller.rmdir(ROOT_ID, &longer));
        too_long(caller.rename((ROOT_ID, &long), (ROOT_ID, &longer), 0));
    });
}

#[test]
fn nothing_changes_where_nothing_may() {
    on_both(|image| {
        let before = Caller::new(image);
        let dir = before.mkdir(ROOT_ID, "dir", 0o755).unwrap().nodeid;
        let file = before.create(dir, "file").nodeid;
        let attr = before.attr(file).unwrap();

        let caller = Caller::with(image, Options { read_only: true, ..Options::default() });
        let refused = |outcome: Result<(), Errno>| assert_eq!(outcome, Err(Errno::ROFS));
        refused(caller.mknod(dir, "new", S_IFREG, 0).map(drop));
        refused(caller.mkdir(dir, "new", 0).map(drop));
        refused(caller.symlink(dir, "new", "x").map(drop));
        refused(caller.tmpfile(dir, 0).map(drop));
        refused(caller.link(file, dir, "new").map(drop));
        refused(caller.unlink(dir, "file"));
        refused(caller.rmdir(ROOT_ID, "dir"));
        refused(caller.rename((dir, "file"), (dir, "new"), 0));
        let touch = SetattrIn { valid: linux::abi::FATTR_MTIME_NOW, ..SetattrIn::default() };
        refused(caller.setattr(file, touch).map(drop));
        let nothing = SetattrIn { valid: linux::abi::FATTR_FH, ..SetattrIn::default() };
        assert_eq!(caller.setattr(file, nothing), Ok(attr));
        assert_eq!(caller.find(dir, "file"), Some(file));
        assert_eq!(caller.attr(file), Ok(attr));
    });
}

#[test]
fn an_answer_without_room_leaves_no_trace() {
    on_both(|image| {
        let caller = Caller::new(image);
        caller.create(ROOT_ID, "kept");
        let free = caller.inodes_free();
        let name = b"file";
        let mknod = linux::abi::MknodIn { mode: S_IFREG, ..Default::default() };
        let operations = [
            Operation::Mknod { args: mknod, name },
            Operation::Mkdir { args: Default::default(), name },
            Operation::Symlink { name, target: b"x" },
            Operation::Tmpfile { args: Default::default() },
        ];
        for operation in operations {
            for room in [0, 100, size_of::<EntryOut>() - 1] {
                let refused = caller.ask_with_room(ROOT_ID, operation, room);
                assert_eq!(refused, Err(Errno::IO), "{operation:?}");
            }
            assert_eq!(caller.inodes_free(), free, "{operation:?}");
        }
        let room = size_of::<EntryOut>();
        let half =
            caller.ask_with_room(ROOT_ID, Operation::Tmpfile { args: Default::default() }, room);
        assert_eq!(half, Err(Errno::IO));
        let lookup = Operation::Lookup { name: b"kept" };
        assert_eq!(caller.ask_with_room(ROOT_ID, lookup, 10), Err(Errno::IO));
        assert_eq!(caller.inodes_free(), free);
    });
}

/// Each thread has a directory, as if it held its lock, and all add names to one file.
#[test]
fn many_threads_name_and_forget_one_file() {
    const THREADS: usize = 4;
    on_both(|image| {
        let caller = Caller::new(image);
        let free = caller.inodes_free();
        let shared = caller.tmpfile(ROOT_ID, 0o644).unwrap().nodeid;
        let dirs: Vec<_> = (0..THREADS)
            .map(|i| caller.mkdir(ROOT_ID, &format!("d{i}"), 0o755).unwrap().nodeid)
            .collect();
        std::thread::scope(|scope| {
            for &dir in &dirs {
                let caller = &caller;
                scope.spawn(move || {
                    for round in 0..300 {
                        caller.link(shared, dir, "shared").unwrap();
                        assert_eq!(caller.find(dir, "shared"), Some(shared));
                        let own = caller.create(dir, "own").nodeid;
                        caller.unlink(dir, "own").unwrap();
                        assert_eq!(caller.attr(own).unwrap().nlink, 0, "round {round}");
                        caller.unlink(dir, "shared").unwrap();
                        caller.forget(own, 1);
                        caller.forget(shared, 1);
                        assert!(caller.attr(shared).is_ok());
                    }
                });
            }
        });
        assert_eq!(caller.attr(shared).unwrap().nlink, 0);
        caller.forget(shared, 1);
        assert_eq!(caller.attr(shared).err(), Some(Errno::NOENT));
        for (i, dir) in dirs.into_iter().enumerate() {
            caller.rmdir(ROOT_ID, &format!("d{i}")).unwrap();
            caller.forget(dir, 1);
        }
        assert_eq!(caller.inodes_free(), free);
    });
}

#[test]
fn a_name_that_leads_to_no_file_is_damage() {
    testkit::require!(Tool("debugfs"));
    for (request, on_damage, expected) in [
        ("clri lost", OnDamage::ReadOnly, Err(Errno::ROFS)),
        ("clri lost", OnDamage::Continue, Ok(())),
        // The journal, and the resize inode.
        ("link <8> found", OnDamage::ReadOnly, Err(Errno::ROFS)),
        ("link <7> found", OnDamage::Continue, Ok(())),
    ] {
        let image = NewImage::ext4();
        let caller = Caller::new(&image);
        caller.create(ROOT_ID, "lost");
        drop(caller);
        let image = image.changed_by_debugfs(request);
        let caller = Caller::with(&image, Options { on_damage, ..Options::default() });
        assert!(!caller.adapter.is_damaged());
        for _ in 0..2 {
            let name = if request.contains("lost") { "lost" } else { "found" };
            assert_eq!(caller.lookup(ROOT_ID, name), Err(Errno::UCLEAN), "{request}");
            assert!(caller.adapter.is_damaged());
        }
        assert_eq!(caller.mkdir(ROOT_ID, "dir", 0o755).map(drop), expected);
    }
}

#[test]
fn names_that_fold_are_asked_for_each_time() {
    let image = NewImage::xfs_with("ascii-ci");
    let caller = Caller::new(&image);
    let made = caller.mkdir(ROOT_ID, "Name", 0o755).unwrap();
    let other = caller.lookup(ROOT_ID, "nAME").unwrap();
    assert_eq!((made.entry_valid, other.entry_valid), (0, 0));
    assert_eq!(other.nodeid, made.nodeid);
    assert!(other.attr_valid > LONG_SEC);
    assert_eq!(caller.lookup(ROOT_ID, "nobody").unwrap(), EntryOut::default());
}
