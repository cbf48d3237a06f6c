//! Contents, listings and extended attributes through mounts, as in programs, including the effects of the kernel's
//! cache.

use crate::common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use common::{NewImage, mounted, mounted_handler};
use fuse::{Adapter, Options};
use linux::{Errno, Handler, Kernel, Operation, Reply, Request, Settings};
use rustix::fs::{
    FallocateFlags, OFlags, SeekFrom, XattrFlags, copy_file_range, fallocate, getxattr, seek,
    setxattr,
};
use testkit::require;

const MIB: u64 = 1 << 20;

/// Time after which something is taken to wait forever.
const LONG: Duration = Duration::from_secs(60);

/// A user other than the superuser.
const NOBODY: u32 = 65_534;

fn on_mounts(test: impl Fn(&Path)) {
    on_mounts_with(Options::default(), test);
}

fn on_mounts_with(options: Options, test: impl Fn(&Path)) {
    for image in [NewImage::ext4(), NewImage::xfs()] {
        mounted(&image, options, &test);
        image.judge();
    }
}

fn parallel_direct() -> Options {
    Options { parallel_direct: true, ..Options::default() }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| ((at * 31 + seed) % 251) as u8 + 1).collect()
}

/// A sparse file whose data has not been written back.
fn scattered(path: &Path) -> File {
    let file = open(path);
    for (offset, len) in [(0, 5000), (MIB, 5000), (3 * MIB - 1, 2)] {
        file.write_all_at(&pattern(offset, len), offset).unwrap();
    }
    file.set_len(5 * MIB).unwrap();
    file.write_all_at(&pattern(7, 4096), 4 * MIB).unwrap();
    file
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn cached_data_is_not_a_hole() {
    require!(Root, Fuse);
    on_mounts(|root| {
        let file = scattered(&root.join("file"));
        let (mut found, mut at) = (Vec::new(), 0);
        while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
            at = seek(&file, SeekFrom::Hole(data)).unwrap();
            found.push((data, at - data));
        }
        let expected = [(0, 8192), (MIB, 8192), (3 * MIB - 4096, 8192), (4 * MIB, 4096)];
        assert_eq!(found, expected);
        assert_eq!(seek(&file, SeekFrom::Data(5 * MIB)), Err(Errno::NXIO));
        for sparse in ["auto", "always", "never"] {
            let file = scattered(&root.join(sparse));
            let copy = root.join("copy");
            let arguments = [&format!("--sparse={sparse}"), "-T"];
            let done =
                Command::new("cp").args(arguments).args([&root.join(sparse), &copy]).status();
            assert!(done.unwrap().success());
            assert!(contents(&file) == contents(&open(&copy)), "{sparse}");
        }
    });
}

#[test]
fn read_only_mounts_tell_holes() {
    require!(Root, Fuse);
    for image in [NewImage::ext4(), NewImage::xfs()] {
        mounted(&image, Options::default(), |root| drop(scattered(&root.join("file"))));
        let options = Options { read_only: true, ..Options::default() };
        mounted(&image, options, |root| {
            let file = File::open(root.join("file")).unwrap();
            assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(8192));
            assert_eq!(seek(&file, SeekFrom::Data(8192)), Ok(MIB));
            assert_eq!(seek(&file, SeekFrom::Data(MIB + 8192)), Ok(3 * MIB - 4096));
            assert_eq!(seek(&file, SeekFrom::Data(4 * MIB + 5)), Ok(4 * MIB + 5));
            assert_eq!(seek(&file, SeekFrom::Data(4 * MIB + 4096)), Err(Errno::NXIO));
        });
        image.judge();
    }
}

#[test]
fn copies_have_what_waits_in_the_cache_and_keep_holes() {
    require!(Root, Fuse);
    on_mounts(|root| {
        let (source, target) = (scattered(&root.join("source")), open(&root.join("target")));
        // Cached data also before, in and past the target range of the copy.
        for offset in [0, MIB, 9 * MIB] {
            target.write_all_at(&pattern(offset + 1, 4096), offset).unwrap();
        }
        let mut expected = contents(&target);
        let (mut off_in, mut off_out) = (0, 8192);
        loop {
            let (from, to) = (Some(&mut off_in), Some(&mut off_out));
            let copied = copy_file_range(&source, from, &target, to, 100 << 20).unwrap();
            if copied == 0 {
                break;
            }
        }
        expected[8192..][..5 << 20].copy_from_slice(&contents(&source));
        assert!(contents(&target) == expected);
        target.sync_all().unwrap();
        assert!(contents(&target) == expected);
        drop(target);
        let blocks = fs::metadata(root.join("target")).unwrap().blocks();
        assert!(blocks < 200, "{blocks} units of 512 bytes for some 10 pages");
    });
}

/// `cp` asks for FICLONE first, which FUSE does not pass on, and then for copy_file_range.
#[test]
fn cp_shares_blocks_in_xfs() {
    require!(Root, Fuse, Tool("cp"));
    let image = NewImage::xfs();
    mounted(&image, Options::default(), |root| {
        let bytes = pattern(1, 20 << 20);
        fs::write(root.join("source"), &bytes).unwrap();
        File::open(root.join("source")).unwrap().sync_all().unwrap();
        let free = || rustix::fs::statvfs(root).unwrap().f_bfree;
        let before = free();
        let cp = |how: &str, to: &str| {
            let mut command = Command::new("cp");
            command.args([how, "source", to]).current_dir(root);
            command.output().unwrap().status.success()
        };
        assert!(cp("--reflink=auto", "copy"));
        assert!(!cp("--reflink=always", "other"));
        let copy = open(&root.join("copy"));
        copy.sync_all().unwrap();
        let taken = before.saturating_sub(free());
        assert!(taken < 20, "{taken} blocks for a copy of 20 MiB");
        assert!(contents(&copy) == bytes);
        // A write to the copy leaves the source as it is.
        copy.write_all_at(&[0; 100_000], 5 << 20).unwrap();
        copy.sync_all().unwrap();
        assert!(fs::read(root.join("source")).unwrap() == bytes);
        let mut expected = bytes;
        expected[5 << 20..][..100_000].fill(0);
        assert!(contents(&copy) == expected);
    });
    image.judge();
}

#[test]
fn space_is_given_and_taken_under_the_cache() {
    require!(Root, Fuse);
    on_mounts(|root| {
        let file = scattered(&root.join("file"));
        let mut expected = contents(&file);
        let keep_size = FallocateFlags::KEEP_SIZE;
        fallocate(&file, FallocateFlags::PUNCH_HOLE | keep_size, 1000, MIB + 1000).unwrap();
        expected[1000..MIB as usize + 2000].fill(0);
        fallocate(&file, FallocateFlags::ZERO_RANGE, 4 * MIB + 10, 2 * MIB).unwrap();
        expected[4 * MIB as usize + 10..].fill(0);
        expected.resize(6 * MIB as usize + 10, 0);
        fallocate(&file, keep_size, 0, 16 * MIB).unwrap();
        assert!(contents(&file) == expected);
        file.sync_all().unwrap();
        assert!(contents(&file) == expected);
        let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(collapse, Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn cached_and_direct_parts_are_one_file() {
    require!(Root, Fuse);
    for options in [Options::default(), parallel_direct()] {
        on_mounts_with(options, cached_and_direct_parts);
    }
}

fn cached_and_direct_parts(root: &Path) {
    let path = root.join("file");
    let file = scattered(&path);
    let mut expected = contents(&file);
    let direct = open_direct(&path);
    // FUSE has no alignment requirements.
    direct.write_all_at(&pattern(3, 8192), MIB + 4096).unwrap();
    expected[MIB as usize + 4096..][..8192].copy_from_slice(&pattern(3, 8192));
    assert!(contents(&file) == expected);
    file.write_all_at(b"cached", MIB).unwrap();
    let mut part = vec![0; 4096];
    direct.read_exact_at(&mut part, MIB).unwrap();
    assert_eq!(&part[..6], b"cached");
    // At the end, the file grows.
    direct.write_all_at(&pattern(4, 5000), 5 * MIB).unwrap();
    expected = contents(&file);
    assert_eq!(expected.len() as u64, 5 * MIB + 5000);
    assert!(expected[5 * MIB as usize..] == pattern(4, 5000));
}

fn open_direct(path: &Path) -> File {
    let flags = OFlags::DIRECT.bits() as i32;
    File::options().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

/// Lets no write of a file finish before two have arrived.
struct PairedWrites<'a> {
    adapter: &'a Adapter<'a>,
    arrived: Mutex<u32>,
    second: Condvar,
}

impl Handler for PairedWrites<'_> {
    fn init(&self, kernel: &Kernel) -> Settings {
        self.adapter.init(kernel)
    }

    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        if matches!(request.operation, Operation::Write { .. }) {
            let mut arrived = self.arrived.lock().unwrap();
            *arrived += 1;
            self.second.notify_all();
            let wait = self.second.wait_timeout_while(arrived, LONG, |arrived| *arrived < 2);
            assert!(!wait.unwrap().1.timed_out(), "the second write waits for the first one");
        }
        self.adapter.handle(request, reply)
    }
}

/// Linux 6.9 is the first version that permits them next to cached files.
#[test]
fn direct_writes_of_different_parts_run_at_the_same_time() {
    require!(Root, Fuse, Kernel(6, 9));
    for image in [NewImage::ext4(), NewImage::xfs()] {
        mounted(&image, Options::default(), |root| {
            fs::write(root.join("file"), pattern(1, 4 << 20)).unwrap();
        });
        write_in_pairs(&image);
        image.judge();
    }
}

/// Writes two parts at the same time by a mount that would hold back one write.
fn write_in_pairs(image: &NewImage) {
    let adapter = Adapter::new(image.fs(), parallel_direct());
    let (arrived, second) = (Mutex::new(0), Condvar::new());
    let handler = PairedWrites { adapter: &adapter, arrived, second };
    mounted_handler(&handler, false, |root| {
        let path = root.join("file");
        std::thread::scope(|scope| {
            for nth in [0, 3] {
                let path = &path;
                scope.spawn(move || {
                    open_direct(path).write_all_at(&pattern(nth, 4096), nth * MIB).unwrap();
                });
            }
        });
        let found = fs::read(&path).unwrap();
        assert!(found[..4096] == pattern(0, 4096) && found[3 << 20..][..4096] == pattern(3, 4096));
    });
}

#[test]
fn a_write_by_another_user_removes_privileges_at_once() {
    require!(Root, Fuse);
    on_mounts(|root| {
        fs::set_permissions(root, fs::Permissions::from_mode(0o777)).unwrap();
        let path = root.join("program");
        fs::write(&path, pattern(1, 10_000)).unwrap();
        fs::write(root.join("other"), b"other").unwrap();
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        let folder = root.display();
        for (how, is_superuser) in [
            ("echo x >> program", false),
            (
                "dd if=/dev/zero of=program bs=4096 count=1 oflag=direct conv=notrunc status=none",
                false,
            ),
            ("truncate -s 9000 program", false),
            ("fallocate -l 20000 program", false),
            ("cp other program", false),
            ("echo x >> program", true),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
            assert_eq!(mode(), 0o6777);
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("cd {folder} && {how}")]);
            if !is_superuser {
                shell.uid(NOBODY).gid(NOBODY);
            }
            assert!(shell.status().unwrap().success(), "{how}");
            assert_eq!(mode(), if is_superuser { 0o6777 } else { 0o777 }, "{how}");
        }
    });
}

#[test]
fn the_space_of_an_open_file_becomes_known() {
    require!(Root, Fuse);
    on_mounts(|root| {
        let file = open(&root.join("file"));
        assert_eq!(file.metadata().unwrap().blocks(), 0);
        file.write_all_at(&pattern(1, 100_000), 0).unwrap();
        file.sync_all().unwrap();
        testkit::wait_until("the kernel to ask for the space of the file", || {
            file.metadata().unwrap().blocks() >= 100_000 / 512
        });
    });
}

#[test]
fn large_directories_are_listed_and_emptied() {
    require!(Root, Fuse);
    on_mounts(|root| {
        let names: BTreeSet<String> = (0..1500).map(|at| format!("a longer name, {at}")).collect();
        for name in &names {
            fs::write(root.join(name), name).unwrap();
        }
        let list = || -> Vec<String> {
            let entries = fs::read_dir(root).unwrap().map(Result::unwrap);
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
        };
        let listed = list();
        assert_eq!(listed.len(), names.len() + usize::from(root.join("lost+found").exists()));
        assert!(names.iter().all(|name| listed.contains(name)));
        for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
            // Removes files during the listing, as `rm -r` does.
            if entry.file_type().unwrap().is_file() {
                assert_eq!(fs::read(entry.path()).unwrap(), entry.file_name().as_encoded_bytes());
                fs::remove_file(entry.path()).unwrap();
            }
        }
        assert!(list().iter().all(|name| name == "lost+found"));
    });
}

#[test]
fn extended_attributes_go_through() {
    require!(Root, Fuse);
    on_mounts(|root| {
        let path = root.join("file");
        fs::write(&path, b"contents").unwrap();
        let get = |name: &str| {
            let mut value = vec![0; 1000];
            getxattr(&path, name, &mut value).map(|len| value[..len].to_vec())
        };
        setxattr(&path, "user.x", b"value", XattrFlags::CREATE).unwrap();
        assert_eq!(setxattr(&path, "user.x", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(get("user.x").unwrap(), b"value");
        assert_eq!(get("user.y"), Err(Errno::NODATA));
        assert_eq!(get("system.y"), Err(Errno::OPNOTSUPP));
        // setfacl -m u:1000:rwx,m::r-x
        let acl = b"\x02\0\0\0\
            \x01\0\x06\0\xff\xff\xff\xff\x02\0\x07\0\xe8\x03\0\0\x04\0\x04\0\xff\xff\xff\xff\
            \x10\0\x05\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
        setxattr(&path, "system.posix_acl_access", acl, XattrFlags::empty()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o650);
        assert_eq!(get("system.posix_acl_access").unwrap(), acl);
        let parents = get("system.diskwright.parents");
        let root_ino = fs::metadata(root).unwrap().ino();
        match parents {
            Ok(links) => assert_eq!(links, format!("{root_ino}/file\0").into_bytes()),
            Err(error) => assert_eq!(error, Errno::NODATA),
        }
    });
}

#[test]
fn durable_is_what_was_synced() {
    require!(Root, Fuse);
    on_mounts(|root| {
        let file = scattered(&root.join("file"));
        file.sync_data().unwrap();
        rustix::fs::fsync(File::open(root).unwrap().as_fd()).unwrap();
        rustix::fs::syncfs(file.as_fd()).unwrap();
    });
}
