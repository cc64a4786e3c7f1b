//! Reflects and checks a user's WGSL.
//!
//! naga parses and validates the text as wgpu does later. So an error comes from `Kernel::new`, not
//! from the device. Only declarations that the entry point uses count.

use std::ops::Range;

use naga::proc::Layouter;
use naga::valid::{Capabilities, GlobalUse, ModuleInfo, ValidationFlags, Validator};
use naga::{
    AddressSpace, ArraySize, Expression, GlobalVariable, Handle, Module, ScalarKind, ShaderStage,
    StorageAccess, Type, TypeInner,
};

use super::nesting::{self, Declaration};
use super::tokens::{self, MOST_TEXT_BYTES, Token};
use super::{diagnose, effort};
use crate::driver::Caps;
use crate::dtype::DType;
use crate::engine::kernel::{MAX_OPERANDS, MAX_PARAMS_BYTES};
use crate::error::Result;
use crate::excerpt::is_line_break;
use crate::printable::printable;

/// The kernel's name in errors before its entry point is known.
const UNKNOWN: &str = "?";

/// A kernel's text and its declarations.
#[derive(Debug)]
pub(super) struct Reflection {
    pub(super) text: String,
    /// The name of the entry point.
    pub(super) entry: String,
    /// The storage bindings, in the order of their declarations.
    pub(super) operands: Vec<StorageBinding>,
    /// The uniform, if there is one.
    pub(super) params: Option<Params>,
    /// The bindings of other entry points: the range of attributes, `var` and template list, and
    /// the text between `var` and the name.
    pub(super) others: Vec<(Range<usize>, &'static str)>,
    /// The places of `arrayLength(&name)`, with the binding's number. `None` if the text asks for a
    /// length in another form.
    pub(super) lengths: Option<Vec<(usize, Range<usize>)>>,
    /// The places of `enable subgroups;`, which naga does not accept.
    pub(super) enables: Vec<Range<usize>>,
}

/// A storage binding.
#[derive(Debug)]
pub(super) struct StorageBinding {
    pub(super) name: String,
    pub(super) at: Declaration,
    /// Declared `read_write`.
    pub(super) writes: bool,
    /// The element types of the tensors that it takes.
    pub(super) dtypes: Vec<DType>,
    /// The kernel reads its old value.
    pub(super) reads: bool,
    /// Bytes of an element of the runtime-sized array at its end, if there is one.
    pub(super) stride_bytes: Option<u64>,
    /// Least size of an operand: the whole type, with one element of a runtime-sized array.
    pub(super) least_bytes: u64,
}

/// The parameters.
#[derive(Debug)]
pub(super) struct Params {
    pub(super) name: String,
    pub(super) at: Declaration,
    /// With the padding up to the type's alignment, which a vector of three lacks.
    pub(super) size_bytes: u64,
    /// The size without padding at the end.
    pub(super) least_bytes: u64,
    /// The places where the text reads the uniform, if its type is not a struct. DX12 takes no such
    /// immediates, so the engine wraps the value in a struct. `None` if the type is a struct.
    pub(super) uses: Option<Vec<Range<usize>>>,
}

impl Reflection {
    /// The index of the storage binding of this name.
    pub(super) fn operand(&self, name: &str) -> Option<usize> {
        let mut operands = self.operands.iter();
        operands.position(|operand| operand.name == name)
    }

    /// Parses, validates and reflects a text.
    pub(super) fn new(text: &str, entry: Option<&str>, caps: &Caps) -> Result<Reflection> {
        let known = entry.unwrap_or(UNKNOWN);
        if text.len() > MOST_TEXT_BYTES {
            let bytes = text.len();
            let message =
                format!("the text has {bytes} bytes, at most {MOST_TEXT_BYTES} are allowed");
            return Err(diagnose::error(known, message));
        }
        let tokens = tokens::tokens(text);
        nesting::check_depth(text, &tokens)
            .map_err(|(place, reason)| diagnose::error_at(known, text, place, "", reason))?;
        let enables = enables(text, &tokens);
        let plain = blank(text, &enables);
        let (module, info) = check(known, &plain, capabilities(caps), "")?;
        let reader = Reader::new(text, &tokens, &module, &info, known, entry)?;
        reader.check_entry(caps)?;
        let (operands, params) = reader.globals()?;
        reader.check_count(&operands, caps)?;
        let entry = reader.entry.to_owned();
        let lengths = tokens::lengths(text, &tokens, |name| {
            operands.iter().position(|operand| operand.name == name)
        });
        Ok(Reflection {
            text: plain,
            entry,
            operands,
            params,
            others: reader.others(),
            lengths,
            enables,
        })
    }
}

/// Parses and validates.
pub(super) fn check(
    kernel: &str,
    text: &str,
    capabilities: Capabilities,
    preface: &str,
) -> Result<(Module, ModuleInfo)> {
    let module = naga::front::wgsl::parse_str(text).map_err(|error| {
        let mut message = format!("{preface}{}", error.message());
        for note in error.notes() {
            message.push_str(&format!("; {note}"));
        }
        let (span, label) = error.labels().next().unzip();
        let place = span.and_then(|span| span.to_range());
        diagnose::error_at(kernel, text, place, label.unwrap_or_default(), message)
    })?;
    effort::check(&module)
        .map_err(|(place, reason)| diagnose::error_at(kernel, text, place, "", reason))?;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    match validator.validate(&module) {
        Ok(info) => Ok((module, info)),
        Err(error) => {
            let mut message = format!("{preface}{}", error.as_inner());
            let mut source = std::error::Error::source(error.as_inner());
            while let Some(cause) = source {
                message.push_str(&format!(": {cause}"));
                source = cause.source();
            }
            // The last span is the innermost.
            let place = error.spans().filter_map(|(span, _)| span.to_range()).last();
            Err(diagnose::error_at(kernel, text, place, "", message))
        }
    }
}

/// The features that a kernel may use: those that every device is opened with, and subgroups where
/// the device has them. Immediates are allowed only for the rewritten uniform.
pub(super) fn capabilities(caps: &Caps) -> Capabilities {
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32 | Capabilities::IMMEDIATES;
    if caps.subgroup_lanes.is_some() {
        capabilities |= Capabilities::SUBGROUP;
    }
    capabilities
}

/// The places of `enable subgroups;`: browsers need it, naga refuses it.
fn enables(text: &str, tokens: &[Token]) -> Vec<Range<usize>> {
    let statements = tokens.windows(3).filter(|three| {
        three[0].is_word(text, "enable") && three[1].is_word(text, "subgroups") && three[2].is(b';')
    });
    statements
        .map(|three| three[0].range().start..three[2].range().end)
        .collect()
}

/// Replaces ranges by spaces, so that all offsets stay the same.
fn blank(text: &str, ranges: &[Range<usize>]) -> String {
    let mut blanked = text.as_bytes().to_vec();
    for range in ranges {
        for (at, c) in text[range.clone()].char_indices() {
            if !is_line_break(c) {
                blanked[range.start + at..][..c.len_utf8()].fill(b' ');
            }
        }
    }
    String::from_utf8_lossy(&blanked).into_owned()
}

/// Reads the declarations of a valid module.
struct Reader<'a> {
    text: &'a str,
    tokens: &'a [Token],
    module: &'a Module,
    info: &'a ModuleInfo,
    /// The entry point's number and name.
    index: usize,
    entry: &'a str,
    layouter: Layouter,
}

impl<'a> Reader<'a> {
    fn new(
        text: &'a str,
        tokens: &'a [Token],
        module: &'a Module,
        info: &'a ModuleInfo,
        known: &'a str,
        wanted: Option<&str>,
    ) -> Result<Reader<'a>> {
        let points = module.entry_points.iter().enumerate();
        let compute = points.filter(|(_, point)| point.stage == ShaderStage::Compute);
        let found: Vec<_> = compute
            .filter(|(_, point)| wanted.is_none_or(|wanted| point.name == wanted))
            .collect();
        let names = || {
            let names = module.entry_points.iter();
            let names: Vec<_> = names.map(|point| format!("`{}`", point.name)).collect();
            names.join(", ")
        };
        let refuse = |message: String| Err(diagnose::error(known, message));
        let (index, point) = match (&found[..], wanted) {
            ([one], _) => *one,
            ([], Some(wanted)) => {
                let there_are = match module.entry_points.is_empty() {
                    true => "there is none".to_owned(),
                    false => format!("there are {}", names()),
                };
                let wanted = printable(wanted, 100);
                return refuse(format!("no @compute entry point `{wanted}`: {there_are}"));
            }
            ([], None) => {
                return refuse(
                    "no entry point: mark a function with `@compute @workgroup_size(64)`".into(),
                );
            }
            _ => {
                return refuse(format!(
                    "several entry points, {}: name one by `Kernel::with_entry`",
                    names()
                ));
            }
        };
        let mut layouter = Layouter::default();
        if let Err(error) = layouter.update(module.to_ctx()) {
            return refuse(error.to_string());
        }
        Ok(Reader {
            text,
            tokens,
            module,
            info,
            index,
            entry: &point.name,
            layouter,
        })
    }

    fn refuse<T>(&self, place: Range<usize>, label: &str, message: String) -> Result<T> {
        Err(diagnose::error_at(
            self.entry, self.text, place, label, message,
        ))
    }

    /// The variables that the entry point uses.
    fn used(&self) -> impl Iterator<Item = (Handle<GlobalVariable>, &'a GlobalVariable)> {
        let uses = self.info.get_entry_point(self.index);
        let globals = self.module.global_variables.iter();
        globals.filter(move |(handle, _)| !uses[*handle].is_empty())
    }

    fn size_bytes(&self, ty: Handle<Type>) -> u64 {
        self.layouter[ty].size.into()
    }

    /// Refuses override constants, and a workgroup too large for the device.
    fn check_entry(&self, caps: &Caps) -> Result<()> {
        if let Some((handle, constant)) = self.module.overrides.iter().next() {
            let place = self.module.overrides.get_span(handle).to_range();
            let name = constant.name.as_deref().unwrap_or_default();
            let message = format!("override constants are not supported: make `{name}` a `const`");
            return self.refuse(place.unwrap_or_default(), "", message);
        }
        let size = self.module.entry_points[self.index].workgroup_size;
        let invocations = size.iter().map(|&size| u64::from(size)).product::<u64>();
        let place = self.tokens.iter().position(|token| {
            token.is_word(self.text, "workgroup_size") && self.belongs_to_entry(token)
        });
        let place = place.map_or(0..0, |index| self.tokens[index].range());
        if invocations > caps.max_invocations.into() {
            let message = format!(
                "a workgroup of {size:?} has {invocations} invocations, this device takes {}",
                caps.max_invocations
            );
            return self.refuse(place, "", message);
        }
        let shared = self
            .used()
            .filter(|(_, variable)| matches!(variable.space, AddressSpace::WorkGroup));
        let shared: u64 = shared
            .map(|(_, variable)| self.size_bytes(variable.ty).next_multiple_of(16))
            .sum();
        if shared > caps.max_workgroup_bytes.into() {
            let most = caps.max_workgroup_bytes;
            let message = format!("{shared} bytes of workgroup variables, this device has {most}");
            return self.refuse(place, "", message);
        }
        Ok(())
    }

    /// Is this the last token with its spelling before the entry point's name?
    fn belongs_to_entry(&self, token: &Token) -> bool {
        let after = self
            .tokens
            .partition_point(|other| other.range().start <= token.range().start);
        let function =
            (self.tokens[after..].windows(2)).find(|two| two[0].is_word(self.text, "fn"));
        function.is_some_and(|two| two[1].is_word(self.text, self.entry))
    }

    /// The bindings that the entry point does not use. A call does not bind them.
    fn others(&self) -> Vec<(Range<usize>, &'static str)> {
        let uses = self.info.get_entry_point(self.index);
        let globals = self.module.global_variables.iter();
        let unused = globals
            .filter(|(handle, variable)| variable.binding.is_some() && uses[*handle].is_empty());
        let heads = unused.filter_map(|(handle, variable)| {
            let span = self.module.global_variables.get_span(handle).to_range()?;
            let of = match variable.space {
                AddressSpace::Uniform => "<uniform>",
                AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
                    "<storage, read_write>"
                }
                AddressSpace::Storage { .. } => "<storage, read>",
                AddressSpace::Handle => "",
                _ => return None,
            };
            Some((nesting::declaration(self.tokens, span.start)?.head, of))
        });
        heads.collect()
    }

    fn globals(&self) -> Result<(Vec<StorageBinding>, Option<Params>)> {
        let scalars = scalars(self.module);
        let (mut operands, mut params) = (Vec::new(), None);
        for (handle, variable) in self.used() {
            let span = self.module.global_variables.get_span(handle).to_range();
            let span = span.unwrap_or_default();
            let name = variable.name.clone().unwrap_or_default();
            let Some(at) = nesting::declaration(self.tokens, span.start) else {
                let message = format!("the declaration of `{name}` is not understood");
                return self.refuse(span, "", message);
            };
            match variable.space {
                AddressSpace::Private | AddressSpace::WorkGroup => continue,
                AddressSpace::Storage { .. } | AddressSpace::Uniform => {}
                _ => {
                    let message = format!(
                        "`{name}` is neither a storage buffer nor a uniform: textures, samplers \
                         and immediates cannot be bound"
                    );
                    return self.refuse(at.name, "", message);
                }
            }
            if let Some(place) = variable.binding.as_ref().filter(|place| place.group != 0) {
                let message = format!("`{name}` is in group {}: use group 0", place.group);
                return self.refuse(at.name, "", message);
            }
            if let AddressSpace::Storage { access } = variable.space {
                let reads = self.info.get_entry_point(self.index)[handle].contains(GlobalUse::READ);
                let operand = self.operand(name, at, variable, access, &scalars)?;
                operands.push(StorageBinding { reads, ..operand });
            } else if params.is_some() {
                let message = "a kernel has one uniform: put all parameters into one struct";
                return self.refuse(at.name, "the second", message.into());
            } else {
                params = Some(self.params(name, at, handle)?);
            }
        }
        Ok((operands, params))
    }

    fn operand(
        &self,
        name: String,
        at: Declaration,
        variable: &GlobalVariable,
        access: StorageAccess,
        scalars: &[u8],
    ) -> Result<StorageBinding> {
        let dtypes = dtypes(scalars[variable.ty.index()]);
        let is_array_of_bindings = matches!(
            self.module.types[variable.ty].inner,
            TypeInner::BindingArray { .. }
        );
        if dtypes.is_empty() || is_array_of_bindings {
            let ty = &self.text[at.ty.clone()];
            let message = format!("`{name}` is a `{ty}`: no element type matches it");
            return self.refuse(at.name, "", message);
        }
        Ok(StorageBinding {
            name,
            at,
            writes: access.contains(StorageAccess::STORE),
            reads: true,
            stride_bytes: self.stride_bytes(variable.ty),
            dtypes,
            least_bytes: self.size_bytes(variable.ty).next_multiple_of(4),
        })
    }

    /// Bytes of an element of the runtime-sized array at the end of a type.
    fn stride_bytes(&self, ty: Handle<Type>) -> Option<u64> {
        match &self.module.types[ty].inner {
            TypeInner::Array {
                size: ArraySize::Dynamic,
                stride,
                ..
            } => Some((*stride).into()),
            TypeInner::Struct { members, .. } => self.stride_bytes(members.last()?.ty),
            _ => None,
        }
    }

    fn params(
        &self,
        name: String,
        at: Declaration,
        handle: Handle<GlobalVariable>,
    ) -> Result<Params> {
        let variable = &self.module.global_variables[handle];
        let size_bytes = self.size_bytes(variable.ty);
        if size_bytes > MAX_PARAMS_BYTES as u64 {
            let message = format!(
                "`{name}` takes {size_bytes} bytes, a uniform holds {MAX_PARAMS_BYTES}: bind a \
                 storage buffer instead"
            );
            return self.refuse(at.name, "", message);
        }
        let alignment = self.layouter[variable.ty].alignment;
        Ok(Params {
            name,
            at,
            size_bytes: size_bytes.next_multiple_of(alignment.round_up(1).into()),
            least_bytes: self.unpadded_bytes(variable.ty),
            uses: match &self.module.types[variable.ty].inner {
                TypeInner::Struct { .. } => None,
                _ => Some(self.uses(handle)),
            },
        })
    }

    /// The size of a type without the padding at its end.
    fn unpadded_bytes(&self, ty: Handle<Type>) -> u64 {
        match &self.module.types[ty].inner {
            TypeInner::Struct { members, .. } => members.last().map_or(0, |last| {
                u64::from(last.offset) + self.unpadded_bytes(last.ty)
            }),
            _ => self.size_bytes(ty),
        }
    }

    /// The places where functions name a variable. Uses of a local variable with the same name are
    /// left out.
    fn uses(&self, wanted: Handle<GlobalVariable>) -> Vec<Range<usize>> {
        let functions = self.module.functions.iter().map(|(_, function)| function);
        let entries = self.module.entry_points.iter().map(|point| &point.function);
        let mut uses: Vec<_> = functions
            .chain(entries)
            .flat_map(|function| {
                let named = function.expressions.iter().filter(
                    |(_, expression)| matches!(expression, Expression::GlobalVariable(global) if *global == wanted),
                );
                named.filter_map(|(handle, _)| function.expressions.get_span(handle).to_range())
            })
            .collect();
        uses.sort_by_key(|range| range.start);
        uses.dedup();
        uses
    }

    fn check_count(&self, operands: &[StorageBinding], caps: &Caps) -> Result<()> {
        // One fewer than the limit, because some drivers miscount.
        let most = (caps.max_storage_bindings.saturating_sub(1) as usize).min(MAX_OPERANDS);
        if let Some(operand) = operands.get(most) {
            let message = format!(
                "{} storage bindings, a kernel on this device has at most {most}",
                operands.len()
            );
            return self.refuse(operand.at.name.clone(), "one too many", message);
        }
        if !operands.iter().any(|operand| operand.writes) {
            let message = "it writes nothing: declare a `var<storage, read_write>` and write to it";
            return Err(diagnose::error(self.entry, message));
        }
        Ok(())
    }
}

const FLOAT: u8 = 1;
const SINT: u8 = 2;
const UINT: u8 = 4;
/// A bit for all scalars that no element type has.
const OTHER: u8 = 8;

/// The scalars that each type of a module consists of. naga lists a type after its parts.
fn scalars(module: &Module) -> Vec<u8> {
    let mut found: Vec<u8> = Vec::with_capacity(module.types.len());
    for (_, ty) in module.types.iter() {
        let of = |ty: &Handle<Type>| found.get(ty.index()).copied().unwrap_or(OTHER);
        let scalars = match &ty.inner {
            TypeInner::Scalar(scalar)
            | TypeInner::Vector { scalar, .. }
            | TypeInner::Matrix { scalar, .. }
            | TypeInner::Atomic(scalar) => match (scalar.kind, scalar.width) {
                (ScalarKind::Float, 4) => FLOAT,
                (ScalarKind::Sint, 4) => SINT,
                (ScalarKind::Uint, 4) => UINT,
                _ => OTHER,
            },
            TypeInner::Array { base, .. } => of(base),
            TypeInner::Struct { members, .. } => {
                members.iter().fold(0, |all, member| all | of(&member.ty))
            }
            _ => OTHER,
        };
        found.push(scalars);
    }
    found
}

/// The element types that a binding of these scalars takes. Types narrower than a word come packed
/// in `u32`.
fn dtypes(scalars: u8) -> Vec<DType> {
    if scalars & OTHER != 0 {
        return vec![];
    }
    let kinds = [(FLOAT, DType::F32), (SINT, DType::I32), (UINT, DType::U32)];
    let plain = kinds.iter().filter(|(kind, _)| scalars & kind != 0);
    let mut dtypes: Vec<DType> = plain.map(|(_, dtype)| *dtype).collect();
    if scalars == UINT {
        dtypes.extend(
            DType::ALL
                .into_iter()
                .filter(|dtype| dtype.size_bytes() < 4),
        );
    }
    dtypes
}
