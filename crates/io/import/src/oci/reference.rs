//! Names of images: `oci:DIR[:ref|@digest]`, `oci-archive:FILE[:ref|@digest]`, `docker-archive:FILE[:tag]`,
//! `docker://[REGISTRY/]NAME[:tag|@digest]`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use oci_spec::image::{Arch, Digest, Os};

/// Location of an image, and the selection among several images there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub(super) transport: Transport,
    pub(super) path: PathBuf,
    pub(super) selector: Selector,
    /// The original text.
    text: String,
}

/// Storage of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// A directory in OCI image layout.
    Oci,
    /// An OCI image layout in a tar archive.
    OciArchive,
    /// An archive of `docker save`.
    DockerArchive,
    /// A registry.
    #[cfg(feature = "pull")]
    Registry,
}

/// Selection of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    Any,
    Name(String),
    Digest(String),
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("image"),
            Self::Name(name) => write!(f, "image {name:?}"),
            Self::Digest(digest) => write!(f, "image {digest}"),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Reference {
    /// Parses the name of an image. Returns `None` for anything else, such as a path.
    ///
    /// # Errors
    /// If it has the prefix of a name and is invalid.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        let (prefix, rest) = text.split_once(':')?;
        let transport = match prefix {
            "oci" => Transport::Oci,
            "oci-archive" => Transport::OciArchive,
            "docker-archive" => Transport::DockerArchive,
            "docker" if rest.starts_with("//") => return Some(Self::remote(rest, text)),
            _ => return None,
        };
        Some(Self::of(transport, rest, text))
    }

    fn of(transport: Transport, rest: &str, text: &str) -> Result<Self, String> {
        let (path, selector) = split(rest, cfg!(windows));
        if path.is_empty() {
            return Err(format!("{text:?} has no file name: write {}", usage(transport)));
        }
        if transport == Transport::Oci && path == "-" {
            return Err("a directory cannot come from standard input: use oci-archive:-".into());
        }
        if selector == Selector::Name(String::new()) {
            return Err(format!("{text:?} ends with a colon: write {}", usage(transport)));
        }
        if transport == Transport::DockerArchive && matches!(selector, Selector::Digest(_)) {
            return Err("docker-archive: has no digests; name the image by its tag".into());
        }
        Ok(Self { transport, path: path.into(), selector, text: text.into() })
    }

    #[cfg(feature = "pull")]
    fn remote(rest: &str, text: &str) -> Result<Self, String> {
        let name = &rest[2..];
        if let Err(error) = name.parse::<oci_client::Reference>() {
            return Err(format!("{text:?} is not an image name of a registry: {error}"));
        }
        let (transport, selector) = (Transport::Registry, Selector::Any);
        Ok(Self { transport, path: name.into(), selector, text: text.into() })
    }

    #[cfg(not(feature = "pull"))]
    fn remote(_: &str, text: &str) -> Result<Self, String> {
        Err(format!(
            "fetching images from registries needs a build with the feature \"pull\"; rebuild the \
             program with it, or use oci:DIR after `skopeo copy {text} oci:DIR`"
        ))
    }

    /// Returns whether the image is read from standard input.
    pub fn is_standard_input(&self) -> bool {
        self.path == Path::new("-")
    }
}

fn usage(transport: Transport) -> &'static str {
    match transport {
        Transport::Oci => "oci:DIR[:REF] or oci:DIR@DIGEST",
        Transport::OciArchive => "oci-archive:FILE[:REF] or oci-archive:FILE@DIGEST",
        Transport::DockerArchive => "docker-archive:FILE[:TAG]",
        #[cfg(feature = "pull")]
        Transport::Registry => "docker://[REGISTRY/]NAME[:TAG|@DIGEST]",
    }
}

/// Splits a path from the name after it. If a file with the whole text exists, the colon belongs to the path. With
/// `has_drives`, the colon of a drive belongs to the path.
fn split(rest: &str, has_drives: bool) -> (&str, Selector) {
    if let Some((path, digest)) = rest.rsplit_once('@')
        && Digest::from_str(digest).is_ok()
    {
        return (path, Selector::Digest(digest.into()));
    }
    let drive = if has_drives { drive_len(rest) } else { 0 };
    match rest[drive..].split_once(':') {
        Some((path, name)) if !Path::new(rest).exists() => {
            (&rest[..drive + path.len()], Selector::Name(name.into()))
        }
        _ => (rest, Selector::Any),
    }
}

/// Returns the length in bytes of the drive at the start of a path, such as `C:`, also after `\\?\` or `//?/`.
fn drive_len(path: &str) -> usize {
    let verbatim = [r"\\?\", "//?/", r"\\.\", "//./"];
    let prefix = verbatim.iter().find(|prefix| path.starts_with(**prefix)).map_or(0, |p| p.len());
    match path.as_bytes()[prefix..] {
        [letter, b':', ..] if letter.is_ascii_alphabetic() => prefix + 2,
        _ => 0,
    }
}

/// A platform: operating system, architecture and an optional variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub(super) os: Os,
    pub(super) architecture: Arch,
    pub(super) variant: Option<String>,
}

impl Default for Platform {
    /// Returns Linux on the processor that this program runs on.
    fn default() -> Self {
        Self { os: Os::Linux, architecture: Arch::default(), variant: None }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

impl FromStr for Platform {
    type Err = String;

    /// Parses `OS/ARCHITECTURE[/VARIANT]`, in the terms of the image specification.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => ("", "", None),
        };
        if os.is_empty() || architecture.is_empty() || variant == Some("") {
            return Err(
                "write OS/ARCHITECTURE[/VARIANT], such as linux/arm64 or linux/arm/v7".into()
            );
        }
        let variant = variant.map(str::to_owned);
        Ok(Self { os: os.into(), architecture: architecture.into(), variant })
    }
}

impl Platform {
    /// Returns whether an image for `self` satisfies the request `wanted`, which may omit the variant.
    pub(super) fn is(&self, wanted: &Self) -> bool {
        self.os == wanted.os
            && self.architecture == wanted.architecture
            && (wanted.variant.is_none() || self.variant == wanted.variant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_and_paths_are_distinguished() {
        for path in ["dir", "./oci:dir", "a:b", "-", "docker:x"] {
            assert!(Reference::parse(path).is_none(), "{path}");
        }
        let parsed = |text: &str| {
            let parsed = Reference::parse(text).unwrap().unwrap();
            (parsed.transport, parsed.path.to_str().unwrap().to_owned(), parsed.selector)
        };
        let name = |name: &str| Selector::Name(name.into());
        assert_eq!(parsed("oci:dir"), (Transport::Oci, "dir".into(), Selector::Any));
        assert_eq!(parsed("oci:a/b:c:1.0"), (Transport::Oci, "a/b".into(), name("c:1.0")));
        assert_eq!(parsed("docker-archive:-:t").1, "-");
        let digest = format!("sha256:{}", "0".repeat(64));
        let (_, path, selector) = parsed(&format!("oci-archive:x.tar@{digest}"));
        assert_eq!((path.as_str(), selector), ("x.tar", Selector::Digest(digest)));
        for bad in ["oci:", "oci:-", "oci:dir:", "oci-archive::x", "docker://", "docker://A b"] {
            assert!(Reference::parse(bad).unwrap().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_colon_of_a_drive_ends_no_path() {
        fn drives(rest: &str) -> (&str, Selector) {
            split(rest, true)
        }
        let name = |name: &str| Selector::Name(name.into());
        for path in [r"C:\dir", "c:dir", "C:/a b/c", r"\\?\C:\dir", r"\\host\share\dir", "dir"] {
            assert_eq!(drives(path), (path, Selector::Any));
            assert_eq!(drives(&format!("{path}:web:1.0")).1, name("web:1.0"), "{path}");
            assert_eq!(drives(&format!("{path}:tag")), (path, name("tag")));
            let digest = format!("sha256:{}", "0".repeat(64));
            let text = format!("{path}@{digest}");
            assert_eq!(drives(&text), (path, Selector::Digest(digest)));
        }
        // Without drives, a one-letter name is a directory; two letters are never a drive.
        assert_eq!(split(r"C:\dir", false), ("C", name(r"\dir")));
        assert_eq!(drives("CD:dir"), ("CD", name("dir")));
        assert_eq!(drives("C:"), ("C:", Selector::Any));
    }

    #[test]
    fn platforms_have_two_or_three_parts() {
        let arm: Platform = "linux/arm/v7".parse().unwrap();
        assert_eq!(arm.to_string(), "linux/arm/v7");
        assert!(arm.is(&"linux/arm".parse().unwrap()));
        assert!(!arm.is(&"linux/arm/v6".parse().unwrap()));
        for bad in ["", "linux", "linux/", "a/b/c/d", "linux/arm/"] {
            assert!(bad.parse::<Platform>().is_err(), "{bad}");
        }
    }
}
