//! Kernels timed by the device's own clock.

use lapidary::{DType, Error, Gpu, stats::Event};

use crate::gpu;

/// Three dispatches of two kernels.
fn work(gpu: &Gpu) {
    let x = gpu.full(&[64, 64], 1.0, DType::F32).unwrap();
    gpu.finish().unwrap();
    let y = x.matmul(&x).unwrap().matmul(&x).unwrap();
    assert_eq!(
        y.sum(&[0, 1]).unwrap().to_vec::<f32>().unwrap(),
        [16777216.0]
    );
}

/// Each has its name and its times, in order, and within the time of the program.
fn is_in_the_history(gpu: &Gpu) {
    let history = gpu.memory().history();
    let (mut names, mut before_ns) = (Vec::new(), 0);
    for moment in &history.moments {
        if let Event::Kernel {
            kernel,
            begin_ns,
            end_ns,
        } = moment.event
        {
            assert!(before_ns <= begin_ns && begin_ns <= end_ns, "{history:?}");
            before_ns = begin_ns;
            names.push(history.kernels[kernel as usize].as_str());
        }
    }
    let matmuls = names.iter().filter(|name| name.contains("matmul"));
    assert_eq!(matmuls.count(), 2, "{names:?}");
    assert!(before_ns > 0, "{history:?}");
}

/// Two layers at one line in separate scopes, and an input of another size.
fn tells_layers_apart(gpu: &Gpu) {
    let weight = gpu.full(&[64, 64], 1.0, DType::F32).unwrap();
    let [small, large] = [8, 16].map(|rows| gpu.full(&[rows, 64], 1.0, DType::F32).unwrap());
    gpu.finish().unwrap();
    gpu.kernels().times().unwrap();
    for (scope, x) in [("first", &small), ("second", &small), ("second", &large)] {
        let _scope = gpu.scope(scope);
        x.matmul(&weight).unwrap().force().unwrap();
    }
    let times = gpu.kernels().times().unwrap();
    let products = times.iter().filter(|time| time.kernel.contains("matmul"));
    let mut told: Vec<_> = products
        .map(|time| {
            let scope = time.tag.as_ref().and_then(|tag| tag.scope());
            (
                scope.unwrap_or_default(),
                time.operands.as_str(),
                time.calls,
            )
        })
        .collect();
    told.sort_unstable();
    let [eight, sixteen] = [
        "f32 512, f32 4096 → f32 512",
        "f32 1024, f32 4096 → f32 1024",
    ];
    assert_eq!(
        told,
        [
            ("first", eight, 1),
            ("second", sixteen, 1),
            ("second", eight, 1)
        ]
    );
}

#[test]
fn every_dispatch_is_timed_while_that_is_on() {
    let gpu = gpu();
    match gpu.kernels().time(true) {
        Ok(()) => {}
        Err(Error::Option { reason, .. }) => {
            assert!(reason.contains("timestamps"), "{reason}");
            assert_ne!(
                gpu.caps().backend,
                "vulkan",
                "software and real ones have a clock"
            );
            return;
        }
        Err(error) => panic!("{error}"),
    }
    gpu.memory().keep_history(1000);
    work(&gpu);
    is_in_the_history(&gpu);
    gpu.memory().keep_history(0);
    let times = gpu.kernels().times().unwrap();
    let calls = |name: &str| {
        let of_name = times.iter().filter(|time| time.kernel.contains(name));
        of_name.map(|time| time.calls).sum::<u64>()
    };
    assert_eq!(calls("matmul"), 2, "{times:?}");
    assert!(calls("reduce") >= 1, "{times:?}");
    for time in &times {
        assert!(time.least_ns <= time.most_ns, "{time}");
        assert!(time.total_ns >= time.most_ns, "{time}");
    }
    assert!(times.is_sorted_by(|a, b| a.total_ns >= b.total_ns));
    assert!(times[0].total_ns > 0, "{times:?}");
    let product = (times.iter().find(|time| time.kernel.contains("matmul"))).unwrap();
    assert_eq!(product.operands, "2 × f32 4096 → f32 4096", "{product}");
    let tag = product.tag.as_ref().unwrap();
    assert!(tag.file().ends_with("timing.rs"), "{product}");
    assert_eq!(gpu.kernels().times().unwrap(), [], "taken");
    tells_layers_apart(&gpu);
    gpu.kernels().time(false).unwrap();
    work(&gpu);
    assert_eq!(gpu.kernels().times().unwrap(), []);
}
