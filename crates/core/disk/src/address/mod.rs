//! Addresses without their secrets, and untrusted text without control characters.
//!
//! A query may be a signature (presigned URLs, SAS tokens), and a user name may be followed by a password. Neither may
//! reach a terminal, a log, a report or the mount table. Names, labels and answers of servers may contain control
//! characters that manipulate a terminal.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// The address of a place. `Display` and `Debug` omit the query, the fragment, the user and the password, and escape
/// control characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(String);

impl Address {
    /// Stores an address as the caller wrote it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the whole address, including secrets. Only for requests.
    #[must_use]
    pub fn with_secrets(&self) -> &str {
        &self.0
    }

    /// Returns the address without its secrets.
    #[must_use]
    pub fn public(&self) -> Cow<'_, str> {
        public(&self.0)
    }
}

impl From<&str> for Address {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&safe_line(&self.0))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.public(), f)
    }
}

/// Returns `word` without secrets if it contains an address, else `word` itself.
#[must_use]
pub fn public(word: &str) -> Cow<'_, str> {
    let Some((before, rest)) = word.split_once("://") else { return Cow::Borrowed(word) };
    let scheme = scheme_before(before);
    if scheme.is_empty() {
        return Cow::Borrowed(word);
    }
    let rest_shown = public_rest(scheme, rest);
    if rest_shown == rest { Cow::Borrowed(word) } else { format!("{before}://{rest_shown}").into() }
}

/// Returns the scheme at the end of the text before `://`.
fn scheme_before(text: &str) -> &str {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-');
    &text[text.trim_end_matches(is_part).len()..]
}

/// Returns the part of an address after `://`, without secrets.
fn public_rest<'a>(scheme: &str, rest: &'a str) -> Cow<'a, str> {
    let (path, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let (authority, tail) = path.split_at(path.find('/').unwrap_or(path.len()));
    let mut shown: Cow<'a, str> = path.into();
    if let Some((user, host)) = authority.rsplit_once('@') {
        shown = match scheme {
            // The user part is the name of a container. In a wrong address a password may follow it.
            "abfs" | "abfss" if !user.contains(':') => path.into(),
            _ => format!("{host}{tail}").into(),
        };
    }
    if scheme == "nbd+unix" {
        let socket = query.trim_start_matches('?').split(['&', '#']);
        if let Some(socket) = socket.into_iter().find(|pair| pair.starts_with("socket=")) {
            shown = format!("{shown}?{socket}").into();
        }
    }
    shown
}

/// Returns a message without the secrets of any address in it, with control characters escaped. Newlines and tabs are
/// kept.
#[must_use]
pub fn safe(text: &str) -> String {
    escaped(&without_secrets(text), |c| matches!(c, '\n' | '\t'))
}

/// Like [`safe`], for text that must stay on one line.
#[must_use]
pub fn safe_line(text: &str) -> String {
    escaped(&without_secrets(text), |_| false)
}

/// Checks whether a character ends an address in a message.
fn ends_address(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '"' | '\'' | '`' | '<' | '>' | '(' | ')' | '[' | ']' | '{' | '}' | '|')
}

/// Removes the secrets from every address in a text.
fn without_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return text.into();
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let scheme = scheme_before(&rest[..at]);
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        // An IPv6 address is in brackets, at the start or after a user.
        let authority = &after[..after.find(['/', '?', '#', ' ']).unwrap_or(after.len())];
        let bracket = if authority.starts_with('[') { Some(0) } else { authority.find("@[") };
        let host_end = bracket.and_then(|_| authority.find(']')).map_or(0, |at| at + 1);
        let end = after[host_end..].find(ends_address).map_or(after.len(), |at| host_end + at);
        let (address, behind) = after.split_at(end);
        // Punctuation of the sentence is not part of the address.
        let bare = address.trim_end_matches([':', ',', ';', '.', '?']);
        let bare = if scheme.is_empty() { Cow::Borrowed(bare) } else { public_rest(scheme, bare) };
        shown.push_str(&bare);
        shown.push_str(&address[address.trim_end_matches([':', ',', ';', '.', '?']).len()..]);
        rest = behind;
    }
    shown.push_str(rest);
    shown.into()
}

/// Escapes control characters and characters that change the text direction, except those that `keeps` accepts.
fn escaped(text: &str, keeps: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !is_hostile(c) || keeps(c) => shown.push(c),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            // Writing to a string does not fail.
            c if c.is_ascii() => {
                let _ = write!(shown, "\\x{:02x}", u32::from(c));
            }
            c => shown.extend(c.escape_unicode()),
        }
    }
    shown
}

/// Checks whether a character may control a terminal or change the text direction.
#[must_use]
pub(crate) fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns a word that may be an address for display: without secrets, and escaped. Bytes that are not UTF-8 are shown
/// as `\xff`.
#[must_use]
pub fn shown(word: &[u8]) -> String {
    let mut shown = String::with_capacity(word.len());
    let text = std::str::from_utf8(word).map(public);
    let bytes = text.as_ref().map_or(word, |text| text.as_bytes());
    for chunk in bytes.utf8_chunks() {
        shown.push_str(&escaped(&chunk.valid().replace('\\', "\\\\"), |_| false));
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Escapes in JSON every character that `is_hostile` matches. Such characters occur only inside JSON strings.
#[must_use]
pub fn safe_json(json: String) -> String {
    let is_unsafe = |c: char| c != '\n' && is_hostile(c);
    if !json.contains(is_unsafe) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_unsafe(c) {
            // Each of them is one UTF-16 unit. Writing to a string does not fail.
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (word, shown) in [
            ("http://h/a.img?sig=x", "http://h/a.img"),
            ("image:https://h:80/a#x", "image:https://h:80/a"),
            ("https://u:p@h/a", "https://h/a"),
            ("https://u:p/w@h", "https://u:p/w@h"),
            ("abfss://c@account.host/a?sas", "abfss://c@account.host/a"),
            ("abfss://c:p@account.host/a", "abfss://account.host/a"),
            ("nbd+unix:///x?a=b&socket=/s", "nbd+unix:///x?socket=/s"),
            ("root.img?x", "root.img?x"),
            ("/a://b?c", "/a://b?c"),
        ] {
            let expected = if word == "/a://b?c" { "/a://b" } else { shown };
            assert_eq!(public(word), expected);
            let address = Address::new(word);
            assert_eq!(address.to_string(), expected);
            assert_eq!(format!("{address:?}"), format!("{expected:?}"));
            assert_eq!(address.with_secrets(), word);
        }
    }

    #[test]
    fn messages_have_neither_secrets_nor_control_characters() {
        for (text, shown) in [
            (
                "cannot open http://h/a?s=x: no, see \"s3://b/c?t\".",
                "cannot open http://h/a: no, see \"s3://b/c\".",
            ),
            ("GET http://u:p@[::1]:8/x?y in 3ms", "GET http://[::1]:8/x in 3ms"),
            ("a\u{1b}[31m\u{9b}\u{202e}\u{61c}\r\nb", "a\\x1b[31m\\u{9b}\\u{202e}\\u{61c}\\r\nb"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(safe(text), shown);
        }
        assert_eq!(safe_line("a\nb\t"), "a\\nb\\t");
    }
}
