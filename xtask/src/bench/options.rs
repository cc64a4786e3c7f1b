//! The options of `bench`.

use super::peers::NAMES;
use crate::process::Result;

#[derive(Default)]
pub(super) struct Options {
    pub(super) is_json: bool,
    pub(super) is_list: bool,
    pub(super) into_docs: bool,
    pub(super) with_build: bool,
    pub(super) seconds: Option<String>,
    pub(super) against: Option<String>,
    pub(super) peers: Vec<String>,
    pub(super) words: Vec<String>,
}

/// Reads the command line.
pub(super) fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || {
            let value = args.next().ok_or(format!("`{arg}` wants a value."));
            value.cloned()
        };
        match arg.as_str() {
            "--json" => options.is_json = true,
            "--list" => options.is_list = true,
            "--docs" => options.into_docs = true,
            "--build" => options.with_build = true,
            "--seconds" => options.seconds = Some(value()?),
            "--against" => options.against = Some(value()?),
            "--peers" => options.peers = NAMES.map(str::to_owned).to_vec(),
            "--peer" => options.peers.push(value()?),
            "--" => {}
            _ if arg.starts_with('-') => {
                return Err(format!(
                    "`bench` has no option `{arg}`; see `cargo xtask bench --help`."
                ));
            }
            _ => options.words.push(arg.clone()),
        }
    }
    if options.against.is_some() && !options.peers.is_empty() {
        return Err("another commit or other libraries: one at a time.".into());
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_options_are_told_apart() {
        let parsed = |text: &str| {
            let args: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            parse(&args)
        };
        let options = parsed("table --json matmul --seconds 3").expect("good options");
        assert!(options.is_json && options.words == ["table", "matmul"]);
        assert_eq!(options.seconds.as_deref(), Some("3"));
        for bad in ["--fast", "--seconds", "--against", "--peers --against HEAD"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
