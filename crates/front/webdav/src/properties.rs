//! Properties that clients store, and times that they set.
//!
//! Each property is an extended attribute: its name contains a hash of namespace and name of the property, its value
//! both of them and the element.

use dav_server::fs::{DavProp, FsError, FsResult};
use http::StatusCode;
use siphasher::sip128::SipHasher24;
use vfs::path::LastLink;
use vfs::{Attributes, Error, FileType, Ino, SetAttributes, Timestamp};
use xmltree::Element;

use crate::volume::Volume;
use crate::{names, times};

/// Start of the names of attributes with properties.
const PREFIX: &[u8] = b"user.webdav.";
/// Maximum number of properties of a file that are listed.
const LISTED_MAX: usize = 128;

/// Namespaces of properties.
pub(crate) const DAV: &str = "DAV:";
pub(crate) const MICROSOFT: &str = "urn:schemas-microsoft-com:";

/// Namespaces of times in requests. `dav-server` does not set times, so [`crate::answer`] renames these properties to
/// some that it does not know, and renames them back in the response.
pub(crate) const DAV_TIMES: &str = "urn:diskwright:times:dav";
pub(crate) const MICROSOFT_TIMES: &str = "urn:diskwright:times:microsoft";

/// Returns the namespace that a time has in a request for `dav-server`, if clients can set it.
pub(crate) fn namespace_of_time(namespace: Option<&str>, name: &str) -> Option<&'static str> {
    match (namespace?, name) {
        (DAV, "getlastmodified") => Some(DAV_TIMES),
        (MICROSOFT, "Win32LastModifiedTime" | "Win32LastAccessTime" | "Win32CreationTime") => {
            Some(MICROSOFT_TIMES)
        }
        _ => None,
    }
}

impl Volume<'_> {
    /// Changes properties and times. The first failure ends the change; times are checked before anything changes.
    pub(crate) fn patch_properties(
        &self,
        path: &[u8],
        patch: Vec<(bool, DavProp)>,
    ) -> FsResult<Vec<(StatusCode, DavProp)>> {
        let file = self.property_owner(path)?;
        let Some(times) = new_times(&patch, self.served.now()) else {
            let status = |prop: &DavProp| match is_time(prop) {
                true => StatusCode::CONFLICT,
                false => StatusCode::FAILED_DEPENDENCY,
            };
            return Ok(answers(patch, status));
        };
        self.change(|| {
            for (sets, prop) in patch.iter().filter(|(_, prop)| !is_time(prop)) {
                match sets {
                    true => {
                        self.fs().set_xattr(file.ino, &attribute_name(prop), &value_of(prop))?;
                    }
                    false => match self.fs().remove_xattr(file.ino, &attribute_name(prop)) {
                        // A missing property is removed already (RFC 4918, section 14.23).
                        Err(Error::NoAttribute) => {}
                        removed => removed?,
                    },
                }
            }
            self.fs().set_attributes(file.ino, &times)
        })?;
        Ok(answers(patch, |_| StatusCode::OK))
    }

    /// Returns the stored properties of a file, at most 128.
    pub(crate) fn properties(&self, path: &[u8]) -> FsResult<Vec<DavProp>> {
        let file = self.property_owner(path)?;
        let mut stored = Vec::new();
        let listed = self.fs().list_xattrs(file.ino, &mut |name| {
            if name.starts_with(PREFIX) && stored.len() < LISTED_MAX {
                stored.push(name.to_vec());
            }
        });
        if let Err(error) = listed
            && !matches!(error, Error::Unsupported(_))
        {
            return Err(self.failed(&error));
        }
        let read = |name: Vec<u8>| self.read_property(file.ino, &name);
        Ok(stored.into_iter().filter_map(read).collect())
    }

    /// Returns the element of a stored property.
    pub(crate) fn property(&self, path: &[u8], prop: &DavProp) -> FsResult<Vec<u8>> {
        let file = self.property_owner(path)?;
        let stored = self.read_property(file.ino, &attribute_name(prop));
        let same = stored.filter(|stored| {
            stored.name == prop.name && stored.namespace.as_deref().unwrap_or("") == namespace(prop)
        });
        same.and_then(|stored| stored.xml).ok_or(FsError::NotFound)
    }

    fn property_owner(&self, path: &[u8]) -> FsResult<Attributes> {
        let found = self
            .result(names::of_path(path).and_then(|names| self.find(&names, LastLink::Follow)))?;
        let can_have = matches!(found.file_type, FileType::Regular | FileType::Directory);
        if can_have { Ok(found) } else { Err(FsError::NotFound) }
    }

    fn read_property(&self, ino: Ino, attribute: &[u8]) -> Option<DavProp> {
        match self.fs().get_xattr(ino, attribute) {
            Ok(value) => parse(&value),
            Err(Error::NoAttribute | Error::Unsupported(_)) => None,
            Err(error) => {
                self.failed(&error);
                None
            }
        }
    }
}

fn answers(
    patch: Vec<(bool, DavProp)>,
    status: impl Fn(&DavProp) -> StatusCode,
) -> Vec<(StatusCode, DavProp)> {
    let answer = |(_, prop): (bool, DavProp)| (status(&prop), DavProp { xml: None, ..prop });
    patch.into_iter().map(answer).collect()
}

fn is_time(prop: &DavProp) -> bool {
    matches!(namespace(prop), DAV_TIMES | MICROSOFT_TIMES)
}

/// Returns the change of attributes that a request asks for, or `None` if a time is invalid.
fn new_times(patch: &[(bool, DavProp)], now: Timestamp) -> Option<SetAttributes> {
    let mut change = SetAttributes { ctime: Some(now), ..SetAttributes::default() };
    for (sets, prop) in patch.iter().filter(|(_, prop)| is_time(prop)) {
        let xml = prop.xml.as_deref().filter(|_| *sets)?;
        let text = Element::parse(xml).ok()?.get_text()?.into_owned();
        let time = Some(times::parse(&text)?);
        match prop.name.as_str() {
            "Win32LastAccessTime" => change.atime = time,
            "Win32CreationTime" => change.crtime = time,
            _ => change.mtime = time,
        }
    }
    Some(change)
}

fn namespace(prop: &DavProp) -> &str {
    prop.namespace.as_deref().unwrap_or("")
}

/// Returns the name of the attribute for a property.
fn attribute_name(prop: &DavProp) -> Vec<u8> {
    let key = [namespace(prop).as_bytes(), &[0], prop.name.as_bytes()].concat();
    let hash = SipHasher24::new().hash(&key).as_bytes();
    [PREFIX, vfs::text::hex(&hash).as_bytes()].concat()
}

/// Returns the value of the attribute for a property. XML contains no NUL.
fn value_of(prop: &DavProp) -> Vec<u8> {
    let xml = prop.xml.as_deref().unwrap_or_default();
    [namespace(prop).as_bytes(), &[0], prop.name.as_bytes(), &[0], xml].concat()
}

/// Parses the value of an attribute. Images may contain any value, so the element is parsed, too.
fn parse(value: &[u8]) -> Option<DavProp> {
    let mut parts = value.splitn(3, |&byte| byte == 0);
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (namespace, name, xml) = (text()?, text()?, text()?);
    crate::xml_guard::check(xml.as_bytes()).ok()?;
    let element = Element::parse(xml.as_bytes()).ok()?;
    let found = element.namespace.as_deref().unwrap_or("");
    if element.name != name || found != namespace {
        return None;
    }
    Some(DavProp {
        name: name.into(),
        prefix: element.prefix,
        namespace: Some(namespace.into()).filter(|namespace: &String| !namespace.is_empty()),
        xml: Some(xml.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prop(namespace: &str, name: &str, text: &str) -> DavProp {
        DavProp::new(name.into(), "x".into(), namespace.into(), text.into())
    }

    #[test]
    fn properties_are_read_as_they_were_stored() {
        let colour = prop("http://example.net/", "colour", "r&amp;d");
        let read = parse(&value_of(&colour)).unwrap();
        assert_eq!(
            (read.name.as_str(), read.namespace.as_deref()),
            ("colour", Some("http://example.net/"))
        );
        assert_eq!(read.xml, colour.xml);
        let other = prop("http://example.org/", "colour", "r");
        assert!(attribute_name(&colour).starts_with(PREFIX));
        assert_ne!(attribute_name(&colour), attribute_name(&other));
    }

    #[test]
    fn strange_values_are_no_properties() {
        let deep = format!("a\0b\0{}{}", "<b>".repeat(5000), "</b>".repeat(5000));
        for value in ["", "\0", "a\0b\0", "a\0b\0<b/>", "\0b\0<c/>", "\0b\0<b>", &deep] {
            assert!(parse(value.as_bytes()).is_none(), "{}", &value[..value.len().min(20)]);
        }
        assert!(parse(b"\0b\0<b/>").is_some());
    }

    #[test]
    fn times_of_requests_are_read() {
        let date = "Mon, 12 Jan 1998 09:25:56 GMT";
        let now = Timestamp { sec: 5, nsec: 6 };
        let mtime = (true, prop(DAV_TIMES, "getlastmodified", date));
        let atime = (true, prop(MICROSOFT_TIMES, "Win32LastAccessTime", date));
        let change = new_times(&[mtime, atime], now).unwrap();
        assert_eq!(change.mtime.map(|time| time.sec), Some(884_597_156));
        assert_eq!((change.atime, change.ctime), (change.mtime, Some(now)));
        assert!(new_times(&[(true, prop(DAV_TIMES, "getlastmodified", "today"))], now).is_none());
        assert!(new_times(&[(false, prop(DAV_TIMES, "getlastmodified", date))], now).is_none());
        assert_eq!(new_times(&[], now).unwrap().mtime, None);
    }
}
