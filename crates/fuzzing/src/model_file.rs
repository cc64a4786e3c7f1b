//! Bytes that may be a model file. Nothing panics, and of safetensors the library accepts exactly
//! the files that the format's own reader accepts.

#[cfg(test)]
mod mutations;

use std::cell::OnceCell;

use lapidary::sim::SimHandle;
use lapidary::{Error, Gpu, files::ModelFile};
use safetensors::SafeTensors;

use crate::elements::elements;
use crate::{device, turns};

thread_local! {
    static DEVICE: OnceCell<(Gpu, SimHandle)> = const { OnceCell::new() };
}

/// Loads the bytes as a model file. Returns whether they are one.
pub fn body(bytes: &[u8]) -> bool {
    DEVICE.with(|device_cell| {
        let (gpu, sim) = device_cell.get_or_init(device);
        look(gpu, sim, bytes)
    })
}

/// Checks the bytes. Returns whether they are a model file.
fn look(gpu: &Gpu, sim: &SimHandle, bytes: &[u8]) -> bool {
    let theirs = SafeTensors::deserialize(bytes);
    let buffers = sim.counters().buffers_created;
    let file = match ModelFile::from_bytes(bytes) {
        Ok(file) => file,
        Err(Error::Model { reason, .. }) => {
            let hides = |c: char| c.is_control() || turns(c);
            assert!(!reason.contains(hides), "{reason:?}");
            assert_eq!(sim.counters().buffers_created, buffers);
            return false;
        }
        Err(other) => panic!("{other:?}"),
    };
    let is_gguf = bytes.starts_with(b"GGUF");
    let theirs = (!is_gguf).then(|| {
        let theirs = theirs.expect("what is taken here the format's own reader takes");
        assert_eq!(file.len(), theirs.len());
        theirs
    });
    // An element of 4.5 or 16 bits in the file takes 32 bits on the device.
    let most_bytes = if is_gguf { 8 } else { 2 } * bytes.len() as u64;
    for found in file.tensors() {
        let view = theirs.as_ref().map(|theirs| {
            let view = theirs.tensor(found.name).expect("it has the same names");
            assert_eq!(found.shape, view.shape());
            assert_eq!(found.stored, view.dtype().to_string());
            assert_eq!(found.stored_bytes, view.data().len() as u64);
            view
        });
        let before_bytes = gpu.memory().stats().requested_bytes.now;
        let lazy = gpu.files().load_tensor_backed(&file, found.name);
        assert_eq!(gpu.memory().stats().requested_bytes.now, before_bytes);
        let loaded = gpu.files().load_tensor(&file, found.name);
        let taken_bytes = gpu.memory().stats().requested_bytes.now - before_bytes;
        assert!(taken_bytes <= most_bytes, "{taken_bytes}");
        match (loaded, lazy) {
            (Ok(loaded), Ok(lazy)) => {
                let values = elements(&loaded).expect("it was loaded");
                assert_eq!(elements(&lazy).as_deref(), Some(&values[..]));
                let is_same = loaded.size_bytes() == found.stored_bytes;
                if let Some(view) = view.filter(|_| is_same && !found.stored.ends_with("64")) {
                    assert_eq!(values, view.data());
                }
            }
            // An element is out of range, which only reading it shows.
            (Err(Error::Model { .. }), Ok(lazy)) => assert_eq!(elements(&lazy), None),
            (Err(Error::Model { .. }), Err(Error::Model { .. })) => {}
            // It has more axes than a tensor may have.
            (Err(Error::Shape { .. }), Err(Error::Shape { .. })) => {}
            (Err(Error::NeverFits { .. }), Err(Error::NeverFits { .. })) => {}
            (Err(Error::Overflow { .. }), Err(Error::Overflow { .. })) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sim.complaints(), [""; 0]);
    true
}
