use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::{Immutable, IntoBytes};

use super::{Malformed, Operation, Request, argument_len, is_answered};
use crate::abi::opcode as op;
use crate::abi::*;

/// An 8-byte aligned message, as in a session's buffer.
struct Message {
    words: Vec<u64>,
    len: usize,
}

impl Message {
    fn new(opcode: u32, args: &[u8], payload: &[u8]) -> Self {
        Self::extended(opcode, args, payload, 0)
    }

    /// Creates a message whose payload ends with `total_extlen` units of 8 bytes of extensions.
    fn extended(opcode: u32, args: &[u8], payload: &[u8], total_extlen: u16) -> Self {
        let len = size_of::<InHeader>() + args.len() + payload.len();
        let header = InHeader {
            len: len as u32,
            opcode,
            unique: 42,
            nodeid: 17,
            total_extlen,
            ..InHeader::default()
        };
        Self::of(&[header.as_bytes(), args, payload].concat())
    }

    fn of(bytes: &[u8]) -> Self {
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        Self { words, len: bytes.len() }
    }

    fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.len]
    }
}

/// Asserts that a request is parsed as `expected`, both in one piece and in parts. Also asserts
/// that it is rejected with a missing or an extra byte.
fn check(opcode: u32, args: &[u8], payload: &[u8], expected: Operation<'_>) {
    assert_eq!(argument_len(opcode), args.len(), "opcode {opcode}");
    let message = Message::new(opcode, args, payload);
    let request = Request::parse(message.bytes()).unwrap();
    assert_eq!((request.header.nodeid, request.header.unique), (17, 42));
    assert_eq!(request.operation, expected);
    // In a ring the space for the structure is larger than most structures.
    let place = [args, &[0xaa; 32]].concat();
    let payload_apart = Message::of(payload);
    let parts = Request::from_parts(request.header, &place, payload_apart.bytes()).unwrap();
    assert_eq!(parts.operation, expected);
    // Extensions are removed without being parsed.
    let with = Message::extended(opcode, args, &[payload, &[7; 16]].concat(), 2);
    assert_eq!(Request::parse(with.bytes()).unwrap().operation, expected);
    check_lengths(opcode, args, payload);
}

fn check_lengths(opcode: u32, args: &[u8], payload: &[u8]) {
    let refused = |args: &[u8], payload: &[u8]| {
        let message = Message::new(opcode, args, payload);
        let Malformed { opcode: about, .. } = Request::parse(message.bytes()).unwrap_err();
        assert_eq!(about, opcode);
    };
    if !args.is_empty() {
        refused(&args[..args.len() - 1], &[]);
    }
    if opcode == op::TMPFILE {
        return;
    }
    refused(args, &[payload, b"\0"].concat());
    if !payload.is_empty() {
        refused(args, &payload[..payload.len() - 1]);
    }
}

/// Returns a structure whose bytes are all different.
fn filled<T: zerocopy::FromBytes>() -> T {
    let bytes: Vec<u8> = (1..=size_of::<T>() as u8).collect();
    T::read_from_bytes(&bytes).unwrap()
}

fn check_args<T>(opcode: u32, expected: impl Fn(T) -> Operation<'static>)
where
    T: zerocopy::FromBytes + IntoBytes + Immutable + Copy,
{
    let args: T = filled();
    check(opcode, args.as_bytes(), b"", expected(args));
}

#[test]
fn requests_of_a_structure_alone() {
    check_args(op::FORGET, |args: ForgetIn| Operation::Forget { nlookup: args.nlookup });
    check_args(op::GETATTR, Operation::Getattr);
    check_args(op::STATX, Operation::Statx);
    check_args(op::SETATTR, Operation::Setattr);
    check_args(op::ACCESS, |args: AccessIn| Operation::Access { mask: args.mask });
    check_args(op::OPEN, Operation::Open);
    check_args(op::OPENDIR, Operation::Opendir);
    check_args(op::READ, Operation::Read);
    check_args(op::READDIR, Operation::Readdir);
    check_args(op::READDIRPLUS, Operation::Readdirplus);
    check_args(op::RELEASE, Operation::Release);
    check_args(op::RELEASEDIR, Operation::Releasedir);
    check_args(op::FSYNC, Operation::Fsync);
    check_args(op::FSYNCDIR, Operation::Fsyncdir);
    check_args(op::FLUSH, |_: FlushIn| Operation::Flush);
    check_args(op::FALLOCATE, Operation::Fallocate);
    check_args(op::LSEEK, Operation::Lseek);
    check_args(op::SYNCFS, |_: SyncfsIn| Operation::Syncfs);
    check_args(op::INTERRUPT, |_: InterruptIn| Operation::Interrupt);
    check_args(op::COPY_FILE_RANGE, |args| Operation::CopyFileRange { args, wide: false });
    check_args(op::COPY_FILE_RANGE_64, |args| Operation::CopyFileRange { args, wide: true });
    check_args(op::TMPFILE, |args| Operation::Tmpfile { args });
    check_args(op::LISTXATTR, |args: GetxattrIn| Operation::Listxattr { size: args.size });
}

#[test]
fn requests_without_a_structure() {
    check(op::READLINK, b"", b"", Operation::Readlink);
    check(op::STATFS, b"", b"", Operation::Statfs);
    check(op::DESTROY, b"", b"", Operation::Destroy);
    check(op::LOOKUP, b"", b"a name\0", Operation::Lookup { name: b"a name" });
    check(op::UNLINK, b"", b"\xff\0", Operation::Unlink { name: b"\xff" });
    check(op::RMDIR, b"", b"d\0", Operation::Rmdir { name: b"d" });
    // Attribute names and link targets may contain slashes.
    check(op::REMOVEXATTR, b"", b"user.a/b\0", Operation::Removexattr { name: b"user.a/b" });
    let link = Operation::Symlink { name: b"link", target: b"../to" };
    check(op::SYMLINK, b"", b"link\0../to\0", link);
}

#[test]
fn requests_with_a_name() {
    let args: MknodIn = filled();
    check(op::MKNOD, args.as_bytes(), b"node\0", Operation::Mknod { args, name: b"node" });
    let args: MkdirIn = filled();
    check(op::MKDIR, args.as_bytes(), b"d\0", Operation::Mkdir { args, name: b"d" });
    let args: CreateIn = filled();
    check(op::CREATE, args.as_bytes(), b"f\0", Operation::Create { args, name: b"f" });
    let link = Operation::Link { oldnodeid: 9, name: b"other" };
    check(op::LINK, LinkIn { oldnodeid: 9 }.as_bytes(), b"other\0", link);
    let args = GetxattrIn { size: 77, padding: 0 };
    let get = Operation::Getxattr { size: 77, name: b"user.x" };
    check(op::GETXATTR, args.as_bytes(), b"user.x\0", get);
}

#[test]
fn renames_come_with_and_without_flags() {
    let rename = |flags| Operation::Rename { newdir: 5, flags, name: b"from", newname: b"to" };
    check(op::RENAME, RenameIn { newdir: 5 }.as_bytes(), b"from\0to\0", rename(0));
    let args = Rename2In { newdir: 5, flags: 2, padding: 0 };
    check(op::RENAME2, args.as_bytes(), b"from\0to\0", rename(2));
}

#[test]
fn requests_with_data() {
    let args = WriteIn { fh: 1, offset: 2, size: 4, ..WriteIn::default() };
    check(op::WRITE, args.as_bytes(), b"a\0/b", Operation::Write { args, data: b"a\0/b" });
    let args = SetxattrIn { size: 3, flags: 1, setxattr_flags: 1, padding: 0 };
    let set = Operation::Setxattr { args, name: b"user.x", value: b"\0\0\0" };
    check(op::SETXATTR, args.as_bytes(), b"user.x\0\0\0\0", set);
    let args = IoctlIn { cmd: 3, in_size: 4, ..IoctlIn::default() };
    check(op::IOCTL, args.as_bytes(), b"data", Operation::Ioctl { args, data: b"data" });
}

#[test]
fn inodes_are_forgotten_together() {
    let nodes = [ForgetOne { nodeid: 2, nlookup: 3 }, ForgetOne { nodeid: 4, nlookup: 1 }];
    let args = BatchForgetIn { count: 2, dummy: 0 };
    let forget = Operation::BatchForget { nodes: &nodes };
    check(op::BATCH_FORGET, args.as_bytes(), nodes.as_bytes(), forget);
    // 16 times this overflows to 0 in 32 bits.
    let args = BatchForgetIn { count: 1 << 28, dummy: 0 };
    let message = Message::new(op::BATCH_FORGET, args.as_bytes(), b"");
    let error = Request::parse(message.bytes()).unwrap_err();
    assert_eq!(error.what, "the forget count is too large");
}

#[test]
fn init_may_be_of_another_age() {
    let init: InitIn = filled();
    let parse = |args: &[u8]| match Request::parse(Message::new(op::INIT, args, b"").bytes()) {
        Ok(Request { operation: Operation::Init(init), .. }) => Some(init),
        _ => None,
    };
    assert_eq!(parse(init.as_bytes()), Some(init));
    assert_eq!(parse(&[init.as_bytes(), &[9; 8]].concat()), Some(init));
    let old = InitIn { flags2: 0, unused: [0; 11], ..init };
    assert_eq!(parse(&init.as_bytes()[..16]), Some(old));
    assert_eq!(parse(&init.as_bytes()[..15]), None);
}

#[test]
fn a_file_without_a_name_has_one_that_is_not_read() {
    let args: CreateIn = filled();
    for payload in [b"/\0".as_slice(), b"", b"unended"] {
        let message = Message::new(op::TMPFILE, args.as_bytes(), payload);
        let request = Request::parse(message.bytes()).unwrap();
        assert_eq!(request.operation, Operation::Tmpfile { args });
    }
}

#[test]
fn unknown_requests_are_passed_on() {
    let message = Message::new(31, b"", b"anything at all");
    let request = Request::parse(message.bytes()).unwrap();
    assert_eq!(request.operation, Operation::Other { opcode: 31 });
}

fn fault(message: &[u8]) -> &'static str {
    Request::parse(Message::of(message).bytes()).unwrap_err().what
}

#[test]
fn names_have_to_be_names() {
    let lookup = |name: &[u8]| fault(Message::new(op::LOOKUP, b"", name).bytes());
    assert_eq!(lookup(b""), "a name is not terminated");
    assert_eq!(lookup(b"name"), "a name is not terminated");
    assert_eq!(lookup(b"\0"), "empty name");
    assert_eq!(lookup(b"a/b\0"), "a name contains a slash");
    assert_eq!(lookup(b"a\0b\0"), "longer than expected");
}

#[test]
fn lengths_have_to_agree() {
    let statfs = Message::new(op::STATFS, b"", b"");
    assert_eq!(fault(&statfs.bytes()[..39]), "shorter than its header");
    assert_eq!(fault(&[statfs.bytes(), b"\0"].concat()), "its length field is wrong");
    let extended = Message::extended(op::STATFS, b"", &[0; 15], 2);
    assert_eq!(fault(extended.bytes()), "shorter than its extensions");
    // The structure is not counted as an extension.
    let extended = Message::extended(op::OPEN, &[0; 8], b"", 1);
    assert_eq!(fault(extended.bytes()), "shorter than its extensions");
    let args = WriteIn { size: u32::MAX, ..WriteIn::default() };
    let write = Message::new(op::WRITE, args.as_bytes(), b"little");
    assert_eq!(fault(write.bytes()), "shorter than its data");
}

#[test]
fn some_requests_have_no_reply() {
    let silent: Vec<u32> = (0..60).filter(|&opcode| !is_answered(opcode)).collect();
    assert_eq!(silent, [op::FORGET, op::INTERRUPT, op::BATCH_FORGET]);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_accepted_or_refused(
        opcode in 0_u32..56,
        total_extlen in prop_oneof![Just(0_u16), 0..4_u16, any::<u16>()],
        body in vec(prop_oneof![Just(0_u8), any::<u8>()], 0..200),
    ) {
        let message = Message::extended(opcode, b"", &body, total_extlen);
        let parsed = Request::parse(message.bytes());
        if let Err(malformed) = parsed {
            prop_assert_eq!(malformed.opcode, opcode);
        }
        // Both parsers agree, regardless of the alignment of the structure.
        let (args, payload) = body.split_at(argument_len(opcode).min(body.len()));
        let header = super::InHeader { opcode, total_extlen, ..InHeader::default() };
        let payload = Message::of(payload);
        let parts = Request::from_parts(header, args, payload.bytes());
        prop_assert_eq!(
            parsed.map(|request| request.operation),
            parts.map(|request| request.operation)
        );
    }

    #[test]
    fn names_are_found_again(name in "[^/\0]{1,300}", other in "[^/\0]{1,300}") {
        let args = Rename2In { newdir: 1, flags: 0, padding: 0 };
        let payload = [name.as_bytes(), b"\0", other.as_bytes(), b"\0"].concat();
        let message = Message::new(op::RENAME2, args.as_bytes(), &payload);
        let request = Request::parse(message.bytes()).unwrap();
        let (name, newname) = (name.as_bytes(), other.as_bytes());
        prop_assert_eq!(request.operation, Operation::Rename { newdir: 1, flags: 0, name, newname });
    }
}
