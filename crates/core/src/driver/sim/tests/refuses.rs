//! Every rule of the seam has a refusal, and a refusal changes nothing.

use super::*;

/// The objects of a case.
struct Room {
    bench: Bench,
    slab: BufferId,
    other: BufferId,
    upload: BufferId,
    readback: BufferId,
    gone: BufferId,
    pipeline: PipelineId,
    group: BindGroupId,
}

fn room() -> Room {
    let bench = Bench::new(SimOptions {
        max_buffer_bytes: 4096,
        max_binding_bytes: 1024,
        max_storage_bindings: 2,
        max_immediate_bytes: 16,
        max_groups: 10,
        ..SimOptions::default()
    });
    let (slab, other) = (bench.slab(2048), bench.slab(2048));
    let pipeline = bench.pipeline(add()).unwrap();
    let ranges = [binding(slab, 0, 64), binding(other, 0, 64)];
    let gone = bench.slab(2048);
    bench.driver.destroy_buffer(gone);
    Room {
        upload: bench.buffer(BufferKind::Upload, 64),
        readback: bench.buffer(BufferKind::Readback, 64),
        group: bench.driver.create_bind_group(pipeline, &ranges).unwrap(),
        bench,
        slab,
        other,
        gone,
        pipeline,
    }
}

/// The call is refused with these words. Nothing has changed, and a session still works.
fn check(words: &str, call: impl FnOnce(&Room) -> DriverResult<()>) {
    let room = room();
    let before = room.bench.sim.digest();
    let refusal = call(&room);
    let complaints = room.bench.sim.complaints();
    let [why] = &complaints[..] else {
        panic!("{words}: {complaints:?}");
    };
    assert!(why.contains(words), "{why:?} says nothing of {words:?}");
    match refusal {
        Err(DriverError::Invalid(said)) => assert_eq!(said, *why),
        // The text of a kernel with a reference is one of the library.
        Err(DriverError::Kernel(fault)) => assert!(fault.message.contains(words), "{fault}"),
        other => panic!("{words}: {other:?}"),
    }
    assert_eq!(room.bench.sim.digest(), before, "{words}");
    assert_eq!(room.bench.session(), Ok(SESSION.to_vec()), "{words}");
}

#[test]
fn buffers_and_kernels_that_cannot_be() {
    for (size, words) in [(0, "of 0 B"), (6, "of 6 B"), (4100, "at most 4096 B")] {
        check(words, |room| {
            room.bench.try_buffer(BufferKind::Slab, size).map(drop)
        });
    }
    type Spoil = fn(&mut PipelineDesc);
    let cases: [(&str, Spoil); 10] = [
        ("at most 2", |desc| {
            desc.bindings = vec![BindingAccess::Read; 3]
        }),
        ("at most 16", |desc| desc.params_bytes = 20),
        ("a multiple of 4", |desc| desc.params_bytes = 6),
        ("expected", |desc| desc.wgsl = "fn main( {".to_string()),
        ("no compute entry point", |desc| desc.entry.push('x')),
        ("`y`", |desc| desc.bindings[1] = BindingAccess::Read),
        ("`x`", |desc| desc.bindings[0] = BindingAccess::ReadWrite),
        ("`y`", |desc| desc.bindings.truncate(1)),
        ("`p`", |desc| desc.params_bytes = 0),
        ("`p`", |desc| {
            let uniform = "@group(0) @binding(2) var<uniform>";
            desc.wgsl = desc.wgsl.replace("var<immediate>", uniform);
        }),
    ];
    for (words, spoil) in cases {
        check(words, |room| {
            let mut desc = add();
            spoil(&mut desc);
            room.bench.pipeline(desc).map(drop)
        });
    }
}

#[test]
fn bindings_that_cannot_be() {
    type Make = fn(&Room) -> Vec<Binding>;
    let cases: [(&str, Make); 13] = [
        ("1 bindings, the kernel has 2", |r| {
            vec![binding(r.slab, 0, 4)]
        }),
        ("does not exist", |r| {
            vec![binding(r.slab, 0, 4), binding(r.gone, 0, 4)]
        }),
        ("no slab", |r| {
            vec![binding(r.upload, 0, 4), binding(r.other, 0, 4)]
        }),
        ("no slab", |r| {
            vec![binding(r.slab, 0, 4), binding(r.readback, 0, 4)]
        }),
        ("no multiple of 256", |r| {
            vec![binding(r.slab, 128, 4), binding(r.other, 0, 4)]
        }),
        ("binding 1: it is empty", |r| {
            vec![binding(r.slab, 0, 4), binding(r.other, 0, 0)]
        }),
        ("multiples of 4", |r| {
            vec![binding(r.slab, 0, 6), binding(r.other, 0, 4)]
        }),
        ("at most 1024 B", |r| {
            vec![binding(r.slab, 0, 1028), binding(r.other, 0, 4)]
        }),
        ("outside", |r| {
            vec![binding(r.slab, 1792, 512), binding(r.other, 0, 4)]
        }),
        ("outside", |r| {
            vec![binding(r.slab, !255, 1024), binding(r.other, 0, 4)]
        }),
        ("both Read and ReadWrite", |r| {
            vec![binding(r.slab, 0, 4), binding(r.slab, 256, 4)]
        }),
        ("both Read and ReadWrite", |r| {
            vec![binding(r.slab, 0, 4), binding(r.slab, 0, 4)]
        }),
        ("3 bindings", |r| vec![binding(r.slab, 0, 4); 3]),
    ];
    for (words, make) in cases {
        check(words, |room| {
            let made = make(room);
            let group = room.bench.driver.create_bind_group(room.pipeline, &made);
            group.map(drop)
        });
    }
    check("the pipeline does not exist", |room| {
        room.bench.driver.destroy_pipeline(room.pipeline);
        let group = room.bench.driver.create_bind_group(room.pipeline, &[]);
        group.map(drop)
    });
}

#[test]
fn written_ranges_that_overlap_are_refused_and_read_ones_are_not() {
    let try_with = |accesses: [BindingAccess; 2], second_offset: u64| {
        let room = room();
        let mut desc = add();
        desc.wgsl = "@compute @workgroup_size(1) fn main() {}".to_string();
        desc.bindings = accesses.to_vec();
        let pipeline = room.bench.pipeline(desc).unwrap();
        let ranges = [
            binding(room.slab, 0, 260),
            binding(room.slab, second_offset, 64),
        ];
        let group = room.bench.driver.create_bind_group(pipeline, &ranges);
        group.is_ok()
    };
    assert!(!try_with([BindingAccess::ReadWrite; 2], 256));
    assert!(!try_with([BindingAccess::ReadWrite; 2], 0));
    assert!(try_with([BindingAccess::ReadWrite; 2], 512));
    assert!(try_with([BindingAccess::Read; 2], 256));
}

#[test]
fn a_submission_with_one_bad_op_is_refused_whole() {
    type Make = fn(&Room) -> Op;
    let cases: [(&str, Make); 22] = [
        ("copy within", |r| copy(r.slab, 0, r.slab, 1024, 4)),
        ("does not exist", |r| copy(r.gone, 0, r.slab, 0, 4)),
        ("does not exist", |r| copy(r.slab, 0, r.gone, 0, 4)),
        ("cannot be copied from", |r| {
            copy(r.readback, 0, r.slab, 0, 4)
        }),
        ("cannot be written", |r| copy(r.slab, 0, r.upload, 0, 4)),
        ("multiples of 4", |r| copy(r.slab, 2, r.other, 0, 4)),
        ("multiples of 4", |r| copy(r.slab, 0, r.other, 2, 4)),
        ("multiples of 4", |r| copy(r.slab, 0, r.other, 0, 3)),
        ("outside", |r| copy(r.slab, 2044, r.other, 0, 8)),
        ("outside", |r| copy(r.slab, 0, r.other, 2044, 8)),
        ("outside", |r| copy(r.slab, !3, r.other, 0, 8)),
        ("does not exist", |r| clear(r.gone, 0, 4)),
        ("cannot be written", |r| clear(r.upload, 0, 4)),
        ("multiples of 4", |r| clear(r.slab, 1, 4)),
        ("outside", |r| clear(r.slab, 2048, 4)),
        ("parameters 8..12", |r| {
            dispatch(r.pipeline, r.group, (8, 4))
        }),
        ("parameters", |r| {
            dispatch(r.pipeline, r.group, (u32::MAX, u32::MAX))
        }),
        ("8 B of parameters", |r| {
            dispatch(r.pipeline, r.group, (0, 8))
        }),
        ("0 B of parameters", |r| {
            dispatch(r.pipeline, r.group, (0, 0))
        }),
        ("bind group does not exist", |r| {
            r.bench.driver.destroy_bind_group(r.group);
            dispatch(r.pipeline, r.group, (0, 4))
        }),
        ("pipeline does not exist", |r| {
            r.bench.driver.destroy_pipeline(r.pipeline);
            dispatch(r.pipeline, r.group, (0, 4))
        }),
        ("another kernel", |r| {
            let other = r.bench.pipeline(add()).unwrap();
            dispatch(other, r.group, (0, 4))
        }),
    ];
    for (words, make) in cases {
        check_op(words, make);
    }
    for groups in [[0, 1, 1], [1, 0, 1], [1, 1, 0], [11, 1, 1], [1, 1, 11]] {
        check_op("1 to 10 in each", move |r| Op::Dispatch {
            pipeline: r.pipeline,
            bind_group: r.group,
            params: (0, 4),
            groups,
        });
    }
}

/// A bad op follows a good one: neither is executed.
fn check_op(words: &str, make: impl Fn(&Room) -> Op) {
    let room = room();
    let bench = &room.bench;
    bench.upload(room.other, &[7]).unwrap();
    let work = [clear(room.other, 0, 4), make(&room)];
    match bench.driver.submit(&work, &[0; 8]) {
        Err(DriverError::Invalid(why)) => {
            assert!(why.contains(words), "{why:?} says nothing of {words:?}");
            assert!(why.contains("op 1"), "{why:?}");
        }
        other => panic!("{words}: {other:?}"),
    }
    assert_eq!(bench.download(room.other, 1), Ok(vec![7]), "{words}");
    assert_eq!(bench.session(), Ok(SESSION.to_vec()), "{words}");
}

#[test]
fn mappings_that_cannot_be() {
    type Ask = (fn(&Room) -> BufferId, MapMode, u64, u64);
    let cases: [(&str, Ask); 12] = [
        ("does not exist", (|r| r.gone, MapMode::Read, 0, 8)),
        ("cannot be mapped", (|r| r.slab, MapMode::Read, 0, 8)),
        ("cannot be mapped", (|r| r.slab, MapMode::Write, 0, 8)),
        ("cannot be mapped", (|r| r.upload, MapMode::Read, 0, 8)),
        ("cannot be mapped", (|r| r.readback, MapMode::Write, 0, 8)),
        ("an empty range", (|r| r.upload, MapMode::Write, 0, 0)),
        ("multiples of 8", (|r| r.upload, MapMode::Write, 4, 8)),
        ("multiples of 8", (|r| r.upload, MapMode::Write, 0, 6)),
        ("outside", (|r| r.upload, MapMode::Write, 0, 68)),
        ("outside", (|r| r.upload, MapMode::Write, 64, 4)),
        ("outside", (|r| r.upload, MapMode::Write, !7, 8)),
        ("outside", (|r| r.readback, MapMode::Read, 56, 12)),
    ];
    for (words, (buffer, mode, offset, size)) in cases {
        check(words, |room| {
            let mapped = room.bench.driver.map(At(buffer(room), offset), mode, size);
            mapped.map(drop)
        });
    }
}

#[test]
fn what_the_host_has_is_not_the_devices_and_the_other_way_round() {
    let room = room();
    let (driver, upload) = (&room.bench.driver, room.upload);
    let refused = |words: &str, answer: DriverResult<()>| match answer {
        Err(DriverError::Invalid(why)) => assert!(why.contains(words), "{why}"),
        other => panic!("{words}: {other:?}"),
    };
    let submit = || {
        let work = [copy(upload, 0, room.slab, 0, 4)];
        driver.submit(&work, &[]).map(drop)
    };
    let again = || driver.map(At(upload, 0), MapMode::Write, 8).map(drop);
    let write = |at, len| driver.write_mapped(At(upload, at), &vec![1; len]);
    let read = |at, len| driver.read_mapped(At(upload, at), len, &mut |_| ());

    refused("not mapped", write(16, 8));
    let ready = driver.map(At(upload, 16), MapMode::Write, 24).unwrap();
    refused("not mapped", write(16, 8));
    refused("about to be", submit());
    refused("about to be", again());
    room.bench.wait(&ready).unwrap();
    refused("is mapped", submit());
    refused("is mapped", again());
    refused("mapped to Write", read(16, 8));
    refused("multiples of 8", read(20, 8));
    for (at, len) in [(8, 8), (15, 2), (36, 8), (40, 4), (!0, 2)] {
        refused("mapped are 16..40", write(at, len));
    }
    write(16, 24).unwrap();
    write(17, 3).unwrap();
    driver.unmap(upload);
    refused("not mapped", write(16, 8));
    submit().unwrap();

    let before = room.bench.sim.counters().complaints;
    driver.unmap(upload);
    driver.destroy_buffer(room.gone);
    let after = room.bench.sim.counters().complaints;
    assert_eq!(after, before + 1, "an unknown buffer may be destroyed");
}

#[test]
fn slabs_can_be_mapped_where_the_device_says_so() {
    let bench = Bench::new(SimOptions {
        maps_slabs: true,
        ..SimOptions::default()
    });
    let slab = bench.slab(16);
    bench.map(slab, MapMode::Write, 16).unwrap();
    bench.driver.write_mapped(At(slab, 4), &[1; 4]).unwrap();
    bench.driver.unmap(slab);
    bench.map(slab, MapMode::Read, 16).unwrap();
    let look = &mut |bytes: &[u8]| {
        let words: Vec<u32> = bytes.chunks_exact(4).map(word).collect();
        assert_eq!(words, [0, 0x0101_0101, 0, 0]);
    };
    bench.driver.read_mapped(At(slab, 0), 16, look).unwrap();
    bench.driver.unmap(slab);
    assert_eq!(bench.sim.complaints(), [""; 0]);
}
