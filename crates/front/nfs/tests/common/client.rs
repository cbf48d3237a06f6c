//! A client for all procedures.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::xdr::{Message, Results};

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;

pub type Handle = Vec<u8>;
/// Inode, name and cookie.
pub type Entry = (u64, String, u64);
/// Name, cookie, attributes and handle.
pub type EntryPlus = (String, u64, Attr, Handle);
pub type Time = (u32, u32);

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    pub file_type: u32,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub device: (u32, u32),
    pub fsid: u64,
    pub ino: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

/// Attributes before (size, mtime, ctime) and after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    pub before: Option<(u64, Time, Time)>,
    pub after: Option<Attr>,
}

/// Attributes to set. Times: `Some(None)` is the time of the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<Option<Time>>,
    pub mtime: Option<Option<Time>>,
}

#[derive(Clone, Copy, Debug)]
pub enum CreateHow {
    Unchecked(NewAttr),
    Guarded(NewAttr),
    Exclusive([u8; 8]),
}

/// A connection of a client.
pub struct NfsClient {
    stream: TcpStream,
    pub xid: u32,
    /// User, group and further groups; `None` for a caller without a name.
    pub caller: Option<(u32, u32, Vec<u32>)>,
    /// Attributes before and after the last change, of one inode or two.
    pub wcc: Vec<Wcc>,
}

pub fn record(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32 | 1 << 31).to_be_bytes(), message].concat()
}

fn time(results: &mut Results) -> Time {
    (results.u32(), results.u32())
}

fn attr(results: &mut Results) -> Attr {
    Attr {
        file_type: results.u32(),
        mode: results.u32(),
        links: results.u32(),
        uid: results.u32(),
        gid: results.u32(),
        size: results.u64(),
        used: results.u64(),
        device: (results.u32(), results.u32()),
        fsid: results.u64(),
        ino: results.u64(),
        atime: time(results),
        mtime: time(results),
        ctime: time(results),
    }
}

fn post_op(results: &mut Results) -> Option<Attr> {
    results.option(attr)
}

fn wcc(results: &mut Results) -> Wcc {
    let before = results.option(|results| (results.u64(), time(results), time(results)));
    Wcc { before, after: post_op(results) }
}

fn name(dir: &[u8], name: &str) -> Message {
    Message::default().opaque(dir).opaque(name.as_bytes())
}

fn put_attr(message: Message, new: &NewAttr) -> Message {
    let put_time = |message: Message, time: Option<Option<Time>>| match time {
        None => message.u32(0),
        Some(None) => message.u32(1),
        Some(Some((sec, nsec))) => message.u32(2).u32(sec).u32(nsec),
    };
    let message = message
        .option(new.mode, Message::u32)
        .option(new.uid, Message::u32)
        .option(new.gid, Message::u32)
        .option(new.size, Message::u64);
    put_time(put_time(message, new.atime), new.mtime)
}

impl NfsClient {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { stream, xid: 1, caller: Some((0, 0, Vec::new())), wcc: Vec::new() }
    }

    /// Returns the next call as a message.
    pub fn message(&mut self, program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let call = Message::default().u32(self.xid).u32(0).u32(2).u32(program).u32(version);
        let call = call.u32(procedure);
        let call = match &self.caller {
            None => call.u32(0).u32(0),
            Some((uid, gid, groups)) => {
                let body = Message::default().u32(7).opaque(b"client").u32(*uid).u32(*gid);
                let body = body.u32(groups.len() as u32);
                let body = groups.iter().fold(body, |body, gid| body.u32(*gid));
                call.u32(1).opaque(&body.0)
            }
        };
        call.u32(0).u32(0).bytes(args).0
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Returns the next reply, or `None` at the end of the connection.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).ok()?;
        let mark = u32::from_be_bytes(mark);
        assert!(mark & 1 << 31 != 0, "a reply has one fragment");
        let mut reply = vec![0; (mark & !(1 << 31)) as usize];
        self.stream.read_exact(&mut reply).ok()?;
        Some(reply)
    }

    /// Sends a message and returns the words of the reply after the transaction ID.
    pub fn exchange(&mut self, message: &[u8]) -> Results {
        self.send(&record(message));
        let mut results = Results::new(self.receive().expect("a reply"));
        assert_eq!(results.take(4), &message[..4], "transaction ID");
        assert_eq!(results.u32(), 1, "a reply");
        results
    }

    /// Calls a procedure and returns its results.
    pub fn call(&mut self, program: u32, procedure: u32, args: &Message) -> Results {
        let message = self.message(program, 3, procedure, &args.0);
        let mut results = self.exchange(&message);
        let head = [(); 4].map(|()| results.u32());
        assert_eq!(head, [0; 4], "accepted, no verifier, success");
        results
    }

    fn nfs(&mut self, procedure: u32, args: &Message) -> (u32, Results) {
        let mut results = self.call(NFS, procedure, args);
        (results.u32(), results)
    }

    /// Calls a procedure whose failures have the attributes of an inode.
    fn reading<T>(
        &mut self,
        procedure: u32,
        args: &Message,
        read: impl FnOnce(&mut Results) -> T,
    ) -> Result<T, u32> {
        let (status, mut results) = self.nfs(procedure, args);
        let value = if status == 0 {
            Ok(read(&mut results))
        } else {
            post_op(&mut results);
            Err(status)
        };
        results.finish();
        value
    }

    /// Calls a procedure whose results begin with `read`, then `count` times attributes before and after the change.
    fn changing<T>(
        &mut self,
        procedure: u32,
        args: &Message,
        count: usize,
        read: impl FnOnce(&mut Results) -> T,
    ) -> Result<T, u32> {
        let (status, mut results) = self.nfs(procedure, args);
        let value = if status == 0 { Ok(read(&mut results)) } else { Err(status) };
        self.wcc = (0..count).map(|_| wcc(&mut results)).collect();
        results.finish();
        value
    }

    pub fn mount(&mut self, path: &str) -> Result<Handle, u32> {
        let mut results = self.call(MOUNT, 1, &Message::default().opaque(path.as_bytes()));
        match results.u32() {
            0 => {
                let handle = results.opaque();
                assert_eq!((results.u32(), results.u32()), (1, 1), "AUTH_SYS");
                results.finish();
                Ok(handle)
            }
            status => Err(status),
        }
    }

    pub fn null(&mut self) {
        self.call(NFS, 0, &Message::default()).finish();
        self.call(MOUNT, 0, &Message::default()).finish();
    }

    pub fn getattr(&mut self, handle: &[u8]) -> Result<Attr, u32> {
        let (status, mut results) = self.nfs(1, &Message::default().opaque(handle));
        let value = if status == 0 { Ok(attr(&mut results)) } else { Err(status) };
        results.finish();
        value
    }

    pub fn setattr(&mut self, handle: &[u8], new: NewAttr, guard: Option<Time>) -> Result<(), u32> {
        let args = put_attr(Message::default().opaque(handle), &new);
        let args = args.option(guard, |args, (sec, nsec)| args.u32(sec).u32(nsec));
        self.changing(2, &args, 1, |_| ())
    }

    pub fn lookup(&mut self, dir: &[u8], of: &str) -> Result<(Handle, Attr), u32> {
        self.reading(3, &name(dir, of), |results| {
            let found = (results.opaque(), post_op(results).unwrap());
            assert_eq!(post_op(results).unwrap().file_type, 2, "the directory");
            found
        })
    }

    pub fn access(&mut self, handle: &[u8], asked: u32) -> Result<u32, u32> {
        self.reading(4, &Message::default().opaque(handle).u32(asked), |results| {
            post_op(results).unwrap();
            results.u32()
        })
    }

    pub fn readlink(&mut self, handle: &[u8]) -> Result<Vec<u8>, u32> {
        self.reading(5, &Message::default().opaque(handle), |results| {
            post_op(results).unwrap();
            results.opaque()
        })
    }

    /// Returns data, and whether it reaches the end of the file.
    pub fn read(&mut self, handle: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), u32> {
        let args = Message::default().opaque(handle).u64(offset).u32(count);
        self.reading(6, &args, |results| {
            post_op(results).unwrap();
            let (count, is_end) = (results.u32(), results.bool());
            let data = results.opaque();
            assert_eq!(data.len(), count as usize);
            (data, is_end)
        })
    }

    /// Returns the verifier. `stable`: 0 unstable, 1 data, 2 file.
    pub fn write(
        &mut self,
        handle: &[u8],
        offset: u64,
        data: &[u8],
        stable: u32,
    ) -> Result<u64, u32> {
        let args = Message::default().opaque(handle).u64(offset).u32(data.len() as u32).u32(stable);
        let (status, mut results) = self.nfs(7, &args.opaque(data));
        self.wcc = vec![wcc(&mut results)];
        let mut verifier = Err(status);
        if status == 0 {
            assert_eq!(results.u32(), data.len() as u32);
            assert!(results.u32() >= stable);
            verifier = Ok(results.u64());
        }
        results.finish();
        verifier
    }

    fn made(results: &mut Results) -> (Handle, Attr) {
        (results.option(Results::opaque).unwrap(), post_op(results).unwrap())
    }

    pub fn create(&mut self, dir: &[u8], of: &str, how: CreateHow) -> Result<(Handle, Attr), u32> {
        let args = name(dir, of);
        let args = match how {
            CreateHow::Unchecked(new) => put_attr(args.u32(0), &new),
            CreateHow::Guarded(new) => put_attr(args.u32(1), &new),
            CreateHow::Exclusive(verifier) => args.u32(2).bytes(&verifier),
        };
        self.changing(8, &args, 1, Self::made)
    }

    /// Creates a file with permissions 0644.
    pub fn file(&mut self, dir: &[u8], of: &str) -> Handle {
        let new = NewAttr { mode: Some(0o644), ..NewAttr::default() };
        self.create(dir, of, CreateHow::Guarded(new)).unwrap().0
    }

    pub fn mkdir(&mut self, dir: &[u8], of: &str, mode: u32) -> Result<(Handle, Attr), u32> {
        let new = NewAttr { mode: Some(mode), ..NewAttr::default() };
        self.changing(9, &put_attr(name(dir, of), &new), 1, Self::made)
    }

    pub fn symlink(&mut self, dir: &[u8], of: &str, to: &str) -> Result<(Handle, Attr), u32> {
        let args = put_attr(name(dir, of), &NewAttr::default()).opaque(to.as_bytes());
        self.changing(10, &args, 1, Self::made)
    }

    /// Creates a special file; devices have the number 4095:77.
    pub fn mknod(&mut self, dir: &[u8], of: &str, file_type: u32) -> Result<(Handle, Attr), u32> {
        let new = NewAttr { mode: Some(0o640), ..NewAttr::default() };
        let args = name(dir, of).u32(file_type);
        let args = match file_type {
            3 | 4 => put_attr(args, &new).u32(4095).u32(77),
            6 | 7 => put_attr(args, &new),
            _ => args,
        };
        self.changing(11, &args, 1, Self::made)
    }

    pub fn remove(&mut self, dir: &[u8], of: &str) -> Result<(), u32> {
        self.changing(12, &name(dir, of), 1, |_| ())
    }

    pub fn rmdir(&mut self, dir: &[u8], of: &str) -> Result<(), u32> {
        self.changing(13, &name(dir, of), 1, |_| ())
    }

    pub fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Result<(), u32> {
        let args = name(from.0, from.1).bytes(&name(to.0, to.1).0);
        self.changing(14, &args, 2, |_| ())
    }

    /// Returns the attributes of the file, also after a failure.
    pub fn link(&mut self, file: &[u8], dir: &[u8], of: &str) -> Result<Option<Attr>, u32> {
        let args = Message::default().opaque(file).bytes(&name(dir, of).0);
        let (status, mut results) = self.nfs(15, &args);
        let found = post_op(&mut results);
        self.wcc = vec![wcc(&mut results)];
        results.finish();
        if status == 0 { Ok(found) } else { Err(status) }
    }

    /// Returns inode, name and cookie of entries, and whether the directory ends with them.
    pub fn readdir(
        &mut self,
        dir: &[u8],
        (cookie, verifier): (u64, u64),
        count: u32,
    ) -> Result<(Vec<Entry>, bool), u32> {
        let args = Message::default().opaque(dir).u64(cookie).u64(verifier).u32(count);
        self.reading(16, &args, |results| {
            post_op(results).unwrap();
            assert_eq!(results.u64(), 0, "verifier");
            let mut entries = Vec::new();
            while results.bool() {
                let ino = results.u64();
                let name = String::from_utf8(results.opaque()).unwrap();
                entries.push((ino, name, results.u64()));
            }
            (entries, results.bool())
        })
    }

    /// Like [`Self::readdir`], with attributes and handles.
    pub fn readdirplus(
        &mut self,
        dir: &[u8],
        cookie: u64,
        (dircount, maxcount): (u32, u32),
    ) -> Result<(Vec<EntryPlus>, bool), u32> {
        let args = Message::default().opaque(dir).u64(cookie).u64(0).u32(dircount).u32(maxcount);
        self.reading(17, &args, |results| {
            post_op(results).unwrap();
            assert_eq!(results.u64(), 0, "verifier");
            let mut entries = Vec::new();
            while results.bool() {
                let ino = results.u64();
                let name = String::from_utf8(results.opaque()).unwrap();
                let cookie = results.u64();
                let found = post_op(results).unwrap();
                assert_eq!(found.ino, ino, "{name}");
                entries.push((name, cookie, found, results.option(Results::opaque).unwrap()));
            }
            (entries, results.bool())
        })
    }

    /// Returns total, free and available bytes, then total, free and available inodes.
    pub fn fsstat(&mut self, handle: &[u8]) -> Result<[u64; 6], u32> {
        self.reading(18, &Message::default().opaque(handle), |results| {
            post_op(results).unwrap();
            let totals = [(); 6].map(|()| results.u64());
            assert_eq!(results.u32(), 0);
            totals
        })
    }

    /// Returns the sizes of reads, writes and listings, and the properties.
    pub fn fsinfo(&mut self, handle: &[u8]) -> Result<([u32; 7], u32), u32> {
        self.reading(19, &Message::default().opaque(handle), |results| {
            post_op(results).unwrap();
            let sizes = [(); 7].map(|()| results.u32());
            assert!(results.u64() > 1 << 40, "maximum size of a file");
            assert_eq!(time(results), (0, 1));
            (sizes, results.u32())
        })
    }

    /// Returns the maximum number of links and the maximum length of a name, then four properties.
    pub fn pathconf(&mut self, handle: &[u8]) -> Result<([u32; 2], [bool; 4]), u32> {
        self.reading(20, &Message::default().opaque(handle), |results| {
            post_op(results).unwrap();
            ([results.u32(), results.u32()], [(); 4].map(|()| results.bool()))
        })
    }

    /// Returns the verifier.
    pub fn commit(&mut self, handle: &[u8]) -> Result<u64, u32> {
        let args = Message::default().opaque(handle).u64(0).u32(0);
        let (status, mut results) = self.nfs(21, &args);
        self.wcc = vec![wcc(&mut results)];
        let verifier = if status == 0 { Ok(results.u64()) } else { Err(status) };
        results.finish();
        verifier
    }
}
