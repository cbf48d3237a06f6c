//! Regular expressions of file contexts: the regular subset of PCRE2.
//!
//! libselinux matches bytes, with `.` including newlines, against the whole path. Syntax that PCRE2 and the crate
//! `regex` interpret differently is translated here; features that only PCRE2 has are rejected.

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::hir::literal::Extractor;
use regex_syntax::{Parser, ParserBuilder};

/// Characters that distinguish an expression from a plain path.
const META: &[u8] = b".^$?*+|[({";

/// Returns the path that an expression without special characters matches.
pub(super) fn path(expression: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(expression.len());
    let mut bytes = expression.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => path.push(*bytes.next().filter(|next| next.is_ascii_punctuation())?),
            byte if META.contains(&byte) => return None,
            byte => path.push(byte),
        }
    }
    Some(path)
}

/// Maximum number of prefixes, and their maximum length in bytes.
const PREFIXES_MAX: usize = 32;
const PREFIX_BYTES_MAX: usize = 64;

/// Returns prefixes, one of which every matching path has.
///
/// # Errors
/// A sentence with the reason why the expression cannot be used.
pub(super) fn prefixes(expression: &str) -> Result<Vec<Vec<u8>>, String> {
    let parsed = parser().parse(&anchored(expression)?).map_err(|e| reason(&e))?;
    let mut extractor = Extractor::new();
    extractor.limit_total(PREFIXES_MAX).limit_literal_len(PREFIX_BYTES_MAX).limit_class(4);
    let mut found = extractor.extract(&parsed);
    found.dedup();
    let literals = found.literals().filter(|literals| !literals.is_empty());
    Ok(literals.map_or_else(
        || vec![Vec::new()],
        |literals| literals.iter().map(|literal| literal.as_bytes().to_vec()).collect(),
    ))
}

fn parser() -> Parser {
    let mut builder = ParserBuilder::new();
    builder.utf8(false).unicode(false).dot_matches_new_line(true).nest_limit(NEST_MAX).build()
}

/// Maximum nesting of groups.
const NEST_MAX: u32 = 100;
/// Maximum memory of a compiled expression in bytes.
const SIZE_MAX: usize = 4 << 20;

/// Compiles an expression.
pub(super) fn compile(expression: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(&anchored(expression)?);
    let builder = builder.unicode(false).dot_matches_new_line(true).nest_limit(NEST_MAX);
    builder.size_limit(SIZE_MAX).build().map_err(|e| e.to_string())
}

fn reason(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(e) => {
            use regex_syntax::ast::ErrorKind;
            match e.kind() {
                ErrorKind::UnsupportedLookAround => {
                    "lookaround is not supported; write it without (?=, (?!, (?<".into()
                }
                ErrorKind::UnsupportedBackreference => {
                    "backreferences are not supported; write it without one".into()
                }
                kind => format!("{kind}"),
            }
        }
        regex_syntax::Error::Translate(e) => e.kind().to_string(),
        other => other.to_string(),
    }
}

/// Returns the expression for the whole path, in the syntax of the crate `regex`.
fn anchored(expression: &str) -> Result<String, String> {
    // Expressions compiled by libselinux may already have their anchors.
    Ok(format!("^(?:{})$", translate(expression)?))
}

fn translate(expression: &str) -> Result<String, String> {
    let mut out = String::with_capacity(expression.len() + 8);
    let mut chars = expression.chars().peekable();
    let mut class: Option<usize> = None;
    let mut quantified = false;
    while let Some(char) = chars.next() {
        let was_quantified = std::mem::take(&mut quantified);
        match (char, class) {
            ('\\', _) => match chars.next() {
                // `regex` reads these as word boundaries, PCRE2 as characters.
                Some(escaped @ ('<' | '>')) => out.push(escaped),
                Some(escaped) => out.extend(['\\', escaped]),
                None => return Err("it ends with a backslash".into()),
            },
            ('[', None) => {
                out.push('[');
                class = Some(0);
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket in the first position is a member of the set.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            (']', Some(_)) => {
                out.push(']');
                class = None;
            }
            ('[', Some(_)) if chars.peek() == Some(&':') => {
                out.push('[');
                while let Some(char) = chars.next() {
                    out.push(char);
                    if char == ':' && chars.next_if_eq(&']').is_some() {
                        out.push(']');
                        break;
                    }
                    if out.len() > expression.len() * 2 + 8 {
                        break;
                    }
                }
            }
            // PCRE2 has no nested sets.
            ('[' | '&' | '~', Some(_)) => out.extend(['\\', char]),
            ('-', Some(_)) if chars.peek() == Some(&'-') => out.push_str("\\-"),
            ('+', None) if was_quantified => {
                return Err("possessive quantifiers (*+, ++, ?+, }+) are not supported".into());
            }
            ('?' | '*' | '+' | '}', None) => {
                out.push(char);
                // A question mark after it only makes it lazy.
                quantified = !(char == '?' && was_quantified);
            }
            (char, _) => out.push(char),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_found() {
        let is_path =
            |text: &str| path(text.as_bytes()).map(|path| String::from_utf8(path).unwrap());
        assert_eq!(is_path("/etc/passwd").unwrap(), "/etc/passwd");
        assert_eq!(is_path(r"/etc/ld\.so\.conf").unwrap(), "/etc/ld.so.conf");
        for expression in ["/usr(/.*)?", "/a|/b", "/a[|]b", r"/a\d", "/a.", "/a+"] {
            assert_eq!(is_path(expression), None, "{expression}");
        }
        let begin = |expression: &str| {
            let found = prefixes(expression).unwrap();
            found.into_iter().map(|prefix| String::from_utf8(prefix).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(begin("/usr/bin/.*"), ["/usr/bin/"]);
        assert_eq!(begin("/var/(lib|log)/x.*"), ["/var/lib/x", "/var/log/x"]);
        assert_eq!(begin("/usr/s?bin/x"), ["/usr/sbin/x", "/usr/bin/x"]);
        assert_eq!(begin(".*/x"), [""]);
        assert!(begin("/usr(/.*)?").iter().all(|prefix| "/usr/x".starts_with(prefix)));
        assert!(begin("/a|/b").len() == 2);
    }

    #[test]
    fn expressions_mean_what_they_mean_to_pcre2() {
        let is = |expression: &str, path: &str| {
            prefixes(expression).unwrap();
            compile(expression).unwrap().is_match(path.as_bytes())
        };
        assert!(is("/a|/b", "/b") && !is("/a|/b", "/bx"));
        assert!(is("/a.*", "/a\nb"));
        assert!(is(r"/\<x\>", "/<x>"));
        assert!(is("/[]x]", "/]") && is("/[^]x]", "/y"));
        assert!(is("/[a&&b]", "/&") && is("/[[]", "/[") && is("/[~~]", "/~"));
        assert!(is("/[[:digit:]]+", "/12") && is("/[--]", "/-"));
        assert!(is(r"/a\-b\/c", "/a-b/c"));
        assert!(is("/a+?", "/aa") && is("/a??", "/"));
        assert!(is("/é", "/é"));
        assert!(compile("/.").unwrap().is_match(b"/\xff"));
    }

    #[test]
    fn non_regular_expressions_are_refused() {
        let said = |expression: &str| prefixes(expression).unwrap_err();
        assert!(said("/(?!a)b").contains("lookaround"));
        assert!(said(r"/(a)\1").contains("backreferences"));
        assert!(said("/a*+").contains("possessive"));
        assert!(said("/(a").contains("unclosed"));
        assert!(said("/a\\").contains("backslash"));
        assert!(said(&"(".repeat(1000)).len() < 200);
    }
}
