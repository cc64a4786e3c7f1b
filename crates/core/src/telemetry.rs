//! What is told to the app's subscriber of `tracing`, with the feature of that name; without it
//! there is nothing of this in the code. A subscriber is foreign code: whatever is here stands
//! where no lock is held.

/// A future, inside a span with these fields.
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

/// A value that is computed at once, inside a span with these fields.
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

/// Something happened.
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
