//! Turns answers into findings.

use super::finding::Finding;
use super::watch::Taint;
use super::{ANSWER_BYTES, About, Asked, Diagnose};
use crate::engine::state::State;
use crate::memory::Zone;

/// The result of a look, in elements counted from the start of its subject.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// The counts of the first and the second kind.
    counts: [u64; 2],
    first: u64,
    end: u64,
}

impl Answer {
    const NOTHING: Answer = Answer {
        counts: [0; 2],
        first: u64::MAX,
        end: 0,
    };

    fn is_nothing(&self) -> bool {
        self.counts == [0; 2]
    }

    /// Combines two answers.
    fn and(self, other: Answer) -> Answer {
        Answer {
            counts: [0, 1].map(|kind| self.counts[kind] + other.counts[kind]),
            first: self.first.min(other.first),
            end: self.end.max(other.end),
        }
    }
}

/// Combines all answers of one look.
fn answer(asked: &Asked, answers: &[u8]) -> Answer {
    let start = asked.first as usize * ANSWER_BYTES as usize;
    let bytes = answers.get(start..).unwrap_or_default();
    let each = bytes.chunks_exact(ANSWER_BYTES as usize);
    let each = each.take(asked.count as usize).map(|bytes| {
        let [first_kind, second_kind, first, end] = bytemuck::pod_read_unaligned::<[u32; 4]>(bytes);
        match (first_kind, second_kind) {
            (0, 0) => Answer::NOTHING,
            _ => Answer {
                counts: [first_kind.into(), second_kind.into()],
                first: asked.from + u64::from(first),
                end: asked.from + u64::from(end),
            },
        }
    });
    each.fold(Answer::NOTHING, Answer::and)
}

/// Whether both looks are at parts of the same value.
fn is_same(one: &Asked, next: &Asked) -> bool {
    match (&one.about, &next.about) {
        (About::Output(one), About::Output(next)) | (About::Result(one), About::Result(next)) => {
            one == next
        }
        _ => false,
    }
}

impl Diagnose {
    /// Evaluates the answers to all looks, in order.
    pub(super) fn evaluate(&mut self, state: &mut State, answers: &[u8], found: &mut Vec<Finding>) {
        let asked = std::mem::take(&mut self.asked);
        for of_one in asked.chunk_by(is_same) {
            let each = of_one.iter().map(|asked| answer(asked, answers));
            let answer = each.fold(Answer::NOTHING, Answer::and);
            match &of_one[0].about {
                About::Result(version) => found.extend(self.non_finite_finding(*version, answer)),
                About::Output(version) => {
                    if let Some(output) = self.watch.outputs.get_mut(version) {
                        output.unwritten = Some((answer.counts[0], answer.first));
                    }
                }
                _ if answer.is_nothing() => {}
                About::Canary(zone) => {
                    found.push(overrun(state, zone, answer, self.suspects.clone()));
                    let memory = &mut state.memory;
                    (memory.canaries).refill(zone, &memory.slots, &memory.slabs);
                }
                About::End(zone, kernel) => {
                    let suspects = vec![format!("the kernel `{kernel}`")];
                    found.push(overrun(state, zone, answer, suspects));
                }
                About::Freed(zone) => {
                    found.push(Finding::WrittenAfterFree {
                        made_at: state.memory.census.tag(zone.tag),
                        size_bytes: zone.of_bytes,
                        first_byte: zone.from_bytes + 4 * answer.first,
                        end_byte: zone.from_bytes + 4 * answer.end,
                        words: answer.counts[0],
                        suspects: self.suspects.clone(),
                    });
                    state.memory.canaries.forget_freed(zone);
                }
            }
        }
        found.extend(self.unwritten());
        self.watch.forget_all_but(&state.memory.slots.live_writes());
    }
}

fn overrun(state: &State, zone: &Zone, answer: Answer, suspects: Vec<String>) -> Finding {
    Finding::Overrun {
        made_at: state.memory.census.tag(zone.tag),
        size_bytes: zone.of_bytes,
        first_byte: zone.from_bytes + 4 * answer.first,
        end_byte: zone.from_bytes + 4 * answer.end,
        words: answer.counts[0],
        next: state.memory.tag_behind(zone),
        suspects,
    }
}

impl Diagnose {
    /// Judges a value by its answer. Returns a finding if the value has a NaN or infinity that its
    /// inputs did not have.
    fn non_finite_finding(&mut self, version: u64, answer: Answer) -> Option<Finding> {
        let before = self.watch.taint_of_inputs(version);
        let maker = self.watch.makers.get_mut(&version)?;
        let [nans, infinities] = answer.counts;
        maker.taint = Some(Taint {
            nan: nans > 0,
            infinity: infinities > 0,
        });
        let is_born = nans > 0 && !before.nan;
        let has_grown = infinities > 0 && !before.nan && !before.infinity;
        (is_born || has_grown).then(|| Finding::NonFinite {
            operation: maker.operation.clone(),
            made_at: maker.tag.clone(),
            dtype: maker.dtype,
            elements: maker.elements,
            nans,
            infinities,
            first_element: answer.first,
            of_infinity: before.infinity,
        })
    }

    /// The outputs that were read although they were not wholly written. Each is reported once.
    fn unwritten(&mut self) -> Vec<Finding> {
        let mut found = Vec::new();
        self.watch.outputs.retain(|_, output| {
            let (Some((words, first_word)), Some(by)) = (output.unwritten, &output.read_by) else {
                return true;
            };
            if words > 0 {
                found.push(Finding::Unwritten {
                    made_at: output.tag.clone(),
                    kernel: output.kernel.clone(),
                    words,
                    of_words: output.words,
                    first_word,
                    read_by: by.clone(),
                });
            }
            false
        });
        found
    }
}
