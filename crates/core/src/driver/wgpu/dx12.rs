//! The compilers of kernels on DX12: which of them wgpu uses, and why it may be able to use none.

#![cfg_attr(
    windows,
    expect(
        unsafe_code,
        reason = "wgpu-hal starts a backend in an unsafe function, and only it says why that fails"
    )
)]

#[cfg(windows)]
use crate::error::Error;
use crate::error::Result;

/// The compiler of a DX12 device's kernels. Other backends ignore it.
///
/// DXC needs a GPU with shader model 6 (most since 2016) and a driver of 2016 or later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dx12Compiler {
    /// DXC if the feature `static-dxc` links it in. Otherwise DXC from `dxcompiler.dll`, if Windows
    /// finds that file (it looks beside the program first) and the GPU accepts its code. Otherwise
    /// FXC.
    #[default]
    Auto,
    /// FXC, from `d3dcompiler_47.dll`, which is part of Windows. It compiles slowly, and some
    /// kernels have a slower form for it. The forms for GPUs were measured on a software
    /// rasterizer. Large products take 1.9 times as long as with DXC, products of five to eight
    /// rows 1.2 times, and others the same time. No GPU was measured.
    Fxc,
    /// DXC from a DLL that the app ships.
    DynamicDxc {
        /// The path of `dxcompiler.dll`, version 1.8.2502 or newer.
        dxc_path: String,
    },
    /// DXC, linked into the program: it needs the feature `static-dxc`, and on Windows the target
    /// `x86_64-pc-windows-msvc`.
    StaticDxc,
}

impl Dx12Compiler {
    pub(super) fn of_wgpu(&self) -> wgpu::Dx12Compiler {
        match self.clone() {
            Dx12Compiler::Auto => wgpu::Dx12Compiler::Auto,
            Dx12Compiler::Fxc => wgpu::Dx12Compiler::Fxc,
            Dx12Compiler::DynamicDxc { dxc_path } => wgpu::Dx12Compiler::DynamicDxc { dxc_path },
            Dx12Compiler::StaticDxc => wgpu::Dx12Compiler::StaticDxc,
        }
    }
}

/// Whether wgpu has DXC linked in. On Windows wgpu panics if it does not and is asked for DXC.
#[cfg(windows)]
const HAS_STATIC_DXC: bool = cfg!(all(
    feature = "static-dxc",
    target_env = "msvc",
    not(target_arch = "aarch64")
));

/// Refuses a compiler with which wgpu panics.
///
/// # Errors
/// [`Error::Option`] if that compiler is wanted.
#[cfg(windows)]
pub(super) fn check(wanted: &wgpu::Dx12Compiler) -> Result<()> {
    match wanted {
        wgpu::Dx12Compiler::StaticDxc if !HAS_STATIC_DXC => Err(Error::option(
            "dx12_compiler",
            "DXC is not linked in: build with the feature `static-dxc` for \
                     x86_64-pc-windows-msvc, or ship dxcompiler.dll and name it",
        )),
        _ => Ok(()),
    }
}

/// Other systems have none of these compilers and ignore the choice.
#[cfg(not(windows))]
pub(super) fn check(_: &wgpu::Dx12Compiler) -> Result<()> {
    Ok(())
}

/// The compiler to try next, if wgpu found no DX12 adapter with the `wanted` compiler. The best
/// compiler may be a DLL that is too old, or too new for the GPU. Then FXC is left.
///
/// # Errors
/// [`Error::Option`] if only the compiler prevents a start, and the app or its user chose it.
#[cfg(windows)]
pub(super) fn instead_of(wanted: &wgpu::Dx12Compiler) -> Result<Option<wgpu::Dx12Compiler>> {
    match wanted {
        wgpu::Dx12Compiler::Auto => {
            if let Some(why) = failure(wanted) {
                log::warn!("DX12 is tried again with FXC. {why}. {WHAT_TO_SHIP}");
            }
            Ok(Some(wgpu::Dx12Compiler::Fxc))
        }
        wgpu::Dx12Compiler::Fxc => Ok(None),
        wgpu::Dx12Compiler::DynamicDxc { .. } | wgpu::Dx12Compiler::StaticDxc => {
            let is_to_blame = failure(&wgpu::Dx12Compiler::Fxc).is_none();
            match failure(wanted).filter(|_| is_to_blame) {
                Some(why) => Err(Error::option(
                    "dx12_compiler",
                    format!("{why}. {WHAT_TO_SHIP}"),
                )),
                None => Ok(None),
            }
        }
    }
}

/// Other systems have none of these compilers.
#[cfg(not(windows))]
pub(super) fn instead_of(_: &wgpu::Dx12Compiler) -> Result<Option<wgpu::Dx12Compiler>> {
    Ok(None)
}

#[cfg(windows)]
const WHAT_TO_SHIP: &str = "Ship Microsoft's dxcompiler.dll, version 1.8.2502 or newer, beside \
                            the program, or build with the feature `static-dxc`, or choose FXC";

/// The error that keeps wgpu from starting DX12 with this compiler, in wgpu's words.
#[cfg(windows)]
fn failure(compiler: &wgpu::Dx12Compiler) -> Option<String> {
    use std::error::Error as _;
    use wgpu::hal::{Api, Instance as _, InstanceDescriptor, api::Dx12};

    let mut backend_options = wgpu::BackendOptions::from_env_or_default();
    backend_options.dx12.shader_compiler = compiler.clone();
    let desc = InstanceDescriptor {
        name: "lapidary",
        flags: wgpu::InstanceFlags::from_env_or_default(),
        memory_budget_thresholds: wgpu::MemoryBudgetThresholds::default(),
        backend_options,
        telemetry: None,
        display: None,
    };
    // SAFETY: wgpu calls the function as well, with the same descriptor and no other condition,
    // whenever it creates an instance. The result is dropped here before it is used.
    let error = unsafe { <Dx12 as Api>::Instance::init(&desc) }.err()?;
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    Some(text)
}
