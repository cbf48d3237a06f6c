//! Counters that threads share.

use std::panic::Location;
use std::sync::atomic::Ordering;

use crate::recording;

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

            /// Its value.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.note(false);
                self.0.load(order)
            }

            /// Sets its value.
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.note(true);
                self.0.store(value, order);
            }

            /// Sets its value; the one before.
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.swap(value, order)
            }

            /// Adds to its value, and wraps around; the value before.
            #[track_caller]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.fetch_add(value, order)
            }

            /// Takes from its value, and wraps around; the value before.
            #[track_caller]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.fetch_sub(value, order)
            }

            /// Makes its value at least this; the value before.
            #[track_caller]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.fetch_max(value, order)
            }

            /// Sets bits of its value; the value before.
            #[track_caller]
            pub fn fetch_or(&self, bits: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.fetch_or(bits, order)
            }

            /// Keeps only these bits of its value; the value before.
            #[track_caller]
            pub fn fetch_and(&self, bits: $value, order: Ordering) -> $value {
                self.note(true);
                self.0.fetch_and(bits, order)
            }

            /// Sets its value to what `change` makes of it, unless that is nothing: the value before.
            ///
            /// # Errors
            /// The value, if `change` makes nothing of it.
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
