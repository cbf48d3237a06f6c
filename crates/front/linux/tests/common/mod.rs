//! A minimal in-memory file system for mounts.

pub(crate) mod transport;

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, mpsc};
use std::thread;

use linux::abi::{
    Attr, AttrOut, CreateIn, Dirent, EntryOut, FATTR_MODE, FATTR_SIZE, Kstatfs, OpenOut, ReadIn,
    SetattrIn, WriteOut, padded,
};
use linux::{
    Errno, Handler, InitFlags, Kernel, MountOptions, Operation, Reply, Request, Session,
    SessionOptions, Settings, Unmounter,
};

use transport::{SwitchedOn, this_is_io_uring};

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
/// Validity of cached entries and attributes in the kernel, in seconds.
const VALID: u64 = 1;

/// Creating a file of this name panics.
pub(crate) const PANICS: &str = "panic";
/// Creating a file named `WAITS` waits until the root contains a file named `IS_WAITED_FOR`.
pub(crate) const WAITS: &str = "waits";
pub(crate) const IS_WAITED_FOR: &str = "is waited for";

/// Transport of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Reads and writes of `/dev/fuse`.
    Device,
    /// io_uring if the kernel supports it, otherwise `/dev/fuse`.
    IoUring,
}

/// Defines a module per test function, with tests `device` and `io_uring` that call the function
/// with that [`Transport`].
macro_rules! over_both {
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            use crate::common::Transport;

            #[test]
            fn device() {
                super::$test(Transport::Device);
            }

            #[test]
            fn io_uring() {
                super::$test(Transport::IoUring);
            }
        }
    )+};
}
pub(crate) use over_both;

impl Transport {
    /// Enables the transport in the kernel while the result lives. Also returns whether the kernel
    /// offers io_uring.
    pub(crate) fn switch_on(self) -> (Option<SwitchedOn>, bool) {
        let on = (self == Self::IoUring).then(SwitchedOn::new);
        let is_offered = on.as_ref().is_some_and(SwitchedOn::is_offered);
        (on, is_offered)
    }
}

/// Files and directories in memory.
pub(crate) struct Memory {
    nodes: Mutex<Nodes>,
    /// Signalled when a file is created.
    made: Condvar,
    /// True if a thread waits for that.
    is_waiting: AtomicBool,
    settings: Settings,
    bytes_read: AtomicUsize,
    requests_over_io_uring: AtomicUsize,
}

#[derive(Default)]
struct Nodes {
    by_number: BTreeMap<u64, MemoryInode>,
    last: u64,
}

#[derive(Default)]
struct MemoryInode {
    mode: u32,
    uid: u32,
    gid: u32,
    data: Vec<u8>,
    children: BTreeMap<Vec<u8>, u64>,
}

impl Memory {
    /// Creates an empty root owned by this user.
    pub(crate) fn new(uid: u32) -> Self {
        let root = MemoryInode { mode: S_IFDIR | 0o755, uid, ..MemoryInode::default() };
        let nodes = Nodes { by_number: [(1, root)].into(), last: 1 };
        let settings = Settings {
            features: InitFlags::ASYNC_READ
                | InitFlags::PARALLEL_DIROPS
                | InitFlags::WRITEBACK_CACHE
                | InitFlags::ATOMIC_O_TRUNC,
            max_write: 1 << 20,
            max_readahead: 128 << 10,
            time_gran: 1,
        };
        Self {
            nodes: Mutex::new(nodes),
            made: Condvar::new(),
            is_waiting: AtomicBool::new(false),
            settings,
            bytes_read: AtomicUsize::new(0),
            requests_over_io_uring: AtomicUsize::new(0),
        }
    }

    fn wait_for_the_other<'a>(
        &self,
        nodes: MutexGuard<'a, Nodes>,
    ) -> Result<MutexGuard<'a, Nodes>, Errno> {
        let is_missing = |nodes: &mut Nodes| {
            !nodes.by_number[&1].children.contains_key(IS_WAITED_FOR.as_bytes())
        };
        self.is_waiting.store(true, Ordering::Relaxed);
        match self.made.wait_timeout_while(nodes, testkit::HANG_AFTER / 2, is_missing) {
            Ok((nodes, waited)) if !waited.timed_out() => Ok(nodes),
            _ => Err(Errno::TIMEDOUT),
        }
    }

    /// Returns whether the creation of [`WAITS`] has begun.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that the kernel has read from files.
    pub(crate) fn bytes_read(&self) -> usize {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Returns the contents of a file in the root, as far as the kernel has written them.
    pub(crate) fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let nodes = self.nodes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let number = nodes.by_number[&1].children.get(name.as_bytes())?;
        Some(nodes.by_number[number].data.clone())
    }
}

impl Nodes {
    fn node(&mut self, number: u64) -> Result<&mut MemoryInode, Errno> {
        self.by_number.get_mut(&number).ok_or(Errno::STALE)
    }

    fn attr(&self, number: u64) -> Result<Attr, Errno> {
        let node = self.by_number.get(&number).ok_or(Errno::STALE)?;
        Ok(Attr {
            ino: number,
            size: node.data.len() as u64,
            mode: node.mode,
            nlink: 1,
            uid: node.uid,
            gid: node.gid,
            blksize: 4096,
            ..Attr::default()
        })
    }

    fn entry(&self, number: u64) -> Result<EntryOut, Errno> {
        let attr = self.attr(number)?;
        Ok(EntryOut {
            nodeid: number,
            entry_valid: VALID,
            attr_valid: VALID,
            attr,
            ..EntryOut::default()
        })
    }

    fn make(&mut self, request: &Request<'_>, name: &[u8], mode: u32) -> Result<EntryOut, Errno> {
        assert!(name != PANICS.as_bytes(), "as the test wants");
        if self.node(request.header.nodeid)?.children.contains_key(name) {
            return Err(Errno::EXIST);
        }
        self.last += 1;
        let number = self.last;
        let (uid, gid) = (request.header.uid, request.header.gid);
        self.by_number.insert(number, MemoryInode { mode, uid, gid, ..MemoryInode::default() });
        self.node(request.header.nodeid)?.children.insert(name.to_vec(), number);
        self.entry(number)
    }

    fn set(&mut self, number: u64, args: &SetattrIn) -> Result<(), Errno> {
        let node = self.node(number)?;
        if args.valid & FATTR_SIZE != 0 {
            node.data.resize(args.size as usize, 0);
        }
        if args.valid & FATTR_MODE != 0 {
            node.mode = args.mode;
        }
        Ok(())
    }

    fn list(&mut self, number: u64, args: &ReadIn, reply: &mut Reply<'_>) -> Result<(), Errno> {
        for (nth, (name, &ino)) in self.node(number)?.children.iter().enumerate() {
            let len = padded(size_of::<Dirent>() + name.len());
            if (nth as u64) < args.offset {
                continue;
            }
            if reply.len() + len > args.size as usize {
                break;
            }
            let (off, namelen) = (nth as u64 + 1, name.len() as u32);
            reply.put(&Dirent { ino, off, namelen, r#type: 0 })?;
            reply.put_bytes(name)?;
            reply.put_bytes(&[0; 8][..len - size_of::<Dirent>() - name.len()])?;
        }
        Ok(())
    }

    fn write(&mut self, number: u64, offset: u64, data: &[u8]) -> Result<WriteOut, Errno> {
        let file = &mut self.node(number)?.data;
        let (start, end) = (offset as usize, offset as usize + data.len());
        if file.len() < end {
            file.resize(end, 0);
        }
        file[start..end].copy_from_slice(data);
        Ok(WriteOut { size: data.len() as u32, padding: 0 })
    }
}

impl Handler for Memory {
    fn init(&self, _: &Kernel) -> Settings {
        self.settings
    }

    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        if this_is_io_uring() {
            self.requests_over_io_uring.fetch_add(1, Ordering::Relaxed);
        }
        // A panic poisons the lock, which is harmless here.
        let mut nodes = self.nodes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if matches!(request.operation, Operation::Create { name, .. } if name == WAITS.as_bytes()) {
            nodes = self.wait_for_the_other(nodes)?;
        }
        let nodes = &mut *nodes;
        let number = request.header.nodeid;
        match request.operation {
            Operation::Lookup { name } => {
                let child = nodes.node(number)?.children.get(name).copied();
                reply.put(&nodes.entry(child.ok_or(Errno::NOENT)?)?)
            }
            Operation::Getattr(_) => {
                let attr = nodes.attr(number)?;
                reply.put(&AttrOut { attr_valid: VALID, attr, ..AttrOut::default() })
            }
            Operation::Setattr(args) => {
                nodes.set(number, &args)?;
                let attr = nodes.attr(number)?;
                reply.put(&AttrOut { attr_valid: VALID, attr, ..AttrOut::default() })
            }
            Operation::Mkdir { args, name } => {
                reply.put(&nodes.make(request, name, S_IFDIR | args.mode)?)
            }
            Operation::Create { args: CreateIn { mode, .. }, name } => {
                reply.put(&nodes.make(request, name, S_IFREG | mode & 0o7777)?)?;
                self.made.notify_all();
                reply.put(&OpenOut::default())
            }
            Operation::Unlink { name } | Operation::Rmdir { name } => {
                nodes.node(number)?.children.remove(name).map(|_| ()).ok_or(Errno::NOENT)
            }
            Operation::Open(_) | Operation::Opendir(_) => reply.put(&OpenOut::default()),
            Operation::Readdir(args) => nodes.list(number, &args, reply),
            Operation::Read(args) => {
                let data = &nodes.node(number)?.data;
                let rest = data.get(args.offset as usize..).unwrap_or_default();
                let found = &rest[..rest.len().min(args.size as usize)];
                self.bytes_read.fetch_add(found.len(), Ordering::Relaxed);
                reply.put_bytes(found)
            }
            Operation::Write { args, data } => {
                reply.put(&nodes.write(number, args.offset, data)?)
            }
            Operation::Statfs => {
                reply.put(&Kstatfs { bsize: 4096, namelen: 255, ..Kstatfs::default() })
            }
            Operation::Release(_) | Operation::Releasedir(_) | Operation::Fsync(_) => Ok(()),
            _ => Err(Errno::NOSYS),
        }
    }
}

/// Returns the mount options of the tests.
pub(crate) fn mount_options() -> MountOptions {
    MountOptions { fs_name: "a, b".into(), subtype: "memory".into(), ..MountOptions::default() }
}

/// Returns the lines of `/proc/mounts` about a path.
pub(crate) fn mounts_at(path: &Path) -> Vec<String> {
    mounts_in("/proc/mounts", path)
}

/// Returns the lines of a process's mount list about a path.
pub(crate) fn mounts_in(list: &str, path: &Path) -> Vec<String> {
    let path = path.to_str().unwrap();
    let mounts = fs::read_to_string(list).unwrap();
    let lines = mounts.lines().filter(|line| line.split(' ').nth(1) == Some(path));
    lines.map(str::to_owned).collect()
}

/// Returns the session options of the tests.
pub(crate) fn session_options(over: Transport, threads: usize) -> SessionOptions {
    SessionOptions { threads, io_uring: over == Transport::IoUring }
}

/// Serves `memory` while `test` runs. `test` must unmount it, and serving must end without error.
pub(crate) fn serve(
    memory: &Memory,
    over: Transport,
    threads: usize,
    test: impl FnOnce(&Path, &Unmounter),
) {
    let (_switched_on, is_offered) = over.switch_on();
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let session = Session::mount(place, &mount_options()).unwrap();
    let unmounter = session.unmounter();
    let (started, starts) = mpsc::channel();
    let (finished, finishes) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let options = session_options(over, threads);
            let served = session.serve(memory, &options, || started.send(()).unwrap());
            finished.send(served).unwrap();
        });
        starts.recv_timeout(testkit::HANG_AFTER).expect("ready is called");
        // If a test fails, unmount nevertheless, or the session would never end.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            test(place, &unmounter);
            finishes.recv_timeout(testkit::HANG_AFTER).expect("the session ends").unwrap();
        }));
        if let Err(panic) = outcome {
            let _ = testkit::command("umount").arg("-l").arg(place).status();
            resume_unwind(panic);
        }
    });
    let over_io_uring = memory.requests_over_io_uring.load(Ordering::Relaxed);
    assert_eq!(over_io_uring > 0, is_offered, "{over_io_uring} requests over io_uring");
    assert_eq!(mounts_at(place), [""; 0]);
    unmounter.unmount().expect("it is not mounted any more");
}
