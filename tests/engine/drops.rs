//! The library drops values held by the app's functions, and their `Drop` may call the library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use lapidary::{Budget, DType, Error, Gpu, Source, Tensor};

use crate::engine::{numbers, open, options};

/// Calls the device, counts, and panics on drop.
struct Talks {
    gpu: Gpu,
    drops: Arc<AtomicU32>,
}

impl Drop for Talks {
    fn drop(&mut self) {
        let _ = self.gpu.memory().stats();
        let flushed = self.gpu.flush();
        assert!(matches!(flushed, Ok(()) | Err(Error::Reentered)));
        self.drops.fetch_add(1, Ordering::Relaxed);
        panic!("on purpose, in a drop");
    }
}

fn source(talks: Talks) -> Source {
    Source::reader(move |_, bytes| {
        let _ = &talks;
        bytes.fill(0);
        Ok(())
    })
}

/// `lose` drops the only holder of its argument. A deadlocked thread would never report its end.
fn check(what: &str, lose: impl FnOnce(&Gpu, &Tensor, Talks) + Send + 'static) {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        let (gpu, _sim) = open(options());
        let drops = Arc::new(AtomicU32::new(0));
        let x = gpu.tensor(&numbers(0, 64), &[64]).unwrap();
        let talks = Talks {
            gpu: gpu.clone(),
            drops: drops.clone(),
        };
        lose(&gpu, &x, talks);
        gpu.flush().unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), numbers(0, 64));
        done.send(drops.load(Ordering::Relaxed)).unwrap();
    });
    let drops = is_done.recv_timeout(Duration::from_secs(20));
    assert_eq!(drops, Ok(1), "{what}");
}

#[test]
fn what_a_source_holds_may_talk_to_the_device_when_it_goes() {
    check("another source comes", |_, x, talks| {
        x.backed_by(source(talks)).unwrap();
        let bytes: Vec<u8> = numbers(0, 64)
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect();
        x.backed_by(Source::bytes(bytes.into())).unwrap();
    });
    check("the tensor goes", |gpu, _, talks| {
        let y = gpu.zeros(&[64], DType::F32).unwrap();
        y.backed_by(source(talks)).unwrap();
        drop(y);
    });
    check("the tensor is written to", |gpu, _, talks| {
        let y = gpu.zeros(&[64], DType::F32).unwrap();
        y.backed_by(source(talks)).unwrap();
        y.write(&numbers(1, 64)).unwrap();
        gpu.flush().unwrap();
    });
    check("the tensor has no bytes", |gpu, _, talks| {
        let y = gpu.zeros(&[0], DType::F32).unwrap();
        let _ = y.backed_by(source(talks));
        drop(y);
    });
}

#[test]
fn what_a_rematerializer_holds_may_talk_to_the_device_when_it_goes() {
    let rematerializer = |talks: Talks| {
        move |inputs: &[Tensor]| {
            let _ = &talks;
            inputs[0].mul(2)
        }
    };
    check("the tensor goes", move |_, x, talks| {
        let y = x.mul(2).unwrap();
        y.recompute_with(&[x], rematerializer(talks)).unwrap();
        drop(y);
    });
    check("another rematerializer comes", move |_, x, talks| {
        let y = x.mul(2).unwrap();
        y.recompute_with(&[x], rematerializer(talks)).unwrap();
        y.recompute_with(&[x], |inputs| inputs[0].mul(2)).unwrap();
    });
}

#[test]
fn what_a_callback_holds_may_talk_to_the_device_when_it_goes() {
    check("the guard goes while it is called", |gpu, _, talks| {
        let own_guard = Arc::new(std::sync::Mutex::new(None));
        let its_guard = own_guard.clone();
        let guard = gpu.memory().on_pressure(move |_| {
            let _ = &talks;
            drop(its_guard.lock().unwrap().take());
        });
        *own_guard.lock().unwrap() = Some(guard);
        drop(own_guard);
        gpu.memory()
            .set_budget(Budget {
                host_bytes: Some(0),
                disk_bytes: Some(0),
                ..Budget::device(1 << 20)
            })
            .unwrap();
        let more = gpu.zeros(&[3 << 16], DType::F32).unwrap();
        assert!(more.force().is_err());
        gpu.memory().set_budget(Budget::default()).unwrap();
    });
}
