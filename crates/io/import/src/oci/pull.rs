//! Images in registries. The parts of an image are fetched into one unnamed file and then read like an archive. Nothing
//! from the registry is trusted: digests are verified at the same point as for all other images.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use disk::FileAt;
use docker_credential::{CredentialRetrievalError, DockerCredential};
use futures_util::{StreamExt, TryStreamExt, stream};
use oci_client::Reference as Name;
use oci_client::client::{BlobResponse, Client, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::OciDescriptor;
use oci_client::secrets::RegistryAuth;
use oci_spec::image::{Descriptor, Digest, ImageIndex, ImageManifest, MediaType};
use serde_json::json;

use super::manifest::{DOCKER_INDEX, DOCKER_MANIFEST, INDEX_DEPTH_MAX, choose_platform};
use super::manifest::{is_index, parse};
use super::store::{DOCUMENT_BYTES_MAX, Store, blob_name};
use super::{ContainerFault, ImageOptions, Reference};
use crate::SourceError;
use crate::host::temporary_file_in;

/// Maximum number of blobs that are fetched at the same time, the default of other clients.
const BLOBS_AT_ONCE: usize = 4;

/// Maximum number of attempts for a blob. Connections break, and layers can be gigabytes long.
const ATTEMPTS: usize = 4;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout between two pieces.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Fetches an image: the manifest for the platform, its configuration and its layers.
pub(super) fn fetch(reference: &Reference, options: &ImageOptions) -> Result<Store, SourceError> {
    let image = reference.to_string();
    let fail = |reason: String| ContainerFault::Registry(reason).of(&image, None);
    let name: Name = (reference.path.to_string_lossy().parse())
        .map_err(|error: oci_client::ParseError| fail(error.to_string()))?;
    let auth = credentials(&name).map_err(fail)?;
    let keep = |e| SourceError::io("keep an image in", &options.beside, e);
    let file = Arc::new(temporary_file_in(&options.beside).map_err(keep)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| SourceError::io("fetch", Path::new(&image), e))?;
    // A provider that was installed before is equally suitable.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::new(config(name.resolve_registry()));
    let store = Store::empty(image, Arc::clone(&file));
    let mut fetching = Fetching { client, auth, name, file, store, end: 0 };
    runtime.block_on(fetching.all(options))?;
    Ok(fetching.store)
}

/// Registries on this machine rarely have certificates, and their connections cannot be intercepted.
fn config(registry: &str) -> ClientConfig {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let is_local = host == "localhost" || host == "[::1]" || host.starts_with("127.");
    ClientConfig {
        protocol: match is_local {
            true => ClientProtocol::HttpsExcept(vec![registry.to_owned()]),
            false => ClientProtocol::Https,
        },
        connect_timeout: Some(CONNECT_TIMEOUT),
        read_timeout: Some(READ_TIMEOUT),
        ..ClientConfig::default()
    }
}

/// Returns the credentials that `podman login` or `docker login` stored for the registry.
fn credentials(name: &Name) -> Result<RegistryAuth, String> {
    let registry = name.resolve_registry();
    // Both store Docker Hub under special names.
    let names: &[&str] = match registry {
        "index.docker.io" => &["https://index.docker.io/v1/", "docker.io"],
        other => &[other],
    };
    for path in credential_files() {
        let unreadable = |reason: &dyn std::fmt::Display| {
            format!("the credentials for {registry} cannot be read from {path:?}: {reason}")
        };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(unreadable(&e)),
        };
        for name in names {
            match docker_credential::get_credential_from_reader(&text[..], name) {
                Ok(DockerCredential::UsernamePassword(user, password)) => {
                    return Ok(RegistryAuth::Basic(user, password));
                }
                Ok(DockerCredential::IdentityToken(_)) => {
                    let reason = "an identity token is not supported; log in with a password";
                    return Err(unreadable(&reason));
                }
                Err(CredentialRetrievalError::NoCredentialConfigured) => {}
                // The output of a helper is not shown, because it may contain a secret.
                Err(CredentialRetrievalError::HelperFailure { helper, .. }) => {
                    return Err(unreadable(&format_args!("its helper {helper:?} failed")));
                }
                Err(error) => return Err(unreadable(&error)),
            }
        }
    }
    Ok(RegistryAuth::Anonymous)
}

/// Returns the credential files, in the order of the search.
fn credential_files() -> impl Iterator<Item = PathBuf> {
    let from = |variable: &str, below: &str| {
        std::env::var_os(variable).map(|value| Path::new(&value).join(below))
    };
    let podman = std::env::var_os("REGISTRY_AUTH_FILE")
        .map(PathBuf::from)
        .or_else(|| from("XDG_RUNTIME_DIR", "containers/auth.json"));
    let docker =
        from("DOCKER_CONFIG", "config.json").or_else(|| from("HOME", ".docker/config.json"));
    podman.into_iter().chain(docker)
}

/// An image that is being fetched.
struct Fetching {
    client: Client,
    auth: RegistryAuth,
    name: Name,
    file: Arc<File>,
    store: Store,
    /// Offset of the next blob.
    end: u64,
}

impl Fetching {
    async fn all(&mut self, options: &ImageOptions) -> Result<(), SourceError> {
        let (descriptor, manifest) = self.manifest(options).await?;
        let mut index = ImageIndex::default();
        index.set_manifests(vec![descriptor]);
        let index = serde_json::to_vec(&index).map_err(|e| self.refuse(e.to_string()))?;
        self.keep("index.json".into(), &index)?;
        let layout = json!({ "imageLayoutVersion": "1.0.0" }).to_string();
        self.keep("oci-layout".into(), layout.as_bytes())?;
        self.blobs(&manifest, options).await
    }

    /// Fetches the manifest, through nested indexes.
    async fn manifest(
        &mut self,
        options: &ImageOptions,
    ) -> Result<(Descriptor, ImageManifest), SourceError> {
        let mut name = self.name.clone();
        for _ in 0..=INDEX_DEPTH_MAX {
            let (bytes, media_type, digest) = self.document(&name).await?;
            let file = blob_name(&digest);
            let descriptor = Descriptor::new(media_type, bytes.len() as u64, digest);
            self.keep(file.clone(), &bytes)?;
            if !is_index(descriptor.media_type()) {
                let manifest = parse(&bytes, "a manifest", &self.store, &file)?;
                return Ok((descriptor, manifest));
            }
            let index: ImageIndex = parse(&bytes, "an index", &self.store, &file)?;
            let chosen =
                choose_platform(&self.store, index.manifests(), options.platform.as_ref())?;
            name = self.name.clone_with_digest(chosen.digest().to_string());
        }
        Err(ContainerFault::TooDeep(INDEX_DEPTH_MAX).of(&self.store.image, None))
    }

    /// Fetches a manifest or an index.
    async fn document(&self, name: &Name) -> Result<(Vec<u8>, MediaType, Digest), SourceError> {
        let accepted = [
            MediaType::ImageManifest.to_string(),
            MediaType::ImageIndex.to_string(),
            DOCKER_MANIFEST.into(),
            DOCKER_INDEX.into(),
        ];
        let accepted: Vec<&str> = accepted.iter().map(String::as_str).collect();
        let fetched = self.client.pull_manifest_raw(name, &self.auth, &accepted).await;
        let (bytes, digest) = fetched.map_err(|e| self.explain(e))?;
        if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
            let (found, limit) = (bytes.len() as u64, DOCUMENT_BYTES_MAX);
            let fault = ContainerFault::DocumentSize { what: "a manifest", found, limit };
            return Err(fault.of(&self.store.image, None));
        }
        let digest = digest.parse().map_err(|e| self.refuse(format!("{digest:?}: {e}")))?;
        let media_type = media_type(&bytes, &self.store)?;
        Ok((bytes.to_vec(), media_type, digest))
    }

    /// Fetches configuration and layers, several at a time, each to a separate offset.
    async fn blobs(
        &mut self,
        manifest: &ImageManifest,
        options: &ImageOptions,
    ) -> Result<(), SourceError> {
        let mut wanted = Vec::new();
        for descriptor in std::iter::once(manifest.config()).chain(manifest.layers()) {
            let name = blob_name(descriptor.digest());
            // Blobs to be fetched from elsewhere cause an error later, with their name.
            if self.store.has(&name) || is_elsewhere(descriptor) {
                continue;
            }
            let (offset, limit) = (self.end, options.limits.archive_bytes);
            self.end = self.end.saturating_add(descriptor.size());
            if self.end > limit {
                return Err(ContainerFault::ArchiveSize { limit }.of(&self.store.image, None));
            }
            self.store.add(name, offset, descriptor.size());
            wanted.push((descriptor, offset));
        }
        let this = &*self;
        stream::iter(wanted)
            .map(|(descriptor, offset)| this.blob(descriptor, offset))
            .buffer_unordered(BLOBS_AT_ONCE)
            .try_collect()
            .await
    }

    /// Fetches a blob to `offset`, and resumes after a broken connection.
    async fn blob(&self, descriptor: &Descriptor, offset: u64) -> Result<(), SourceError> {
        let mut done = 0;
        let mut attempt = 1;
        loop {
            let error = match self.blob_from(descriptor, offset, &mut done).await {
                Ok(()) if done == descriptor.size() => return Ok(()),
                // Digests are compared later, so that the error is the same for all sources.
                Err(Interruption::Connection(_)) if done == descriptor.size() => return Ok(()),
                Ok(()) => {
                    let fault = ContainerFault::Size { expected: descriptor.size(), found: done };
                    fault.of(&self.store.image, Some(&blob_name(descriptor.digest())))
                }
                Err(Interruption::Connection(error)) => error,
                Err(Interruption::Final(error)) => return Err(error),
            };
            if attempt == ATTEMPTS {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(250 << attempt)).await;
            attempt += 1;
        }
    }

    /// Fetches the rest of a blob behind the first `done` bytes.
    async fn blob_from(
        &self,
        descriptor: &Descriptor,
        offset: u64,
        done: &mut u64,
    ) -> Result<(), Interruption> {
        let what = OciDescriptor {
            digest: descriptor.digest().to_string(),
            size: descriptor.size().cast_signed(),
            ..OciDescriptor::default()
        };
        let lost = |e| Interruption::Connection(self.explain(e));
        let mut pieces = if *done == 0 {
            self.client.pull_blob_stream(&self.name, &what).await.map_err(lost)?
        } else {
            match self.client.pull_blob_stream_partial(&self.name, &what, *done, None).await {
                Ok(BlobResponse::Partial(rest)) => rest,
                Ok(BlobResponse::Full(all)) => {
                    *done = 0;
                    all
                }
                Err(error) => return Err(lost(error)),
            }
        };
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|e| lost(OciDistributionError::IoError(e)))?;
            if piece.len() as u64 > descriptor.size() - *done {
                let (expected, found) = (descriptor.size(), *done + piece.len() as u64);
                let fault = ContainerFault::Size { expected, found };
                let blob = blob_name(descriptor.digest());
                return Err(Interruption::Final(fault.of(&self.store.image, Some(&blob))));
            }
            self.file.write_all_at(&piece, offset + *done).map_err(|e| {
                Interruption::Final(SourceError::io("write", Path::new("a temporary file"), e))
            })?;
            *done += piece.len() as u64;
        }
        Ok(())
    }

    /// Adds a document to the store.
    fn keep(&mut self, name: String, bytes: &[u8]) -> Result<(), SourceError> {
        let write = self.file.write_all_at(bytes, self.end);
        write.map_err(|e| SourceError::io("write", Path::new("a temporary file"), e))?;
        self.store.add(name, self.end, bytes.len() as u64);
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn refuse(&self, reason: String) -> SourceError {
        ContainerFault::Registry(reason).of(&self.store.image, None)
    }

    /// Converts an error of the client, with advice.
    fn explain(&self, error: OciDistributionError) -> SourceError {
        let registry = self.name.resolve_registry();
        match error {
            OciDistributionError::RequestError(e) => {
                // The client's message ends with "error sending request"; the cause is further down.
                let mut cause: &dyn std::error::Error = &e;
                while let Some(below) = cause.source() {
                    cause = below;
                }
                let cause = std::io::Error::other(cause.to_string());
                SourceError::io("fetch", Path::new(&self.store.image), cause)
            }
            OciDistributionError::IoError(e) => {
                SourceError::io("fetch", Path::new(&self.store.image), e)
            }
            OciDistributionError::UnauthorizedError { .. }
            | OciDistributionError::AuthenticationFailure(_) => self.refuse(format!(
                "access to {registry} is denied; check the image name and log in (docker login \
                 {registry})"
            )),
            other => self.refuse(other.to_string()),
        }
    }
}

/// Reason why fetching a blob stopped.
enum Interruption {
    /// A retry may help.
    Connection(SourceError),
    Final(SourceError),
}

/// Returns the media type in a document, or the one implied by its contents.
fn media_type(bytes: &[u8], store: &Store) -> Result<MediaType, SourceError> {
    let document: serde_json::Value = parse(bytes, "a manifest", store, "manifest")?;
    if let Some(said) = document.get("mediaType").and_then(|said| said.as_str()) {
        return Ok(said.into());
    }
    let is_index = document.get("manifests").is_some();
    Ok(if is_index { MediaType::ImageIndex } else { MediaType::ImageManifest })
}

/// Returns whether a layer may be stored outside of the registry.
fn is_elsewhere(descriptor: &Descriptor) -> bool {
    let media_type = descriptor.media_type().to_string();
    let has_urls = descriptor.urls().as_ref().is_some_and(|urls| !urls.is_empty());
    has_urls && (media_type.contains("nondistributable") || media_type.contains("foreign"))
}
