//! `Debug` for types whose fields would say nothing to a reader.

/// Lets types print their names, and these fields.
macro_rules! debug_by_name {
    ($($name:ident $({$($field:ident),+})?),+) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &self.$field))+)?
                    .finish_non_exhaustive()
            }
        }
    )+};
}
