//! Properties that a file lacks, in answers to PROPFIND. `dav-server` omits them, and RFC 4918 (section 9.1) requires the
//! status 404 for each.

use std::collections::HashSet;

use bytes::Bytes;
use xmltree::{Element, XMLNode};

const START: &str = "<D:response>";
const END: &str = "</D:response>";

/// Properties that a request names.
#[derive(Debug, Default)]
pub(crate) struct NamedProperties(Vec<(String, String)>);

impl NamedProperties {
    /// Returns the properties that a request with this element names.
    pub(crate) fn of(propfind: &Element) -> Self {
        let named = propfind.get_child("prop").into_iter().flat_map(|prop| &prop.children);
        let named = named.filter_map(XMLNode::as_element);
        let pair =
            |named: &Element| (named.namespace.clone().unwrap_or_default(), named.name.clone());
        Self(named.map(pair).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the missing properties to each answer in a piece. `dav-server` writes each answer as one piece.
    pub(crate) fn complete(&self, piece: Bytes) -> Bytes {
        let Ok(mut rest) = std::str::from_utf8(&piece) else { return piece };
        let mut completed = String::with_capacity(piece.len());
        while let Some(end) = rest.find(END) {
            let (answer, after) = rest.split_at(end);
            completed += answer;
            let start = answer.rfind(START).unwrap_or(0);
            completed += &self.missing_in(&answer[start..]);
            completed += END;
            rest = &after[END.len()..];
        }
        completed += rest;
        Bytes::from(completed)
    }

    /// Returns the part of an answer for the properties that it lacks.
    fn missing_in(&self, answer: &str) -> String {
        let present: HashSet<_> = answer.split('<').filter_map(local_name).collect();
        let missing: String = self
            .0
            .iter()
            .filter(|(_, name)| !present.contains(name.as_str()))
            .map(|(namespace, name)| format!("<{name} xmlns=\"{}\"/>", escaped(namespace)))
            .collect();
        if missing.is_empty() {
            return missing;
        }
        format!(
            "<D:propstat><D:prop>{missing}</D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>"
        )
    }
}

/// Returns the name of an element without its prefix, from the text after `<`.
fn local_name(tag: &str) -> Option<&str> {
    let name = tag.split([' ', '/', '>']).next()?;
    name.rsplit(':').next().filter(|name| !name.is_empty())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_properties_are_added_to_each_answer() {
        let request =
            b"<propfind xmlns='DAV:'><prop><getetag/><x xmlns='a&amp;b'/></prop></propfind>";
        let named = NamedProperties::of(&Element::parse(&request[..]).unwrap());
        let with = |properties: &str| format!("{START}<D:prop>{properties}</D:prop>{END}");
        let complete = |text: &str| named.complete(Bytes::from(text.to_owned()));
        let full = format!("<a>{}</a>", with("<D:getetag>1</D:getetag><n:x/>"));
        assert_eq!(complete(&full), full);
        let text = complete(&format!("{}{}", with("<D:getetag/>"), with("<x/>")));
        let text = std::str::from_utf8(&text).unwrap();
        assert_eq!(text.matches("404 Not Found").count(), 2, "{text}");
        assert_eq!(text.matches("<x xmlns=\"a&amp;b\"/>").count(), 1, "{text}");
        assert_eq!(text.matches("<getetag xmlns=\"DAV:\"/>").count(), 1, "{text}");
    }
}
