//! Files for the tests, and devices to load them on.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::{fs, io};

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, Error, Gpu, Source, failure::ModelFailure, files::ModelFile};
pub(crate) use lapidary_testing::model_file::{file_of, file_with};

/// A folder of the test, deleted after it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lapidary-test-model-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    /// Writes a file with these bytes.
    pub(crate) fn with(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn bytes_of<T: lapidary::Element>(elements: &[T]) -> &[u8] {
    T::bytes_of(elements)
}

/// A source of these bytes, as a server sends them, and the ranges that were asked for.
pub(crate) fn served(bytes: &[u8]) -> (Source, Arc<Mutex<Vec<Range<u64>>>>) {
    let (bytes, asked): (Arc<[u8]>, _) = (bytes.into(), Arc::<Mutex<Vec<_>>>::default());
    let told = asked.clone();
    let source = Source::reader_async(move |from, len| {
        told.lock().unwrap().push(from..from + len);
        let bytes = bytes.clone();
        async move {
            let part = bytes.get(from as usize..(from + len) as usize);
            part.map(<[u8]>::to_vec)
                .ok_or_else(|| io::Error::other("status 416"))
        }
    });
    (source, asked)
}

/// A model of these bytes, as a server sends them.
pub(crate) fn open_served(bytes: &[u8]) -> lapidary::Result<ModelFile> {
    ModelFile::from_source("a server", served(bytes).0, bytes.len() as u64)
}

/// A device that lags behind and whose memory begins with garbage.
pub(crate) fn open() -> Gpu {
    open_with(Budget::default()).0
}

pub(crate) fn open_with(budget: Budget) -> (Gpu, SimHandle) {
    let options = SimOptions {
        dirty: true,
        ..SimOptions::default()
    };
    let (gpu, sim) = Gpu::simulated(options).unwrap();
    gpu.memory().set_budget(budget).unwrap();
    (gpu, sim)
}

/// The kind of failure and its message.
#[track_caller]
pub(crate) fn failure<T: std::fmt::Debug>(result: lapidary::Result<T>) -> (ModelFailure, String) {
    match result {
        Err(error @ Error::Model { failure, .. }) => (failure, error.to_string()),
        other => panic!("{other:?}"),
    }
}
