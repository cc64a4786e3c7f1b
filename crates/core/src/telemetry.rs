//! Spans and events for the app's subscriber of `tracing`. Without the feature `tracing` these
//! macros expand to nothing. A subscriber is foreign code, so no caller of these macros holds a
//! lock.

/// Runs a future inside a span with these fields.
#[cfg(feature = "tracing")]
macro_rules! in_span {
    ($name:literal, {$($field:ident = $value:expr),*}, $future:expr) => {
        tracing::Instrument::instrument(
            $future,
            tracing::debug_span!(target: "lapidary", $name, $($field = $value),*),
        )
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! in_span {
    ($name:literal, {$($field:ident = $value:expr),*}, $future:expr) => {
        $future
    };
}

/// Computes a value inside a span with these fields.
#[cfg(feature = "tracing")]
macro_rules! within {
    ($name:literal, {$($field:ident = $value:expr),*}, $computed:expr) => {
        tracing::debug_span!(target: "lapidary", $name, $($field = $value),*).in_scope(|| $computed)
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! within {
    ($name:literal, {$($field:ident = $value:expr),*}, $computed:expr) => {
        $computed
    };
}

/// Reports an event with these fields.
#[cfg(feature = "tracing")]
macro_rules! tell {
    ($level:ident, $message:literal, {$($field:ident = $value:expr),*}) => {
        tracing::event!(target: "lapidary", tracing::Level::$level, $($field = $value,)* $message)
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! tell {
    ($level:ident, $message:literal, {$($field:ident = $value:expr),*}) => {};
}
