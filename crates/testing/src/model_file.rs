//! Model files in the format safetensors, for tests of their reader.

/// A file with this header and these data.
pub fn file_of(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), data].concat()
}

/// A file of arrays with their names, types, shapes and bytes.
pub fn file_with(arrays: &[(&str, &str, &[usize], &[u8])]) -> Vec<u8> {
    let (mut header, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape, bytes) in arrays {
        let from = data.len();
        data.extend_from_slice(bytes);
        header.push(format!(
            "{name:?}:{{\"dtype\":{dtype:?},\"shape\":{shape:?},\"data_offsets\":[{from},{}]}}",
            data.len()
        ));
    }
    file_of(&format!("{{{}}}", header.join(",")), &data)
}
