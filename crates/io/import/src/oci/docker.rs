//! Archives of `docker save`: `manifest.json` contains the files of configurations and layers, and tags.

use std::str::FromStr;

use oci_spec::image::Digest;
use serde::Deserialize;

use super::manifest::{Layer, Manifest, describe_contents, parse};
use super::reference::Selector;
use super::store::Store;
use super::{ContainerFault, Platform};
use crate::SourceError;

/// An image in `manifest.json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Finds an image in an archive.
pub(super) fn of_archive(
    store: &Store,
    selector: &Selector,
    platform: Option<&Platform>,
) -> Result<Manifest, SourceError> {
    const NAME: &str = "manifest.json";
    if !store.has(NAME) {
        return Err(ContainerFault::NotDockerArchive.of(&store.image, None));
    }
    let bytes = store.document(NAME, "the archive", "a list of images", None)?;
    let images: Vec<Saved> = parse(&bytes, "a list of images", store, NAME)?;
    let saved = choose(store, &images, selector)?;
    let config_name = plain(&saved.config);
    let digest = digest_in(&config_name);
    let said = digest.as_ref().map(|digest| (digest, None));
    let config = store.document(&config_name, NAME, "a configuration", said)?;
    let layer = |name: &String| Layer {
        name: plain(name),
        digest: None,
        size: None,
        packing: None,
        diff_id: None,
    };
    let mut layers: Vec<_> = saved.layers.iter().map(layer).collect();
    describe_contents(store, &config_name, &config, &mut layers, platform)?;
    Ok(Manifest { layers, config })
}

fn tags(saved: &Saved) -> &[String] {
    saved.repo_tags.as_deref().unwrap_or_default()
}

fn choose<'a>(
    store: &Store,
    images: &'a [Saved],
    selector: &Selector,
) -> Result<&'a Saved, SourceError> {
    let available = || {
        let tags: Vec<_> = images.iter().flat_map(tags).take(20).cloned().collect();
        if tags.is_empty() { "no tags".to_owned() } else { tags.join(", ") }
    };
    let fail = |fault: ContainerFault| fault.of(&store.image, Some("manifest.json"));
    if let Selector::Name(name) = selector {
        let wanted = full(name);
        let named = |saved: &&Saved| tags(saved).iter().any(|tag| full(tag) == wanted);
        return images.iter().find(named).ok_or_else(|| {
            let (wanted, available) = (selector.to_string(), available());
            fail(ContainerFault::NoSuchImage { wanted, available })
        });
    }
    match images {
        [only] => Ok(only),
        [] => {
            let (wanted, available) = (selector.to_string(), available());
            Err(fail(ContainerFault::NoSuchImage { wanted, available }))
        }
        _ => Err(fail(ContainerFault::Ambiguous(available()))),
    }
}

/// Returns a tag in its full form: `web` means `docker.io/library/web:latest`; programs write either.
fn full(name: &str) -> String {
    let first = name.split_once('/').map(|(first, _)| first);
    let has_registry =
        first.is_some_and(|first| first.contains(['.', ':']) || first == "localhost");
    let prefix = match first {
        _ if has_registry => "",
        Some(_) => "docker.io/",
        None => "docker.io/library/",
    };
    let has_tag = name.rsplit('/').next().is_some_and(|last| last.contains(':'));
    let tag = if has_tag { "" } else { ":latest" };
    format!("{prefix}{name}{tag}")
}

/// Returns a member's name in the form of the archive reader.
fn plain(name: &str) -> String {
    name.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/")
}

/// Returns the digest in the name of a configuration: `HEX.json`, or `blobs/sha256/HEX`.
fn digest_in(name: &str) -> Option<Digest> {
    let last = name.rsplit('/').next()?;
    let hex = last.strip_suffix(".json").unwrap_or(last);
    Digest::from_str(&format!("sha256:{hex}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_as_they_are_in_full() {
        for (short, long) in [
            ("web", "docker.io/library/web:latest"),
            ("web:1", "docker.io/library/web:1"),
            ("me/web", "docker.io/me/web:latest"),
            ("localhost/web", "localhost/web:latest"),
            ("localhost:5000/web:1", "localhost:5000/web:1"),
            ("ghcr.io/me/web:1", "ghcr.io/me/web:1"),
        ] {
            assert_eq!(full(short), long);
            assert_eq!(full(long), long);
        }
    }

    #[test]
    fn a_configuration_is_named_by_its_digest() {
        let hex = "0123456789abcdef".repeat(4);
        for name in [format!("{hex}.json"), format!("blobs/sha256/{hex}")] {
            assert_eq!(digest_in(&name).unwrap().digest(), hex);
        }
        assert_eq!(digest_in("config.json"), None);
        assert_eq!(plain("./a//b"), "a/b");
    }
}
