//! Responses of the server.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;

use super::{Object, WebFault, WebRequest};

/// Writes the response. Returns false if the connection ends with it.
pub(super) fn write(
    stream: &TcpStream,
    request: &WebRequest,
    object: Option<&Object>,
    fault: Option<WebFault>,
) -> io::Result<bool> {
    match (fault, object) {
        (Some(WebFault::Silence), _) => Ok(false),
        (Some(WebFault::Status(status)), _) => write_status(stream, status),
        (_, None) => write_status(stream, 404),
        (fault, Some(object)) => write_object(stream, request, object, fault),
    }
}

fn write_status(mut stream: &TcpStream, status: u16) -> io::Result<bool> {
    write!(stream, "HTTP/1.1 {status} Status\r\nContent-Length: 0\r\n\r\n").map(|()| true)
}

fn write_object(
    mut stream: &TcpStream,
    request: &WebRequest,
    object: &Object,
    fault: Option<WebFault>,
) -> io::Result<bool> {
    let is_put = request.method == "PUT";
    if !is_put && request.if_match.is_some() && request.if_match != object.etag {
        return write_status(stream, 412);
    }
    let total = object.bytes.len() as u64;
    let wanted = request.range.clone().filter(|_| fault != Some(WebFault::Whole));
    let range = wanted.as_ref().map_or(0..total, |range| range.start..range.end.min(total));
    if range.start >= range.end && total > 0 {
        return write_status(stream, 416);
    }
    let (said, sent) = ranges(range, total, fault);
    let body = &object.bytes[sent.start as usize..sent.end as usize];
    let body = if is_put { &[] } else { body };
    let mut head = match wanted {
        Some(_) => {
            let (first, last) = (said.start, said.end - 1);
            format!("HTTP/1.1 206 Part\r\nContent-Range: bytes {first}-{last}/{total}\r\n")
        }
        None => "HTTP/1.1 200 OK\r\n".into(),
    };
    let fields = [("ETag", &object.etag), ("Last-Modified", &object.modified)];
    for (name, value) in
        fields.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)))
    {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let _ = write!(head, "Content-Length: {}\r\n\r\n", body.len());
    let cut_off = fault == Some(WebFault::CutOff);
    let mut answer = head.into_bytes();
    if request.method != "HEAD" {
        answer.extend(&body[..if cut_off { body.len() / 2 } else { body.len() }]);
    }
    stream.write_all(&answer)?;
    Ok(!cut_off)
}

/// Returns the range in the header of a response, and the actual range.
fn ranges(range: Range<u64>, total: u64, fault: Option<WebFault>) -> (Range<u64>, Range<u64>) {
    let len = range.end - range.start;
    // Another range of the same length, if there is one.
    let other = if range.start >= len { range.start - len } else { (total - len).min(range.end) };
    match fault {
        Some(WebFault::Short) => (range.clone(), range.start..range.start + len / 2),
        Some(WebFault::WrongRange) => (other..other + len, other..other + len),
        Some(WebFault::Shifted) => (range.start..range.end - 1, other..other + len - 1),
        _ => (range.clone(), range),
    }
}
