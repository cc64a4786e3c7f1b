//! The driver refuses wrong requests, in wgpu's words or its own, and they have no effect.

use super::*;

#[test]
fn a_shader_that_does_not_compile_says_where() {
    let driver = driver();
    let desc = kernel(
        "@compute @workgroup_size(1) fn main() { let x = nothing; }",
        &[],
    );
    let Err(DriverError::Invalid(message)) = block_on(driver.create_pipeline(desc)) else {
        panic!("it was taken");
    };
    assert!(message.contains("nothing"), "{message}");
    let mut wrong_entry = kernel(&ADD.replace("PARAMS", "var<immediate> p: Params;"), &[]);
    wrong_entry.bindings = vec![BindingAccess::Read];
    assert!(is_invalid(&block_on(driver.create_pipeline(wrong_entry))));
    driver.works();
}

#[test]
fn sizes_that_cannot_be_are_refused_before_wgpu_sees_them() {
    let driver = driver();
    let most = driver.caps().max_buffer_bytes;
    for size_bytes in [0, 3, 6, most + 4, u64::MAX] {
        let result = block_on(driver.create_buffer(BufferKind::Slab, size_bytes, "wrong"));
        assert!(is_invalid(&result), "{size_bytes}");
    }
    driver.works();
}

#[test]
fn a_refused_submission_has_no_effect() {
    let driver = driver();
    let pipeline = driver.add_kernel();
    let slab = driver.new_buffer(BufferKind::Slab, 256);
    let other = driver.new_buffer(BufferKind::Slab, 256);
    let group = driver.whole(pipeline, slab, 256);
    let upload = driver.upload(&[5; 64]);
    let gone = driver.new_buffer(BufferKind::Slab, 256);
    driver.destroy_buffer(gone);
    let params: &[u8] = bytemuck::cast_slice(&[1_u32, 64, 0, 0]);
    let good = dispatch(pipeline, group, (0, 16));
    let within = Op::Copy(At(slab, 0), At(slab, 128), 64);
    let beyond = Op::Dispatch {
        pipeline,
        bind_group: group,
        params: (0, 16),
        groups: [65_536, 1, 1],
    };
    for (what, op) in [
        ("a copy within one buffer", within),
        ("a copy past the end", copy(upload, slab, 260)),
        ("a copy into an upload buffer", copy(slab, upload, 256)),
        ("a copy of an odd size", copy(other, slab, 6)),
        ("a destroyed buffer", copy(gone, slab, 4)),
        ("a clear past the end", clear(slab, 252, 8)),
        ("a clear that is not aligned", clear(slab, 2, 4)),
        (
            "parameters past the end",
            dispatch(pipeline, group, (4, 16)),
        ),
        (
            "parameters of another length",
            dispatch(pipeline, group, (0, 12)),
        ),
        ("too many workgroups", beyond),
    ] {
        let result = driver.submit(&[good.clone(), op, good.clone()], params);
        assert!(is_invalid(&result), "{what}: {result:?}");
    }
    let first = driver.submit(&[good], params).expect("a submission");
    assert_eq!(first.serial, 1, "what was refused took no serial");
    assert_eq!(driver.download(slab, 64), Ok(vec![1; 64]));
}

/// The refused submission left its timestamps unread and their buffer unmapped. Our errors must not
/// reach the app's handler, which panics here.
#[test]
fn a_refused_submission_of_timed_kernels_is_refused_and_no_more() {
    let driver = driver();
    if driver.time_kernels(true).is_err() {
        // This adapter has no timestamps.
        return;
    }
    let pipeline = driver.add_kernel();
    let slab = driver.new_buffer(BufferKind::Slab, 256);
    let group = driver.whole(pipeline, slab, 256);
    let params: &[u8] = bytemuck::cast_slice(&[1_u32, 64, 0, 0]);
    let good = dispatch(pipeline, group, (0, 16));
    for round in 1..4 {
        for wrong in [clear(slab, 252, 8), dispatch(pipeline, group, (0, 12))] {
            let result = driver.submit(&[good.clone(), wrong], params);
            assert!(is_invalid(&result), "{result:?}");
        }
        driver
            .submit(std::slice::from_ref(&good), params)
            .expect("a submission");
        let runs = driver.take_kernel_runs();
        assert_eq!(runs.len(), 1, "in round {round}: {runs:?}");
    }
    driver.declare_lost("for a test");
    assert!(driver.submit(&[good], params).is_err());
}

#[test]
fn a_mapped_buffer_in_a_submission_is_refused_until_it_is_unmapped() {
    let driver = driver();
    let slab = driver.new_buffer(BufferKind::Slab, 64);
    let upload = driver.new_buffer(BufferKind::Upload, 64);
    let mapped = driver
        .map(At(upload, 0), MapMode::Write, 64)
        .expect("a mapping");
    assert!(is_invalid(&driver.map(At(upload, 0), MapMode::Write, 64)));
    assert!(is_invalid(&driver.submit(&[copy(upload, slab, 64)], &[])));
    block_on(driver.wait(&mapped)).expect("mapped");
    assert!(is_invalid(&driver.submit(&[copy(upload, slab, 64)], &[])));
    driver
        .write_mapped(At(upload, 60), &[9; 4])
        .expect("written");
    assert!(is_invalid(&driver.write_mapped(At(upload, 60), &[9; 5])));
    driver.unmap(upload);
    driver.unmap(upload);
    driver
        .submit(&[copy(upload, slab, 64)], &[])
        .expect("a submission");
    assert_eq!(driver.download(slab, 16).map(|v| v[15]), Ok(0x0909_0909));
}

#[test]
fn mappings_that_cannot_be_are_refused() {
    let driver = driver();
    let upload = driver.new_buffer(BufferKind::Upload, 64);
    for (mode, offset, size) in [
        (MapMode::Read, 0, 64),
        (MapMode::Write, 4, 8),
        (MapMode::Write, 0, 6),
        (MapMode::Write, 0, 68),
        (MapMode::Write, u64::MAX, 8),
    ] {
        let result = driver.map(At(upload, offset), mode, size);
        assert!(is_invalid(&result), "{mode:?} {offset} {size}");
    }
    let mut never = |_: &[u8]| panic!("it is not mapped");
    assert!(is_invalid(&driver.read_mapped(
        At(upload, 0),
        4,
        &mut never
    )));
    assert!(is_invalid(&driver.write_mapped(At(upload, 0), &[0; 4])));
    driver.works();
}

#[test]
fn a_mapping_that_is_taken_back_ends_its_wait() {
    let driver = driver();
    for take_back in [Driver::unmap, Driver::destroy_buffer] {
        let readback = driver.new_buffer(BufferKind::Readback, 64);
        let mapped = driver
            .map(At(readback, 0), MapMode::Read, 64)
            .expect("a mapping");
        take_back(&driver, readback);
        assert_eq!(mapped.outcome(), Some(false));
        assert!(is_invalid(&block_on(driver.wait(&mapped))));
    }
    driver.works();
}

#[test]
fn bindings_that_cannot_be_are_refused() {
    let driver = driver();
    let pipeline = driver.add_kernel();
    let buffer = driver.new_buffer(BufferKind::Slab, 1024);
    let readback = driver.new_buffer(BufferKind::Readback, 1024);
    let good = Binding {
        buffer,
        offset_bytes: 256,
        size_bytes: 256,
    };
    driver
        .create_bind_group(pipeline, &[good])
        .expect("a bind group");
    let bad = [
        Binding {
            buffer: readback,
            ..good
        },
        Binding {
            offset_bytes: 4,
            ..good
        },
        Binding {
            offset_bytes: 1024,
            ..good
        },
        Binding {
            size_bytes: 0,
            ..good
        },
        Binding {
            size_bytes: 6,
            ..good
        },
        Binding {
            size_bytes: 772,
            ..good
        },
    ];
    for binding in bad {
        let result = driver.create_bind_group(pipeline, &[binding]);
        assert!(is_invalid(&result), "{binding:?}");
    }
    for bindings in [&[][..], &[good, good]] {
        assert!(is_invalid(&driver.create_bind_group(pipeline, bindings)));
    }
    driver.destroy_pipeline(pipeline);
    assert!(is_invalid(&driver.create_bind_group(pipeline, &[good])));
    driver.works();
}

#[test]
fn no_memory_is_an_error_that_passes() {
    let driver = driver();
    let size_bytes = driver.caps().max_buffer_bytes;
    let mut held = Vec::new();
    // Software adapters promise memory that they do not have, so a success is allowed.
    for _ in 0..8 {
        match block_on(driver.create_buffer(BufferKind::Upload, size_bytes, "large")) {
            Ok(buffer) => held.push(buffer),
            Err(error) => {
                assert_eq!(error, DriverError::OutOfMemory);
                break;
            }
        }
    }
    held.into_iter()
        .for_each(|buffer| driver.destroy_buffer(buffer));
    driver.works();
}
