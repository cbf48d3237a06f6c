//! Options of the library's calls: what all of them have.

/// Gives options a method of the name of each field, which sets it and hands the options on, so that they can be written in
/// a row. A field that is set by something else than its own type names that type and says what it becomes of it.
macro_rules! setters {
    (@ $field:ident) => { $field };
    (@ $field:ident $value:expr) => { $value };
    ($options:ident { $($field:ident: $kind:ty $(= $value:expr)?),+ $(,)? }) => {
        impl $options {
            $(
                #[doc = concat!("The same with another `", stringify!($field), "`: the field says what it is.")]
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = setters!(@ $field $($value)?);
                    self
                }
            )+
        }
    };
}
