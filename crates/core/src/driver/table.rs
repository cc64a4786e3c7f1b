//! A table of a driver's objects. An id names a slot and the generation of its object, so an id
//! that outlives its object finds nothing.

use std::hash::{Hash, Hasher};

/// The index and the generation of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableKey {
    index: u32,
    generation: u32,
}

impl TableKey {
    /// A number that no other key has.
    pub(crate) fn number(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }
}

/// Hashes one word instead of two: the key of a bind group contains many of these keys.
impl Hash for TableKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.number());
    }
}

/// Objects by [`TableKey`]. Slots are reused.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, value: T) -> TableKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let (generation, slot) = &mut self.slots[index as usize];
        *slot = Some(value);
        let generation = *generation;
        TableKey { index, generation }
    }

    pub(crate) fn get(&self, key: TableKey) -> Option<&T> {
        match self.slots.get(key.index as usize) {
            Some((generation, value)) if *generation == key.generation => value.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: TableKey) -> Option<&mut T> {
        match self.slots.get_mut(key.index as usize) {
            Some((generation, value)) if *generation == key.generation => value.as_mut(),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, key: TableKey) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.0 != key.generation {
            return None;
        }
        let value = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    /// Removes and returns all entries. No earlier key finds anything afterwards.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let mut entries = Vec::with_capacity(self.slots.len());
        for (index, slot) in (0..).zip(&mut self.slots) {
            if let Some(entry) = slot.1.take() {
                slot.0 = slot.0.wrapping_add(1);
                self.free.push(index);
                entries.push(entry);
            }
        }
        entries
    }

    /// The entries and their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TableKey, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            let &(generation, ref value) = slot;
            Some((TableKey { index, generation }, value.as_ref()?))
        })
    }

    /// The number of entries.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_outlived_its_entry_finds_nothing() {
        let mut table = Table::default();
        let old = table.insert('a');
        assert_eq!(table.remove(old), Some('a'));
        let new = table.insert('b');
        assert_eq!(table.get(old), None);
        assert_eq!(table.remove(old), None);
        assert_eq!((table.get(new), table.len()), (Some(&'b'), 1));
    }

    #[test]
    fn no_key_outlives_a_clearing() {
        let mut table = Table::default();
        let keys = ['a', 'b', 'c'].map(|entry| table.insert(entry));
        table.remove(keys[1]);
        assert_eq!(table.clear(), ['a', 'c']);
        assert_eq!(table.len(), 0);
        let later = ['d', 'e', 'f', 'g'].map(|entry| table.insert(entry));
        assert!(keys.iter().all(|key| table.get(*key).is_none()));
        assert!(later.iter().all(|key| table.get(*key).is_some()));
    }
}
