//! Shared counters with recording.

use std::panic::Location;
use std::sync::atomic::Ordering;

use super::recording;

macro_rules! counter {
    ($name:ident, $value:ty) => {
        #[doc = concat!("As `", stringify!($name), "` of the standard library, counted.")]
        #[derive(Debug, Default)]
        pub struct $name(std::sync::atomic::$name);

        impl $name {
            /// A counter with a value.
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            #[track_caller]
            fn note(&self, is_write: bool) {
                let address = std::ptr::from_ref(self).addr();
                recording::touched(address, Location::caller(), is_write);
            }

            /// Returns the value.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.note(false);
                self.0.load(order)
            }

            /// Sets the value.
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.note(true);
                self.0.store(value, order);
            }

            /// Sets the value and returns the old one.
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.swap(value, order)
            }

            /// Adds to the value with wrap-around and returns the old one.
            #[track_caller]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.fetch_add(value, order)
            }

            /// Subtracts from the value with wrap-around and returns the old one.
            #[track_caller]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.fetch_sub(value, order)
            }

            /// Raises the value to at least this and returns the old one.
            #[track_caller]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.fetch_max(value, order)
            }

            /// Sets bits of the value and returns the old one.
            #[track_caller]
            pub fn fetch_or(&self, bits: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.fetch_or(bits, order)
            }

            /// Keeps only these bits of the value and returns the old one.
            #[track_caller]
            pub fn fetch_and(&self, bits: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.fetch_and(bits, order)
            }

            /// Sets the value to the result of `change`, unless that is `None`. Returns the old value.
            ///
            /// # Errors
            /// The value, if `change` returns `None`.
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                self.note(true);
                self.0.fetch_update(set, fetch, change)
            }
        }
    };
}

counter!(AtomicU32, u32);
counter!(AtomicU64, u64);
counter!(AtomicUsize, usize);
