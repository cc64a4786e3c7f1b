//! `web`: builds the page of examples/web, then serves it or tests it in a browser without a
//! window.

mod build;
mod search;
mod serve;
mod test;

use std::net::TcpListener;

use crate::model;
use crate::process::Result;

pub(crate) use build::build;
pub(crate) use test::test;

/// The text of `cargo xtask web --help`.
pub(crate) const ABOUT: &str = "Build the page of examples/web (small: optimised for size) and serve it on this machine, with the model of `fetch-model` for its search if it is there. --test runs its test in Chromium without a window, on a software adapter, and ends. --port N serves at another port than 8013.";

const PORT: u16 = 8013;

/// Builds the page, then serves or tests it.
pub(crate) fn web(args: &[String]) -> Result {
    let (mut port, mut is_test) = (PORT, false);
    let mut args = args.iter();
    while let Some(option) = args.next() {
        match option.as_str() {
            "--test" => is_test = true,
            "--port" => {
                let given = args.next().and_then(|text| text.parse().ok());
                port = given.ok_or("`--port` wants a number up to 65535.")?;
            }
            _ => {
                return Err(format!(
                    "`web` has no option `{option}`; see `cargo xtask web --help`."
                ));
            }
        }
    }
    let page = build()?;
    println!("{}", page.size);
    if is_test {
        println!("{}", test(&page.folder)?);
        return Ok(());
    }
    let listener = TcpListener::bind(("127.0.0.1", port));
    let listener =
        listener.map_err(|error| format!("port {port}: {error}; `--port` takes another."))?;
    println!("The page is at http://127.0.0.1:{port}/ until you press Ctrl-C.");
    if !model::is_there() {
        println!("There is no model for its search: `cargo xtask fetch-model` gets one, 83 MB.");
    }
    let site = serve::Site {
        folder: page.folder,
        beside: vec![("model", model::folder())],
    };
    serve::serve(&listener, &site);
    Ok(())
}
