//! Kernels without a reader: the function that computes a vec4, or two adjacent ones, and the entry
//! point that calls it.

use super::super::structure::Fetch;
use super::{OUTS, Writer};

impl Writer<'_> {
    /// Writes the function that computes one vec4.
    pub(super) fn push_vec4(&mut self) {
        let at = match self.structure.is_mapped() && self.structure.whole {
            true => ", i: Elements",
            false => "",
        };
        self.push(format_args!("fn put_vec4(k: u32{at}) {{\n"));
        self.push_lines();
    }

    /// Writes the function that computes two adjacent vec4s.
    pub(super) fn push_vec8(&mut self) {
        self.out.push_str("fn put_vec8(first: u32) {\n");
        let leaves = self.structure.leaves.iter().enumerate();
        let (in_order, others): (Vec<_>, Vec<_>) =
            leaves.partition(|(_, leaf)| leaf.fetch == Fetch::InOrder);
        for (leaf, _) in others {
            let (name, value) = (self.leaves[leaf], self.leaf(leaf));
            self.push(format_args!("  let {name} = {value};\n"));
        }
        for (leaf, _) in &in_order {
            let name = self.leaves[*leaf];
            self.push(format_args!("  let {name}_pair = {name}_get8(first);\n"));
        }
        let outs = self.structure.outs.iter().zip(OUTS);
        for (_, y) in outs.clone() {
            self.push(format_args!("  var {y}_pair: mat2x4<f32>;\n"));
        }
        for half in 0..2 {
            self.push(format_args!("  {{\n  let k = first + {}u;\n", 4 * half));
            for (leaf, _) in &in_order {
                let name = self.leaves[*leaf];
                self.push(format_args!("  let {name} = {name}_pair[{half}];\n"));
            }
            self.push_nodes();
            for (shape, y) in outs.clone() {
                let node = shape.node;
                self.push(format_args!("  {y}_pair[{half}] = t{node};\n"));
            }
            self.out.push_str("  }\n");
        }
        for (_, y) in outs {
            self.push(format_args!("  {y}_put8(first, {y}_pair);\n"));
        }
        self.out.push_str("}\n");
    }

    /// Writes the entry point. It calls `put_vec4` for every vec4 of an invocation, or `put_vec8`
    /// for every two.
    pub(super) fn push_main(&mut self) {
        let each = self.structure.each;
        let group = self.structure.group;
        self.push(format_args!(
            "\n@compute @workgroup_size({group})\nfn main(\n  \
             @builtin(workgroup_id) group: vec3<u32>,\n  \
             @builtin(num_workgroups) groups: vec3<u32>,\n  \
             @builtin(local_invocation_index) lane: u32,\n) {{\n  \
             let thread = (group.y * groups.x + group.x) * {group}u + lane;\n  \
             // The last vec4 may pass the end: the padding of a storage belongs to it.\n  \
             let vec4s = (p.w0.x + 3u) >> 2u;\n",
        ));
        if self.structure.vec8s {
            for vec8 in 0..each / 2 {
                let first = format!("thread * {}u + {}u", 4 * each, 8 * vec8);
                self.push(format_args!(
                    "  if ({first} < p.w0.x) {{ put_vec8({first}); }}\n"
                ));
            }
            self.out.push_str("}\n");
            return;
        }
        let is_mapped = self.structure.is_mapped() && self.structure.whole;
        let together = self.structure.together;
        if is_mapped && together {
            let first = 4 * each;
            self.push(format_args!(
                "  let i = elements_at(coordinates(thread * {first}u));\n"
            ));
        }
        for vec4 in 0..each {
            let q = format!("thread * {each}u + {vec4}u");
            let k = format!("({q}) << 2u");
            let i = match (is_mapped, together) {
                (false, _) => String::new(),
                (true, false) => format!(", elements_at(coordinates({k}))"),
                (true, true) => {
                    let steps = self.mapped().into_iter().map(|leaf| {
                        let last = self.structure.rank - 1;
                        let stride = self.word(self.places.strides[leaf] + last);
                        format!("i.{} + {}u * {stride}", self.leaves[leaf], 4 * vec4)
                    });
                    format!(", Elements({})", steps.collect::<Vec<_>>().join(", "))
                }
            };
            self.push(format_args!("  if ({q} < vec4s) {{ put_vec4({k}{i}); }}\n"));
        }
        self.out.push_str("}\n");
    }
}
