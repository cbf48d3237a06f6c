//! Setters for option structures.

/// Generates for each field a method of the same name that sets it and returns the options, for chaining. A field set
/// from another type names that type and the conversion.
macro_rules! setters {
    (@ $field:ident) => { $field };
    (@ $field:ident $value:expr) => { $value };
    ($options:ident { $($field:ident: $kind:ty $(= $value:expr)?),+ $(,)? }) => {
        impl $options {
            $(
                #[doc = concat!("Sets the field `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = setters!(@ $field $($value)?);
                    self
                }
            )+
        }
    };
}
