//! Functions between the page's script and the programs.

use lapidary::{Budget, Gpu};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};

use crate::test;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn complain(text: &str);

    /// Destroys every device that the page has opened, as a failing driver would.
    #[wasm_bindgen(js_namespace = ["globalThis", "lapidary"], js_name = destroyDevices)]
    pub(crate) fn destroy_devices();
}

/// Reports a panic on the browser's console before it stops the program.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|panic| complain(&panic.to_string())));
}

/// The error's text as a JavaScript error.
pub(crate) fn told(error: impl std::fmt::Display) -> JsError {
    JsError::new(&error.to_string())
}

/// What the page shows of the memory of a class with a device.
macro_rules! shows_memory {
    ($class:ident) => {
        #[wasm_bindgen]
        impl $class {
            /// The memory report, as text.
            pub fn memory(&self) -> String {
                self.gpu.memory().stats().to_string()
            }

            /// Live bytes, bytes of slabs, and all bytes that lapidary has made on the device, for
            /// a bar.
            pub fn bytes(&self) -> Vec<f64> {
                let memory = self.gpu.memory().stats();
                let levels = [
                    memory.live_bytes,
                    memory.reserved_bytes,
                    memory.device_bytes,
                ];
                levels.iter().map(|level| level.now as f64).collect()
            }
        }
    };
}
pub(crate) use shows_memory;

/// Parses the page's budget field, of at least so many MiB.
pub(crate) fn budget(mib: Option<f64>, least: f64) -> Result<Budget, JsError> {
    const MOST: f64 = 1_048_576.0;
    match mib {
        None => Ok(Budget::default()),
        Some(mib) if (least..=MOST).contains(&mib) => {
            Ok(Budget::device((mib * 1_048_576.0) as u64))
        }
        Some(mib) => Err(told(format_args!(
            "a budget is {least} to {MOST} MiB, or none, and not {mib}"
        ))),
    }
}

/// Sets the budget, on a new device if the old one is lost. Returns whether it was.
pub(crate) async fn limit(gpu: &Gpu, budget: Budget) -> lapidary::Result<bool> {
    let finished = gpu.finish_async().await;
    let is_lost = matches!(finished, Err(lapidary::Error::DeviceLost { .. }));
    if is_lost {
        gpu.reopen_async().await?;
    }
    gpu.memory().set_budget_async(budget).await?;
    gpu.memory().reset_peaks();
    Ok(is_lost)
}

/// Runs the test. Calls `tell` for each part with its name, whether it passed, and a sentence.
/// Returns a snapshot of the memory, as JSON.
#[wasm_bindgen]
pub async fn self_test(tell: js_sys::Function) -> String {
    let tell = |name: &str, told: &Result<String, String>| {
        let (Ok(sentence) | Err(sentence)) = told;
        let args: [JsValue; 3] = [name.into(), told.is_ok().into(), sentence.as_str().into()];
        let args = args.into_iter().collect::<js_sys::Array>();
        // The browser reports errors of the script.
        let _ = tell.apply(&JsValue::NULL, &args);
    };
    test::run(tell).await
}
