//! Selection of a file system behind layers.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use zeroize::Zeroizing;

/// A passphrase or the contents of a key file. It is erased when it is dropped, and never formatted.
#[derive(Clone)]
pub struct Passphrase(Zeroizing<Vec<u8>>);

impl Passphrase {
    /// Takes the bytes of a passphrase.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Creates an empty passphrase with room for `bytes` bytes, so that growing leaves no copies in memory.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(bytes)))
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a byte.
    pub fn push(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Removes the last byte.
    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase")
    }
}

/// Function that obtains the passphrase of the named volume.
pub type Ask = dyn Fn(&str) -> io::Result<Option<Passphrase>> + Send + Sync;

/// Keys in memory, so that an image that is opened twice is unlocked once.
#[derive(Default)]
struct Keys {
    passphrase: Option<Passphrase>,
    /// Volume keys by the UUID of the volume.
    volumes: HashMap<String, Zeroizing<Vec<u8>>>,
}

/// Selection of a file system behind layers.
#[derive(Clone, Default)]
pub struct LayerOptions {
    /// Logical volume: `VG/LV`, or `LV` if its name is unique.
    pub volume: Option<String>,
    ask: Option<Arc<Ask>>,
    keys: Arc<Mutex<Keys>>,
}

impl LayerOptions {
    /// Creates options that select the only candidate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects a logical volume: `VG/LV`, or `LV` if its name is unique.
    #[must_use]
    pub fn volume(mut self, name: impl Into<String>) -> Self {
        self.volume = Some(name.into());
        self
    }

    /// Sets the passphrase of encrypted volumes.
    #[must_use]
    pub fn passphrase(self, passphrase: Passphrase) -> Self {
        self.keys.lock().passphrase = Some(passphrase);
        self
    }

    /// Sets a function that obtains a passphrase when a volume needs one.
    #[must_use]
    pub fn ask(mut self, ask: Arc<Ask>) -> Self {
        self.ask = Some(ask);
        self
    }

    /// Returns the passphrase for a volume. Asks at most once.
    pub(crate) fn passphrase_for(&self, name: &str) -> io::Result<Option<Passphrase>> {
        let mut keys = self.keys.lock();
        if keys.passphrase.is_none()
            && let Some(ask) = &self.ask
        {
            keys.passphrase = ask(name)?;
        }
        Ok(keys.passphrase.clone())
    }

    pub(crate) fn volume_key(&self, uuid: &str) -> Option<Zeroizing<Vec<u8>>> {
        self.keys.lock().volumes.get(uuid).cloned()
    }

    pub(crate) fn keep_volume_key(&self, uuid: &str, key: &Zeroizing<Vec<u8>>) {
        self.keys.lock().volumes.insert(uuid.to_owned(), key.clone());
    }
}

impl fmt::Debug for LayerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerOptions").field("volume", &self.volume).finish_non_exhaustive()
    }
}
