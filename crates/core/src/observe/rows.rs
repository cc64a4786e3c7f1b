//! Moments in files: one row each, without field names, because there may be millions.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::memory::{Event, Moment};

/// A row is the time, the kind, and the fields in this order.
macro_rules! rows {
    ($($kind:ident { $($field:ident),* })*) => {
        /// Number of kinds of events.
        pub const EVENT_KINDS: usize = [$(stringify!($kind)),*].len();

        #[derive(Clone, Copy, Serialize, Deserialize)]
        enum Kind {
            $($kind,)*
        }

        impl Serialize for Moment {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                match self.event {
                    $(Event::$kind { $($field),* } => {
                        (self.at_ns, Kind::$kind, $($field),*).serialize(to)
                    })*
                }
            }
        }

        impl<'de> Visitor<'de> for Row {
            type Value = Moment;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a row of time, kind and fields")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<Moment, A::Error> {
                let at_ns = next(&mut row, "a time")?;
                let event = match next(&mut row, "a kind")? {
                    $(Kind::$kind => Event::$kind {
                        $($field: next(&mut row, stringify!($field))?,)*
                    },)*
                };
                Ok(Moment { at_ns, event })
            }
        }
    };
}

rows! {
    Alloc { storage, tag, bytes, slab, offset_bytes }
    Free { storage, bytes }
    Donate { storage, heir, tag, bytes }
    Move { storage, bytes, slab, offset_bytes }
    Evict { storage, bytes, to }
    Restore { storage, tag, bytes, slab, offset_bytes }
    SlabCreated { slab, bytes, class }
    SlabReleased { slab, bytes }
    Submission { serial, commands }
    ReclaimStep { step, freed_bytes }
    Refusal { bytes }
    Reopened { }
    Upload { storage, bytes }
    Read { storage, bytes }
    Kernel { kernel, begin_ns, end_ns }
    HostSlabCreated { slab, bytes, class }
    HostSlabReleased { slab, bytes }
    HostAlloc { storage, tag, bytes, slab, offset_bytes }
    HostFree { storage, bytes }
    HostMove { storage, bytes, slab, offset_bytes }
}

struct Row;

fn next<'de, A: SeqAccess<'de>, T: Deserialize<'de>>(
    row: &mut A,
    what: &'static str,
) -> Result<T, A::Error> {
    let field = row.next_element()?;
    field.ok_or_else(|| A::Error::custom(format_args!("a row ends where it should have {what}")))
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Moment, D::Error> {
        from.deserialize_seq(Row)
    }
}
