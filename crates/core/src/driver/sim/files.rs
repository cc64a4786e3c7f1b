//! What goes wrong with files, and when: the plan of faults for a simulated disk.
//!
//! The files themselves are real ones; whoever reads and writes them asks here first, at each call.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::faults::{Chance, Repeat};

/// A call of the file system, as faults name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileSite {
    /// Every call below.
    AnyCall,
    /// The file is made.
    Create,
    /// Bytes are written.
    Write,
    /// Bytes are read.
    Read,
    /// The file's length changes.
    SetLen,
    /// A file that is there is opened.
    Open,
    /// The bytes are made durable.
    Sync,
    /// The file takes the place of another.
    Rename,
    /// The names in the folder are made durable.
    SyncFolder,
}

/// How many variants [`FileSite`] has.
const SITES: usize = FileSite::SyncFolder as usize + 1;

/// What a fault does to the call. Where no bytes move, what is not [`DiskFull`](Self::DiskFull)
/// is an I/O error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileFaultKind {
    /// It says that there is no room on the disk.
    DiskFull,
    /// It says that the device fails.
    Io,
    /// It says that it was interrupted.
    Interrupted,
    /// It moves half of the bytes, and says so.
    Short,
    /// It moves half of the bytes, and says that it moved all.
    Torn,
    /// One bit of what it moves is another.
    Flip,
}

/// One thing that goes wrong with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileFault {
    /// Which calls are counted.
    pub site: FileSite,
    /// The call that it strikes first, counted from the one after it was armed: 1 is the next.
    pub nth: u64,
    /// And then?
    pub repeat: Repeat,
    /// What it does.
    pub kind: FileFaultKind,
}

/// What goes wrong with the files of a [`Gpu`](crate::Gpu) over a simulated device: see
/// [`SimHandle::files`](super::SimHandle::files). Clones are the same plan.
///
/// ```
/// use lapidary_core::sim::{FileFault, FileFaultKind, FileSite, Repeat, SimOptions};
/// use lapidary_core::{Budget, Error, Gpu};
///
/// let (gpu, sim) = Gpu::simulated(SimOptions::default())?;
/// gpu.set_budget(Budget { host_bytes: Some(0), ..Budget::default() })?;
/// let x = gpu.buffer_from(&[7.0_f32; 100])?;
/// sim.files().arm(FileFault {
///     site: FileSite::Write,
///     nth: 1,
///     repeat: Repeat::Once,
///     kind: FileFaultKind::DiskFull,
/// });
/// assert!(matches!(x.evict(), Err(Error::Spill(_))));
/// x.evict()?;
/// assert_eq!(sim.files().struck(), 1);
/// assert_eq!(x.to_vec::<f32>()?, [7.0; 100]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileFaults(Arc<Mutex<Plan>>);

#[derive(Debug)]
struct Plan {
    armed: Vec<(FileFault, u64)>,
    chance: Chance,
    calls: [u64; SITES],
    struck: u64,
}

impl Default for FileFaults {
    fn default() -> Self {
        FileFaults::new(0)
    }
}

impl FileFaults {
    /// No faults yet; those that strike by chance do so by this seed.
    pub fn new(seed: u64) -> Self {
        FileFaults(Arc::new(Mutex::new(Plan {
            armed: Vec::new(),
            chance: Chance(seed),
            calls: [0; SITES],
            struck: 0,
        })))
    }

    /// Adds a fault; its calls are counted from now.
    pub fn arm(&self, fault: FileFault) {
        self.with(|plan| plan.armed.push((fault, 0)));
    }

    /// Takes all faults back.
    pub fn disarm(&self) {
        self.with(|plan| plan.armed.clear());
    }

    /// How often the file system was called there, whatever came of it.
    pub fn calls(&self, site: FileSite) -> u64 {
        self.with(|plan| plan.calls[site as usize])
    }

    /// How many calls were struck so far.
    pub fn struck(&self) -> u64 {
        self.with(|plan| plan.struck)
    }

    /// Counts a call; what strikes it, if anything does: the first armed of those that do.
    pub(crate) fn strike(&self, site: FileSite) -> Option<FileFaultKind> {
        self.with(|plan| {
            plan.calls[site as usize] += 1;
            plan.calls[FileSite::AnyCall as usize] += 1;
            let mut strikes = None;
            for (fault, seen) in &mut plan.armed {
                if fault.site != site && fault.site != FileSite::AnyCall {
                    continue;
                }
                *seen += 1;
                let since = seen.checked_sub(fault.nth.max(1));
                if since.is_some_and(|since| fault.repeat.strikes(since, &mut plan.chance)) {
                    strikes = strikes.or(Some(fault.kind));
                }
            }
            plan.struck += u64::from(strikes.is_some());
            strikes
        })
    }

    /// As `strike`, for a call that moves no bytes.
    pub fn strike_plain(&self, site: FileSite) -> io::Result<()> {
        match self.strike(site) {
            None => Ok(()),
            Some(kind) => Err(kind.error().unwrap_or_else(device_fails)),
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Plan) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl FileFaultKind {
    fn error(self) -> Option<io::Error> {
        match self {
            FileFaultKind::DiskFull => Some(io::ErrorKind::StorageFull.into()),
            FileFaultKind::Io => Some(device_fails()),
            FileFaultKind::Interrupted => Some(io::ErrorKind::Interrupted.into()),
            FileFaultKind::Short | FileFaultKind::Torn | FileFaultKind::Flip => None,
        }
    }

    /// A write that this strikes.
    pub(crate) fn write(
        self,
        bytes: &[u8],
        write: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let half = bytes.len() / 2;
        match (self, self.error()) {
            (_, Some(error)) => Err(error),
            (FileFaultKind::Torn, _) => write(&bytes[..half]).map(|_| bytes.len()),
            (FileFaultKind::Flip, _) => {
                let mut flipped = bytes.to_vec();
                flip(&mut flipped);
                write(&flipped)
            }
            _ => write(&bytes[..half]),
        }
    }

    /// A read that this strikes.
    pub(crate) fn read(
        self,
        bytes: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let half = bytes.len() / 2;
        match (self, self.error()) {
            (_, Some(error)) => Err(error),
            (FileFaultKind::Torn, _) => {
                let got = read(bytes)?;
                bytes[half..].fill(0);
                Ok(got)
            }
            (FileFaultKind::Flip, _) => {
                let got = read(bytes)?;
                flip(&mut bytes[..got]);
                Ok(got)
            }
            // None at all would be the end of the file.
            _ => read(&mut bytes[..half.max(1)]),
        }
    }
}

fn device_fails() -> io::Error {
    io::Error::other("the device fails, as the test wants it")
}

fn flip(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 0x10;
    }
}
