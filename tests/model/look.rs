//! One look at bytes that may be a model file: whatever they are, nobody panics, and what is taken
//! is what the format's own reader takes. The fuzz target is this function, too.

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{DType, Error, Gpu, ModelFile, Tensor};
use safetensors::SafeTensors;

/// A device to load on.
pub(crate) fn device() -> (Gpu, SimHandle) {
    let options = SimOptions {
        dirty: true,
        ..SimOptions::default()
    };
    Gpu::simulated(options).expect("these options can be")
}

/// Looks at the bytes; `true` if they are a model file.
pub(crate) fn look(gpu: &Gpu, sim: &SimHandle, bytes: &[u8]) -> bool {
    let theirs = SafeTensors::deserialize(bytes);
    let buffers = sim.counters().buffers_created;
    let file = match ModelFile::from_bytes(bytes) {
        Ok(file) => file,
        Err(Error::Model { reason, .. }) => {
            let hides = |c: char| c.is_control() || matches!(c, '\u{200e}'..='\u{202e}');
            assert!(!reason.contains(hides), "{reason:?}");
            assert_eq!(sim.counters().buffers_created, buffers);
            return false;
        }
        Err(other) => panic!("{other:?}"),
    };
    let theirs = theirs.expect("what is taken here the format's own reader takes");
    assert_eq!(file.len(), theirs.len());
    for found in file.tensors() {
        let view = theirs.tensor(found.name).expect("it has the same names");
        assert_eq!(found.shape, view.shape());
        assert_eq!(found.stored, view.dtype().to_string());
        assert_eq!(found.stored_bytes, view.data().len() as u64);
        let before_bytes = gpu.memory().stats().requested_bytes.now;
        let lazy = gpu.load_tensor_backed(&file, found.name);
        assert_eq!(gpu.memory().stats().requested_bytes.now, before_bytes);
        let loaded = gpu.load_tensor(&file, found.name);
        let taken_bytes = gpu.memory().stats().requested_bytes.now - before_bytes;
        // What has 16 bits in the file has 32 on the device.
        assert!(taken_bytes <= 2 * bytes.len() as u64, "{taken_bytes}");
        match (loaded, lazy) {
            (Ok(loaded), Ok(lazy)) => {
                let values = elements(&loaded).expect("it was loaded");
                assert_eq!(elements(&lazy).as_deref(), Some(&values[..]));
                if loaded.size_bytes() == found.stored_bytes && !found.stored.ends_with("64") {
                    assert_eq!(values, view.data());
                }
            }
            // An element does not fit, which shows when it is read.
            (Err(Error::Model { .. }), Ok(lazy)) => assert_eq!(elements(&lazy), None),
            (Err(Error::Model { .. }), Err(Error::Model { .. })) => {}
            // More axes than tensors have.
            (Err(Error::Shape { .. }), Err(Error::Shape { .. })) => {}
            (Err(Error::NeverFits { .. }), Err(Error::NeverFits { .. })) => {}
            (Err(Error::Overflow { .. }), Err(Error::Overflow { .. })) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sim.complaints(), [""; 0]);
    true
}

/// The bytes of a tensor's elements, if there are any to be had.
fn elements(tensor: &Tensor) -> Option<Vec<u8>> {
    fn bytes<T: lapidary::Element>(tensor: &Tensor) -> Option<Vec<u8>> {
        match tensor.to_vec::<T>() {
            Ok(elements) => Some(T::bytes_of(&elements).to_vec()),
            Err(Error::Source { .. }) => None,
            Err(other) => panic!("{other:?}"),
        }
    }
    match tensor.dtype() {
        DType::F32 => bytes::<f32>(tensor),
        DType::F16 => bytes::<half::f16>(tensor),
        DType::Bf16 => bytes::<half::bf16>(tensor),
        DType::I32 => bytes::<i32>(tensor),
        DType::U32 => bytes::<u32>(tensor),
        DType::I8 => bytes::<i8>(tensor),
        DType::U8 => bytes::<u8>(tensor),
        DType::Bool => bytes::<bool>(tensor),
    }
}
