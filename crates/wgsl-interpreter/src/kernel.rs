//! A kernel that is ready to be interpreted.

use std::sync::Arc;

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, ShaderStage};

use crate::code::Code;
use crate::compile::compile;
use crate::error::Error;

/// The most registers of all invocations of a workgroup.
const MOST_REGISTERS: u64 = 1 << 24;

/// A kernel that is ready to be interpreted. It may run any number of dispatches.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) code: Arc<Code>,
    /// The lines in messages are those of this text.
    pub(crate) text: Arc<str>,
}

impl Kernel {
    /// Parses a text, validates it with all of naga's capabilities, and compiles one of its
    /// compute entry points.
    ///
    /// naga handles each term of a long sum by a call within a call. So a text from a stranger,
    /// with thousands of terms, may end the process: limit it first, or give this thread a large
    /// stack.
    ///
    /// # Errors
    /// If the text is not valid, has no such entry point, or has a construct that the interpreter
    /// does not support.
    pub fn from_wgsl(wgsl: &str, entry_point: &str) -> Result<Kernel, Error> {
        let invalid = |message| Error::Invalid { message };
        let module = naga::front::wgsl::parse_str(wgsl)
            .map_err(|error| invalid(error.emit_to_string(wgsl)))?;
        let info = Validator::new(ValidationFlags::all(), Capabilities::all())
            .validate(&module)
            .map_err(|error| invalid(error.emit_to_string(wgsl)))?;
        Kernel::from_module(&module, &info, entry_point, wgsl)
    }

    /// Compiles a compute entry point of a valid module, which was parsed from `text`.
    ///
    /// # Errors
    /// If there is no such entry point, or the interpreter does not support a construct.
    pub fn from_module(
        module: &Module,
        info: &ModuleInfo,
        entry_point: &str,
        text: &str,
    ) -> Result<Kernel, Error> {
        let mut points = module.entry_points.iter();
        let index = points
            .position(|point| point.name == entry_point && point.stage == ShaderStage::Compute)
            .ok_or_else(|| Error::NoEntryPoint {
                name: entry_point.to_owned(),
            })?;
        let code = compile(module, info, index)?;
        let registers = code.registers.max(code.control);
        let size: u64 = code.workgroup_size.into_iter().map(u64::from).product();
        if size.saturating_mul(registers.max(1).into()) > MOST_REGISTERS {
            return Err(Error::Unsupported {
                place: 0..0,
                message: format!(
                    "{size} invocations with {registers} values each are too many to be \
                     interpreted"
                ),
            });
        }
        Ok(Kernel {
            code: Arc::new(code),
            text: text.into(),
        })
    }
}
