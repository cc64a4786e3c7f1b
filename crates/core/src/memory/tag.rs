//! Who made a buffer, as reports and errors name it.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// Reports and errors show only the end of a longer path.
const FILE_COLUMNS: usize = 120;

/// Reports and errors show only the beginning of a longer name.
const NAME_COLUMNS: usize = 60;

/// The call site that made a buffer, and the buffer's name, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tag {
    file: Cow<'static, str>,
    line: u32,
    column: u32,
    name: Option<Arc<str>>,
    scope: Option<Arc<str>>,
    #[cfg_attr(feature = "serde", serde(default))]
    share: Option<Arc<str>>,
}

impl Tag {
    /// A tag with the names that there are.
    pub(super) fn new(
        site: &'static Location<'static>,
        name: Option<Arc<str>>,
        scope: Option<Arc<str>>,
        share: Option<Arc<str>>,
    ) -> Self {
        Tag {
            file: site.file().into(),
            line: site.line(),
            column: site.column(),
            name,
            scope,
            share,
        }
    }

    /// The source file of the caller that made the buffer.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line in that file, from 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The column in that line, from 1.
    pub fn column(&self) -> u32 {
        self.column
    }

    /// The scopes around the call, from the outermost on, with `/` between them: see
    /// [`Gpu::scope`](crate::Gpu::scope).
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// The name that `Tensor::named`(crate::Buffer::named) gave, if any.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The path of the share that the buffer is in, if it is in one: see
    /// [`Gpu::share`](crate::Gpu::share).
    pub fn share(&self) -> Option<&str> {
        self.share.as_deref()
    }

    /// Shortens the texts to what prints: an app's names may have any length.
    pub fn shorten(&mut self) {
        let is_long = |text: &&mut Arc<str>| text.len() > NAME_COLUMNS;
        if let Some(name) = self.name.as_mut().filter(is_long) {
            *name = super::printable(name, NAME_COLUMNS).into();
        }
        if let Some(scope) = self.scope.as_mut().filter(is_long) {
            *scope = super::printable_end(scope, NAME_COLUMNS).into();
        }
        if let Some(share) = self.share.as_mut().filter(is_long) {
            *share = super::printable_end(share, NAME_COLUMNS).into();
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = (super::printable_end(&self.file, FILE_COLUMNS), self.line);
        if let Some(share) = &self.share {
            write!(f, "[{}] ", super::printable_end(share, NAME_COLUMNS))?;
        }
        if let Some(scope) = &self.scope {
            write!(f, "{}: ", super::printable_end(scope, NAME_COLUMNS))?;
        }
        match &self.name {
            Some(name) => {
                let name = super::printable(name, NAME_COLUMNS);
                write!(f, "`{name}` ({file}:{line})")
            }
            None => write!(f, "{file}:{line}"),
        }
    }
}
