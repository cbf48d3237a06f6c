//! Answers to messages.

use std::net::IpAddr;

use siphasher::sip::SipHasher24;

use crate::access::Caller;
use crate::duplicates::{Begun, RequestKey};
use crate::rpc::{self, Accepted, Call, NoCall};
use crate::service::NfsService;
use crate::xdr::Garbage;
use crate::{mount, procedures};

impl NfsService<'_> {
    /// Returns the reply to a message as a record (RFC 5531, section 11). `None` if the message gets no reply.
    pub fn answer(&self, client: IpAddr, message: &[u8]) -> Option<Vec<u8>> {
        let call = match Call::parse(message) {
            Ok(call) => call,
            Err(NoCall::Ignored) => return None,
            Err(NoCall::Denied(reply)) => return Some(reply.into_record()),
        };
        if call.program != procedures::PROGRAM || !procedures::is_cached(call.procedure) {
            return Some(self.process(client, &call));
        }
        let key = RequestKey {
            client,
            xid: call.xid,
            procedure: call.procedure,
            checksum: SipHasher24::new().hash(call.body),
        };
        match self.duplicates.begin(key) {
            Begun::New(ticket) => {
                let reply = self.process(client, &call);
                ticket.finish(&reply);
                Some(reply)
            }
            Begun::Answered(reply) => Some(reply),
            Begun::Pending => None,
        }
    }

    /// Returns whether a message is a call that only reads names and attributes.
    pub(crate) fn is_query(message: &[u8]) -> bool {
        rpc::procedure_of(message).is_some_and(|(program, procedure)| {
            program == procedures::PROGRAM && procedures::is_query(procedure)
        })
    }

    fn process(&self, client: IpAddr, call: &Call<'_>) -> Vec<u8> {
        let refused = |outcome| rpc::accepted(call.xid, outcome).into_record();
        let version = match call.program {
            procedures::PROGRAM => procedures::VERSION,
            mount::PROGRAM => mount::VERSION,
            _ => return refused(Accepted::ProgramUnavailable),
        };
        if call.version != version {
            return refused(Accepted::ProgramMismatch(version));
        }
        let caller = Caller::new(self.options.callers, self.options.only_user, call.credentials);
        let mut reply = rpc::accepted(call.xid, Accepted::Success);
        let (arguments, reply_to) = (call.arguments, &mut reply);
        let answered = match call.program {
            mount::PROGRAM => self.answer_mount(client, call.procedure, arguments, reply_to),
            _ => self.answer_nfs(&caller, call.procedure, arguments, reply_to),
        };
        match answered {
            Ok(true) => reply.into_record(),
            Ok(false) => refused(Accepted::ProcedureUnavailable),
            Err(Garbage) => refused(Accepted::GarbageArguments),
        }
    }
}
