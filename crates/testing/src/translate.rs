//! Translates shaders for every native API as wgpu does, in tests without a device.
//!
//! With `LAPIDARY_SHADER_DUMP=folder` it writes each SPIR-V module for the reference validator,
//! each HLSL text for Microsoft's compilers, and the WGSL. The last is compared with the texts that
//! the tests of races interpret.

mod direct3d;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

use naga::back::hlsl::ShaderModel;
use naga::back::{msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, ShaderStage};

/// The policies for drivers without robust access. They give the longer text.
const CHECKED: BoundsCheckPolicies = BoundsCheckPolicies {
    index: BoundsCheckPolicy::Restrict,
    buffer: BoundsCheckPolicy::Restrict,
    image_load: BoundsCheckPolicy::Restrict,
    binding_array: BoundsCheckPolicy::Unchecked,
};

/// Parses and validates a shader whose entry point is `main`, and translates it to SPIR-V, MSL and
/// HLSL. Panics with the error and its place.
#[track_caller]
pub fn translate(name: &str, wgsl: &str) -> Module {
    translate_for(name, wgsl, direct3d::model_of(wgsl))
}

/// As [`translate`], for a shader that the library never uses with FXC.
#[track_caller]
pub fn translate_beyond_fxc(name: &str, wgsl: &str) -> Module {
    translate_for(name, wgsl, ShaderModel::V6_0)
}

#[track_caller]
fn translate_for(name: &str, wgsl: &str, model: ShaderModel) -> Module {
    if let Some(literal) = too_large(wgsl) {
        panic!("{name}: {literal} is more than an f32 holds, which browsers refuse\n{wgsl}");
    }
    let module = match naga::front::wgsl::parse_str(wgsl) {
        Ok(module) => module,
        Err(error) => panic!("{name}: {}", error.emit_to_string(wgsl)),
    };
    let cooperates = wgsl.contains("coop_mat");
    let mut capabilities = Capabilities::IMMEDIATES | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::SUBGROUP, wgsl.contains("subgroup"));
    capabilities.set(Capabilities::SHADER_INT64, wgsl.contains("u64"));
    capabilities.set(
        Capabilities::COOPERATIVE_MATRIX | Capabilities::SHADER_FLOAT16,
        cooperates,
    );
    let info = match Validator::new(ValidationFlags::all(), capabilities).validate(&module) {
        Ok(info) => info,
        Err(error) => panic!("{name}: {}", error.emit_to_string(wgsl)),
    };
    // Only Vulkan has cooperative matrices, and Debian's validator does not know them yet.
    let translations = match cooperates {
        true => to_spirv(&module, &info).map(|_| Vec::new()),
        false => every_translation(&module, &info, model),
    };
    let files = translations.unwrap_or_else(|error| panic!("{name}: {error}\n{wgsl}"));
    if let Some(folder) = std::env::var_os("LAPIDARY_SHADER_DUMP") {
        let folder = Path::new(&folder);
        dump(folder, name, "wgsl", wgsl.as_bytes());
        for (extension, bytes) in files {
            dump(folder, name, extension, &bytes);
        }
    }
    module
}

/// A literal beyond the largest f32, which naga would round to it.
fn too_large(wgsl: &str) -> Option<&str> {
    let mut literals = wgsl.split(|c: char| !(c.is_ascii_alphanumeric() || "+.".contains(c)));
    literals.find(|literal| {
        let number = literal.trim_end_matches('f').parse::<f64>();
        literal.starts_with(|c: char| c.is_ascii_digit())
            && number.is_ok_and(|number| number > f64::from(f32::MAX))
    })
}

#[test]
fn a_literal_beyond_the_largest_f32_is_found() {
    assert_eq!(too_large("a = -3.40282347e+38f;"), Some("3.40282347e+38f"));
    assert_eq!(
        too_large("vec4(-3.4028234663852886e+38) + 0xffu + 1e9"),
        None
    );
}

/// Translates to every native API. Returns the file extension and bytes of each text for a
/// compiler.
fn every_translation(
    module: &Module,
    info: &ModuleInfo,
    model: ShaderModel,
) -> Result<Vec<(&'static str, Vec<u8>)>, String> {
    let spirv = to_spirv(module, info)?;
    to_msl(module, info)?;
    let hlsl = direct3d::to_hlsl(module, info, model)?;
    let words = spirv.iter().flat_map(|word| word.to_le_bytes());
    Ok(vec![
        ("spv", words.collect()),
        (direct3d::extension_of(model), hlsl.into_bytes()),
    ])
}

fn to_spirv(module: &Module, info: &ModuleInfo) -> Result<Vec<u32>, String> {
    let options = spv::Options {
        // The oldest version with subgroups, and the one for SwiftShader.
        lang_version: (1, 3),
        bounds_check_policies: CHECKED,
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        ..Default::default()
    };
    let entry = spv::PipelineOptions {
        shader_stage: ShaderStage::Compute,
        entry_point: "main".into(),
    };
    spv::write_vec(module, info, &options, Some(&entry)).map_err(|error| format!("spv: {error}"))
}

fn to_msl(module: &Module, info: &ModuleInfo) -> Result<(), String> {
    let options = msl::Options {
        lang_version: (2, 4),
        bounds_check_policies: CHECKED,
        ..Default::default()
    };
    let entry = msl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, "main".into())),
        ..Default::default()
    };
    let written = msl::write_string(module, info, &options, &entry);
    written.map(drop).map_err(|error| format!("msl: {error}"))
}

/// Writes each text once, even if several tests use it.
fn dump(folder: &Path, name: &str, extension: &str, bytes: &[u8]) {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    // A fused kernel's name is its expression, and Windows refuses some of its characters in file
    // names.
    let name: String = (name.chars())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    let file = folder.join(format!("{name}-{:016x}.{extension}", hasher.finish()));
    if let Err(error) = std::fs::write(&file, bytes) {
        panic!("{}: {error}", file.display());
    }
}
