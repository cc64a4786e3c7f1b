//! Diagnostics: the bugs to look for, the findings, and the buffers still alive. Also [`Handles`],
//! which all handles of a device share. It has the lists of jobs.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Gpu;
use crate::engine::{Engine, Finding, Findings, Handle, Leak, WeakEngine, block_on};
use crate::error::Result;
use crate::jobs::Board;

/// Shared by all handles of one device, and dropped with the last of them.
#[derive(Debug)]
pub(super) struct Handles {
    engine: Handle<Engine>,
    /// The lists of jobs that have handles, with the engines of their shares.
    boards: Mutex<Vec<(WeakEngine, Weak<Board>)>>,
}

impl Handles {
    pub(super) fn new(engine: Handle<Engine>) -> Arc<Self> {
        Arc::new(Handles {
            engine,
            boards: Mutex::default(),
        })
    }

    /// The jobs of an engine's share.
    pub(super) fn board(&self, engine: &Handle<Engine>) -> Arc<Board> {
        let mut boards = self.boards.lock();
        boards.retain(|(_, board)| board.strong_count() > 0);
        let known = boards.iter().find_map(|(of, board)| {
            let of = of.upgrade();
            let is_same = of.is_some_and(|of| of.own().is_same(engine.own()));
            board.upgrade().filter(|_| is_same)
        });
        known.unwrap_or_else(|| {
            let board = Board::new();
            boards.push((engine.downgrade(), Arc::downgrade(&board)));
            board
        })
    }

    /// All lists of jobs that have handles.
    pub(super) fn boards(&self) -> Vec<(Handle<Engine>, Arc<Board>)> {
        let boards = self.boards.lock();
        let alive = boards.iter();
        let alive = alive.filter_map(|(engine, board)| Some((engine.upgrade()?, board.upgrade()?)));
        alive.collect()
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        let engine = self.engine.own();
        if engine.diagnostics().is_some_and(|wanted| wanted.leaks) {
            for leak in engine.leaks() {
                engine.findings().push(Finding::Leak(leak));
            }
        }
    }
}

/// The diagnostics of a device, as [`Gpu::diagnostics`] gives them: what they found, and the
/// buffers still alive. [`Options::diagnostics`](crate::Options::diagnostics) turns them on.
#[derive(Clone, Copy, Debug)]
pub struct GpuDiagnostics<'gpu> {
    engine: &'gpu Handle<Engine>,
}

impl Gpu {
    /// The diagnostics of the device: what they found, and the buffers still alive.
    pub fn diagnostics(&self) -> GpuDiagnostics<'_> {
        GpuDiagnostics {
            engine: &self.engine,
        }
    }
}

impl GpuDiagnostics<'_> {
    /// Runs all recorded work, looks for bugs, and takes the findings since the last call. Returns
    /// none if [`Options::diagnostics`](crate::Options::diagnostics) turns nothing on.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// use lapidary_core::{Gpu, Options, diagnostics::Diagnostics};
    ///
    /// let diagnostics = Some(Diagnostics::all());
    /// let gpu = Gpu::open(Options { diagnostics, ..Options::default() })?;
    /// // … work …
    /// for finding in gpu.diagnostics().check()? {
    ///     // `blur` wrote beyond the end of `image` (src/main.rs:7), …
    ///     println!("{finding}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush). [`Error::Driver`](crate::Error::Driver), once, if a check since
    /// the last call could not run, for example because memory was short: some bugs may be missed.
    /// The findings stay in the list, for the next call or [`findings`](Self::findings).
    pub fn check(self) -> Result<Vec<Finding>> {
        block_on("GpuDiagnostics::check", self.check_async())
    }

    /// As [`check`](Self::check), as a future.
    pub async fn check_async(self) -> Result<Vec<Finding>> {
        let engine = self.engine.here();
        engine.flush().await?;
        engine.check_missed()?;
        Ok(engine.findings().take())
    }

    /// The list of findings. It may outlive all handles. It then also has the buffers that were
    /// alive when the last handle was dropped.
    ///
    /// ```no_run
    /// # fn demo(gpu: lapidary_core::Gpu) {
    /// let findings = gpu.diagnostics().findings();
    /// drop(gpu);
    /// assert!(findings.take().is_empty(), "buffers outlive their device");
    /// # }
    /// ```
    pub fn findings(self) -> Findings {
        self.engine.here().findings().clone()
    }

    /// The buffers that are alive, by maker, the most bytes first. Buffers that are not computed
    /// yet count too. Needs no [`Options::diagnostics`](crate::Options::diagnostics).
    ///
    /// ```no_run
    /// # fn demo(gpu: &lapidary_core::Gpu) {
    /// for leak in gpu.diagnostics().leaks() {
    ///     println!("{leak}");
    /// }
    /// # }
    /// ```
    pub fn leaks(self) -> Vec<Leak> {
        self.engine.here().leaks()
    }
}
