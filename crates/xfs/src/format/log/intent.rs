//! Intents: items that announce changes which later transactions make, and the items that say these
//! are done.

use transaction::Corruption;

use super::item::ItemType;

/// An intent that the log has no done item for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// What the done item names.
    pub id: u64,
    /// Its type.
    pub item: ItemType,
    /// Its regions, the one with the format first.
    pub regions: Vec<Vec<u8>>,
}

impl Intent {
    /// Reads an intent: the type and the id are checked, the rest later.
    ///
    /// # Errors
    /// If it is none, or too short.
    pub fn parse(item: ItemType, regions: &[&[u8]]) -> Result<Self, Corruption> {
        let first = regions.first().and_then(|first| first.get(8..16));
        let id = first.and_then(|id| id.try_into().ok()).map(u64::from_le_bytes);
        let Some(id) = id else { return Err(Corruption::new("log item", "an intent cut short")) };
        Ok(Self { id, item, regions: regions.iter().map(|region| region.to_vec()).collect() })
    }
}
