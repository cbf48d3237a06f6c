//! Parses arbitrary bytes as a FUSE request, in one piece and in parts. Errors are fine. Panics, and names that the
//! protocol does not allow, are bugs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linux::abi::InHeader;
use linux::{Malformed, Operation, Request};
use zerocopy::{FromBytes, IntoBytes};

fuzz_target!(|input: &[u8]| {
    // Aligned to 8 bytes, like the buffer of a session.
    let mut words = vec![0_u64; input.len().div_ceil(8)];
    let message = &mut words.as_mut_bytes()[..input.len()];
    message.copy_from_slice(input);
    check(Request::parse(message));
    // Mutations of the input length usually do not update the length in the header.
    if let Some(len) = message.first_chunk_mut() {
        *len = u32::to_ne_bytes(input.len() as u32);
    }
    check(Request::parse(message));
    if let Ok((header, rest)) = InHeader::read_from_prefix(message) {
        let (args, payload) = rest.split_at(rest.len().min(128));
        check(Request::from_parts(header, args, payload));
    }
});

fn check(parsed: Result<Request<'_>, Malformed>) {
    let Ok(request) = parsed else { return };
    match request.operation {
        Operation::Lookup { name }
        | Operation::Mknod { name, .. }
        | Operation::Mkdir { name, .. }
        | Operation::Symlink { name, .. }
        | Operation::Unlink { name }
        | Operation::Rmdir { name }
        | Operation::Link { name, .. }
        | Operation::Create { name, .. } => check_name(name),
        Operation::Rename { name, newname, .. } => {
            check_name(name);
            check_name(newname);
        }
        Operation::Write { args, data } => assert_eq!(args.size as usize, data.len()),
        Operation::Setxattr { args, value, .. } => assert_eq!(args.size as usize, value.len()),
        _ => {}
    }
}

fn check_name(name: &[u8]) {
    assert!(!name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'/')));
}
