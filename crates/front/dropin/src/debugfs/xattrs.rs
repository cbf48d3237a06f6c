//! Requests about extended attributes.

use std::fs;

use ext4::Ext4;
use vfs::{FileSystem, Ino, SetAttributes};

use super::phrases::words;
use super::request::{Request, host_path, shown};
use super::session::DebugSession;
use crate::failure::Failure;
use crate::invoked::{say, say_bytes};

/// Minimum length of values that are omitted from lists.
const SHOWN_MAX: usize = 40;

/// Returns the attributes of an inode in on-disk order.
pub(super) fn all(fs: &Ext4, ino: Ino) -> vfs::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = Vec::new();
    fs.list_xattrs(ino, &mut |name| names.push(name.to_vec()))?;
    let value = |name: Vec<u8>| fs.get_xattr(ino, &name).map(|value| (name, value));
    names.into_iter().map(value).collect()
}

/// Formats a line of a list.
pub(super) fn line(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut line = [b"  ", name, format!(" ({})", value.len()).as_bytes()].concat();
    if value.len() < SHOWN_MAX && !value.is_empty() {
        line.extend_from_slice(b" = ");
        line.extend_from_slice(&value_text(value, false, true));
    }
    line.push(b'\n');
    line
}

/// Formats a value as text, or in hexadecimal on request or if it is not printable.
fn value_text(value: &[u8], is_hex: bool, is_quoted: bool) -> Vec<u8> {
    let is_text = value.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if is_hex || !is_text {
        return value.iter().map(|byte| format!("{byte:02x} ")).collect::<String>().into_bytes();
    }
    let quote = if is_quoted { &b"\""[..] } else { b"" };
    [quote, value, quote].concat()
}

/// `ea_list FILE`.
pub(super) fn list(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let ino = session.ino(path)?;
    let attributes = all(session.fs()?, ino).map_err(|e| request.failed(words(&e)))?;
    if !attributes.is_empty() {
        say(format_args!("Extended attributes:"));
    }
    attributes.iter().for_each(|(name, value)| say_bytes(&line(name, value)));
    Ok(())
}

/// `ea_get [-f HOSTFILE] [-xV] FILE NAME`.
pub(super) fn get(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("xVCr", "f")?;
    let has = |wanted| options.iter().any(|(letter, _)| *letter == wanted);
    if has('C') {
        return Err(request.refused("-C", "use -x to print bytes, or -f to write them to a file"));
    }
    let &[path, name] = &*rest else { return Err(request.wrong_words()) };
    let ino = session.ino(path)?;
    let value = session.fs()?.get_xattr(ino, name).map_err(|e| {
        request.failed(format_args!("{} while getting extended attribute", words(&e)))
    })?;
    if let Some((_, file)) = options.iter().find(|(letter, _)| *letter == 'f') {
        let written = fs::write(host_path(file), value);
        return written.map_err(|e| request.failed(format_args!("{}: {e}", shown(file))));
    }
    let mut out = Vec::new();
    if has('V') {
        let text = if has('x') { value_text(&value, true, false) } else { value };
        out.extend_from_slice(&text);
    } else {
        out.extend_from_slice(name);
        out.extend_from_slice(format!(" ({}) = ", value.len()).as_bytes());
        out.extend_from_slice(&value_text(&value, has('x'), true));
        out.push(b'\n');
    }
    out.push(b'\n');
    say_bytes(&out);
    Ok(())
}

/// `ea_set [-f HOSTFILE] [-r] FILE NAME [VALUE]`. The value may contain C escapes.
pub(super) fn set(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("r", "f")?;
    let file = options.iter().find(|(letter, _)| *letter == 'f').map(|(_, file)| *file);
    let (path, name, value) = match (&*rest, file) {
        (&[path, name], Some(file)) => {
            let value = fs::read(host_path(file));
            let value = value.map_err(|e| request.failed(format_args!("{}: {e}", shown(file))))?;
            (path, name, value)
        }
        (&[path, name, value], None) => (path, name, unescaped(value)),
        _ => return Err(request.wrong_words()),
    };
    let ino = session.ino(path)?;
    let fs = session.fs()?;
    let before = fs.attributes(ino).map_err(|e| request.failed(words(&e)))?;
    fs.set_xattr(ino, name, &value).map_err(|e| request.failed(words(&e)))?;
    keep_time(fs, ino, before.ctime).map_err(|e| request.failed(words(&e)))
}

/// `ea_rm FILE NAME…`. An attribute that is missing is ignored.
pub(super) fn remove(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let Some((path, names)) = request.words.split_first().filter(|(_, names)| !names.is_empty())
    else {
        return Err(request.wrong_words());
    };
    let ino = session.ino(path)?;
    let fs = session.fs()?;
    let before = fs.attributes(ino).map_err(|e| request.failed(words(&e)))?;
    for name in names {
        match fs.remove_xattr(ino, name) {
            Ok(()) | Err(vfs::Error::NoAttribute) => {}
            Err(error) => return Err(request.failed(words(&error))),
        }
    }
    keep_time(fs, ino, before.ctime).map_err(|e| request.failed(words(&e)))
}

/// Restores the ctime of the inode, which the original does not change.
fn keep_time(fs: &Ext4, ino: Ino, ctime: vfs::Timestamp) -> vfs::Result<()> {
    let purpose = vfs::ChangePurpose::Consequence;
    let change = SetAttributes { ctime: Some(ctime), purpose, ..SetAttributes::default() };
    fs.set_attributes(ino, &change)
}

/// Decodes C escapes: `\\`, letters, up to three octal digits, and `\x` with hexadecimal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let Some(&next) = rest.first().filter(|_| byte == b'\\') else {
            value.push(byte);
            continue;
        };
        let (radix, skip, most) = match next {
            b'x' => (16, 1, 2),
            b'0'..=b'7' => (8, 0, 3),
            _ => (0, 1, 0),
        };
        rest = &rest[skip..];
        let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
        let len = if radix == 0 { 0 } else { rest.iter().take(most).take_while(is_digit).count() };
        let digits = std::str::from_utf8(&rest[..len]).unwrap_or_default();
        rest = &rest[len..];
        value.push(match next {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            _ if radix > 0 => u32::from_str_radix(digits, radix).unwrap_or_default() as u8,
            other => other,
        });
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_escapes_of_c() {
        assert_eq!(unescaped(br"q\x41\n\001\377z\\"), b"qA\n\x01\xffz\\");
        assert_eq!(unescaped(br"a\"), br"a\");
    }

    #[test]
    fn values_that_are_not_text_are_shown_in_hexadecimal() {
        assert_eq!(line(b"user.a", b"hello"), b"  user.a (5) = \"hello\"\n");
        assert_eq!(line(b"user.b", b"\x01\xff"), b"  user.b (2) = 01 ff \n");
        assert_eq!(line(b"user.c", &[b'q'; 40]), b"  user.c (40)\n");
    }
}
