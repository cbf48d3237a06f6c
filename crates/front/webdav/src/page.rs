//! The page of a directory for browsers.

use std::fmt::Write;
use std::io;

use bytes::Bytes;
use dav_server::fs::FsResult;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use vfs::Ino;

use crate::listing::{self, ListedEntry, ListingPurpose};
use crate::names;
use crate::pool::JobPool;
use crate::times;

/// Policy of the page: no scripts, nothing from other places, not within other pages.
pub(crate) const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// Number of entries that are sorted. The rest of larger directories follows in their own order.
const SORTED_MAX: usize = 10_000;

/// Bytes of names that are written as they are in addresses.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

const STYLE: &str = "body{font:1rem system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;\
     color-scheme:light dark}table{border-collapse:collapse;width:100%}th{text-align:left}\
     td,th{padding:.2rem .6rem .2rem 0}td+td,th+th{text-align:right;white-space:nowrap}";

/// Returns the page of a directory in pieces. `path` is the one of the request, below the secret.
pub(crate) fn pieces(
    pool: JobPool,
    (dir, path): (Ino, Vec<u8>),
    has_archive: bool,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let head = head(&path, has_archive);
    let entries = listing::entries(pool, (dir, path), ListingPurpose::Show);
    let rows =
        stream::try_unfold((Box::pin(entries), true), |(mut entries, is_first)| async move {
            let count = if is_first { SORTED_MAX } else { listing::PART_ENTRIES };
            let part: Vec<_> = entries.by_ref().take(count).collect().await;
            let mut part =
                part.into_iter().collect::<FsResult<Vec<_>>>().map_err(io::Error::other)?;
            if part.is_empty() {
                return Ok(None);
            }
            if is_first {
                part.sort_by(|a, b| order(a).cmp(&order(b)));
            }
            let rows: String = part.iter().map(row).collect();
            Ok::<_, io::Error>(Some((Bytes::from(rows), (entries, false))))
        });
    let frame = |text: String| stream::once(async move { Ok(Bytes::from(text)) });
    frame(head).chain(rows.into_stream()).chain(frame("</tbody></table></body></html>\n".into()))
}

/// Directories come first.
fn order(entry: &ListedEntry) -> (bool, &[u8]) {
    (!entry.attributes.file_type.is_dir(), &entry.name)
}

fn head(path: &[u8], has_archive: bool) -> String {
    let names: Vec<_> = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    let title = escaped(&format!("/{}", String::from_utf8_lossy(&names.join(&b'/'))));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1><p>"
    );
    if !names.is_empty() {
        page += "<a href=\"../\">Parent directory</a> ";
    }
    if has_archive {
        page += "<a href=\"./?tar\">Download as tar</a>";
    }
    page + "</p><table><thead><tr><th>Name</th><th>Size</th><th>Modified</th></tr></thead><tbody>\n"
}

fn row(entry: &ListedEntry) -> String {
    let is_dir = entry.attributes.file_type.is_dir();
    let shown = names::shown(&entry.name);
    let slash = if is_dir { "/" } else { "" };
    let size = if is_dir { String::new() } else { vfs::text::size(entry.attributes.size) };
    let modified = httpdate::fmt_http_date(times::of(entry.attributes.mtime));
    let mut row = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        row,
        "<tr><td><a href=\"./{}{slash}\">{}{slash}</a></td><td>{size}</td><td>{modified}</td></tr>",
        percent_encode(shown.as_bytes(), KEPT),
        escaped(&shown)
    );
    row
}

/// Escapes text for HTML. Characters that reorder text appear as numbers, so that names cannot imitate others.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html += "&amp;",
            '<' => html += "&lt;",
            '>' => html += "&gt;",
            '"' => html += "&quot;",
            '\'' => html += "&#39;",
            c if is_deceptive(c) => {
                let _ = write!(html, "[U+{:04X}]", u32::from(c));
            }
            c => html.push(c),
        }
    }
    html
}

fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

/// Returns the value of `Content-Disposition` for the archive of a directory.
pub(crate) fn archive_disposition(path: &[u8]) -> String {
    let name = path.split(|&byte| byte == b'/').rfind(|name| !name.is_empty()).unwrap_or(b"image");
    format!("attachment; filename*=UTF-8''{}.tar", percent_encode(name, KEPT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_contain_markup() {
        assert_eq!(escaped("<a href='x'>\"&"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;");
        assert_eq!(escaped("a\u{202e}b\u{7f}"), "a[U+202E]b[U+007F]");
        let page = head("/<script>/".as_bytes(), true);
        assert!(!page.contains("<script>") && page.contains("/&lt;script&gt;"), "{page}");
    }

    #[test]
    fn archives_have_the_name_of_their_directory() {
        let name = "attachment; filename*=UTF-8''";
        assert_eq!(archive_disposition(b"/"), format!("{name}image.tar"));
        assert_eq!(archive_disposition("/a/ö \"/".as_bytes()), format!("{name}%C3%B6%20%22.tar"));
    }
}
