//! The reference kernel of `shaders/probe.wgsl`.

use crate::engine::Look;
use crate::engine::kernel::ReferenceCall;
use crate::memory::PATTERN;

pub(crate) fn run(call: &mut ReferenceCall) {
    let words = call.params::<[u32; 8]>().map(|word| word as usize);
    let [start, len, slot, parts] = [0, 1, 2, 3].map(|word| words[word]);
    let look = Look::from_code(call.variant.code);
    if look == Look::Table {
        for slot in slot..slot + len {
            let (start, len) = (call.int(1, 4 * slot), call.int(1, 4 * slot + 1));
            let found =
                (0..len as usize).map(|i| u32::from(call.int(0, start as usize + i) != PATTERN));
            let answer = sum(found.zip(0..));
            say(call, slot, answer);
        }
        return;
    }
    for part in 0..parts {
        let (of, row, at) = (words[4], words[5], words[6]);
        let is_padding = |i: &usize| of > 0 && (i + at) % of >= row;
        let mine = (0..len).filter(|i| i / 64 % parts == part && !is_padding(i));
        let mine: Vec<_> = mine.collect();
        let found: Vec<_> = mine
            .iter()
            .map(|&i| (kind(call, look, start, i), i as u32))
            .collect();
        say(call, slot + part, sum(found.into_iter()));
    }
}

fn kind(call: &mut ReferenceCall, look: Look, start: usize, i: usize) -> u32 {
    let of_size = |size: u32, infinity: u32| match size.cmp(&infinity) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => 2,
        std::cmp::Ordering::Greater => 1,
    };
    let word = |call: &ReferenceCall, i: usize| call.int(0, start + i);
    let half = |call: &ReferenceCall| word(call, i / 2) >> (16 * (i % 2)) & 0x7fff;
    match look {
        Look::Words | Look::Table => u32::from(word(call, i) != PATTERN),
        Look::Clear if word(call, i) != PATTERN => 0,
        Look::Clear => {
            call.put_int(0, start + i, 0);
            1
        }
        Look::F32 => of_size(word(call, i) & 0x7fff_ffff, 0x7f80_0000),
        Look::F16 => of_size(half(call), 0x7c00),
        Look::Bf16 => of_size(half(call), 0x7f80),
    }
}

fn sum(found: impl Iterator<Item = (u32, u32)>) -> [u32; 4] {
    found.fold([0, 0, u32::MAX, 0], |all, (kind, i)| match kind {
        0 => all,
        kind => [
            all[0] + u32::from(kind == 1),
            all[1] + u32::from(kind == 2),
            all[2].min(i),
            all[3].max(i + 1),
        ],
    })
}

fn say(call: &mut ReferenceCall, slot: usize, answer: [u32; 4]) {
    for (word, value) in answer.into_iter().enumerate() {
        call.put_int(1, 4 * slot + word, value);
    }
}
