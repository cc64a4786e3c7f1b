//! The reference kernels over pages: one query, one key, one element after the other.

use super::form::Form;
use super::run::Params;
use lapidary_core::DType;
use lapidary_core::internal::{ABSENT, ReferenceCall, TABLE_HEAD};

/// A head of a layer in the page that an entry of a table shows.
struct Block<'a> {
    call: &'a ReferenceCall,
    form: Form,
    /// The operand that stands for the pages.
    pages: usize,
    start: usize,
}

/// The entry of a page in the table, if this round shows the page.
fn entry(call: &ReferenceCall, table: usize, page: u32) -> Option<[u32; 2]> {
    let p: Params = call.params();
    let at = p.page[3] as usize + TABLE_HEAD + 2 * page as usize;
    let entry = [call.int(table, at), call.int(table, at + 1)];
    (entry[0] != ABSENT).then_some(entry)
}

impl Block<'_> {
    fn new(call: &ReferenceCall, pages: usize, page: u32, head: u32) -> Option<Block<'_>> {
        let p: Params = call.params();
        let [window, offset] = entry(call, pages - 1, page)?;
        let units = offset + p.page[0] + head * p.page[1];
        Some(Block {
            call,
            form: Form::unpack(call.variant.code),
            pages,
            start: call.windows[window as usize] + 16 * units as usize,
        })
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.call.operands[self.pages][at..at + N]);
        bytes
    }

    /// The first byte of the key of a token, or of its value.
    fn row(&self, is_value: bool, token: u32) -> usize {
        let geometry = self.form.geometry;
        let row = u32::from(is_value) * geometry.page_tokens + token;
        self.start + 16 * (row * geometry.row_units()) as usize
    }

    /// The place of the scale of a key or value.
    fn scale(&self, is_value: bool, token: u32) -> usize {
        let tokens = self.form.geometry.page_tokens;
        let rows = 2 * tokens * self.form.geometry.row_units();
        self.start + (16 * rows + 4 * (u32::from(is_value) * tokens + token)) as usize
    }

    fn element(&self, is_value: bool, token: u32, at: u32) -> f64 {
        let (row, at) = (self.row(is_value, token), at as usize);
        match self.form.geometry.dtype {
            DType::I8 => {
                let scale = f32::from_le_bytes(self.bytes(self.scale(is_value, token)));
                f64::from(self.bytes::<1>(row + at)[0] as i8) * f64::from(scale)
            }
            DType::F16 => half::f16::from_le_bytes(self.bytes(row + 2 * at)).into(),
            _ => f32::from_le_bytes(self.bytes(row + 4 * at)).into(),
        }
    }
}

pub(crate) fn append(call: &mut ReferenceCall) {
    const PAGES: usize = 3;
    let p: Params = call.params();
    let geometry = Form::unpack(call.variant.code).geometry;
    let size = geometry.head_size;
    for row in 0..p.part[3] {
        let [page, token] = [4, 5].map(|word| call.int(2, 8 * row as usize + word));
        for (head, operand) in (0..p.heads[1]).flat_map(|head| [(head, 0), (head, 1)]) {
            let Some(block) = Block::new(call, PAGES, page, head) else {
                continue;
            };
            let (to, scale_to) = (
                block.row(operand == 1, token),
                block.scale(operand == 1, token),
            );
            let from = p.rest[operand] + (row * p.heads[1] + head) * size;
            let elements: Vec<f32> = (from..from + size)
                .map(|at| call.f32(operand, at as usize))
                .collect();
            let mut bytes: Vec<u8> = match geometry.dtype {
                DType::I8 => {
                    let scale = scale_of(&elements);
                    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
                    let pages = &mut call.operands[PAGES];
                    pages[scale_to..scale_to + 4].copy_from_slice(&scale.to_le_bytes());
                    let byte = |x: &f32| (x * inverse).clamp(-127.0, 127.0).round_ties_even();
                    elements.iter().map(|x| byte(x) as i8 as u8).collect()
                }
                DType::F16 => (elements.iter())
                    .flat_map(|&x| half::f16::from_f32(x).to_le_bytes())
                    .collect(),
                _ => elements.iter().flat_map(|x| x.to_le_bytes()).collect(),
            };
            bytes.resize(16 * geometry.row_units() as usize, 0);
            call.operands[PAGES][to..to + bytes.len()].copy_from_slice(&bytes);
        }
    }
}

/// The largest element becomes 127. A row that is not finite has a scale that is not.
fn scale_of(elements: &[f32]) -> f32 {
    let largest = elements.iter().map(|x| x.to_bits() & 0x7fff_ffff).max();
    f32::from_bits(largest.unwrap_or(0)) / 127.0
}

pub(crate) fn attention(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let form = Form::unpack(call.variant.code);
    for own in 0..call.operands[1].len() / state_bytes(&p, form) {
        let first_word = p.page[2] as usize + 8 * (p.part[0] as usize + own);
        let task = [0, 1, 2, 3, 4, 5].map(|word| call.int(2, first_word + word));
        for (row, head) in (0..task[1]).flat_map(|row| (0..p.heads[0]).map(move |head| (row, head)))
        {
            let at = own as u32 * form.rows() + row;
            let at = (at * p.heads[0] + head) * (form.geometry.head_size + 4);
            one_query(call, &p, (task, row), head, at as usize);
        }
    }
}

/// The bytes of the states of a task, of which the operand holds as many as the launch has tasks.
fn state_bytes(p: &Params, form: Form) -> usize {
    let states = form.rows() * p.heads[0];
    4 * (states * (form.geometry.head_size + 4)) as usize
}

/// The state of a query after the keys of a task that this round shows.
fn one_query(
    call: &mut ReferenceCall,
    p: &Params,
    (task, row): ([u32; 6], u32),
    head: u32,
    state_at: usize,
) {
    const PAGES: usize = 3;
    let form = Form::unpack(call.variant.code);
    let (size, tokens) = (form.geometry.head_size, form.geometry.page_tokens);
    let [first_row, _, position, first_page, pages, first_key] = task;
    let position = position + row;
    let (mut o, mut highest, mut sum) = (vec![0.0_f32; size as usize], f32::MIN, 0.0_f32);
    if call.int(2, p.page[3] as usize) != 0 {
        let state: Vec<f32> = (0..size as usize + 2)
            .map(|at| call.f32(1, state_at + at))
            .collect();
        o.copy_from_slice(&state[..size as usize]);
        (highest, sum) = (state[size as usize], state[size as usize + 1]);
    }
    let q_at = p.rest[0] + ((first_row + row) * p.heads[0] + head) * size;
    let end_key = (first_key + pages * tokens).min(position + 1);
    for tile in (first_key..end_key).step_by(form.tile() as usize) {
        let block = |key: u32| {
            let page = first_page + (key - first_key) / tokens;
            Some((
                Block::new(call, PAGES, page, head / p.heads[2])?,
                key % tokens,
            ))
        };
        let end = end_key.min(tile + form.tile());
        let keys = (tile..end).filter(|key| position - key <= p.rest[2]);
        let seen: Vec<(f64, u32)> = keys
            .filter_map(|key| {
                let (block, token) = block(key)?;
                let product = |at: u32| {
                    f64::from(call.f32(0, (q_at + at) as usize)) * block.element(false, token, at)
                };
                let score = (0..size).map(product).sum::<f64>() * f64::from(p.numbers[0]);
                let cap = f64::from(p.numbers[1]);
                let score = match form.is_capped {
                    true => cap * (score / cap).tanh(),
                    false => score,
                };
                Some((score, key))
            })
            .collect();
        if seen.is_empty() {
            continue;
        }
        let peak = seen.iter().map(|&(score, _)| score as f32);
        let peak = peak.fold(highest, f32::max);
        let shrink = f64::from(highest - peak).exp();
        let weights: Vec<f64> = (seen.iter())
            .map(|(score, _)| (score - f64::from(peak)).exp())
            .collect();
        for (at, o) in o.iter_mut().enumerate() {
            let values = seen.iter().zip(&weights).filter_map(|(&(_, key), weight)| {
                let (block, token) = block(key)?;
                Some(weight * block.element(true, token, at as u32))
            });
            *o = (f64::from(*o) * shrink + values.sum::<f64>()) as f32;
        }
        sum = (f64::from(sum) * shrink + weights.iter().sum::<f64>()) as f32;
        highest = peak;
    }
    for (at, value) in o.into_iter().chain([highest, sum, 0.0, 0.0]).enumerate() {
        call.put_f32(1, state_at + at, value);
    }
}

pub(crate) fn merge(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let form = Form::unpack(call.variant.code);
    let size = form.geometry.head_size as usize;
    for row in p.part[1]..p.part[1] + p.part[3] {
        let [first, tasks, in_block] = [0, 1, 2].map(|word| call.int(1, 8 * row as usize + word));
        for head in 0..p.heads[0] {
            let states: Vec<usize> = (first..first + tasks)
                .map(|task| (task - p.part[0]) * form.rows() + in_block)
                .map(|at| (at * p.heads[0] + head) as usize * (size + 4))
                .collect();
            let numbers =
                |state: &usize| [size, size + 1].map(|at| f64::from(call.f32(0, state + at)));
            let peak = states.iter().map(|state| numbers(state)[0]);
            let peak = peak.fold(f64::from(f32::MIN), f64::max);
            let weight = |state: &usize| (numbers(state)[0] - peak).exp();
            let sum: f64 = states.iter().map(|one| weight(one) * numbers(one)[1]).sum();
            let value = |at: usize| {
                let parts = states
                    .iter()
                    .map(|one| weight(one) * f64::from(call.f32(0, one + at)));
                match sum {
                    0.0 => 0.0,
                    sum => parts.sum::<f64>() / sum,
                }
            };
            let values: Vec<f64> = (0..size).map(value).collect();
            for (at, value) in values.into_iter().enumerate() {
                let to = (row * p.heads[0] + head) as usize * size + at;
                call.put_f32(2, to, value as f32);
            }
        }
    }
}
