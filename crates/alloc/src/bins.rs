//! Size classes: floating-point bins over granules, and the two-level bitmap that finds a bin.
//!
//! A size is written as a float with three bits of mantissa, so each doubling holds eight bins.
//! OffsetAllocator (Sebastian Aaltonen) uses the same distribution. TLSF (Masmano, Ripoll, Crespo,
//! Real 2004) also has eight bins at its second level. A hole lies in the highest bin whose least
//! size is at most the size of the hole.
//!
//! **The bound.** Each size below 16 granules has its own bin. Above that the width of a bin is one
//! eighth of its least size, so two sizes in one bin differ by less than 12.5 %. Blocks are split
//! exactly, so a block wastes less than one granule. The bound limits which holes a search can
//! overlook. Every hole of a higher bin fits. A hole that fits and was skipped is in the
//! request's own bin, so it is less than 12.5 % larger than the request.
//!
//! # All bins
//! The least size of each bin, in granules. With granules of 32 bytes the last bin begins at 2^48
//! bytes.
//!
//! | bins | +0 | +1 | +2 | +3 | +4 | +5 | +6 | +7 |
//! | --- | --- | --- | --- | --- | --- | --- | --- | --- |
//! | 0 | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//! | 8 | 8 | 9 | 10 | 11 | 12 | 13 | 14 | 15 |
//! | 16 | 16 | 18 | 20 | 22 | 24 | 26 | 28 | 30 |
//! | 24 | 32 | 36 | 40 | 44 | 48 | 52 | 56 | 60 |
//! | 32 | 64 | 72 | 80 | 88 | 96 | 104 | 112 | 120 |
//! | 40 | 128 | 144 | 160 | 176 | 192 | 208 | 224 | 240 |
//! | 48 | 256 | 288 | 320 | 352 | 384 | 416 | 448 | 480 |
//! | 56 | 512 | 576 | 640 | 704 | 768 | 832 | 896 | 960 |
//! | 64 | 1024 | 1152 | 1280 | 1408 | 1536 | 1664 | 1792 | 1920 |
//! | 72 | 2048 | 2304 | 2560 | 2816 | 3072 | 3328 | 3584 | 3840 |
//! | 80 | 4096 | 4608 | 5120 | 5632 | 6144 | 6656 | 7168 | 7680 |
//! | 88 | 8192 | 9216 | 10240 | 11264 | 12288 | 13312 | 14336 | 15360 |
//! | 96 | 16384 | 18432 | 20480 | 22528 | 24576 | 26624 | 28672 | 30720 |
//! | 104 | 32768 | 36864 | 40960 | 45056 | 49152 | 53248 | 57344 | 61440 |
//! | 112 | 65536 | 73728 | 81920 | 90112 | 98304 | 106496 | 114688 | 122880 |
//! | 120 | 131072 | 147456 | 163840 | 180224 | 196608 | 212992 | 229376 | 245760 |
//! | 128 | 262144 | 294912 | 327680 | 360448 | 393216 | 425984 | 458752 | 491520 |
//! | 136 | 524288 | 589824 | 655360 | 720896 | 786432 | 851968 | 917504 | 983040 |
//! | 144 | 1048576 | 1179648 | 1310720 | 1441792 | 1572864 | 1703936 | 1835008 | 1966080 |
//! | 152 | 2097152 | 2359296 | 2621440 | 2883584 | 3145728 | 3407872 | 3670016 | 3932160 |
//! | 160 | 4194304 | 4718592 | 5242880 | 5767168 | 6291456 | 6815744 | 7340032 | 7864320 |
//! | 168 | 8388608 | 9437184 | 10485760 | 11534336 | 12582912 | 13631488 | 14680064 | 15728640 |
//! | 176 | 16777216 | 18874368 | 20971520 | 23068672 | 25165824 | 27262976 | 29360128 | 31457280 |
//! | 184 | 33554432 | 37748736 | 41943040 | 46137344 | 50331648 | 54525952 | 58720256 | 62914560 |
//! | 192 | 67108864 | 75497472 | 83886080 | 92274688 | 100663296 | 109051904 | 117440512 | 125829120 |
//! | 200 | 134217728 | 150994944 | 167772160 | 184549376 | 201326592 | 218103808 | 234881024 | 251658240 |
//! | 208 | 268435456 | 301989888 | 335544320 | 369098752 | 402653184 | 436207616 | 469762048 | 503316480 |
//! | 216 | 536870912 | 603979776 | 671088640 | 738197504 | 805306368 | 872415232 | 939524096 | 1006632960 |
//! | 224 | 1073741824 | 1207959552 | 1342177280 | 1476395008 | 1610612736 | 1744830464 | 1879048192 | 2013265920 |
//! | 232 | 2147483648 | 2415919104 | 2684354560 | 2952790016 | 3221225472 | 3489660928 | 3758096384 | 4026531840 |
//! | 240 | 4294967296 | 4831838208 | 5368709120 | 5905580032 | 6442450944 | 6979321856 | 7516192768 | 8053063680 |
//! | 248 | 8589934592 | 9663676416 | 10737418240 | 11811160064 | 12884901888 | 13958643712 | 15032385536 | 16106127360 |
//! | 256 | 17179869184 | 19327352832 | 21474836480 | 23622320128 | 25769803776 | 27917287424 | 30064771072 | 32212254720 |
//! | 264 | 34359738368 | 38654705664 | 42949672960 | 47244640256 | 51539607552 | 55834574848 | 60129542144 | 64424509440 |
//! | 272 | 68719476736 | 77309411328 | 85899345920 | 94489280512 | 103079215104 | 111669149696 | 120259084288 | 128849018880 |
//! | 280 | 137438953472 | 154618822656 | 171798691840 | 188978561024 | 206158430208 | 223338299392 | 240518168576 | 257698037760 |
//! | 288 | 274877906944 | 309237645312 | 343597383680 | 377957122048 | 412316860416 | 446676598784 | 481036337152 | 515396075520 |
//! | 296 | 549755813888 | 618475290624 | 687194767360 | 755914244096 | 824633720832 | 893353197568 | 962072674304 | 1030792151040 |
//! | 304 | 1099511627776 | 1236950581248 | 1374389534720 | 1511828488192 | 1649267441664 | 1786706395136 | 1924145348608 | 2061584302080 |
//! | 312 | 2199023255552 | 2473901162496 | 2748779069440 | 3023656976384 | 3298534883328 | 3573412790272 | 3848290697216 | 4123168604160 |
//! | 320 | 4398046511104 | 4947802324992 | 5497558138880 | 6047313952768 | 6597069766656 | 7146825580544 | 7696581394432 | 8246337208320 |
//! | 328 | 8796093022208 |

use crate::units::Granules;

/// The largest size that has a bin: 2^43 granules, which is 2^48 bytes with granules of 32 bytes.
pub const MAX_GRANULES: Granules = Granules(1 << 43);

/// The number of bins.
pub const BIN_COUNT: usize = 329;

/// The number of low bits in a bin number that count the bins within a doubling.
const MANTISSA_BITS: u32 = 3;

/// The bin of a free block of this size; the size is rounded down to the least size of a bin. O(1).
///
/// Only size 0 has bin 0. Sizes above [`MAX_GRANULES`] share the last bin.
///
/// ```
/// use lapidary_alloc::bins::{bin_min, bin_of};
/// use lapidary_alloc::units::Granules;
///
/// assert_eq!(bin_of(Granules(7)), 7);
/// assert_eq!(bin_of(Granules(16)), bin_of(Granules(17)));
/// assert_eq!(bin_min(bin_of(Granules(1000))), Granules(960));
/// ```
#[inline]
pub const fn bin_of(size: Granules) -> usize {
    let size = if size.0 > MAX_GRANULES.0 {
        MAX_GRANULES.0
    } else {
        size.0
    };
    // The shift leaves four bits; the highest of them carries into the doubling. Sizes below 8 need
    // no shift. The `| 8` avoids a branch, which random sizes would mispredict.
    let shift = (size | 8).ilog2() - MANTISSA_BITS;
    ((shift as usize) << MANTISSA_BITS) + (size >> shift) as usize
}

/// The least size in a bin. Numbers past the last bin give the least size of the last bin. O(1).
///
/// ```
/// use lapidary_alloc::bins::{BIN_COUNT, MAX_GRANULES, bin_min};
///
/// assert_eq!(bin_min(BIN_COUNT - 1), MAX_GRANULES);
/// ```
#[inline]
pub const fn bin_min(bin: usize) -> Granules {
    let bin = if bin >= BIN_COUNT { BIN_COUNT - 1 } else { bin };
    if bin < 8 {
        Granules(bin as u64)
    } else {
        let mantissa = (bin & 7) as u64 | 8;
        Granules(mantissa << ((bin >> MANTISSA_BITS) - 1))
    }
}

const WORDS: usize = BIN_COUNT.div_ceil(64);

/// The bins that are not empty: one bit per bin, and one bit per word of those bits.
#[derive(Clone, Debug, Default)]
pub(super) struct BinMap {
    words: [u64; WORDS],
    top: u64,
}

impl BinMap {
    #[inline]
    pub(super) fn set(&mut self, bin: usize) {
        self.words[bin / 64] |= 1 << (bin % 64);
        self.top |= 1 << (bin / 64);
    }

    #[inline]
    pub(super) fn clear(&mut self, bin: usize) {
        self.words[bin / 64] &= !(1 << (bin % 64));
        if self.words[bin / 64] == 0 {
            self.top &= !(1 << (bin / 64));
        }
    }

    pub(super) fn contains(&self, bin: usize) -> bool {
        self.words[bin / 64] & (1 << (bin % 64)) != 0
    }

    /// The lowest bin in use that is at least `bin`.
    #[inline]
    pub(super) fn first_from(&self, bin: usize) -> Option<usize> {
        if bin >= BIN_COUNT {
            return None;
        }
        let word = bin / 64;
        let here = self.words[word] & (u64::MAX << (bin % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let above = self.top & (u64::MAX << word << 1);
        if above == 0 {
            return None;
        }
        let word = above.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The highest bin in use.
    pub(super) fn last(&self) -> Option<usize> {
        let word = self.top.checked_ilog2()? as usize;
        Some(word * 64 + self.words[word].ilog2() as usize)
    }

    /// Whether the upper level agrees with the lower one.
    pub(super) fn is_consistent(&self) -> bool {
        self.words
            .iter()
            .enumerate()
            .all(|(i, &word)| (word != 0) == (self.top & (1 << i) != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a bin: it contains its least size and `size`, but not the size one granule below its
    /// least.
    fn check(size: u64) {
        let bin = bin_of(Granules(size));
        assert!(bin < BIN_COUNT, "{size}");
        let least = bin_min(bin).0;
        assert!(least <= size, "bin {bin} of {size} begins at {least}");
        assert_eq!(bin_of(Granules(least)), bin, "{size}");
        if bin + 1 < BIN_COUNT {
            let next = bin_min(bin + 1).0;
            assert!(size < next, "{size} belongs to bin {} at least", bin + 1);
            assert!(
                size < 16 || (next - least) * 8 <= size,
                "bin {bin} is too wide for {size}"
            );
        }
    }

    #[test]
    fn every_size_has_the_right_bin() {
        (0..=65_536).for_each(check);
        for power in 0..=43 {
            let size = 1_u64 << power;
            check(size - 1);
            check(size);
            check((size + 1).min(MAX_GRANULES.0));
        }
        assert_eq!(bin_of(Granules(u64::MAX)), BIN_COUNT - 1);
        assert_eq!(bin_min(usize::MAX), MAX_GRANULES);
    }

    #[test]
    fn every_bin_begins_where_the_one_before_ends() {
        for bin in 1..BIN_COUNT {
            assert_eq!(bin_of(bin_min(bin)), bin);
            assert_eq!(bin_of(Granules(bin_min(bin).0 - 1)), bin - 1);
        }
    }

    #[test]
    fn the_table_in_the_documentation_is_right() {
        let rows = include_str!("bins.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("//! | "));
        let mut next = 0;
        for row in rows.filter(|row| row.starts_with(|c: char| c.is_ascii_digit())) {
            let mut cells = row
                .trim_end_matches(" |")
                .split(" | ")
                .map(|cell| cell.parse::<u64>().unwrap());
            assert_eq!(cells.next(), Some(next as u64), "the row's first bin");
            for least in cells {
                assert_eq!(bin_min(next).0, least, "bin {next}");
                next += 1;
            }
        }
        assert_eq!(next, BIN_COUNT);
    }

    #[test]
    fn the_bitmap_finds_what_a_plain_search_finds() {
        let mut random = 1_u64;
        let mut map = BinMap::default();
        let mut plain = [false; BIN_COUNT];
        // Miri interprets, a thousand times slower.
        let rounds = if cfg!(miri) { 200 } else { 20_000 };
        for _ in 0..rounds {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let bin = (random >> 33) as usize % BIN_COUNT;
            // The test clears more often than it sets. The map stays sparse, so the upper level
            // matters.
            plain[bin] = (random >> 60) < 3;
            if plain[bin] {
                map.set(bin)
            } else {
                map.clear(bin)
            }
            let from = (random >> 20) as usize % (BIN_COUNT + 9);
            assert_eq!(map.first_from(from), (from..BIN_COUNT).find(|&b| plain[b]));
            assert_eq!(map.last(), (0..BIN_COUNT).rfind(|&b| plain[b]));
            assert_eq!(map.contains(bin), plain[bin]);
            assert!(map.is_consistent());
        }
    }
}
