//! A plan of faults for files, as on a simulated disk.
//!
//! The files themselves are real. Each call that accesses one asks this plan first.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::faults::{Fault, FaultPlan};

/// A call of the file system, for faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileSite {
    /// Every call below.
    AnyCall,
    /// The creation of the file.
    Create,
    /// A write.
    Write,
    /// A read.
    Read,
    /// A change of the file's length.
    SetLen,
    /// The opening of an existing file.
    Open,
    /// The sync of the file's bytes.
    Sync,
    /// A rename of the file over another.
    Rename,
    /// The sync of the names in the folder.
    SyncFolder,
}

/// The number of variants of [`FileSite`].
const SITES: usize = FileSite::SyncFolder as usize + 1;

/// The effect of a fault on the call. For a call that moves no bytes, every kind but
/// [`DiskFull`](Self::DiskFull) is an I/O error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileFaultKind {
    /// The call reports a full disk.
    DiskFull,
    /// The call reports a failure of the device.
    Io,
    /// The call reports an interruption.
    Interrupted,
    /// The call moves half of the bytes, and reports that number.
    Short,
    /// The call moves half of the bytes, and reports that it moved all.
    Torn,
    /// The call flips one bit of the bytes that it moves.
    Flip,
}

/// A fault of the file system.
pub type FileFault = Fault<FileSite, FileFaultKind>;

/// The faults for the files of a [`Gpu`](crate::Gpu) over a simulated device: see
/// [`SimHandle::files`](super::SimHandle::files). Clones are the same plan.
///
/// ```
/// use lapidary_core::sim::{FileFault, FileFaultKind, FileSite, Repeat, SimOptions};
/// use lapidary_core::{Budget, Error, Gpu};
///
/// let (gpu, sim) = Gpu::simulated(SimOptions::default())?;
/// gpu.memory().set_budget(Budget { host_bytes: Some(0), ..Budget::default() })?;
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
#[derive(Clone, Debug, Default)]
pub struct FileFaults(Arc<Mutex<FileFaultPlan>>);

#[derive(Debug, Default)]
struct FileFaultPlan {
    faults: FaultPlan<FileSite, FileFaultKind>,
    calls: [u64; SITES],
    struck: u64,
}

impl FileFaults {
    /// An empty plan. Random faults use this seed.
    pub fn new(seed: u64) -> Self {
        FileFaults(Arc::new(Mutex::new(FileFaultPlan {
            faults: FaultPlan::new(&[], seed),
            ..FileFaultPlan::default()
        })))
    }

    /// Adds a fault, which counts calls from now on.
    pub fn arm(&self, fault: FileFault) {
        self.with(|plan| plan.faults.arm(fault));
    }

    /// Removes all faults.
    pub fn disarm(&self) {
        self.with(|plan| plan.faults.disarm());
    }

    /// The number of calls of this kind so far, failed ones included.
    pub fn calls(&self, site: FileSite) -> u64 {
        self.with(|plan| plan.calls[site as usize])
    }

    /// The number of calls that faults struck so far.
    pub fn struck(&self) -> u64 {
        self.with(|plan| plan.struck)
    }

    /// Counts a call. Returns the effect of the first armed fault that strikes it, if one does.
    pub(crate) fn strike(&self, site: FileSite) -> Option<FileFaultKind> {
        self.with(|plan| {
            plan.calls[site as usize] += 1;
            plan.calls[FileSite::AnyCall as usize] += 1;
            let counts = |of| of == site || of == FileSite::AnyCall;
            let strikes = plan.faults.strike(counts);
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

    fn with<R>(&self, work: impl FnOnce(&mut FileFaultPlan) -> R) -> R {
        work(&mut self.0.lock())
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

    /// Runs a write with this effect.
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

    /// Runs a read with this effect.
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
            // A read of no bytes would mean the end of the file.
            _ => read(&mut bytes[..half.max(1)]),
        }
    }
}

fn device_fails() -> io::Error {
    io::Error::other("the device fails, as the armed fault demands")
}

fn flip(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 0x10;
    }
}
