//! Functions between the page's script and the programs.

use lapidary::Gpu;
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

/// Live bytes, bytes of slabs, and all bytes that lapidary has made on the device, for a bar.
pub(crate) fn levels(gpu: &Gpu) -> Vec<f64> {
    let memory = gpu.memory().stats();
    let levels = [
        memory.live_bytes,
        memory.reserved_bytes,
        memory.device_bytes,
    ];
    levels.iter().map(|level| level.now as f64).collect()
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
