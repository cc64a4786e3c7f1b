//! The compilers of DX12: which one is used, and the errors of one that cannot be used.

use lapidary::{
    Gpu, Options, Result,
    adapter::{Dx12Compiler, ShaderCompiler},
};

#[cfg(windows)]
use lapidary::Error;

use super::gpu;

fn open(compiler: Dx12Compiler) -> Result<Gpu> {
    Gpu::open(Options {
        dx12_compiler: Some(compiler),
        ..Options::from_env().unwrap()
    })
}

/// The result of opening a device with this path of a DLL.
#[cfg(windows)]
fn complaint(dxc_path: &str) -> String {
    let dxc_path = dxc_path.to_owned();
    match open(Dx12Compiler::DynamicDxc { dxc_path }) {
        Err(error @ Error::Option { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_compiler_is_known() -> Result<()> {
    let caps = gpu().caps().clone();
    assert_eq!(
        caps.compiler == ShaderCompiler::Driver,
        caps.backend != "dx12"
    );
    if caps.backend == "dx12" {
        let caps = open(Dx12Compiler::Fxc)?.caps().clone();
        assert_eq!(caps.compiler, ShaderCompiler::Fxc);
        assert_eq!(caps.subgroup_lanes, None);
    }
    Ok(())
}

#[test]
#[cfg(not(windows))]
fn other_systems_ignore_compilers_of_dx12() -> Result<()> {
    let name = gpu().caps().name.clone();
    let dxc_path = "no/such.dll".to_owned();
    for compiler in [
        Dx12Compiler::Fxc,
        Dx12Compiler::StaticDxc,
        Dx12Compiler::DynamicDxc { dxc_path },
    ] {
        assert_eq!(open(compiler)?.caps().name, name);
    }
    Ok(())
}

#[test]
#[cfg(windows)]
fn a_dll_that_is_missing_or_no_new_dxc_is_refused_with_what_to_ship() {
    // The second file exists and has none of DXC's functions.
    for dll in ["no-such-folder/dxcompiler.dll", "kernel32.dll"] {
        let text = complaint(dll);
        for part in [
            "`dx12_compiler`",
            "Failed to load dynamic DXC",
            "Ship Microsoft's",
        ] {
            assert!(text.contains(part), "{dll}: {text}");
        }
    }
}

#[test]
#[cfg(all(windows, not(feature = "static-dxc")))]
fn a_compiler_that_is_not_linked_in_is_refused_with_the_features_name() {
    match open(Dx12Compiler::StaticDxc) {
        Err(Error::Option { option, reason }) => {
            assert_eq!(option, "dx12_compiler");
            assert!(reason.contains("static-dxc"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}
