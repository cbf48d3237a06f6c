//! Bases that are open in this process. Clones of one base share its device, and so its descriptor, lock and cache.
//!
//! Only bases that are locked for reading are shared. Nothing changes them while they are open.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use disk::BlockDevice;
use parking_lot::Mutex;

use crate::host::FileId;

/// Identification of an open base. The same key means the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BaseKey {
    /// A local file, and its identity as the header of an overlay stores it.
    File(FileId, String),
    /// Another location by its name, with its identity.
    Place(String, String),
}

/// Open base with the number of overlays in it.
#[derive(Clone)]
pub(super) struct SharedBase {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) levels: u32,
}

/// Like [`SharedBase`], for a base that its owners may have closed.
struct WeakBase {
    device: Weak<dyn BlockDevice>,
    levels: u32,
}

impl WeakBase {
    fn upgrade(&self) -> Option<SharedBase> {
        Some(SharedBase { device: self.device.upgrade()?, levels: self.levels })
    }
}

/// The open bases. Entries of closed ones are removed when another base is added.
static OPEN: Mutex<BTreeMap<BaseKey, WeakBase>> = Mutex::new(BTreeMap::new());

/// Returns the open base with this key.
pub(super) fn find(key: &BaseKey) -> Option<SharedBase> {
    OPEN.lock().get(key)?.upgrade()
}

/// Adds a base. If another thread added one with this key first, returns that.
pub(super) fn add(key: BaseKey, base: SharedBase) -> SharedBase {
    let mut open = OPEN.lock();
    if let Some(found) = open.get(&key).and_then(WeakBase::upgrade) {
        return found;
    }
    open.retain(|_, base| base.device.strong_count() > 0);
    open.insert(key, WeakBase { device: Arc::downgrade(&base.device), levels: base.levels });
    base
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::MemoryDevice;

    fn base() -> SharedBase {
        SharedBase { device: Arc::new(MemoryDevice::new(4096)), levels: 1 }
    }

    #[test]
    fn a_base_is_shared_until_its_last_owner_closes_it() {
        let key = |identity: &str| BaseKey::Place("open_bases".into(), identity.into());
        let first = add(key("one"), base());
        let second = add(key("one"), base());
        assert!(Arc::ptr_eq(&first.device, &second.device));
        assert!(find(&key("two")).is_none());
        drop(first);
        assert!(find(&key("one")).is_some_and(|found| found.levels == 1));
        drop(second);
        assert!(find(&key("one")).is_none());
        add(key("two"), base());
        assert!(!OPEN.lock().contains_key(&key("one")));
    }
}
