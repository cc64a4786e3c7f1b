//! Parses a kernel's WGSL and compares it with the kernel's description, as wgpu would.

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, StorageAccess};

use super::SimOptions;
use crate::driver::{BindingAccess, PipelineDesc};

/// A shader that is valid on the device.
pub(super) struct Valid {
    pub(super) module: naga::Module,
    pub(super) info: ModuleInfo,
    /// The index of the entry point.
    pub(super) entry: usize,
}

/// Parses and validates the shader of a description, as the device would. An error gives the
/// reason.
pub(super) fn parse(desc: &PipelineDesc, options: &SimOptions) -> Result<Valid, String> {
    let module = naga::front::wgsl::parse_str(&desc.wgsl)
        .map_err(|error| error.emit_to_string(&desc.wgsl))?;
    // The capabilities of every device. More would hide that a kernel does not run everywhere.
    let mut capabilities =
        Capabilities::IMMEDIATES | Capabilities::SHADER_FLOAT16_IN_FLOAT32 | Capabilities::SUBGROUP;
    capabilities.set(Capabilities::SHADER_INT64, options.wide_words);
    let cooperates = Capabilities::COOPERATIVE_MATRIX | Capabilities::SHADER_FLOAT16;
    capabilities.set(cooperates, options.cooperative_size.is_some());
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    let info = validator.validate(&module);
    let info = info.map_err(|error| error.emit_to_string(&desc.wgsl))?;
    let mut points = module.entry_points.iter();
    let entry = points
        .position(|point| point.name == desc.entry && point.stage == naga::ShaderStage::Compute)
        .ok_or_else(|| format!("there is no compute entry point `{}`", desc.entry))?;
    Ok(Valid {
        module,
        info,
        entry,
    })
}

/// Checks that the shader is valid and has the bindings of the description, if the options say so.
pub(super) fn check(desc: &PipelineDesc, options: &SimOptions) -> Result<(), String> {
    if !options.checks_shaders {
        return Ok(());
    }
    let immediates = options.max_immediate_bytes > 0;
    let label = &desc.label;
    let refuse = |why: &str| Err(format!("kernel `{label}`: {why}"));
    let valid = parse(desc, options).map_err(|why| format!("kernel `{label}`: {why}"))?;
    let Valid {
        module,
        info,
        entry,
    } = valid;
    let uses = info.get_entry_point(entry);
    let size = module.entry_points[entry].workgroup_size;
    let invocations: u32 = size.iter().product();
    if invocations > options.max_invocations {
        let most = options.max_invocations;
        return refuse(&format!(
            "{invocations} invocations in a workgroup: at most {most}"
        ));
    }
    let mut shared_bytes = 0;
    for (handle, variable) in module.global_variables.iter() {
        if uses[handle].is_empty() {
            continue;
        }
        if variable.space == AddressSpace::WorkGroup {
            let size = module.types[variable.ty].inner.size(module.to_ctx());
            shared_bytes += size.next_multiple_of(16);
        }
        let name = variable.name.as_deref().unwrap_or("_");
        let place = variable.binding.as_ref().map(|at| (at.group, at.binding));
        let expected = match (variable.space, place) {
            (AddressSpace::Storage { access }, Some((0, index))) => {
                let access = match access.contains(StorageAccess::STORE) {
                    true => BindingAccess::ReadWrite,
                    false => BindingAccess::Read,
                };
                desc.bindings.get(index as usize) == Some(&access)
            }
            (AddressSpace::Uniform, Some((0, index))) => {
                !immediates
                    && index as usize == desc.bindings.len()
                    && fits(&module, variable, desc)
            }
            (AddressSpace::Immediate, None) => immediates && fits(&module, variable, desc),
            (_, None) => true,
            _ => false,
        };
        if !expected {
            let (space, bindings) = (variable.space, &desc.bindings);
            let bytes = desc.params_bytes;
            return refuse(&format!(
                "`{name}` ({space:?}, group and binding {place:?}) is not among the bindings \
                 {bindings:?} with {bytes} B of parameters"
            ));
        }
    }
    let most = options.max_workgroup_bytes;
    match shared_bytes > most {
        true => refuse(&format!(
            "{shared_bytes} B of workgroup memory: at most {most}"
        )),
        false => Ok(()),
    }
}

/// Whether the parameters that the shader reads fit into those that it is given. WGSL pads a struct
/// to its alignment, which is at most that of a `vec4`.
fn fits(module: &naga::Module, variable: &naga::GlobalVariable, desc: &PipelineDesc) -> bool {
    let size = module.types[variable.ty].inner.size(module.to_ctx());
    size <= desc.params_bytes.next_multiple_of(16)
}
