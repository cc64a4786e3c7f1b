//! The calls and kinds of faults on the simulated device: all calls except opening another device.

use lapidary::sim::{FaultKind, Site};

pub(crate) const SITES: [Site; 14] = [
    Site::CreateBuffer,
    Site::DestroyBuffer,
    Site::CreatePipeline,
    Site::DestroyPipeline,
    Site::CreateBindGroup,
    Site::DestroyBindGroup,
    Site::Submit,
    Site::Poll,
    Site::Wait,
    Site::Map,
    Site::MapDone,
    Site::WriteMapped,
    Site::ReadMapped,
    Site::Unmap,
];

pub(crate) const KINDS: [FaultKind; 3] =
    [FaultKind::OutOfMemory, FaultKind::Invalid, FaultKind::Lost];
