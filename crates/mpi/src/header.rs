//! What ranks tell each other before each call, so that no bytes move unless all mean the same.

/// Bytes of a header. All have the same length, so no rank has to know another's before.
pub(crate) const HEADER_BYTES: usize = 512;

/// Bytes before the text.
const FIXED_BYTES: usize = 40;
/// Most bytes of the text. A longer one is compared by its hash.
const TEXT_BYTES: usize = HEADER_BYTES - FIXED_BYTES;

/// Other programs, and machines with the other order of bytes, send something else.
const MAGIC: u32 = 0x1a91_da7e;
/// Raised when this crate's ranks would no longer understand older ones.
const PROTOCOL: u32 = 2;

/// What a rank is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// The text names a call.
    Call = 1,
    /// The text says why there is no call.
    Refusal = 2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// How many headers the rank has sent with this one.
    pub(crate) number: u64,
    /// A number that may differ between ranks.
    pub(crate) own: u64,
    /// What must be equal. Its hash is that of the whole text.
    pub(crate) text: String,
    hash: u64,
}

impl Header {
    pub(crate) fn new(kind: Kind, number: u64, own: u64, text: &str) -> Header {
        let mut end = text.len().min(TEXT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Header {
            kind,
            number,
            own,
            text: text[..end].into(),
            hash: hash(text.as_bytes()),
        }
    }

    /// Do both mean the same call?
    pub(crate) fn fits(&self, other: &Header) -> bool {
        let of = |one: &Header| (one.kind, one.number, one.hash);
        of(self) == of(other)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        let words = [MAGIC, PROTOCOL, self.kind as u32, self.text.len() as u32];
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        let longs = [self.number, self.own, self.hash];
        bytes.extend(longs.iter().flat_map(|long| long.to_ne_bytes()));
        bytes.extend_from_slice(self.text.as_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes
    }

    /// `None` for bytes that no rank of this version sends.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().ok()?;
        let mut rest = &bytes[..];
        let mut word = || {
            let (word, after) = rest.split_first_chunk::<4>()?;
            rest = after;
            Some(u32::from_ne_bytes(*word))
        };
        if word()? != MAGIC || word()? != PROTOCOL {
            return None;
        }
        let kind = match word()? {
            1 => Kind::Call,
            2 => Kind::Refusal,
            _ => return None,
        };
        let len = word()? as usize;
        let mut long = || {
            let (long, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(u64::from_ne_bytes(*long))
        };
        let [number, own, hash] = [long()?, long()?, long()?];
        Some(Header {
            kind,
            number,
            own,
            text: std::str::from_utf8(rest.get(..len)?).ok()?.into(),
            hash,
        })
    }
}

/// FNV-1a: two texts of one program hardly ever have the same.
fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_from_its_bytes() {
        let header = Header::new(Kind::Call, 7, u64::MAX, "all_reduce of f32 [2, 3]");
        let bytes = header.encode();
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(Header::decode(&bytes), Some(header));
    }

    #[test]
    fn long_texts_are_cut_between_letters_and_still_differ() {
        let [a, b] = ["é".repeat(400) + "a", "é".repeat(400) + "b"];
        let [a, b] = [a, b].map(|text| Header::new(Kind::Call, 1, 0, &text));
        assert_eq!(a.text, b.text);
        assert!(a.fits(&a) && !a.fits(&b));
        assert_eq!(Header::decode(&a.encode()), Some(a));
    }

    #[test]
    fn bytes_of_others_are_no_header() {
        let good = Header::new(Kind::Refusal, 1, 2, "no").encode();
        for at in [0, 4, 8, 15] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert_eq!(Header::decode(&bad), None, "byte {at}");
        }
        assert_eq!(Header::decode(&good[1..]), None);
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), None);
    }
}
