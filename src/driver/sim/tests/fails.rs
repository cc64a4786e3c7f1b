//! Faults at every call: an error, and everything as before; or a loss, and nothing ever again.
