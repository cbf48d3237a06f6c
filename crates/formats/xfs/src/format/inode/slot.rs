//! Copies of inode slots. Each operation makes and moves several, so their bytes are kept on the heap, in memory that
//! the thread reuses.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Maximum number of buffers kept per thread.
const KEPT_MAX: usize = 16;

thread_local! {
    static KEPT: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A copy of a slot.
#[derive(PartialEq, Eq)]
pub(super) struct Slot(Box<[u8]>);

impl Slot {
    pub(super) fn copy_of(slot: &[u8]) -> Self {
        // Thread-local values are not available while a thread ends.
        let kept = KEPT.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
        match kept {
            Some(mut bytes) if bytes.len() == slot.len() => {
                bytes.copy_from_slice(slot);
                Self(bytes)
            }
            _ => Self(slot.into()),
        }
    }
}

impl Clone for Slot {
    fn clone(&self) -> Self {
        Self::copy_of(&self.0)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.push(bytes);
            }
        });
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_independent_of_old_contents() {
        let first = Slot::copy_of(&[1; 512]);
        let mut second = first.clone();
        second.fill(2);
        assert_eq!((&first[..], &second[..]), (&[1; 512][..], &[2; 512][..]));
        drop(second);
        // With another size, and with the same one.
        let large = Slot::copy_of(&[3; 2048]);
        assert_eq!(&large[..], [3; 2048]);
        drop(first);
        assert_eq!(&Slot::copy_of(&[4; 512])[..], [4; 512]);
        let many: Vec<Slot> = (0..100).map(|_| large.clone()).collect();
        assert!(many.iter().all(|copy| copy[..] == large[..]));
        drop(many);
        KEPT.with_borrow(|kept| assert!(kept.len() <= KEPT_MAX));
    }
}
