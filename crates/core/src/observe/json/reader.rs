//! Snapshots from readers, which may be endless or of another kind. What cannot become a snapshot
//! is refused as soon as its bytes say so.

use std::borrow::Cow;
use std::{fmt, io};

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::{FileHead, Snapshot, broken, wrong};
use crate::error::Result;
use crate::units::{Bytes, GIB, MIB};

/// No snapshot is larger than this.
const MOST_BYTES: u64 = 4 * GIB;

/// A snapshot says within this many bytes what it is. Programs may have sorted its fields.
const HEAD_BYTES: u64 = 4 * MIB;

/// Most bytes that one call takes from the reader.
const PART_BYTES: usize = 64 << 10;

/// The first bytes of a file compressed with gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// As [`Snapshot::read_json`].
pub(super) fn read(mut from: impl io::Read) -> Result<Snapshot> {
    let (mut json, mut part) = (Vec::new(), vec![0; PART_BYTES]);
    let mut looked_at = 0;
    loop {
        match from.read(&mut part) {
            Ok(0) => return Snapshot::from_json(&json),
            Ok(read) => json.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(wrong(error.to_string())),
        }
        if json.len() as u64 > MOST_BYTES {
            let most = Bytes(MOST_BYTES);
            return Err(wrong(format!("it is larger than {most}")));
        }
        // Each look begins from the start, so the next one waits for twice as many bytes.
        if json.len() / 2 >= looked_at {
            check_begin(&json)?;
            looked_at = json.len();
        }
    }
}

/// Can these bytes be the beginning of a snapshot?
fn check_begin(json: &[u8]) -> Result<()> {
    let rest = json.trim_ascii_start();
    if rest.first().is_some_and(|byte| *byte != b'{') || json.len() - rest.len() >= PART_BYTES {
        return Err(wrong(match rest.starts_with(&GZIP) {
            true => "it is compressed: unpack it with `gzip -d`".to_owned(),
            false => {
                let begin = String::from_utf8_lossy(&json[..json.len().min(16)]);
                let begin = crate::memory::printable(&begin, 40);
                format!("it begins with `{begin}`, not with `{{` as JSON does")
            }
        }));
    }
    let (mut format, mut version) = (None, None);
    let mut parser = serde_json::Deserializer::from_slice(json);
    let parsed = parser.deserialize_map(Head(&mut format, &mut version));
    // The end is missing so far, which says nothing about the bytes before it.
    if let Some(error) = parsed.err().filter(|error| !error.is_eof()) {
        return Err(broken(&error));
    }
    match (format, version) {
        (Some(format), Some(version)) => FileHead { format, version }.check(),
        _ if json.len() as u64 > HEAD_BYTES => {
            let within = Bytes(HEAD_BYTES);
            Err(wrong(format!(
                "its first {within} do not say its format and version"
            )))
        }
        _ => Ok(()),
    }
}

/// Keeps format and version, even if the text ends later.
struct Head<'a>(&'a mut Option<String>, &'a mut Option<u32>);

impl<'de> Visitor<'de> for Head<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match &*key {
                "format" => *self.0 = Some(map.next_value()?),
                "version" => *self.1 = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
