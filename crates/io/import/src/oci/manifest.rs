//! Resolves the manifest of an image, with its layers and configuration.

use std::str::FromStr;

use oci_spec::image::{
    ANNOTATION_REF_NAME, Descriptor, Digest, ImageConfiguration, ImageIndex, ImageManifest,
    MediaType, OciLayout,
};
use serde::de::DeserializeOwned;

use super::reference::Selector;
use super::store::{Store, blob_name};
use super::{ContainerFault, Platform};
use crate::SourceError;

/// Maximum nesting of indexes.
pub(super) const INDEX_DEPTH_MAX: usize = 8;

/// Maximum number of layers of an image.
const LAYERS_MAX: usize = 1000;

pub(super) const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

/// Compression of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// A layer according to manifest and configuration.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// Name of its file in the store.
    pub(super) name: String,
    /// Digest of the stored bytes.
    pub(super) digest: Option<Digest>,
    /// Stored size in bytes.
    pub(super) size: Option<u64>,
    /// Compression, if it is specified.
    pub(super) packing: Option<Packing>,
    /// Digest of the decompressed bytes.
    pub(super) diff_id: Option<Digest>,
}

/// The parts of an image.
#[derive(Debug)]
pub(super) struct Manifest {
    /// From the lowest to the highest.
    pub(super) layers: Vec<Layer>,
    /// The configuration as stored.
    pub(super) config: Vec<u8>,
}

/// Parses a document.
pub(super) fn parse<T: DeserializeOwned>(
    bytes: &[u8],
    what: &'static str,
    store: &Store,
    name: &str,
) -> Result<T, SourceError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let reason = error.to_string();
        ContainerFault::Json { what, reason }.of(&store.image, Some(name))
    })
}

/// Finds an image in a layout.
pub(super) fn of_layout(
    store: &Store,
    selector: &Selector,
    platform: Option<&Platform>,
) -> Result<Manifest, SourceError> {
    check_layout(store)?;
    let index = store.document("index.json", "the layout", "an index", None)?;
    let index: ImageIndex = parse(&index, "an index", store, "index.json")?;
    let chosen = match selector {
        Selector::Digest(digest) => find_digest(store, &index, digest, 0)?.ok_or_else(|| {
            let (wanted, available) = (selector.to_string(), describe(index.manifests()));
            ContainerFault::NoSuchImage { wanted, available }.of(&store.image, None)
        })?,
        Selector::Name(name) => choose_name(store, &index, name, platform)?,
        Selector::Any => choose_any(store, &index, platform)?,
    };
    let manifest = resolve(store, chosen, platform, 0)?;
    of_manifest(store, &manifest, platform)
}

fn check_layout(store: &Store) -> Result<(), SourceError> {
    if !store.has("oci-layout") {
        let what = "it has no file oci-layout".to_owned();
        return Err(ContainerFault::NotLayout(what).of(&store.image, None));
    }
    let layout = store.document("oci-layout", "the specification", "a layout", None)?;
    let layout: OciLayout = parse(&layout, "a layout", store, "oci-layout")?;
    let version = layout.image_layout_version();
    if !version.starts_with("1.") {
        let what = format!("unsupported version {version:?}, only 1 is supported");
        return Err(ContainerFault::NotLayout(what).of(&store.image, Some("oci-layout")));
    }
    Ok(())
}

pub(super) fn is_index(media_type: &MediaType) -> bool {
    *media_type == MediaType::ImageIndex || media_type.as_ref() == DOCKER_INDEX
}

fn is_manifest(media_type: &MediaType) -> bool {
    *media_type == MediaType::ImageManifest || media_type.as_ref() == DOCKER_MANIFEST
}

fn ref_name(descriptor: &Descriptor) -> Option<&str> {
    Some(descriptor.annotations().as_ref()?.get(ANNOTATION_REF_NAME)?.as_str())
}

fn platform_of(descriptor: &Descriptor) -> Option<Platform> {
    let platform = descriptor.platform().as_ref()?;
    Some(Platform {
        os: platform.os().clone(),
        architecture: platform.architecture().clone(),
        variant: platform.variant().clone(),
    })
}

/// Lists the available images for an error.
fn describe(descriptors: &[Descriptor]) -> String {
    /// Maximum number of images in the list.
    const SHOWN_MAX: usize = 20;
    let name = |descriptor: &Descriptor| {
        let name = ref_name(descriptor).map(|name| format!("{name:?}"));
        name.unwrap_or_else(|| descriptor.digest().to_string())
    };
    list(descriptors.iter().map(name), descriptors.len(), SHOWN_MAX)
}

fn list(names: impl Iterator<Item = String>, count: usize, shown_max: usize) -> String {
    let mut names: Vec<_> = names.take(shown_max).collect();
    if count > shown_max {
        names.push(format!("and {} more", count - shown_max));
    }
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn find_digest(
    store: &Store,
    index: &ImageIndex,
    digest: &str,
    depth: usize,
) -> Result<Option<Descriptor>, SourceError> {
    if depth == INDEX_DEPTH_MAX {
        return Ok(None);
    }
    let found = index.manifests().iter().find(|found| found.digest().as_ref() == digest);
    if let Some(found) = found {
        return Ok(Some(found.clone()));
    }
    for descriptor in index.manifests().iter().filter(|found| is_index(found.media_type())) {
        let inner = read_index(store, descriptor)?;
        if let Some(found) = find_digest(store, &inner, digest, depth + 1)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn choose_name(
    store: &Store,
    index: &ImageIndex,
    name: &str,
    platform: Option<&Platform>,
) -> Result<Descriptor, SourceError> {
    let named = |found: &&Descriptor| ref_name(found) == Some(name);
    let named: Vec<_> = index.manifests().iter().filter(named).cloned().collect();
    if named.is_empty() {
        let (wanted, available) =
            (Selector::Name(name.into()).to_string(), describe(index.manifests()));
        return Err(ContainerFault::NoSuchImage { wanted, available }.of(&store.image, None));
    }
    choose_platform(store, &named, platform)
}

fn choose_any(
    store: &Store,
    index: &ImageIndex,
    platform: Option<&Platform>,
) -> Result<Descriptor, SourceError> {
    let all = index.manifests();
    // Images with different names are not one image for several platforms.
    let is_one =
        all.iter().all(|found| found.platform().is_some() && ref_name(found) == ref_name(&all[0]));
    if all.len() > 1 && !is_one {
        return Err(ContainerFault::Ambiguous(describe(all)).of(&store.image, None));
    }
    choose_platform(store, all, platform)
}

/// Selects an image by platform: the only one if no platform was requested, otherwise the requested one or that of this
/// machine.
pub(super) fn choose_platform(
    store: &Store,
    descriptors: &[Descriptor],
    platform: Option<&Platform>,
) -> Result<Descriptor, SourceError> {
    let known =
        |found: &&Descriptor| is_manifest(found.media_type()) || is_index(found.media_type());
    let images: Vec<_> = descriptors.iter().filter(known).collect();
    if let [only] = images[..]
        && (platform.is_none() || only.platform().is_none())
    {
        return Ok(only.clone());
    }
    let wanted = platform.cloned().unwrap_or_default();
    let suits = |found: &&&Descriptor| platform_of(found).is_some_and(|has| has.is(&wanted));
    if let Some(found) = images.iter().find(suits) {
        return Ok((*found).clone());
    }
    if images.is_empty()
        && let [other] = descriptors
    {
        let found = other.media_type().to_string();
        let fault = ContainerFault::MediaType { what: "an image", found };
        return Err(fault.of(&store.image, Some(&blob_name(other.digest()))));
    }
    let name = |found: &&Descriptor| {
        platform_of(found).map_or_else(|| found.digest().to_string(), |has| has.to_string())
    };
    let available = list(images.iter().map(name), images.len(), 50);
    let wanted = wanted.to_string();
    Err(ContainerFault::NoPlatform { wanted, available }.of(&store.image, None))
}

fn read_index(store: &Store, descriptor: &Descriptor) -> Result<ImageIndex, SourceError> {
    let name = blob_name(descriptor.digest());
    let said = Some((descriptor.digest(), Some(descriptor.size())));
    let bytes = store.document(&name, "an index", "an index", said)?;
    parse(&bytes, "an index", store, &name)
}

/// Resolves an index to a manifest in it.
fn resolve(
    store: &Store,
    mut descriptor: Descriptor,
    platform: Option<&Platform>,
    mut depth: usize,
) -> Result<Descriptor, SourceError> {
    while is_index(descriptor.media_type()) {
        if depth == INDEX_DEPTH_MAX {
            return Err(ContainerFault::TooDeep(INDEX_DEPTH_MAX).of(&store.image, None));
        }
        depth += 1;
        let index = read_index(store, &descriptor)?;
        descriptor = choose_platform(store, index.manifests(), platform)?;
    }
    if is_manifest(descriptor.media_type()) {
        return Ok(descriptor);
    }
    let found = descriptor.media_type().to_string();
    let fault = ContainerFault::MediaType { what: "an image", found };
    Err(fault.of(&store.image, Some(&blob_name(descriptor.digest()))))
}

fn of_manifest(
    store: &Store,
    descriptor: &Descriptor,
    platform: Option<&Platform>,
) -> Result<Manifest, SourceError> {
    let name = blob_name(descriptor.digest());
    let said = Some((descriptor.digest(), Some(descriptor.size())));
    let bytes = store.document(&name, "the index", "a manifest", said)?;
    let manifest: ImageManifest = parse(&bytes, "a manifest", store, &name)?;
    if let Some(found) = manifest.media_type().as_ref().filter(|found| !is_manifest(found)) {
        let found = found.to_string();
        return Err(
            ContainerFault::MediaType { what: "a manifest", found }.of(&store.image, Some(&name))
        );
    }
    let config = manifest.config();
    let config_name = blob_name(config.digest());
    let config_type = config.media_type();
    if *config_type != MediaType::ImageConfig && config_type.as_ref() != DOCKER_CONFIG {
        let found = config_type.to_string();
        let fault = ContainerFault::MediaType { what: "a configuration", found };
        return Err(fault.of(&store.image, Some(&config_name)));
    }
    let said = Some((config.digest(), Some(config.size())));
    let config = store.document(&config_name, "the manifest", "a configuration", said)?;
    let mut layers = manifest
        .layers()
        .iter()
        .map(|layer| describe_layer(store, layer))
        .collect::<Result<Vec<_>, _>>()?;
    describe_contents(store, &config_name, &config, &mut layers, platform)?;
    Ok(Manifest { layers, config })
}

fn describe_layer(store: &Store, descriptor: &Descriptor) -> Result<Layer, SourceError> {
    let name = blob_name(descriptor.digest());
    let fail = |fault: ContainerFault| fault.of(&store.image, Some(&name));
    let media_type = descriptor.media_type().to_string();
    if media_type.ends_with("+encrypted") {
        return Err(fail(ContainerFault::Encrypted(media_type)));
    }
    // Layers that must not be distributed may still be present; those of Windows are not.
    let kept = media_type
        .replace("layer.nondistributable.v1", "layer.v1")
        .replace("rootfs.foreign.diff", "rootfs.diff");
    if kept != media_type && !store.has(&name) {
        let urls = descriptor.urls().as_ref().map(|urls| urls.join(" "));
        return Err(fail(ContainerFault::Foreign(urls.unwrap_or_else(|| "elsewhere".into()))));
    }
    let packing = match kept.as_str() {
        "application/vnd.oci.image.layer.v1.tar"
        | "application/vnd.docker.image.rootfs.diff.tar" => Packing::Plain,
        "application/vnd.oci.image.layer.v1.tar+gzip"
        | "application/vnd.docker.image.rootfs.diff.tar.gzip" => Packing::Gzip,
        "application/vnd.oci.image.layer.v1.tar+zstd"
        | "application/vnd.docker.image.rootfs.diff.tar.zstd" => Packing::Zstd,
        _ => return Err(fail(ContainerFault::MediaType { what: "a layer", found: media_type })),
    };
    let (digest, size) = (Some(descriptor.digest().clone()), Some(descriptor.size()));
    Ok(Layer { name, digest, size, packing: Some(packing), diff_id: None })
}

/// Adds the digests of the configuration to the layers, and checks the requested platform.
pub(super) fn describe_contents(
    store: &Store,
    name: &str,
    config: &[u8],
    layers: &mut [Layer],
    platform: Option<&Platform>,
) -> Result<(), SourceError> {
    let fail = |fault: ContainerFault| fault.of(&store.image, Some(name));
    let config: ImageConfiguration = parse(config, "a configuration", store, name)?;
    let has = Platform {
        os: config.os().clone(),
        architecture: config.architecture().clone(),
        variant: config.variant().clone(),
    };
    if let Some(wanted) = platform
        && !(Platform { variant: None, ..wanted.clone() }
            == Platform { variant: None, ..has.clone() })
    {
        let (wanted, found) = (wanted.to_string(), has.to_string());
        return Err(fail(ContainerFault::OtherPlatform { wanted, found }));
    }
    let diff_ids = config.rootfs().diff_ids();
    if diff_ids.len() != layers.len() {
        let (layers, described) = (layers.len(), diff_ids.len());
        return Err(fail(ContainerFault::LayerCount { layers, described }));
    }
    if layers.len() > LAYERS_MAX {
        let (found, limit) = (layers.len(), LAYERS_MAX);
        return Err(fail(ContainerFault::TooManyLayers { found, limit }));
    }
    for (layer, diff_id) in layers.iter_mut().zip(diff_ids) {
        let diff_id = Digest::from_str(diff_id).map_err(|error| {
            let reason = error.to_string();
            fail(ContainerFault::Json { what: "a configuration", reason })
        })?;
        layer.diff_id = Some(diff_id);
    }
    Ok(())
}
