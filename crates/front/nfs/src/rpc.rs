//! Calls and replies of ONC RPC version 2 (RFC 5531).

use crate::xdr::{Garbage, XdrReader, XdrWriter};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;

const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
const AUTH_BADCRED: u32 = 1;
const AUTH_REJECTEDCRED: u32 = 2;

/// Flavors of credentials: none, and user and groups (`AUTH_SYS`).
const AUTH_NONE: u32 = 0;
pub(crate) const AUTH_SYS: u32 = 1;

/// Maximum length of credentials and verifiers in bytes.
const AUTH_BYTES_MAX: usize = 400;
/// Maximum length of the name of a client in bytes.
const MACHINE_BYTES_MAX: usize = 255;
/// Maximum number of supplementary groups.
const GROUPS_MAX: u32 = 16;

/// Outcome of an accepted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    Success,
    /// The program is unknown.
    ProgramUnavailable,
    /// The server has this version of the program only.
    ProgramMismatch(u32),
    /// The procedure is unknown.
    ProcedureUnavailable,
    /// The arguments are invalid.
    GarbageArguments,
}

/// User and groups of a call, as claimed by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials<'a> {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Supplementary groups.
    groups: &'a [[u8; 4]],
}

impl Credentials<'_> {
    /// Returns whether a group is one of the caller's.
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.iter().any(|group| u32::from_be_bytes(*group) == gid)
    }
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    /// `None` for callers without a name.
    pub(crate) credentials: Option<Credentials<'a>>,
    pub(crate) arguments: XdrReader<'a>,
    /// Everything after the transaction ID.
    pub(crate) body: &'a [u8],
}

/// Reason why a message is not a call to answer.
#[derive(Debug)]
pub(crate) enum NoCall {
    /// It is not a call, so it gets no reply.
    Ignored,
    /// The call is denied with this reply.
    Denied(XdrWriter),
}

impl From<Garbage> for NoCall {
    fn from(_: Garbage) -> Self {
        Self::Ignored
    }
}

impl<'a> Call<'a> {
    /// Parses a message.
    pub(crate) fn parse(message: &'a [u8]) -> Result<Self, NoCall> {
        let mut reader = XdrReader::new(message);
        let xid = reader.u32()?;
        let body = reader.rest();
        if reader.u32()? != CALL {
            return Err(NoCall::Ignored);
        }
        if reader.u32()? != RPC_VERSION {
            return Err(NoCall::Denied(denied(xid, &[RPC_MISMATCH, RPC_VERSION, RPC_VERSION])));
        }
        let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let flavor = reader.u32()?;
        let credentials = reader.opaque(AUTH_BYTES_MAX)?;
        let (_verifier_flavor, _verifier) = (reader.u32()?, reader.opaque(AUTH_BYTES_MAX)?);
        let refused = |why| NoCall::Denied(denied(xid, &[AUTH_ERROR, why]));
        let credentials = match flavor {
            AUTH_NONE => None,
            AUTH_SYS => Some(parse_sys(credentials).map_err(|Garbage| refused(AUTH_BADCRED))?),
            _ => return Err(refused(AUTH_REJECTEDCRED)),
        };
        Ok(Self { xid, program, version, procedure, credentials, arguments: reader, body })
    }
}

/// Returns program and procedure of a message that is probably a call.
pub(crate) fn procedure_of(message: &[u8]) -> Option<(u32, u32)> {
    let mut reader = XdrReader::new(message);
    let [_xid, _kind, _rpc, program, _version, procedure] = [(); 6].map(|()| reader.u32().ok());
    Some((program?, procedure?))
}

fn parse_sys(credentials: &[u8]) -> Result<Credentials<'_>, Garbage> {
    let mut reader = XdrReader::new(credentials);
    let (_stamp, _machine) = (reader.u32()?, reader.opaque(MACHINE_BYTES_MAX)?);
    let (uid, gid, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if count > GROUPS_MAX {
        return Err(Garbage);
    }
    let groups = reader.rest().as_chunks().0.get(..count as usize).ok_or(Garbage)?;
    Ok(Credentials { uid, gid, groups })
}

fn denied(xid: u32, words: &[u32]) -> XdrWriter {
    let mut reply = XdrWriter::new();
    for word in [&[xid, REPLY, MSG_DENIED], words].concat() {
        reply.u32(word);
    }
    reply
}

/// Returns the start of a reply to an accepted call.
pub(crate) fn accepted(xid: u32, outcome: Accepted) -> XdrWriter {
    let mut reply = XdrWriter::new();
    for word in [xid, REPLY, MSG_ACCEPTED, AUTH_NONE, 0] {
        reply.u32(word);
    }
    match outcome {
        Accepted::Success => reply.u32(0),
        Accepted::ProgramUnavailable => reply.u32(1),
        Accepted::ProgramMismatch(version) => {
            reply.u32(2);
            reply.u32(version);
            reply.u32(version);
        }
        Accepted::ProcedureUnavailable => reply.u32(3),
        Accepted::GarbageArguments => reply.u32(4),
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// A call with `AUTH_SYS`: stamp, an empty name, user 5, group 6, groups 7 and 8.
    const CALLED: [u32; 17] = [9, 0, 2, 100_003, 3, 1, 1, 28, 0, 0, 5, 6, 2, 7, 8, 0, 0];

    #[test]
    fn calls_are_read() {
        let bytes = message(&[&CALLED[..], &[77]].concat());
        let mut call = Call::parse(&bytes).unwrap();
        assert_eq!((call.xid, call.program, call.version, call.procedure), (9, 100_003, 3, 1));
        let credentials = call.credentials.unwrap();
        assert_eq!((credentials.uid, credentials.gid), (5, 6));
        assert!([6, 7, 8].into_iter().all(|gid| credentials.is_in(gid)) && !credentials.is_in(5));
        assert_eq!(call.arguments.u32(), Ok(77));
        assert_eq!(call.body, &bytes[4..]);
        assert_eq!(procedure_of(&bytes), Some((100_003, 1)));
        assert_eq!(procedure_of(&bytes[..23]), None);
        let nameless = message(&[9, 0, 2, 100_003, 3, 1, 0, 0, 0, 0]);
        assert!(Call::parse(&nameless).unwrap().credentials.is_none());
    }

    #[test]
    fn truncated_messages_and_replies_are_ignored() {
        let bytes = message(&CALLED);
        for len in 0..bytes.len() {
            let parsed = Call::parse(&bytes[..len]);
            assert!(matches!(parsed, Err(NoCall::Ignored)), "{len} bytes: {parsed:?}");
        }
        let reply = message(&[&[9, 1], &CALLED[2..]].concat());
        assert!(matches!(Call::parse(&reply), Err(NoCall::Ignored)));
    }

    #[test]
    fn other_versions_and_credentials_are_denied() {
        let denied = |at: usize, value: u32| {
            let mut words = CALLED;
            words[at] = value;
            match Call::parse(&message(&words)) {
                Err(NoCall::Denied(reply)) => reply.into_record()[4..].to_vec(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(denied(2, 3), message(&[9, 1, 1, 0, 2, 2]), "version of RPC");
        assert_eq!(denied(6, 6), message(&[9, 1, 1, 1, 2]), "GSS");
        assert_eq!(denied(12, 17), message(&[9, 1, 1, 1, 1]), "number of groups");
        assert_eq!(denied(12, 3), message(&[9, 1, 1, 1, 1]), "groups beyond the credentials");
        assert_eq!(denied(9, 1 << 30), message(&[9, 1, 1, 1, 1]), "name beyond the credentials");
    }
}
