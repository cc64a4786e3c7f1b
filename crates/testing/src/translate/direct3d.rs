//! HLSL as wgpu's DX12 backend writes it. The options are those of `wgpu-hal`.

use naga::back::hlsl::{self, BindTarget, ShaderModel};
use naga::valid::ModuleInfo;
use naga::{AddressSpace, Module, ShaderStage, StorageAccess};

/// The oldest shader model with the features of a text. FXC, Microsoft's older compiler, knows only
/// 5.1. So a device that compiles with it has neither subgroups nor 64-bit integers.
pub(super) fn model_of(wgsl: &str) -> ShaderModel {
    let is_newer = ["subgroup", "u64", "enable f16"]
        .iter()
        .any(|word| lines_of(wgsl).any(|line| line.contains(word)));
    match is_newer {
        true => ShaderModel::V6_0,
        false => ShaderModel::V5_1,
    }
}

/// The lines without comments.
fn lines_of(wgsl: &str) -> impl Iterator<Item = &str> {
    wgsl.lines().filter_map(|line| line.split("//").next())
}

/// The extension of a dumped text. It names the compiler for the text.
pub(super) fn extension_of(model: ShaderModel) -> &'static str {
    match model {
        ShaderModel::V5_1 => "sm5.hlsl",
        _ => "sm6.hlsl",
    }
}

pub(super) fn to_hlsl(
    module: &Module,
    info: &ModuleInfo,
    model: ShaderModel,
) -> Result<String, String> {
    let options = options_of(module, model);
    let entry = hlsl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, "main".into())),
    };
    let mut text = String::new();
    let mut writer = hlsl::Writer::new(&mut text, &options, &entry);
    let written = writer.write(module, info, None);
    let reflection = written.map_err(|error| format!("hlsl: {error}"))?;
    match &reflection.entry_point_names[..] {
        [Ok(name)] if name == "main" => Ok(text),
        names => Err(format!("hlsl: the entry points are {names:?}")),
    }
}

/// Registers are numbered as in `create_pipeline_layout`: immediates first, then the bindings of
/// the only group, then the special constants.
fn options_of(module: &Module, model: ShaderModel) -> hlsl::Options {
    let mut options = hlsl::Options {
        shader_model: model,
        fake_missing_bindings: false,
        zero_initialize_workgroup_memory: false,
        ..Default::default()
    };
    let [mut constants, mut read, mut written] = [BindTarget::default(); 3];
    let globals = || module.global_variables.iter().map(|(_, global)| global);
    if globals().any(|global| global.space == AddressSpace::Immediate) {
        options.immediates_target = Some(constants);
        constants.register += 1;
        constants.space += 1;
    }
    let mut bound: Vec<_> = globals()
        .filter_map(|global| Some((global.binding?, global.space)))
        .collect();
    bound.sort_by_key(|(binding, _)| *binding);
    for (binding, space) in bound {
        let (next, restrict_indexing) = match space {
            // Parameters with a dynamic offset.
            AddressSpace::Uniform => (&mut constants, true),
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
                (&mut written, false)
            }
            _ => (&mut read, false),
        };
        let target = BindTarget {
            restrict_indexing,
            ..*next
        };
        options.binding_map.insert(binding, target);
        next.register += 1;
    }
    options.special_constants_binding = Some(constants);
    options
}

#[test]
fn the_options_of_direct3d_are_those_of_wgpu() {
    let wgsl = "
        struct Params { w0: vec4<u32> }
        var<immediate> p: Params;
        @group(0) @binding(0) var<storage> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(1)
        fn main(@builtin(workgroup_id) at: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
          for (var i = 0u; i < groups.x; i++) { y[i] = x[at.x + p.w0.x]; }
        }";
    let module = super::translate("options", wgsl);
    let flags = naga::valid::ValidationFlags::all();
    let capabilities = naga::valid::Capabilities::IMMEDIATES;
    let info = naga::valid::Validator::new(flags, capabilities)
        .validate(&module)
        .expect("valid");
    let text = to_hlsl(&module, &info, model_of(wgsl)).expect("HLSL");
    for part in [
        "ConstantBuffer<Params> p: register(b0);",
        "ByteAddressBuffer x : register(t0);",
        "RWByteAddressBuffer y : register(u0);",
        "register(b1, space1)",
        "loop_bound",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
