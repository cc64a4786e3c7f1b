//! The driver over wgpu: Vulkan, Metal, DX12 and, in a browser, WebGPU.
//!
//! Only this folder calls wgpu. It knows no tensors: it takes ids and returns ids.
//!
//! | file | what |
//! | --- | --- |
//! | `driver` | each call goes to the present device |
//! | `open` | finds an adapter, opens a device, adopts a device of the app |
//! | `opened` | one device and all that was created on it |
//! | `reopen` | replaces a lost device |
//! | `caps` | the abilities of a device, from its limits and features |
//! | `needed` | the limits that the engine needs; refuses a device by the name of a limit |
//! | `guard` | every call to wgpu runs in here: error scopes, panics, a lost device |
//! | `objects` | buffers, pipelines, bind groups |
//! | `tables` | the objects by id |
//! | `pipeline_cache`, `pipeline_file` | pipelines that an earlier process has compiled |
//! | `submit` | ops become commands, commands a submission |
//! | `timing` | the times of kernels, by the device's clock |
//! | `wait` | waits for submissions and mappings, and polls |
//! | `params` | parameters of kernels on devices without immediates |
//! | `mapping` | reads and writes of the CPU |
//! | `progress` | submissions in progress and done, and the loss of the device |
//!
//! This code depends on these properties of wgpu 30:
//! * Errors go to the innermost error scope of the calling thread, else to the app's handler, else
//!   they panic. So each of our calls runs inside scopes, and the app never gets our errors.
//! * An error because the device is lost goes nowhere: the call seems to succeed. So each call ends
//!   with the question whether the device still takes calls (`guard`).
//! * `Buffer::destroy` and `Surface::present` take a lock that a blocking `poll` holds. So buffers
//!   are dropped and not destroyed, and no call blocks on an app's device (`wait`).

mod caps;
mod cooperative;
mod driver;
mod dx12;
mod ending;
mod guard;
mod link;
mod mapping;
mod needed;
mod objects;
mod open;
mod opened;
mod params;
mod pipeline_cache;
mod pipeline_file;
mod progress;
mod reopen;
mod stamps;
mod submit;
mod tables;
mod timing;
mod wait;

#[cfg(test)]
mod tests;

pub(crate) use caps::wanted_features;
pub(crate) use driver::WgpuDriver;
pub use dx12::Dx12Compiler;
pub use open::AdapterSummary;
pub(crate) use open::OpenRequest;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use open::{all_indices, list};
