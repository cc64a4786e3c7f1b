//! Binds the operands of a launch: decides which bindings a dispatch has, and their access.

use smallvec::SmallVec;

use super::step::Stop;
use crate::driver::{AdapterKind, Binding, BufferId};
use crate::engine::kernel::wgsl::Layout;
use crate::engine::kernel::{Launch, MAX_OPERANDS, Program};
use crate::engine::state::State;
use crate::engine::state::caches::Bindings;

/// A storage, or a range of one, that several operands may share. Or all pages.
struct Part<'a> {
    /// The slot of the storage.
    slot: Option<u32>,
    range: Option<&'a (u64, u64)>,
    /// The slab of each window, once for each run of equal ones.
    buffers: SmallVec<[BufferId; 1]>,
}

impl Part<'_> {
    fn shares_slab(&self, other: &Part<'_>) -> bool {
        self.buffers.iter().any(|one| other.buffers.contains(one))
    }
}

impl State {
    /// Decides the bindings of the operands. Each storage, or range of one, is a part with as many
    /// windows as it needs. Each operand of a custom kernel is its own part. All pages are one
    /// part, which has these windows. Bit `i` of `written` is set if operand `i` is written.
    pub(super) fn bind(
        &self,
        launch: &Launch,
        written: u8,
        windows: &[Binding],
    ) -> Result<(Layout, Bindings), Stop> {
        let window_bytes = self.driver.caps().max_binding_bytes;
        let mut layout = Layout {
            parts: [0; MAX_OPERANDS],
            windows: [0; MAX_OPERANDS],
            writable: 0,
        };
        let mut parts = SmallVec::<[Part<'_>; 4]>::new();
        let mut bindings = Bindings::new();
        let pages = match windows {
            [] => None,
            _ => launch.program.pages(),
        };
        for (index, arg) in launch.args.iter().enumerate() {
            if pages == Some(index) {
                let mut buffers: SmallVec<_> = windows.iter().map(|window| window.buffer).collect();
                buffers.dedup();
                layout.parts[index] = parts.len() as u8;
                layout.windows[parts.len()] = windows.len() as u8;
                layout.writable |= (written >> index & 1) << parts.len();
                bindings.extend_from_slice(windows);
                parts.push(Part {
                    slot: None,
                    range: None,
                    buffers,
                });
                continue;
            }
            let (slot, range) = (arg.storage.slot(), launch.ranges.get(index));
            let known = match launch.program {
                Program::Builtin(_) | Program::Fused(_) => (parts.iter())
                    .position(|part: &Part<'_>| part.slot == slot && part.range == range),
                Program::Custom(_) => None,
            };
            let part = known.unwrap_or(parts.len());
            if known.is_none() {
                let place = self.memory.slots.find(&arg.storage).ok_or(Stop::Lost)?;
                let buffer = place.buffer;
                parts.push(Part {
                    slot,
                    range,
                    buffers: SmallVec::from_buf([buffer]),
                });
                let (start, size_bytes) = range.copied().unwrap_or((0, arg.storage.size_bytes()));
                let mut shown_bytes = 0;
                while shown_bytes < size_bytes {
                    let binding = Binding {
                        buffer,
                        offset_bytes: place.offset_bytes + start + shown_bytes,
                        size_bytes: window_bytes.min(size_bytes - shown_bytes),
                    };
                    shown_bytes += binding.size_bytes;
                    layout.windows[part] = layout.windows[part].wrapping_add(1);
                    bindings.push(binding);
                }
            }
            layout.parts[index] = part as u8;
            layout.writable |= (written >> index & 1) << part;
        }
        layout.writable = self.writable(&parts, layout.writable);
        Ok((layout, bindings))
    }

    /// The parts to bind read-write, one bit each, if the command writes the parts `written`. wgpu
    /// requires the same access for all parts of one slab.
    ///
    /// Which operands share a slab is chance, and each combination needs a pipeline. A software
    /// adapter compiles a pipeline for seconds, and read-only bindings are no faster there. So all
    /// parts are read-write on it. Other devices would then put barriers between dispatches that
    /// only read the same slab.
    fn writable(&self, parts: &[Part<'_>], written: u8) -> u8 {
        let is_software = self.driver.caps().kind == AdapterKind::Cpu;
        let beside = |written: u8| {
            let is_beside = |part: &Part<'_>| {
                (0..parts.len()).any(|of| written >> of & 1 == 1 && parts[of].shares_slab(part))
            };
            (parts.iter().enumerate())
                .filter(|(_, part)| is_software || is_beside(part))
                .fold(0, |bits, (index, _)| bits | 1 << index)
        };
        let mut writable = beside(written);
        // Pages may lie in several slabs. Then what lies beside one of their windows follows.
        while parts.iter().any(|part| part.buffers.len() > 1) {
            let next = beside(writable);
            if next == writable {
                break;
            }
            writable = next;
        }
        writable
    }
}
