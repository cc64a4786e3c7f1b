//! For tests without a device: whole shaders, translated for every native API as wgpu does it.
//!
//! With `LAPIDARY_SHADER_DUMP=folder` each SPIR-V module is written there, for the reference
//! validator to read.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

use naga::back::{hlsl, msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, ShaderStage};

/// What drivers without robust access get, which is the longer text.
const CHECKED: BoundsCheckPolicies = BoundsCheckPolicies {
    index: BoundsCheckPolicy::Restrict,
    buffer: BoundsCheckPolicy::Restrict,
    image_load: BoundsCheckPolicy::Restrict,
    binding_array: BoundsCheckPolicy::Unchecked,
};

/// Parses and validates a shader whose entry point is `main`, and translates it to SPIR-V, MSL
/// and HLSL. Panics with what is wrong and where.
#[track_caller]
pub(crate) fn translate(name: &str, wgsl: &str) -> Module {
    if let Some(literal) = too_large(wgsl) {
        panic!("{name}: {literal} is more than an f32 holds, which browsers refuse\n{wgsl}");
    }
    let module = match naga::front::wgsl::parse_str(wgsl) {
        Ok(module) => module,
        Err(error) => panic!("{name}: {}", error.emit_to_string(wgsl)),
    };
    let uses_subgroups = wgsl.contains("subgroup");
    let cooperates = wgsl.contains("coop_mat");
    let mut capabilities = Capabilities::IMMEDIATES | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::SUBGROUP, uses_subgroups);
    capabilities.set(Capabilities::SHADER_INT64, wgsl.contains("u64"));
    capabilities.set(
        Capabilities::COOPERATIVE_MATRIX | Capabilities::SHADER_FLOAT16,
        cooperates,
    );
    let info = match Validator::new(ValidationFlags::all(), capabilities).validate(&module) {
        Ok(info) => info,
        Err(error) => panic!("{name}: {}", error.emit_to_string(wgsl)),
    };
    let spirv = to_spirv(&module, &info);
    let mut translations = vec![spirv.as_ref().map(drop).map_err(String::clone)];
    // Cooperative matrices are used on Vulkan alone.
    if !cooperates {
        translations.push(to_msl(&module, &info));
        translations.push(to_hlsl(&module, &info, uses_subgroups));
    }
    for translation in translations {
        if let Err(error) = translation {
            panic!("{name}: {error}\n{wgsl}");
        }
    }
    // Debian's validator is older than the matrices.
    let folder = std::env::var_os("LAPIDARY_SHADER_DUMP").filter(|_| !cooperates);
    if let (Ok(words), Some(folder)) = (spirv, folder) {
        dump(Path::new(&folder), name, &words);
    }
    module
}

/// A literal beyond the largest f32, which naga rounds to it.
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

fn to_spirv(module: &Module, info: &ModuleInfo) -> Result<Vec<u32>, String> {
    let options = spv::Options {
        // The oldest that has subgroups, and what SwiftShader gets.
        lang_version: (1, 3),
        bounds_check_policies: CHECKED,
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

fn to_hlsl(module: &Module, info: &ModuleInfo, uses_subgroups: bool) -> Result<(), String> {
    let options = hlsl::Options {
        // wgpu offers subgroups with the newer compiler only.
        shader_model: match uses_subgroups {
            true => hlsl::ShaderModel::V6_0,
            false => hlsl::ShaderModel::V5_1,
        },
        immediates_target: Some(hlsl::BindTarget::default()),
        ..Default::default()
    };
    let entry = hlsl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, "main".into())),
    };
    let mut text = String::new();
    let mut writer = hlsl::Writer::new(&mut text, &options, &entry);
    let written = writer.write(module, info, None);
    written.map(drop).map_err(|error| format!("hlsl: {error}"))
}

/// One file a module, however many tests come by it.
fn dump(folder: &Path, name: &str, words: &[u32]) {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    let file = folder.join(format!("{name}-{:016x}.spv", hasher.finish()));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    if let Err(error) = std::fs::write(&file, bytes) {
        panic!("{}: {error}", file.display());
    }
}
