//! Limits of XML from clients. `dav-server` and `xmltree` recurse for each level of elements.

use xml::reader::{EventReader, XmlEvent};

/// Maximum depth of elements.
const DEPTH_MAX: usize = 32;
/// Maximum number of elements, texts, comments and other parts.
const PARTS_MAX: usize = 2048;
/// Maximum size of all texts in bytes, after the expansion of entities.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Invalid XML, or more than the server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnacceptableXml;

/// Checks a document.
///
/// # Errors
/// If it is invalid, too deep or too large.
pub(crate) fn check(document: &[u8]) -> Result<(), UnacceptableXml> {
    let (mut depth, mut text_bytes) = (0, 0);
    for (count, event) in EventReader::new(document).into_iter().enumerate() {
        match event.map_err(|_| UnacceptableXml)? {
            XmlEvent::StartElement { .. } => depth += 1,
            XmlEvent::EndElement { .. } => depth -= 1,
            XmlEvent::Characters(text) | XmlEvent::CData(text) => text_bytes += text.len(),
            _ => {}
        }
        if depth > DEPTH_MAX || count > PARTS_MAX || text_bytes > TEXT_BYTES_MAX {
            return Err(UnacceptableXml);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_and_large_documents_are_refused() {
        let nested =
            |depth: usize| [vec!["<a>"; depth].concat(), vec!["</a>"; depth].concat()].concat();
        assert_eq!(check(nested(DEPTH_MAX).as_bytes()), Ok(()));
        assert_eq!(check(nested(DEPTH_MAX + 1).as_bytes()), Err(UnacceptableXml));
        let wide = format!("<a>{}</a>", "<b/>".repeat(PARTS_MAX));
        assert_eq!(check(wide.as_bytes()), Err(UnacceptableXml));
        assert_eq!(check(b"<a>"), Err(UnacceptableXml));
        assert_eq!(check(b"\xff\xfe"), Err(UnacceptableXml));
    }

    #[test]
    fn entities_do_not_expand_without_limit() {
        let mut document = String::from("<!DOCTYPE a [<!ENTITY e0 'xxxxxxxxxxxxxxxx'>");
        for level in 1..9 {
            let uses = format!("&e{};", level - 1).repeat(10);
            document += &format!("<!ENTITY e{level} '{uses}'>");
        }
        document += "]><a>&e8;</a>";
        assert_eq!(check(document.as_bytes()), Err(UnacceptableXml));
    }
}
