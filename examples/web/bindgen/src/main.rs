//! Writes the JavaScript between a wasm file and the browser: `bindgen FILE.wasm FOLDER`.

use std::process::ExitCode;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [wasm, folder] = args.as_slice() else {
        eprintln!("bindgen: wants a wasm file and a folder.");
        return ExitCode::from(2);
    };
    let mut bindgen = Bindgen::new();
    let asked = bindgen.input_path(wasm).web(true);
    let made = asked.and_then(|bindgen| {
        let small = bindgen.typescript(false).remove_name_section(true);
        small.remove_producers_section(true).generate(folder)
    });
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bindgen: {error:#}");
            ExitCode::FAILURE
        }
    }
}
