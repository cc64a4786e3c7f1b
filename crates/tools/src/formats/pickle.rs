//! The part of Python's pickle that a snapshot needs. The viewer of PyTorch's snapshots is
//! JavaScript and reads only a part of protocol 2. Strings and remembered values are written once
//! and then referred to by a number.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

/// Items of a list that are appended at once. The viewer passes them as the arguments of one call.
const BATCH: usize = 1000;

/// Largest number that is exact in JavaScript.
const MOST: u64 = 1 << 53;

pub(super) struct Pickle<W> {
    to: W,
    /// Number of the values that can be referred to.
    memos: u32,
    words: FxHashMap<&'static str, u32>,
}

/// A list under construction.
pub(super) struct List {
    in_batch: usize,
}

impl<W: Write> Pickle<W> {
    pub(super) fn begin(mut to: W) -> io::Result<Self> {
        to.write_all(&[0x80, 2])?;
        Ok(Pickle {
            to,
            memos: 0,
            words: FxHashMap::default(),
        })
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.to.write_all(b".")?;
        self.to.flush()
    }

    /// A number. Long ones have at most 8 bytes; JavaScript gives longer ones another type.
    pub(super) fn int(&mut self, number: u64) -> io::Result<()> {
        if let Ok(small) = u8::try_from(number) {
            return self.to.write_all(&[b'K', small]);
        }
        if let Ok(small) = i32::try_from(number) {
            self.to.write_all(b"J")?;
            return self.to.write_all(&small.to_le_bytes());
        }
        if number > MOST {
            let error = format!("{number} is more than a viewer can count: at most 2^53");
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        self.to.write_all(&[0x8a, 8])?;
        self.to.write_all(&number.to_le_bytes())
    }

    pub(super) fn bool(&mut self, value: bool) -> io::Result<()> {
        self.to.write_all(&[if value { 0x88 } else { 0x89 }])
    }

    pub(super) fn str(&mut self, text: &str) -> io::Result<()> {
        let length = u32::try_from(text.len());
        let length = length.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        self.to.write_all(b"X")?;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(text.as_bytes())
    }

    /// A string that occurs often.
    pub(super) fn word(&mut self, word: &'static str) -> io::Result<()> {
        if let Some(&number) = self.words.get(word) {
            return self.again(number);
        }
        self.str(word)?;
        let number = self.remember()?;
        self.words.insert(word, number);
        Ok(())
    }

    /// Gives the value just written a number.
    pub(super) fn remember(&mut self) -> io::Result<u32> {
        let number = self.memos;
        self.memos += 1;
        self.numbered([b'q', b'r'], number)?;
        Ok(number)
    }

    /// Writes the value with this number again.
    pub(super) fn again(&mut self, number: u32) -> io::Result<()> {
        self.numbered([b'h', b'j'], number)
    }

    fn numbered(&mut self, [short, long]: [u8; 2], number: u32) -> io::Result<()> {
        if let Ok(small) = u8::try_from(number) {
            return self.to.write_all(&[short, small]);
        }
        self.to.write_all(&[long])?;
        self.to.write_all(&number.to_le_bytes())
    }

    /// A tuple of two numbers.
    pub(super) fn pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        self.int(first)?;
        self.int(second)?;
        self.to.write_all(&[0x86])
    }

    /// A list. Call [`item`](Self::item) before writing each item.
    pub(super) fn list(&mut self) -> io::Result<List> {
        self.to.write_all(b"]")?;
        Ok(List { in_batch: 0 })
    }

    pub(super) fn item(&mut self, list: &mut List) -> io::Result<()> {
        if list.in_batch == BATCH {
            self.to.write_all(b"e")?;
            list.in_batch = 0;
        }
        if list.in_batch == 0 {
            self.to.write_all(b"(")?;
        }
        list.in_batch += 1;
        Ok(())
    }

    pub(super) fn end_list(&mut self, list: List) -> io::Result<()> {
        match list.in_batch {
            0 => Ok(()),
            _ => self.to.write_all(b"e"),
        }
    }

    /// A dictionary. Write each value after its key.
    pub(super) fn dict(&mut self) -> io::Result<()> {
        self.to.write_all(b"}(")
    }

    pub(super) fn end_dict(&mut self) -> io::Result<()> {
        self.to.write_all(b"u")
    }

    pub(super) fn key(&mut self, key: &'static str) -> io::Result<()> {
        self.word(key)
    }

    pub(super) fn int_at(&mut self, key: &'static str, number: u64) -> io::Result<()> {
        self.key(key)?;
        self.int(number)
    }

    pub(super) fn word_at(&mut self, key: &'static str, word: &'static str) -> io::Result<()> {
        self.key(key)?;
        self.word(word)
    }

    pub(super) fn str_at(&mut self, key: &'static str, text: &str) -> io::Result<()> {
        self.key(key)?;
        self.str(text)
    }
}
