//! The test of the library in a browser: the cases, compared with results from elsewhere, and tests
//! that only a browser has.

use lapidary::{Budget, DType, Error, Gpu, Options, wgpu};

use crate::cases::CASES;
use crate::expected;
use crate::script::destroy_devices;

const MIB: u64 = 1 << 20;

/// The result of a part of the test, as a sentence.
type Told = Result<String, String>;

/// Runs everything, and reports each part. Returns a snapshot of the memory, as JSON.
pub(crate) async fn run(tell: impl Fn(&str, &Told)) -> String {
    let gpu = match Gpu::open_async(Options::default()).await {
        Ok(gpu) => gpu,
        Err(error) => {
            tell("open", &Err(error.to_string()));
            return String::new();
        }
    };
    tell("open", &Ok(device(&gpu)));
    for case in CASES {
        let computed = (case.run)(&gpu).await.map_err(|error| error.to_string());
        let compared =
            computed.and_then(|values| expected::compare(case.name, &values, case.tolerance));
        tell(
            case.name,
            &compared.map(|apart| format!("within {apart:.1e}")),
        );
    }
    tell("what would block is refused", &blocking(&gpu).await);
    tell("what does not fit is refused", &refusals(&gpu).await);
    tell("there are no files", &files(&gpu));
    let snapshot = json(&gpu);
    tell("a lost device", &loss(&gpu).await);
    drop(gpu);
    tell("least limits", &least_limits().await);
    snapshot
}

fn device(gpu: &Gpu) -> String {
    let caps = gpu.caps();
    format!(
        "{} by {}: bindings of {} MiB, buffers of {} MiB",
        caps.name,
        caps.backend,
        caps.max_binding_bytes / MIB,
        caps.max_buffer_bytes / MIB
    )
}

fn json(gpu: &Gpu) -> String {
    let mut json = Vec::new();
    match gpu.memory().snapshot().write_json(&mut json) {
        Ok(()) => String::from_utf8_lossy(&json).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// An error unless `is_so`.
fn check(is_so: bool, what: &str) -> Result<(), String> {
    match is_so {
        true => Ok(()),
        false => Err(format!("not so: {what}")),
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

/// A call that would block is an error, and harms nothing.
async fn blocking(gpu: &Gpu) -> Told {
    let opened = Gpu::open(Options::default());
    let refused = match opened {
        Err(error @ Error::WouldBlock { .. }) => error.to_string(),
        other => return Err(format!("it opened: {other:?}")),
    };
    let x = gpu.full(&[1000], 1.5, DType::F32).map_err(text)?;
    let y = (&x + &x).map_err(text)?;
    for result in [
        gpu.finish(),
        gpu.memory().trim(0).map(drop),
        gpu.memory().compact(MIB).map(drop),
        y.evict(),
    ] {
        check(
            matches!(result, Ok(()) | Err(Error::WouldBlock { .. })),
            "it works or would block",
        )?;
    }
    check(
        y.to_vec_async::<f32>().await.map_err(text)? == vec![3.0; 1000],
        "the value is there afterwards",
    )?;
    // More than staging holds: refused by the blocking form, and uploaded in pieces by the other.
    let many: Vec<u32> = (0..20 << 20).collect();
    match gpu.tensor(&many, &[20 << 20]) {
        Err(Error::WouldBlock { .. }) => {}
        other => return Err(format!("80 MiB were taken at once: {:?}", other.map(drop))),
    }
    // Small tensors need no staging.
    let small = (0..96).map(|_| gpu.tensor(&many[..1 << 18], &[1 << 18]));
    let small = small.collect::<lapidary::Result<Vec<_>>>().map_err(text)?;
    check(
        small[95].to_vec_async::<u32>().await.map_err(text)? == many[..1 << 18],
        "the last of 96 MiB in small tensors comes back",
    )?;
    drop(small);
    let tensor = gpu.tensor_async(&many, &[20 << 20]).await.map_err(text)?;
    check(
        tensor.to_vec_async::<u32>().await.map_err(text)? == many,
        "80 MiB come back",
    )?;
    tensor.write_async(&many[..]).await.map_err(text)?;
    Ok(refused)
}

async fn refusals(gpu: &Gpu) -> Told {
    let shape = [1 << 20, 1 << 13];
    let too_large = gpu.zeros(&shape, DType::F32);
    check(
        matches!(too_large, Err(Error::NeverFits { .. })),
        "32 GiB never fit",
    )?;
    let before = gpu.memory().budget();
    gpu.finish_async().await.map_err(text)?;
    gpu.memory().trim_async(0).await.map_err(text)?;
    let none_to_host = Budget {
        host_bytes: Some(0),
        ..Budget::device(4 * MIB)
    };
    gpu.memory()
        .set_budget_async(none_to_host)
        .await
        .map_err(text)?;
    let mut kept = Vec::new();
    let mut refused = None;
    for _ in 0..8 {
        let tensor = gpu.ones(&[256, 1024], DType::F32).map_err(text)?;
        if let Err(error) = tensor.force_async().await {
            refused = Some(error);
            break;
        }
        kept.push(tensor);
    }
    gpu.memory().set_budget_async(before).await.map_err(text)?;
    let Some(error) = refused else {
        return Err("8 MiB found room within 4".into());
    };
    let sum = kept[0]
        .sum(&[0, 1])
        .map_err(text)?
        .to_vec_async::<f32>()
        .await
        .map_err(text)?;
    check(sum == [262_144.0], "what there was is still there")?;
    Ok(error.to_string())
}

fn files(gpu: &Gpu) -> Told {
    let x = gpu.ones(&[4], DType::F32).map_err(text)?;
    match (
        gpu.files().save_state("state", &[("x", &x)]),
        gpu.files().load_state("state").map(drop),
    ) {
        (Err(saved), Err(_)) => Ok(saved.to_string()),
        _ => Err("a file was written or read".into()),
    }
}

/// The device is lost; tensors with a copy on the host are restored on another one.
async fn loss(gpu: &Gpu) -> Told {
    let kept = gpu.tensor(&[1.0_f32, 2.0, 3.0], &[3]).map_err(text)?;
    kept.evict_async().await.map_err(text)?;
    let gone = gpu.ones(&[1000], DType::F32).map_err(text)?;
    gone.force_async().await.map_err(text)?;
    destroy_devices();
    let lost = match gone.to_vec_async::<f32>().await {
        Err(error @ Error::DeviceLost { .. }) => error.to_string(),
        other => {
            return Err(format!(
                "the device was destroyed, but {:?}",
                other.map(|all| all.len())
            ));
        }
    };
    let recovered = gpu.reopen_async().await.map_err(text)?;
    check(
        kept.to_vec_async::<f32>().await.map_err(text)? == [1.0, 2.0, 3.0],
        "what the host had is back",
    )?;
    check(
        gone.to_vec_async::<f32>().await.is_err(),
        "what only the device had is gone",
    )?;
    check(
        recovered.kept >= 1 && !recovered.gone.is_empty(),
        "both are counted",
    )?;
    Ok(lost)
}

/// A device with the limits that every browser has, opened by the app: 128 MiB a binding, 256 MiB a
/// buffer.
async fn least_limits() -> Told {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = instance.request_adapter(&Default::default()).await;
    let adapter = adapter.map_err(|error| error.to_string())?;
    let opened = adapter
        .request_device(&wgpu::DeviceDescriptor::default())
        .await;
    let (device, queue) = opened.map_err(|error| error.to_string())?;
    let gpu = Gpu::adopt(&adapter, &device, &queue).map_err(text)?;
    let caps = gpu.caps();
    check(caps.max_binding_bytes == 128 * MIB, "bindings of 128 MiB")?;
    check(caps.max_buffer_bytes == 256 * MIB, "buffers of 256 MiB")?;
    check(caps.max_storage_bindings == 8, "8 bindings")?;
    let too_large = gpu.zeros(&[65 << 20], DType::F32);
    check(
        matches!(too_large, Err(Error::NeverFits { .. })),
        "260 MiB never fit",
    )?;
    // 160 MiB: more than one binding covers.
    let len = 40 << 20;
    let x = gpu.arange(0, len, 1, DType::I32).map_err(text)?;
    let y = (&(&x * 3).map_err(text)? + 1).map_err(text)?;
    for at in [0, 33_554_430, len as usize - 4] {
        let read = y
            .narrow(0, at, 4)
            .map_err(text)?
            .to_vec_async::<i32>()
            .await
            .map_err(text)?;
        let wanted: Vec<i32> = (at as i32..at as i32 + 4).map(|i| i * 3 + 1).collect();
        check(
            read == wanted,
            &format!("from {at} on it is {wanted:?}, not {read:?}"),
        )?;
    }
    let most = y
        .max(&[0])
        .map_err(text)?
        .to_vec_async::<i32>()
        .await
        .map_err(text)?;
    check(most == [(len - 1) * 3 + 1], "the largest of 40 Mi elements")?;
    let reserved = gpu.memory().stats().reserved_bytes.peak / MIB;
    Ok(format!(
        "160 MiB through windows of 128, {reserved} MiB reserved at most"
    ))
}
