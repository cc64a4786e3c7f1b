//! Parameters that share launches, and the tensors with their state.

use smallvec::SmallVec;

use crate::ops::fill;
use crate::ops::optim::{MOST, UNIT, UpdateFormula};
use crate::ops::together;
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;
use lapidary_core::{DType, Result};

/// Parameters that share a launch. A parameter that is alone has a tensor for each plane of its
/// state, in its shape. Several have one tensor: the first plane of each, then the second of each.
#[derive(Debug)]
pub(super) struct ParameterGroup {
    members: Vec<Member>,
    state: SmallVec<[Tensor; 2]>,
    /// Elements of a plane of all members.
    plane: usize,
}

/// A parameter in a group.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Its number among all parameters.
    pub(super) number: usize,
    /// The first element of its state in a plane.
    pub(super) start: usize,
    shape: Vec<usize>,
}

impl ParameterGroup {
    /// Puts all parameters into groups. The state is 0.
    #[track_caller]
    pub(super) fn all(
        parameters: &[Tensor],
        formula: UpdateFormula,
        state_dtype: DType,
    ) -> Result<Vec<ParameterGroup>> {
        let Some(first) = parameters.first() else {
            return Ok(Vec::new());
        };
        let planes = formula.planes();
        let bytes = parameters.iter().map(|parameter| {
            let state_bytes = planes as u64 * state_dtype.size_bytes();
            parameter.len() as u64 * (2 * parameter.dtype.size_bytes() + state_bytes)
        });
        let bytes: Vec<u64> = bytes.collect();
        let shared = 1 + planes.min(1) as u64;
        let most = first.engine.here().most_windows().saturating_sub(shared) / 2;
        let mut groups = Vec::new();
        let most = MOST.min(most as usize);
        for numbers in together::groups(first.engine.caps(), &bytes, most) {
            groups.push(ParameterGroup::new(
                parameters,
                &numbers,
                planes,
                state_dtype,
            )?);
        }
        Ok(groups)
    }

    #[track_caller]
    fn new(
        parameters: &[Tensor],
        numbers: &[usize],
        planes: usize,
        state_dtype: DType,
    ) -> Result<ParameterGroup> {
        let (mut members, mut plane) = (Vec::new(), 0);
        for &number in numbers {
            let parameter = &parameters[number];
            members.push(Member {
                number,
                start: plane,
                shape: parameter.shape().to_vec(),
            });
            plane += parameter.len().next_multiple_of(UNIT);
        }
        let mut shapes: SmallVec<[Vec<usize>; 2]> = SmallVec::new();
        match (&members[..], planes) {
            (_, 0) => {}
            ([alone], _) => shapes.resize(planes, alone.shape.clone()),
            _ => shapes.push(vec![planes * plane]),
        }
        let engine = &parameters[numbers[0]].engine;
        let mut state = SmallVec::new();
        for shape in &shapes {
            let zeros = fill::full(engine, shape, 0.0.into(), state_dtype)?;
            state.push(zeros.named("optimizer state"));
        }
        Ok(ParameterGroup {
            members,
            state,
            plane,
        })
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn state(&self) -> &[Tensor] {
        &self.state
    }

    pub(super) fn plane(&self) -> usize {
        self.plane
    }

    /// A plane of a member's state, in the shape of the parameter.
    pub(super) fn state_of(&self, member: &Member, plane: usize) -> Tensor {
        if self.members.len() == 1 {
            return self.state[plane].clone();
        }
        let mut layout = Layout::contiguous(&member.shape);
        layout.offset = plane * self.plane + member.start;
        self.state[0].view(layout)
    }
}
